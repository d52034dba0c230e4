// SPDX-License-Identifier: BSD-3-Clause
// librpma/events: the events of many connections, in one channel.
#pragma once

#include "librpma/peer.hpp"

struct rpma_events final {
public:
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_events>> create(const rpma_peer &peer);
    rpma_events(const verbs::Provider &provider, verbs::EventChannel channel)
        : provider_{provider}, channel_{std::move(channel)} {}

    [[nodiscard]] const verbs::Provider &provider() const { return provider_; }
    [[nodiscard]] rdma_event_channel *channel() const { return channel_.get(); }
    // Returns the next event for the program, after it has handled the events that take a request further
    // (events_take.cpp).
    [[nodiscard]] librpma::Result<rpma_event> take();
    [[nodiscard]] int begin_wait(int *fd);
    [[nodiscard]] int end_wait();
    [[nodiscard]] int close();

private:
    const verbs::Provider &provider_;
    verbs::EventChannel channel_;
};

namespace librpma {

// Returns RPMA_E_INVAL, and logs it, when the queue for events belongs to the other kind of device.
[[nodiscard]] int check_events(const verbs::Provider &provider, const rpma_events *events);

}  // namespace librpma
