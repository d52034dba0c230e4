// SPDX-License-Identifier: BSD-3-Clause
// stream/listener: requests for streams that come to a device. Rsockets have listeners at devices of the
// kernel only: to the soft device they give the TCP connections of the kernel's own listening sockets.
#pragma once

#include <vector>

#include "stream/device.hpp"

namespace stream {

// A peer that asks. It is refused when this is destroyed.
struct Asked {
    Request request;
    const Device *device = nullptr;
    sockaddr_storage peer{};
};

class Listener {
public:
    struct Options {
        int backlog = 0;
        bool reuse = false;   // as SO_REUSEADDR
        bool v6_only = true;  // of an IPv6 address
    };

    // Listens at an address and port of this machine that a device of the kernel serves; nullptr where none
    // does. At a wildcard address: at each of the machine's addresses with one, those of iWARP devices only
    // where the soft device is left out: their peers reach the soft device by TCP. EADDRINUSE: another
    // listens there, also in TCP with iWARP.
    [[nodiscard]] static base::Result<std::unique_ptr<Listener>> at(const sockaddr_storage &local,
                                                                    const Options &options);
    // Listens at an address of this machine, which may be a wildcard, over the soft device. EADDRNOTAVAIL: it
    // may not serve it.
    [[nodiscard]] static base::Result<std::unique_ptr<Listener>> on_soft_at(const sockaddr_storage &local,
                                                                            const Options &options);
    Listener(Events events, rpma_device_kind kind) : kind_{kind}, events_{std::move(events)} {}

    // Readable when there may be a peer that asks.
    [[nodiscard]] int fd() const;
    // Returns the next peer that asks. EAGAIN: there is none now.
    [[nodiscard]] base::Result<Asked> next();
    // Returns the address and port at which it listens, of the first device.
    [[nodiscard]] base::Result<sockaddr_storage> name() const;
    // Listens no more. Peers that have asked may still be answered while the listener exists.
    void stop() { endpoints_.clear(); }

private:
    [[nodiscard]] base::Result<void> add(const Device &device, const sockaddr_storage &local,
                                         const Options &options);
    [[nodiscard]] base::Result<Asked> take(rpma_ep *endpoint) const;

    rpma_device_kind kind_;
    Events events_;
    std::vector<Endpoint> endpoints_;
};

}  // namespace stream
