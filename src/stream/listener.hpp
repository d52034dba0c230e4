// SPDX-License-Identifier: BSD-3-Clause
// stream/listener: streams that peers ask for over devices of the kernel. Those over the soft device are TCP
// connections, which the kernel's own listening sockets give.
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
    explicit Listener(Events events) : events_{std::move(events)} {}

    // Readable when there may be a peer that asks.
    [[nodiscard]] int fd() const;
    // Returns the next peer that asks. EAGAIN: there is none now.
    [[nodiscard]] base::Result<Asked> next();

private:
    [[nodiscard]] base::Result<void> add(const Device &device, const sockaddr_storage &local,
                                         const Options &options);
    [[nodiscard]] base::Result<Asked> take(rpma_ep *endpoint) const;

    Events events_;
    std::vector<Endpoint> endpoints_;
};

}  // namespace stream
