// SPDX-License-Identifier: BSD-3-Clause
// verbs_preload/dlopen: a program that loads libibverbs or librdmacm itself, as NCCL does, takes functions
// from the handle and not from those that are preloaded. It gets the handle of libsoftrdma-verbs-opened.so
// instead, which lies beside this library, and needs the real ones.
#include <dlfcn.h>

#include <string>
#include <string_view>

#include "base/log.hpp"

namespace {

using Dlopen = void *(*)(const char *file, int mode);

bool is_real_library(const char *file) {
    const std::string_view path{file != nullptr ? file : ""};
    const std::string_view name = path.substr(path.rfind('/') + 1);  // all of it without a slash
    return name == "libibverbs.so" || name == "libibverbs.so.1" || name == "librdmacm.so" ||
           name == "librdmacm.so.1";
}

// Returns the path of the library whose handle a program gets; empty when it cannot be told.
const std::string &opened_library() {
    static const std::string path = [] {
        Dl_info own{};
        std::string beside;
        if (dladdr(reinterpret_cast<const void *>(&is_real_library), &own) != 0) {
            beside = own.dli_fname;
            beside.resize(beside.rfind('/') + 1);
            beside += "libsoftrdma-verbs-opened.so";
        }
        return beside;
    }();
    return path;
}

}  // namespace

// The last call is a jump where the compiler optimises, so that the loader sees the program as the caller,
// whose RUNPATH counts.
extern "C" [[gnu::visibility("default")]] void *dlopen(const char *file, int mode) {
    static const auto real = reinterpret_cast<Dlopen>(dlsym(RTLD_NEXT, "dlopen"));
    if (is_real_library(file) && !opened_library().empty()) {
        if (void *const handle = real(opened_library().c_str(), mode)) {
            return handle;
        }
        BASE_LOG(Error, "dlopen of %s: no handle of the soft device's functions: %s", file, dlerror());
        return nullptr;
    }
    return real(file, mode);
}
