// SPDX-License-Identifier: BSD-3-Clause
#include "side.hpp"

#include <algorithm>
#include <cstring>

namespace model {

namespace {

bool answers(ibv_wr_opcode opcode) {
    return opcode == IBV_WR_RDMA_READ || opcode == conformance::flush_opcode;
}

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
    if (opcode == conformance::flush_opcode) {
        return conformance::flush_completed;
    }
    switch (opcode) {
        case IBV_WR_RDMA_READ:
            return IBV_WC_RDMA_READ;
        case IBV_WR_SEND:
        case IBV_WR_SEND_WITH_IMM:
            return IBV_WC_SEND;
        case IBV_WR_ATOMIC_WRITE:
            return IBV_WC_ATOMIC_WRITE;
        default:
            return IBV_WC_RDMA_WRITE;
    }
}

bool is_write(ibv_wr_opcode opcode) {
    return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
           opcode == IBV_WR_ATOMIC_WRITE;
}

// "" or where the memory differs from what it must be.
std::string difference(const std::byte *memory, const std::vector<std::byte> &expected,
                       const std::vector<char> &unknown) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (memory[i] != expected[i] && unknown[i] == 0) {
            return "byte " + std::to_string(i) + " is " + std::to_string(static_cast<unsigned>(memory[i])) +
                   ", not " + std::to_string(static_cast<unsigned>(expected[i]));
        }
    }
    return {};
}

void mark(std::vector<char> &unknown, const Range &range) {
    std::fill_n(unknown.begin() + static_cast<std::ptrdiff_t>(range.offset), range.length, char{1});
}

void put(std::vector<std::byte> &to, std::size_t offset, const std::byte *from, std::size_t length) {
    std::copy_n(from, length, to.begin() + static_cast<std::ptrdiff_t>(offset));
}

}  // namespace

bool is_send(ibv_wr_opcode opcode) {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

bool has_immediate(ibv_wr_opcode opcode) {
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

void Side::begin(std::uint64_t pattern) {
    change_source(pattern);
    const auto *const memory = end_.memory.data();
    target_.assign(memory + Layout::target, memory + Layout::target + Layout::target_bytes);
    sink_.assign(memory + Layout::sink, memory + Layout::sink + Layout::sink_bytes);
    target_unknown_.assign(target_.size(), 0);
    sink_unknown_.assign(sink_.size(), 0);
}

void Side::change_source(std::uint64_t pattern) {
    for (std::size_t i = 0; i < Layout::source_bytes; i += sizeof(pattern)) {
        pattern = pattern * 6364136223846793005U + 1442695040888963407U;
        std::memcpy(end_.memory.data() + i, &pattern, sizeof(pattern));
    }
}

void Side::posted(const Operation &operation, const std::vector<std::byte> &content, Side &other) {
    open_.push_back(operation);
    if (takes_receive(operation.opcode)) {
        other.messages_.push_back({.operation = operation, .content = content});
    }
    if (operation.opcode == IBV_WR_RDMA_READ) {
        put(sink_, operation.local.offset, other.target_.data() + operation.remote.offset,
            operation.remote.length);
    } else if (is_write(operation.opcode)) {
        const auto there = other.target_.begin() + static_cast<std::ptrdiff_t>(operation.remote.offset);
        open_.back().content = content;
        open_.back().before.assign(there, there + static_cast<std::ptrdiff_t>(content.size()));
        put(other.target_, operation.remote.offset, content.data(), content.size());
        unsettled_.push_back(operation.remote);
    }
}

void Side::posted_receive(std::uint64_t wr_id, std::vector<ibv_sge> sges) {
    receives_.push_back({.wr_id = wr_id, .sges = std::move(sges)});
}

bool Side::reads_from(const Range &remote) const {
    return std::ranges::any_of(open_, [&remote](const Operation &one) {
        return one.opcode == IBV_WR_RDMA_READ && one.remote.overlaps(remote);
    });
}

// A queue whose requests are all unsignaled would never have a free slot again.
bool Side::signal_is_due(std::size_t about_to_post) const {
    return open_.size() + about_to_post + 1 >= send_slots() &&
           std::ranges::none_of(open_, [](const Operation &one) { return one.signaled; });
}

bool Side::settled() const {
    return messages_.empty() &&
           std::ranges::none_of(open_, [](const Operation &one) { return one.signaled; });
}

std::string Side::poll(int most) {
    for (ibv_cq *const cq : {end_.cq, end_.receive_cq}) {
        for (int left = most; left > 0; --left) {
            ibv_wc completion{};
            const int count = ibv_poll_cq(cq, 1, &completion);
            if (count < 0) {
                return wrong("a completion queue cannot be polled");
            }
            if (count == 0) {
                break;
            }
            if (auto failure = completed(completion); !failure.empty()) {
                return failure;
            }
        }
    }
    return {};
}

std::string Side::completed(const ibv_wc &completion) {
    if (completion.qp_num != end_.id->qp->qp_num) {
        return wrong("a completion of another queue pair");
    }
    return (completion.wr_id & receive_mark) != 0 ? received(completion) : sent(completion);
}

std::string Side::received(const ibv_wc &completion) {
    if (receives_.empty() || receives_.front().wr_id != completion.wr_id) {
        return wrong("a receive that is not the oldest one posted");
    }
    const Posted receive = std::move(receives_.front());
    receives_.pop_front();
    if (completion.status != IBV_WC_SUCCESS) {
        receive_failed_ = true;
        return (ending_ != Ending::None || faults_) && completion.status == IBV_WC_WR_FLUSH_ERR
                   ? ""
                   : wrong(std::string{"a receive ends with "} + ibv_wc_status_str(completion.status));
    }
    if (receive_failed_) {
        return wrong("a receive behind one that failed");
    }
    if (messages_.empty()) {
        return wrong("a message that nobody sent");
    }
    const Message message = std::move(messages_.front());
    messages_.pop_front();
    ++received_;
    if (auto text = differs(completion, message); !text.empty()) {
        return text;
    }
    if (!is_send(message.operation.opcode)) {
        return {};
    }
    std::size_t done = 0;
    for (const ibv_sge &sge : receive.sges) {
        const std::size_t bytes = std::min<std::size_t>(sge.length, message.content.size() - done);
        // NOLINTNEXTLINE(performance-no-int-to-ptr): verbs passes addresses as integers.
        if (bytes != 0 && std::memcmp(reinterpret_cast<const void *>(sge.addr), message.content.data() + done,
                                      bytes) != 0) {
            return wrong("a message with other bytes than were sent");
        }
        done += bytes;
    }
    return {};
}

std::string Side::differs(const ibv_wc &completion, const Message &message) const {
    const Operation &operation = message.operation;
    const auto expected = is_send(operation.opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
    if (completion.opcode != expected || completion.byte_len != message.content.size()) {
        return wrong("a message of " + std::to_string(completion.byte_len) + " bytes, not " +
                     std::to_string(message.content.size()) + ", or of another kind");
    }
    const bool with_immediate = (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
    if (with_immediate != has_immediate(operation.opcode) ||
        (with_immediate && completion.imm_data != operation.immediate)) {
        return wrong("immediate data that was not sent");
    }
    return {};
}

// By number a request that is open when the other side leaves, or is posted later, fails so.
bool Side::may_fail(ibv_wc_status status) const {
    const bool may_be_lost = faults_ || (conformance::subject.by_number && ending_ == Ending::There);
    if (may_be_lost && !send_failed_ && status == IBV_WC_RETRY_EXC_ERR) {
        return true;
    }
    if (ending_ == Ending::RefusedThere && !send_failed_) {
        return status == IBV_WC_REM_ACCESS_ERR;
    }
    return (ending_ != Ending::None || faults_) && status == IBV_WC_WR_FLUSH_ERR;
}

// Requests before it that asked for no completion are done: those that fail are told of in any case.
std::string Side::sent(const ibv_wc &completion) {
    while (!open_.empty() && open_.front().wr_id != completion.wr_id) {
        if (open_.front().signaled || send_failed_) {
            return wrong("request " + std::to_string(open_.front().wr_id) + " is left out before " +
                         std::to_string(completion.wr_id));
        }
        acknowledged_ += takes_receive(open_.front().opcode) ? 1 : 0;
        open_.pop_front();
    }
    if (open_.empty()) {
        return wrong("a completion of nothing that is open: " + std::to_string(completion.wr_id));
    }
    Operation done = std::move(open_.front());
    open_.pop_front();
    if (completion.status != IBV_WC_SUCCESS) {
        if (!may_fail(completion.status)) {
            return wrong("request " + std::to_string(done.wr_id) + " ends with " +
                         ibv_wc_status_str(completion.status));
        }
        send_failed_ = true;
        cut_ = cut_ || completion.status == IBV_WC_RETRY_EXC_ERR;
        if (done.opcode == IBV_WR_RDMA_READ) {
            mark(sink_unknown_, done.local);
        } else if (is_write(done.opcode)) {
            failed_.push_back(std::move(done));
        }
        return {};
    }
    if (send_failed_ || !done.signaled || completion.opcode != completion_opcode(done.opcode)) {
        return wrong("request " + std::to_string(done.wr_id) + " cannot be done");
    }
    acknowledged_ += takes_receive(done.opcode) ? 1 : 0;
    if (answers(done.opcode) || conformance::subject.by_number) {
        // Only the writes behind it are still open.
        const auto behind = static_cast<std::size_t>(
            std::ranges::count_if(open_, [](const Operation &one) { return is_write(one.opcode); }));
        while (unsettled_.size() > behind) {
            unsettled_.pop_front();
        }
    }
    return {};
}

std::string Side::account_for_messages(const Side &other) const {
    return !conformance::subject.by_number || acknowledged_ <= other.received_
               ? ""
               : wrong(std::to_string(acknowledged_) + " messages completed, and " +
                       std::to_string(other.received_) + " were received");
}

std::string Side::poll_rest() {
    const int everything = static_cast<int>(open_.size() + receives_.size()) + 1;
    if (auto failure = poll(everything); !failure.empty()) {
        return failure;
    }
    if (!receives_.empty()) {
        return wrong("a receive was neither filled nor flushed");
    }
    for (const Operation &one : open_) {
        if (one.signaled || send_failed_) {
            return wrong("request " + std::to_string(one.wr_id) + " was neither done nor flushed");
        }
    }
    return {};
}

// The end that a fault made on this side alone came at one request. Those before it were sent, and the other
// side has placed all of that; of itself, if it is a write, nothing or so many bytes; of those behind it,
// nothing. Any other end says nothing of what failed, and none does by number, where the end on the other
// side looks the same.
std::string Side::account_for_failed(Side &other) {
    if (!cut_ || other.cut_ || conformance::subject.by_number || ending_ != Ending::None ||
        other.ending_ != Ending::None) {
        for (const Operation &one : failed_) {
            mark(other.target_unknown_, one.remote);
        }
        return {};
    }
    const auto is_so = [&other] {
        return std::memcmp(other.end_.memory.data() + Layout::target, other.target_.data(),
                           Layout::target_bytes) == 0;
    };
    for (auto one = failed_.rbegin(); one != failed_.rend(); ++one) {
        put(other.target_, one->remote.offset, one->before.data(), one->before.size());
    }
    for (const Operation &one : failed_) {
        if (is_so()) {
            return {};
        }
        if (one.opcode != IBV_WR_ATOMIC_WRITE && one.remote.length > faults_->torn_bytes) {
            put(other.target_, one.remote.offset, one.content.data(), faults_->torn_bytes);
            if (is_so()) {
                return {};
            }
        }
        put(other.target_, one.remote.offset, one.content.data(), one.content.size());
    }
    return is_so() ? ""
                   : wrong("the other side's target holds something else than the begin of what was posted");
}

void Side::forget_unsettled(Side &other) {
    for (const Range &range : unsettled_) {
        mark(other.target_unknown_, range);
    }
}

std::string Side::compare() const {
    if (auto text = difference(end_.memory.data() + Layout::target, target_, target_unknown_);
        !text.empty()) {
        return wrong("in the target, " + text);
    }
    if (auto text = difference(end_.memory.data() + Layout::sink, sink_, sink_unknown_); !text.empty()) {
        return wrong("where reads land, " + text);
    }
    return {};
}

}  // namespace model
