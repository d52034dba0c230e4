// SPDX-License-Identifier: BSD-3-Clause
// model/short_transfers: makes TCP transfer fewer bytes than it could, as a network does. Functions replace
// those of the C library (recv, recvmsg, send, sendmsg) and shorten transfers of stream sockets, once a test
// has asked for it.
#pragma once

#include <cstdint>

namespace test {

void split_transfers(std::uint64_t seed);

}  // namespace test
