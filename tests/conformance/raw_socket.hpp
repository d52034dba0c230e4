// SPDX-License-Identifier: BSD-3-Clause
// conformance/raw_socket: with a plain TCP socket on the subject's address, a test does what no RDMA device
// would do.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/fd.hpp"

namespace conformance {

class RawSocket {
public:
    RawSocket();

    void bind();
    void listen();
    void connect(std::uint16_t port);
    // Waits for a client, and keeps it in place of the listening socket.
    void accept();
    void send(std::string_view bytes);
    // Waits until the other end has closed or reset the connection, and throws away the bytes that come
    // before.
    void expect_end();
    [[nodiscard]] std::uint16_t port() const;

private:
    base::Fd fd_;
};

}  // namespace conformance
