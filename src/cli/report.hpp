// SPDX-License-Identifier: BSD-3-Clause
// cli/report: the output of a command: a summary or a list, for people or in JSON, and the progress on a
// terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"
#include "cli/outlet.hpp"

namespace cli {

// Returns an outcome's name in JSON, such as "not committed".
[[nodiscard]] const char *exit_text(Exit exit);

// Writes to standard output, by its outlet. print_failure() tells whether that failed.
void print(std::string_view text);
[[nodiscard]] Outlet &print_outlet();
// Makes print() write to standard error, because standard output gets a content.
void print_to_standard_error();
// Returns the errno value of the first print that failed; 0 when none did.
[[nodiscard]] int print_failure();

// Returns whether the descriptor is a terminal that can clear a line.
[[nodiscard]] bool can_draw(int fd);
// Returns the terminal's present width, which may change between two lines; 80 when it tells none.
[[nodiscard]] std::size_t columns_of_terminal(int fd);
// Returns a text of CLI11's help for a terminal of so many columns, whose last one stays empty.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t columns);

// Returns what a row of the name "durable" has for people.
[[nodiscard]] inline const char *yes_when_durable(bool durable) {
    return durable ? "yes" : "NO: pushed content may be lost";
}

// Named values in order, printed as one JSON object on a line, or for people with one value on each line.
class Summary {
public:
    void add(const char *name, const nlohmann::json &value, const std::string &text);
    void add(const char *name, const std::string &value) { add(name, value, value); }
    // The first adds a value only for JSON, the second only for people.
    void add_json(const char *name, const nlohmann::json &value) { values_[name] = value; }
    void add_text(const char *name, const std::string &text);
    [[nodiscard]] std::string text(bool as_json) const;
    void print(bool as_json) const { cli::print(text(as_json)); }

private:
    nlohmann::ordered_json values_;
    std::string lines_;
};

// Returns the progress of a transfer in fewer than `columns` columns: with a bar if there is room, below 40
// columns as a percentage and a rate.
[[nodiscard]] std::string progress_line(std::uint64_t bytes, std::uint64_t total_bytes, double seconds,
                                        std::size_t columns);

// A progress bar on standard error, if that is a terminal and the bar is wanted. It is removed at the end.
class Progress {
public:
    Progress(std::uint64_t total_bytes, bool wanted);
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;
    ~Progress();

    // Draws at most ten times a second, so it is cheap.
    void update(std::uint64_t bytes);

private:
    std::uint64_t total_bytes_;
    bool drawing_;
    std::chrono::steady_clock::time_point begin_;
    std::chrono::steady_clock::time_point next_;
};

// Returns the time in a suitable unit, such as "1.25 ms".
[[nodiscard]] std::string format_seconds(double seconds);

// Returns null for a text that is empty.
[[nodiscard]] inline nlohmann::json or_null(const std::string &text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);  // with braces it would be an array
}

// One value of a row: its name in JSON, its column in the table, and its content in each.
struct Fact {
    const char *name;
    const char *column;
    nlohmann::json value;
    std::string text;
};

// A row. All rows of a table have the same facts, in the same order.
using Facts = std::vector<Fact>;

// Returns a line with the columns' titles, and a line for each row, of which there is at least one.
[[nodiscard]] std::string table_of(const std::vector<Facts> &rows);
// Returns an array of objects.
[[nodiscard]] nlohmann::json json_of(const std::vector<Facts> &rows);

}  // namespace cli
