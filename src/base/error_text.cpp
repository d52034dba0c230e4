// SPDX-License-Identifier: BSD-3-Clause
#include "base/error_text.hpp"

#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace base {

const char *error_text(int number) {
    rlimit open{};
    if (number == EMFILE && getrlimit(RLIMIT_NOFILE, &open) == 0) {
        thread_local std::array<char, 96> text;
        std::snprintf(text.data(), text.size(), "too many open files: this process may have %ju (ulimit -n)",
                      static_cast<std::uintmax_t>(open.rlim_cur));
        return text.data();
    }
    const char *const text = strerrordesc_np(number);
    return text != nullptr ? text : "unknown error";
}

}  // namespace base
