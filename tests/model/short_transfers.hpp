// SPDX-License-Identifier: BSD-3-Clause
// model/short_transfers: TCP that takes and gives less than it could, as a network's does. Functions in the C
// library's place (recv, recvmsg, send, sendmsg) cut what is transferred, once that is asked for.
#pragma once

#include <cstdint>

namespace test {

void split_transfers(std::uint64_t seed);

}  // namespace test
