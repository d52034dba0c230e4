// SPDX-License-Identifier: BSD-3-Clause
// base/system_call: a call of syscall(2), for a library that stands in front of that.
#pragma once

#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdint>

#include "base/interpose.hpp"

namespace base {

// Arguments that a call does not have are passed on unused.
struct SystemCall {
    explicit SystemCall(long call, va_list list) : number{call} {
        for (long &one : arguments) {
            one = va_arg(list, long);
        }
    }
    // Makes the call by libc.
    [[nodiscard]] long pass_on() const {
        const auto &[first, second, third, fourth, fifth, sixth] = arguments;
        return LIBC(syscall)(number, first, second, third, fourth, fifth, sixth);
    }
    // Returns whether it makes a process that has its own memory and goes on where the call returns.
    [[nodiscard]] bool copies_process() const {
        const auto goes_on = [](std::uint64_t flags, std::uint64_t stack) {
            return (flags & CLONE_VM) == 0 && stack == 0;
        };
        switch (number) {
#ifdef SYS_fork
            case SYS_fork:
                return true;
#endif
            case SYS_clone:
                return goes_on(static_cast<std::uint64_t>(arguments[0]),
                               static_cast<std::uint64_t>(arguments[1]));
            case SYS_clone3: {
                const auto *const wanted = reinterpret_cast<const clone_args *>(arguments[0]);
                return wanted != nullptr && goes_on(wanted->flags, wanted->stack);
            }
            default:
                return false;
        }
    }

    long number;
    std::array<long, 6> arguments;
};

}  // namespace base
