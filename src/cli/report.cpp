// SPDX-License-Identifier: BSD-3-Clause
// cli/report: writes to the terminal, and computes summaries.
#include "cli/report.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cli/arguments.hpp"

namespace cli {

namespace {

constexpr auto draw_interval = std::chrono::milliseconds{100};
constexpr std::size_t widest_bar = 40;
constexpr std::size_t narrowest_bar = 10;

int print_descriptor = STDOUT_FILENO;
std::atomic<int> first_failure{0};  // of print(); relaxed, because it publishes nothing else

}  // namespace

bool can_draw(int fd) {
    const char *const type = std::getenv("TERM");
    return isatty(fd) == 1 && (type == nullptr || std::string_view{type} != "dumb");
}

std::size_t columns_of_terminal(int fd) {
    winsize size{};
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string wrapped(std::string_view text, std::size_t columns) {
    constexpr std::size_t meaning = 30;  // the column in which CLI11 begins what an option means
    constexpr std::size_t least = 20;    // for a meaning
    columns = std::max(columns, meaning + least);
    std::string made;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string line{text.substr(0, end)};
        text.remove_prefix(std::min(end + 1, text.size()));
        const std::size_t indent = line.starts_with("  ") ? meaning : 0;
        while (line.size() >= columns) {
            std::size_t gap = line.rfind(' ', columns - 1);
            if (gap == std::string::npos || gap <= indent) {
                gap = line.find(' ', columns);  // behind a word that is longer than a line
            }
            if (gap == std::string::npos) {
                break;
            }
            made += line.substr(0, gap) + "\n";
            line = std::string(indent, ' ') + line.substr(gap + 1);
        }
        made += line + "\n";
    }
    return made;
}

const char *exit_text(Exit exit) {
    switch (exit) {
        case Exit::Done:
            return "done";
        case Exit::Usage:
            return "usage";
        case Exit::NotCommitted:
            return "not committed";
        case Exit::Unknown:
            return "unknown";
        case Exit::Busy:
            return "busy";
        case Exit::Refused:
            return "refused";
        case Exit::Unreachable:
            return "unreachable";
        case Exit::Failed:
        case Exit::NotExecutable:
        case Exit::NotFound:
            break;
    }
    return "failed";
}

// It is never destroyed, because its thread may still write.
Outlet &print_outlet() {
    static auto &outlet = *new Outlet{[](int, const std::string &text) {
        const int error = write_to(print_descriptor, text);
        int none = 0;
        (void)first_failure.compare_exchange_strong(none, error, std::memory_order_relaxed);
    }};
    return outlet;
}

void print(std::string_view text) {
    print_outlet().put(0, std::string{text});
}

void print_to_standard_error() {
    print_descriptor = STDERR_FILENO;
}

int print_failure() {
    return first_failure.load(std::memory_order_relaxed);
}

void Summary::add(const char *name, const nlohmann::json &value, const std::string &text) {
    add_json(name, value);
    add_text(name, text);
}

void Summary::add_text(const char *name, const std::string &text) {
    lines_ += fmt::format("{:<12}{}\n", name, text);
}

// File names need not be UTF-8; other bytes are replaced.
std::string Summary::text(bool as_json) const {
    return as_json ? values_.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n" : lines_;
}

Progress::Progress(std::uint64_t total_bytes, bool wanted)
    : total_bytes_{total_bytes},
      drawing_{wanted && can_draw(STDERR_FILENO)},
      begin_{std::chrono::steady_clock::now()},
      next_{begin_ + draw_interval} {}

Progress::~Progress() {
    if (drawing_) {
        std::fputs("\r\033[K", stderr);
    }
}

void Progress::update(std::uint64_t bytes) {
    if (!drawing_ || total_bytes_ == 0) {
        return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) {
        return;
    }
    next_ = now + draw_interval;
    const std::chrono::duration<double> elapsed = now - begin_;
    const auto line = progress_line(bytes, total_bytes_, elapsed.count(), columns_of_terminal(STDERR_FILENO));
    std::fputs(fmt::format("\r{}\033[K", line).c_str(), stderr);
}

// The last column stays empty, because a terminal may begin a new line for it.
std::string progress_line(std::uint64_t bytes, std::uint64_t total_bytes, double seconds,
                          std::size_t columns) {
    const double share = static_cast<double>(bytes) / static_cast<double>(total_bytes);
    const auto percent = fmt::format("{:3.0f}%", share * 100);
    const auto rate = fmt::format("{}/s", format_size(static_cast<double>(bytes) / seconds));
    const auto text = fmt::format("{}  {} of {}  {}", percent, format_size(static_cast<double>(bytes)),
                                  format_size(static_cast<double>(total_bytes)), rate);
    const std::size_t room = columns > 0 ? columns - 1 : 0;
    constexpr std::size_t brackets = 3;  // and a space
    if (room >= text.size() + brackets + narrowest_bar) {
        const std::size_t width = std::min(widest_bar, room - text.size() - brackets);
        const auto filled = static_cast<std::size_t>(share * static_cast<double>(width));
        return fmt::format("[{:#<{}}{: <{}}] {}", "", filled, "", width - filled, text);
    }
    const auto &fitting = columns >= 40 && text.size() <= room ? text : percent + "  " + rate;
    return fitting.size() <= room ? fitting : percent.substr(0, room);
}

std::string format_seconds(double seconds) {
    if (seconds < 1e-3) {
        return fmt::format("{:.1f} us", seconds * 1e6);
    }
    return seconds < 1 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

std::string table_of(const std::vector<Facts> &rows) {
    std::vector<std::string> lines(rows.size() + 1);
    for (std::size_t column = 0; column < rows.front().size(); ++column) {
        const std::string title = rows.front()[column].column;
        std::size_t width = title.size();
        for (const auto &row : rows) {
            width = std::max(width, row[column].text.size());
        }
        lines[0] += fmt::format("{:<{}}  ", title, width);
        for (std::size_t row = 0; row < rows.size(); ++row) {
            lines[row + 1] += fmt::format("{:<{}}  ", rows[row][column].text, width);
        }
    }
    std::string table;
    for (const std::string &line : lines) {
        table += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return table;
}

nlohmann::json json_of(const std::vector<Facts> &rows) {
    nlohmann::json list = nlohmann::json::array();
    for (const Facts &row : rows) {
        nlohmann::json &object = list.emplace_back(nlohmann::json::object());
        for (const Fact &fact : row) {
            object[fact.name] = fact.value;
        }
    }
    return list;
}

}  // namespace cli
