// SPDX-License-Identifier: BSD-3-Clause
// verbs_preload/rsockets: lets librdmacm's own rsockets run, or refuses them. They read the memory of an id
// behind the members that rdma_cma.h declares. A soft device's ids have there what librdmacm 44 expects;
// another version would read something else. So they run only when SOFTRDMA_RSOCKETS=librdmacm asks for it,
// which is for tests, and only with the known version. Without rsocket() no other r* call has a descriptor to
// work on. When they run, they also get an address handle that no Ethernet device gives them.
#include <dlfcn.h>
#include <rdma/rsocket.h>
#include <softrdma.h>

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

const char *wanted_rsockets() {
    static const char *const wanted = secure_getenv("SOFTRDMA_RSOCKETS");
    return wanted != nullptr ? wanted : "";
}

bool librdmacms_are_wanted() {
    return std::string_view{wanted_rsockets()} == "librdmacm";
}

Rsocket librdmacms() {
    if (!librdmacms_are_wanted()) {
        BASE_LOG(Error,
                 "rsocket: librdmacm's rsockets do not run on the soft device (SOFTRDMA_RSOCKETS is \"%s\"; "
                 "\"librdmacm\" lets them, for tests)",
                 wanted_rsockets());
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

// Datagram rsockets send the messages that came to them over UDP to their own queue pair, with an address
// handle without a GID. Verbs allow that on InfiniBand only. Here the handle leads to the device's first GID.
extern "C" [[gnu::visibility("default")]] ibv_ah *ibv_create_ah(ibv_pd *pd, ibv_ah_attr *attributes) {
    if (!librdmacms_are_wanted() || attributes->is_global != 0) {
        return softrdma_ibv_create_ah(pd, attributes);
    }
    ibv_ah_attr own = *attributes;
    own.is_global = 1;
    own.grh = {};
    own.grh.hop_limit = 1;
    return softrdma_ibv_query_gid(pd->context, own.port_num, 0, &own.grh.dgid) == 0
               ? softrdma_ibv_create_ah(pd, &own)
               : nullptr;
}
