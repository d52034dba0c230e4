// SPDX-License-Identifier: BSD-3-Clause
#include "short_transfers.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <span>

namespace {

std::atomic<std::uint64_t> next_cut{0};  // 0: nothing is cut
// The library also receives things of a few bytes, each in one call. Those calls are never shortened.
constexpr std::size_t least_room = 64;
constexpr std::size_t most_pieces = 64;

// A datagram is whole, or the kernel's answer to a question of netlink would lose its end.
bool is_stream(int fd) {
    int type = 0;
    socklen_t length = sizeof(type);
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

// Returns how many of `size` bytes a call may transfer that does not wait.
std::size_t cut(int fd, std::size_t size, std::size_t least, int flags) {
    if (size <= least || (flags & MSG_DONTWAIT) == 0 || next_cut.load(std::memory_order_relaxed) == 0) {
        return size;
    }
    // splitmix64: each call has a number of its own, and with it its chance.
    std::uint64_t chance = next_cut.fetch_add(0x9e3779b97f4a7c15, std::memory_order_relaxed);
    chance = (chance ^ chance >> 30) * 0xbf58476d1ce4e5b9;
    chance = (chance ^ chance >> 27) * 0x94d049bb133111eb;
    chance ^= chance >> 31;
    const std::uint64_t most = chance % 8 == 0 ? size : chance % 8 == 1 ? std::min<std::size_t>(size, 64) : 0;
    return most == 0 || !is_stream(fd) ? size : 1 + (chance >> 8) % most;
}

// The message with less in it: its pieces are copied to `room`.
msghdr cut_message(int fd, const msghdr &message, std::span<iovec> room, int flags) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
        size += message.msg_iov[i].iov_len;
    }
    std::size_t left = cut(fd, size, 1, flags);
    if (left == size || message.msg_iovlen > room.size()) {
        return message;
    }
    msghdr shorter = message;
    shorter.msg_iov = room.data();
    for (shorter.msg_iovlen = 0; left != 0; ++shorter.msg_iovlen) {
        room[shorter.msg_iovlen] = message.msg_iov[shorter.msg_iovlen];
        room[shorter.msg_iovlen].iov_len = std::min(left, room[shorter.msg_iovlen].iov_len);
        left -= room[shorter.msg_iovlen].iov_len;
    }
    return shorter;
}

}  // namespace

namespace test {

void split_transfers(std::uint64_t seed) {
    next_cut = seed | 1;
}

}  // namespace test

extern "C" {

__attribute__((visibility("default"))) ssize_t recv(int fd, void *room, size_t size, int flags) {
    return syscall(SYS_recvfrom, fd, room, cut(fd, size, least_room, flags), flags, nullptr, nullptr);
}

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr *message, int flags) {
    std::array<iovec, most_pieces> pieces;
    msghdr shorter = cut_message(fd, *message, pieces, flags);
    const ssize_t count = syscall(SYS_recvmsg, fd, &shorter, flags);
    message->msg_namelen = shorter.msg_namelen;
    message->msg_controllen = shorter.msg_controllen;
    message->msg_flags = shorter.msg_flags;
    return count;
}

__attribute__((visibility("default"))) ssize_t send(int fd, const void *bytes, size_t size, int flags) {
    return syscall(SYS_sendto, fd, bytes, cut(fd, size, 1, flags), flags, nullptr, 0);
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr *message, int flags) {
    std::array<iovec, most_pieces> pieces;
    const msghdr shorter = cut_message(fd, *message, pieces, flags);
    return syscall(SYS_sendmsg, fd, &shorter, flags);
}
}
