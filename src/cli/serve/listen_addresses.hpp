// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/listen_addresses: the addresses at which a server listens for a name or a wildcard.
#pragma once

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "cli/arguments.hpp"

namespace cli {

struct ListenAddresses {
    std::vector<Address> addresses;  // numeric
    bool any;                        // they come from a wildcard, so some of them may have no RDMA device
};

// Returns the addresses. 0.0.0.0 stands for each IPv4 address of this machine, :: for each of both families,
// without link-local ones, which have no meaning without their interface. If a name has several addresses,
// the first counts. Blocks while it looks up a name. Fails when the name is unknown, or when there is no such
// address.
[[nodiscard]] Outcome<ListenAddresses> listen_addresses(const Address &address);

// Returns a socket of rtnetlink(7) that is readable when an address of this machine may have come or gone.
// The caller discards the messages, which say no more than that.
[[nodiscard]] Outcome<base::Fd> address_changes();

// Returns whether a numeric address is one of the public Internet, and in none of IANA's networks for other
// purposes.
[[nodiscard]] bool is_public(const std::string &host);

}  // namespace cli
