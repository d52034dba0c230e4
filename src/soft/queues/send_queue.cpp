// SPDX-License-Identifier: BSD-3-Clause
#include "soft/queues/send_queue.hpp"

#include <utility>

namespace soft {

namespace {

ibv_wc_opcode completion_opcode(int opcode) {
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
      signal_all_{signal_all},
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

inline void SendQueue::pop() {
    requests_.pop();
    --first_uncommitted_;
    --first_unbuilt_;
    first_sent_ -= first_sent_ != 0 ? 1 : 0;
    first_awaiting_ -= first_awaiting_ != 0 ? 1 : 0;
    if (last_left_ != 0) {
        --last_left_;
        all_sent_ = all_sent_ || last_left_ == 0;
    }
}

// Takes the lock of the completion queue once for all completions.
[[gnu::hot]] void SendQueue::retire() {
    while (front_is_done()) {
        if (makes_completion(requests_.front())) {
            completions_.push_many([this](const auto &push) {
                for (; front_is_done(); pop()) {
                    if (makes_completion(requests_.front())) {
                        complete(requests_.front(), push);
                    } else {
                        ++unsignaled_;
                    }
                }
            });
        } else {
            ++unsignaled_;
            pop();
        }
    }
}

template <typename Push>
void SendQueue::complete(const SendRequest &request, const Push &push) {
    ibv_wc completion{};
    completion.wr_id = request.wr_id;
    completion.status = request.status;
    completion.opcode = completion_opcode(request.opcode);
    completion.byte_len = request.length;
    completion.qp_num = queue_pair_number_;
    const bool pushed = push(completion, completing_, CompletionQueue::WorkQueue::Send, unsignaled_ + 1,
                             request.status != IBV_WC_SUCCESS);
    unsignaled_ = 0;
    overrun_ = overrun_ || !pushed;
}

}  // namespace soft
