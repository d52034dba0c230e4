// SPDX-License-Identifier: BSD-3-Clause
// Every link passes these tests of the promises of src/soft/link/link.hpp. The test of a new link is a main()
// that calls run_link_contract() with a function that makes pairs.
#pragma once

#include <chrono>
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

// Returns a TCP connection over 127.0.0.1 with both of its ends in this process.
[[nodiscard]] Links tcp_links();
// Returns the same of MPTCP. Skips the test where the kernel has none.
[[nodiscard]] Links multipath_links(std::chrono::milliseconds silence = std::chrono::hours{1});

// Returns a link through memory with both of its ends in this process. `file` gets a descriptor of the
// memory.
[[nodiscard]] Links memory_links(base::Fd *file = nullptr);
// Does the same with small rings. The process has many other rings from then on.
[[nodiscard]] Links small_memory_links();

// Runs each test with a new pair, and returns the exit status of the program.
[[nodiscard]] int run_link_contract(const char *name, Links (*make)());

// Sends as many bytes as the link takes at once. It sends none only when the link is full.
[[nodiscard]] soft::Link::Sent send(soft::Link &link, std::span<const std::byte> bytes);
// Waits until bytes or the end are there, and appends `most` bytes at most.
[[nodiscard]] soft::Link::Received receive(soft::Link &link, Bytes &bytes, std::size_t most);
// Receives the bytes up to the end or the failure, and returns which of the two it was.
[[nodiscard]] soft::Link::Received receive_rest(soft::Link &link, Bytes &bytes);

}  // namespace test
