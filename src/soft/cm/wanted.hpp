// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/wanted: what a program, or the environment, asks for when a connection starts.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>

#include "base/result.hpp"
#include "base/tls.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

// Returns whether the environment (SOFTRDMA_CRC) asks for CRC32C on the wire. With TLS there is none, because
// TLS finds every changed bit.
[[nodiscard]] bool crc_wanted(const base::TlsAsked &tls);
// Prepares the group of a connection for a link of TLS, if TLS is asked for: the link keeps bytes of which
// the socket does not tell. Fails with EMFILE, ENFILE or ENOMEM.
[[nodiscard]] base::Result<void> may_be_secure(const base::TlsAsked &asked, Group &group);
// Returns the program's parameters, checked, or the device's largest values when it gave none.
[[nodiscard]] base::Result<rdma_conn_param> wanted_parameters(const rdma_conn_param *given);
// Returns a depth of the peer in the eight bits that events have.
[[nodiscard]] std::uint8_t told_depth(std::uint16_t depth);
// Returns how many reads and flushes at once this end grants when `wanted` are asked for.
[[nodiscard]] std::uint16_t granted_depth(std::uint8_t wanted);

}  // namespace soft
