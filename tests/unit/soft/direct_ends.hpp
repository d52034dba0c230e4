// SPDX-License-Identifier: BSD-3-Clause
// The two ends of one connection whose boards are in this process: registered memory, which the target
// offers, and the initiator's access.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "soft/memory/direct_access.hpp"
#include "soft/memory/offers.hpp"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace test {

using soft::Board;
using soft::DirectAccess;
using soft::Memory;
using soft::MemoryRegion;
using soft::Offers;

inline constexpr unsigned everything =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

inline soft::ProtectionDomain domain;

// Memory is registered while its owner is there, or until deregister().
class Registered {
public:
    void enter(void *memory, std::size_t length, std::uint64_t iova, unsigned access) {
        region.pd = &domain;
        region.domain = &domain;
        region.addr = memory;
        region.length = length;
        region.iova = iova;
        region.access = access;
        assert_true(Memory::instance().insert(region).has_value());
        is_registered_ = true;
    }
    Registered() = default;
    ~Registered() { deregister(); }
    Registered(const Registered &) = delete;
    Registered &operator=(const Registered &) = delete;

    void deregister() {
        if (std::exchange(is_registered_, false)) {
            Memory::instance().erase(region);
            // A thread that was preempted in the middle of an access may come back later than a call waits.
            const auto hangs_at = base::Clock::now() + std::chrono::seconds{60};
            while (!Offers::withdraw_region(region)) {
                assert_true(base::Clock::now() < hangs_at);
            }
        }
    }

    MemoryRegion region;

private:
    bool is_registered_ = false;
};

// The two ends, with the boards in between.
struct Connection {
    explicit Connection(bool has_sockets = true, pid_t process = getpid()) {
        if (has_sockets) {
            connect_sockets();
        }
        offers.begin({as_span(target_board), as_span(initiator_board)}, thread, own.get(), process);
        access.begin({as_span(initiator_board), as_span(target_board)}, process);
    }

    [[nodiscard]] static std::span<std::byte> as_span(Board &board) {
        return std::as_writable_bytes(std::span{&board, 1});
    }
    void offer(const MemoryRegion &region) { offers.offer(region, nothing_withheld); }
    [[nodiscard]] bool write(std::uint32_t key, std::uint64_t address, std::span<const std::byte> from) {
        const iovec piece{.iov_base = const_cast<std::byte *>(from.data()), .iov_len = from.size()};
        return access.may_reach(key) && access.write(key, address, {&piece, 1}, from.size());
    }
    [[nodiscard]] bool read(std::uint32_t key, std::uint64_t address, std::span<std::byte> to) {
        const iovec piece{.iov_base = to.data(), .iov_len = to.size()};
        return access.may_reach(key) && access.read(key, address, {&piece, 1}, to.size());
    }

    void connect_sockets() {
        const base::Fd listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        sockaddr_in here{};
        here.sin_family = AF_INET;
        here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof(here);
        assert_int_equal(bind(listener.get(), reinterpret_cast<sockaddr *>(&here), length), 0);
        assert_int_equal(listen(listener.get(), 1), 0);
        assert_int_equal(getsockname(listener.get(), reinterpret_cast<sockaddr *>(&here), &length), 0);
        peer.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        assert_int_equal(connect(peer.get(), reinterpret_cast<sockaddr *>(&here), length), 0);
        own.reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        assert_true(static_cast<bool>(own));
    }

    // The two sockets of a TCP connection, on which the ends see each other.
    base::Fd own;
    base::Fd peer;
    Board target_board;
    Board initiator_board;
    std::atomic<pid_t> thread{gettid()};
    std::atomic<unsigned> nothing_withheld{0};
    Offers offers;
    DirectAccess access;
};

inline std::array<std::byte, 64> pattern() {
    std::array<std::byte, 64> made;
    for (std::size_t i = 0; i < made.size(); ++i) {
        made[i] = static_cast<std::byte>(i * 7 + 1);
    }
    return made;
}

}  // namespace test
