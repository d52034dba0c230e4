// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/posted_sends: the requests of one send queue in their order, each with its scatter list. Inline
// data is the program's until the post returns. The bytes that the link has not taken by then are kept, in
// memory that the request has as long as it is in the queue.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "base/ring.hpp"

namespace soft {

[[nodiscard]] inline std::uint64_t total_bytes(const ibv_send_wr &request) {
    std::uint64_t total = 0;
    for (int i = 0; i < request.num_sge; ++i) {
        total += request.sg_list[i].length;
    }
    return total;
}

// Request has the members `slot`, its place here; `sges`, how many; `length`, of the bytes in all;
// `is_inline`; and `kept`, for this class alone. Its owner locks; release() needs no lock.
template <typename Request>
class PostedSends : public base::Ring<Request> {
public:
    explicit PostedSends(const ibv_qp_cap &cap)
        : base::Ring<Request>{cap.max_send_wr},
          max_sge_{cap.max_send_sge},
          sges_{std::make_unique_for_overwrite<ibv_sge[]>(cap.max_send_wr * max_sge_)} {}
    ~PostedSends() { clear(); }
    PostedSends(const PostedSends &) = delete;
    PostedSends &operator=(const PostedSends &) = delete;

    // A place is free again when a completion behind it was polled, as on hardware.
    [[nodiscard]] bool full() const {
        return used_.load(std::memory_order_relaxed) >= this->capacity() || base::Ring<Request>::full();
    }

    // The caller has seen that it is not full(), and that the scatter list is not too long.
    Request &push(const Request &made, const ibv_send_wr &posted) {
        used_.fetch_add(1, std::memory_order_relaxed);
        if (this->empty()) {
            next_ = 0;  // where the processor's cache has a slot
        }
        Request &request = base::Ring<Request>::push(made);
        request.slot = next_;
        next_ = next_ + 1 == this->capacity() ? 0 : next_ + 1;
        std::copy_n(posted.sg_list, request.sges, sges_.get() + request.slot * max_sge_);
        return request;
    }
    void pop() {
        delete[] this->front().kept;
        base::Ring<Request>::pop();
    }

    // Copies the inline data of a request: from here on sges_of() says where the copy is. False: there is no
    // memory for it.
    [[nodiscard]] bool keep(Request &request) {
        if (!request.is_inline || request.length == 0 || request.kept != nullptr) {
            return true;
        }
        std::byte *to = request.kept = new (std::nothrow) std::byte[request.length];
        if (to == nullptr) {
            return false;
        }
        for (const ibv_sge &sge : sges_of(request)) {
            if (sge.length != 0) {
                std::memcpy(to, address_of(sge), sge.length);
                to += sge.length;
            }
        }
        request.sges = 1;
        sges_[request.slot * max_sge_] = {
            .addr = reinterpret_cast<std::uintptr_t>(request.kept), .length = request.length, .lkey = 0};
        return true;
    }
    // A post of `posted` requests, from `chain` on, returns, and the `waiting` youngest of them wait for the
    // link. Keeps their inline data, and takes back those from the first on for which there is no memory.
    // Returns that one's place in the chain, or nullptr.
    [[nodiscard]] ibv_send_wr *keep_waiting(ibv_send_wr *chain, std::size_t posted, std::size_t waiting) {
        std::size_t left = waiting;
        while (left != 0 && keep(this->at(this->size() - left))) {
            --left;
        }
        if (left == 0) {
            return nullptr;
        }
        take_back(left);
        for (std::size_t before = posted - left; before != 0; --before) {
            chain = chain->next;
        }
        return chain;
    }

    // The youngest requests, none of which has been looked at since it was posted.
    void take_back(std::size_t count) {
        used_.fetch_sub(static_cast<unsigned>(count), std::memory_order_relaxed);
        for (; count != 0; --count) {
            next_ = this->back().slot;
            delete[] this->back().kept;
            this->pop_back();
        }
    }

    // Completions of so many requests were polled.
    void release(unsigned count) { used_.fetch_sub(count, std::memory_order_relaxed); }

    // Forgets what is posted; every place is free.
    void clear() {
        for (std::size_t i = 0; i < this->size(); ++i) {
            delete[] this->at(i).kept;
        }
        base::Ring<Request>::clear();
        used_.store(0, std::memory_order_relaxed);
    }

    [[nodiscard]] std::span<const ibv_sge> sges_of(const Request &request) const {
        return {sges_.get() + request.slot * max_sge_, request.sges};
    }
    // Where the bytes of a piece of inline data are.
    [[nodiscard]] static std::byte *address_of(const ibv_sge &sge) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): verbs passes addresses as integers.
        return reinterpret_cast<std::byte *>(sge.addr);
    }

private:
    const std::size_t max_sge_;
    std::unique_ptr<ibv_sge[]> sges_;  // max_sge_ a slot; touched where a request has used it
    std::size_t next_ = 0;
    std::atomic<unsigned> used_{0};  // relaxed: only a count; the slots are guarded by the owner's lock
};

}  // namespace soft
