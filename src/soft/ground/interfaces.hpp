// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/interfaces: the addresses of this machine, and the interface of each. To ask the kernel for
// them takes a dozen system calls, and more time with more interfaces, which is too much for each id. So the
// device asks once, and again when the kernel has reported a change.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "soft/ground/tcp.hpp"

namespace soft {

struct LocalAddress {
    std::string interface;
    bool is_loopback = false;
    tcp::Address address{};
};
using LocalAddresses = std::vector<LocalAddress>;

// Returns the addresses of the interfaces that are up, in the kernel's order, or the reason why the kernel
// does not tell them. They are those of the network namespace in which the process first asked.
[[nodiscard]] base::Result<std::shared_ptr<const LocalAddresses>> local_addresses();
// Returns whether an address is one of this machine.
[[nodiscard]] bool is_here(const tcp::Address &address);

}  // namespace soft
