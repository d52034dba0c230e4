// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_loads, cli/perf/tcp_answers: tests which rows a command line asks for, and
// where requests end in a stream.
#include <vector>

#include "bytes.hpp"
#include "cli/perf/perf_loads.hpp"
#include "cli/perf/tcp_answers.hpp"
#include "cli/protocol/protocol.hpp"
#include "cli/thread.hpp"

// threadless.hpp comes last, because it has macros with everyday names.
#include "../base/threadless.hpp"

namespace {

void lists_are_multiplied(void **) {
    const auto loads = cli::parse_loads("flush,atomic", "64K,1", "1,1024", 3).value();
    const cli::Load expected[] = {{cli::PerfOp::Flush, 65536, 1, 3}, {cli::PerfOp::Flush, 65536, 1024, 3},
                                  {cli::PerfOp::Flush, 1, 1, 3},     {cli::PerfOp::Flush, 1, 1024, 3},
                                  {cli::PerfOp::Atomic, 8, 1, 3},    {cli::PerfOp::Atomic, 8, 1024, 3}};
    assert_int_equal(loads.size(), std::size(expected));
    for (std::size_t i = 0; i < loads.size(); ++i) {
        assert_true(loads[i].op == expected[i].op);
        assert_int_equal(loads[i].bytes, expected[i].bytes);
        assert_int_equal(loads[i].depth, expected[i].depth);
        assert_int_equal(loads[i].connections, 3);
    }
}

void bad_lists_are_refused(void **) {
    for (const char *ops : {"", "fly", "write,", ",write", "WRITE", "write read"}) {
        assert_fails(cli::parse_loads(ops, "8", "1", 1), "expected write, read");
    }
    for (const char *sizes : {"", "0", "-8", "8,", "65M", "1.5K", "99999999999999999999"}) {
        assert_fails(cli::parse_loads("write", sizes, "1", 1), "--size");
    }
    for (const char *depths : {"", "0", "1025", "x", "1,,2"}) {
        assert_fails(cli::parse_loads("write", "8", depths, 1), "--depth");
    }
}

void tcp_sizes_survive(void **) {
    const auto sizes = cli::decode_tcp_header(cli::encode_tcp_header({1, cli::largest_message})).value();
    assert_int_equal(sizes.request, 1);
    assert_int_equal(sizes.answer, cli::largest_message);
    for (const cli::TcpSizes &bad : {cli::TcpSizes{0, 1}, {1, 0}, {cli::largest_message + 1, 1}, {1, ~0U}}) {
        assert_fails(cli::decode_tcp_header(cli::encode_tcp_header(bad)), "expected 1 to");
    }
}

// The requests have 5 bytes and come in pieces of every size. Every third request wants an answer.
void requests_end_where_they_end(void **) {
    std::vector<std::byte> stream(5 * 12, std::byte{7});
    for (std::size_t request = 0; request < 12; ++request) {
        stream[5 * request] = std::byte{request % 3 == 2};
    }
    for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
        cli::RequestStream requests{5};
        std::uint64_t owed = 0;
        for (std::size_t at = 0; at < stream.size(); at += piece) {
            owed += requests.take(std::span{stream}.subspan(at, std::min(piece, stream.size() - at)));
            assert_int_equal(owed, std::min(at + piece, stream.size()) / 15);
        }
    }
}

void without_a_thread_there_is_an_error(void **) {
    const auto none = test::made_without_threads([] { return cli::start_thread([] {}); });
    assert_fails(none, "cannot start a thread: Resource temporarily unavailable");
    cli::start_thread([] {}).value().join();
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_multiplied),
        cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(tcp_sizes_survive),
        cmocka_unit_test(requests_end_where_they_end),
        cmocka_unit_test(without_a_thread_there_is_an_error),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
