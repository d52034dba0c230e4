// SPDX-License-Identifier: BSD-3-Clause
// cli/arguments: parsing is strict, so that a typing error is an error and never has another meaning.
#include "cli/arguments.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/number.hpp"

namespace cli {

namespace {

constexpr std::string_view default_port = "7204";

// Returns how many letters must be inserted, removed, replaced or exchanged with the next.
std::size_t distance(std::string_view left, std::string_view right) {
    using Row = std::vector<std::size_t>;
    Row before(right.size() + 1);
    Row row(right.size() + 1);
    std::ranges::generate(row, [i = std::size_t{0}]() mutable { return i++; });
    for (std::size_t i = 1; i <= left.size(); ++i) {
        Row next(right.size() + 1, i);
        for (std::size_t j = 1; j <= right.size(); ++j) {
            const bool is_same = left[i - 1] == right[j - 1];
            next[j] = std::min({row[j - 1] + (is_same ? 0 : 1), row[j] + 1, next[j - 1] + 1});
            if (i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1]) {
                next[j] = std::min(next[j], before[j - 2] + 1);
            }
        }
        before = std::exchange(row, std::move(next));
    }
    return row.back();
}

}  // namespace

std::string Address::text() const {
    return host.contains(':') ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Outcome<Address> parse_address(std::string_view text) {
    constexpr std::string_view form =
        "expected ADDRESS or ADDRESS:PORT, such as 127.0.0.1:7204 or [::1]:7204";
    if (text.contains('/')) {
        return failed(Exit::Usage, "{}: {}, and no URL", text, form);
    }
    const bool has_port = text.contains(':') && !text.ends_with(']');
    const auto colon = has_port ? text.rfind(':') : text.size();
    std::string_view host = text.substr(0, colon);
    const std::string_view port = has_port ? text.substr(colon + 1) : default_port;
    if (host.starts_with('[') && host.ends_with(']')) {
        host = host.substr(1, host.size() - 2);
    } else if (host.contains(':')) {
        return failed(Exit::Usage, "{}: an IPv6 address is written in brackets, such as [::1] or [::1]:7204",
                      text);
    }
    if (host.empty()) {
        return failed(Exit::Usage, "{}: {}", text, form);
    }
    std::uint64_t number = 0;
    if (!base::read_number(port, number) || number < 1 || number > 65535) {
        return failed(Exit::Usage, "{}: expected a port from 1 to 65535", text);
    }
    return Address{std::string{host}, std::to_string(number)};
}

std::string without_mark(std::string word) {
    if (word.ends_with(bracket_mark)) {
        word.pop_back();
    }
    return word;
}

bool is_name(std::string_view text) {
    constexpr auto is_letter = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
               c == '_' || c == '-';
    };
    return !text.empty() && text.size() <= longest_name && text.front() != '.' &&
           std::ranges::all_of(text, is_letter);
}

Outcome<Where> parse_where(std::string_view text) {
    const auto slash = text.contains("://") ? std::string_view::npos : text.find('/');
    Where where{TRY(parse_address(text.substr(0, slash))), {}};
    if (slash == std::string_view::npos) {
        return where;
    }
    where.name = text.substr(slash + 1);
    if (!is_name(where.name)) {
        return failed(Exit::Usage, "{}: \"{}\" is no name (expected {})", text, where.name, name_form);
    }
    return where;
}

Outcome<std::uint64_t> parse_size(std::string_view text) {
    constexpr std::string_view suffixes = "KMGT";
    std::string_view digits = text;
    unsigned shift = 0;
    if (!digits.empty()) {
        const char last = digits.back();
        const auto power =
            suffixes.find(last >= 'a' && last <= 'z' ? static_cast<char>(last - 'a' + 'A') : last);
        if (power != std::string_view::npos) {
            shift = 10 * (static_cast<unsigned>(power) + 1);
            digits.remove_suffix(1);
        }
    }
    std::uint64_t number = 0;
    if (!base::read_number(digits, number) || number == 0 ||
        number > (std::numeric_limits<std::uint64_t>::max() >> shift)) {
        return failed(Exit::Usage,
                      "{}: expected a size in bytes of at least 1, with K, M, G or T for powers of 1024",
                      text);
    }
    return number << shift;
}

Outcome<std::uint64_t> parse_size_of(std::string_view option, std::string_view text) {
    const auto size = parse_size(text);
    return size ? size : failed(size.error().exit, "{} {}", option, size.error().text);
}

std::function<std::string(const std::string &)> number_between(double least, double most) {
    return [least, most](const std::string &text) {
        double value = 0;
        const bool is_number = base::read_number(text, value);
        return is_number && value >= least && value <= most
                   ? std::string{}
                   : fmt::format("{}: expected a number from {} to {}", text, least, most);
    };
}

std::function<std::string(std::string &)> whole_number_between(std::uint64_t least, std::uint64_t most) {
    return [least, most](std::string &text) {
        std::uint64_t value = 0;
        if (!base::read_number(text, value) || value < least || value > most) {
            return fmt::format("{}: expected a whole number from {} to {}", text, least, most);
        }
        text = std::to_string(value);
        return std::string{};
    };
}

std::string nearest(std::string_view word, const std::vector<std::string> &candidates) {
    std::string best;
    std::size_t least = std::max(word.size() / 3, std::size_t{1}) + 1;
    for (const std::string &candidate : candidates) {
        if (const std::size_t found = distance(word, candidate); found < least) {
            least = found;
            best = candidate;
        }
    }
    return best;
}

std::string format_size(double bytes) {
    constexpr std::array units = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    std::size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < units.size()) {
        bytes /= 1024;
        ++unit;
    }
    return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

std::string printable(std::span<const std::byte> text, std::string_view ends) {
    std::string made;
    for (const std::byte byte : text) {
        const auto character = static_cast<char>(byte);
        if (ends.find(character) != std::string_view::npos) {
            break;
        }
        made += character >= ' ' && character <= '~' ? character : '?';
    }
    return made;
}

}  // namespace cli
