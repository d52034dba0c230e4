// SPDX-License-Identifier: BSD-3-Clause
// cli/listen_addresses: where a server listens when it is told to listen at a name or everywhere.
#pragma once

#include <vector>

#include "cli/arguments.hpp"

namespace cli {

struct ListenAddresses {
    std::vector<Address> addresses;  // numeric
    bool any;                        // those of a wildcard: not each of them need have an RDMA device
};

// 0.0.0.0 is each IPv4 address of this machine, :: each of both families; but no link-local one, which has no
// meaning without its interface. If a name has several addresses, the first counts. Blocks while a name is
// looked up. Fails when the name is unknown, or when there is no such address.
[[nodiscard]] Outcome<ListenAddresses> listen_addresses(const Address &address);

}  // namespace cli
