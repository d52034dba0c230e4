// SPDX-License-Identifier: BSD-3-Clause
// The two ends of a TLS link in this process, with one key for both.
#pragma once

#include "soft/tls/tls_link.hpp"

// Last, as it wants.
#include "contract.hpp"

namespace test {

// Does the handshake of TLS on the two links, and returns the two ends of the TLS link. Each end changes its
// key after `most_records` records.
[[nodiscard]] Links tls_over(Links links, std::uint64_t most_records = soft::TlsSession::records_of_a_key);

// Returns TLS over tcp_links().
[[nodiscard]] Links tls_links();

}  // namespace test
