// SPDX-License-Identifier: BSD-3-Clause
// A child that polls what it inherited takes nothing from its parent: no byte of a connection, and no event.
// It does not keep open what its parent ends either.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "../../child.hpp"
#include "base/log.hpp"
#include "soft/cm/cm.hpp"
#include "soft/ground/wrong_keys.hpp"
#include "soft/memory/memory.hpp"
#include "soft/queues/any_queue_pair.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Device;
using test::Ends;
using test::fpdu;
using test::pattern;

constexpr std::size_t writes = 200;

// The child is the peer too, so that it polls at once, before its parent's thread is awake.
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

// Returns whether the device refuses a child the objects that it inherited, also after the child has
// destroyed some of them.
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

void a_child_takes_nothing_off_a_connection(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, {.ird = 4, .ord = 4});
    device.post_receive(id, 1, 4096, 8);
    const pid_t child = test::fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(40);
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

// The test has completion events and connection events.
void a_child_takes_no_event(Ends &ends) {
    auto &[device, peer, other] = ends;
    ibv_comp_channel *const channel = softrdma_ibv_create_comp_channel(device.cq->context);
    assert_non_null(channel);
    rdma_event_channel *const events = softrdma_rdma_create_event_channel();
    assert_non_null(events);
    const pid_t child = test::fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(40);
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

// The parent is about to use these objects when it forks, and holds their
// locks. No thread of the child releases them.
struct Held {
    explicit Held(Device &device) : context{device.cq->context} {
        ibv_cq_init_attr_ex queue{};
        queue.cqe = 4;
        cq = softrdma_ibv_create_cq_ex(context, &queue);
        ibv_srq_init_attr shared{};
        srq = softrdma_ibv_create_srq(device.mr->pd, &shared);
        assert_true(cq != nullptr && srq != nullptr);
        ibv_qp_init_attr_ex pair{};
        pair.send_cq = pair.recv_cq = plain_cq();
        pair.qp_type = IBV_QPT_RC;
        pair.pd = device.mr->pd;
        pair.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        pair.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
        qp = softrdma_ibv_create_qp_ex(context, &pair);
        assert_non_null(qp);
        ibv_recv_wr receive{};
        ibv_recv_wr *bad = nullptr;
        ibv_qp_attr error{};
        error.qp_state = IBV_QPS_ERR;
        assert_int_equal(ibv_post_recv(qp, &receive, &bad), 0);
        assert_int_equal(softrdma_ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);  // flushes it
        ibv_poll_cq_attr attributes{};
        assert_int_equal(ibv_start_poll(cq, &attributes), 0);
        pthread_mutex_lock(&plain_cq()->mutex);
        ibv_wr_start(extended());
    }
    void let_go() {
        ibv_wr_abort(extended());
        pthread_mutex_unlock(&plain_cq()->mutex);
        ibv_end_poll(cq);
        assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
        assert_int_equal(softrdma_ibv_destroy_srq(srq), 0);
        assert_int_equal(softrdma_ibv_destroy_cq(plain_cq()), 0);
    }
    [[nodiscard]] ibv_cq *plain_cq() const { return ibv_cq_ex_to_cq(cq); }
    [[nodiscard]] ibv_qp_ex *extended() const { return softrdma_ibv_qp_to_qp_ex(qp); }

    ibv_context *context;
    ibv_cq_ex *cq = nullptr;
    ibv_srq *srq = nullptr;
    ibv_qp *qp = nullptr;
};

// Returns whether the device refuses a child these objects without waiting. The child may destroy them.
bool are_refused(const Held &held, ibv_pd *pd, ibv_comp_channel *channel) {
    ibv_qp_ex *const extended = held.extended();
    ibv_wr_start(extended);
    ibv_wr_rdma_write(extended, 0, 0);
    bool refused = ibv_wr_complete(extended) == EINVAL;
    ibv_qp_attr state{};
    ibv_qp_init_attr init{};
    refused = refused && softrdma_ibv_query_qp(held.qp, &state, IBV_QP_STATE, &init) == EINVAL;
    ibv_poll_cq_attr attributes{};
    refused = refused && ibv_start_poll(held.cq, &attributes) == EINVAL &&
              softrdma_ibv_resize_cq(held.plain_cq(), 8) == EINVAL;
    softrdma_ibv_ack_cq_events(held.plain_cq(), 1);
    ibv_srq_attr limits{};
    ibv_recv_wr receive{};
    ibv_recv_wr *bad = nullptr;
    refused = refused && softrdma_ibv_query_srq(held.srq, &limits) == EINVAL &&
              softrdma_ibv_modify_srq(held.srq, &limits, IBV_SRQ_LIMIT) == EINVAL &&
              ibv_post_srq_recv(held.srq, &receive, &bad) == EINVAL && bad == &receive;
    ibv_qp_init_attr pair{};
    pair.send_cq = pair.recv_cq = held.plain_cq();
    pair.qp_type = IBV_QPT_RC;
    refused = refused && softrdma_ibv_create_qp(pd, &pair) == nullptr && errno == EINVAL &&
              softrdma_ibv_create_cq(held.context, 4, nullptr, channel, 0) == nullptr && errno == EINVAL;
    return refused && softrdma_ibv_destroy_qp(held.qp) == 0 && softrdma_ibv_destroy_srq(held.srq) == 0 &&
           softrdma_ibv_destroy_cq(held.plain_cq()) == 0;
}

void a_child_waits_for_no_lock_that_it_inherited(Ends &ends) {
    auto &device = ends.device;
    ibv_comp_channel *const channel = softrdma_ibv_create_comp_channel(device.cq->context);
    assert_non_null(channel);
    Held held{device};
    const pid_t child = test::fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(40);
        _exit(are_refused(held, device.mr->pd, channel) ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    held.let_go();
    assert_int_equal(softrdma_ibv_destroy_comp_channel(channel), 0);
}

// Returns whether the device refuses a child these ids and new objects on their channel.
bool are_refused(rdma_cm_id *bound, rdma_cm_id *request) {
    const auto is_refused = [](int result) { return result == -1 && errno == EINVAL; };
    sockaddr_in address = test::loopback(1);
    auto *const there = reinterpret_cast<sockaddr *>(&address);
    rdma_cm_id *made = nullptr;
    return is_refused(softrdma_rdma_create_id(bound->channel, &made, nullptr, RDMA_PS_TCP)) &&
           is_refused(softrdma_rdma_resolve_addr(bound, nullptr, there, 1)) &&
           is_refused(softrdma_rdma_listen(bound, 1)) &&
           is_refused(softrdma_rdma_migrate_id(bound, nullptr)) &&
           is_refused(softrdma_rdma_accept(request, nullptr)) &&
           is_refused(softrdma_rdma_reject(request, nullptr, 0)) && softrdma_rdma_destroy_id(bound) == 0 &&
           softrdma_rdma_destroy_id(request) == 0;
}

// The locks are held when the process forks, as its engine may hold them.
void a_child_is_refused_ids_that_it_inherited(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_event_channel *const events = softrdma_rdma_create_event_channel();
    rdma_cm_id *bound = nullptr;
    sockaddr_in address = test::loopback(0);
    assert_int_equal(softrdma_rdma_create_id(events, &bound, nullptr, RDMA_PS_TCP), 0);
    assert_int_equal(softrdma_rdma_bind_addr(bound, reinterpret_cast<sockaddr *>(&address)), 0);
    peer.connect(device.port());
    peer.send_frame({});
    rdma_cm_id *const request = device.take_request();
    std::unique_lock of_channel{static_cast<soft::EventChannel *>(events)->group()->mutex()};
    std::unique_lock of_queue{soft::CompletionQueue::of(device.cq)->group()->mutex()};
    const pid_t child = test::fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(40);
        _exit(are_refused(bound, request) ? 0 : 1);
    }
    of_channel.unlock();
    of_queue.unlock();
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    // The child has caused no event, and has sent the peer nothing.
    pollfd readable{.fd = events->fd, .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&readable, 1, 0), 0);
    assert_true(peer.silent());
    assert_int_equal(softrdma_rdma_destroy_id(bound), 0);
    softrdma_rdma_destroy_event_channel(events);
}

// A thread holds one of the locks that are held during a fork, and waits for
// others of them, which fork(2) takes last.
void a_fork_waits_for_threads_in_the_order_of_their_locks(Ends &ends) {
    auto &[device, peer, other] = ends;
    static constinit base::LogPlace place{"file", 1, "function"};
    const std::uint32_t number = device.establish(peer, {.ird = 4, .ord = 4})->qp->qp_num;
    std::atomic<bool> ended{false};
    alarm(20);
    std::thread thread{[&] {
        while (!ended) {
            {
                const auto found = soft::AnyQueuePair::find(number);
                std::this_thread::yield();  // to the fork
                soft::WrongKeys::instance().note(base::Origin{1}, base::Clock::now());
                (void)place.admits(static_cast<int>(base::LogLevel::Warning));
                std::uint64_t seen = 0;
                soft::Memory::instance().see_registrations(seen);
            }
            std::this_thread::yield();
        }
    }};
    for (int i = 0; i < 100; ++i) {
        const pid_t child = test::fork_child();
        if (child == 0) {
            _exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    ended = true;
    thread.join();
    alarm(0);
}

// The child has every descriptor of its parent, and does nothing while this object lives.
class IdleChild {
public:
    IdleChild() : child_{test::fork_child()} {
        assert_true(child_ >= 0);
        if (child_ == 0) {
            alarm(60);
            while (true) {
                (void)pause();
            }
        }
    }
    ~IdleChild() {
        (void)kill(child_, SIGKILL);
        (void)waitpid(child_, nullptr, 0);
    }
    IdleChild(const IdleChild &) = delete;
    IdleChild &operator=(const IdleChild &) = delete;

private:
    const pid_t child_;
};

void a_connection_that_ends_has_ended_for_its_peer(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, {.ird = 4, .ord = 4});
    const IdleChild child;
    peer.finish();
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
    assert_int_equal(peer.receive_rest().size(), 0);
}

// No client can connect to the listener, and its port is free.
void a_listener_that_is_gone_listens_no_more(void **) {
    rdma_event_channel *const events = softrdma_rdma_create_event_channel();
    rdma_cm_id *id = nullptr;
    sockaddr_in address = test::loopback(0);
    auto *const there = reinterpret_cast<sockaddr *>(&address);
    assert_int_equal(softrdma_rdma_create_id(events, &id, nullptr, RDMA_PS_TCP), 0);
    assert_int_equal(softrdma_rdma_bind_addr(id, there), 0);
    assert_int_equal(softrdma_rdma_listen(id, 1), 0);
    address.sin_port = softrdma_rdma_get_src_port(id);
    const IdleChild child;
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(socket, there, sizeof(address)), -1);
    assert_int_equal(errno, ECONNREFUSED);
    assert_int_equal(close(socket), 0);
    assert_int_equal(softrdma_rdma_create_id(events, &id, nullptr, RDMA_PS_TCP), 0);
    assert_int_equal(softrdma_rdma_bind_addr(id, there), 0);
    assert_int_equal(softrdma_rdma_listen(id, 1), 0);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
    softrdma_rdma_destroy_event_channel(events);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(a_child_takes_nothing_off_a_connection),
                                fixture_test(a_child_takes_no_event),
                                fixture_test(a_child_waits_for_no_lock_that_it_inherited),
                                fixture_test(a_child_is_refused_ids_that_it_inherited),
                                fixture_test(a_fork_waits_for_threads_in_the_order_of_their_locks),
                                fixture_test(a_connection_that_ends_has_ended_for_its_peer),
                                cmocka_unit_test(a_listener_that_is_gone_listens_no_more)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
