// SPDX-License-Identifier: BSD-3-Clause
// cli/table: makes columns as wide as their content.
#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace cli {

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
