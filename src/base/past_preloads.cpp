// SPDX-License-Identifier: BSD-3-Clause
// base/past_preloads: gives a library of ours the kernel's sockets and epoll sets. Without it,
// libcarry-preload.so in the same process would carry them. The linker binds the library's own calls to these
// functions (ld --wrap). All other calls for such a descriptor pass the preloaded library anyway, because the
// descriptor is none of its sockets.
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
