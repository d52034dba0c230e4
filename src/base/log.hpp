// SPDX-License-Identifier: BSD-3-Clause
// base/log: one line of log, with its level and place, handed to the sink of the library it is compiled into.
#pragma once

#include <atomic>

namespace base {

// The levels of rpma_log_level, with the same values.
enum class LogLevel : int {
    Disabled = -1,
    Fatal = 0,
    Error = 1,
    Warning = 2,
    Notice = 3,
    Info = 4,
    Debug = 5
};

// printf-style; the format ends in "\n". Called from any thread, also with locks of the caller held: it must
// not call back.
using LogSink = void (*)(int level, const char *file, int line, const char *function, const char *format,
                         ...);

// The sink and threshold of this library. Any thread, any time.
void set_log_sink(LogSink sink);
[[nodiscard]] LogSink log_sink();
inline std::atomic<int> log_threshold{static_cast<int>(LogLevel::Warning)};

// Relaxed: a threshold that changes is seen soon, which is all that is promised.
[[nodiscard]] inline bool log_wanted(LogLevel level) {
    return static_cast<int>(level) <= log_threshold.load(std::memory_order_relaxed);
}

}  // namespace base

// A macro, because it needs the caller's file, line and function, and must not evaluate its arguments when
// not wanted.
#define BASE_LOG(level, format, ...)                                                                \
    do {                                                                                            \
        if (base::log_wanted(base::LogLevel::level)) {                                              \
            base::log_sink()(static_cast<int>(base::LogLevel::level), __FILE__, __LINE__, __func__, \
                             format "\n" __VA_OPT__(, ) __VA_ARGS__);                               \
        }                                                                                           \
    } while (false)
