// SPDX-License-Identifier: BSD-3-Clause
// Peers begin a segment and do not end it, and programs leave messages without a receive. This program
// shortens the limits for all its tests.
#include "../../limits.hpp"

// These come last, because they assert.
#include "device.hpp"
#include "stopped.hpp"

namespace {

using namespace soft::wire;
using test::Bytes;
using test::Ends;
using test::fpdu;

Bytes half(const Bytes &all) {
    return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2)};
}

// The segment stops in its header or in its payload, and is a small or a large one.
void a_segment_that_does_not_end_costs_the_connection(Ends &ends) {
    auto &[device, peer, other] = ends;
    (void)device.establish(other, {});  // has nothing to say, and stays
    const Segment write{.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address()};
    const Bytes whole[] = {fpdu(write, {}), fpdu(write, Bytes(100)), fpdu(write, Bytes(60'000)),
                           fpdu({.opcode = Opcode::Send, .msn = 1}, Bytes(100))};
    for (const Bytes &segment : whole) {
        rdma_cm_id *const id = device.establish(peer, {.ird = 4, .ord = 4});
        device.post(id, IBV_WR_RDMA_READ, 1, 0, 8, 0x1000, 0x77);
        peer.send(half(segment));
        device.expect_completion(1, IBV_WC_RETRY_EXC_ERR);
        (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
        device.close(id);
    }
    assert_false(device.has_event());
}

// The device itself has stopped reading, so it does not blame the peer as long as that lasts.
void a_segment_that_waits_for_a_receive_is_not_slow(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const patient = device.establish(peer, {});
    const Bytes all = test::pattern(60'000, 3);
    for (std::uint32_t msn = 1; msn <= 4; ++msn) {
        peer.send(fpdu({.opcode = Opcode::Send, .msn = msn}, all));
    }
    // This is three times as long as the device bears a slow peer.
    for (int times = 0; times < 3; ++times) {
        rdma_cm_id *const slow = device.establish(other, {});
        other.send(half(test::ready_to_receive()));
        (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, slow);
        device.close(slow);
    }
    for (std::uint64_t wr_id = 1; wr_id <= 4; ++wr_id) {
        device.post_receive(patient, wr_id, 0, all.size());
        device.expect_completion(wr_id);
        test::assert_same_bytes({device.at(0), all.size()}, all);
    }
}

// When the device reads again, the missing part of a segment has its whole time again.
void a_segment_that_waited_has_its_time_again(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const patient = device.establish(peer, {});
    const Bytes all = test::pattern(60'000, 3);
    const Bytes second = fpdu({.opcode = Opcode::Send, .msn = 2}, all);
    peer.send(fpdu({.opcode = Opcode::Send, .msn = 1}, all));
    peer.send(half(second));  // more than is kept
    device.work();
    // This segment begins later, so the device takes it for late later.
    rdma_cm_id *const slow = device.establish(other, {});
    other.send(half(test::ready_to_receive()));
    device.work_until_read(other);
    {
        const test::ChangedLimit longer{test::limits().segment_timeout, std::chrono::minutes{10}};
        device.post_receive(patient, 1, 0, all.size());
        device.expect_completion(1);
        (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, slow);
    }
    assert_false(device.has_event());
    peer.send(std::span{second}.subspan(second.size() / 2));
    device.post_receive(patient, 2, 0, all.size());
    device.expect_completion(2);
    test::assert_same_bytes({device.at(0), all.size()}, all);
}

// The rest comes in time. The process is stopped when it comes, and until the limit is over.
void a_process_that_was_stopped_takes_what_came(Ends &ends) {
    auto &[device, peer, other] = ends;
    const Bytes all = test::pattern(1000, 3);
    const Bytes segment = fpdu({.opcode = Opcode::Send, .msn = 1}, all);
    rdma_cm_id *const id = device.establish(peer, {});
    device.post_receive(id, 1, 0, all.size());
    peer.send(half(segment));
    device.work_until_read(peer);
    test::act_while_stopped(test::limits().segment_timeout * 3 / 2,
                            [&] { peer.send(std::span{segment}.subspan(segment.size() / 2)); });
    device.expect_completion(1);
    test::assert_same_bytes({device.at(0), all.size()}, all);
    assert_false(device.has_event());
}

Bytes sends(std::uint32_t count, const Bytes &payload) {
    Bytes all;
    for (std::uint32_t msn = 1; msn <= count; ++msn) {
        all = test::joined(all, fpdu({.opcode = Opcode::Send, .msn = msn}, payload));
    }
    return all;
}

// The device keeps a message of the first length, and stalls at one of the second.
constexpr std::size_t kept_bytes = 100;
constexpr std::size_t stalling_bytes = 60'000;

// Programs send and disconnect, and rely on it that all those bytes arrive.
void the_end_comes_behind_the_messages_before_it(Ends &ends) {
    auto &[device, peer, other] = ends;
    constexpr std::uint32_t count = 4;
    const test::ChangedLimit longer{test::limits().unclaimed_timeout, std::chrono::minutes{10}};
    for (const std::size_t bytes : {kept_bytes, stalling_bytes}) {
        rdma_cm_id *const id = device.establish(peer, {});
        const Bytes all = test::pattern(bytes, 3);
        peer.send(sends(count, all));
        peer.finish();
        for (std::uint64_t wr_id = 1; wr_id <= count; ++wr_id) {
            assert_false(device.has_event());
            device.post_receive(id, wr_id, 0, bytes);
            device.expect_completion(wr_id);
            test::assert_same_bytes({device.at(0), bytes}, all);
        }
        (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
        device.close(id);
    }
}

// A program may wait for the end of the connection before it does anything else.
void the_end_does_not_wait_for_ever(Ends &ends) {
    auto &[device, peer, other] = ends;
    for (const std::size_t bytes : {kept_bytes, stalling_bytes}) {
        rdma_cm_id *const id = device.establish(peer, {});
        peer.send(sends(2, Bytes(bytes)));
        peer.finish();
        (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
        device.post_receive(id, 1, 0, bytes);
        device.expect_completion(1, IBV_WC_WR_FLUSH_ERR);
        device.close(id);
    }
}

}  // namespace

int main() {
    test::limits().segment_timeout = test::limits().unclaimed_timeout = std::chrono::milliseconds{200};
    const CMUnitTest tests[] = {fixture_test(a_segment_that_does_not_end_costs_the_connection),
                                fixture_test(a_segment_that_waits_for_a_receive_is_not_slow),
                                fixture_test(a_segment_that_waited_has_its_time_again),
                                fixture_test(a_process_that_was_stopped_takes_what_came),
                                fixture_test(the_end_comes_behind_the_messages_before_it),
                                fixture_test(the_end_does_not_wait_for_ever)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
