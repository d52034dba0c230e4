// SPDX-License-Identifier: BSD-3-Clause
// base/network: a network of IPv4 or IPv6, as a line of /etc/rdma/rsocket/peers names it.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace base {

class Network {
public:
    // Reads "192.0.2.0/24", "2001:db8::/32", or an address alone. Nothing when it is none of them.
    [[nodiscard]] static std::optional<Network> parse(std::string_view text);

    // Returns whether an address, which is not a mapped one, belongs to it.
    [[nodiscard]] bool has(const sockaddr_storage &address) const;

private:
    sa_family_t family_ = AF_UNSPEC;
    std::array<std::byte, 16> bytes_{};
    unsigned bits_ = 0;
};

// Returns the networks that a file names, one a line; none when there is no such file. A line that names none
// is logged.
[[nodiscard]] std::vector<Network> networks_of_file(const std::string &path);

}  // namespace base
