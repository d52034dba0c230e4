// SPDX-License-Identifier: BSD-3-Clause
// verbs/address: turns names and ports into socket addresses.
#include "verbs/address.hpp"

#include <netdb.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>

namespace verbs {

namespace {

// getaddrinfo(3) takes any number and drops its upper bits, so the caller would get a wrong port.
bool out_of_range(const char *port) {
    const char *const end = port + std::strlen(port);
    std::uint16_t number = 0;
    const auto parsed = std::from_chars(port, end, number);
    return parsed.ptr == end && parsed.ec == std::errc::result_out_of_range;
}

}  // namespace

AddressResult look_up(const Provider &provider, const char *address, const char *port, Side side) {
    if (port != nullptr && out_of_range(port)) {
        return std::unexpected{"a port is a number from 0 to 65535"};
    }
    rdma_addrinfo hints{};
    hints.ai_flags = side == Side::Local ? RAI_PASSIVE : 0;
    hints.ai_qp_type = IBV_QPT_RC;
    hints.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo *found = nullptr;
    const int result = provider.cm.getaddrinfo(address, port, &hints, &found);
    if (result == 0) {
        return AddressInfo{provider, found};
    }
    // rdma_getaddrinfo returns -1 with errno for its own failures, and passes getaddrinfo's codes on.
    return std::unexpected{result == -1 ? error_text(errno) : gai_strerror(result)};
}

}  // namespace verbs
