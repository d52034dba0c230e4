// SPDX-License-Identifier: BSD-3-Clause
// A seed makes many hostile peers, at once and one after another. The device asks half of them for a
// connection, and the other half asks the device. They send bad start-ups, valid frames in wrong
// orders (disorder.hpp) and answers that the device did not ask for (answers.hpp). Some are slow or
// half open, some never read, and some just leave.
// The test checks after each peer that the device told (TERMINATE) and dropped the peer if it broke a rule,
// and did neither if the peer kept all rules, and that every request of the program has completed once
// (ledger.hpp). It checks all the while that an honest connection goes on, that every byte that was neither
// opened to peers nor posted is as it was, and that the memory in use stays within a bound of so much a
// connection, and comes back to what it was.
// The arguments are the seed and the number of frames, and perhaps `tls`: then all peers have the key, and
// some of them spoil their bytes below TLS.
#include <malloc.h>
#include <netinet/in.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "../../limits.hpp"
#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "attacker.hpp"
#include "ground.hpp"
#include "honest.hpp"
#include "ledger.hpp"

namespace {

using namespace soft::wire;
using test::Aim;
using test::Attacker;
using test::Bytes;
using test::Clock;
using test::Device;
using test::Dice;
using test::Disorder;
using test::Tally;

constexpr std::size_t slots = 24;
// One connection may make the device use this much memory, for buffers, kept messages, and
// a full batch that is copied at its end.
constexpr std::size_t most_connection_bytes = 2 * 1024 * 1024;
constexpr std::size_t most_lost_bytes = 256 * 1024;

std::uint64_t seed = 1;
std::uint64_t most_frames = 20'000;
bool with_tls = false;

// This is the program on the device's side, with all its peers.
class Storm {
public:
    Storm() : dice_{seed} {
        (void)softrdma_ibv_destroy_cq(device_.cq);
        device_.cq = softrdma_ibv_create_cq(device_.mr->context, 8192, nullptr, nullptr, 0);
        assert_non_null(device_.cq);
        ground_ = std::make_unique<test::Ground>(device_.mr->pd);
        const Aim open = ground_->open();
        ledger_ = std::make_unique<test::Ledger>(
            device_.mr->pd,
            ibv_sge{.addr = open.address, .length = static_cast<std::uint32_t>(open.bytes), .lkey = open.key},
            dice_);
        device_.fill(1);
        honest_id_ = honest_.connect(device_, {.ird = 4, .ord = 4});
    }

    void blow();

private:
    void attack();
    void work();
    void take_completions();
    void answer(rdma_cm_id *id);
    void ask(std::uint16_t port);
    void act();
    void part_with(rdma_cm_id *id);
    void ended(const test::Event &event);
    void close(rdma_cm_id *id);
    [[nodiscard]] Attacker *attacker_of(rdma_cm_id *id);
    void check_honest();
    void check_memory();
    void check_use();
    void calm();
    void complete_table_of_regions();
    void say() const;
    [[nodiscard]] test::Aims aims() const;
    [[nodiscard]] static std::size_t memory_in_use() {
        const auto info = mallinfo2();
        return info.uordblks + info.hblkhd;
    }

    Dice dice_;
    Device device_;
    std::unique_ptr<test::Ground> ground_;
    std::unique_ptr<test::Ledger> ledger_;
    test::Honest honest_;
    rdma_cm_id *honest_id_ = nullptr;
    std::uint32_t honest_msn_ = 0;
    test::Aims aims_{};
    std::map<std::uint16_t, std::unique_ptr<Attacker>> attackers_;
    std::vector<rdma_cm_id *> ids_;
    Tally tally_;
    std::size_t calm_bytes_ = 0;
};

test::Aims Storm::aims() const {
    const Aim elsewhere{.key = device_.local_mr->rkey, .address = device_.address(8192), .bytes = 4096};
    return {.open = ground_->open(),
            .read_only = ground_->read_only(),
            .local = elsewhere,
            .foreign = {.key = device_.foreign_mr->rkey, .address = elsewhere.address, .bytes = 4096},
            .stale = ground_->stale()};
}

Attacker *Storm::attacker_of(rdma_cm_id *id) {
    const auto attacker = attackers_.find(ntohs(softrdma_rdma_get_dst_port(id)));
    return attacker != attackers_.end() ? attacker->second.get() : nullptr;
}

void Storm::take_completions() {
    std::array<ibv_wc, 64> completions;
    int count = 0;
    while ((count = ibv_poll_cq(device_.cq, static_cast<int>(completions.size()), completions.data())) > 0) {
        for (const ibv_wc &completion : std::span{completions}.first(static_cast<std::size_t>(count))) {
            ledger_->completed(completion);
        }
    }
}

// Closes the id in any state. The posted requests end with it.
void Storm::close(rdma_cm_id *id) {
    std::erase(ids_, id);
    const std::uint32_t number = id->qp != nullptr ? id->qp->qp_num : 0;
    device_.close(id);
    take_completions();
    ledger_->forget(number);
}

// At the end of a connection the device leaves no posted request open.
void Storm::ended(const test::Event &event) {
    if (event.type != RDMA_CM_EVENT_DISCONNECTED) {
        // A queue pair that was never connected goes through the error state, as in verbs.
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_ERR;
        assert_int_equal(softrdma_ibv_modify_qp(event.id->qp, &attributes, IBV_QP_STATE), 0);
    }
    take_completions();
    assert_true(ledger_->is_settled(*event.id->qp));
    close(event.id);
}

void Storm::answer(rdma_cm_id *id) {
    if (dice_.chance(2)) {
        if (Attacker *const attacker = attacker_of(id)) {
            attacker->dropped_by_program();
        }
        (void)softrdma_rdma_reject(id, "no", 2);
        close(id);
        return;
    }
    device_.create_queue_pair(id);
    ledger_->post_receive(id->qp);
    rdma_conn_param depths{};
    depths.responder_resources = depths.initiator_depth = Device::depth;
    if (softrdma_rdma_accept(id, &depths) != 0) {
        close(id);  // its peer has gone
        return;
    }
    ids_.push_back(id);
}

void Storm::ask(std::uint16_t port) {
    rdma_cm_id *const id = device_.connect(port);
    ledger_->post_receive(id->qp);
    ids_.push_back(id);
}

// Ends the connection as a program does, in one way or the other, unless the device has to end it.
void Storm::part_with(rdma_cm_id *id) {
    if (Attacker *const attacker = attacker_of(id)) {
        if (attacker->must_end()) {
            return;
        }
        attacker->dropped_by_program();
    }
    if (dice_.chance(50)) {
        close(id);
    } else {
        (void)softrdma_rdma_disconnect(id);
    }
}

void Storm::act() {
    if (ids_.empty()) {
        return;
    }
    rdma_cm_id *const id = ids_[dice_.below(ids_.size())];
    if (dice_.chance(75)) {
        ledger_->post_receive(id->qp);
    }
    if (dice_.chance(50)) {
        ledger_->post_request(id->qp);
    }
    const auto kind = dice_.below(200);
    if (kind == 0) {
        ground_->register_spare();
    } else if (kind == 1) {
        part_with(id);
    }
}

void Storm::work() {
    take_completions();
    while (const auto event = device_.next_event()) {
        if (event->id == honest_id_) {
            fail_msg("the honest connection ended");
        }
        if (event->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            answer(event->id);
        } else if (event->type != RDMA_CM_EVENT_ESTABLISHED) {
            ended(*event);
        }
    }
    act();
}

// Starts one more hostile peer.
void Storm::attack() {
    const bool asks = dice_.chance(50);
    auto made = asks ? std::make_unique<Attacker>(device_.port(), aims_, dice_, tally_)
                     : std::make_unique<Attacker>(aims_, dice_, tally_);
    const std::uint16_t port = made->port();
    attackers_.insert_or_assign(port, std::move(made));
    if (!asks) {
        ask(port);
    }
}

// Writes over the honest connection, and reads back.
void Storm::check_honest() {
    const Bytes payload = test::pattern(16, static_cast<unsigned>(dice_.any()));
    const std::uint32_t key = device_.mr->rkey;
    honest_.send(test::joined(
        test::fpdu({.opcode = Opcode::Write, .stag = key, .offset = device_.address(100)}, payload),
        test::fpdu({.opcode = Opcode::ReadRequest, .msn = ++honest_msn_},
                   encode(ReadRequest{.sink_stag = 1,
                                      .sink_offset = 2,
                                      .size = 16,
                                      .source_stag = key,
                                      .source_offset = device_.address(100)}))));
    const Clock deadline;
    auto answer = honest_.take_fpdu();
    for (; !answer; answer = honest_.take_fpdu()) {
        work();
        assert_false(deadline.passed());
    }
    test::assert_same_bytes(answer->payload, payload);
}

void Storm::check_memory() {
    static const Bytes before = test::pattern(Device::memory_bytes, 1);
    assert_true(ground_->is_untouched());
    ledger_->check_sinks();
    assert_true(device_.margins_are_untouched());
    assert_true(std::equal(before.begin(), before.begin() + 100, device_.at(0)));
    assert_true(std::equal(before.begin() + 116, before.end(), device_.at(116)));
}

void Storm::check_use() {
    assert_true(memory_in_use() < calm_bytes_ + (slots + ids_.size()) * most_connection_bytes);
}

// Waits until the device has ended the connections of the peers that broke a rule, and lets the other
// peers leave. Then nothing is left of them.
void Storm::calm() {
    std::erase_if(attackers_, [](const auto &one) { return !one.second->must_end(); });
    while (!attackers_.empty()) {
        std::erase_if(attackers_, [](const auto &one) { return !one.second->step(); });
        work();
    }
    const Clock deadline;
    while (!ids_.empty()) {
        work();
        for (rdma_cm_id *const id : std::vector{ids_}) {
            close(id);
        }
        assert_false(deadline.passed());
    }
    check_honest();
}

// Registers regions until the table of regions has all parts. The table grows by the part in
// which the next key falls. All parts are about 2 MiB, which are no leak. After so many
// registrations the table has all parts.
void Storm::complete_table_of_regions() {
    for (unsigned i = 0; i < 40'000; ++i) {
        ibv_mr *const region = softrdma_ibv_reg_mr(device_.mr->pd, device_.at(0), 8, IBV_ACCESS_LOCAL_WRITE);
        assert_non_null(region);
        assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
    }
}

void Storm::say() const {
    const auto &counts = ledger_->counts();
    std::fprintf(stderr,
                 "seed %" PRIu64 ": %" PRIu64 " frames, %" PRIu64 " connections, %" PRIu64
                 " terminated, %" PRIu64 " closed without, %" PRIu64 " spoilt; %" PRIu64 " requests, %" PRIu64
                 " answered, %" PRIu64 " failed\n",
                 seed, tally_.frames, tally_.connections, tally_.terminates, tally_.closed, tally_.spoilt,
                 counts.posted, counts.answered, counts.failed);
}

void Storm::blow() {
    auto said = std::chrono::steady_clock::now();
    aims_ = aims();
    for (std::uint64_t round = 0; tally_.frames < most_frames; ++round) {
        aims_ = aims();
        while (attackers_.size() < slots) {
            attack();
        }
        for (auto one = attackers_.begin(); one != attackers_.end();) {
            one = one->second->step() ? std::next(one) : attackers_.erase(one);
            if (dice_.chance(40)) {
                work();
            }
        }
        if (round % 64 == 0) {
            check_honest();
        }
        if (round % 256 == 0) {
            check_memory();
            if (calm_bytes_ == 0 && round >= 256) {
                calm();
                complete_table_of_regions();
                calm_bytes_ = memory_in_use();
            } else if (calm_bytes_ != 0) {
                check_use();
            }
        }
        const auto now = std::chrono::steady_clock::now();
        if (now - said > std::chrono::seconds{10}) {
            said = now;
            say();
        }
    }
    calm();
    check_memory();
    // The engine may still end the last connections.
    for (const Clock deadline; memory_in_use() >= calm_bytes_ + most_lost_bytes; work()) {
        assert_false(deadline.passed());
    }
    say();
    const auto &counts = ledger_->counts();
    assert_true(tally_.terminates > 0 && tally_.closed > 0 && counts.answered > 0 && counts.failed > 0);
    assert_true((tally_.spoilt > 0) == with_tls);
}

void peers_that_break_every_rule(void **) {
    std::fprintf(stderr, "seed %" PRIu64 ", %" PRIu64 " frames\n", seed, most_frames);
    test::watch_log();
    test::limits().segment_timeout = std::chrono::minutes{10};  // however busy the machine is
    test::limits().wrong_keys_a_minute = 1'000'000'000;
    std::make_unique<Storm>()->blow();
}

}  // namespace

int main(int argc, char **argv) {
    seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : seed;
    most_frames = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : most_frames;
    with_tls = argc > 3 && std::string_view{argv[3]} == "tls";
    if (with_tls && !test::use_tls()) {
        std::perror("the file of keys");
        return EXIT_FAILURE;
    }
    const CMUnitTest tests[] = {cmocka_unit_test(peers_that_break_every_rule)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
