// SPDX-License-Identifier: BSD-3-Clause
// soft/link: each link keeps the contract.
#include "contract.hpp"

int main() {
    return test::run_link_contract("TcpLink", test::tcp_links);
}
