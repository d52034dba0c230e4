// SPDX-License-Identifier: BSD-3-Clause
// conformance: operations that succeed.
#include <algorithm>
#include <array>
#include <cstring>

#include "suite.hpp"

namespace conformance {

namespace {

void fill(End &end, std::size_t offset, std::size_t length, unsigned seed) {
    for (std::size_t i = 0; i < length; ++i) {
        end.memory[offset + i] = static_cast<std::byte>(i * 7 + seed);
    }
}

bool same(const End &a, const End &b, std::size_t offset, std::size_t length) {
    return std::memcmp(a.memory.data() + offset, b.memory.data() + offset, length) == 0;
}

void a_write_and_a_flush_of_eight_bytes(void **) {
    Ends ends;
    ends.connect();
    fill(ends.client, 64, 8, 1);
    auto write = write_request(ends.client, ends.server, 64, 8);
    write.flags = 0;
    if (subject.is_soft) {
        assert_int_equal(post(ends.client, {write, flush_request(ends.server, 64, 8, SOFTRDMA_FLUSH_GLOBAL, 2)}), 0);
    } else {
        assert_int_equal(post(ends.client, {write, read_request(ends.client, ends.server, 128, 8, 2)}), 0);
    }
    expect_completion(ends.client.cq, 2);
    assert_true(same(ends.client, ends.server, 64, 8));
}

void writes_and_reads_of_many_sizes(void **) {
    static constexpr std::array<std::size_t, 12> sizes{0, 1, 3, 8, 63, 4096, 8175, 8192, 65471, 65472, 65473, 1 << 20};
    Ends ends;
    ends.connect();
    unsigned seed = 1;
    for (const std::size_t size : sizes) {
        fill(ends.client, 0, size, ++seed);
        assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, size, seed)}), 0);
        expect_completion(ends.client.cq, seed);
        std::ranges::fill(ends.client.memory, std::byte{0});
        assert_int_equal(post(ends.client, {read_request(ends.client, ends.server, 0, size, seed)}), 0);
        expect_completion(ends.client.cq, seed);
        for (std::size_t i = 0; i < size; ++i) {
            assert_int_equal(ends.client.memory[i], static_cast<std::byte>(i * 7 + seed));
        }
    }
}

void sends_both_ways(void **) {
    Ends ends;
    ends.connect();
    fill(ends.client, 0, 100'000, 3);
    assert_int_equal(post_receive(ends.server, 10, {sge(ends.server, 0, 200'000)}), 0);
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, 100'000, 1)}), 0);
    const ibv_wc received = next_completion(ends.server.cq);
    assert_int_equal(received.status, IBV_WC_SUCCESS);
    assert_int_equal(received.opcode, IBV_WC_RECV);
    assert_int_equal(received.byte_len, 100'000);
    assert_int_equal(received.wr_id, 10);
    assert_int_equal(received.qp_num, ends.server.id->qp->qp_num);
    expect_completion(ends.client.cq, 1);
    assert_true(same(ends.client, ends.server, 0, 100'000));

    assert_int_equal(post_receive(ends.client, 11, {sge(ends.client, 0, 8)}), 0);
    assert_int_equal(post(ends.server, {send_request(ends.server, 8, 8, 2)}), 0);
    expect_completion(ends.client.cq, 11);
    expect_completion(ends.server.cq, 2);
    assert_memory_equal(ends.client.memory.data(), ends.server.memory.data() + 8, 8);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_write_and_a_flush_of_eight_bytes),
    cmocka_unit_test(writes_and_reads_of_many_sizes),
    cmocka_unit_test(sends_both_ways),
};

}  // namespace

std::span<const CMUnitTest> operation_tests() { return tests; }

}  // namespace conformance
