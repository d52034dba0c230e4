// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/configuration: tests which sockets the lines of preload_config admit.
#include "carry_preload/configuration.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/log.hpp"

#include "../base/check.hpp"

namespace {

using carry_preload::admits;
using carry_preload::default_rules;
using carry_preload::rules_of;

int warnings = 0;

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is librpma's log function.
void count(int, const char *, int, const char *, const char *, ...) {
    ++warnings;
}

bool takes_stream(std::string_view text, std::string_view program) {
    return admits(rules_of(text, program, "a test"), AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

void by_default_all_streams_are_carried_but_ssh(void **) {
    for (const char *const program : {"nginx", "sshfs"}) {
        assert_true(takes_stream(default_rules, program));
    }
    for (const char *const program : {"ssh", "sshd"}) {
        assert_false(takes_stream(default_rules, program));
    }
    const auto rules = rules_of(default_rules, "nginx", "a test");
    assert_true(admits(rules, AF_INET6, SOCK_STREAM, IPPROTO_TCP));
    assert_false(admits(rules, AF_INET, SOCK_DGRAM, 0));
    assert_false(admits(rules, AF_UNIX, SOCK_STREAM, 0));
}

void lines_that_name_the_program_count_more(void **) {
    const char *const text =
        "# everybody\n"
        "* * stream tcp\n"
        "curl INET Stream TCP # only IPv4\n"
        "dig\tinet6\tdgram\tudp\n";
    assert_true(takes_stream(text, "nginx"));
    const auto curl = rules_of(text, "curl", "a test");
    assert_true(admits(curl, AF_INET, SOCK_STREAM, 0));
    assert_false(admits(curl, AF_INET6, SOCK_STREAM, 0));
    const auto dig = rules_of(text, "dig", "a test");
    assert_true(admits(dig, AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDP));
    assert_false(admits(dig, AF_INET6, SOCK_STREAM, 0));
    assert_false(admits(rules_of(text, "nginx", "a test"), AF_INET, SOCK_STREAM, IPPROTO_SCTP));
}

void an_empty_file_carries_nothing(void **) {
    assert_false(takes_stream("", "nginx"));
    assert_false(takes_stream("# nothing\n\n", "nginx"));
    assert_false(takes_stream("curl * * *", "nginx"));
}

void a_line_that_is_not_understood_is_left_out(void **) {
    base::set_log_sink(count);
    for (const char *const line : {"*", "* inet", "* inet stream", "* ipx stream tcp", "* inet raw *",
                                   "* inet stream tcp more", "* none more"}) {
        warnings = 0;
        assert_false(takes_stream(line, "nginx"));
        assert_int_equal(warnings, 1);
    }
    assert_true(takes_stream("* inet\n* inet stream tcp", "nginx"));
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(by_default_all_streams_are_carried_but_ssh),
        cmocka_unit_test(lines_that_name_the_program_count_more),
        cmocka_unit_test(an_empty_file_carries_nothing),
        cmocka_unit_test(a_line_that_is_not_understood_is_left_out),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
