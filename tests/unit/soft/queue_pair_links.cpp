// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/queue_pair: on faulty links each request ends once and in
// order, however a link changes the bytes.
#include <arpa/inet.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "../../loopback.hpp"
#include "../link/faulty_link.hpp"
#include "soft/connected/queue_pair.hpp"
#include "softrdma.h"

// This comes last, because it asserts.
#include "../link/contract.hpp"

namespace {

using test::FaultyLink;
using test::LinkFaults;

constexpr std::size_t half_bytes = 64;
constexpr auto patience = std::chrono::seconds{40};

// This is a queue pair, and the owner of its connection.
struct End final : soft::ConnectionOwner {
    explicit End(ibv_context *context) : pd{softrdma_ibv_alloc_pd(context)} {
        assert_non_null(pd);
        cq = softrdma_ibv_create_cq(context, 16, nullptr, nullptr, 0);
        assert_non_null(cq);
        constexpr int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_ATOMIC;
        mr = softrdma_ibv_reg_mr(pd, memory.data(), memory.size(), rights);
        assert_non_null(mr);
        ibv_qp_init_attr attributes{};
        attributes.send_cq = attributes.recv_cq = cq;
        attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 8;
        attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
        attributes.qp_type = IBV_QPT_RC;
        attributes.sq_sig_all = 1;
        qp = softrdma_ibv_create_qp(pd, &attributes);
        assert_non_null(qp);
    }
    ~End() {
        assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
        assert_int_equal(softrdma_ibv_dereg_mr(mr), 0);
        assert_int_equal(softrdma_ibv_destroy_cq(cq), 0);
        assert_int_equal(softrdma_ibv_dealloc_pd(pd), 0);
    }
    End(const End &) = delete;
    End &operator=(const End &) = delete;

    void connection_established() override {}
    void connection_ended() override { ended = true; }

    void start(std::unique_ptr<soft::Link> link, bool initiator) {
        soft::tcp::Address peer{};
        reinterpret_cast<sockaddr_in &>(peer) = test::loopback(1);
        const soft::ConnectionParameters parameters{
            .initiator = initiator, .soft_peer = true, .ird = 4, .ord = 4};
        static_cast<soft::QueuePair *>(soft::AnyQueuePair::of(qp))
            ->start(std::move(link), peer, parameters, this);
    }

    [[nodiscard]] ibv_sge half(bool second) const {
        return {.addr = reinterpret_cast<std::uintptr_t>(memory.data()) + (second ? half_bytes : 0),
                .length = half_bytes,
                .lkey = mr->lkey};
    }

    void post_receive() {
        ibv_sge sge = half(true);
        ibv_recv_wr request{.wr_id = 100, .next = nullptr, .sg_list = &sge, .num_sge = 1};
        ibv_recv_wr *bad = nullptr;
        assert_int_equal(ibv_post_recv(qp, &request, &bad), 0);
    }

    struct Request {
        ibv_wr_opcode opcode;
        ibv_sge sge;
    };
    // Posts the requests in one call. Those that name memory of the other end name that of `to`.
    void post(std::span<Request> requests, const ibv_mr &to) {
        std::vector<ibv_send_wr> chain(requests.size());
        const auto there = reinterpret_cast<std::uintptr_t>(to.addr);
        for (std::size_t i = 0; i < chain.size(); ++i) {
            chain[i].wr_id = posted++;
            chain[i].next = i + 1 < chain.size() ? &chain[i + 1] : nullptr;
            chain[i].opcode = requests[i].opcode;
            chain[i].sg_list = &requests[i].sge;
            chain[i].num_sge = 1;
            if (chain[i].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
                chain[i].wr.atomic = {.remote_addr = there, .compare_add = 1, .swap = 0, .rkey = to.rkey};
            } else {
                chain[i].wr.rdma = {.remote_addr = there, .rkey = to.rkey};
            }
        }
        ibv_send_wr *bad = nullptr;
        assert_int_equal(ibv_post_send(qp, chain.data(), &bad), 0);
    }
    void post(ibv_wr_opcode opcode, ibv_sge sge, const ibv_mr &to) {
        Request request{opcode, sge};
        post({&request, 1}, to);
    }
    void post(ibv_wr_opcode opcode, ibv_sge sge, const End &to) { post(opcode, sge, *to.mr); }

    void poll() {
        ibv_wc completion;
        while (ibv_poll_cq(cq, 1, &completion) == 1) {
            completions.push_back(completion);
        }
    }

    // The memory is aligned for the atomic operation.
    alignas(8) std::array<std::byte, 2 * half_bytes> memory{};
    ibv_pd *pd;
    ibv_cq *cq = nullptr;
    ibv_mr *mr = nullptr;
    ibv_qp *qp = nullptr;
    std::atomic<bool> ended{false};  // by the engine, when that serves it
    std::uint64_t posted = 0;
    std::vector<ibv_wc> completions;
};

void poll_until(End &initiator, End &target, const auto &done) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!done()) {
        assert_true(std::chrono::steady_clock::now() < end);
        initiator.poll();
        target.poll();
    }
}

// This struct has the two ends, and the faulty link of the initiator.
struct Pair {
    Pair(ibv_context *context, const LinkFaults &faults) : initiator{context}, target{context} {
        std::ranges::copy(test::pattern(half_bytes, 1), initiator.memory.begin());
        test::Links links = test::tcp_links();
        auto faulty = std::make_unique<FaultyLink>(std::move(links.here), faults);
        link = faulty.get();
        target.post_receive();
        target.start(std::move(links.there), false);
        initiator.start(std::move(faulty), true);
    }

    // Posts a request for each way in which payload travels, in both directions. Three requests write the
    // second half of a memory. One call posts all, so none is posted when the connection has ended.
    void post_all() {
        ibv_sge word = initiator.half(true);
        word.length = 8;
        std::array<End::Request, 4> all{{{IBV_WR_RDMA_WRITE, initiator.half(false)},
                                         {IBV_WR_SEND, initiator.half(false)},
                                         {IBV_WR_RDMA_READ, initiator.half(true)},
                                         {IBV_WR_ATOMIC_FETCH_AND_ADD, word}}};
        initiator.post(all, *target.mr);
    }

    End initiator;
    End target;
    FaultyLink *link;  // until the connection ends
};

constexpr std::size_t requests = 4;

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is the device's.
void say_nothing(int, const char *, int, const char *, const char *, ...) {}

ibv_context *device() {
    static ibv_context *const context = [] {
        softrdma_set_log(say_nothing, 0);
        ibv_device **const devices = softrdma_ibv_get_device_list(nullptr);
        ibv_context *const opened = softrdma_ibv_open_device(devices[0]);
        softrdma_ibv_free_device_list(devices);
        return opened;
    }();
    assert_non_null(context);
    return context;
}

// All requests succeed, however the link splits and delays the bytes. Traffic has the numbers of
// bytes that the initiator sent and received.
struct Traffic {
    std::size_t sent;
    std::size_t received;
};
Traffic all_succeed(const LinkFaults &faults) {
    Pair pair{device(), faults};
    auto &[initiator, target, link] = pair;
    pair.post_all();
    poll_until(initiator, target,
               [&] { return initiator.completions.size() == requests && !target.completions.empty(); });
    for (std::size_t i = 0; i < requests; ++i) {
        assert_int_equal(initiator.completions[i].wr_id, i);
        assert_int_equal(initiator.completions[i].status, IBV_WC_SUCCESS);
    }
    const test::Bytes sent = test::pattern(half_bytes, 1);
    const std::span received{target.memory};
    test::assert_same_bytes(received.subspan(half_bytes), sent);
    // The atomic operation was the last request, and added one to the first word.
    test::assert_same_bytes(std::span{initiator.memory}.subspan(half_bytes), sent);
    test::assert_same_bytes(received.subspan(8, half_bytes - 8), std::span{sent}.subspan(8));
    assert_int_equal(static_cast<unsigned>(received[0]), (static_cast<unsigned>(sent[0]) + 1) % 256);
    return {.sent = link->sent(), .received = link->received()};
}

void bytes_may_come_one_by_one(void **) {
    const Traffic whole = all_succeed({});
    const Traffic parts = all_succeed({.most = 1});
    assert_int_equal(parts.sent, whole.sent);
    assert_int_equal(parts.received, whole.received);
    (void)all_succeed({.most = 7, .delays = true});
}

// The link is cut, so the connection ends. The oldest request that is open has lost its
// peer, and those behind it are flushed.
void ends_in_order(const LinkFaults &faults) {
    Pair pair{device(), faults};
    auto &[initiator, target, link] = pair;
    pair.post_all();
    poll_until(initiator, target, [&] {
        return initiator.ended && target.ended && initiator.completions.size() == requests &&
               target.completions.size() == 1;
    });
    ibv_wc_status expected = IBV_WC_SUCCESS;
    for (std::size_t i = 0; i < requests; ++i) {
        assert_int_equal(initiator.completions[i].wr_id, i);
        if (expected == IBV_WC_RETRY_EXC_ERR) {
            expected = IBV_WC_WR_FLUSH_ERR;
        } else if (expected == IBV_WC_SUCCESS && initiator.completions[i].status != IBV_WC_SUCCESS) {
            expected = IBV_WC_RETRY_EXC_ERR;
        }
        assert_int_equal(initiator.completions[i].status, expected);
    }
    assert_int_not_equal(expected, IBV_WC_SUCCESS);
    initiator.poll();
    target.poll();
    assert_int_equal(initiator.completions.size(), requests);
    assert_int_equal(target.completions.size(), 1);
}

void the_link_may_be_cut_behind_any_byte(void **) {
    const Traffic whole = all_succeed({});
    for (std::size_t byte = 0; byte < whole.sent; ++byte) {
        ends_in_order({.sent_before_cut = byte});
    }
    for (std::size_t byte = 0; byte < whole.received; ++byte) {
        ends_in_order({.received_before_cut = byte});
    }
}

// Both ends fill small rings with segments that are longer than these. Each receives what the other has sent,
// and polls its link while it waits for room.
void both_may_be_full_and_poll(void **) {
    constexpr std::uint32_t bytes = 1'000'000;
    constexpr int rounds = 20;
    End initiator{device()};
    End target{device()};
    std::array<End *, 2> ends{&initiator, &target};
    std::vector<test::Bytes> memory(ends.size(), test::pattern(bytes, 1));
    std::vector<ibv_mr *> regions;
    for (std::size_t i = 0; i < ends.size(); ++i) {
        regions.push_back(softrdma_ibv_reg_mr(ends[i]->pd, memory[i].data(), bytes,
                                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
        assert_non_null(regions[i]);
    }
    test::Links links = test::small_memory_links();
    target.start(std::move(links.there), false);
    initiator.start(std::move(links.here), true);
    for (std::size_t round = 1; round <= rounds; ++round) {
        for (std::size_t i = 0; i < ends.size(); ++i) {
            const ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(memory[i].data()),
                              .length = bytes,
                              .lkey = regions[i]->lkey};
            ends[i]->post(IBV_WR_RDMA_WRITE, sge, *regions[1 - i]);
        }
        poll_until(initiator, target, [&] {
            return initiator.completions.size() >= round && target.completions.size() >= round;
        });
    }
    for (std::size_t i = 0; i < ends.size(); ++i) {
        for (const ibv_wc &completion : ends[i]->completions) {
            assert_int_equal(completion.status, IBV_WC_SUCCESS);
        }
        assert_int_equal(softrdma_ibv_dereg_mr(regions[i]), 0);
    }
}

// Runs a function each time when the link below has taken bytes, before its user knows that.
class TellingLink final : public FaultyLink {
public:
    TellingLink(std::unique_ptr<soft::Link> link, std::function<void()> tell)
        : FaultyLink{std::move(link), {}}, tell_{std::move(tell)} {}
    [[nodiscard]] Sent send(std::span<const iovec> pieces) override {
        const Sent sent = FaultyLink::send(pieces);
        tell_();
        return sent;
    }

private:
    const std::function<void()> tell_;
};

// The peer has the message, and has answered it, before the call that sends the message returns. Meanwhile
// another thread polls.
void an_answer_completes_behind_its_message(void **) {
    constexpr int most_looks = 10'000;
    End initiator{device()};
    End target{device()};
    std::atomic<bool> answered{false};
    std::atomic<std::size_t> polled{0};
    test::Links links = test::tcp_links();
    initiator.post_receive();
    target.post_receive();
    target.start(std::move(links.there), false);
    initiator.start(std::make_unique<TellingLink>(std::move(links.here),
                                                  [&] {
                                                      if (answered || initiator.posted == 0) {
                                                          return;
                                                      }
                                                      while (target.completions.empty()) {
                                                          target.poll();
                                                      }
                                                      target.post(IBV_WR_SEND, target.half(false), initiator);
                                                      answered = true;
                                                      for (int i = 0; i < most_looks && polled == 0; ++i) {
                                                          std::this_thread::yield();
                                                      }
                                                  }),
                    true);
    std::thread poller{[&] {
        while (initiator.completions.size() < 2) {
            initiator.poll();
            polled = initiator.completions.size();
        }
    }};
    initiator.post(IBV_WR_SEND, initiator.half(false), target);
    poller.join();
    assert_true(answered);
    assert_int_equal(initiator.completions[0].opcode, IBV_WC_SEND);
    assert_int_equal(initiator.completions[1].opcode, IBV_WC_RECV);
}

// A link that takes as many bytes as it was given room for.
class NarrowLink final : public FaultyLink {
public:
    explicit NarrowLink(std::unique_ptr<soft::Link> link) : FaultyLink{std::move(link), {}} {}
    [[nodiscard]] Sent send(std::span<const iovec> pieces) override {
        Sent all{};
        for (iovec piece : pieces) {
            piece.iov_len = std::min(piece.iov_len, room.load());
            const Sent sent = piece.iov_len == 0 ? Sent{} : FaultyLink::send({&piece, 1});
            assert_int_equal(sent.bytes, piece.iov_len);
            all.bytes += sent.bytes;
            room -= sent.bytes;
        }
        return all;
    }
    std::atomic<std::size_t> room{0};  // the engine sends too
};

// Returns how many bytes a message of half_bytes has on a link.
std::size_t message_bytes() {
    Pair pair{device(), {}};
    pair.initiator.post(IBV_WR_SEND, pair.initiator.half(false), pair.target);
    poll_until(pair.initiator, pair.target, [&] { return !pair.target.completions.empty(); });
    return pair.link->sent();
}

// The link has the whole message, and not the bytes that were posted with it.
void an_answer_completes_behind_its_message_though_more_waits(void **) {
    const std::size_t message = message_bytes();
    End initiator{device()};
    End target{device()};
    test::Links links = test::tcp_links();
    auto narrow = std::make_unique<NarrowLink>(std::move(links.here));
    NarrowLink &link = *narrow;
    initiator.post_receive();
    target.post_receive();
    target.start(std::move(links.there), false);
    initiator.start(std::move(narrow), true);
    link.room = message;
    std::array<End::Request, 2> both{
        {{IBV_WR_SEND, initiator.half(false)}, {IBV_WR_RDMA_WRITE, initiator.half(false)}}};
    initiator.post(both, *target.mr);
    poll_until(initiator, target, [&] { return !target.completions.empty(); });
    target.post(IBV_WR_SEND, target.half(false), initiator);
    poll_until(initiator, target, [&] { return initiator.completions.size() == 2; });
    assert_int_equal(initiator.completions[0].opcode, IBV_WC_SEND);
    assert_int_equal(initiator.completions[1].opcode, IBV_WC_RECV);
    link.room = SIZE_MAX;
    poll_until(initiator, target, [&] { return initiator.completions.size() == 3; });
    assert_int_equal(initiator.completions[2].opcode, IBV_WC_RDMA_WRITE);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(both_may_be_full_and_poll),
        cmocka_unit_test(bytes_may_come_one_by_one),
        cmocka_unit_test(the_link_may_be_cut_behind_any_byte),
        cmocka_unit_test(an_answer_completes_behind_its_message),
        cmocka_unit_test(an_answer_completes_behind_its_message_though_more_waits),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
