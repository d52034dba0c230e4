// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/completion_queue_extended: the functions of ibv_cq_ex, which read one completion at a time.
#include <cerrno>

#include "soft/queues/completion_queue.hpp"

namespace soft {

namespace {

CompletionQueue &queue_of(ibv_cq_ex *queue) {
    return *static_cast<CompletionQueue *>(queue);
}

}  // namespace

int CompletionQueue::poll_extended() {
    const int polled = read_completion_ts != nullptr ? poll_stamped() : poll(1, &read_);
    if (polled <= 0) {
        return polled == 0 ? ENOENT : EINVAL;
    }
    wr_id = read_.wr_id;
    status = read_.status;
    return 0;
}

// No connection of this device has tags, VLANs or flows. A program that asks for them is refused, and their
// functions stay null.
void CompletionQueue::extend(std::uint64_t parts) {
    if ((parts & wc_stamps) != 0) {
        read_completion_ts = [](ibv_cq_ex *self) { return queue_of(self).read_stamp_.raw; };
        read_completion_wallclock_ns = [](ibv_cq_ex *self) { return queue_of(self).read_stamp_.wallclock; };
        const base::Lock lock{mutex_};
        stamps_ = std::make_unique_for_overwrite<Stamp[]>(ring_.places());
        watched_ = true;
    }
    start_poll = [](ibv_cq_ex *self, ibv_poll_cq_attr *attributes) {
        if (attributes->comp_mask != 0 || queue_of(self).inherited()) {
            return EINVAL;
        }
        queue_of(self).reading_.take();
        const int error = queue_of(self).poll_extended();
        if (error != 0) {
            queue_of(self).reading_.leave();  // the program then makes no call of end_poll
        }
        return error;
    };
    next_poll = [](ibv_cq_ex *self) { return queue_of(self).poll_extended(); };
    end_poll = [](ibv_cq_ex *self) { queue_of(self).reading_.leave(); };
    read_opcode = [](ibv_cq_ex *self) { return queue_of(self).read_.opcode; };
    read_vendor_err = [](ibv_cq_ex *self) { return queue_of(self).read_.vendor_err; };
    read_byte_len = [](ibv_cq_ex *self) { return queue_of(self).read_.byte_len; };
    read_imm_data = [](ibv_cq_ex *self) { return queue_of(self).read_.imm_data; };
    read_qp_num = [](ibv_cq_ex *self) { return queue_of(self).read_.qp_num; };
    read_src_qp = [](ibv_cq_ex *self) { return queue_of(self).read_.src_qp; };
    read_wc_flags = [](ibv_cq_ex *self) { return queue_of(self).read_.wc_flags; };
    read_slid = [](ibv_cq_ex *self) { return std::uint32_t{queue_of(self).read_.slid}; };
    read_sl = [](ibv_cq_ex *self) { return queue_of(self).read_.sl; };
    read_dlid_path_bits = [](ibv_cq_ex *self) { return queue_of(self).read_.dlid_path_bits; };
}

}  // namespace soft
