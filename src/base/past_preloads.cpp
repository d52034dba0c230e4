// SPDX-License-Identifier: BSD-3-Clause
// base/past_preloads: linked into a library of ours, these let its sockets and epoll sets be the kernel's,
// also where librsocket-preload.so is in the process and makes rsockets of what a program asks libc for: the
// library is what rsockets run on. All other calls for such a descriptor pass that by, because it is no
// rsocket's. The link binds the library's own calls here (ld --wrap).
#include <sys/syscall.h>
#include <unistd.h>

// NOLINTBEGIN(bugprone-reserved-identifier, cert-dcl37-c, cert-dcl51-cpp, readability-identifier-naming)
extern "C" {

int __wrap_socket(int domain, int type, int protocol);
int __wrap_epoll_create1(int flags);

int __wrap_socket(int domain, int type, int protocol) {
    return static_cast<int>(syscall(SYS_socket, domain, type, protocol));
}

int __wrap_epoll_create1(int flags) {
    return static_cast<int>(syscall(SYS_epoll_create1, flags));
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier, cert-dcl37-c, cert-dcl51-cpp, readability-identifier-naming)
