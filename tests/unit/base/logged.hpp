// SPDX-License-Identifier: BSD-3-Clause
// A test collects here, in one text, the lines that it makes the library log.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

#include "base/log.hpp"

namespace test {

inline std::string logged;

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is librpma's log function.
inline void keep_line(int, const char *, int, const char *, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    logged += text;
}

// Collects lines from now on, up to this level.
inline void keep_log(base::LogLevel level) {
    base::set_log_sink(keep_line);
    base::log_threshold.store(static_cast<int>(level));
    logged.clear();
}

inline void end_log() {
    base::set_log_sink(nullptr);
}

}  // namespace test
