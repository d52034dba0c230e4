// SPDX-License-Identifier: BSD-3-Clause
#include "soft/queues/work_requests.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "soft/wire/rdmap.hpp"

namespace soft {

namespace {

WorkRequests &of(ibv_qp_ex *qp) {
    return *static_cast<AnyQueuePair *>(qp)->prepared_requests();
}

void add_rdma(ibv_qp_ex *qp, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address,
              __be32 immediate = 0) {
    if (ibv_send_wr *const request = of(qp).add(opcode)) {
        request->wr.rdma.remote_addr = address;
        request->wr.rdma.rkey = rkey;
        request->imm_data = immediate;
    }
}

void add_send(ibv_qp_ex *qp, ibv_wr_opcode opcode, __be32 immediate = 0) {
    if (ibv_send_wr *const request = of(qp).add(opcode)) {
        request->imm_data = immediate;
    }
}

void add_atomic(ibv_qp_ex *qp, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address,
                std::uint64_t compare_add, std::uint64_t swap) {
    if (ibv_send_wr *const request = of(qp).add(opcode)) {
        request->wr.atomic = {.remote_addr = address, .compare_add = compare_add, .swap = swap, .rkey = rkey};
    }
}

// No queue pair of this device has these operations; complete() returns the error.
template <typename... Arguments>
void refuse(ibv_qp_ex *qp, Arguments...) {
    of(qp).fail(EOPNOTSUPP);
}

void fill_in(ibv_qp_ex &qp) {
    qp.wr_start = [](ibv_qp_ex *self) { of(self).start(); };
    qp.wr_complete = [](ibv_qp_ex *self) { return of(self).complete(); };
    qp.wr_abort = [](ibv_qp_ex *self) { of(self).abort(); };

    qp.wr_rdma_write = [](ibv_qp_ex *self, std::uint32_t rkey, std::uint64_t address) {
        add_rdma(self, IBV_WR_RDMA_WRITE, rkey, address);
    };
    qp.wr_rdma_write_imm = [](ibv_qp_ex *self, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
        add_rdma(self, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address, immediate);
    };
    qp.wr_rdma_read = [](ibv_qp_ex *self, std::uint32_t rkey, std::uint64_t address) {
        add_rdma(self, IBV_WR_RDMA_READ, rkey, address);
    };
    qp.wr_send = [](ibv_qp_ex *self) { add_send(self, IBV_WR_SEND); };
    qp.wr_send_imm = [](ibv_qp_ex *self, __be32 immediate) {
        add_send(self, IBV_WR_SEND_WITH_IMM, immediate);
    };
    qp.wr_send_inv = [](ibv_qp_ex *self, std::uint32_t rkey) {
        add_send(self, IBV_WR_SEND_WITH_INV, rkey);  // invalidate_rkey is in imm_data's place
    };
    qp.wr_atomic_cmp_swp = [](ibv_qp_ex *self, std::uint32_t rkey, std::uint64_t address,
                              std::uint64_t compare, std::uint64_t swap) {
        add_atomic(self, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address, compare, swap);
    };
    qp.wr_atomic_fetch_add = [](ibv_qp_ex *self, std::uint32_t rkey, std::uint64_t address,
                                std::uint64_t add) {
        add_atomic(self, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address, add, 0);
    };
    qp.wr_atomic_write = [](ibv_qp_ex *self, std::uint32_t rkey, std::uint64_t address, const void *value) {
        add_rdma(self, IBV_WR_ATOMIC_WRITE, rkey, address);
        const ibv_data_buf buffer{.addr = const_cast<void *>(value), .length = wire::atomic_write_bytes};
        of(self).set_copied({&buffer, 1});
    };

    qp.wr_bind_mw = [](ibv_qp_ex *self, ibv_mw *window, std::uint32_t rkey, const ibv_mw_bind_info *info) {
        if (window == nullptr || info == nullptr) {
            of(self).fail(EINVAL);
        } else if (ibv_send_wr *const request = of(self).add(IBV_WR_BIND_MW)) {
            request->bind_mw = {.mw = window, .rkey = rkey, .bind_info = *info};
        }
    };
    qp.wr_local_inv = [](ibv_qp_ex *self, std::uint32_t rkey) {
        if (ibv_send_wr *const request = of(self).add(IBV_WR_LOCAL_INV)) {
            request->invalidate_rkey = rkey;
        }
    };
    qp.wr_send_tso = refuse;
    qp.wr_set_xrc_srqn = [](ibv_qp_ex *self, std::uint32_t number) { of(self).set_shared_queue(number); };

    qp.wr_set_sge = [](ibv_qp_ex *self, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
        const ibv_sge sge{.addr = address, .length = length, .lkey = lkey};
        of(self).set_sges({&sge, 1});
    };
    qp.wr_set_sge_list = [](ibv_qp_ex *self, std::size_t count, const ibv_sge *sges) {
        of(self).set_sges({sges, count});
    };
    qp.wr_set_inline_data = [](ibv_qp_ex *self, void *data, std::size_t length) {
        const ibv_data_buf buffer{.addr = data, .length = length};
        of(self).set_copied({&buffer, 1});
    };
    qp.wr_set_inline_data_list = [](ibv_qp_ex *self, std::size_t count, const ibv_data_buf *buffers) {
        of(self).set_copied({buffers, count});
    };
    qp.wr_set_ud_addr = [](ibv_qp_ex *self, ibv_ah *handle, std::uint32_t remote_qpn,
                           std::uint32_t remote_qkey) {
        of(self).set_address(handle, remote_qpn, remote_qkey);
    };
}

}  // namespace

WorkRequests::WorkRequests(AnyQueuePair &queue_pair, const ibv_qp_cap &cap)
    : queue_pair_{queue_pair},
      max_sge_{cap.max_send_sge},
      max_copied_{cap.max_inline_data},
      requests_(cap.max_send_wr),
      sges_(cap.max_send_wr * max_sge_),
      copied_(cap.max_send_wr) {
    fill_in(queue_pair);
}

void WorkRequests::start() {
    const bool inherited = queue_pair_.inherited();
    if (!inherited) {
        mutex_.take();
    }
    held();
    count_ = 0;
    error_ = inherited ? EINVAL : 0;
}

void WorkRequests::abort() {
    if (!queue_pair_.inherited()) {
        mutex_.leave();
    }
}

int WorkRequests::complete() {
    held();
    int error = error_;
    if (error == 0 && count_ != 0) {
        ibv_send_wr *bad = nullptr;
        error = queue_pair_.post_send(requests_.data(), &bad, AnyQueuePair::ChainPart::Nothing);
    }
    abort();  // nothing of the chain is left here, and the next one may start
    return error;
}

ibv_send_wr *WorkRequests::add(ibv_wr_opcode opcode) {
    held();
    if (count_ == requests_.size()) {
        fail(ENOMEM);
    }
    if (error_ != 0) {
        return nullptr;
    }
    ibv_send_wr &request = requests_[count_];
    request = {};
    request.wr_id = queue_pair_.wr_id;
    request.opcode = opcode;
    request.send_flags = queue_pair_.wr_flags;
    request.sg_list = &sges_[count_ * max_sge_];
    if (count_ != 0) {
        requests_[count_ - 1].next = &request;
    }
    ++count_;
    return &request;
}

void WorkRequests::set_sges(std::span<const ibv_sge> sges) {
    held();
    if (count_ == 0 || sges.size() > max_sge_) {
        fail(EINVAL);
    }
    if (error_ == 0) {
        ibv_send_wr &request = requests_[count_ - 1];
        std::ranges::copy(sges, request.sg_list);
        request.num_sge = static_cast<int>(sges.size());
    }
}

void WorkRequests::set_copied(std::span<const ibv_data_buf> buffers) {
    held();
    std::size_t bytes = 0;
    for (const ibv_data_buf &buffer : buffers) {
        if (count_ == 0 || buffer.length > max_copied_ - bytes) {
            fail(EINVAL);
            return;
        }
        bytes += buffer.length;
    }
    if (count_ == 0 || error_ != 0) {
        return;
    }
    std::vector<std::byte> &copy = copied_[count_ - 1];
    try {
        copy.resize(bytes);
    } catch (const std::bad_alloc &) {
        fail(ENOMEM);
        return;
    }
    std::byte *to = copy.data();
    for (const ibv_data_buf &buffer : buffers) {
        if (buffer.length != 0) {
            std::memcpy(to, buffer.addr, buffer.length);
            to += buffer.length;
        }
    }
    ibv_send_wr &request = requests_[count_ - 1];
    request.send_flags |= IBV_SEND_INLINE;
    request.num_sge = bytes != 0 ? 1 : 0;
    if (bytes != 0) {
        request.sg_list[0] = {.addr = reinterpret_cast<std::uintptr_t>(copy.data()),
                              .length = static_cast<std::uint32_t>(bytes),
                              .lkey = 0};
    }
}

void WorkRequests::set_address(ibv_ah *handle, std::uint32_t remote_qpn, std::uint32_t remote_qkey) {
    held();
    if (count_ == 0 || queue_pair_.qp_base.qp_type != IBV_QPT_UD) {
        fail(EINVAL);
    }
    if (error_ == 0) {
        requests_[count_ - 1].wr.ud = {.ah = handle, .remote_qpn = remote_qpn, .remote_qkey = remote_qkey};
    }
}

void WorkRequests::set_shared_queue(std::uint32_t number) {
    held();
    if (count_ == 0 || queue_pair_.qp_base.qp_type != IBV_QPT_XRC_SEND) {
        fail(EINVAL);
    }
    if (error_ == 0) {
        requests_[count_ - 1].qp_type.xrc.remote_srqn = number;
    }
}

}  // namespace soft
