// SPDX-License-Identifier: BSD-3-Clause
// conformance: memory windows: what peers reach through them, and what they reach no more when a window is
// invalidated or bound anew.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

#include "suite.hpp"

namespace conformance {

namespace {

constexpr unsigned reading = IBV_ACCESS_REMOTE_READ;
constexpr unsigned writing = IBV_ACCESS_REMOTE_WRITE;

// Two connected ends of the soft device, and memory of the server's to which windows can be bound. Its own
// key gives peers no right.
struct Bindable {
    // Skips before it asks for a queue pair, as a kernel's device may refuse the operations.
    static Ends &only_soft(const Sizes &sizes) {
        if (!subject.is_soft) {
            skip();
        }
        return connected(sizes);
    }
    explicit Bindable(const Sizes &sizes = {}) : ends{only_soft(sizes)} {
        region = ends.server.register_memory(bytes.data(), bytes.size(),
                                             int{IBV_ACCESS_LOCAL_WRITE} | int{IBV_ACCESS_MW_BIND});
        assert_non_null(region);
    }
    ~Bindable() {
        for (ibv_mw *const one : windows) {
            (void)ibv_dealloc_mw(one);
        }
    }
    ibv_mw &window(ibv_mw_type type) {
        ibv_mw *const made = ibv_alloc_mw(ends.server.pd, type);
        assert_non_null(made);
        windows.push_back(made);
        return *made;
    }
    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<std::uintptr_t>(bytes.data()) + offset;
    }
    [[nodiscard]] ibv_mw_bind_info part(std::size_t offset, std::size_t length, unsigned access) const {
        return {.mr = region, .addr = address(offset), .length = length, .mw_access_flags = access};
    }
    // Binds a window of type 1, and waits for the completion.
    void bind(ibv_mw &window, std::size_t offset, std::size_t length, unsigned access) const {
        ibv_mw_bind wanted{
            .wr_id = 70, .send_flags = IBV_SEND_SIGNALED, .bind_info = part(offset, length, access)};
        assert_int_equal(ibv_bind_mw(ends.server.id->qp, &window, &wanted), 0);
        expect_opcode(70, IBV_WC_BIND_MW);
    }
    void expect_opcode(std::uint64_t wr_id, ibv_wc_opcode opcode) const {
        const ibv_wc completion = next_completion(ends.server.cq);
        assert_int_equal(completion.status, IBV_WC_SUCCESS);
        assert_int_equal(completion.wr_id, wr_id);
        assert_int_equal(completion.opcode, opcode);
    }
    // These post to the server's queue pair, and return what verbs returns.
    [[nodiscard]] int post_bind(ibv_mw &window, const ibv_mw_bind_info &info, std::uint32_t key) const {
        ibv_send_wr request{};
        request.wr_id = 71;
        request.opcode = IBV_WR_BIND_MW;
        request.send_flags = IBV_SEND_SIGNALED;
        request.bind_mw = {.mw = &window, .rkey = key, .bind_info = info};
        ibv_send_wr *bad = nullptr;
        const int error = ibv_post_send(ends.server.id->qp, &request, &bad);
        return error == 0 || bad == &request ? error : EFAULT;
    }
    [[nodiscard]] int post_invalidation(std::uint32_t key) const {
        ibv_send_wr request{};
        request.wr_id = 72;
        request.opcode = IBV_WR_LOCAL_INV;
        request.send_flags = IBV_SEND_SIGNALED;
        request.invalidate_rkey = key;
        ibv_send_wr *bad = nullptr;
        return ibv_post_send(ends.server.id->qp, &request, &bad);
    }
    // Binds a window of type 2 to a part, and returns its key.
    [[nodiscard]] std::uint32_t bind_for_peer(ibv_mw &window, std::size_t offset, std::size_t length,
                                              unsigned access) const {
        const std::uint32_t key = ibv_inc_rkey(window.rkey);
        assert_int_equal(post_bind(window, part(offset, length, access), key), 0);
        expect_opcode(71, IBV_WC_BIND_MW);
        assert_int_equal(window.rkey, key);
        return key;
    }
    [[nodiscard]] Request at(Request request, std::uint32_t key, std::size_t offset) const {
        request.remote_address = address(offset);
        request.rkey = key;
        return request;
    }
    void expect_written(std::uint32_t key, std::size_t offset, std::size_t length) const {
        fill(ends.client, 0, length, key);
        assert_int_equal(
            post(ends.client, {at(write_request(ends.client, ends.server, 0, length, 1), key, offset)}), 0);
        expect_completion(ends.client.cq, 1);
        settle(ends.client, ends.server);
        assert_memory_equal(bytes.data() + offset, ends.client.memory.data(), length);
    }
    // The refusal ends the connection.
    void expect_refused(const Request &request) const {
        const std::vector<std::byte> before = bytes;
        assert_int_equal(post(ends.client, {request, settling_request(ends.client, ends.server, 98)}), 0);
        const ibv_wc first = next_completion(ends.client.cq);
        const ibv_wc second = next_completion(ends.client.cq);
        assert_true(first.status == IBV_WC_REM_ACCESS_ERR || second.status == IBV_WC_REM_ACCESS_ERR);
        assert_true(bytes == before);
    }

    Ends &ends;
    std::vector<std::byte> bytes = std::vector<std::byte>(1 << 16);
    ibv_mr *region = nullptr;
    std::vector<ibv_mw *> windows;
};

void a_window_of_type_1_is_bound_again(void **) {
    auto &here = make<Bindable>();
    ibv_mw &window = here.window(IBV_MW_TYPE_1);
    here.bind(window, 100, 64, writing);
    const std::uint32_t first = window.rkey;
    for (int i = 0; i < 20; ++i) {  // at last the peer on this host reaches it itself
        here.expect_written(first, 100, 64);
    }
    here.bind(window, 1000, 32, writing);
    assert_int_not_equal(window.rkey, first);
    here.expect_written(window.rkey, 1000, 32);
    here.expect_refused(here.at(write_request(here.ends.client, here.ends.server, 0, 64, 1), first, 100));
}

void a_window_without_bytes_is_none(void **) {
    auto &here = make<Bindable>();
    ibv_mw &window = here.window(IBV_MW_TYPE_1);
    here.bind(window, 0, 4096, writing);
    here.expect_written(window.rkey, 0, 64);
    assert_int_equal(softrdma_ibv_dereg_mr(here.region), EBUSY);
    here.bind(window, 0, 0, 0);
    here.expect_refused(here.at(write_request(here.ends.client, here.ends.server, 0, 64, 1), window.rkey, 0));
}

void a_window_has_its_own_bounds(void **) {
    for (const std::size_t offset : {std::size_t{99}, std::size_t{101}}) {
        auto &here = make<Bindable>();
        const std::uint32_t key = here.bind_for_peer(here.window(IBV_MW_TYPE_2), 100, 64, writing);
        here.expect_written(key, 100, 64);
        here.expect_refused(
            here.at(write_request(here.ends.client, here.ends.server, 0, 64, 1), key, offset));
    }
}

void a_window_has_its_own_rights(void **) {
    auto &reads = make<Bindable>();
    const std::uint32_t key = reads.bind_for_peer(reads.window(IBV_MW_TYPE_2), 0, 64, reading);
    assert_int_equal(post(reads.ends.client,
                          {reads.at(read_request(reads.ends.client, reads.ends.server, 0, 64, 1), key, 0)}),
                     0);
    expect_completion(reads.ends.client.cq, 1);
    reads.expect_refused(reads.at(write_request(reads.ends.client, reads.ends.server, 0, 64, 1), key, 0));
    auto &none = make<Bindable>();
    const std::uint32_t other = none.bind_for_peer(none.window(IBV_MW_TYPE_2), 0, 64, IBV_ACCESS_LOCAL_WRITE);
    none.expect_refused(none.at(read_request(none.ends.client, none.ends.server, 0, 64, 1), other, 0));
    // The region's own key gives peers nothing.
    auto &region = make<Bindable>();
    region.expect_refused(
        region.at(write_request(region.ends.client, region.ends.server, 0, 64, 1), region.region->rkey, 0));
}

void what_is_invalidated_is_reached_no_more(void **) {
    auto &here = make<Bindable>();
    ibv_mw &window = here.window(IBV_MW_TYPE_2);
    for (int i = 0; i < 300; ++i) {  // the key's own bits come around
        const std::uint32_t key = here.bind_for_peer(window, 0, 4096, writing);
        assert_int_equal(here.post_bind(window, here.part(0, 64, writing), ibv_inc_rkey(key)), EINVAL);
        if (i % 10 == 0) {
            here.expect_written(key, 0, 64);
        }
        assert_int_equal(here.post_invalidation(key), 0);
        here.expect_opcode(72, IBV_WC_LOCAL_INV);
        assert_int_equal(here.post_invalidation(key), EINVAL);
    }
    here.expect_refused(here.at(write_request(here.ends.client, here.ends.server, 0, 64, 1), window.rkey, 0));
}

void the_peer_gives_a_window_back(void **) {
    auto &here = make<Bindable>();
    ibv_mw &window = here.window(IBV_MW_TYPE_2);
    Ends &ends = here.ends;
    for (std::uint64_t i = 0; i < 10; ++i) {
        const std::uint32_t key = here.bind_for_peer(window, 0, 4096, writing);
        here.expect_written(key, 0, 64);
        Request back = send_request(ends.client, 0, 8, 2);
        back.opcode = IBV_WR_SEND_WITH_INV;
        back.immediate = key;
        assert_int_equal(post_receive(ends.server, 3, {sge(ends.server, 0, 8)}), 0);
        assert_int_equal(post(ends.client, {back}), 0);
        expect_completion(ends.client.cq, 2);
        const ibv_wc received = next_completion(ends.server.cq);
        assert_int_equal(received.wc_flags, IBV_WC_WITH_INV);
        assert_int_equal(received.invalidated_rkey, key);
        assert_int_equal(here.post_invalidation(key), EINVAL);
    }
    here.expect_refused(here.at(write_request(ends.client, ends.server, 0, 64, 1), window.rkey, 0));
    // The window is free, and its region too.
    assert_int_equal(softrdma_ibv_rereg_mr(here.region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                                           IBV_ACCESS_LOCAL_WRITE),
                     0);
}

void a_region_with_a_window_stays(void **) {
    auto &here = make<Bindable>();
    ibv_mw &window = here.window(IBV_MW_TYPE_2);
    std::vector<std::byte> more(4096);
    ibv_mr *const region = softrdma_ibv_reg_mr(here.ends.server.pd, more.data(), more.size(),
                                               int{IBV_ACCESS_LOCAL_WRITE} | int{IBV_ACCESS_MW_BIND});
    ibv_mw_bind_info info = here.part(0, 64, writing);
    info.mr = region;
    info.addr = reinterpret_cast<std::uintptr_t>(more.data());
    const std::uint32_t key = ibv_inc_rkey(window.rkey);
    assert_int_equal(here.post_bind(window, info, key), 0);
    here.expect_opcode(71, IBV_WC_BIND_MW);
    assert_int_equal(softrdma_ibv_dereg_mr(region), EBUSY);
    errno = 0;
    assert_int_equal(
        softrdma_ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, full_access),
        IBV_REREG_MR_ERR_INPUT);
    assert_int_equal(errno, EBUSY);
    assert_int_equal(here.post_invalidation(key), 0);
    here.expect_opcode(72, IBV_WC_LOCAL_INV);
    assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
    assert_int_equal(softrdma_ibv_dealloc_pd(here.ends.server.pd), EBUSY);
}

void what_cannot_be_bound(void **) {
    auto &here = make<Bindable>();
    ibv_mw &window = here.window(IBV_MW_TYPE_2);
    const std::uint32_t key = ibv_inc_rkey(window.rkey);
    errno = 0;
    assert_null(ibv_alloc_mw(here.ends.server.pd, static_cast<ibv_mw_type>(3)));
    assert_int_equal(errno, EINVAL);
    const auto refused = [&](const ibv_mw_bind_info &info) { return here.post_bind(window, info, key); };
    assert_int_equal(refused(here.part(0, 0, writing)), EINVAL);
    assert_int_equal(refused(here.part(0, here.bytes.size() + 1, writing)), EINVAL);
    assert_int_equal(refused(here.part(here.bytes.size() - 1, 2, writing)), EINVAL);
    assert_int_equal(refused(here.part(0, UINT64_MAX, writing)), EINVAL);
    assert_int_equal(refused(here.part(0, 64, IBV_ACCESS_MW_BIND)), EINVAL);
    assert_int_equal(refused(here.part(0, 64, SOFTRDMA_ACCESS_FLUSH_PERSISTENT)), EINVAL);
    ibv_mw_bind_info info = here.part(0, 64, writing);
    info.mr = nullptr;
    assert_int_equal(refused(info), EINVAL);
    info.mr = here.ends.server.mr;  // without IBV_ACCESS_MW_BIND
    info.addr = here.ends.server.address();
    assert_int_equal(refused(info), EINVAL);
    assert_int_equal(here.post_bind(window, here.part(0, 64, writing), key ^ 1U << 20), EINVAL);
    std::vector<std::byte> more(64);
    ibv_mr *const read_only = here.ends.server.register_memory(more.data(), more.size(), IBV_ACCESS_MW_BIND);
    info.mr = read_only;
    info.addr = reinterpret_cast<std::uintptr_t>(more.data());
    assert_int_equal(refused(info), EINVAL);
    info.mr = here.ends.client.mr;  // of another domain
    info.addr = here.ends.client.address();
    assert_int_equal(refused(info), EINVAL);
    assert_int_equal(here.post_invalidation(here.region->rkey), EINVAL);
    assert_int_equal(here.post_invalidation(0), EINVAL);
    ibv_mw_bind twice{.wr_id = 1, .send_flags = 0, .bind_info = here.part(0, 64, writing)};
    assert_int_equal(ibv_bind_mw(here.ends.server.id->qp, &window, &twice), EINVAL);  // type 2
    expect_no_completion(here.ends.server.cq);
    here.expect_written(here.bind_for_peer(window, 0, 64, writing), 0, 64);
}

// Bindings stand among other requests of a chain, and complete in their turn.
void a_chain_binds_and_tells(void **) {
    auto &here = make<Bindable>(Sizes{.send_operations = std::uint64_t{IBV_QP_EX_WITH_SEND} |
                                                         std::uint64_t{IBV_QP_EX_WITH_BIND_MW} |
                                                         std::uint64_t{IBV_QP_EX_WITH_LOCAL_INV}});
    Ends &ends = here.ends;
    ibv_qp_ex *const qp = softrdma_ibv_qp_to_qp_ex(ends.server.id->qp);
    ibv_mw &window = here.window(IBV_MW_TYPE_2);
    const ibv_mw_bind_info info = here.part(0, 64, writing);
    std::uint32_t key = ibv_inc_rkey(window.rkey);
    const auto begin = [&](std::uint64_t wr_id) {
        qp->wr_id = wr_id;
        qp->wr_flags = IBV_SEND_SIGNALED;
    };
    const auto send_key = [&](std::uint64_t wr_id) {
        begin(wr_id);
        ibv_wr_send(qp);
        ibv_wr_set_inline_data(qp, &key, sizeof(key));
    };
    assert_int_equal(post_receive(ends.client, 9, {sge(ends.client, 0, 8)}), 0);
    assert_int_equal(post_receive(ends.client, 10, {sge(ends.client, 8, 8)}), 0);
    ibv_wr_start(qp);
    send_key(1);
    begin(2);
    ibv_wr_bind_mw(qp, &window, key, &info);
    send_key(3);
    assert_int_equal(ibv_wr_complete(qp), 0);
    expect_completion(ends.server.cq, 1);
    here.expect_opcode(2, IBV_WC_BIND_MW);
    expect_completion(ends.server.cq, 3);
    expect_completion(ends.client.cq, 9);
    expect_completion(ends.client.cq, 10);
    here.expect_written(key, 0, 64);
    // A chain with a wrong key posts nothing of what is behind it.
    ibv_wr_start(qp);
    begin(4);
    ibv_wr_local_inv(qp, key ^ 1U);
    send_key(5);
    assert_int_equal(ibv_wr_complete(qp), EINVAL);
    expect_no_completion(ends.server.cq);
    ibv_wr_start(qp);
    begin(6);
    ibv_wr_local_inv(qp, key);
    assert_int_equal(ibv_wr_complete(qp), 0);
    here.expect_opcode(6, IBV_WC_LOCAL_INV);
    // A queue without room changes no window.
    key = here.bind_for_peer(window, 0, 64, writing);
    std::vector<Request> full(16, unsignaled(send_request(ends.server, 0, 0, 7)));
    full.back().flags = IBV_SEND_SIGNALED;
    for (std::uint64_t i = 0; i < 16; ++i) {
        assert_int_equal(post_receive(ends.client, 20 + i, {sge(ends.client, 0, 8)}), 0);
    }
    assert_int_equal(post(ends.server, full), 0);
    assert_int_equal(here.post_invalidation(key), ENOMEM);
    expect_completion(ends.server.cq, 7);
    for (std::uint64_t i = 0; i < 16; ++i) {
        expect_completion(ends.client.cq, 20 + i);
    }
    here.expect_written(key, 0, 64);
}

// Small writes in a loop may leave together. A request that changes a window stays in its turn among them,
// and the last one leaves without a further call.
void a_window_changes_inside_a_burst(void **) {
    constexpr unsigned first_wr_id = 100;
    auto &here = make<Bindable>(Sizes{.send_wr = 256, .cqe = 1024});
    Ends &ends = here.ends;
    ibv_mw &window = here.window(IBV_MW_TYPE_2);
    for (unsigned round = 1; round <= 10; ++round) {
        fill(ends.server, 0, 2048, round);
        std::vector<std::uint64_t> expected;
        std::uint64_t writes = 0;
        bool bound = false;
        for (unsigned i = 1; i <= 200; ++i) {
            if (i % 20 != 0) {
                const Request write =
                    write_request(ends.server, ends.client, writes * 8, 8, first_wr_id + writes);
                assert_int_equal(post(ends.server, {write}), 0);
                expected.push_back(first_wr_id + writes++);
            } else if (bound) {
                assert_int_equal(here.post_invalidation(window.rkey), 0);
                expected.push_back(72);
                bound = false;
            } else {
                const std::uint32_t key = ibv_inc_rkey(window.rkey);
                assert_int_equal(here.post_bind(window, here.part(0, 64, writing), key), 0);
                expected.push_back(71);
                bound = true;
            }
        }
        for (const std::uint64_t wr_id : expected) {
            expect_completion(ends.server.cq, wr_id);
        }
        expect_no_completion(ends.server.cq);
        settle(ends.server, ends.client);
        assert_true(same(ends.server, ends.client, 0, writes * 8));
    }
}

// Each of two threads binds and invalidates a window of its own, with the same queue pair.
void two_threads_change_windows(void **) {
    constexpr unsigned changes = 100;
    auto &here = make<Bindable>(Sizes{.send_wr = 2 * changes, .cqe = 4 * changes});
    ibv_mw *const windows[] = {&here.window(IBV_MW_TYPE_2), &here.window(IBV_MW_TYPE_2)};
    const auto change = [&here](ibv_mw &window) -> std::string {
        for (unsigned i = 0; i < changes; ++i) {
            const int error =
                i % 2 == 0 ? here.post_bind(window, here.part(0, 64, writing), ibv_inc_rkey(window.rkey))
                           : here.post_invalidation(window.rkey);
            if (error != 0) {
                return "a change is refused with " + std::to_string(error);
            }
        }
        return {};
    };
    for (unsigned round = 0; round < 20; ++round) {
        Thread other{[&] { return change(*windows[1]); }};
        const std::string refused = change(*windows[0]);
        other.expect_well();
        assert_string_equal(refused.c_str(), "");
        for (unsigned i = 0; i < 2 * changes; ++i) {
            assert_int_equal(next_completion(here.ends.server.cq).status, IBV_WC_SUCCESS);
        }
    }
}

// A server whose client writes until it is refused. The main thread may not assert while the client's runs.
class Written {
public:
    explicit Written(bool by_type_1) : window_{here_.window(by_type_1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2)} {
        if (by_type_1) {
            here_.bind(window_, 0, here_.bytes.size(), writing);
        } else {
            (void)here_.bind_for_peer(window_, 0, here_.bytes.size(), writing);
        }
    }
    // Invalidates the window after so many writes. Returns whether no byte landed after the completion.
    bool invalidate_after(unsigned writes) {
        Ends &ends = here_.ends;
        const Request write =
            here_.at(write_request(ends.client, ends.server, 0, here_.bytes.size(), 1), window_.rkey, 0);
        std::atomic<unsigned> written{0};
        Thread client{[&] {
            ibv_wc completion{};
            do {
                if (post(ends.client, {write}) != 0 || !poll_for(ends.client.cq, completion)) {
                    return std::string{"a write is not posted or not complete"};
                }
                ++written;
            } while (completion.status == IBV_WC_SUCCESS);
            return std::string{};
        }};
        while (written < writes) {
            std::this_thread::yield();
        }
        // The peer may be refused before the request is complete, which is flushed then.
        ibv_mw_bind nothing{.wr_id = 70, .send_flags = IBV_SEND_SIGNALED, .bind_info = here_.part(0, 0, 0)};
        const int posted = window_.type == IBV_MW_TYPE_1 ? ibv_bind_mw(ends.server.id->qp, &window_, &nothing)
                                                         : here_.post_invalidation(window_.rkey);
        ibv_wc completion{};
        const bool completed = posted == 0 && poll_for(ends.server.cq, completion);
        std::ranges::fill(here_.bytes, std::byte{0xee});
        client.expect_well();
        return completed &&
               std::ranges::all_of(here_.bytes, [](std::byte one) { return one == std::byte{0xee}; });
    }

private:
    Bindable here_;
    ibv_mw &window_;
};

void no_write_lands_behind_an_invalidation(void **) {
    for (unsigned round = 0; round < 30; ++round) {
        assert_true(make<Written>(round % 2 != 0).invalidate_after(1 + 3 * round));
    }
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_window_of_type_1_is_bound_again),
    cmocka_unit_test(a_window_without_bytes_is_none),
    cmocka_unit_test(a_window_has_its_own_bounds),
    cmocka_unit_test(a_window_has_its_own_rights),
    cmocka_unit_test(what_is_invalidated_is_reached_no_more),
    cmocka_unit_test(the_peer_gives_a_window_back),
    cmocka_unit_test(a_region_with_a_window_stays),
    cmocka_unit_test(what_cannot_be_bound),
    cmocka_unit_test(a_chain_binds_and_tells),
    cmocka_unit_test(a_window_changes_inside_a_burst),
    cmocka_unit_test(two_threads_change_windows),
    cmocka_unit_test(no_write_lands_behind_an_invalidation),
};

}  // namespace

std::span<const CMUnitTest> window_tests() {
    return tests;
}

}  // namespace conformance
