// SPDX-License-Identifier: BSD-3-Clause
#include "base/log_destination.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.hpp"

namespace base {

namespace {

constexpr std::string_view levels[] = {"fatal", "error", "warning", "notice", "info", "debug"};

std::optional<int> level_of(std::string_view name) {
    for (int level = static_cast<int>(LogLevel::Fatal); level <= static_cast<int>(LogLevel::Debug); ++level) {
        if (levels[level] == name) {
            return level;
        }
    }
    return std::nullopt;
}

std::optional<LogDestination> to_file(const std::string &path, int level, bool reports) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) {
        if (reports) {
            std::fprintf(stderr, "librpma: RPMA_LOG: cannot open %s: %s\n", path.c_str(),
                         std::strerror(errno));
        }
        return std::nullopt;
    }
    return LogDestination{.kind = LogDestination::Kind::Descriptor, .level = level, .fd = fd};
}

// Returns nothing when a file cannot be opened, and reports that. Returns nothing, without a report, when the
// text is not valid.
std::optional<LogDestination> parse(std::string_view text, int level, bool reports, bool &understood) {
    using Kind = LogDestination::Kind;
    understood = true;
    std::string_view where = text;
    const auto colon = text.rfind(':');
    // A path may have colons, so only the text after its last folder can be a level.
    if (colon != std::string_view::npos && text != "file:" &&
        (!text.starts_with("file:") || (colon > 4 && text.find('/', colon) == std::string_view::npos))) {
        const auto named = level_of(text.substr(colon + 1));
        understood = named.has_value();
        level = named.value_or(level);
        where = text.substr(0, colon);
    }
    if (understood && where == "none") {
        return LogDestination{.kind = Kind::None, .level = static_cast<int>(LogLevel::Disabled)};
    }
    if (understood && where == "syslog") {
        return LogDestination{.kind = Kind::Syslog, .level = level};
    }
    if (understood && where == "stderr") {
        return LogDestination{.kind = Kind::Descriptor, .level = level, .fd = STDERR_FILENO};
    }
    understood = understood && where.starts_with("file:") && where.size() > 5;
    return understood ? to_file(std::string{where.substr(5)}, level, reports) : std::nullopt;
}

}  // namespace

LogDestination log_destination(const char *value, int level, bool reports) {
    if (value != nullptr) {
        bool understood = false;
        if (const auto wanted = parse(value, level, reports, understood)) {
            return *wanted;
        }
        if (!understood && reports) {
            std::fprintf(stderr,
                         "librpma: RPMA_LOG=%s is not understood (expected stderr, syslog, file:PATH or "
                         "none; with :fatal, :error, :warning, :notice, :info or :debug)\n",
                         value);
        }
    }
    return {.level = level};
}

}  // namespace base
