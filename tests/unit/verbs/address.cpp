// SPDX-License-Identifier: BSD-3-Clause
// verbs/address: tests the calls of a provider's address look-up, and the reasons when it gives nothing.
#include "verbs/address.hpp"

#include <netdb.h>

#include <cerrno>
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

extern "C" {
#include <cmocka.h>
}

namespace {

int calls;
int answer;
rdma_addrinfo asked;
rdma_addrinfo found;

verbs::Provider answering() {
    verbs::Provider provider = verbs::soft;
    provider.cm.getaddrinfo = [](const char *, const char *, const rdma_addrinfo *hints,
                                 rdma_addrinfo **result) {
        ++calls;
        asked = *hints;
        *result = &found;
        errno = ENODEV;
        return answer;
    };
    provider.cm.freeaddrinfo = [](rdma_addrinfo *) {};
    return provider;
}

const verbs::Provider provider = answering();

int reset(void **) {
    calls = 0;
    answer = 0;
    asked = {};
    return 0;
}

void asks_for_a_reliable_connection(void **) {
    const auto local = verbs::look_up(provider, "127.0.0.1", "7204", verbs::Side::Local);
    assert_true(local.has_value());
    assert_ptr_equal(local->get(), &found);
    assert_int_equal(asked.ai_flags, RAI_PASSIVE);
    assert_int_equal(asked.ai_qp_type, IBV_QPT_RC);
    assert_int_equal(asked.ai_port_space, RDMA_PS_TCP);
    assert_true(verbs::look_up(provider, "127.0.0.1", nullptr, verbs::Side::Remote).has_value());
    assert_int_equal(asked.ai_flags, 0);
}

void ports_are_16_bits(void **) {
    for (const char *port : {"65536", "70000", "4294967297", "99999999999999999999"}) {
        const auto result = verbs::look_up(provider, "127.0.0.1", port, verbs::Side::Remote);
        assert_false(result.has_value());
        assert_string_equal(result.error(), "a port is a number from 0 to 65535");
    }
    assert_int_equal(calls, 0);
    // The look-up judges names, and text that only begins with a number.
    for (const char *port : {"0", "65535", "http", "99999x", "", "-1"}) {
        assert_true(verbs::look_up(provider, "127.0.0.1", port, verbs::Side::Remote).has_value());
    }
    assert_int_equal(calls, 6);
}

void both_kinds_of_failure_have_a_reason(void **) {
    answer = -1;
    auto result = verbs::look_up(provider, "127.0.0.1", nullptr, verbs::Side::Local);
    assert_false(result.has_value());
    assert_string_equal(result.error(), verbs::error_text(ENODEV));
    answer = EAI_NONAME;
    result = verbs::look_up(provider, "127.0.0.1", nullptr, verbs::Side::Local);
    assert_false(result.has_value());
    assert_string_equal(result.error(), gai_strerror(EAI_NONAME));
}

void every_number_has_a_text(void **) {
    assert_string_equal(verbs::error_text(ENOMEM), "Cannot allocate memory");
    assert_string_equal(verbs::error_text(-5), "unknown error");
    assert_string_equal(verbs::error_text(99999), "unknown error");
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup(asks_for_a_reliable_connection, reset),
        cmocka_unit_test_setup(ports_are_16_bits, reset),
        cmocka_unit_test_setup(both_kinds_of_failure_have_a_reason, reset),
        cmocka_unit_test(every_number_has_a_text),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
