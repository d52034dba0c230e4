// SPDX-License-Identifier: BSD-3-Clause
// cli/arguments: parsing is strict, so that a slip of the finger is an error and never another meaning.
#include "cli/arguments.hpp"

#include <array>
#include <charconv>
#include <limits>

namespace cli {

namespace {

// The whole of `text` as a decimal number.
template <typename Number>
bool parse_number(std::string_view text, Number &value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

std::string Address::text() const {
    return host.contains(':') ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Outcome<Address> parse_address(std::string_view text) {
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0) {
        return failed("{}: expected ADDRESS:PORT, such as 127.0.0.1:7204 or [::1]:7204", text);
    }
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    if (host.starts_with('[') && host.ends_with(']')) {
        host = host.substr(1, host.size() - 2);
    } else if (host.contains(':')) {
        return failed("{}: an IPv6 address is written in brackets, such as [::1]:7204", text);
    }
    std::uint64_t number = 0;
    if (host.empty() || !parse_number(port, number) || number < 1 || number > 65535) {
        return failed("{}: expected ADDRESS:PORT with a port from 1 to 65535", text);
    }
    return Address{std::string{host}, std::to_string(number)};
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
    if (!parse_number(digits, number) || number == 0 ||
        number > (std::numeric_limits<std::uint64_t>::max() >> shift)) {
        return failed("{}: expected a size in bytes of at least 1, with K, M, G or T for powers of 1024",
                      text);
    }
    return number << shift;
}

std::function<std::string(const std::string &)> number_between(double least, double most) {
    return [least, most](const std::string &text) {
        double value = 0;
        const bool is_number = parse_number(text, value);
        return is_number && value >= least && value <= most
                   ? std::string{}
                   : fmt::format("{}: expected a number from {} to {}", text, least, most);
    };
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

}  // namespace cli
