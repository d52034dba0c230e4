// SPDX-License-Identifier: BSD-3-Clause
// cli/log: keeps lines for the text of a failure, and prints the commands' own lines.
#include "cli/log.hpp"

#include <librpma.h>

#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/log_destination.hpp"
#include "base/mutex.hpp"

namespace cli {

namespace {

// librpma and the soft device log from any thread.
constinit base::LastingMutex mutex;

// The lines of librpma that a server has printed in the last minute, and prints once. A server that follows
// another one asks for it each second, also when it is away.
class Recent {
public:
    // Returns whether to print the line now.
    [[nodiscard]] bool admits(const std::string &line) {
        const auto now = base::Clock::now();
        std::erase_if(since_, [now](const auto &entry) { return now - entry.second >= window; });
        if (since_.contains(line)) {
            return false;
        }
        if (since_.size() < most) {
            since_[line] = now;
        }
        return true;
    }

private:
    static constexpr auto window = std::chrono::minutes{1};
    static constexpr std::size_t most = 64;
    std::map<std::string, base::Clock::time_point> since_;
};

Recent &recent() REQUIRES(mutex) {
    static auto &lines = *new Recent;
    return lines;
}

// The last line of each level. Never destroyed: the engine may log when main() returns.
std::array<std::string, RPMA_LOG_LEVEL_DEBUG + 1> &kept_lines() REQUIRES(mutex) {
    static auto &lines = *new std::array<std::string, RPMA_LOG_LEVEL_DEBUG + 1>;
    return lines;
}

// Relaxed is enough for these: they need only be seen soon.
std::atomic<int> print_threshold{RPMA_LOG_DISABLED};
std::atomic<bool> with_time{false};
std::atomic<bool> is_server{false};

// Where RPMA_LOG sends the lines besides, as in any program of librpma. It does not change after take_log().
base::LogDestination destination{.kind = base::LogDestination::Kind::None, .level = RPMA_LOG_DISABLED};

// These are never destroyed, because their threads may still write.
Outlet &standard_error() {
    static auto &outlet =
        *new Outlet{[](int, const std::string &text) { (void)write_to(STDERR_FILENO, text); }};
    return outlet;
}

// A file gets a line with one call, so that the lines of several threads and processes do not mix.
Outlet &destination_outlet() {
    static auto &outlet = *new Outlet{[](int level, const std::string &text) {
        constexpr std::array severities{LOG_CRIT, LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG};
        if (destination.kind == base::LogDestination::Kind::Syslog) {
            syslog(LOG_LOCAL7 | severities.at(static_cast<std::size_t>(level)), "%s", text.c_str());
        } else {
            (void)write_to(destination.fd, text);
        }
    }};
    return outlet;
}

// Returns whether a line of librpma is not one that a server has printed a moment ago.
bool is_new(const std::string &line) {
    if (!is_server.load(std::memory_order_relaxed)) {
        return true;
    }
    const base::Lock lock{mutex};
    return recent().admits(line);
}

void put(int level, std::string_view line) {
    const std::string time = with_time.load(std::memory_order_relaxed) ? time_text() + " " : "";
    standard_error().put(level, fmt::format("rpma: {}{}\n", time, line));
}

// Sends a line where RPMA_LOG says.
void send(int level, const std::string &line) {
    if (destination.kind == base::LogDestination::Kind::Syslog) {
        destination_outlet().put(level, line);
    } else if (destination.kind == base::LogDestination::Kind::Descriptor) {
        Outlet &outlet = destination.fd == STDERR_FILENO ? standard_error() : destination_outlet();
        outlet.put(level, fmt::format("{} rpma: {}\n", time_text(), line));
    }
}

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is librpma's.
void keep_line(rpma_log_level level, const char *, int, const char *, const char *format, ...) {
    std::array<char, 1024> text;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    std::string line{text.data()};
    line.erase(line.find_last_not_of(" \n") + 1);
    if (level < 0 || level > RPMA_LOG_LEVEL_DEBUG) {
        return;
    }
    const bool is_printed = level <= print_threshold.load(std::memory_order_relaxed);
    if (is_printed && is_new(line)) {
        put(level, line);
    }
    if (level <= destination.level && !(is_printed && destination.fd == STDERR_FILENO)) {
        send(level, line);
    }
    const base::Lock lock{mutex};
    std::string &kept = kept_lines().at(static_cast<std::size_t>(level));
    // The first error is the cause of the later ones; the last warning tells the result.
    if (level > RPMA_LOG_LEVEL_ERROR || kept.empty()) {
        kept = std::move(line);
    }
}

// Prints the lines that a command itself logs, for instance a server. NOLINTNEXTLINE(cert-dcl50-cpp): the
// signature is base's.
void print_line(int level, const char *, int, const char *, const char *format, ...) {
    std::array<char, 1024> text;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    const std::string_view line{text.data()};
    put(level, line.substr(0, line.find_last_not_of('\n') + 1));
}

// Removes the name of the call that failed, because the caller's text already says what could not be done.
std::string without_call(const std::string &line) {
    constexpr std::string_view failed_with = " failed: ";
    const std::size_t end = line.find(failed_with);
    const bool is_name = end != std::string::npos && line.find(' ') == end;
    return is_name ? line.substr(end + failed_with.size()) : line;
}

}  // namespace

// librpma has read RPMA_LOG when it was loaded, and has reported a value that is not valid.
void take_log(bool verbose) {
    const char *const value = secure_getenv("RPMA_LOG");
    if (value != nullptr) {
        destination = base::log_destination(value, RPMA_LOG_LEVEL_WARNING, false);
    }
    if (verbose) {
        print_threshold.store(RPMA_LOG_LEVEL_INFO, std::memory_order_relaxed);
    }
    // The reason of a failure is kept, whatever is printed.
    const int threshold = std::max(
        {int{RPMA_LOG_LEVEL_WARNING}, destination.level, print_threshold.load(std::memory_order_relaxed)});
    (void)rpma_log_set_threshold(RPMA_LOG_THRESHOLD, static_cast<rpma_log_level>(threshold));
    (void)rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_DISABLED);
    (void)rpma_log_set_function(keep_line);
    base::set_log_sink(print_line);
}

void print_warnings() {
    if (print_threshold.load(std::memory_order_relaxed) < RPMA_LOG_LEVEL_WARNING) {
        print_threshold.store(RPMA_LOG_LEVEL_WARNING, std::memory_order_relaxed);
    }
    is_server.store(true, std::memory_order_relaxed);
    with_time.store(secure_getenv("JOURNAL_STREAM") == nullptr, std::memory_order_relaxed);
}

std::string time_text() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    std::array<char, sizeof("2026-01-01T00:00:00Z")> text{};
    (void)gmtime_r(&now, &parts);
    (void)std::strftime(text.data(), text.size(), "%FT%TZ", &parts);
    return text.data();
}

std::optional<std::time_t> seconds_of(const std::string &time) {
    std::tm parts{};
    const char *const end = strptime(time.c_str(), "%FT%TZ", &parts);
    return end != nullptr && *end == 0 ? std::optional{timegm(&parts)} : std::nullopt;
}

std::vector<Outlet *> log_outlets() {
    std::vector<Outlet *> outlets{&standard_error()};
    if (destination.kind == base::LogDestination::Kind::Syslog ||
        (destination.kind == base::LogDestination::Kind::Descriptor && destination.fd != STDERR_FILENO)) {
        outlets.push_back(&destination_outlet());
    }
    return outlets;
}

std::string lost_log_lines(std::uint64_t lines) {
    return fmt::format("rpma: {} {} lines are lost: the reader of this log had stopped\n", time_text(),
                       lines);
}

void clear_log() {
    const base::Lock lock{mutex};
    kept_lines().fill({});
}

std::string logged_reason() {
    const base::Lock lock{mutex};
    for (int level = RPMA_LOG_LEVEL_FATAL; level <= RPMA_LOG_LEVEL_WARNING; ++level) {
        const std::string &line = kept_lines().at(static_cast<std::size_t>(level));
        if (!line.empty()) {
            return ": " + without_call(line);
        }
    }
    return {};
}

std::string reason_of(int result) {
    const std::string reason = logged_reason();
    return reason.empty() ? fmt::format(": {}", rpma_err_2str(result)) : reason;
}

}  // namespace cli
