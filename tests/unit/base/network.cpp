// SPDX-License-Identifier: BSD-3-Clause
// base/network: tests the lines of a file that name networks.
#include "base/network.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../../folder.hpp"
#include "check.hpp"
#include "warnings.hpp"

namespace {

using test::warned_of;
using test::warnings;

int begin(void **) {
    test::keep_warnings();
    return folder::make();
}

int end(void **) {
    test::end_warnings();
    return folder::remove();
}

std::vector<base::Network> read() {
    return base::networks_of_file(folder::path / "peers");
}

sockaddr_storage at(const char *text) {
    sockaddr_storage address{};
    auto &v4 = reinterpret_cast<sockaddr_in &>(address);
    auto &v6 = reinterpret_cast<sockaddr_in6 &>(address);
    const bool is_v4 = inet_pton(AF_INET, text, &v4.sin_addr) == 1;
    assert_true(is_v4 || inet_pton(AF_INET6, text, &v6.sin6_addr) == 1);
    address.ss_family = is_v4 ? AF_INET : AF_INET6;
    return address;
}

void peers_are_networks_one_a_line(void **) {
    folder::write(folder::path / "peers",
                  "# the cluster\n192.0.2.0/25\n\n 2001:db8:8000::/33 # and v6\r\n203.0.113.7\n");
    const auto peers = read();
    assert_true(warnings.empty());
    assert_int_equal(peers.size(), 3);
    const auto is_peer = [&](const char *text) {
        return std::ranges::any_of(peers, [&](const auto &network) { return network.has(at(text)); });
    };
    for (const char *const inside :
         {"192.0.2.0", "192.0.2.127", "2001:db8:8000::1", "2001:db8:ffff::1", "203.0.113.7"}) {
        assert_true(is_peer(inside));
    }
    for (const char *const outside : {"192.0.2.128", "192.0.3.0", "2001:db8:7fff::1", "2001:db9:8000::1",
                                      "203.0.113.6", "::ffff:192.0.2.1"}) {
        assert_false(is_peer(outside));
    }
}

void a_line_that_is_no_network_is_named(void **) {
    for (const char *const bad : {"192.0.2.0/33", "192.0.2.0/", "192.0.2/24", "2001:db8::/129",
                                  "host.example", "192.0.2.0/-1", "192.0.2.0/8 x"}) {
        folder::write(folder::path / "peers", std::string{"0.0.0.0/0\n"} + bad + "\n::/0\n");
        warnings.clear();
        assert_int_equal(read().size(), 2);
        assert_true(warned_of("peers:2", bad));
        assert_true(warned_of("peers:2", "expected a network"));
    }
    std::filesystem::remove(folder::path / "peers");
    std::filesystem::create_directory(folder::path / "peers");
    warnings.clear();
    assert_true(read().empty());
    assert_true(warned_of("peers", "cannot be read"));
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(peers_are_networks_one_a_line, begin, end),
        cmocka_unit_test_setup_teardown(a_line_that_is_no_network_is_named, begin, end),
    };
    return cmocka_run_group_tests_name("base_network", tests, nullptr, nullptr);
}
