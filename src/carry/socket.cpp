// SPDX-License-Identifier: BSD-3-Clause
// carry/socket: what a Socket counts while the kernel moves its bytes.
#include "carry/socket.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>

#include "base/interpose.hpp"
#include "base/parts.hpp"
#include "carry/meeting.hpp"
#include "carry/mirror.hpp"
#include "carry/moving.hpp"
#include "carry/records.hpp"
#include "carry/sockets.hpp"

namespace carry {

short Socket::events_now(int fd, short events) {
    pollfd one{.fd = fd, .events = events, .revents = 0};
    return LIBC(poll)(&one, 1, 0) > 0 ? one.revents : short{0};
}

void Socket::begin(Role role, bool blocks, bool is_smc) {
    new (this) Socket{};
    ++locks().sockets;
    role_ = role;
    is_smc_ = is_smc;
    blocks_ = blocks;
    processes_ = 1;
    look_at_ = Meeting::first_look();
    offered_fd_ = -1;
    if (BeginningOf *const beginning = mirrors::beginning_of(*this); beginning != nullptr) {
        beginning->sent.clear();
        beginning->received.clear();
    }
}

void Socket::publish() const {
    registry::Live *const live = records::of(*this);
    if (live == nullptr) {
        return;
    }
    const auto write = [](auto &word, auto value) {
        std::atomic_ref{word}.store(value, std::memory_order_relaxed);
    };
    const auto link = is_far_ ? registry::Link::Device : registry::Link::Memory;
    write(live->link, is_linked() ? link : registry::Link::Tcp);
    write(live->sent_bytes, out_.count.load(std::memory_order_relaxed));
    write(live->received_bytes, in_.count.load(std::memory_order_relaxed));
    write(live->sent_by_link, out_.put.load(std::memory_order_relaxed));
    write(live->received_by_link, in_.taken.load(std::memory_order_relaxed));
    write(live->is_by_device, std::uint64_t{is_far_});
    write(live->turns_back, std::uint64_t{turns_back()});
}

namespace {

// Keeps what proves to the other end's process that this one has the connection, while it is new.
void keep_first(FirstBytes BeginningOf::*which, const Socket &socket, std::uint64_t offset, Parts parts,
                ssize_t bytes) {
    BeginningOf *const beginning = offset < FirstBytes::most ? mirrors::beginning_of(socket) : nullptr;
    if (beginning != nullptr) {  // of a call of the kernel only some may be known
        (beginning->*which)
            .add(offset, parts, std::min(static_cast<std::uint64_t>(bytes), base::size_of(parts)));
    }
}

}  // namespace

// The Socket may have ended meanwhile. While the thread is inside, the place is not another one's.
void Socket::sent_unlinked(std::uint32_t call, int fd, Parts parts, ssize_t bytes) {
    const Inside inside{*this};
    const bool moved = bytes > 0 && locks().sending.is_for(call);
    if (moved) {
        const std::uint64_t before =
            out_.count.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
        keep_first(&BeginningOf::sent, *this, before, parts, bytes);
    }
    locks().sending.end(call);
    if (moved && has_number(fd)) {
        publish();
        Meeting::used(*this, fd, static_cast<std::uint64_t>(bytes));
    }
}

void Socket::received_unlinked(std::uint32_t call, int fd, Parts parts, ssize_t bytes, int flags) {
    const Inside inside{*this};
    const bool moved =
        bytes > 0 && (flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE)) == 0 && locks().receiving.is_for(call);
    if (moved) {
        const std::uint64_t before =
            in_.count.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
        if ((flags & MSG_TRUNC) == 0 && !parts.empty()) {
            keep_first(&BeginningOf::received, *this, before, parts, bytes);
        }
    }
    locks().receiving.end(call);
    if (moved && has_number(fd)) {
        publish();
        Meeting::used(*this, fd, static_cast<std::uint64_t>(bytes));
    }
}

void Socket::end_kernels_send(std::uint32_t call, ssize_t bytes, std::span<std::byte> first) {
    const Inside inside{*this};
    if (bytes > 0 && locks().sending.is_for(call)) {
        const std::uint64_t before = out_.count.fetch_add(static_cast<std::uint64_t>(bytes));
        const iovec part{.iov_base = first.data(), .iov_len = first.size()};
        keep_first(&BeginningOf::sent, *this, before, Parts{&part, 1}, bytes);
        publish();
    }
    locks().sending.end(call);
}

bool Socket::keeps_first(std::uint64_t count) const {
    return count < FirstBytes::most && mirrors::beginning_of(*this) != nullptr;
}

std::size_t Socket::peek_in_tcp(int fd, std::span<std::byte> room) {
    if (waiting_bytes(fd, SIOCINQ) <= 0) {
        return 0;  // the call would take an error away, which is the program's
    }
    const int error = errno;
    const ssize_t found = LIBC(recv)(fd, room.data(), room.size(), MSG_PEEK | MSG_DONTWAIT);
    errno = error;
    return static_cast<std::size_t>(std::max<ssize_t>(found, 0));
}

// A thread that is in the kernel for this Socket comes back too late from here on.
bool Socket::one_process_less() {
    const bool is_last = processes_.fetch_sub(1) == 1;
    if (is_last) {
        locks().sending.renew();
        locks().receiving.renew();
    }
    return is_last;
}

Socket::Counts Socket::counts(std::uint64_t all, std::uint64_t by_link) const {
    return {.by_memory = is_far_ ? 0 : by_link, .by_device = is_far_ ? by_link : 0, .by_tcp = all - by_link};
}

Socket::Counts Socket::received() const {
    return counts(in_.count, in_.taken);
}

Socket::Counts Socket::sent() const {
    return counts(out_.count, out_.put);
}

}  // namespace carry
