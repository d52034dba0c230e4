// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs that are connected by number, with a peer that is only a socket: what names the wrong ones is
// refused, of two attempts at once one counts, and a request that nobody answers ends.
#include "soft/wire/by_number.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "../../limits.hpp"
#include "soft/queues/completion_queue.hpp"
#include "soft/wire/rdmap.hpp"

// These come last, because they assert.
#include "device.hpp"
#include "make_ready.hpp"
#include "own_network.hpp"

namespace {

using namespace soft::wire;
using namespace std::chrono_literals;
using test::Bytes;
using test::Device;
using test::Frame;
using test::Peer;

constexpr std::uint32_t places[] = {
    0, 0x7e};  // the numbers of the first are smaller than the device's, or equal

constexpr std::uint32_t most_sends = 2048;  // more than a link takes from a peer that does not read

// A queue pair of the device, and a peer that listens where the number of its own says.
struct Numbered {
    Numbered() {
        for (ibv_qp *&one : unused) {  // the places of the next numbers lie between those of `places`
            one = create();
        }
        qp = create();
    }
    ~Numbered() {
        assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
        if (device.srq != nullptr) {
            assert_int_equal(softrdma_ibv_destroy_srq(device.srq), 0);
        }
        for (ibv_qp *const one : unused) {
            assert_int_equal(softrdma_ibv_destroy_qp(one), 0);
        }
    }
    Numbered(const Numbered &) = delete;
    Numbered &operator=(const Numbered &) = delete;

    // Replaces the queue pair by one that takes its receives from a shared queue.
    void share_receives() {
        ibv_srq_init_attr attributes{};
        attributes.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
        device.srq = softrdma_ibv_create_srq(device.mr->pd, &attributes);
        assert_non_null(device.srq);
        assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
        qp = create();
    }
    // Replaces the queue pair by an unreliable one.
    void become_unreliable() {
        assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
        qp = create(IBV_QPT_UC);
    }
    void make_ready(std::uint32_t peers_number) const { test::make_ready(qp, peers_number); }
    void post_send() const { post_send(qp); }
    static void post_send(ibv_qp *to) {
        ibv_send_wr request{};
        request.wr_id = 1;
        request.opcode = IBV_WR_SEND;
        request.send_flags = IBV_SEND_SIGNALED;
        ibv_send_wr *bad = nullptr;
        assert_int_equal(ibv_post_send(to, &request, &bad), 0);
    }
    void post_write(std::uint32_t size) {
        ibv_sge piece{.addr = device.address(), .length = size, .lkey = device.mr->lkey};
        ibv_send_wr request{};
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = IBV_WR_RDMA_WRITE;
        ibv_send_wr *bad = nullptr;
        assert_int_equal(ibv_post_send(qp, &request, &bad), 0);
    }
    void post_receive() {
        ibv_recv_wr request{};
        request.wr_id = 2;
        ibv_recv_wr *bad = nullptr;
        assert_int_equal(ibv_post_recv(qp, &request, &bad), 0);
    }
    void post_shared_receive(std::uint64_t wr_id) {
        device.post_shared_receive(wr_id, device.sge(0, Device::memory_bytes));
    }
    [[nodiscard]] std::uint16_t port() const { return static_cast<std::uint16_t>(qp->qp_num); }

    [[nodiscard]] ibv_qp *create(ibv_qp_type type = IBV_QPT_RC) {
        ibv_qp_init_attr attributes{};
        attributes.send_cq = attributes.recv_cq = device.cq;
        attributes.srq = device.srq;
        attributes.cap.max_send_wr = most_sends;
        attributes.cap.max_recv_wr = 8;
        attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
        attributes.qp_type = type;
        ibv_qp *const made = softrdma_ibv_create_qp(device.mr->pd, &attributes);
        assert_non_null(made);
        return made;
    }

    Device device;
    ibv_qp *unused[4];
    ibv_qp *qp = nullptr;
};

Frame request_of(Peer &peer, const Numbered &ends, std::uint32_t own) {
    peer.accept();
    Frame frame = peer.receive_frame(MpaRole::Request);
    const auto names = decode_names(frame.private_data);
    assert_true(names == (QueuePairNames{.destination = own, .source = ends.qp->qp_num}));
    assert_true(frame.mpa.soft_operations && frame.mpa.enhanced && frame.mpa.peer_to_peer);
    return frame;
}

void refuse(Peer &peer) {
    peer.send_frame({.role = MpaRole::Reply, .reject = true});  // its port goes on to listen
}

MpaFrame by_number(const Bytes &names) {
    return {.soft_operations = true,
            .peer_to_peer = true,
            .rtr_write = true,
            .ird = 4,
            .ord = 4,
            .private_data = names};
}

Bytes bytes_of(const QueuePairNames &names) {
    const auto encoded = encode(names);
    return {encoded.begin(), encoded.end()};
}

void expect_refused(std::uint16_t port, const MpaFrame &request, unsigned host = 1) {
    Peer peer;
    peer.connect(port, 0, host);
    peer.send_frame(request);
    assert_true(peer.receive_frame(MpaRole::Reply).mpa.reject);
    assert_int_equal(peer.receive_rest().size(), 0);
}

Bytes acknowledgement(std::uint32_t msn, const Acknowledgement &placed) {
    return test::fpdu({.opcode = Opcode::Acknowledgement, .msn = msn}, encode(placed));
}

// The device sends a message, which is complete when the peer acknowledges it.
void expect_message(Numbered &ends, Peer &peer) {
    ends.post_send();
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::Send);
    assert_false(ends.device.has_completion());
    peer.send(acknowledgement(1, {.messages = 1}));
    ends.device.expect_completion(1);
}

// The device takes the peer's request, and its message arrives.
void expect_taken(Numbered &ends, Peer &peer, const QueuePairNames &right) {
    peer.connect(ends.port());
    const Bytes names = bytes_of(right);
    peer.send_frame(by_number(names));
    const Frame reply = peer.receive_frame(MpaRole::Reply);
    assert_true(!reply.mpa.reject && reply.mpa.soft_operations && reply.private_data.empty());
    peer.send(test::ready_to_receive());
    expect_message(ends, peer);
}

// A peer that is connected: its own attempt counts, after the device's was refused.
struct Connected {
    explicit Connected(Numbered &ends) {
        const std::uint32_t own = port.listen();
        ends.make_ready(own);
        (void)request_of(port, ends, own);
        refuse(port);
        expect_taken(ends, peer, {.destination = ends.qp->qp_num, .source = own});
    }

    Peer port;
    Peer peer;
};

void what_names_others_is_refused(Numbered &ends) {
    Peer peers_port;
    const std::uint32_t own = peers_port.listen();
    const QueuePairNames right{.destination = ends.qp->qp_num, .source = own};
    ends.make_ready(own);
    (void)request_of(peers_port, ends, own);
    refuse(peers_port);
    const auto with = [&](auto change) {
        QueuePairNames names = right;
        change(names);
        return bytes_of(names);
    };
    const std::vector<Bytes> wrong{
        {},
        Bytes(12),
        with([](auto &names) { names.type = QueuePairType::Unreliable; }),
        with([](auto &names) { names.type = QueuePairType::XrcSend; }),
        with([](auto &names) { names.type = QueuePairType::XrcReceive; }),
        with([](auto &names) { names.source ^= 1U << 16; }),
        with([&](auto &names) { names.destination = ends.unused[0]->qp_num; }),  // in RESET
        with([](auto &names) { names.destination ^= 0x400000; }),
        with([](auto &names) { names.destination = 2; }),
    };
    for (const Bytes &names : wrong) {
        expect_refused(ends.port(), by_number(names));
    }
    const Bytes names = bytes_of(right);
    expect_refused(ends.port(), by_number(names), 2);
    MpaFrame other_device = by_number(names);
    other_device.soft_operations = false;
    expect_refused(ends.port(), other_device);
    MpaFrame silent_first = by_number(names);
    silent_first.peer_to_peer = false;
    expect_refused(ends.port(), silent_first);
    Peer nonsense;
    nonsense.connect(ends.port());
    nonsense.send(std::as_bytes(std::span{std::string_view{"GET / HTTP/1.1\r\n"}}));
    assert_int_equal(nonsense.receive_rest().size(), 0);
    Peer peer;
    expect_taken(ends, peer, right);
    expect_refused(ends.port(), by_number(names));  // it has a link
}

// When both try at once, the attempt counts of the end with the larger number. When that fails after the
// other one was refused, it is made again.
void one_of_two_attempts_counts(Numbered &ends) {
    for (const std::uint32_t place : places) {
        Peer peer;
        const std::uint32_t own = place << 16 | peer.listen();
        const QueuePairNames names{.destination = ends.qp->qp_num, .source = own};
        ends.make_ready(own);
        (void)request_of(peer, ends, own);
        if (own > ends.qp->qp_num) {
            Peer second;
            expect_taken(ends, second, names);
            assert_int_equal(peer.receive_rest().size(), 0);
        } else {
            const Bytes named = bytes_of(names);
            expect_refused(ends.port(), by_number(named));
            refuse(peer);
            (void)request_of(peer, ends, own);
            peer.send_frame({.role = MpaRole::Reply,
                             .soft_operations = true,
                             .peer_to_peer = true,
                             .rtr_write = true,
                             .ird = 4,
                             .ord = 4});
            assert_true(peer.receive_fpdu().segment.opcode == Opcode::Write);
            expect_message(ends, peer);
        }
        ibv_qp_attr reset{};
        reset.qp_state = IBV_QPS_RESET;
        assert_int_equal(softrdma_ibv_modify_qp(ends.qp, &reset, IBV_QP_STATE), 0);
    }
}

// The peer's writes and messages are acknowledged, and not the empty write with which it begins.
void what_is_placed_is_acknowledged(Numbered &ends) {
    Connected connected{ends};
    Peer &peer = connected.peer;
    const Bytes write = test::fpdu(
        {.opcode = Opcode::Write, .stag = ends.device.mr->rkey, .offset = ends.device.address()}, Bytes(8));
    const auto expect_acknowledged = [&](std::uint32_t msn, const Acknowledgement &placed) {
        const test::Fpdu told = peer.receive_fpdu();
        assert_true(told.segment.opcode == Opcode::Acknowledgement);
        assert_int_equal(told.segment.msn, msn);
        assert_true(decode_acknowledgement(told.payload).value() == placed);
    };
    peer.send(write);
    expect_acknowledged(1, {.writes = 1});
    peer.send(test::fpdu({.opcode = Opcode::Send, .msn = 1}, {}));
    peer.send(write);
    expect_acknowledged(2, {.writes = 2});  // the message has no receive
    ends.post_receive();
    expect_acknowledged(3, {.writes = 2, .messages = 1});
}

// The device owes an acknowledgement while the link has taken only a part of its last bytes: it sends that
// behind them.
void an_acknowledgement_waits_for_a_full_link(Numbered &ends) {
    Connected connected{ends};
    Peer &peer = connected.peer;
    constexpr std::uint32_t size = 8192;
    std::uint64_t before = 0;
    std::uint64_t after = Device::bytes_taken(peer);
    std::uint32_t posted = 1;  // the message
    do {
        before = after;
        assert_true(++posted < most_sends);
        ends.post_write(size);
        ends.device.work();
        after = Device::bytes_taken(peer);
    } while (after >= before + size);
    peer.send(test::fpdu(
        {.opcode = Opcode::Write, .stag = ends.device.mr->rkey, .offset = ends.device.address()}, Bytes(8)));
    ends.device.work_until_read(peer);
    test::Fpdu told = peer.receive_fpdu();
    while (told.segment.opcode != Opcode::Acknowledgement) {
        told = peer.receive_fpdu();
    }
    assert_true(decode_acknowledgement(told.payload).value() == (Acknowledgement{.writes = 1}));
}

// Returns whether the engine waits for events of a group: /proc tells which ones its epoll set watches.
bool engine_waits_for(const soft::Group &group) {
    for (const auto &file : std::filesystem::directory_iterator{"/proc/self/fdinfo"}) {
        std::ifstream info{file.path()};
        for (std::string line; std::getline(info, line);) {
            int watched = -1;
            unsigned events = 0;
            if (std::sscanf(line.c_str(), "tfd: %d events: %x", &watched, &events) == 2 &&
                watched == group.fd() && (events & EPOLLIN) != 0) {
                return true;
            }
        }
    }
    return false;
}

// A program that has polled for its last acknowledgement may look at its memory from then on. The engine
// reads for it at once, and not at its next tick. It does not where the peer has only taken for many rounds.
void the_engine_takes_over_after_the_last_acknowledgement(Numbered &ends) {
    constexpr int few = 12;
    Connected connected{ends};
    const soft::Group &group = *soft::CompletionQueue::of(ends.device.cq)->group();
    ibv_wc completion{};
    std::uint32_t msn = 1;
    const auto take_round = [&] {
        ends.post_send();
        Opcode got = connected.peer.receive_fpdu().segment.opcode;
        if (got == Opcode::Acknowledgement) {
            got = connected.peer.receive_fpdu().segment.opcode;
        }
        assert_true(got == Opcode::Send);
        for (int vain = 0; vain < 100; ++vain) {
            assert_int_equal(ibv_poll_cq(ends.device.cq, 1, &completion), 0);
        }
        ++msn;
        connected.peer.send(acknowledgement(msn, {.messages = msn}));
        const auto end = std::chrono::steady_clock::now() + 30s;
        while (ibv_poll_cq(ends.device.cq, 1, &completion) == 0) {
            assert_true(std::chrono::steady_clock::now() < end);
        }
        assert_int_equal(completion.status, IBV_WC_SUCCESS);
    };
    for (int times = 0; times < 2; ++times) {
        for (int round = 0; round < few; ++round) {
            take_round();
            assert_true(engine_waits_for(group));
        }
        connected.peer.send(test::fpdu(
            {.opcode = Opcode::Write, .stag = ends.device.mr->rkey, .offset = ends.device.address()},
            Bytes(8)));
    }
    // The engine takes over from a poller that has stopped too.
    for (int tries = 0; tries < 1000; ++tries) {
        take_round();
        if (!engine_waits_for(group)) {
            return;
        }
    }
    fail_msg("the engine takes over after each of many rounds of a peer that only takes");
}

void what_was_not_sent_is_not_acknowledged(Numbered &ends) {
    const Acknowledgement wrong[] = {{.writes = 1, .messages = 1}, {.messages = 2}, {.messages = 0}};
    for (const Acknowledgement &placed : wrong) {
        Connected connected{ends};
        Peer &peer = connected.peer;
        peer.send(acknowledgement(2, placed));
        const test::Fpdu terminate = peer.receive_fpdu();
        assert_true(terminate.segment.opcode == Opcode::Terminate);
        assert_true(decode_terminate(terminate.payload).value() == terminate::untagged_msn);
        ibv_qp_attr reset{};
        reset.qp_state = IBV_QPS_RESET;
        assert_int_equal(softrdma_ibv_modify_qp(ends.qp, &reset, IBV_QP_STATE), 0);
    }
}

// The peer begins a message that is large enough for a shared receive, and goes.
void lose_peer_inside_message(Numbered &ends) {
    Connected connected{ends};
    Peer &peer = connected.peer;
    peer.send(test::fpdu({.opcode = Opcode::Send, .last = false, .msn = 1}, Bytes(9000)));
    peer.finish();
    assert_int_equal(peer.receive_rest().size(), 0);
}

// Nobody in line waits for a receive any more, so posting one returns, and the receive stays.
void a_lost_peer_waits_for_no_shared_receive(Numbered &ends) {
    ends.share_receives();
    lose_peer_inside_message(ends);
    ends.post_shared_receive(3);
    assert_false(ends.device.has_completion());
}

void a_lost_peer_leaves_the_shared_receive_that_it_took(Numbered &ends) {
    ends.share_receives();
    ends.post_shared_receive(3);
    lose_peer_inside_message(ends);
    ends.device.expect_completion(3, IBV_WC_WR_FLUSH_ERR);
    ends.post_shared_receive(4);
    assert_false(ends.device.has_completion());
}

void a_request_that_nobody_answers_ends(Numbered &ends) {
    const test::ChangedLimit soon{test::limits().least_time_to_answer, 300ms};
    Peer closed;
    const std::uint32_t own = closed.listen();
    closed.close();
    ends.make_ready(own);
    ends.post_receive();
    ends.post_send();
    ends.device.expect_completion(1, IBV_WC_RETRY_EXC_ERR);
    ends.device.expect_completion(2, IBV_WC_WR_FLUSH_ERR);
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    assert_int_equal(softrdma_ibv_query_qp(ends.qp, &attributes, IBV_QP_STATE, &init), 0);
    assert_int_equal(attributes.qp_state, IBV_QPS_ERR);
}

// Only a sender and a receiver of XRC meet.
void types_of_xrc_meet_their_opposites(Numbered &ends) {
    const test::ChangedLimit soon{test::limits().least_time_to_answer, 300ms};
    ibv_context *const context = ends.qp->context;
    ibv_xrcd_init_attr wanted{
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    ibv_xrcd *const domain = ibv_open_xrcd(context, &wanted);
    assert_non_null(domain);
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_XRC_RECV;
    attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attributes.xrcd = domain;
    ibv_qp *const receiver = softrdma_ibv_create_qp_ex(context, &attributes);
    assert_non_null(receiver);
    ibv_qp *const one = ends.create(IBV_QPT_XRC_SEND);
    ibv_qp *const two = ends.create(IBV_QPT_XRC_SEND);
    test::make_ready(one, two->qp_num);
    test::make_ready(two, one->qp_num);
    test::make_ready(receiver, ends.qp->qp_num);
    ends.make_ready(receiver->qp_num);
    for (ibv_qp *const qp : {one, two, ends.qp}) {
        Numbered::post_send(qp);
        ends.device.expect_completion(1, IBV_WC_RETRY_EXC_ERR);
    }
    for (ibv_qp *const qp : {one, two, receiver}) {
        assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
    }
    assert_int_equal(ibv_close_xrcd(domain), 0);
}

// A request that waits tries again, so it meets a peer that could not come itself.
void a_request_that_waits_tries_again(Numbered &ends) {
    Peer peer;
    const std::uint32_t own = peer.listen();
    ends.make_ready(own);
    (void)request_of(peer, ends, own);
    refuse(peer);
    ends.post_send();
    (void)request_of(peer, ends, own);
}

// Takes the process's descriptors until the end of the scope: those that are open stay.
class NoDescriptors {
public:
    NoDescriptors() {
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before_), 0);
        const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    }
    ~NoDescriptors() { (void)setrlimit(RLIMIT_NOFILE, &before_); }
    NoDescriptors(const NoDescriptors &) = delete;
    NoDescriptors &operator=(const NoDescriptors &) = delete;

private:
    rlimit before_{};
};

// An attempt that the peer has not answered, or cannot take, or that this process could not make, is made
// again, though no request waits: both ends may be ready, and each may have had the other's answer that it is
// not.
void an_attempt_without_an_answer_is_made_again(Numbered &ends) {
    Peer peer;
    const std::uint32_t own = peer.listen();
    ends.make_ready(own);
    (void)request_of(peer, ends, own);
    peer.finish();
    (void)request_of(peer, ends, own);
    peer.send_frame({.role = MpaRole::Reply, .reject = true, .soft_operations = true});
    (void)request_of(peer, ends, own);
    refuse(peer);
    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;
    assert_int_equal(softrdma_ibv_modify_qp(ends.qp, &reset, IBV_QP_STATE), 0);
    {
        const NoDescriptors without;
        ends.make_ready(own);
    }
    (void)request_of(peer, ends, own);
}

// The link of an unreliable queue pair goes on when the peer uses a wrong key, but not of one that guesses.
void an_unreliable_one_gives_no_key_away(Numbered &ends) {
    const test::ChangedLimit fewer{test::limits().wrong_keys_a_minute, 8};
    ends.become_unreliable();
    Peer port;
    const std::uint32_t own = port.listen();
    ends.make_ready(own);
    port.accept();
    (void)port.receive_frame(MpaRole::Request);
    refuse(port);
    Peer peer;
    peer.connect(ends.port());
    const Bytes names =
        bytes_of({.type = QueuePairType::Unreliable, .destination = ends.qp->qp_num, .source = own});
    peer.send_frame(by_number(names));
    assert_false(peer.receive_frame(MpaRole::Reply).mpa.reject);
    peer.send(test::ready_to_receive());
    const auto write = [&](std::uint32_t key) {
        return test::fpdu({.opcode = Opcode::Write, .stag = key, .offset = ends.device.address()}, Bytes(8));
    };
    ends.device.fill(1);
    for (int i = 0; i < 8; ++i) {
        peer.send(write(ends.device.mr->rkey ^ 1));
    }
    assert_true(*ends.device.at(0) != std::byte{});
    peer.send(write(ends.device.mr->rkey));
    ends.device.work_until([&] { return *ends.device.at(0) == std::byte{}; });
    peer.send(write(ends.device.mr->rkey ^ 1));
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::Terminate);
    ends.device.work_until([&] { return peer.has_ended(); });
}

}  // namespace

int main() {
    if (!test::enter_own_network()) {
        return test::skipped;
    }
    test::set_up(true);
    test::set_address("192.0.2.1", "lo:1");
    const CMUnitTest tests[] = {
        fixture_test(what_names_others_is_refused),
        fixture_test(one_of_two_attempts_counts),
        fixture_test(what_is_placed_is_acknowledged),
        fixture_test(the_engine_takes_over_after_the_last_acknowledgement),
        fixture_test(what_was_not_sent_is_not_acknowledged),
        fixture_test(a_lost_peer_waits_for_no_shared_receive),
        fixture_test(a_lost_peer_leaves_the_shared_receive_that_it_took),
        fixture_test(a_request_that_nobody_answers_ends),
        fixture_test(types_of_xrc_meet_their_opposites),
        fixture_test(a_request_that_waits_tries_again),
        fixture_test(an_attempt_without_an_answer_is_made_again),
        fixture_test(an_unreliable_one_gives_no_key_away),
        fixture_test(an_acknowledgement_waits_for_a_full_link),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
