// SPDX-License-Identifier: BSD-3-Clause
// The device gives up peers that send nothing more before the end of the start-up after
// limits::handshake_timeout, and serves others meanwhile. This is the one slow test of this folder.
#include "soft/ground/limits.hpp"

// These come last, because they assert.
#include "device.hpp"
#include "stopped.hpp"

namespace {

using namespace soft::wire;
using namespace std::chrono_literals;
using test::Bytes;
using test::Ends;

void half_open_peers_are_given_up(Ends &ends) {
    auto &[device, peer, other] = ends;
    // One peer never answers, and two send half a request.
    test::Peer mute;
    rdma_cm_id *const id = device.connect(mute.listen());
    mute.accept();
    (void)mute.receive_frame(MpaRole::Request);
    peer.connect(device.port());
    other.connect(device.port());
    const Bytes request = test::encoded({});
    other.send(std::span{request}.first(request.size() - 1));
    test::Peer third;
    (void)device.establish(third, {});
    // One peer is accepted, and does not send the first FPDU that it promised. Another one does.
    const MpaFrame promising{.peer_to_peer = true, .rtr_write = true, .ird = 4, .ord = 4};
    test::Peer promised;
    promised.connect(device.port());
    promised.send_frame(promising);
    rdma_cm_id *const waiting = device.take_request();
    device.accept(waiting);
    (void)promised.receive_frame(MpaRole::Reply);
    test::Peer ready;
    (void)device.establish(ready, promising);
    test::Peer in_time;
    in_time.connect(device.port());
    in_time.send(std::span{request}.first(request.size() - 1));
    assert_true(mute.silent() && peer.silent() && other.silent());
    (void)test::logged();

    // The process is stopped while the last byte of one peer comes, and until the time is over.
    test::act_while_stopped(soft::limits::handshake_timeout + 200ms,
                            [&] { in_time.send(std::span{request}.last(1)); });
    assert_int_equal(device.wait_for(RDMA_CM_EVENT_UNREACHABLE, id).status, -ETIMEDOUT);
    assert_int_equal(mute.receive_rest().size(), 0);
    assert_int_equal(peer.receive_rest().size(), 0);
    assert_int_equal(other.receive_rest().size(), 0);
    assert_int_equal(device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, waiting).status, -ECONNRESET);
    assert_int_equal(promised.receive_rest().size(), 0);
    assert_int_equal(test::logged().warnings, 4);
    assert_true(third.silent() && ready.silent());
    device.accept(device.take_request());
    (void)in_time.receive_frame(MpaRole::Reply);
    test::Peer fourth;
    (void)device.establish(fourth, {});
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(half_open_peers_are_given_up)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
