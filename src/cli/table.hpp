// SPDX-License-Identifier: BSD-3-Clause
// cli/table: a list that a command prints, as a table for people or in JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cli {

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
