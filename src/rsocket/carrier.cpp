// SPDX-License-Identifier: BSD-3-Clause
// rsocket/carrier: what a carrier does, but for what other programs see of it (listing.cpp).
#include "rsocket/carrier.hpp"

#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "rsocket/kernel_socket.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

Carrier::Carrier(AnySocket &rsocket, State state, const stream::Settings &settings, bool blocks, int reason)
    : rsocket_{rsocket},
      state_{state},
      options_{settings},
      blocks_{blocks},
      loss_told_{state == State::Lost},
      reason_{reason} {
    keep_blocking(fd(), blocks);
    if (state == State::Listening) {
        listening_.begin_in_tcp();
    }
    list();
}

// It copies numbers, and options that do not change.
Carrier::Carrier(AnySocket &rsocket, const Carrier &parents)
    : rsocket_{rsocket},
      state_{parents.state_ == State::Streaming || parents.state_ == State::Offered ||
                     parents.state_ == State::Replaying ||
                     (parents.listening_.is_at_devices() && !parents.listening_.is_in_tcp())
                 ? State::Lost
                 : parents.state_.load()},
      options_{parents.options_},
      blocks_{parents.blocks_},
      loss_told_{parents.loss_told_},
      pending_error_{parents.pending_error_},
      reason_{parents.reason_} {
    if (parents.listening_.is_in_tcp()) {
        listening_.begin_in_tcp();
    }
    copy_options(parents);
}

void Carrier::take(Stream taken) {
    stream_ = std::move(taken);
    if (state_ == State::Streaming) {
        open_stream_.open(*stream_);
    }
    list();
    const StreamLock in_stream{stream()};
    if (registry::Live *const live = rsocket_.entry().live(); live != nullptr) {
        stream()->report_to(*live);
    }
}

void Carrier::become_stream() {
    state_ = State::Streaming;
    open_stream_.open(*stream_);
}

void Carrier::become_plain(int reason) {
    set_kernel_blocking(fd(), blocks_);
    set_low_water(fd(), 1);
    options_.of_stream().apply(fd());
    reason_ = reason;
    state_ = State::Plain;
    list();
    rsocket_.waiters().wake();
}

void Carrier::fail(int error) {
    pending_error_ = error;
    state_ = State::Fresh;
    list();
}

Carrier::Stream Carrier::release() {
    if (const StreamLock in_stream{stream()}) {
        open_stream_.close();
        stream()->forget_observer();
    }
    return std::move(stream_);
}

void Carrier::destroy_stream() {
    if (stream_ != nullptr) {
        release().reset();
        if (registry::Live *const live = rsocket_.entry().live(); live != nullptr) {
            *live = {};  // the stream has written it
        }
    }
}

void Carrier::close() {
    closed_ = true;
    if (rsocket_.entry()) {
        list();
    }
    if (const StreamLock in_stream{stream()}) {
        open_stream_.close();
        stream()->unmap_all();
    }
    rsocket_.waiters().wake();
}

void Carrier::end_with_process() {
    closed_ = true;
    state_ = State::Fresh;
}

void Carrier::copy_options(const Carrier &from) {
    options_ = from.options_;
    open_stream_.set_low_water(options_.receive_low_water());
}

void Carrier::set_blocking(bool blocks) {
    blocks_ = blocks;
    if (state_ == State::Plain) {
        set_kernel_blocking(fd(), blocks);
    } else if (state_ != State::Streaming) {
        keep_blocking(fd(), blocks);
    }
}

int Carrier::buffer_bytes(std::uint32_t stream::Settings::*buffer) const {
    std::uint32_t bytes = options_.settings().*buffer;
    if (bytes == 0) {
        bytes = stream_ != nullptr ? stream_->settings().*buffer : stream::usual_bytes_of_soft;
    }
    return static_cast<int>(bytes);
}

base::Failure Carrier::lost() {
    if (!std::exchange(loss_told_, true)) {
        BASE_LOG(Warning,
                 "descriptor %d: its stream stays with the process that began it, where it can be used; here "
                 "it gives ECONNRESET",
                 fd());
    }
    return base::failure(ECONNRESET);
}

int Carrier::why_no_stream() {
    if (state_ == State::Plain) {
        return EOPNOTSUPP;
    }
    return has_error() ? take_error() : is_open_yet() ? EAGAIN : ENOTCONN;
}

}  // namespace rsockets
