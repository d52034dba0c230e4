// SPDX-License-Identifier: BSD-3-Clause
#include "soft/queues/send_queue.hpp"

#include <utility>

namespace soft {

namespace {

ibv_wc_opcode completion_opcode(int opcode) {
    if (opcode == IBV_WR_RDMA_WRITE) [[likely]] {
        return IBV_WC_RDMA_WRITE;
    }
    switch (opcode) {
        case IBV_WR_RDMA_READ:
            return IBV_WC_RDMA_READ;
        case IBV_WR_SEND:
        case IBV_WR_SEND_WITH_IMM:
        case IBV_WR_SEND_WITH_INV:
            return IBV_WC_SEND;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return IBV_WC_COMP_SWAP;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return IBV_WC_FETCH_ADD;
        case IBV_WR_BIND_MW:
            return IBV_WC_BIND_MW;
        case IBV_WR_LOCAL_INV:
            return IBV_WC_LOCAL_INV;
        case IBV_WR_ATOMIC_WRITE:
            return IBV_WC_ATOMIC_WRITE;
        case SOFTRDMA_WR_FLUSH:
            return static_cast<ibv_wc_opcode>(SOFTRDMA_WC_FLUSH);
        default:
            return IBV_WC_RDMA_WRITE;
    }
}

}  // namespace

SendQueue::SendQueue(const ibv_qp_cap &cap, bool signal_all, CompletionQueue &completions,
                     Completing &completing, std::uint32_t queue_pair_number)
    : requests_{cap},
      flags_of_all_{signal_all ? unsigned{IBV_SEND_SIGNALED} : 0U},
      completions_{completions},
      completing_{completing},
      queue_pair_number_{queue_pair_number} {}

[[gnu::hot]] void SendQueue::sent() {
    commit(first_unbuilt_);
}

void SendQueue::sent_in_part(std::size_t batch_bytes) {
    std::size_t end = first_uncommitted_;
    while (end < first_unbuilt_ && (requests_.at(end).state != SendRequest::State::Built ||
                                    requests_.at(end).batch_bytes <= batch_bytes)) {
        ++end;
    }
    commit(end);
}

// Notes that the link has taken the requests before that index.
[[gnu::hot, gnu::always_inline]] inline void SendQueue::commit(std::size_t end) {
    for (; first_uncommitted_ < end; ++first_uncommitted_) {
        SendRequest &request = requests_.at(first_uncommitted_);
        if (request.state == SendRequest::State::Built) {
            request.state = request.needs_answer                        ? SendRequest::State::Awaiting
                            : acknowledged_ && is_acknowledged(request) ? SendRequest::State::Sent
                                                                        : SendRequest::State::Done;
        }
    }
    retire();
}

SendRequest *SendQueue::oldest_awaiting() {
    for (std::size_t &i = first_awaiting_; i < first_unbuilt_; ++i) {
        SendRequest &request = requests_.at(i);
        const bool is_open =
            request.state != SendRequest::State::Done && request.state != SendRequest::State::Persisting;
        if (is_open && request.needs_answer) {
            return &request;
        }
    }
    return nullptr;
}

void SendQueue::answered(SendRequest &request) {
    if (std::exchange(request.state, SendRequest::State::Done) == SendRequest::State::Persisting) {
        --persisting_;
    } else {
        --awaiting_;
    }
    retire();
}

// The peer counts writes and messages apart, because a message may wait for its receive while a later write
// is placed. A request completes only after all earlier ones, so the first one that is not acknowledged ends
// the walk, and the next walk begins there.
bool SendQueue::acknowledge(const wire::Acknowledgement &placed) {
    wire::Acknowledgement &last = acknowledged_numbers_;
    if (placed.writes - last.writes > numbers_.writes - last.writes ||
        placed.messages - last.messages > numbers_.messages - last.messages) {
        return false;
    }
    last = placed;
    for (std::size_t &i = first_sent_; i < first_uncommitted_; ++i) {
        SendRequest &request = requests_.at(i);
        if (request.state != SendRequest::State::Sent) {
            continue;
        }
        const std::uint32_t count = takes_receive(request.opcode) ? placed.messages : placed.writes;
        if (static_cast<std::int32_t>(count - request.number) < 0) {
            break;
        }
        request.state = SendRequest::State::Done;
    }
    retire();
    return true;
}

void SendQueue::flush(ibv_wc_status oldest) {
    bool failed = false;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
        SendRequest &request = requests_.at(i);
        if (failed) {
            request.status = IBV_WC_WR_FLUSH_ERR;
        } else if (request.state != SendRequest::State::Done) {
            failed = true;
            if (request.status == IBV_WC_SUCCESS) {
                request.status = oldest;
            }
        }
        request.state = SendRequest::State::Done;
    }
    first_uncommitted_ = first_unbuilt_ = requests_.size();
    awaiting_ = 0;
    persisting_ = 0;
    retire();
}

void SendQueue::drop() {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
        requests_.at(i).state = SendRequest::State::Done;
    }
    first_uncommitted_ = first_unbuilt_ = requests_.size();
    awaiting_ = persisting_ = 0;
    retire();
}

void SendQueue::reset() {
    requests_.clear();
    first_uncommitted_ = first_unbuilt_ = first_sent_ = first_awaiting_ = 0;
    awaiting_ = persisting_ = unsignaled_ = 0;
    last_left_ = 0;
    all_sent_ = overrun_ = false;
}

bool SendQueue::only_has_to_send() const {
    for (std::size_t i = 0; i < last_left_; ++i) {
        if (requests_.at(i).needs_answer) {
            return false;
        }
    }
    return last_left_ != 0 || all_sent_;
}

// Removes the oldest requests, which are done.
inline void SendQueue::remove(std::size_t count) {
    requests_.pop(count);
    removed_ += static_cast<std::uint32_t>(count);
    first_uncommitted_ -= count;
    first_unbuilt_ -= count;
    first_sent_ -= std::min(first_sent_, count);
    first_awaiting_ -= std::min(first_awaiting_, count);
    if (last_left_ != 0) [[unlikely]] {
        all_sent_ = all_sent_ || last_left_ <= count;
        last_left_ -= std::min(last_left_, count);
    }
}

// Takes the lock of the completion queue once for all completions.
[[gnu::hot]] void SendQueue::retire() {
    std::size_t done = 0;
    const auto pass = [&](SendRequest &request) {
        requests_.forget_kept(request);
        ++unsignaled_;
        ++done;
    };
    // Returns the next request that is done; null when there is none.
    const auto next = [&]() -> SendRequest * {
        SendRequest *const request = done != first_uncommitted_ ? &requests_.at(done) : nullptr;
        return request != nullptr && request->state == SendRequest::State::Done ? request : nullptr;
    };
    SendRequest *request = next();
    for (; request != nullptr && !makes_completion(*request); request = next()) {
        pass(*request);
    }
    if (request != nullptr) {
        completions_.push_many([&](const auto &push) {
            for (; request != nullptr; request = next()) {
                pass(*request);
                if (makes_completion(*request)) {
                    complete(*request, push);
                }
            }
        });
    }
    if (done != 0) {
        remove(done);
    }
}

template <typename Push>
[[gnu::always_inline]] inline void SendQueue::complete(const SendRequest &request, const Push &push) {
    const bool pushed = push(
        [&] {
            return ibv_wc{.wr_id = request.wr_id,
                          .status = request.status,
                          .opcode = completion_opcode(request.opcode),
                          .vendor_err = 0,
                          .byte_len = request.length,
                          .imm_data = 0,
                          .qp_num = queue_pair_number_,
                          .src_qp = 0,
                          .wc_flags = 0,
                          .pkey_index = 0,
                          .slid = 0,
                          .sl = 0,
                          .dlid_path_bits = 0};
        },
        completing_, CompletionQueue::WorkQueue::Send, unsignaled_, request.status != IBV_WC_SUCCESS);
    unsignaled_ = 0;
    overrun_ = overrun_ || !pushed;
}

}  // namespace soft
