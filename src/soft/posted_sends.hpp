// SPDX-License-Identifier: BSD-3-Clause
// soft/posted_sends: the requests of one send queue in their order, each with its scatter list or, of inline
// data, its bytes.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
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

// Request has the members `slot`, its place here; `sges`, how many; and `copied`, inline data. Its owner
// locks; release() needs no lock.
template <typename Request>
class PostedSends : public base::Ring<Request> {
public:
    explicit PostedSends(const ibv_qp_cap &cap)
        : base::Ring<Request>{cap.max_send_wr},
          max_sge_{cap.max_send_sge},
          max_copied_{cap.max_inline_data},
          sges_{std::make_unique_for_overwrite<ibv_sge[]>(cap.max_send_wr * max_sge_)},
          copied_{std::make_unique_for_overwrite<std::byte[]>(cap.max_send_wr * max_copied_)} {}

    // A place is free again when a completion behind it was polled, as on hardware.
    [[nodiscard]] bool full() const {
        return used_.load(std::memory_order_relaxed) >= this->capacity() || base::Ring<Request>::full();
    }

    // The caller has seen that it is not full(), and that scatter list and bytes are not too many.
    Request &push(const Request &made, const ibv_send_wr &posted) {
        used_.fetch_add(1, std::memory_order_relaxed);
        if (this->empty()) {
            next_ = 0;  // where the processor's cache has a slot
        }
        Request &request = base::Ring<Request>::push(made);
        request.slot = next_;
        next_ = next_ + 1 == this->capacity() ? 0 : next_ + 1;
        if (!request.copied) {
            std::copy_n(posted.sg_list, request.sges, sges_.get() + request.slot * max_sge_);
            return request;
        }
        std::byte *to = copied_.get() + request.slot * max_copied_;
        for (const ibv_sge &sge : std::span{posted.sg_list, request.sges}) {
            if (sge.length != 0) {
                // NOLINTNEXTLINE(performance-no-int-to-ptr): verbs passes addresses as integers.
                std::memcpy(to, reinterpret_cast<const void *>(sge.addr), sge.length);
                to += sge.length;
            }
        }
        return request;
    }

    // The youngest requests, none of which has been looked at since it was posted.
    void take_back(std::size_t count) {
        used_.fetch_sub(static_cast<unsigned>(count), std::memory_order_relaxed);
        for (; count != 0; --count) {
            next_ = this->back().slot;
            this->pop_back();
        }
    }

    // Completions of so many requests were polled.
    void release(unsigned count) { used_.fetch_sub(count, std::memory_order_relaxed); }

    // Forgets what is posted; every place is free.
    void clear() {
        base::Ring<Request>::clear();
        used_.store(0, std::memory_order_relaxed);
    }

    [[nodiscard]] std::span<const ibv_sge> sges_of(const Request &request) const {
        return {sges_.get() + request.slot * max_sge_, request.sges};
    }
    [[nodiscard]] std::span<std::byte> copied_of(const Request &request) {
        return {copied_.get() + request.slot * max_copied_, max_copied_};
    }

private:
    const std::size_t max_sge_;
    const std::size_t max_copied_;
    // Nothing is touched before a request needs it.
    std::unique_ptr<ibv_sge[]> sges_;      // max_sge_ a slot
    std::unique_ptr<std::byte[]> copied_;  // max_copied_ a slot
    std::size_t next_ = 0;
    std::atomic<unsigned> used_{0};  // relaxed: only a count; the slots are guarded by the owner's lock
};

}  // namespace soft
