// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/bytes: the read, write, recv and send families.
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <span>

#include "base/interpose.hpp"
#include "base/parts.hpp"
#include "base/user_memory.hpp"
#include "carry/sockets.hpp"
#include "carry_preload/hand_over.hpp"

using carry::Parts;
using carry::Socket;
using carry::sockets;

// _FORTIFY_SOURCE
extern "C" {
ssize_t __read_chk(int fd, void *bytes, size_t size, size_t room);
ssize_t __recv_chk(int fd, void *bytes, size_t size, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *bytes, size_t size, size_t room, int flags, sockaddr *address,
                       socklen_t *length);
}

namespace {

// The kernel refuses these.
bool is_refused(const iovec *parts, std::size_t count) {
    return count > IOV_MAX || (parts == nullptr && count != 0);
}

Parts parts_of(const iovec *parts, std::size_t count) {
    return Parts{parts, count};
}

// recvmsg(2) writes no name and no control data of a TCP connection. Returns what it returns.
ssize_t receive_message(Socket &socket, int fd, msghdr *message, int flags) {
    if (is_refused(message->msg_iov, message->msg_iovlen)) {
        return LIBC(recvmsg)(fd, message, flags);
    }
    const Parts parts = parts_of(message->msg_iov, message->msg_iovlen);
    const bool was_linked = socket.is_linked();
    const ssize_t bytes = socket.receive(fd, parts, flags, [&] { return LIBC(recvmsg)(fd, message, flags); });
    if (was_linked && bytes >= 0 && (flags & (MSG_OOB | MSG_ERRQUEUE)) == 0) {
        message->msg_namelen = 0;
        message->msg_controllen = 0;
        message->msg_flags = 0;
    }
    return bytes;
}

template <typename Call>
ssize_t receive_one(Socket &socket, int fd, void *bytes, std::size_t size, int flags, Call by_kernel) {
    const iovec part{.iov_base = bytes, .iov_len = size};
    return socket.receive(fd, Parts{&part, 1}, flags, by_kernel);
}

template <typename Call>
ssize_t send_one(Socket &socket, int fd, const void *bytes, std::size_t size, int flags, Call by_kernel) {
    const iovec part = base::part_of(bytes, size);
    return socket.send(fd, Parts{&part, 1}, flags, by_kernel);
}

// read(2) and its like wait for nothing where they read nothing.
template <typename Call>
ssize_t receive_parts(int fd, const iovec *parts, std::size_t count, int flags, Call by_kernel) {
    Socket *const socket = sockets.at(fd);
    return socket == nullptr || is_refused(parts, count) || base::size_of(parts_of(parts, count)) == 0
               ? by_kernel()
               : socket->receive(fd, parts_of(parts, count), flags, by_kernel);
}

template <typename Call>
ssize_t send_parts(int fd, const iovec *parts, std::size_t count, int flags, Call by_kernel) {
    Socket *const socket = sockets.at(fd);
    return socket == nullptr || is_refused(parts, count)
               ? by_kernel()
               : socket->send(fd, parts_of(parts, count), flags, by_kernel);
}

// Returns the flags of recv(2) and send(2) that do what these flags of preadv2(2) and pwritev2(2) do. The
// kernel ignores some for a socket, and refuses those for which nothing is returned.
std::optional<int> message_flags(int flags) {
    constexpr int without_effect = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_APPEND;
    return (flags & ~(without_effect | RWF_NOWAIT)) == 0
               ? std::optional{(flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0}
               : std::nullopt;
}

}  // namespace

// ---- in ----

// read(2) of nothing waits for nothing; recv(2) does.
INTERPOSED(3, read)(int fd, void *bytes, size_t size) {
    const auto by_kernel = [&] { return LIBC(read)(fd, bytes, size); };
    Socket *const socket = sockets.at(fd);
    return socket == nullptr || size == 0 ? by_kernel() : receive_one(*socket, fd, bytes, size, 0, by_kernel);
}

INTERPOSED(3, readv)(int fd, const iovec *parts, int count) {
    return receive_parts(fd, parts, static_cast<std::size_t>(count), 0,
                         [&] { return LIBC(readv)(fd, parts, count); });
}

// A socket has no other offset.
INTERPOSED(5, preadv2)(int fd, const iovec *parts, int count, off_t offset, int flags) {
    const auto by_kernel = [&] { return LIBC(preadv2)(fd, parts, count, offset, flags); };
    const auto wanted = message_flags(flags);
    return offset != -1 || !wanted
               ? by_kernel()
               : receive_parts(fd, parts, static_cast<std::size_t>(count), *wanted, by_kernel);
}

EXPORTED [[gnu::alias("preadv2")]] ssize_t preadv64v2(int fd, const iovec *parts, int count, off64_t offset,
                                                      int flags);

INTERPOSED(4, recv)(int fd, void *bytes, size_t size, int flags) {
    const auto by_kernel = [&] { return LIBC(recv)(fd, bytes, size, flags); };
    Socket *const socket = sockets.at(fd);
    return socket == nullptr ? by_kernel() : receive_one(*socket, fd, bytes, size, flags, by_kernel);
}

INTERPOSED(6, recvfrom)(int fd, void *bytes, size_t size, int flags, sockaddr *address, socklen_t *length) {
    const auto by_kernel = [&] { return LIBC(recvfrom)(fd, bytes, size, flags, address, length); };
    Socket *const socket = sockets.at(fd);
    if (socket == nullptr) {
        return by_kernel();
    }
    const bool was_linked = socket->is_linked();
    const ssize_t received = receive_one(*socket, fd, bytes, size, flags, by_kernel);
    if (was_linked && received >= 0 && address != nullptr && length != nullptr) {
        *length = 0;
    }
    return received;
}

INTERPOSED(3, recvmsg)(int fd, msghdr *message, int flags) {
    Socket *const socket = sockets.at(fd);
    return socket == nullptr || message == nullptr ? LIBC(recvmsg)(fd, message, flags)
                                                   : receive_message(*socket, fd, message, flags);
}

// Does what recvmmsg(2) does. An error behind a message is left to the next call.
INTERPOSED(5, recvmmsg)(int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout) {
    Socket *const socket = sockets.at(fd);
    if (socket == nullptr || !base::may_be_memory(messages, count * sizeof(*messages)) ||
        (timeout != nullptr && carry_preload::keep_in_tcp(*socket, fd))) {
        return LIBC(recvmmsg)(fd, messages, count, flags, timeout);
    }
    unsigned done = 0;
    int rest = (flags & ~MSG_WAITFORONE) | (timeout != nullptr ? MSG_DONTWAIT : 0);
    while (done < count) {
        const ssize_t bytes = receive_message(*socket, fd, &messages[done].msg_hdr, rest);
        if (bytes < 0) {
            return done != 0 ? static_cast<int>(done) : -1;
        }
        messages[done++].msg_len = static_cast<unsigned>(bytes);
        rest |= (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0;
    }
    return static_cast<int>(done);
}

// libc ends the program when the room is less than the call may fill.
INTERPOSED(4, __read_chk)(int fd, void *bytes, size_t size, size_t room) {
    return size <= room ? read(fd, bytes, size) : LIBC(__read_chk)(fd, bytes, size, room);
}

INTERPOSED(5, __recv_chk)(int fd, void *bytes, size_t size, size_t room, int flags) {
    return size <= room ? recv(fd, bytes, size, flags) : LIBC(__recv_chk)(fd, bytes, size, room, flags);
}

INTERPOSED(7, __recvfrom_chk)(int fd, void *bytes, size_t size, size_t room, int flags, sockaddr *address,
                              socklen_t *length) {
    return size <= room ? recvfrom(fd, bytes, size, flags, address, length)
                        : LIBC(__recvfrom_chk)(fd, bytes, size, room, flags, address, length);
}

// ---- out ----

INTERPOSED(3, write)(int fd, const void *bytes, size_t size) {
    const auto by_kernel = [&] { return LIBC(write)(fd, bytes, size); };
    Socket *const socket = sockets.at(fd);
    return socket == nullptr ? by_kernel() : send_one(*socket, fd, bytes, size, 0, by_kernel);
}

INTERPOSED(3, writev)(int fd, const iovec *parts, int count) {
    return send_parts(fd, parts, static_cast<std::size_t>(count), 0,
                      [&] { return LIBC(writev)(fd, parts, count); });
}

INTERPOSED(5, pwritev2)(int fd, const iovec *parts, int count, off_t offset, int flags) {
    const auto by_kernel = [&] { return LIBC(pwritev2)(fd, parts, count, offset, flags); };
    const auto wanted = message_flags(flags);
    return offset != -1 || !wanted
               ? by_kernel()
               : send_parts(fd, parts, static_cast<std::size_t>(count), *wanted, by_kernel);
}

EXPORTED [[gnu::alias("pwritev2")]] ssize_t pwritev64v2(int fd, const iovec *parts, int count, off64_t offset,
                                                        int flags);

INTERPOSED(4, send)(int fd, const void *bytes, size_t size, int flags) {
    const auto by_kernel = [&] { return LIBC(send)(fd, bytes, size, flags); };
    Socket *const socket = sockets.at(fd);
    return socket == nullptr ? by_kernel() : send_one(*socket, fd, bytes, size, flags, by_kernel);
}

// A connected TCP socket takes no notice of the address.
INTERPOSED(6, sendto)(int fd, const void *bytes, size_t size, int flags, const sockaddr *address,
                      socklen_t addrlen) {
    const auto by_kernel = [&] { return LIBC(sendto)(fd, bytes, size, flags, address, addrlen); };
    Socket *const socket = sockets.at(fd);
    return socket == nullptr ? by_kernel() : send_one(*socket, fd, bytes, size, flags, by_kernel);
}

INTERPOSED(3, sendmsg)(int fd, const msghdr *message, int flags) {
    const auto by_kernel = [&] { return LIBC(sendmsg)(fd, message, flags); };
    Socket *const socket = sockets.at(fd);
    if (message == nullptr || (socket == nullptr && message->msg_controllen == 0)) {
        return by_kernel();
    }
    if (socket == nullptr) {
        carry_preload::hand_over_rights(*message);
        return by_kernel();
    }
    if (is_refused(message->msg_iov, message->msg_iovlen)) {
        return by_kernel();
    }
    if (message->msg_controllen != 0) {
        return socket->send_by_kernel(fd, by_kernel, [](std::span<std::byte>) { return std::size_t{0}; });
    }
    return socket->send(fd, parts_of(message->msg_iov, message->msg_iovlen), flags, by_kernel);
}

INTERPOSED(4, sendmmsg)(int fd, mmsghdr *messages, unsigned count, int flags) {
    if (sockets.at(fd) == nullptr) {
        for (unsigned i = 0; messages != nullptr && i < count; ++i) {
            carry_preload::hand_over_rights(messages[i].msg_hdr);
        }
        return LIBC(sendmmsg)(fd, messages, count, flags);
    }
    unsigned done = 0;
    while (done < count) {
        const ssize_t bytes = sendmsg(fd, &messages[done].msg_hdr, flags);
        if (bytes < 0) {
            return done != 0 ? static_cast<int>(done) : -1;
        }
        messages[done++].msg_len = static_cast<unsigned>(bytes);
    }
    return static_cast<int>(done);
}
