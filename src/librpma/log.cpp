// SPDX-License-Identifier: BSD-3-Clause
// librpma/log: thresholds, the log function of the process, and the default one. It gets the lines of both
// libraries: librpma's own by base/log, the soft device's by its log function.
#include <paths.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>

#include "base/log_destination.hpp"
#include "base/mutex.hpp"
#include "base/shared_value.hpp"
#include "librpma/api.hpp"

namespace librpma {

namespace {

constexpr std::size_t message_size = 1024;

std::atomic<int> aux_threshold{RPMA_LOG_DISABLED};
// nullptr stands for the default function.
std::atomic<rpma_log_function *> user_function{nullptr};
// Each library has a threshold of its own. The lock keeps the two equal when several threads set them.
constinit base::LastingMutex threshold_mutex;
// The process's syslog identity does not change before the first line is written.
std::atomic<bool> syslog_opened{false};
std::once_flag syslog_once;

// The meaning of RPMA_LOG when the library was loaded.
base::LogDestination destination{.level = RPMA_LOG_LEVEL_WARNING};

struct LevelFormat {
    const char *tag;
    int severity;
};
constexpr LevelFormat level_formats[] = {{"*FATAL* ", LOG_CRIT},    {"*ERROR* ", LOG_ERR},
                                         {"*WARN*  ", LOG_WARNING}, {"*NOTE*  ", LOG_NOTICE},
                                         {"*INFO*  ", LOG_INFO},    {"*DEBUG* ", LOG_DEBUG}};

const char *base_name(const char *file) {
    const char *const slash = std::strrchr(file, '/');
    return slash != nullptr ? slash + 1 : file;
}

// Writes "Mon DD HH:MM:SS.uuuuuu ", or nothing when the time is not known.
void write_time(char (&text)[64]) {
    text[0] = '\0';
    timespec now{};
    tm local{};
    char seconds[32];
    if (clock_gettime(CLOCK_REALTIME, &now) != 0 || localtime_r(&now.tv_sec, &local) == nullptr ||
        std::strftime(seconds, sizeof(seconds), "%b %d %H:%M:%S", &local) == 0) {
        return;
    }
    std::snprintf(text, sizeof(text), "%s.%06ld ", seconds, now.tv_nsec / 1000);
}

// Writes a line with one call, so that the lines of several threads and processes do not mix.
void write_line(int fd, const LevelFormat &format, const char *place, const char *message) {
    char time[64];
    char line[message_size + 512];
    write_time(time);
    const int length = std::snprintf(line, sizeof(line), "%s[%d] %s%s%s\n", time, static_cast<int>(gettid()),
                                     format.tag, place, message);
    [[maybe_unused]] const auto written =
        ::write(fd, line, std::min(static_cast<std::size_t>(length), sizeof(line) - 1));
}

void write_to_syslog(const LevelFormat &format, const char *place, const char *message) {
    std::call_once(syslog_once, [] {
        openlog("rpma", LOG_PID, LOG_LOCAL7);
        base::set_shared(syslog_opened, true);
    });
    syslog(format.severity, "%s%s%s", format.tag, place, message);
}

// Writes a hint, once in a process, when the reason of a failure was lost.
void hint() {
    static std::atomic<bool> given{false};
    if (access(_PATH_LOG, F_OK) != 0 && !given.exchange(true, std::memory_order_relaxed)) {
        std::fprintf(stderr,
                     "librpma: a call failed, and there is no system log that says why: "
                     "RPMA_LOG=stderr shows it (see librpma(7))\n");
    }
}

void write_by_default(const LevelFormat &format, int level, const char *place, const char *message) {
    using Kind = base::LogDestination::Kind;
    const bool to_stderr = level <= aux_threshold.load(std::memory_order_relaxed);
    if (destination.kind == Kind::Descriptor) {
        write_line(destination.fd, format, place, message);
    } else if (destination.kind != Kind::None) {
        write_to_syslog(format, place, message);
    }
    if (to_stderr && destination.fd != STDERR_FILENO) {
        write_line(STDERR_FILENO, format, place, message);
    } else if (destination.kind == Kind::Default && level <= RPMA_LOG_LEVEL_ERROR) {
        hint();
    }
}

// Takes every line that is within the threshold and hands it, formatted, to the log function of the process.
// The caller's errno stays, which tells the program why a call failed. NOLINTNEXTLINE(cert-dcl50-cpp): the
// signature is librpma's log function.
void dispatch(int level, const char *file, int line, const char *function, const char *format, ...) {
    if (level < RPMA_LOG_LEVEL_FATAL || level > RPMA_LOG_LEVEL_DEBUG) {
        return;
    }
    const int number = errno;
    char message[message_size];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    const std::size_t length = std::strlen(message);
    if (length != 0 && message[length - 1] == '\n') {
        message[length - 1] = '\0';
    }
    if (rpma_log_function *const user = user_function.load(std::memory_order_relaxed)) {
        user(static_cast<rpma_log_level>(level), file, line, function, "%s\n", message);
    } else {
        char place[256];
        std::snprintf(place, sizeof(place), "%s: %3d: %s: ", base_name(file), line, function);
        write_by_default(level_formats[level], level, place, message);
    }
    errno = number;
}

void set_both_thresholds(int level) {
    const base::Lock lock{threshold_mutex};
    base::set_shared(base::log_threshold, level);
    verbs::set_soft_log(dispatch, level);
}

// Lives from the loading of the library to its unloading.
struct Installation {
    Installation() {
        base::set_log_sink(dispatch);
        destination = base::log_destination(secure_getenv("RPMA_LOG"), RPMA_LOG_LEVEL_WARNING, true);
        set_both_thresholds(destination.level);
    }
    Installation(const Installation &) = delete;
    Installation &operator=(const Installation &) = delete;
    ~Installation() {
        // The soft device may outlive this library. It must not call into this library then, nor write lines
        // at exit.
        verbs::set_soft_log(nullptr, RPMA_LOG_DISABLED);
        base::set_shared(base::log_threshold, RPMA_LOG_DISABLED);
        if (syslog_opened.load(std::memory_order_relaxed)) {
            closelog();
        }
    }
};
const Installation installation;

bool is_threshold(rpma_log_threshold threshold) {
    return threshold == RPMA_LOG_THRESHOLD || threshold == RPMA_LOG_THRESHOLD_AUX;
}

}  // namespace

}  // namespace librpma

int rpma_log_set_threshold(enum rpma_log_threshold threshold, enum rpma_log_level level) {
    if (!librpma::is_threshold(threshold) || level < RPMA_LOG_DISABLED || level > RPMA_LOG_LEVEL_DEBUG) {
        return librpma::invalid("threshold or level is unknown");
    }
    if (threshold == RPMA_LOG_THRESHOLD) {
        librpma::set_both_thresholds(level);
    } else {
        base::set_shared(librpma::aux_threshold, level);
    }
    return 0;
}

int rpma_log_get_threshold(enum rpma_log_threshold threshold, enum rpma_log_level *level) {
    if (!librpma::is_threshold(threshold) || level == nullptr) {
        return librpma::invalid("threshold is unknown, or level is NULL");
    }
    const auto &value = threshold == RPMA_LOG_THRESHOLD ? base::log_threshold : librpma::aux_threshold;
    *level = static_cast<rpma_log_level>(value.load(std::memory_order_relaxed));
    return 0;
}

int rpma_log_set_function(rpma_log_function *log_function) {
    base::set_shared(librpma::user_function, log_function);
    return 0;
}
