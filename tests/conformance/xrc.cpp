// SPDX-License-Identifier: BSD-3-Clause
// conformance: XRC: messages that name the shared receive queue which they are for, queue pairs that are
// opened again, and domains that belong to files.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "suite.hpp"

namespace conformance {

namespace {

constexpr Sizes sender{.type = IBV_QPT_XRC_SEND};

ibv_xrcd *open_domain(ibv_context *context, int descriptor = -1, int flags = O_CREAT) {
    ibv_xrcd_init_attr attributes{
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = descriptor, .oflags = flags};
    return ibv_open_xrcd(context, &attributes);
}

ibv_srq_init_attr_ex shared_attributes(const End &end, ibv_xrcd *domain) {
    ibv_srq_init_attr_ex attributes{};
    attributes.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
    attributes.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attributes.srq_type = IBV_SRQT_XRC;
    attributes.pd = end.pd;
    attributes.xrcd = domain;
    attributes.cq = end.cq;
    return attributes;
}

ibv_qp *create_receiver(ibv_xrcd *domain) {
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_XRC_RECV;
    attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attributes.xrcd = domain;
    return softrdma_ibv_create_qp_ex(domain->context, &attributes);
}

ibv_qp *open_again(ibv_xrcd *domain, std::uint32_t number) {
    ibv_qp_open_attr attributes{};
    attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attributes.qp_num = number;
    attributes.xrcd = domain;
    attributes.qp_type = IBV_QPT_XRC_RECV;
    return ibv_open_qp(domain->context, &attributes);
}

std::uint32_t number_of(const End &end) {
    return end.id->qp->qp_num;
}

std::uint32_t number_of(ibv_srq *queue) {
    std::uint32_t number = 0;
    assert_int_equal(ibv_get_srq_num(queue, &number), 0);
    return number;
}

int change(ibv_qp *qp, ibv_qp_state state) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    return softrdma_ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
}

void connect_to(ibv_qp *qp, std::uint32_t number) {
    assert_int_equal(enter_init(qp), 0);
    assert_int_equal(enter_rtr(qp, number), 0);
    assert_int_equal(enter_rts(qp), 0);
}

// A Receiver has a domain, a queue pair of it, and two shared receive queues, whose receives complete in the
// two completion queues of its end. The end's own queue pair is used by no test.
struct Receiver {
    Receiver() {
        end.prepare();
        domain = open_domain(end.id->verbs);
        assert_non_null(domain);
        first = create_shared(end.cq);
        second = create_shared(end.receive_cq);
        qp = create_receiver(domain);
        assert_non_null(qp);
    }
    ~Receiver() {
        for (ibv_qp *const one : {std::exchange(qp, nullptr), std::exchange(again, nullptr)}) {
            if (one != nullptr) {
                (void)softrdma_ibv_destroy_qp(one);
            }
        }
        for (ibv_srq *const one : {std::exchange(first, nullptr), std::exchange(second, nullptr)}) {
            if (one != nullptr) {
                (void)softrdma_ibv_destroy_srq(one);
            }
        }
        if (domain != nullptr) {
            (void)ibv_close_xrcd(domain);
        }
    }
    Receiver(const Receiver &) = delete;
    Receiver &operator=(const Receiver &) = delete;

    [[nodiscard]] ibv_srq *create_shared(ibv_cq *cq) const {
        auto attributes = shared_attributes(end, domain);
        attributes.cq = cq;
        ibv_srq *const made = softrdma_ibv_create_srq_ex(end.id->verbs, &attributes);
        assert_non_null(made);
        return made;
    }
    void receive(ibv_srq *queue, std::uint64_t wr_id, std::size_t offset = 0, std::size_t length = 64) {
        end.srq = queue;
        assert_int_equal(post_shared_receive(end, wr_id, {sge(end, offset, length)}), 0);
        end.srq = nullptr;
    }

    End end{{.separate_cqs = true}};
    ibv_xrcd *domain = nullptr;
    ibv_srq *first = nullptr;
    ibv_srq *second = nullptr;
    ibv_qp *qp = nullptr;
    ibv_qp *again = nullptr;  // another handle of it
};

struct Pair {
    Pair() {
        from.prepare();
        from.connect_to(to.qp->qp_num);
        connect_to(to.qp, number_of(from));
    }
    Receiver to;
    End from{sender};
};

Request to_queue(std::uint32_t number, Request request) {
    request.shared_queue = number;
    return request;
}

Request send_to(const Pair &pair, ibv_srq *queue, std::uint64_t wr_id, std::size_t length = 64) {
    return to_queue(number_of(queue), send_request(pair.from, 0, length, wr_id));
}

void expect_message(Pair &pair, ibv_srq *queue, ibv_cq *cq, std::uint64_t wr_id) {
    pair.to.receive(queue, wr_id);
    assert_int_equal(post(pair.from, {send_to(pair, queue, wr_id)}), 0);
    expect_completion(cq, wr_id);
    expect_completion(pair.from.cq, wr_id);
}

void a_message_takes_a_receive_of_the_queue_that_it_names(void **) {
    Pair &pair = make<Pair>();
    Receiver &to = pair.to;
    assert_int_not_equal(number_of(to.first), number_of(to.second));
    to.receive(to.first, 1, 0);
    to.receive(to.second, 2, 64);
    fill(pair.from, 64, 64, 5);
    Request request = send_request(pair.from, 64, 64, 3);
    assert_int_equal(post(pair.from, {to_queue(number_of(to.second), request), send_to(pair, to.first, 4)}),
                     0);
    const ibv_wc received = next_completion(to.end.receive_cq);
    assert_int_equal(received.status, IBV_WC_SUCCESS);
    assert_int_equal(received.opcode, IBV_WC_RECV);
    assert_int_equal(received.wr_id, 2);
    assert_int_equal(received.byte_len, 64);
    assert_int_equal(received.qp_num, to.qp->qp_num);
    assert_true(holds(to.end, 64, 64, 5));
    expect_completion(to.end.cq, 1);
    expect_completion(pair.from.cq, 3);
    expect_completion(pair.from.cq, 4);
}

// A message is kept until its queue has a receive, and those behind it wait for it.
void messages_wait_for_receives_of_their_queues(void **) {
    Pair &pair = make<Pair>();
    Receiver &to = pair.to;
    to.receive(to.second, 1);
    assert_int_equal(post(pair.from, {send_to(pair, to.first, 2), send_to(pair, to.second, 3)}), 0);
    expect_no_completion(to.end.receive_cq);
    to.receive(to.first, 4);
    expect_completion(to.end.cq, 4);
    expect_completion(to.end.receive_cq, 1);
    expect_completion(pair.from.cq, 2);
    expect_completion(pair.from.cq, 3);
}

void several_senders_share_a_queue(void **) {
    Pair &pair = make<Pair>();
    End &other = make<End>(sender);
    other.prepare();
    ibv_qp *const qp = pair.to.again = create_receiver(pair.to.domain);
    assert_non_null(qp);
    other.connect_to(qp->qp_num);
    connect_to(qp, number_of(other));
    for (std::uint64_t i = 0; i < 4; ++i) {
        pair.to.receive(pair.to.first, i, 64 * i);
        const End &from = i % 2 == 0 ? pair.from : other;
        assert_int_equal(post(from, {to_queue(number_of(pair.to.first), send_request(from, 0, 64, i))}), 0);
        const ibv_wc received = next_completion(pair.to.end.cq);
        assert_int_equal(received.wr_id, i);
        assert_int_equal(received.qp_num, i % 2 == 0 ? pair.to.qp->qp_num : qp->qp_num);
        expect_completion(from.cq, i);
    }
    other.destroy();
}

void writes_with_immediate_name_a_queue(void **) {
    Pair &pair = make<Pair>();
    pair.to.receive(pair.to.second, 1);
    fill(pair.from, 4096, 1000, 6);
    const Request write = write_request(pair.from, pair.to.end, 4096, 1000, 2);
    assert_int_equal(
        post(pair.from, {to_queue(number_of(pair.to.second), with_immediate(write, 0x11223344))}), 0);
    const ibv_wc received = next_completion(pair.to.end.receive_cq);
    assert_int_equal(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(received.imm_data, 0x11223344);
    assert_int_equal(received.byte_len, 1000);
    expect_completion(pair.from.cq, 2);
    assert_true(holds(pair.to.end, 4096, 1000, 6));
}

// A peer reaches the protection domains of the shared queues of the XRC domain, and no other.
void a_peer_reaches_the_memory_of_the_shared_queues(void **) {
    Pair &pair = make<Pair>();
    fill(pair.from, 0, 65536, 7);
    fill(pair.to.end, 65536, 65536, 8);
    assert_int_equal(post(pair.from, {write_request(pair.from, pair.to.end, 0, 65536, 1),
                                      read_request(pair.from, pair.to.end, 65536, 65536, 2)}),
                     0);
    expect_completion(pair.from.cq, 1);
    expect_completion(pair.from.cq, 2);
    assert_true(holds(pair.to.end, 0, 65536, 7));
    assert_true(holds(pair.from, 65536, 65536, 8));
    End &stranger = make<End>();
    stranger.prepare();
    assert_int_equal(post(pair.from, {write_request(pair.from, stranger, 0, 8, 3)}), 0);
    expect_completion(pair.from.cq, 3, IBV_WC_REM_ACCESS_ERR);
}

void the_rights_are_those_of_the_receiving_queue_pair(void **) {
    Pair &pair = make<Pair>();
    ibv_qp_attr attributes{};
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    assert_int_equal(softrdma_ibv_modify_qp(pair.to.qp, &attributes, IBV_QP_ACCESS_FLAGS), 0);
    assert_int_equal(post(pair.from, {read_request(pair.from, pair.to.end, 0, 64, 1),
                                      write_request(pair.from, pair.to.end, 0, 8, 2)}),
                     0);
    expect_completion(pair.from.cq, 1);
    expect_completion(pair.from.cq, 2, IBV_WC_REM_ACCESS_ERR);
}

void a_sender_counts_in_the_receivers_memory(void **) {
    Pair &pair = make<Pair>();
    ibv_mr *const counter =
        pair.to.end.register_memory(pair.to.end.memory.data(), 8, full_access | IBV_ACCESS_REMOTE_ATOMIC);
    assert_non_null(counter);
    for (std::uint64_t i = 0; i < 3; ++i) {
        Request add = read_request(pair.from, pair.to.end, 0, 8, i);
        add.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        add.rkey = counter->rkey;
        add.compare_add = 5;
        assert_int_equal(post(pair.from, {add}), 0);
        expect_completion(pair.from.cq, i);
        std::uint64_t before = 0;
        std::memcpy(&before, pair.from.memory.data(), sizeof(before));
        assert_int_equal(before, 5 * i);
    }
}

// When the last shared queue of a protection domain is destroyed, its memory is out of reach.
void memory_goes_out_of_reach_with_its_last_queue(void **) {
    Pair &pair = make<Pair>();
    assert_int_equal(softrdma_ibv_destroy_srq(std::exchange(pair.to.first, nullptr)), 0);
    assert_int_equal(post(pair.from, {write_request(pair.from, pair.to.end, 0, 8, 1)}), 0);
    expect_completion(pair.from.cq, 1);
    assert_int_equal(softrdma_ibv_destroy_srq(std::exchange(pair.to.second, nullptr)), 0);
    assert_int_equal(post(pair.from, {write_request(pair.from, pair.to.end, 0, 8, 2)}), 0);
    expect_completion(pair.from.cq, 2, IBV_WC_REM_ACCESS_ERR);
}

// A receiver has no send queue and no completion queues, and a sender no receive queue.
void each_has_one_queue_only(void **) {
    Pair &pair = make<Pair>();
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    assert_int_equal(softrdma_ibv_query_qp(pair.to.qp, &attributes, IBV_QP_STATE, &init), 0);
    assert_int_equal(init.qp_type, IBV_QPT_XRC_RECV);
    assert_null(init.send_cq);
    assert_null(init.recv_cq);
    assert_int_equal(attributes.qp_state, IBV_QPS_RTS);
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    ibv_send_wr *bad = nullptr;
    assert_int_equal(ibv_post_send(pair.to.qp, &request, &bad), EINVAL);
    assert_ptr_equal(bad, &request);
    assert_int_equal(post_receive(pair.from, 1, {sge(pair.from, 0, 8)}), EINVAL);
    expect_message(pair, pair.to.first, pair.to.end.cq, 1);
    assert_int_equal(change(pair.to.qp, IBV_QPS_ERR), 0);
    assert_int_equal(ibv_post_send(pair.to.qp, &request, &bad), EINVAL);
}

void a_queue_that_is_not_there_is_refused(void **) {
    for (const std::uint32_t number : {0U, 1U, 0xffU, 0xffff'ffffU}) {
        Pair &pair = make<Pair>();
        assert_int_equal(post(pair.from, {write_request(pair.from, pair.to.end, 0, 8, 1),
                                          to_queue(number, send_request(pair.from, 0, 64, 2)),
                                          write_request(pair.from, pair.to.end, 0, 8, 3)}),
                         0);
        expect_completion(pair.from.cq, 1);
        expect_completion(pair.from.cq, 2, IBV_WC_REM_INV_REQ_ERR);
        expect_completion(pair.from.cq, 3, IBV_WC_WR_FLUSH_ERR);
    }
}

// The number of a queue in another domain names none in this one.
void a_queue_of_another_domain_is_refused(void **) {
    Pair &pair = make<Pair>();
    Receiver &other = make<Receiver>();
    other.receive(other.first, 1);
    assert_int_equal(post(pair.from, {send_to(pair, other.first, 2)}), 0);
    expect_completion(pair.from.cq, 2, IBV_WC_REM_INV_REQ_ERR);
    expect_no_completion(other.end.cq);
}

void a_queue_is_destroyed_while_a_message_waits_for_it(void **) {
    for (const std::size_t length : {std::size_t{64}, std::size_t{1} << 20}) {
        Pair &pair = make<Pair>();
        expect_message(pair, pair.to.second, pair.to.end.receive_cq, 1);
        assert_int_equal(post(pair.from, {send_to(pair, pair.to.first, 2, length)}), 0);
        expect_no_completion(pair.from.cq);
        assert_int_equal(softrdma_ibv_destroy_srq(std::exchange(pair.to.first, nullptr)), 0);
        expect_completion(pair.from.cq, 2, IBV_WC_REM_INV_REQ_ERR);
    }
}

// One whose messages came before goes on with another queue.
void a_queue_is_destroyed_that_nobody_names_any_more(void **) {
    Pair &pair = make<Pair>();
    expect_message(pair, pair.to.first, pair.to.end.cq, 1);
    pair.to.receive(pair.to.first, 2);
    assert_int_equal(softrdma_ibv_destroy_srq(std::exchange(pair.to.first, nullptr)), 0);
    expect_no_completion(pair.to.end.cq);
    expect_message(pair, pair.to.second, pair.to.end.receive_cq, 3);
}

void a_receiver_is_reset_and_connected_anew(void **) {
    Pair &pair = make<Pair>();
    for (std::uint64_t round = 0; round < 3; ++round) {
        expect_message(pair, pair.to.first, pair.to.end.cq, round);
        assert_int_equal(change(pair.from.id->qp, IBV_QPS_RESET), 0);
        assert_int_equal(change(pair.to.qp, IBV_QPS_RESET), 0);
        connect_to(pair.to.qp, number_of(pair.from));
        pair.from.connect_to(pair.to.qp->qp_num);
    }
    // A message that waits for a receive goes with its connection, and the receive is the next one's.
    assert_int_equal(post(pair.from, {send_to(pair, pair.to.first, 7)}), 0);
    expect_no_completion(pair.from.cq);
    assert_int_equal(change(pair.to.qp, IBV_QPS_RESET), 0);
    assert_int_equal(change(pair.from.id->qp, IBV_QPS_RESET), 0);
    pair.to.receive(pair.to.first, 8);
    expect_no_completion(pair.to.end.cq);
}

// A queue pair lives until the last of its handles is destroyed.
void a_queue_pair_is_opened_again(void **) {
    Pair &pair = make<Pair>();
    ibv_xrcd *const other = open_domain(pair.to.end.id->verbs);
    assert_non_null(other);
    const std::uint32_t number = pair.to.qp->qp_num;
    assert_null(open_again(other, number));
    assert_int_equal(errno, EINVAL);
    assert_int_equal(ibv_close_xrcd(other), 0);
    assert_null(open_again(pair.to.domain, number_of(pair.from)));
    assert_int_equal(errno, EINVAL);

    pair.to.again = open_again(pair.to.domain, number);
    assert_non_null(pair.to.again);
    assert_int_equal(pair.to.again->qp_num, number);
    assert_int_equal(softrdma_ibv_destroy_qp(std::exchange(pair.to.qp, nullptr)), 0);
    expect_message(pair, pair.to.first, pair.to.end.cq, 1);
    assert_int_equal(change(pair.to.again, IBV_QPS_RESET), 0);
    assert_int_equal(change(pair.from.id->qp, IBV_QPS_RESET), 0);
    connect_to(pair.to.again, number_of(pair.from));
    pair.from.connect_to(number);
    expect_message(pair, pair.to.second, pair.to.end.receive_cq, 2);
    assert_int_equal(softrdma_ibv_destroy_qp(std::exchange(pair.to.again, nullptr)), 0);
    assert_null(open_again(pair.to.domain, number));
    assert_int_equal(errno, EINVAL);
}

void what_is_used_is_not_destroyed(void **) {
    Receiver &to = make<Receiver>();
    assert_int_equal(ibv_close_xrcd(to.domain), EBUSY);
    assert_int_equal(softrdma_ibv_destroy_cq(to.end.receive_cq), EBUSY);
    assert_int_equal(softrdma_ibv_destroy_srq(std::exchange(to.first, nullptr)), 0);
    assert_int_equal(softrdma_ibv_destroy_srq(std::exchange(to.second, nullptr)), 0);
    assert_int_equal(ibv_close_xrcd(to.domain), EBUSY);
    assert_int_equal(softrdma_ibv_destroy_qp(std::exchange(to.qp, nullptr)), 0);
    assert_int_equal(ibv_close_xrcd(std::exchange(to.domain, nullptr)), 0);
}

void handles_of_a_file_have_one_domain(void **) {
    Pair &pair = make<Pair>();
    ibv_context *const context = pair.to.end.id->verbs;
    const int file = memfd_create("xrc", MFD_CLOEXEC);
    assert_true(file >= 0);
    assert_null(open_domain(context, file, 0));
    assert_int_equal(errno, EAGAIN);
    ibv_xrcd *const one = open_domain(context, file);
    ibv_xrcd *const two = open_domain(context, file, 0);
    assert_non_null(one);
    assert_non_null(two);
    assert_null(open_domain(context, file, O_CREAT | O_EXCL));
    assert_int_equal(errno, EINVAL);

    ibv_qp *const qp = create_receiver(one);
    assert_non_null(qp);
    auto attributes = shared_attributes(pair.to.end, two);
    ibv_srq *const queue = softrdma_ibv_create_srq_ex(context, &attributes);
    assert_non_null(queue);
    assert_int_equal(change(pair.from.id->qp, IBV_QPS_RESET), 0);
    connect_to(qp, number_of(pair.from));
    pair.from.connect_to(qp->qp_num);
    expect_message(pair, queue, pair.to.end.cq, 1);

    assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
    assert_int_equal(softrdma_ibv_destroy_srq(queue), 0);
    assert_int_equal(ibv_close_xrcd(one), 0);
    assert_int_equal(ibv_close_xrcd(two), 0);
    assert_null(open_domain(context, file, 0));  // the domain went with its last handle
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(close(file), 0);
    assert_null(open_domain(context, file));
    assert_int_equal(errno, EBADF);
}

// The same file has no domain in another process, and a child opens no queue pair of its parent.
void a_domain_belongs_to_its_process(void **) {
    Receiver &to = make<Receiver>();
    const int file = memfd_create("xrc", MFD_CLOEXEC);
    assert_true(file >= 0);
    ibv_xrcd *const domain = open_domain(to.end.id->verbs, file);
    assert_non_null(domain);
    std::fflush(nullptr);  // what is buffered would be written twice
    const pid_t child = watched_fork();
    assert_int_not_equal(child, -1);
    if (child == 0) {
        const bool opens = open_again(to.domain, to.qp->qp_num) != nullptr;
        const bool has = open_domain(to.end.id->verbs, file, 0) != nullptr || errno != EAGAIN;
        _exit((opens ? 1 : 0) + (has ? 2 : 0));
    }
    assert_int_equal(status_of(child), 0);
    assert_int_equal(ibv_close_xrcd(domain), 0);
    assert_int_equal(close(file), 0);
}

void fewer_receives_than_its_limit_are_an_event_of_the_queue(void **) {
    Pair &pair = make<Pair>();
    ibv_context *const context = pair.to.end.id->verbs;
    pair.to.receive(pair.to.second, 1);
    ibv_srq_attr attributes{};
    attributes.srq_limit = 1;
    assert_int_equal(softrdma_ibv_modify_srq(pair.to.second, &attributes, IBV_SRQ_LIMIT), 0);
    expect_message(pair, pair.to.first, pair.to.end.cq, 2);
    assert_false(has_event(context->async_fd));
    assert_int_equal(post(pair.from, {send_to(pair, pair.to.second, 3)}), 0);
    expect_completion(pair.to.end.receive_cq, 1);
    ibv_async_event event{};
    assert_int_equal(softrdma_ibv_get_async_event(context, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    assert_ptr_equal(event.element.srq, pair.to.second);
    softrdma_ibv_ack_async_event(&event);
}

void objects_of_xrc_have_what_they_need(void **) {
    Receiver &to = make<Receiver>();
    End &end = to.end;
    ibv_context *const context = end.id->verbs;
    ibv_xrcd_init_attr half{.comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1, .oflags = O_CREAT};
    assert_null(ibv_open_xrcd(context, &half));
    assert_int_equal(errno, EINVAL);
    auto shared = shared_attributes(end, to.domain);
    shared.comp_mask &= ~static_cast<std::uint32_t>(IBV_SRQ_INIT_ATTR_CQ);
    assert_null(softrdma_ibv_create_srq_ex(context, &shared));
    assert_int_equal(errno, EINVAL);
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_XRC_RECV;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.pd = end.pd;
    attributes.send_cq = attributes.recv_cq = end.cq;
    assert_null(softrdma_ibv_create_qp_ex(context, &attributes));  // no domain
    assert_int_equal(errno, EINVAL);
    attributes.qp_type = IBV_QPT_XRC_SEND;
    attributes.srq = to.first;
    assert_null(softrdma_ibv_create_qp_ex(context, &attributes));
    assert_int_equal(errno, EINVAL);
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
        attributes.qp_type = type;
        assert_null(softrdma_ibv_create_qp_ex(context, &attributes));  // the shared queue is one of XRC
        assert_int_equal(errno, EINVAL);
    }
    ibv_srq_init_attr basic{.srq_context = nullptr, .attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0}};
    ibv_srq *const plain = softrdma_ibv_create_srq(end.pd, &basic);
    assert_non_null(plain);
    std::uint32_t number = 0;
    assert_int_equal(ibv_get_srq_num(plain, &number), EINVAL);
    assert_int_equal(softrdma_ibv_destroy_srq(plain), 0);
}

// The extended interface names the queue by a call.
void prepared_requests_name_their_queue(void **) {
    Receiver &to = make<Receiver>();
    Sizes sizes = sender;
    sizes.send_operations = IBV_QP_EX_WITH_SEND;
    End &from = make<End>(sizes);
    from.prepare();
    from.connect_to(to.qp->qp_num);
    connect_to(to.qp, number_of(from));
    to.receive(to.second, 1);
    ibv_qp_ex *const requests = softrdma_ibv_qp_to_qp_ex(from.id->qp);
    assert_non_null(requests);
    ibv_wr_start(requests);
    requests->wr_id = 2;
    requests->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(requests);
    ibv_wr_set_xrc_srqn(requests, number_of(to.second));
    ibv_wr_set_sge(requests, from.mr->lkey, from.address(), 64);
    assert_int_equal(ibv_wr_complete(requests), 0);
    expect_completion(to.end.receive_cq, 1);
    expect_completion(from.cq, 2);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_message_takes_a_receive_of_the_queue_that_it_names),
    cmocka_unit_test(messages_wait_for_receives_of_their_queues),
    cmocka_unit_test(several_senders_share_a_queue),
    cmocka_unit_test(writes_with_immediate_name_a_queue),
    cmocka_unit_test(a_peer_reaches_the_memory_of_the_shared_queues),
    cmocka_unit_test(the_rights_are_those_of_the_receiving_queue_pair),
    cmocka_unit_test(a_sender_counts_in_the_receivers_memory),
    cmocka_unit_test(memory_goes_out_of_reach_with_its_last_queue),
    cmocka_unit_test(each_has_one_queue_only),
    cmocka_unit_test(a_queue_that_is_not_there_is_refused),
    cmocka_unit_test(a_queue_of_another_domain_is_refused),
    cmocka_unit_test(a_queue_is_destroyed_while_a_message_waits_for_it),
    cmocka_unit_test(a_queue_is_destroyed_that_nobody_names_any_more),
    cmocka_unit_test(a_receiver_is_reset_and_connected_anew),
    cmocka_unit_test(a_queue_pair_is_opened_again),
    cmocka_unit_test(what_is_used_is_not_destroyed),
    cmocka_unit_test(handles_of_a_file_have_one_domain),
    cmocka_unit_test(a_domain_belongs_to_its_process),
    cmocka_unit_test(fewer_receives_than_its_limit_are_an_event_of_the_queue),
    cmocka_unit_test(objects_of_xrc_have_what_they_need),
    cmocka_unit_test(prepared_requests_name_their_queue),
};

}  // namespace

std::span<const CMUnitTest> xrc_tests() {
    return tests;
}

}  // namespace conformance
