// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests each operation alone.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/fd.hpp"
#include "suite.hpp"

namespace conformance {

namespace {

// The sizes lie around every border there is: cache lines, pages, the receive buffer,
// FPDUs with and without CRC32C.
constexpr std::array<std::size_t, 20> sizes{0,     1,     3,     8,     63,     64,     65,
                                            511,   512,   4096,  8175,  8192,   16384,  65407,
                                            65408, 65471, 65472, 65473, 131072, 1 << 20};

void a_write_and_a_flush_of_eight_bytes(void **) {
    Ends &ends = connected();
    fill(ends.client, 64, 8, 1);
    const auto write = unsignaled(write_request(ends.client, ends.server, 64, 8));
    assert_int_equal(post(ends.client, {write, settling_request(ends.client, ends.server, 2)}), 0);
    expect_completion(ends.client.cq, 2);
    assert_true(same(ends.client, ends.server, 64, 8));
}

void writes_and_reads_of_many_sizes(void **) {
    Ends &ends = connected();
    unsigned seed = 1;
    for (const std::size_t size : sizes) {
        fill(ends.client, 0, size, ++seed);
        assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, size, seed)}), 0);
        const ibv_wc written = next_completion(ends.client.cq);
        assert_int_equal(written.status, IBV_WC_SUCCESS);
        assert_int_equal(written.opcode, IBV_WC_RDMA_WRITE);
        assert_int_equal(written.wr_id, seed);
        std::ranges::fill(ends.client.memory, std::byte{0});
        assert_int_equal(post(ends.client, {read_request(ends.client, ends.server, 0, size, seed)}), 0);
        const ibv_wc read = next_completion(ends.client.cq);
        assert_int_equal(read.status, IBV_WC_SUCCESS);
        assert_int_equal(read.opcode, IBV_WC_RDMA_READ);
        assert_true(holds(ends.client, 0, size, seed));
    }
}

void sends_of_many_sizes(void **) {
    Ends &ends = connected();
    unsigned seed = 1;
    for (const std::size_t size : sizes) {
        fill(ends.client, 0, size, ++seed);
        assert_int_equal(post_receive(ends.server, seed, {sge(ends.server, 0, Sizes{}.memory_bytes)}), 0);
        assert_int_equal(post(ends.client, {send_request(ends.client, 0, size, 1)}), 0);
        const ibv_wc received = next_completion(ends.server.cq);
        assert_int_equal(received.status, IBV_WC_SUCCESS);
        assert_int_equal(received.opcode, IBV_WC_RECV);
        assert_int_equal(received.byte_len, size);
        assert_int_equal(received.wr_id, seed);
        assert_int_equal(received.qp_num, ends.server.id->qp->qp_num);
        assert_true(holds(ends.server, 0, size, seed));
        const ibv_wc sent = next_completion(ends.client.cq);
        assert_int_equal(sent.status, IBV_WC_SUCCESS);
        assert_int_equal(sent.opcode, IBV_WC_SEND);
        assert_int_equal(sent.qp_num, ends.client.id->qp->qp_num);
    }
}

void the_server_does_all_of_it_too(void **) {
    Ends &ends = connected();
    fill(ends.server, 0, 3000, 3);
    assert_int_equal(post_receive(ends.client, 5, {sge(ends.client, 8192, 100)}), 0);
    assert_int_equal(post(ends.server, {write_request(ends.server, ends.client, 0, 3000, 1),
                                        send_request(ends.server, 0, 100, 2),
                                        read_request(ends.server, ends.client, 4096, 64, 3),
                                        settling_request(ends.server, ends.client, 4)}),
                     0);
    for (std::uint64_t wr_id = 1; wr_id <= 4; ++wr_id) {
        expect_completion(ends.server.cq, wr_id);
    }
    expect_completion(ends.client.cq, 5);
    assert_true(holds(ends.client, 0, 3000, 3));
    assert_true(holds(ends.client, 8192, 100, 3));
}

void messages_of_no_bytes_need_no_key(void **) {
    Ends &ends = connected();
    assert_int_equal(post_receive(ends.server, 7, {}), 0);
    assert_int_equal(post_receive(ends.server, 8, {sge(ends.server, 0, 8)}), 0);
    const ibv_sge nothing{.addr = 0, .length = 0, .lkey = 0};
    assert_int_equal(post(ends.client, {{.opcode = IBV_WR_RDMA_WRITE, .wr_id = 1},
                                        {.opcode = IBV_WR_RDMA_READ, .wr_id = 2},
                                        {.opcode = IBV_WR_SEND, .wr_id = 3},
                                        {.opcode = IBV_WR_RDMA_WRITE, .wr_id = 4, .sges = {nothing}},
                                        {.opcode = IBV_WR_RDMA_READ, .wr_id = 5, .sges = {nothing}},
                                        {.opcode = IBV_WR_SEND, .wr_id = 6, .sges = {nothing}}}),
                     0);
    for (std::uint64_t wr_id = 1; wr_id <= 6; ++wr_id) {
        expect_completion(ends.client.cq, wr_id);
    }
    for (std::uint64_t wr_id = 7; wr_id <= 8; ++wr_id) {
        const ibv_wc received = next_completion(ends.server.cq);
        assert_int_equal(received.status, IBV_WC_SUCCESS);
        assert_int_equal(received.wr_id, wr_id);
        assert_int_equal(received.byte_len, 0);
    }
}

void an_atomic_write_stores_eight_bytes(void **) {
    Ends &ends = connected();
    if (!ends.client.native(verbs::native_atomic_write)) {
        skip();
    }
    fill(ends.client, 64, 8, 9);
    fill(ends.client, 128, 8, 10);
    assert_int_equal(post(ends.client, {atomic_write_request(ends.client, ends.server, 64, 1),
                                        inlined(atomic_write_request(ends.client, ends.server, 128, 2)),
                                        settling_request(ends.client, ends.server, 3)}),
                     0);
    for (std::uint64_t wr_id = 1; wr_id <= 2; ++wr_id) {
        const ibv_wc written = next_completion(ends.client.cq);
        assert_int_equal(written.status, IBV_WC_SUCCESS);
        assert_int_equal(written.wr_id, wr_id);
        assert_int_equal(written.opcode, IBV_WC_ATOMIC_WRITE);
    }
    expect_completion(ends.client.cq, 3);
    assert_true(holds(ends.server, 64, 8, 9));
    assert_true(holds(ends.server, 128, 8, 10));
}

// A thread that looks while the writes arrive sees one value or another, never parts of two.
void atomic_writes_are_never_seen_torn(void **) {
    Ends &ends = connected();
    if (!ends.client.native(verbs::native_atomic_write)) {
        skip();
    }
    static constexpr std::uint64_t rounds = 2000;
    static constexpr std::uint64_t unit = 0x0001'0001'0001'0001;
    auto *const target = reinterpret_cast<std::uint64_t *>(ends.server.memory.data());
    auto &watcher = make<Thread>([target]() -> std::string {
        std::uint64_t seen = 0;
        while (seen != rounds * unit) {
            seen = std::atomic_ref{*target}.load(std::memory_order_acquire);
            if (seen % unit != 0) {
                return "a value that was never written: " + std::to_string(seen);
            }
        }
        return {};
    });
    for (std::uint64_t round = 1; round <= rounds; ++round) {
        const std::uint64_t value = round * unit;
        std::memcpy(ends.client.memory.data(), &value, sizeof(value));
        assert_int_equal(
            post(ends.client, {inlined(atomic_write_request(ends.client, ends.server, 0, round))}), 0);
        expect_completion(ends.client.cq, round);
    }
    watcher.expect_well();
}

void a_flush_says_what_it_was(void **) {
    Ends &ends = connected();
    if (!ends.client.native(verbs::native_flush)) {
        skip();
    }
    auto nothing = flush_request(ends.server, 0, 0, SOFTRDMA_FLUSH_GLOBAL, 2);
    nothing.rkey = 0;
    assert_int_equal(
        post(ends.client,
             {flush_request(ends.server, 0, ends.server.memory.size(), SOFTRDMA_FLUSH_GLOBAL, 1), nothing}),
        0);
    for (std::uint64_t wr_id = 1; wr_id <= 2; ++wr_id) {
        const ibv_wc flushed = next_completion(ends.client.cq);
        assert_int_equal(flushed.status, IBV_WC_SUCCESS);
        assert_int_equal(flushed.wr_id, wr_id);
        assert_int_equal(flushed.opcode, flush_completed);
    }
}

void inline_data_is_free_at_once(void **) {
    Ends &ends = connected();
    for (std::size_t i = 0; i < 8; ++i) {
        assert_int_equal(post_receive(ends.server, 100 + i, {sge(ends.server, 4096 + 64 * i, 64)}), 0);
        std::array<std::byte, 64> buffer;  // registered nowhere
        for (std::size_t k = 0; k < buffer.size(); ++k) {
            buffer[k] = static_cast<std::byte>(i + 1);
        }
        const ibv_sge source{
            .addr = reinterpret_cast<std::uintptr_t>(buffer.data()), .length = 64, .lkey = 0};
        auto write = inlined(write_request(ends.client, ends.server, 64 * i, 64, 2 * i));
        auto send = inlined(send_request(ends.client, 0, 64, 2 * i + 1));
        write.sges = {source};
        send.sges = {source};
        assert_int_equal(post(ends.client, {write, send}), 0);
        std::ranges::fill(buffer, std::byte{0xee});
    }
    for (std::size_t i = 0; i < 16; ++i) {
        expect_completion(ends.client.cq, i);
    }
    for (std::size_t i = 0; i < 8; ++i) {
        expect_completion(ends.server.cq, 100 + i);
        for (std::size_t k = 0; k < 64; ++k) {
            assert_int_equal(ends.server.memory[64 * i + k], i + 1);
            assert_int_equal(ends.server.memory[4096 + 64 * i + k], i + 1);
        }
    }
}

// ThreadSanitizer keeps several bytes for each byte of an address, however often one page is mapped.
#ifdef __SANITIZE_THREAD__
constexpr bool addresses_cost_memory = true;
#else
constexpr bool addresses_cost_memory = false;
#endif

// A Folded has many bytes in little memory: it is an area whose parts are all the same pages.
class Folded {
public:
    static constexpr std::size_t fold_bytes = 16 << 20;
    static constexpr std::size_t bytes = (std::size_t{2} << 30) + fold_bytes;

    Folded() {
        const base::Fd file{memfd_create("conformance", MFD_CLOEXEC)};
        assert_int_equal(ftruncate(file.get(), fold_bytes), 0);
        void *const area = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(area, MAP_FAILED);
        begin = static_cast<std::byte *>(area);
        for (std::size_t at = 0; at < bytes; at += fold_bytes) {
            assert_ptr_not_equal(
                mmap(begin + at, fold_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0),
                MAP_FAILED);
        }
    }
    ~Folded() { (void)munmap(begin, bytes); }
    Folded(const Folded &) = delete;
    Folded &operator=(const Folded &) = delete;

    std::byte *begin = nullptr;
};

// A length has 32 bits without a sign, in every operation that has one.
void more_than_two_gibibytes_at_once(void **) {
    if (!subject.is_soft || addresses_cost_memory) {
        skip();
    }
    Ends &ends = connected();
    const Folded &source = make<Folded>();
    const Folded &target = make<Folded>();
    const ibv_mr *const from = ends.client.register_memory(source.begin, Folded::bytes, full_access);
    const ibv_mr *const to = ends.server.register_memory(
        target.begin, Folded::bytes, full_access | verbs::flush_access(provider(), verbs::Flush::Visibility));
    assert_true(from != nullptr && to != nullptr);
    const auto all_of = [](const ibv_mr &region) {
        return ibv_sge{.addr = reinterpret_cast<std::uintptr_t>(region.addr),
                       .length = static_cast<std::uint32_t>(Folded::bytes),
                       .lkey = region.lkey};
    };
    Request flush = flush_request(ends.server, 0, 0, SOFTRDMA_FLUSH_GLOBAL, 1);
    flush.sges = {{.addr = 0, .length = static_cast<std::uint32_t>(Folded::bytes), .lkey = 0}};
    flush.remote_address = reinterpret_cast<std::uintptr_t>(to->addr);
    flush.rkey = to->rkey;
    assert_int_equal(post(ends.client, {flush}), 0);
    expect_completion(ends.client.cq, 1);

    for (std::size_t i = 0; i < Folded::fold_bytes; ++i) {
        source.begin[i] = static_cast<std::byte>(i * 31 + i / 251);
    }
    Request send = send_request(ends.client, 0, 0, 2);
    send.sges = {all_of(*from)};
    assert_int_equal(post_receive(ends.server, 3, {all_of(*to)}), 0);
    assert_int_equal(post(ends.client, {send}), 0);
    // On a busy machine so many bytes take longer than the patience with one completion. The time of the
    // whole suite is limited.
    ibv_wc received{};
    while (!poll_for(ends.server.cq, received)) {
    }
    assert_int_equal(received.status, IBV_WC_SUCCESS);
    assert_int_equal(received.byte_len, Folded::bytes);
    assert_memory_equal(target.begin, source.begin, Folded::fold_bytes);
    expect_completion(ends.client.cq, 2);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_write_and_a_flush_of_eight_bytes),
    cmocka_unit_test(writes_and_reads_of_many_sizes),
    cmocka_unit_test(sends_of_many_sizes),
    cmocka_unit_test(the_server_does_all_of_it_too),
    cmocka_unit_test(messages_of_no_bytes_need_no_key),
    cmocka_unit_test(an_atomic_write_stores_eight_bytes),
    cmocka_unit_test(atomic_writes_are_never_seen_torn),
    cmocka_unit_test(more_than_two_gibibytes_at_once),
    cmocka_unit_test(a_flush_says_what_it_was),
    cmocka_unit_test(inline_data_is_free_at_once),
};

}  // namespace

std::span<const CMUnitTest> operation_tests() {
    return tests;
}

}  // namespace conformance
