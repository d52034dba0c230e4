// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_calls: the calls on one end of a pair. An rsocket has those of rpma/rsocket.h, and a plain
// socket of TCP has the kernel's.
#pragma once

#include <fcntl.h>
#include <rpma/rsocket.h>

#include <cstddef>

namespace model {

struct Calls {
    int (*make)(int, int, int);
    int (*bind)(int, const sockaddr *, socklen_t);
    int (*listen)(int, int);
    int (*connect)(int, const sockaddr *, socklen_t);
    int (*name)(int, sockaddr *, socklen_t *);
    ssize_t (*send)(int, const void *, size_t, int);
    ssize_t (*send_message)(int, const msghdr *, int);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*write_parts)(int, const iovec *, int);
    ssize_t (*receive)(int, void *, size_t, int);
    ssize_t (*receive_message)(int, msghdr *, int);
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*read_parts)(int, const iovec *, int);
    int (*shutdown)(int, int);
    int (*close)(int);
    int (*control)(int, int, ...);
    int (*set_option)(int, int, int, const void *, socklen_t);
};

extern const Calls of_rsockets;
// None of these calls raises SIGPIPE. Where the process gets the signal, the library has raised it.
extern const Calls of_kernel;

// Turns off Nagle's algorithm: a send does not wait for acknowledgements of the peer, which may be late.
void send_at_once(const Calls &calls, int fd);
void set_option(const Calls &calls, int fd, int level, int name, std::size_t value);
// Returns an option of an rsocket, or -1 when it has no such option.
[[nodiscard]] int option_of(int fd, int level, int name);

}  // namespace model
