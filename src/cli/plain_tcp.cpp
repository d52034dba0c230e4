// SPDX-License-Identifier: BSD-3-Clause
#include "cli/plain_tcp.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

namespace cli {

namespace {

// Returns the text behind its length, which takes so many bytes.
std::string sized(unsigned bytes, std::string_view text) {
    std::string all;
    for (unsigned left = bytes; left-- > 0;) {
        all += static_cast<char>(text.size() >> (8 * left));
    }
    return all.append(text);
}

// Returns the beginning of a handshake of TLS 1.3 (RFC 8446 section 4.1.2). No server takes it to its end,
// because this client has no key for what follows.
std::string client_hello() {
    using namespace std::string_literals;
    const std::string any(32, 'r');
    const std::string x25519 = "\x00\x1D"s;
    const std::string extensions = "\x00\x2B"s + sized(2, "\x02\x03\x04") +                // version 1.3
                                   "\x00\x0A"s + sized(2, sized(2, x25519)) +              // the groups
                                   "\x00\x0D"s + sized(2, sized(2, "\x08\x04\x04\x03")) +  // the signatures
                                   "\x00\x33"s + sized(2, sized(2, x25519 + sized(2, any)));
    const std::string hello = "\x03\x03" + any + sized(1, "") + sized(2, "\x13\x01\x13\x02\x13\x03") +
                              sized(1, "\x00"s) + sized(2, extensions);
    return "\x16\x03\x01" + sized(2, "\x01" + sized(3, hello));
}

}  // namespace

bool wait_until_ready(const base::Fd &fd, short events, base::Clock::time_point until) {
    while (true) {
        pollfd one{.fd = fd.get(), .events = events, .revents = 0};
        const int ready = poll(&one, 1, base::poll_timeout(until));
        if (ready >= 0 || errno != EINTR) {
            return ready > 0;
        }
    }
}

Outcome<base::Fd> connect_tcp(const Address &address, base::Clock::time_point until, sockaddr_storage &peer) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *first = nullptr;
    if (const int error = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &first);
        error != 0) {
        return failed(Exit::Unreachable, "{}: unknown host: {}", address.host, gai_strerror(error));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{first, freeaddrinfo};
    int error = 0;
    for (const addrinfo *one = first; one != nullptr; one = one->ai_next) {
        base::Fd fd{::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
        socklen_t size = sizeof(error);
        error = !fd || ::connect(fd.get(), one->ai_addr, one->ai_addrlen) != 0 ? errno : 0;
        if (error == EINPROGRESS) {
            error = ETIMEDOUT;
            if (wait_until_ready(fd, POLLOUT, until)) {
                (void)getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
            }
        }
        if (error == 0) {
            std::copy_n(reinterpret_cast<const std::byte *>(one->ai_addr), one->ai_addrlen,
                        reinterpret_cast<std::byte *>(&peer));
            return fd;
        }
    }
    return failed(Exit::Unreachable, "{}: {}", address.text(),
                  error == ECONNREFUSED ? "no program listens there in TCP (expected the port of a server)"
                                        : errno_text(error));
}

bool send_all(const base::Fd &fd, std::span<const std::byte> bytes) {
    return send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

bool is_tls(std::span<const std::byte> bytes) {
    return bytes.size() >= 3 && (bytes[0] == std::byte{21} || bytes[0] == std::byte{22}) &&
           bytes[1] == std::byte{3} && bytes[2] <= std::byte{4};
}

bool speaks_tls(const Address &address, std::chrono::milliseconds timeout) {
    sockaddr_storage peer{};
    const auto fd = connect_tcp(address, base::Clock::now() + timeout, peer);
    const std::string hello = client_hello();
    std::array<std::byte, 5> room{};
    if (!fd || !send_all(*fd, std::as_bytes(std::span{hello})) ||
        !wait_until_ready(*fd, POLLIN, base::Clock::now() + timeout)) {
        return false;
    }
    const ssize_t got = recv(fd->get(), room.data(), room.size(), 0);
    return got > 0 && is_tls(std::span{room}.first(static_cast<std::size_t>(got)));
}

}  // namespace cli
