// SPDX-License-Identifier: BSD-3-Clause
// A child that looks at what it inherited takes nothing of what is its parent's: not a byte of a connection,
// not an event.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

// Last, as it wants.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Ends;
using test::fpdu;
using test::pattern;

constexpr std::size_t writes = 200;

// The child is the peer too, so that it looks at once, before its parent's thread is awake.
void look(Ends &ends) {
    auto &[device, peer, other] = ends;
    for (std::size_t i = 0; i < writes; ++i) {
        peer.send(fpdu({.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address(i * 8)},
                       pattern(8, static_cast<unsigned>(i))));
        for (int again = 0; again < 20; ++again) {
            ibv_wc completion;
            (void)ibv_poll_cq(device.cq, 1, &completion);
            (void)ibv_req_notify_cq(device.cq, 0);
        }
    }
}

// What it inherited is refused to it, also what of it it has destroyed.
bool is_refused(const Ends &ends, rdma_cm_id *id) {
    ibv_sge sge = ends.device.sge(0, 8);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    send.sg_list = &sge;
    send.num_sge = 1;
    ibv_send_wr *bad_send = nullptr;
    ibv_recv_wr receive{};
    ibv_recv_wr *bad_receive = nullptr;
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    ibv_wc completion;
    const bool refused = ibv_post_send(id->qp, &send, &bad_send) == EINVAL && bad_send == &send &&
                         ibv_post_recv(id->qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive &&
                         softrdma_ibv_modify_qp(id->qp, &error, IBV_QP_STATE) == EINVAL &&
                         softrdma_rdma_disconnect(id) == -1 && errno == EINVAL &&
                         ibv_req_notify_cq(ends.device.cq, 0) == EINVAL;
    softrdma_rdma_destroy_qp(id);
    return refused && ibv_poll_cq(ends.device.cq, 1, &completion) == -1;
}

void a_child_takes_nothing_off_a_connection(void **state) {
    auto &ends = *static_cast<Ends *>(*state);
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, {.ird = 4, .ord = 4});
    device.post_receive(id, 1, 4096, 8);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        look(ends);
        _exit(is_refused(ends, id) ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    peer.send(fpdu({.opcode = Opcode::Send, .msn = 1}, pattern(8, 0)));
    device.expect_completion(1);
    for (std::size_t i = 0; i < writes; ++i) {
        assert_same_bytes({device.at(i * 8), 8}, pattern(8, static_cast<unsigned>(i)));
    }
}

// Completion events and connection events.
void a_child_takes_no_event(void **state) {
    auto &[device, peer, other] = *static_cast<Ends *>(*state);
    ibv_comp_channel *const channel = softrdma_ibv_create_comp_channel(device.cq->context);
    assert_non_null(channel);
    rdma_event_channel *const events = softrdma_rdma_create_event_channel();
    assert_non_null(events);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        ibv_cq *cq = nullptr;
        void *context = nullptr;
        const bool refused = softrdma_ibv_get_cq_event(channel, &cq, &context) == -1 && errno == EINVAL;
        rdma_cm_event *event = nullptr;
        _exit(refused && softrdma_rdma_get_cm_event(events, &event) == -1 && errno == EINVAL ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    softrdma_rdma_destroy_event_channel(events);
    assert_int_equal(softrdma_ibv_destroy_comp_channel(channel), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {test_of_ends(a_child_takes_nothing_off_a_connection),
                                test_of_ends(a_child_takes_no_event)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
