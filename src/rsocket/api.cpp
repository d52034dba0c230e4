// SPDX-License-Identifier: BSD-3-Clause
// rsocket/api: the functions of rpma/rsocket.h. Failures become errno here.
#include <fcntl.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <new>
#include <span>

#include "base/fork.hpp"
#include "base/multipath.hpp"
#include "base/parts.hpp"
#include "rsocket/datagram_socket.hpp"
#include "rsocket/descriptor_set.hpp"
#include "rsocket/poll.hpp"
#include "rsocket/returned.hpp"
#include "rsocket/socket.hpp"
#include "rsocket/table.hpp"

#pragma GCC visibility push(default)
#include <rpma/rsocket.h>
#pragma GCC visibility pop

namespace rsockets {

namespace {

// Returns the result of use(socket) for the rsocket behind the descriptor.
template <typename Use>
[[gnu::always_inline]] inline long with_socket(int fd, Use use) {
    return guarded([&]() -> decltype(use(std::declval<AnySocket &>())) {
        const auto socket = Table::instance().find(fd);
        return socket ? use(*socket) : base::failure(EBADF);
    });
}

// Returns the result of a system call on the kernel's socket behind the descriptor.
template <typename SystemCall>
int with_descriptor(int fd, SystemCall call) {
    return static_cast<int>(with_socket(fd, [&](const AnySocket &socket) -> Result<int> {
        const int result = call(socket.fd());
        return result >= 0 ? Result<int>{result} : base::last_failure();
    }));
}

// Returns whether a program passed a negative length, which socklen_t does not show.
bool is_negative(socklen_t length) {
    return length > INT_MAX;
}

// Returns whether the parts are as readv(2) and writev(2) want them, and a call can return all their bytes.
[[gnu::always_inline]] inline bool has_valid_parts(const msghdr &message) {
    if (message.msg_iovlen > IOV_MAX) {
        return false;
    }
    std::size_t left = SSIZE_MAX;
    for (const iovec &part : std::span{message.msg_iov, message.msg_iovlen}) {
        if (part.iov_len > left) {
            return false;
        }
        left -= part.iov_len;
    }
    return true;
}

// Most calls have one part and no name.
[[gnu::always_inline]] inline long receive(int fd, void *bytes, std::size_t size, int flags) {
    return with_socket(fd, [=](AnySocket &socket) -> Result<std::size_t> {
        return size <= SSIZE_MAX ? socket.receive_part(bytes, size, flags) : base::failure(EINVAL);
    });
}

[[gnu::always_inline]] inline long send(int fd, const void *bytes, std::size_t size, int flags) {
    return with_socket(fd, [=](AnySocket &socket) -> Result<std::size_t> {
        return size <= SSIZE_MAX ? socket.send_part(bytes, size, flags) : base::failure(EINVAL);
    });
}

// These check the message first, because the compiler knows the one part that most calls have.
[[gnu::always_inline]] inline long receive(int fd, msghdr &message, int flags) {
    const bool is_valid = has_valid_parts(message);
    return with_socket(fd, [&](AnySocket &socket) -> Result<std::size_t> {
        return is_valid ? socket.receive(message, flags) : base::failure(EINVAL);
    });
}

// read(2) and readv(2) do not wait for a byte that is not wanted. recv(2) does.
long read_nothing(int fd) {
    return with_socket(fd, [](AnySocket &) -> Result<int> { return 0; });
}

[[gnu::always_inline]] inline long send(int fd, const msghdr &message, int flags) {
    const int error = !has_valid_parts(message) ? EINVAL : message.msg_controllen != 0 ? EOPNOTSUPP : 0;
    return with_socket(fd, [&](AnySocket &socket) -> Result<std::size_t> {
        return error == 0 ? socket.send(message, flags) : base::failure(error);
    });
}

// Fails as recvmsg(2) and sendmsg(2) do, which have an error of their own for too many parts.
long too_many_parts(int fd) {
    return with_socket(fd, [](AnySocket &) -> Result<int> { return base::failure(EMSGSIZE); });
}

Result<int> make(int domain, int type, int protocol) {
    constexpr int flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
    const bool is_stream = (type & ~flags) == SOCK_STREAM;
    if ((domain != AF_INET && domain != AF_INET6) || (!is_stream && (type & ~flags) != SOCK_DGRAM) ||
        (protocol != 0 && protocol != (is_stream ? IPPROTO_TCP : IPPROTO_UDP))) {
        return base::failure(ENOTSUP);
    }
    if (!is_stream) {
        auto made = DatagramSocket::create(domain, type, protocol);
        return made ? Result<int>{Table::instance().add(std::move(*made))} : std::unexpected{made.error()};
    }
    // The kernel's socket never blocks, as after raccept.
    auto fd = base::stream_socket(domain, (type & flags) | SOCK_NONBLOCK);
    if (!fd) {
        return std::unexpected{fd.error()};
    }
    return Table::instance().add(std::make_shared<Socket>(
        std::move(*fd), Socket::State::Fresh, configuration().settings, (type & SOCK_NONBLOCK) == 0));
}

Result<int> control(AnySocket &socket, int command, int argument) {
    const auto kernel = [&](int result) { return result >= 0 ? Result<int>{result} : base::last_failure(); };
    switch (command) {
        case F_GETFL:
            return O_RDWR | (socket.blocks() ? 0 : O_NONBLOCK);
        case F_SETFL:
            socket.set_blocking((argument & O_NONBLOCK) == 0);
            return 0;
        case F_GETFD:
            return kernel(fcntl(socket.fd(), F_GETFD));
        case F_SETFD:
            return kernel(fcntl(socket.fd(), F_SETFD, argument));
        default:
            return base::failure(EINVAL);
    }
}

Result<int> select(int count, std::array<DescriptorSet, 3> sets, Deadline deadline) {
    constexpr std::array<short, 3> events{POLLIN, POLLOUT, POLLPRI};
    constexpr std::array<short, 3> answers{POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI};
    if (count < 0) {
        return base::failure(EINVAL);
    }
    std::vector<pollfd> entries;
    for (int fd = 0; fd < count; ++fd) {
        short wanted = 0;
        for (std::size_t set = 0; set < sets.size(); ++set) {
            wanted = static_cast<short>(wanted | (sets[set].has(fd) ? events[set] : 0));
        }
        if (wanted != 0) {
            entries.push_back({.fd = fd, .events = wanted, .revents = 0});
        }
    }
    if (const auto waited = wait_for(entries, deadline); !waited) {
        return waited;
    }
    int ready = 0;
    for (const pollfd &entry : entries) {
        if ((entry.revents & POLLNVAL) != 0) {
            return base::failure(EBADF);
        }
    }
    for (const pollfd &entry : entries) {
        for (std::size_t set = 0; set < sets.size(); ++set) {
            if ((entry.events & events[set]) == 0) {
                continue;
            }
            if ((entry.revents & answers[set]) != 0) {
                ++ready;
            } else {
                sets[set].remove(entry.fd);
            }
        }
    }
    return ready;
}

}  // namespace

}  // namespace rsockets

namespace {

using rsockets::AnySocket;
using rsockets::Deadline;
using rsockets::DescriptorSet;
using rsockets::guarded;
using rsockets::is_negative;
using rsockets::Result;
using rsockets::Table;
using rsockets::with_descriptor;
using rsockets::with_socket;

// A negative count is more than IOV_MAX, and has_valid_parts() refuses it.
msghdr message_of(const iovec *parts, int count) {
    return base::message_of(parts, static_cast<std::size_t>(count));
}

}  // namespace

int rsocket(int domain, int type, int protocol) {
    return static_cast<int>(guarded([&] { return rsockets::make(domain, type, protocol); }));
}

int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen) {
    return with_descriptor(socket, [&](int fd) { return bind(fd, addr, addrlen); });
}

int rlisten(int socket, int backlog) {
    return static_cast<int>(with_socket(socket, [&](AnySocket &one) { return one.listen(backlog); }));
}

int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen) {
    return static_cast<int>(with_socket(socket, [&](AnySocket &one) -> Result<int> {
        auto accepted = one.accept(addr, addrlen, 0);
        if (!accepted) {
            return std::unexpected{accepted.error()};
        }
        return Table::instance().add(std::move(*accepted));
    }));
}

int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen) {
    return static_cast<int>(with_socket(socket, [&](AnySocket &one) { return one.connect(addr, addrlen); }));
}

int rshutdown(int socket, int how) {
    return static_cast<int>(with_socket(socket, [&](AnySocket &one) { return one.shutdown(how); }));
}

int rclose(int socket) {
    if (base::is_in_parents_memory()) {
        return close(socket);  // the rsocket is the parent's
    }
    return static_cast<int>(guarded([&]() -> Result<void> {
        if (const auto repoll = Table::instance().remove_repoll(socket)) {
            repoll->close();
            return {};
        }
        if (const auto found = Table::instance().find(socket)) {
            if (auto ended = found->end_mappings(); !ended) {
                return ended;
            }
        }
        const auto one = Table::instance().remove(socket);
        if (one == nullptr) {
            return base::failure(EBADF);
        }
        one->waiters().close();
        one->close();
        return {};
    }));
}

ssize_t rrecv(int socket, void *buf, size_t len, int flags) {
    return rsockets::receive(socket, buf, len, flags);
}

ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
                  socklen_t *addrlen) {
    const iovec part = base::part_of(buf, len);
    msghdr message = base::message_of(&part, 1);
    const bool wants_name = src_addr != nullptr && addrlen != nullptr;
    message.msg_name = wants_name ? src_addr : nullptr;
    message.msg_namelen = wants_name ? *addrlen : 0;
    const ssize_t received = rsockets::receive(socket, message, flags);
    if (received >= 0 && wants_name) {
        *addrlen = message.msg_namelen;
    }
    return received;
}

ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags) {
    return msg->msg_iovlen > IOV_MAX ? rsockets::too_many_parts(socket)
                                     : rsockets::receive(socket, *msg, flags);
}

ssize_t rsend(int socket, const void *buf, size_t len, int flags) {
    return rsockets::send(socket, buf, len, flags);
}

ssize_t rsendto(int socket, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr,
                socklen_t addrlen) {
    const iovec part = base::part_of(buf, len);
    msghdr message = base::message_of(&part, 1);
    message.msg_name = const_cast<sockaddr *>(dest_addr);  // not written to
    message.msg_namelen = addrlen;
    return rsockets::send(socket, message, flags);
}

ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags) {
    return msg->msg_iovlen > IOV_MAX ? rsockets::too_many_parts(socket) : rsockets::send(socket, *msg, flags);
}

ssize_t rread(int socket, void *buf, size_t count) {
    return count != 0 ? rsockets::receive(socket, buf, count, 0) : rsockets::read_nothing(socket);
}

ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt) {
    msghdr message = message_of(iov, iovcnt);
    const bool wants_none =
        rsockets::has_valid_parts(message) && base::size_of({message.msg_iov, message.msg_iovlen}) == 0;
    return wants_none ? rsockets::read_nothing(socket) : rsockets::receive(socket, message, 0);
}

ssize_t rwrite(int socket, const void *buf, size_t count) {
    return rsockets::send(socket, buf, count, 0);
}

ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt) {
    return rsockets::send(socket, message_of(iov, iovcnt), 0);
}

off_t riomap(int socket, void *buf, size_t len, int prot, int, off_t offset) {
    return with_socket(socket, [&](AnySocket &one) { return one.map(buf, len, prot, offset); });
}

int riounmap(int socket, void *buf, size_t len) {
    return static_cast<int>(with_socket(socket, [&](AnySocket &one) { return one.unmap(buf, len); }));
}

size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags) {
    return static_cast<size_t>(
        with_socket(socket, [&](AnySocket &one) { return one.write_at(buf, count, offset, flags); }));
}

int rpoll(struct pollfd *fds, nfds_t nfds, int timeout) {
    return static_cast<int>(guarded([&]() -> Result<int> {
        if (nfds > INT_MAX) {
            return base::failure(EINVAL);
        }
        const Deadline deadline =
            timeout < 0 ? Deadline{} : base::Clock::now() + std::chrono::milliseconds{timeout};
        return rsockets::wait_for({fds, nfds}, deadline);
    }));
}

int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout) {
    return static_cast<int>(guarded([&]() -> Result<int> {
        using std::chrono::microseconds;
        Deadline deadline;
        if (timeout != nullptr) {
            if (timeout->tv_sec < 0 || timeout->tv_usec < 0) {
                return base::failure(EINVAL);
            }
            deadline = base::Clock::now() +
                       std::chrono::seconds{std::min<time_t>(timeout->tv_sec, INT32_MAX)} +
                       microseconds{timeout->tv_usec};
        }
        const auto ready = rsockets::select(
            nfds, {DescriptorSet{readfds}, DescriptorSet{writefds}, DescriptorSet{exceptfds}}, deadline);
        if (timeout != nullptr) {
            const auto left = std::chrono::duration_cast<microseconds>(*deadline - base::Clock::now());
            const auto some = std::max(left, microseconds{0});
            *timeout = {.tv_sec = some.count() / 1000000, .tv_usec = some.count() % 1000000};
        }
        return ready;
    }));
}

int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen) {
    return static_cast<int>(
        with_socket(socket, [&](AnySocket &one) { return one.name(base::End::Peer, addr, addrlen); }));
}

int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen) {
    return static_cast<int>(
        with_socket(socket, [&](AnySocket &one) { return one.name(base::End::Local, addr, addrlen); }));
}

int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen) {
    return static_cast<int>(with_socket(socket, [&](AnySocket &one) -> Result<void> {
        return is_negative(optlen) ? base::failure(EINVAL) : one.set_option(level, optname, optval, optlen);
    }));
}

int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen) {
    return static_cast<int>(with_socket(socket, [&](AnySocket &one) -> Result<void> {
        return optlen != nullptr && is_negative(*optlen) ? base::failure(EINVAL)
                                                         : one.get_option(level, optname, optval, optlen);
    }));
}

int rfcntl(int socket, int cmd, ...) {
    va_list arguments;
    va_start(arguments, cmd);
    const int argument = cmd == F_SETFL || cmd == F_SETFD ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return static_cast<int>(
        with_socket(socket, [&](AnySocket &one) { return rsockets::control(one, cmd, argument); }));
}
