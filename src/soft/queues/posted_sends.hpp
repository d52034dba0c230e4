// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/posted_sends: the requests of one send queue in their order, each with its scatter list. Inline
// data is in the program's memory until the post returns. Bytes that the link has not taken by then are
// copied into memory that the request has as long as it is in the queue.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "base/ring.hpp"

namespace soft {

[[nodiscard]] inline std::uint64_t total_bytes(std::span<const ibv_sge> sges) {
    std::uint64_t total = 0;
    for (const ibv_sge &sge : sges) {
        total += sge.length;
    }
    return total;
}

// num_sge is not negative.
[[nodiscard]] inline std::uint64_t total_bytes(const ibv_send_wr &request) {
    return total_bytes(std::span<const ibv_sge>{request.sg_list, static_cast<std::size_t>(request.num_sge)});
}

// Request has the members `sges`, the number of elements; `length`, of all bytes; is(IBV_SEND_INLINE);
// and for this class alone `list`, the elements, and `kept`. The owner locks; release() needs no lock.
template <typename Request>
class PostedSends : public base::Ring<Request> {
public:
    explicit PostedSends(const ibv_qp_cap &cap)
        : base::Ring<Request>{cap.max_send_wr},
          max_sge_{cap.max_send_sge},
          sges_{std::make_unique_for_overwrite<ibv_sge[]>(this->places() * max_sge_)} {}
    ~PostedSends() { clear(); }
    PostedSends(const PostedSends &) = delete;
    PostedSends &operator=(const PostedSends &) = delete;

    // Returns whether all places are taken. As on hardware, a place is free again when a completion at or
    // after it was polled.
    [[nodiscard]] bool full() const {
        return used_.load(std::memory_order_relaxed) >= this->capacity() || base::Ring<Request>::full();
    }

    [[nodiscard]] bool is_unused() const { return used_.load(std::memory_order_relaxed) == 0; }
    [[nodiscard]] bool has_room_for(std::size_t count) const {
        return used_.load(std::memory_order_relaxed) + count <= this->capacity();
    }

    // Pushes the request that `make` returns. The caller has checked that the queue is not full(), and that
    // the scatter list is not too long.
    template <typename Make>
    Request &push(const ibv_send_wr &posted, Make make) {
        used_.fetch_add(1, std::memory_order_relaxed);
        Request &request = base::Ring<Request>::push_made(make);
        request.list = sges_.get() + this->place_of(request) * max_sge_;
        for (unsigned i = 0; i < request.sges; ++i) {
            request.list[i] =
                posted.sg_list[i];  // there are few, so that a call of memmove would take longer
        }
        return request;
    }
    // Frees the copy of a request's inline data, which comes before its removal by pop().
    static void forget_kept(Request &request) { delete[] std::exchange(request.kept, nullptr); }
    // Removes the oldest request and returns it, without its scatter list and the copy of its inline data.
    Request take() {
        forget_kept(this->front());
        const Request taken = this->front();
        this->pop();
        return taken;
    }

    // Copies the inline data of a request; sges_of() then returns the place of the copy. Returns false when
    // there is no memory for it.
    [[nodiscard]] bool keep(Request &request) {
        if (!request.is(IBV_SEND_INLINE) || request.length == 0 || request.kept != nullptr) {
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
        *request.list = {
            .addr = reinterpret_cast<std::uintptr_t>(request.kept), .length = request.length, .lkey = 0};
        return true;
    }
    // Is called at the end of a post of `posted` requests, from `chain` on, when the `waiting` youngest of
    // them wait for the link. Copies their inline data. When there is no memory for one, it removes that
    // request and those after it, and returns its place in the chain; otherwise it returns nullptr.
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

    // Removes the youngest requests, none of which has been processed since it was posted.
    void take_back(std::size_t count) {
        used_.fetch_sub(static_cast<unsigned>(count), std::memory_order_relaxed);
        for (; count != 0; --count) {
            delete[] this->back().kept;
            this->pop_back();
        }
    }

    // Frees the places of requests whose completions were polled.
    void release(unsigned count) { used_.fetch_sub(count, std::memory_order_relaxed); }

    // Removes all requests, and frees every place.
    void clear() {
        for (std::size_t i = 0; i < this->size(); ++i) {
            delete[] this->at(i).kept;
        }
        base::Ring<Request>::clear();
        used_.store(0, std::memory_order_relaxed);
    }

    [[nodiscard]] static std::span<const ibv_sge> sges_of(const Request &request) {
        return {request.list, request.sges};
    }
    // Returns the address of a piece of inline data.
    [[nodiscard]] static std::byte *address_of(const ibv_sge &sge) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): verbs passes addresses as integers.
        return reinterpret_cast<std::byte *>(sge.addr);
    }

private:
    const std::size_t max_sge_;
    std::unique_ptr<ibv_sge[]> sges_;  // max_sge_ for each place; touched only where a request has used it
    std::atomic<unsigned> used_{
        0};  // relaxed, because it is only a count; the owner's lock guards the places
};

}  // namespace soft
