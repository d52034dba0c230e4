// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/bytes: the read, write, recv and send families.
#include "socket_preload/bytes.hpp"

#include <rpma/rsocket.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "socket_preload/descriptor_kinds.hpp"
#include "socket_preload/inherited.hpp"
#include "socket_preload/libc.hpp"
#include "socket_preload/program_use.hpp"
#include "socket_preload/timeout.hpp"

using socket_preload::is_rsocket;
using socket_preload::received;
using socket_preload::sent;
using socket_preload::take_rights;

// _FORTIFY_SOURCE
extern "C" {
ssize_t __read_chk(int fd, void *bytes, size_t size, size_t room);
ssize_t __recv_chk(int fd, void *bytes, size_t size, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *bytes, size_t size, size_t room, int flags, sockaddr *address,
                       socklen_t *length);
}

// ---- in ----

INTERPOSED(3, read)(int fd, void *bytes, size_t size) {
    return is_rsocket(fd) ? received(fd, [&] { return rread(fd, bytes, size); })
                          : LIBC(read)(fd, bytes, size);
}

INTERPOSED(3, readv)(int fd, const iovec *parts, int count) {
    return is_rsocket(fd) ? received(fd, [&] { return rreadv(fd, parts, count); })
                          : LIBC(readv)(fd, parts, count);
}

INTERPOSED(4, recv)(int fd, void *bytes, size_t size, int flags) {
    return is_rsocket(fd) ? received(fd, [&] { return rrecv(fd, bytes, size, flags); })
                          : LIBC(recv)(fd, bytes, size, flags);
}

INTERPOSED(6, recvfrom)(int fd, void *bytes, size_t size, int flags, sockaddr *address, socklen_t *length) {
    return is_rsocket(fd) ? received(fd, [&] { return rrecvfrom(fd, bytes, size, flags, address, length); })
                          : LIBC(recvfrom)(fd, bytes, size, flags, address, length);
}

INTERPOSED(3, recvmsg)(int fd, msghdr *message, int flags) {
    if (is_rsocket(fd)) {
        return received(fd, [&] { return rrecvmsg(fd, message, flags); });
    }
    const ssize_t bytes = LIBC(recvmsg)(fd, message, flags);
    if (bytes >= 0) {
        take_rights(*message);
    }
    return bytes;
}

// Does what recvmmsg(2) does. It looks at the time after each message, and writes the time that is left. An
// error behind a message is left to the next call.
INTERPOSED(5, recvmmsg)(int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout) {
    if (!is_rsocket(fd)) {
        const int came = LIBC(recvmmsg)(fd, messages, count, flags, timeout);
        for (int i = 0; i < came; ++i) {
            take_rights(messages[i].msg_hdr);
        }
        return came;
    }
    if (!socket_preload::is_valid(timeout)) {
        errno = EINVAL;
        return -1;
    }
    const socket_preload::TimeLeft left{timeout};
    unsigned done = 0;
    int rest = flags & ~MSG_WAITFORONE;
    while (done < count) {
        const ssize_t bytes = received(fd, [&] { return rrecvmsg(fd, &messages[done].msg_hdr, rest); });
        if (bytes < 0) {
            return done != 0 ? static_cast<int>(done) : -1;
        }
        messages[done++].msg_len = static_cast<unsigned>(bytes);
        rest |= (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0;
        if (left.is_over()) {
            break;
        }
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
    return is_rsocket(fd) ? sent(fd, [&] { return rwrite(fd, bytes, size); }) : LIBC(write)(fd, bytes, size);
}

INTERPOSED(3, writev)(int fd, const iovec *parts, int count) {
    return is_rsocket(fd) ? sent(fd, [&] { return rwritev(fd, parts, count); })
                          : LIBC(writev)(fd, parts, count);
}

INTERPOSED(4, send)(int fd, const void *bytes, size_t size, int flags) {
    return is_rsocket(fd) ? sent(
                                fd, [&] { return rsend(fd, bytes, size, flags); }, flags)
                          : LIBC(send)(fd, bytes, size, flags);
}

INTERPOSED(6, sendto)(int fd, const void *bytes, size_t size, int flags, const sockaddr *address,
                      socklen_t addrlen) {
    return is_rsocket(fd) ? sent(
                                fd, [&] { return rsendto(fd, bytes, size, flags, address, addrlen); }, flags)
                          : LIBC(sendto)(fd, bytes, size, flags, address, addrlen);
}

INTERPOSED(3, sendmsg)(int fd, const msghdr *message, int flags) {
    return is_rsocket(fd) ? sent(
                                fd, [&] { return rsendmsg(fd, message, flags); }, flags)
                          : LIBC(sendmsg)(fd, message, flags);
}

INTERPOSED(4, sendmmsg)(int fd, mmsghdr *messages, unsigned count, int flags) {
    if (!is_rsocket(fd)) {
        return LIBC(sendmmsg)(fd, messages, count, flags);
    }
    unsigned done = 0;
    while (done < count) {
        const ssize_t bytes = sent(fd, [&] { return rsendmsg(fd, &messages[done].msg_hdr, flags); }, flags);
        if (bytes < 0) {
            return done != 0 ? static_cast<int>(done) : -1;
        }
        messages[done++].msg_len = static_cast<unsigned>(bytes);
    }
    return static_cast<int>(done);
}
