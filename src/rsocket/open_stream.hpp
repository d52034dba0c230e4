// SPDX-License-Identifier: BSD-3-Clause
// rsocket/open_stream: the shortest way for the bytes of a stream that has begun. A call that finds all as
// usual takes the shard's lock alone, and not the rsocket's. Another call goes the long way (Socket).
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <memory>

#include "base/lock.hpp"
#include "rsocket/sleep.hpp"
#include "stream/connection.hpp"
#include "stream/looking.hpp"

namespace rsockets {

// Flags of sends that streams refuse.
inline constexpr int send_flags_refused = MSG_OOB | MSG_FASTOPEN;

class OpenStream {
public:
    // Opens the way, once. The caller holds the rsocket's lock. The shard lives for as long as this does.
    void open(stream::Connection &stream) {
        kept_shard_ = stream.shard();
        {
            const base::Lock in_stream{kept_shard_->mutex()};
            stream_ = &stream;
        }
        shard_.store(kept_shard_.get(), std::memory_order_release);
    }
    // The stream may be destroyed from now on. The caller holds the shard's lock.
    void close() { stream_ = nullptr; }

    // A receive waits for that many bytes, at least 1. The caller of the setter holds the rsocket's lock.
    [[nodiscard]] std::size_t low_water() const { return low_water_.load(std::memory_order_relaxed); }
    void set_low_water(std::size_t bytes) { low_water_.store(bytes, std::memory_order_relaxed); }

    // Receives bytes that are here, if nothing stands in the way, as most calls find it. Returns how many,
    // and 0 when none are received and the caller has to take the long way.
    [[nodiscard, gnu::always_inline]] std::size_t receive(void *bytes, std::size_t size, int flags) {
        stream::Shard *const shard = shard_.load(std::memory_order_acquire);
        if ((flags & ~MSG_DONTWAIT) != 0 || shard == nullptr || stream::Shard::any_expects()) [[unlikely]] {
            return 0;
        }
        const base::Lock lock{shard->mutex()};
        stream::Connection *const stream = stream_;
        if (stream == nullptr) [[unlikely]] {
            return 0;
        }
        stream->mutex().assert_held();
        const std::size_t least = low_water();
        if (stream->readable() < least) {
            // A look into the soft device is a system call.
            if (!shard->device().is_of_kernel() || !shard->serve() || stream->readable() < least) {
                return 0;
            }
            stream::Looking::found_at_once();
        }
        return stream->receive_at_once(bytes, size);
    }
    // Sends the bytes if nothing stands in the way, as most calls find it. Returns false when nothing is
    // sent, and the caller has to take the long way.
    [[nodiscard, gnu::always_inline]] bool send(const void *bytes, std::size_t size, int flags) {
        stream::Shard *const shard = shard_.load(std::memory_order_acquire);
        if ((flags & send_flags_refused) != 0 || shard == nullptr) [[unlikely]] {
            return false;
        }
        const base::Lock lock{shard->mutex()};
        if (stream_ == nullptr) [[unlikely]] {
            return false;
        }
        stream_->mutex().assert_held();
        return stream_->send_at_once(bytes, size);
    }

private:
    std::shared_ptr<stream::Shard> kept_shard_;  // guarded by the rsocket's lock
    std::atomic<stream::Shard *> shard_{nullptr};
    // nullptr before the stream has begun, and after it is closed. The shard's lock guards it.
    stream::Connection *stream_ = nullptr;
    std::atomic<std::size_t> low_water_{1};
};

}  // namespace rsockets
