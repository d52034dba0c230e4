// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests several scatter-gather elements, inline data, and chains of requests.
#include <cerrno>
#include <cstring>

#include "suite.hpp"

namespace conformance {

namespace {

constexpr Sizes four_elements{.sge = 4};

// Returns elements of these lengths, one after another with a gap of 64 bytes, from `offset` on.
std::vector<ibv_sge> scattered(const End &end, std::size_t offset,
                               std::initializer_list<std::size_t> lengths) {
    std::vector<ibv_sge> all;
    for (const std::size_t length : lengths) {
        all.push_back(sge(end, offset, length));
        offset += length + 64;
    }
    return all;
}

std::string content(const std::vector<ibv_sge> &sges) {
    std::string bytes;
    for (const ibv_sge &one : sges) {
        bytes.append(reinterpret_cast<const char *>(one.addr), one.length);
    }
    return bytes;
}

void expect_written(Ends &ends, const Request &write) {
    assert_int_equal(post(ends.client, {write}), 0);
    expect_completion(ends.client.cq, 1);
    settle(ends.client, ends.server);
    const std::string sent = content(write.sges);
    assert_memory_equal(ends.server.memory.data() + 4096, sent.data(), sent.size());
}

void a_write_gathers(void **) {
    Ends &ends = connected(four_elements);
    fill(ends.client, 0, 300'000, 1);
    Request write = write_request(ends.client, ends.server, 4096, 0, 1);
    for (const auto &lengths :
         {std::initializer_list<std::size_t>{1, 2, 3, 4}, {100'000, 1, 3, 70'000}, {1, 1, 1, 5}}) {
        write.sges = scattered(ends.client, 1, lengths);
        expect_written(ends, write);
    }
}

void elements_of_no_bytes(void **) {
    Ends &ends = connected(four_elements);
    fill(ends.client, 0, 300'000, 1);
    Request write = write_request(ends.client, ends.server, 4096, 0, 1);
    for (const auto &lengths :
         {std::initializer_list<std::size_t>{100'000, 1, 0, 70'000}, {0, 0, 0, 5}, {0, 0, 0, 0}}) {
        write.sges = scattered(ends.client, 1, lengths);
        expect_written(ends, write);
    }
    const auto to = scattered(ends.server, 5, {0, 4, 0, 20});
    assert_int_equal(post_receive(ends.server, 2, to), 0);
    Request send = send_request(ends.client, 0, 0, 1);
    send.sges = scattered(ends.client, 3, {7, 0, 1, 0});
    assert_int_equal(post(ends.client, {send}), 0);
    assert_int_equal(next_completion(ends.server.cq).byte_len, 8);
    assert_true(content(to).starts_with(content(send.sges)));
    expect_completion(ends.client.cq, 1);
}

void a_send_gathers_and_its_receive_scatters(void **) {
    Ends &ends = connected(four_elements);
    fill(ends.client, 0, 300'000, 2);
    const auto from = scattered(ends.client, 3, {70'001, 2, 1, 49'998});
    const auto to = scattered(ends.server, 5, {1, 60'000, 60'000, 1});
    assert_int_equal(post_receive(ends.server, 2, to), 0);
    Request send = send_request(ends.client, 0, 0, 1);
    send.sges = from;
    assert_int_equal(post(ends.client, {send}), 0);
    const ibv_wc received = next_completion(ends.server.cq);
    assert_int_equal(received.status, IBV_WC_SUCCESS);
    assert_int_equal(received.byte_len, 120'002);
    assert_true(content(to) == content(from));
    expect_completion(ends.client.cq, 1);
}

void a_shorter_send_fills_only_its_bytes(void **) {
    Ends &ends = connected(four_elements);
    fill(ends.client, 0, 64, 3);
    const auto to = scattered(ends.server, 0, {8, 8, 8, 8});
    assert_int_equal(post_receive(ends.server, 2, to), 0);
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, 12, 1)}), 0);
    assert_int_equal(next_completion(ends.server.cq).byte_len, 12);
    assert_memory_equal(content(to).data(), ends.client.memory.data(), 12);
    for (std::size_t i = 12; i < 32; ++i) {
        assert_int_equal(content(to)[i], 0);
    }
    expect_completion(ends.client.cq, 1);
}

void inline_data_gathers(void **) {
    Ends &ends = connected(four_elements);
    fill(ends.client, 0, 500, 4);
    Request write = inlined(write_request(ends.client, ends.server, 4096, 0, 1));
    for (const auto &lengths : {std::initializer_list<std::size_t>{1, 2, 3, 4}, {16, 16, 16, 16}, {64}}) {
        write.sges = scattered(ends.client, 1, lengths);
        for (ibv_sge &one : write.sges) {
            one.lkey = 0;
        }
        expect_written(ends, write);
    }
}

void a_chain_completes_in_its_order(void **) {
    Ends &ends = connected();
    fill(ends.client, 0, 4096, 5);
    assert_int_equal(post_receive(ends.server, 9, {sge(ends.server, 65536, 4096)}), 0);
    Request back = read_request(ends.client, ends.server, 0, 4096, 3);
    back.sges = {sge(ends.client, 8192, 4096)};
    assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 4096, 1),
                                        send_request(ends.client, 0, 4096, 2), back,
                                        unsignaled(write_request(ends.client, ends.server, 0, 0, 4)),
                                        settling_request(ends.client, ends.server, 5)}),
                     0);
    for (const std::uint64_t wr_id : {1U, 2U, 3U, 5U}) {
        expect_completion(ends.client.cq, wr_id);
    }
    expect_completion(ends.server.cq, 9);
    assert_true(holds(ends.client, 8192, 4096, 5));
    assert_true(holds(ends.server, 65536, 4096, 5));
}

void bad_wr_points_at_the_one_refused(void **) {
    Ends &ends = connected();
    fill(ends.client, 0, 64, 6);
    Request bad = write_request(ends.client, ends.server, 16, 8, 3);
    bad.sges.push_back(sge(ends.client, 24, 8));  // one more than the queue pair takes
    std::size_t refused = 0;
    assert_int_not_equal(post(ends.client,
                              {write_request(ends.client, ends.server, 0, 8, 1),
                               write_request(ends.client, ends.server, 8, 8, 2), bad,
                               write_request(ends.client, ends.server, 32, 8, 4)},
                              &refused),
                         0);
    assert_int_equal(refused, 2);
    // The requests before the bad one were posted. Those behind it were not.
    expect_completion(ends.client.cq, 1);
    expect_completion(ends.client.cq, 2);
    settle(ends.client, ends.server);
    assert_true(same(ends.client, ends.server, 0, 16));
    assert_int_equal(ends.server.memory[32], 0);
    expect_no_completion(ends.client.cq);
}

void bad_wr_of_receives_too(void **) {
    Ends &ends = connected();
    const auto one = sge(ends.server, 0, 8);
    ibv_sge two[] = {one, one};
    ibv_recv_wr third{.wr_id = 3, .next = nullptr, .sg_list = two, .num_sge = 1};
    ibv_recv_wr second{.wr_id = 2, .next = &third, .sg_list = two, .num_sge = 2};
    ibv_recv_wr first{.wr_id = 1, .next = &second, .sg_list = two, .num_sge = 1};
    ibv_recv_wr *refused = nullptr;
    assert_int_not_equal(ibv_post_recv(ends.server.id->qp, &first, &refused), 0);
    assert_ptr_equal(refused, &second);
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, 8, 1)}), 0);
    expect_completion(ends.server.cq, 1);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_write_gathers),
    cmocka_unit_test(elements_of_no_bytes),
    cmocka_unit_test(a_send_gathers_and_its_receive_scatters),
    cmocka_unit_test(a_shorter_send_fills_only_its_bytes),
    cmocka_unit_test(inline_data_gathers),
    cmocka_unit_test(a_chain_completes_in_its_order),
    cmocka_unit_test(bad_wr_points_at_the_one_refused),
    cmocka_unit_test(bad_wr_of_receives_too),
};

}  // namespace

std::span<const CMUnitTest> scatter_tests() {
    return tests;
}

}  // namespace conformance
