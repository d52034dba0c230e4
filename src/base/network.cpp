// SPDX-License-Identifier: BSD-3-Clause
#include "base/network.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "base/log.hpp"
#include "base/number.hpp"
#include "base/text.hpp"

namespace base {

namespace {

constexpr unsigned bits_of_byte = 8;

unsigned bits_of(sa_family_t family) {
    return family == AF_INET ? 8 * sizeof(in_addr) : 8 * sizeof(in6_addr);
}

std::array<std::byte, 16> bytes_of(const sockaddr_storage &address) {
    std::array<std::byte, 16> bytes{};
    if (address.ss_family == AF_INET) {
        std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in &>(address).sin_addr, sizeof(in_addr));
    } else {
        std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr,
                    sizeof(in6_addr));
    }
    return bytes;
}

}  // namespace

std::optional<Network> Network::parse(std::string_view text) {
    const std::size_t slash = text.find('/');
    const std::string host{text.substr(0, slash)};
    Network network;
    if (inet_pton(AF_INET, host.c_str(), network.bytes_.data()) == 1) {
        network.family_ = AF_INET;
    } else if (inet_pton(AF_INET6, host.c_str(), network.bytes_.data()) == 1) {
        network.family_ = AF_INET6;
    } else {
        return std::nullopt;
    }
    network.bits_ = bits_of(network.family_);
    if (slash == std::string_view::npos) {
        return network;
    }
    unsigned bits = 0;
    if (!read_number(text.substr(slash + 1), bits) || bits > network.bits_) {
        return std::nullopt;
    }
    network.bits_ = bits;
    return network;
}

bool Network::has(const sockaddr_storage &address) const {
    if (address.ss_family != family_) {
        return false;
    }
    const auto other = bytes_of(address);
    const std::size_t whole = bits_ / bits_of_byte;
    const unsigned rest = bits_ % bits_of_byte;
    const auto differing = whole < other.size() ? other[whole] ^ bytes_[whole] : std::byte{};
    return std::memcmp(other.data(), bytes_.data(), whole) == 0 &&
           (rest == 0 || (differing >> (bits_of_byte - rest)) == std::byte{});
}

std::vector<Network> networks_of_file(const std::string &path) {
    std::vector<Network> networks;
    const auto text = text_of_file(path.c_str());
    for_lines(text ? std::string_view{*text} : std::string_view{}, [&](Line line) {
        const auto word = take_word(line.said);
        const auto network = take_word(line.said).empty() ? Network::parse(word) : std::nullopt;
        if (network) {
            networks.push_back(*network);
        } else if (!word.empty()) {
            BASE_LOG(Warning,
                     "%s:%u: \"%.*s\" is left out (expected a network, as 192.0.2.0/24 or 2001:db8::/32)",
                     path.c_str(), line.number, static_cast<int>(line.whole.size()), line.whole.data());
        }
    });
    return networks;
}

}  // namespace base
