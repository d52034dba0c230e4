// SPDX-License-Identifier: BSD-3-Clause
// base/log: the default sink writes warnings and worse to standard error.
#include "base/log.hpp"

#include <cstdarg>
#include <cstdio>

namespace base {

namespace {

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is librpma's log function.
void standard_error_sink(int, const char *, int, const char *function, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    std::fprintf(stderr, "%s: %s", function, text);
}

std::atomic<LogSink> current_sink{standard_error_sink};

}  // namespace

// Relaxed: the sink is a plain function, nothing else is published with it.
void set_log_sink(LogSink sink) {
    current_sink.store(sink != nullptr ? sink : standard_error_sink, std::memory_order_relaxed);
}

LogSink log_sink() {
    return current_sink.load(std::memory_order_relaxed);
}

}  // namespace base
