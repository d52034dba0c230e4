// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket_calls.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

namespace model {

const Calls of_rsockets{.make = rsocket,
                        .bind = rbind,
                        .listen = rlisten,
                        .connect = rconnect,
                        .name = rgetsockname,
                        .send = rsend,
                        .send_message = rsendmsg,
                        .write = rwrite,
                        .write_parts = rwritev,
                        .receive = rrecv,
                        .receive_message = rrecvmsg,
                        .read = rread,
                        .read_parts = rreadv,
                        .shutdown = rshutdown,
                        .close = rclose,
                        .control = rfcntl,
                        .set_option = rsetsockopt};

const Calls of_kernel{
    .make = ::socket,
    .bind = ::bind,
    .listen = ::listen,
    .connect = ::connect,
    .name = ::getsockname,
    .send = ::send,
    .send_message = ::sendmsg,
    .write = [](int fd, const void *from, size_t bytes) { return ::send(fd, from, bytes, MSG_NOSIGNAL); },
    .write_parts =
        [](int fd, const iovec *parts, int count) {
            msghdr message{};
            message.msg_iov = const_cast<iovec *>(parts);  // not written to
            message.msg_iovlen = static_cast<std::size_t>(count);
            return ::sendmsg(fd, &message, MSG_NOSIGNAL);
        },
    .receive = ::recv,
    .receive_message = ::recvmsg,
    .read = ::read,
    .read_parts = ::readv,
    .shutdown = ::shutdown,
    .close = ::close,
    .control = ::fcntl,
    .set_option = ::setsockopt};

void set_option(const Calls &calls, int fd, int level, int name, std::size_t value) {
    const int number = static_cast<int>(value);
    (void)calls.set_option(fd, level, name, &number, sizeof(number));
}

void send_at_once(const Calls &calls, int fd) {
    set_option(calls, fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

int option_of(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof(value);
    (void)rgetsockopt(fd, level, name, &value, &length);
    return value;
}

}  // namespace model
