// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/openssl.hpp"

#include <dlfcn.h>

#include <bit>
#include <new>
#include <type_traits>

#include "base/fork.hpp"
#include "base/log.hpp"

#ifdef __has_feature
#define SOFT_HAS_FEATURE(name) __has_feature(name)
#else
#define SOFT_HAS_FEATURE(name) 0
#endif

namespace soft {

constinit base::LastingMutex lock_of_making;

namespace {

const base::HeldWhileForking<lock_of_making> made_survives_forks{base::ForkLevel::SoftLink};

constexpr const char *library = "libssl.so.3";

// The library's own symbols come before those of the program, which may have an OpenSSL of its own. The run
// time of a sanitizer has to come before all.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || SOFT_HAS_FEATURE(address_sanitizer) || \
    SOFT_HAS_FEATURE(thread_sanitizer) || SOFT_HAS_FEATURE(memory_sanitizer)
constexpr int how = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
#else
constexpr int how = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | RTLD_DEEPBIND;
#endif

const OpenSsl *load() {
    static OpenSsl functions;
    void *const handle = dlopen(library, how);
    if (handle == nullptr) {
        BASE_LOG_PEER(Error, "no TLS, and so no connection: %s", dlerror());
        return nullptr;
    }
    const auto look_up = [handle](auto &function, const char *name) {
        void *const found = dlsym(handle, name);
        function = std::bit_cast<std::remove_reference_t<decltype(function)>>(found);
        if (found == nullptr) {
            BASE_LOG_PEER(Error, "no TLS, and so no connection: %s has no %s", library, name);
        }
        return found != nullptr;
    };
    bool all = true;
#define SOFT_LOOK_UP(name) all = all && look_up(functions.name, #name);
    SOFT_OPENSSL_FUNCTIONS(SOFT_LOOK_UP)
#undef SOFT_LOOK_UP
    // Threads of the device may still be in OpenSSL while the process ends.
    return all && functions.OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1 ? &functions : nullptr;
}

}  // namespace

const OpenSsl *OpenSsl::find() {
    return made_once<load>();
}

OpenSslErrors::OpenSslErrors() {
    if (OpenSsl::found().ERR_peek_error() != 0) [[unlikely]] {
        put_aside();
    }
}

// Without memory the program loses its errors.
void OpenSslErrors::put_aside() {
    const OpenSsl &openssl = OpenSsl::found();
    try {
        const char *file = nullptr;
        const char *function = nullptr;
        const char *data = nullptr;
        int line = 0;
        int flags = 0;
        while (const unsigned long code = openssl.ERR_get_error_all(&file, &line, &function, &data, &flags)) {
            programs_.push_back({.code = code,
                                 .line = line,
                                 .file = file,
                                 .function = function,
                                 .data = (flags & ERR_TXT_STRING) != 0 ? data : ""});
        }
    } catch (const std::bad_alloc &) {
        openssl.ERR_clear_error();
    }
}

OpenSslErrors::~OpenSslErrors() {
    const OpenSsl &openssl = OpenSsl::found();
    if (openssl.ERR_peek_error() != 0) [[unlikely]] {
        openssl.ERR_clear_error();
    }
    for (const Error &error : programs_) {
        openssl.ERR_new();
        openssl.ERR_set_debug(error.file.c_str(), error.line, error.function.c_str());
        openssl.ERR_set_error(ERR_GET_LIB(error.code), ERR_GET_REASON(error.code),
                              error.data.empty() ? nullptr : "%s", error.data.c_str());
    }
}

}  // namespace soft
