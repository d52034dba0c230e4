// SPDX-License-Identifier: BSD-3-Clause
// Tests shared receive queues with a peer on TCP, which cuts its sends where the test chooses.
#include <sys/socket.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "../../limits.hpp"
#include "soft/connected/queue_pair.hpp"
#include "soft/queues/shared_receive.hpp"
#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::Device;
using test::Ends;
using test::fpdu;
using test::pattern;
using test::Peer;
using test::plain;

// Makes a shared receive queue in the protection domain of this region.
ibv_srq *create(const ibv_mr &region) {
    ibv_srq_init_attr attributes{};
    attributes.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    ibv_srq *const srq = softrdma_ibv_create_srq(region.pd, &attributes);
    assert_non_null(srq);
    return srq;
}

void post(const Device &device, std::uint64_t wr_id, std::size_t offset, std::size_t length,
          const ibv_mr &region) {
    device.post_shared_receive(
        wr_id,
        {.addr = device.address(offset), .length = static_cast<std::uint32_t>(length), .lkey = region.lkey});
}

void send(Peer &peer, std::uint32_t msn, std::size_t size, unsigned seed) {
    peer.send(fpdu({.opcode = Opcode::Send, .msn = msn}, pattern(size, seed)));
}

// A connection that ends takes with it only the receive that it has begun to fill.
void only_the_receive_in_hand_is_flushed(Ends &ends) {
    auto &[device, peer, other] = ends;
    device.srq = create(*device.mr);
    rdma_cm_id *const first = device.establish(peer, plain);
    rdma_cm_id *const second = device.establish(other, plain);
    for (std::uint64_t i = 1; i <= 3; ++i) {
        post(device, i, i * 10'000, 10'000, *device.mr);
    }
    peer.send(fpdu({.opcode = Opcode::Send, .last = false, .msn = 1}, pattern(9000, 1)));
    send(other, 1, 100, 2);
    const ibv_wc whole = device.next_completion();
    assert_int_equal(whole.status, IBV_WC_SUCCESS);
    assert_int_equal(whole.qp_num, second->qp->qp_num);
    const std::uint64_t in_hand = whole.wr_id == 1 ? 2 : 1;
    device.work_until_read(peer);
    peer.close();
    const ibv_wc flushed = device.next_completion();
    assert_int_equal(flushed.status, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(flushed.wr_id, in_hand);
    assert_int_equal(flushed.qp_num, first->qp->qp_num);
    send(other, 2, 200, 3);
    device.expect_completion(3);
    assert_same_bytes({device.at(30'000), 200}, pattern(200, 3));
    device.close(first);
    device.close(second);
    assert_int_equal(softrdma_ibv_destroy_srq(device.srq), 0);
}

// The keys of its receives are those of its own protection domain.
void receives_are_in_the_domain_of_the_queue(Ends &ends) {
    auto &[device, peer, other] = ends;
    device.srq = create(*device.foreign_mr);
    rdma_cm_id *const right = device.establish(peer, plain);
    rdma_cm_id *const wrong = device.establish(other, plain);
    post(device, 1, 0, 100, *device.foreign_mr);
    send(peer, 1, 100, 1);
    device.expect_completion(1);
    assert_same_bytes({device.at(0), 100}, pattern(100, 1));
    post(device, 2, 0, 100, *device.mr);
    send(other, 1, 100, 2);
    device.expect_completion(2, IBV_WC_LOC_PROT_ERR);
    device.close(right);
    device.close(wrong);
    assert_int_equal(softrdma_ibv_destroy_srq(device.srq), 0);
}

Bytes head_of(const Bytes &all, std::size_t count) {
    return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)};
}

// Peers that begin messages and do not end them hold no receive that others need. Each gets
// its receive when its message is whole.
void messages_that_are_not_whole_take_no_receive(Ends &ends) {
    auto &[device, peer, other] = ends;
    device.srq = create(*device.mr);
    for (std::uint64_t i = 1; i <= 4; ++i) {
        post(device, i, i * 20'000, 20'000, *device.mr);
    }
    const Bytes small = pattern(100, 1);
    const Bytes large = pattern(20'000, 2);
    const Bytes whole = fpdu({.opcode = Opcode::Send, .msn = 1}, small);
    const Bytes whole_large = fpdu({.opcode = Opcode::Send, .msn = 1}, large);
    struct Begun {
        Bytes begin;
        Bytes rest;
        const Bytes &message;
    };
    const auto cut = [](const Bytes &all, std::size_t at, const Bytes &message) {
        return Begun{head_of(all, at), Bytes(all.begin() + static_cast<std::ptrdiff_t>(at), all.end()),
                     message};
    };
    const Begun all_begun[] = {
        // This is a whole segment that is not the last.
        {fpdu({.opcode = Opcode::Send, .last = false, .msn = 1}, std::span{small}.first(1)),
         fpdu({.opcode = Opcode::Send, .offset = 1, .msn = 1}, std::span{small}.subspan(1)), small},
        cut(whole, untagged_bytes + 2, small),
        cut(whole, whole.size() / 2, small),
        // This is all of it except the place of the CRC.
        cut(whole, whole.size() - 1, small),
        cut(whole_large, 8000, large)};
    std::deque<Peer> peers;
    std::vector<rdma_cm_id *> ids;
    for (const Begun &begun : all_begun) {
        ids.push_back(device.establish(peers.emplace_back(), plain));
        peers.back().send(begun.begin);
        device.work_until_read(peers.back());
    }
    rdma_cm_id *const id = device.establish(other, plain);
    for (std::uint32_t i = 1; i <= 4; ++i) {
        send(other, i, 300, i);
        device.expect_completion(i);
        assert_same_bytes({device.at(i * 20'000), 300}, pattern(300, i));
        post(device, i, i * 20'000, 20'000, *device.mr);
    }
    for (std::size_t i = 0; i < std::size(all_begun); ++i) {
        peers[i].send(all_begun[i].rest);
        const ibv_wc completion = device.next_completion();
        const std::uint64_t slot = i % 4 + 1;
        assert_int_equal(completion.status, IBV_WC_SUCCESS);
        assert_int_equal(completion.wr_id, slot);
        assert_int_equal(completion.qp_num, ids[i]->qp->qp_num);
        assert_int_equal(completion.byte_len, all_begun[i].message.size());
        assert_same_bytes({device.at(slot * 20'000), all_begun[i].message.size()}, all_begun[i].message);
        post(device, slot, slot * 20'000, 20'000, *device.mr);
    }
    for (rdma_cm_id *const one : ids) {
        device.close(one);
    }
    device.close(id);
    assert_int_equal(softrdma_ibv_destroy_srq(device.srq), 0);
}

// A message that has taken its receive has to continue in time. One that
// continues slowly, byte by byte, is late too.
void a_message_in_a_shared_receive_must_go_on(Ends &ends) {
    auto &[device, peer, other] = ends;
    const test::ChangedLimit shorter{test::limits().shared_message_timeout, std::chrono::milliseconds{200}};
    device.srq = create(*device.mr);
    post(device, 1, 0, 100'000, *device.mr);
    rdma_cm_id *const id = device.establish(peer, plain);
    peer.send(fpdu({.opcode = Opcode::Send, .last = false, .msn = 1}, pattern(9000, 1)));
    std::uint32_t offset = 9000;
    device.work_until([&] {
        if (peer.silent()) {
            const Bytes byte =
                fpdu({.opcode = Opcode::Send, .last = false, .offset = offset, .msn = 1}, Bytes(1));
            offset += ::send(peer.socket(), byte.data(), byte.size(), MSG_NOSIGNAL) > 0 ? 1 : 0;
        }
        return device.has_completion();
    });
    device.expect_completion(1, IBV_WC_WR_FLUSH_ERR);
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
    device.close(id);
    assert_int_equal(softrdma_ibv_destroy_srq(device.srq), 0);
}

// A partly kept send continues into the receive that is posted next.
void a_receive_that_comes_inside_a_send(Ends &ends) {
    auto &[device, peer, other] = ends;
    device.srq = create(*device.mr);
    rdma_cm_id *const id = device.establish(peer, plain);
    const Bytes all = pattern(9000, 5);
    peer.send(fpdu({.opcode = Opcode::Send, .last = false, .msn = 1}, std::span{all}.first(5000)));
    device.work_until_read(peer);
    post(device, 1, 0, 10'000, *device.mr);
    peer.send(fpdu({.opcode = Opcode::Send, .offset = 5000, .msn = 1}, std::span{all}.subspan(5000)));
    const ibv_wc completion = device.next_completion();
    assert_int_equal(completion.wr_id, 1);
    assert_int_equal(completion.byte_len, all.size());
    assert_same_bytes({device.at(0), all.size()}, all);
    device.close(id);
    assert_int_equal(softrdma_ibv_destroy_srq(device.srq), 0);
}

// The connection that found the queue empty first is served first. A newcomer does not take its
// receive, even when the newcomer is faster. The test holds the lock under which a connection is
// served, as the thread that serves it does.
void receives_go_by_the_line(Ends &ends) {
    auto &[device, peer, other] = ends;
    device.srq = create(*device.mr);
    rdma_cm_id *const first = device.establish(peer, plain);
    rdma_cm_id *const second = device.establish(other, plain);
    auto &queue = *static_cast<soft::SharedReceiveQueue *>(device.srq);
    auto &waiting = *static_cast<soft::QueuePair *>(soft::AnyQueuePair::of(first->qp));
    auto &newcomer = *static_cast<soft::QueuePair *>(soft::AnyQueuePair::of(second->qp));
    int stolen = 0;
    int taken = 0;
    for (int round = 0; round < 64; ++round) {
        soft::Receive receive;
        std::unique_lock serving{waiting.group()->mutex()};
        assert_false(queue.take(receive, waiting));
        std::thread poster{[&] { post(device, 1, 0, 100, *device.mr); }};
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{40};
        for (bool over = false; !over && std::chrono::steady_clock::now() < deadline;) {
            if (queue.take(receive, newcomer)) {
                ++stolen;
                over = true;
            } else if (queue.take(receive, waiting)) {
                ++taken;
                over = true;
            }
        }
        queue.forget(waiting);
        queue.forget(newcomer);
        serving.unlock();
        poster.join();
    }
    assert_int_equal(stolen, 0);
    assert_int_equal(taken, 64);
    device.close(first);
    device.close(second);
    assert_int_equal(softrdma_ibv_destroy_srq(device.srq), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(only_the_receive_in_hand_is_flushed),
                                fixture_test(receives_are_in_the_domain_of_the_queue),
                                fixture_test(messages_that_are_not_whole_take_no_receive),
                                fixture_test(a_message_in_a_shared_receive_must_go_on),
                                fixture_test(a_receive_that_comes_inside_a_send),
                                fixture_test(receives_go_by_the_line)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
