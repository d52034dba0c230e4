// SPDX-License-Identifier: BSD-3-Clause
// base/interpose: standing in front of a function of libc, and calling it.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <type_traits>

#include "base/signature.hpp"

namespace base {

template <std::size_t size>
struct Name {
    // NOLINTNEXTLINE(google-explicit-constructor, modernize-avoid-c-arrays): made of a literal
    constexpr Name(const char (&text)[size]) { std::copy_n(text, size, characters); }
    char characters[size]{};
};

// Returns the function of that name behind this library, libc's for instance. Constructors of other
// libraries call it before those of this library run, so it is looked for at its first use.
template <Name name, typename Function>
Function *behind() {
    static constinit std::atomic<Function *> known{nullptr};
    Function *function = known.load(std::memory_order_relaxed);
    if (function == nullptr) {
        function = reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name.characters));
        if (function == nullptr) {
            std::abort();  // the program would not have been loaded: its calls name it too
        }
        known.store(function, std::memory_order_relaxed);
    }
    return function;
}

// Returns the mode that a call of open(2) has behind its flags, and 0 when it has none.
[[nodiscard]] inline mode_t mode_of(int flags, va_list behind_flags) {
    const bool makes_file = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
    return makes_file ? va_arg(behind_flags, mode_t) : 0;
}

// Makes a call in a function of its own, which unwinding finds, with its objects, apart from the caller.
template <typename Call>
[[gnu::noinline]] auto apart(const Call &call) {
    return call();
}

// How many times a thread of this process has asked for cancellation at any moment
// (pthread_setcanceltype(3)). It begins with 1: only a library that stands in front of that call counts.
inline constinit std::atomic<unsigned> asked_for_asynchronous_cancellation{1};

// Such a thread is not cancelled in the middle of the call, but where other threads are, or behind it. Then
// it is unwound from here: so no object lives here that needs to be destroyed, and no caller in this library
// is noexcept.
template <typename Call>
[[gnu::noinline]] auto called_without_asynchronous_cancellation(Call call) {
    int type = PTHREAD_CANCEL_DEFERRED;
    (void)pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    const auto result = apart(call);
    if (type != PTHREAD_CANCEL_DEFERRED) {
        (void)pthread_setcanceltype(type, nullptr);
    }
    return result;
}

// Makes a call of the program's, as libc does. errno is afterwards what it was before, unless the call has
// failed: programs look at it after calls that succeeded (lftp), and report it after a close(2).
template <typename Call>
auto called_by_program(Call call) {
    const int error = errno;
    const bool may_end_here = asked_for_asynchronous_cancellation.load(std::memory_order_relaxed) != 0;
    const auto result = may_end_here ? called_without_asynchronous_cancellation(call) : call();
    const bool has_failed = [&] {
        if constexpr (std::is_pointer_v<decltype(result)>) {
            return result == nullptr;
        } else {
            return result < 0;
        }
    }();
    if (!has_failed) {
        errno = error;
    }
    return result;
}

}  // namespace base

#define LIBC(name) base::behind<#name, decltype(::name)>()
// NOLINTBEGIN(cppcoreguidelines-macro-usage): only the preprocessor makes a name of a name
#define EXPORTED extern "C" [[gnu::visibility("default")]]
// Begins the definition of a function that has libc's name for other libraries. Here it has a name of its
// own, because libc's may be declared noexcept.
#define NAMED(result, name, ...)                            \
    EXPORTED result program_##name(__VA_ARGS__) asm(#name); \
    result program_##name(__VA_ARGS__)
// Defines the function of libc's name, with `count` parameters; the body follows. A function that has others
// behind them is NAMED, and uses called_by_program itself.
#define INTERPOSED(count, name)                                                           \
    static decltype(::name) called_##name;                                                \
    NAMED(SIGNATURE(::name)::Result, name, PARAMETERS_##count(::name)) {                  \
        return base::called_by_program([&] { return called_##name(ARGUMENTS_##count); }); \
    }                                                                                     \
    static SIGNATURE(::name)::Result called_##name
// NOLINTEND(cppcoreguidelines-macro-usage)
