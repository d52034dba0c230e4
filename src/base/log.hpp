// SPDX-License-Identifier: BSD-3-Clause
// base/log: hands one line of log, with its level and place, to the sink of the library that it is compiled
// into. Lines that peers can cause without end become a count.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.hpp"
#include "base/mutex.hpp"

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

// The arguments are printf's; the format ends in "\n". Any thread may call the sink, also while it holds
// locks, so the sink must not call the library.
using LogSink = void (*)(int level, const char *file, int line, const char *function, const char *format,
                         ...);

// Sets the sink and threshold of this library. Any thread may call it at any time.
void set_log_sink(LogSink sink);
[[nodiscard]] LogSink log_sink();
inline std::atomic<int> log_threshold{static_cast<int>(LogLevel::Warning)};

// Relaxed is enough: a new threshold need only be seen soon.
[[nodiscard]] inline bool log_wanted(LogLevel level) {
    return static_cast<int>(level) <= log_threshold.load(std::memory_order_relaxed);
}

// A place in the code whose lines peers cause. It writes the first log_lines_of_place() lines in log_window,
// and counts the later ones. When the window is over, the count becomes one line, with the text of the last
// line that was written. The next line of the place, or tell_withheld_lines(), writes it.
[[nodiscard]] unsigned log_lines_of_place();
inline constexpr std::chrono::seconds log_window{10};

class LogPlace {
public:
    constexpr LogPlace(const char *file, int line, const char *function)
        : file_{file}, line_{line}, function_{function} {}
    LogPlace(const LogPlace &) = delete;
    LogPlace &operator=(const LogPlace &) = delete;
    ~LogPlace() = default;

    // Returns whether to write a line now. Any thread may call it.
    [[nodiscard]] bool admits(int level, Clock::time_point now = Clock::now());
    // Writes the line; the format is printf's, without a newline. Any thread may call it.
    [[gnu::format(printf, 3, 4)]] void write(int level, const char *format, ...);

private:
    using Text = std::array<char, 512>;
    friend void tell_withheld_lines(Clock::time_point now, bool before_their_time);
    friend struct LogPlaces;
    struct Withheld {
        LogPlace *place = nullptr;
        int level = 0;
        std::uint64_t lines = 0;
        std::chrono::seconds time{};
        Text like{};
        void tell() const;  // calls the sink
    };
    [[nodiscard]] Withheld take(Clock::time_point now) REQUIRES(mutex);

    static LastingMutex mutex;  // of all places; no other lock is taken with it

    const char *const file_;
    const int line_;
    const char *const function_;
    Clock::time_point window_ GUARDED_BY(mutex);  // the beginning of the window
    unsigned written_ GUARDED_BY(mutex) = 0;      // in the window
    std::uint64_t withheld_ GUARDED_BY(mutex) = 0;
    int level_ GUARDED_BY(mutex) = 0;             // the gravest level of the withheld lines
    Text last_ GUARDED_BY(mutex){};               // the last line that was written
    LogPlace *next_ GUARDED_BY(mutex) = nullptr;  // the next place that withholds lines
};

// True while a place has withheld lines that are not written yet.
inline std::atomic<bool> log_withholds{false};
// Writes the counts of the places whose window is over, or of all places. The caller holds no lock that the
// sink might take.
void tell_withheld_lines(Clock::time_point now, bool before_their_time);

}  // namespace base

// This is a macro because it needs the caller's file, line and function, and must not evaluate its arguments
// when the line is not wanted.
#define BASE_LOG(level, format, ...) BASE_LOG_AT(base::LogLevel::level, format __VA_OPT__(, ) __VA_ARGS__)
// The same, with a level that is computed.
#define BASE_LOG_AT(level, format, ...)                                             \
    do {                                                                            \
        if (base::log_wanted(level)) {                                              \
            base::log_sink()(static_cast<int>(level), __FILE__, __LINE__, __func__, \
                             format "\n" __VA_OPT__(, ) __VA_ARGS__);               \
        }                                                                           \
    } while (false)

// These two are for lines that a peer causes; the second takes the level's value.
#define BASE_LOG_PEER(level, format, ...) \
    BASE_LOG_PEER_AT(static_cast<int>(base::LogLevel::level), format __VA_OPT__(, ) __VA_ARGS__)
#define BASE_LOG_PEER_AT(level, format, ...)                                            \
    do {                                                                                \
        if (base::log_wanted(base::LogLevel{level})) {                                  \
            static constinit base::LogPlace place_of_log{__FILE__, __LINE__, __func__}; \
            if (place_of_log.admits(level)) {                                           \
                place_of_log.write(level, format __VA_OPT__(, ) __VA_ARGS__);           \
            }                                                                           \
        }                                                                               \
    } while (false)
