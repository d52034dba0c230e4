// SPDX-License-Identifier: BSD-3-Clause
// stream/device: tests that the table of interfaces decides which device serves an
// address, when the table has a line for it.
#include "stream/device.hpp"

#include <arpa/inet.h>

#include <cerrno>

// This comes last, because it has macros with everyday names.
#include "../base/check.hpp"

namespace {

using stream::Device;

// Returns the errno value, or 0 after it has asserted that the device's name is soft_lo.
int soft_at_loopback(const char *table) {
    const auto parsed = base::InterfaceTable::parse(table, "table");
    Device::choose_by(parsed);
    sockaddr_storage local{};
    auto &v4 = reinterpret_cast<sockaddr_in &>(local);
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto device = Device::soft_at(local);
    if (device) {
        assert_string_equal((*device)->name(), "soft_lo");
    }
    const auto of_kernel = Device::of_kernel_at(local);
    assert_true(of_kernel.has_value() && *of_kernel == nullptr);
    Device::choose_by({});
    return device ? 0 : device.error().number;
}

void a_line_leaves_other_devices_out(void **) {
    assert_int_equal(soft_at_loopback(""), 0);
    assert_int_equal(soft_at_loopback("lo soft"), 0);
    assert_int_equal(soft_at_loopback("lo soft_lo"), 0);
    assert_int_equal(soft_at_loopback("lo kernel"), EADDRNOTAVAIL);
    assert_int_equal(soft_at_loopback("lo mlx5_0"), EADDRNOTAVAIL);
    assert_int_equal(soft_at_loopback("eth7 kernel"), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_line_leaves_other_devices_out),
    };
    return cmocka_run_group_tests_name("stream_device", tests, nullptr, nullptr);
}
