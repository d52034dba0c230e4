// SPDX-License-Identifier: BSD-3-Clause
// A test collects here, each by itself, the warnings that it makes the library log.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

#include "base/log.hpp"

namespace test {

inline std::vector<std::string> warnings;

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is librpma's log function.
inline void keep_warning(int level, const char *, int, const char *, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (level == static_cast<int>(base::LogLevel::Warning)) {
        warnings.emplace_back(text);
    }
}

// Collects warnings from now on.
inline void keep_warnings() {
    base::set_log_sink(keep_warning);
    base::log_threshold.store(static_cast<int>(base::LogLevel::Warning));
    warnings.clear();
}

inline void end_warnings() {
    base::set_log_sink(nullptr);
}

// Returns whether there is one warning, with both of these.
inline bool warned_of(const std::string &what, const std::string &expected) {
    return warnings.size() == 1 && warnings[0].find(what) != std::string::npos &&
           warnings[0].find(expected) != std::string::npos;
}

}  // namespace test
