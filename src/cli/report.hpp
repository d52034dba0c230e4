// SPDX-License-Identifier: BSD-3-Clause
// cli/report: what a command shows: a summary for people or in JSON, and the progress on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"

namespace cli {

// An outcome's name in JSON, such as "not committed".
[[nodiscard]] const char *exit_text(Exit exit);

// Writes to standard output at once. print_failure() tells what became of it.
void print(std::string_view text);
// From now on what is printed goes to standard error: standard output has a content.
void print_to_standard_error();
// The errno value of the first print that failed; 0 when all is written.
[[nodiscard]] int print_failure();

// Named values in order, printed as one JSON object in a line, or for people, a value a line.
class Summary {
public:
    void add(const char *name, const nlohmann::json &value, const std::string &text);
    void add(const char *name, const std::string &value) { add(name, value, value); }
    // Only in JSON, only for people.
    void add_json(const char *name, const nlohmann::json &value) { values_[name] = value; }
    void add_text(const char *name, const std::string &text);
    void print(bool as_json) const;

private:
    nlohmann::ordered_json values_;
    std::string lines_;
};

// How far a transfer is, in less than so many columns: with a bar where there is room, as a percentage and
// a rate below 40.
[[nodiscard]] std::string progress_line(std::uint64_t bytes, std::uint64_t total_bytes, double seconds,
                                        std::size_t columns);

// A progress bar on standard error, when that is a terminal and the bar is wanted; removed at the end.
class Progress {
public:
    Progress(std::uint64_t total_bytes, bool wanted);
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;
    ~Progress();

    // Cheap: draws at most ten times a second.
    void update(std::uint64_t bytes);

private:
    std::uint64_t total_bytes_;
    bool drawing_;
    std::chrono::steady_clock::time_point begin_;
    std::chrono::steady_clock::time_point next_;
};

// The smallest sample that at least this share (0 to 1) of all do not exceed; 0 without samples.
[[nodiscard]] double percentile(std::vector<double> samples, double share);

// In a unit that suits it, such as "1.25 ms".
[[nodiscard]] std::string format_seconds(double seconds);

}  // namespace cli
