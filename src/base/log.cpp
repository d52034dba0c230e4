// SPDX-License-Identifier: BSD-3-Clause
// base/log: the default sink writes warnings and worse to standard error; the places that withhold lines.
#include "base/log.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "base/fork.hpp"
#include "base/shared_value.hpp"

namespace base {

namespace {

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is librpma's log function.
void standard_error_sink(int, const char *, int, const char *function, const char *format, ...) {
    const int number = errno;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    std::fprintf(stderr, "%s: %s", function, text);
    errno = number;
}

std::atomic<LogSink> current_sink{standard_error_sink};

}  // namespace

// Release and acquire make the program's preparations visible to its function in every thread.
void set_log_sink(LogSink sink) {
    base::set_shared(current_sink, sink != nullptr ? sink : standard_error_sink, std::memory_order_release);
}

LogSink log_sink() {
    return current_sink.load(std::memory_order_acquire);
}

constinit LastingMutex LogPlace::mutex;

// The list of the places that withhold lines.
struct LogPlaces {
    LogPlace *first GUARDED_BY(LogPlace::mutex) = nullptr;

    // A forked child does not report its parent's lines, because the parent reports them itself.
    void forget() {
        LogPlace::mutex.assert_held();
        for (LogPlace *place = std::exchange(first, nullptr); place != nullptr;) {
            place->withheld_ = 0;
            place = std::exchange(place->next_, nullptr);
        }
        set_shared(log_withholds, false);
    }
    static void forget_parents();

    using Held = HeldWhileForking<LogPlace::mutex, forget_parents>;
    static const Held held_while_forking;
};

namespace {

constinit LogPlaces places;

}  // namespace

void LogPlaces::forget_parents() {
    places.forget();
}

const LogPlaces::Held LogPlaces::held_while_forking{ForkLevel::Base};

bool LogPlace::admits(int level, Clock::time_point now) {
    Withheld before;
    bool admitted = false;
    {
        const Lock lock{mutex};
        if (now - window_ >= log_window) {
            before = take(now);
            window_ = now;
            written_ = 0;
        }
        admitted = written_ < log_lines_of_place();
        if (admitted) {
            ++written_;
        } else {
            if (withheld_++ == 0) {
                level_ = level;
                next_ = std::exchange(places.first, this);
                set_shared(log_withholds, true);
            }
            level_ = std::min(level_, level);
        }
    }
    before.tell();
    return admitted;
}

void LogPlace::write(int level, const char *format, ...) {
    Text text;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    {
        const Lock lock{mutex};
        last_ = text;
    }
    log_sink()(level, file_, line_, function_, "%s\n", text.data());
}

// Returns nothing when no line is withheld.
LogPlace::Withheld LogPlace::take(Clock::time_point now) {
    if (withheld_ == 0) {
        return {};
    }
    LogPlace **link = &places.first;
    while (*link != this) {
        link = &(*link)->next_;
    }
    *link = std::exchange(next_, nullptr);
    set_shared(log_withholds, places.first != nullptr);
    return {.place = this,
            .level = level_,
            .lines = std::exchange(withheld_, 0),
            .time = std::chrono::ceil<std::chrono::seconds>(now - window_),
            .like = last_};
}

void LogPlace::Withheld::tell() const {
    if (lines != 0) {
        log_sink()(level, place->file_, place->line_, place->function_,
                   "and %" PRIu64 " more like this in the last %lld s: %s\n", lines,
                   static_cast<long long>(time.count()), like.data());
    }
}

void tell_withheld_lines(Clock::time_point now, bool before_their_time) {
    LogPlace::Withheld one;
    do {
        one = {};
        {
            const Lock lock{LogPlace::mutex};
            LogPlace *place = places.first;
            while (place != nullptr && !before_their_time && now - place->window_ < log_window) {
                place = place->next_;
            }
            if (place != nullptr) {
                one = place->take(now);
            }
        }
        one.tell();
    } while (one.lines != 0);
}

}  // namespace base
