// SPDX-License-Identifier: BSD-3-Clause
// rsocket/carrier: what a carrier does, but for how its stream begins (carrier_begin.cpp), and what other
// programs see of it (listing.cpp).
#include "rsocket/carrier.hpp"

#include <cerrno>
#include <utility>

#include "base/log.hpp"

namespace rsockets {

Carrier::Carrier(AnySocket &rsocket, State state, const stream::Settings &settings, bool blocks)
    : rsocket_{rsocket},
      state_{state},
      options_{settings},
      blocks_{blocks},
      loss_told_{state == State::Lost} {
    list();
}

// It copies numbers, and options that do not change.
Carrier::Carrier(AnySocket &rsocket, const Carrier &parents)
    : rsocket_{rsocket},
      state_{parents.state_ == State::Streaming || parents.state_ == State::Connecting ||
                     (parents.listening_.is_at_devices() && !parents.listening_.is_in_tcp())
                 ? State::Lost
                 : parents.state_.load()},
      options_{parents.options_},
      blocks_{parents.blocks_},
      loss_told_{parents.loss_told_},
      pending_error_{parents.pending_error_} {
    if (parents.listening_.is_in_tcp()) {
        listening_.begin_in_tcp();
    }
    copy_options(parents);
}

Carrier::Stream Carrier::release() {
    if (const StreamLock in_stream{stream()}) {
        open_stream_.close();
        stream()->forget_observer();
    }
    return std::move(stream_);
}

void Carrier::close() {
    closed_ = true;
    if (rsocket_.entry()) {
        list();
    }
    if (const StreamLock in_stream{stream()}) {
        open_stream_.close();
        (void)stream()->unmap_all();  // what another thread has mapped since Socket::end_mappings()
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
    return has_error() ? take_error() : is_beginning() ? EAGAIN : ENOTCONN;
}

}  // namespace rsockets
