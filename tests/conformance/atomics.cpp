// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests atomic operations on eight bytes of the target's memory. The kernel's iWARP devices have
// none.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "suite.hpp"

namespace conformance {

namespace {

constexpr int atomic_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ;

// An Atomics has two connected ends, and 64 bytes of the server's memory for atomic operations.
struct Atomics {
    explicit Atomics(const Sizes &sizes = {}) : ends{connected(sizes)} {
        if (!ends.client.native(SOFTRDMA_OPERATION_ATOMIC)) {
            skip();
        }
        region = ends.server.register_memory(words.data(), sizeof(words), atomic_access);
        assert_non_null(region);
    }

    // Returns a request whose target's word, as it was before, goes to `local` of the client's memory.
    [[nodiscard]] Request request(ibv_wr_opcode opcode, std::size_t word, std::size_t local,
                                  std::uint64_t wr_id, std::uint64_t compare_add,
                                  std::uint64_t swap = 0) const {
        return {.opcode = opcode,
                .wr_id = wr_id,
                .sges = {sge(ends.client, local, 8)},
                .remote_address = reinterpret_cast<std::uintptr_t>(&words[word]),
                .rkey = region->rkey,
                .compare_add = compare_add,
                .swap = swap};
    }
    [[nodiscard]] Request add(std::size_t word, std::size_t local, std::uint64_t wr_id,
                              std::uint64_t value) const {
        return request(IBV_WR_ATOMIC_FETCH_AND_ADD, word, local, wr_id, value);
    }
    [[nodiscard]] Request swap(std::size_t word, std::size_t local, std::uint64_t wr_id,
                               std::uint64_t expected, std::uint64_t value) const {
        return request(IBV_WR_ATOMIC_CMP_AND_SWP, word, local, wr_id, expected, value);
    }
    [[nodiscard]] std::uint64_t fetched(std::size_t local) const {
        std::uint64_t value = 0;
        std::memcpy(&value, ends.client.memory.data() + local, sizeof(value));
        return value;
    }

    Ends &ends;
    alignas(64) std::array<std::uint64_t, 8> words{};
    ibv_mr *region = nullptr;
};

void expect_done(const Atomics &atomics, std::uint64_t wr_id, ibv_wc_opcode opcode) {
    const ibv_wc done = next_completion(atomics.ends.client.cq);
    assert_int_equal(done.status, IBV_WC_SUCCESS);
    assert_int_equal(done.wr_id, wr_id);
    assert_int_equal(done.opcode, opcode);
    assert_int_equal(done.byte_len, 8);
}

void fetch_and_add(void **) {
    auto &atomics = make<Atomics>();
    atomics.words[3] = UINT64_MAX - 1;
    assert_int_equal(post(atomics.ends.client, {atomics.add(3, 64, 1, 5), atomics.add(3, 72, 2, 1ULL << 63)}),
                     0);
    expect_done(atomics, 1, IBV_WC_FETCH_ADD);
    expect_done(atomics, 2, IBV_WC_FETCH_ADD);
    assert_int_equal(atomics.fetched(64), UINT64_MAX - 1);
    assert_int_equal(atomics.fetched(72), 3);
    assert_int_equal(atomics.words[3], (1ULL << 63) + 3);
    assert_int_equal(atomics.words[2] | atomics.words[4], 0);
}

void compare_and_swap(void **) {
    auto &atomics = make<Atomics>();
    atomics.words[0] = 0x1122334455667788;
    assert_int_equal(post(atomics.ends.client, {atomics.swap(0, 64, 1, 0x1122334455667789, 7),
                                                atomics.swap(0, 72, 2, 0x1122334455667788, 8),
                                                atomics.swap(0, 80, 3, 0x1122334455667788, 9)}),
                     0);
    for (std::uint64_t wr_id = 1; wr_id <= 3; ++wr_id) {
        expect_done(atomics, wr_id, IBV_WC_COMP_SWAP);
    }
    assert_int_equal(atomics.fetched(64), 0x1122334455667788);
    assert_int_equal(atomics.fetched(72), 0x1122334455667788);
    assert_int_equal(atomics.fetched(80), 8);
    assert_int_equal(atomics.words[0], 8);
}

// Two atomic operations are prepared one by one, and the answer of the second one goes to two places.
void prepared_ones(void **) {
    if (!subject.is_soft) {
        skip();
    }
    auto &atomics = make<Atomics>(
        Sizes{.sge = 2,
              .send_operations = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP});
    const End &client = atomics.ends.client;
    ibv_qp_ex *const qp = softrdma_ibv_qp_to_qp_ex(client.id->qp);
    const auto address = reinterpret_cast<std::uintptr_t>(&atomics.words[1]);
    const std::array<ibv_sge, 2> halves{sge(client, 64, 3), sge(client, 67, 5)};
    ibv_wr_start(qp);
    qp->wr_id = 1;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_atomic_fetch_add(qp, atomics.region->rkey, address, 0x0102030405060708);
    ibv_wr_set_sge(qp, client.mr->lkey, client.address(128), 8);
    qp->wr_id = 2;
    ibv_wr_atomic_cmp_swp(qp, atomics.region->rkey, address, 0x0102030405060708, 9);
    ibv_wr_set_sge_list(qp, halves.size(), halves.data());
    assert_int_equal(ibv_wr_complete(qp), 0);
    expect_done(atomics, 1, IBV_WC_FETCH_ADD);
    expect_done(atomics, 2, IBV_WC_COMP_SWAP);
    assert_int_equal(atomics.fetched(128), 0);
    assert_int_equal(atomics.fetched(64), 0x0102030405060708);
    assert_int_equal(atomics.words[1], 9);
}

// No operation is lost when the target's own processor changes the same word.
void they_are_atomic_with_the_processor(void **) {
    static constexpr std::uint64_t rounds = 2000;
    auto &atomics = make<Atomics>(Sizes{.send_wr = 64, .depth = 16});
    auto *const word = &atomics.words[5];
    auto &processor = make<Thread>([word]() -> std::string {
        for (std::uint64_t i = 0; i < rounds; ++i) {
            std::atomic_ref{*word}.fetch_add(1ULL << 32, std::memory_order_relaxed);
        }
        return {};
    });
    std::uint64_t last = 0;
    for (std::uint64_t i = 0; i < rounds; ++i) {
        assert_int_equal(post(atomics.ends.client, {atomics.add(5, 64, i, 1)}), 0);
        expect_completion(atomics.ends.client.cq, i);
        const std::uint64_t seen = atomics.fetched(64);
        assert_int_equal(seen & UINT32_MAX, i);
        assert_true(seen >= last);
        last = seen;
    }
    processor.expect_well();
    assert_int_equal(atomics.words[5], rounds << 32 | rounds);
}

// A page that is a shared mapping of a file, which a device of the same host may map too.
struct FilePage {
    FilePage() {
        const int file = memfd_create("conformance", MFD_CLOEXEC);
        assert_int_equal(ftruncate(file, bytes), 0);
        void *const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        assert_ptr_not_equal(mapped, MAP_FAILED);
        words = static_cast<std::uint64_t *>(mapped);
    }
    ~FilePage() { munmap(words, bytes); }
    FilePage(const FilePage &) = delete;
    FilePage &operator=(const FilePage &) = delete;

    static constexpr std::size_t bytes = 4096;
    std::uint64_t *words = nullptr;
};

// Two words of a file are changed in turn, also by the processor, and read in between.
void in_a_file(void **) {
    static constexpr std::uint64_t rounds = 500;
    const auto &page = make<FilePage>();
    auto &atomics = make<Atomics>(Sizes{.send_wr = 64, .depth = 16});
    const End &client = atomics.ends.client;
    const ibv_mr *const region =
        atomics.ends.server.register_memory(page.words, FilePage::bytes, atomic_access);
    assert_non_null(region);
    const auto on = [&](Request request, std::size_t word) {
        request.remote_address = reinterpret_cast<std::uintptr_t>(page.words + word);
        request.rkey = region->rkey;
        return request;
    };
    auto &processor = make<Thread>([&page]() -> std::string {
        for (std::uint64_t i = 0; i < rounds; ++i) {
            std::atomic_ref{page.words[0]}.fetch_add(1ULL << 32, std::memory_order_relaxed);
        }
        return {};
    });
    for (std::uint64_t i = 0; i < rounds; ++i) {
        assert_int_equal(
            post(client, {on(atomics.add(0, 64, 1, 1), 0), on(atomics.swap(0, 72, 2, i, i + 1), 511),
                          on(atomics.swap(0, 80, 3, i, 0), 511),
                          on({.opcode = IBV_WR_RDMA_READ, .wr_id = 4, .sges = {sge(client, 88, 8)}}, 511)}),
            0);
        for (std::uint64_t wr_id = 1; wr_id <= 4; ++wr_id) {
            expect_completion(client.cq, wr_id);
        }
        assert_int_equal(atomics.fetched(64) & UINT32_MAX, i);
        assert_int_equal(atomics.fetched(72), i);
        assert_int_equal(atomics.fetched(80), i + 1);
        assert_int_equal(atomics.fetched(88), i + 1);
        assert_int_equal(page.words[511], i + 1);
    }
    processor.expect_well();
    assert_int_equal(page.words[0], rounds << 32 | rounds);
}

// Each operation finds the result of the one before it, whichever thread serves the target.
void many_connections_add_to_one_word(void **) {
    static constexpr std::size_t connections = 4;
    static constexpr std::size_t rounds = 500;
    auto &word = make<std::uint64_t>(0U);
    auto &found = make<std::vector<std::atomic<bool>>>(connections * rounds);
    std::vector<Thread *> threads;
    for (std::size_t i = 0; i < connections; ++i) {
        const auto &atomics = make<Atomics>();
        const ibv_mr *const region = atomics.ends.server.register_memory(&word, sizeof(word), atomic_access);
        assert_non_null(region);
        Request request = atomics.add(0, 64, 1, 1);
        request.remote_address = reinterpret_cast<std::uintptr_t>(&word);
        request.rkey = region->rkey;
        threads.push_back(&make<Thread>([&atomics, &found, request]() -> std::string {
            for (std::size_t round = 0; round < rounds; ++round) {
                ibv_wc completion{};
                if (post(atomics.ends.client, {request}) != 0 ||
                    ibv_poll_cq(atomics.ends.server.cq, 1, &completion) != 0 ||  // serves it, or the engine
                    !poll_for(atomics.ends.client.cq, completion) || completion.status != IBV_WC_SUCCESS) {
                    return "an addition fails";
                }
                const std::uint64_t before = atomics.fetched(64);
                if (before >= found.size() || found[before].exchange(true)) {
                    return "another addition found " + std::to_string(before) + " too";
                }
            }
            return {};
        }));
    }
    for (Thread *const thread : threads) {
        thread->expect_well();
    }
    assert_int_equal(word, connections * rounds);
}

// The test puts reads between the atomic operations, which wait for their turn like the reads.
void more_than_the_connection_allows_at_once(void **) {
    auto &atomics = make<Atomics>(Sizes{.send_wr = 64, .cqe = 128, .depth = 2});
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 60; ++i) {
        requests.push_back(i % 3 == 2 ? read_request(atomics.ends.client, atomics.ends.server, 4096, 8, i)
                                      : atomics.add(0, 64 + 8 * i, i, 1));
    }
    assert_int_equal(post(atomics.ends.client, requests), 0);
    std::uint64_t expected = 0;
    for (std::uint64_t i = 0; i < 60; ++i) {
        expect_completion(atomics.ends.client.cq, i);
        if (i % 3 != 2) {
            assert_int_equal(atomics.fetched(64 + 8 * i), expected++);
        }
    }
    assert_int_equal(atomics.words[0], 40);
}

void those_that_make_no_sense(void **) {
    auto &atomics = make<Atomics>();
    if (!subject.is_soft) {
        skip();
    }
    const End &client = atomics.ends.client;
    assert_int_equal(post(client, {inlined(atomics.add(0, 64, 1, 1))}), EINVAL);
    Request bad = atomics.add(0, 64, 1, 1);
    bad.remote_address += 4;
    assert_int_equal(post(client, {bad}), EINVAL);
    for (const std::uint32_t length : {0U, 4U, 16U}) {
        bad = atomics.swap(0, 64, 1, 0, 1);
        bad.sges[0].length = length;
        assert_int_equal(post(client, {bad}), EINVAL);
    }
    settle(client, atomics.ends.server);
    assert_int_equal(atomics.words[0], 0);
}

void memory_that_is_not_for_it(void **) {
    auto &atomics = make<Atomics>();
    Request bad = atomics.add(0, 64, 1, 1);
    bad.remote_address = atomics.ends.server.address(64);
    bad.rkey = atomics.ends.server.mr->rkey;  // reading and writing
    assert_int_equal(post(atomics.ends.client, {bad, atomics.add(0, 64, 2, 1)}), 0);
    expect_completion(atomics.ends.client.cq, 1, IBV_WC_REM_ACCESS_ERR);
    expect_completion(atomics.ends.client.cq, 2, IBV_WC_WR_FLUSH_ERR);
    atomics.ends.expect_disconnected();
    assert_int_equal(atomics.ends.server.memory[64], 0);
    assert_int_equal(atomics.words[0], 0);
}

void memory_that_has_vanished(void **) {
    auto &atomics = make<Atomics>();
    void *const pages = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    const ibv_mr *const region = atomics.ends.server.register_memory(pages, 4096, atomic_access);
    assert_non_null(region);
    (void)munmap(pages, 4096);
    Request request = atomics.add(0, 64, 1, 1);
    request.remote_address = reinterpret_cast<std::uintptr_t>(pages);
    request.rkey = region->rkey;
    assert_int_equal(post(atomics.ends.client, {request}), 0);
    assert_int_not_equal(next_completion(atomics.ends.client.cq).status, IBV_WC_SUCCESS);
    atomics.ends.expect_disconnected();
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(fetch_and_add),
    cmocka_unit_test(compare_and_swap),
    cmocka_unit_test(prepared_ones),
    cmocka_unit_test(they_are_atomic_with_the_processor),
    cmocka_unit_test(in_a_file),
    cmocka_unit_test(many_connections_add_to_one_word),
    cmocka_unit_test(more_than_the_connection_allows_at_once),
    cmocka_unit_test(those_that_make_no_sense),
    cmocka_unit_test(memory_that_is_not_for_it),
    cmocka_unit_test(memory_that_has_vanished),
};

}  // namespace

std::span<const CMUnitTest> atomic_tests() {
    return tests;
}

}  // namespace conformance
