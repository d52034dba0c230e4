// SPDX-License-Identifier: BSD-3-Clause
// The promises of src/soft/link/link.hpp as tests that every link passes. The test of a new link is a main()
// that gives run_link_contract() its pairs.
#pragma once

#include <memory>

#include "soft/link/link.hpp"

// Last, as it wants.
#include "../soft/fpdu.hpp"

namespace test {

// The two ends of one connection.
struct Links {
    std::unique_ptr<soft::Link> here;
    std::unique_ptr<soft::Link> there;
};

// Both ends in this process, on 127.0.0.1.
[[nodiscard]] Links tcp_links();

// Runs the tests, each with a new pair; the exit status.
[[nodiscard]] int run_link_contract(const char *name, Links (*make)());

// As much as the link takes at once; nothing only when it is full.
[[nodiscard]] soft::Link::Sent send(soft::Link &link, std::span<const std::byte> bytes);
// Waits until something is there; its first bytes, `most` at most.
[[nodiscard]] soft::Link::Received receive(soft::Link &link, Bytes &bytes, std::size_t most);
// Receives the bytes up to the end, or the failure, which it returns.
[[nodiscard]] soft::Link::Received receive_rest(soft::Link &link, Bytes &bytes);

}  // namespace test
