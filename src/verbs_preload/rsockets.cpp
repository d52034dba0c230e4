// SPDX-License-Identifier: BSD-3-Clause
// verbs_preload/rsockets: the door to librdmacm's own rsockets. They look into ids behind what rdma_cma.h
// declares, where a soft device's ids have what librdmacm 44 expects and nothing else: with another version
// they would read something else. So they run only when SOFTRDMA_RSOCKETS=librdmacm asks for it, which is for
// tests, and only with the version that was looked at. Without rsocket() no other r* call has a descriptor to
// work on.
#include <dlfcn.h>
#include <rdma/rsocket.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <string_view>

#include "base/log.hpp"

namespace {

using Rsocket = decltype(&rsocket);

// librdmacm.so.1 is a link to librdmacm.so.1.INTERFACE.RELEASE.0.
bool known_release(const void *function) {
    Dl_info found{};
    char path[PATH_MAX];
    return dladdr(function, &found) != 0 && realpath(found.dli_fname, path) != nullptr &&
           std::string_view{path}.ends_with(".44.0");
}

Rsocket librdmacms() {
    const char *const wanted = secure_getenv("SOFTRDMA_RSOCKETS");
    if (wanted == nullptr || std::string_view{wanted} != "librdmacm") {
        BASE_LOG(Error,
                 "rsocket: librdmacm's rsockets do not run on the soft device (SOFTRDMA_RSOCKETS is \"%s\"; "
                 "\"librdmacm\" lets them, for tests)",
                 wanted != nullptr ? wanted : "");
        return nullptr;
    }
    void *const function = dlsym(RTLD_NEXT, "rsocket");
    if (function == nullptr || !known_release(function)) {
        BASE_LOG(Error, "rsocket: only the rsockets of librdmacm 44 were seen to run on the soft device");
        return nullptr;
    }
    return reinterpret_cast<Rsocket>(function);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int rsocket(int domain, int type, int protocol) {
    static const Rsocket real = librdmacms();
    if (real == nullptr) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return real(domain, type, protocol);
}
