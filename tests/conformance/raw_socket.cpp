// SPDX-License-Identifier: BSD-3-Clause
#include "raw_socket.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "suite.hpp"

namespace conformance {

namespace {

socklen_t length_of(const sockaddr_storage &address) {
    return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

}  // namespace

RawSocket::RawSocket() : fd_{socket(subject_address(0).ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    assert_true(static_cast<bool>(fd_));
}

void RawSocket::bind() {
    const auto address = subject_address(0);
    assert_int_equal(::bind(fd_.get(), reinterpret_cast<const sockaddr *>(&address), length_of(address)), 0);
}

void RawSocket::listen() {
    assert_int_equal(::listen(fd_.get(), 4), 0);
}

void RawSocket::connect(std::uint16_t port) {
    const auto address = subject_address(port);
    assert_int_equal(::connect(fd_.get(), reinterpret_cast<const sockaddr *>(&address), length_of(address)),
                     0);
}

void RawSocket::accept() {
    base::Fd connection{accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    assert_true(static_cast<bool>(connection));
    fd_ = std::move(connection);
}

void RawSocket::send(std::string_view bytes) {
    assert_int_equal(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
}

void RawSocket::expect_end() {
    std::array<char, 4096> waste;
    while (true) {
        pollfd ready{.fd = fd_.get(), .events = POLLIN, .revents = 0};
        assert_int_equal(poll(&ready, 1, patience_ms), 1);
        const ssize_t count = recv(fd_.get(), waste.data(), waste.size(), 0);
        if (count <= 0) {
            assert_true(count == 0 || errno == ECONNRESET);
            return;
        }
    }
}

std::uint16_t RawSocket::port() const {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    assert_int_equal(getsockname(fd_.get(), reinterpret_cast<sockaddr *>(&address), &length), 0);
    return ntohs(reinterpret_cast<const sockaddr_in &>(address).sin_port);
}

}  // namespace conformance
