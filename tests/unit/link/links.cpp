// SPDX-License-Identifier: BSD-3-Clause
// soft/link: each link keeps the contract.
#include "faulty_link.hpp"

// Last, as it wants.
#include "contract.hpp"

namespace {

// Takes and gives a few bytes at once, and nothing every other time. That is legal, and as unpleasant as a
// link can be.
test::Links unpleasant(test::Links links) {
    constexpr test::LinkFaults faults{.most = 1000, .delays = true};
    return {.here = std::make_unique<test::FaultyLink>(std::move(links.here), faults),
            .there = std::make_unique<test::FaultyLink>(std::move(links.there), faults)};
}

test::Links unpleasant_tcp_links() {
    return unpleasant(test::tcp_links());
}

test::Links unpleasant_memory_links() {
    return unpleasant(test::memory_links());
}

}  // namespace

int main() {
    return test::run_link_contract("TcpLink", test::tcp_links) +
           test::run_link_contract("FaultyLink on TcpLink", unpleasant_tcp_links) +
           test::run_link_contract("MemoryLink", test::memory_links) +
           test::run_link_contract("FaultyLink on MemoryLink", unpleasant_memory_links);
}
