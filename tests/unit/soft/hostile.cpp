// SPDX-License-Identifier: BSD-3-Clause
// Hostile peers, many at once and one after another, from a seed: bad start-ups, valid frames in wrong orders
// (disorder.hpp), slow and half-open ones, some that never read, some that just go. After each:
//   - who broke a rule was told (TERMINATE) and dropped, who kept them all was not;
// and all the while:
//   - an honest connection goes on, and every byte that was not opened to peers is as it was;
//   - the memory in use stays within a bound of so much a connection, and comes back to what it was.
// Arguments: seed, number of frames.
#include <malloc.h>
#include <netinet/in.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "soft/limits.hpp"
#include "soft/wire/rdmap.hpp"

// Last, as it wants.
#include "attacker.hpp"

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
constexpr std::size_t open_bytes = 64 * 1024;
constexpr std::size_t small_bytes = 4096;
constexpr std::size_t margin_bytes = 4096;
constexpr std::size_t receives_at = 48 * 1024;
constexpr std::byte untouched{0xee};
// Of our memory, what one connection may make us use: buffers, kept messages, a full batch copied at its end.
constexpr std::size_t most_connection_bytes = 2 * 1024 * 1024;
constexpr std::size_t most_lost_bytes = 256 * 1024;

std::uint64_t seed = 1;
std::uint64_t most_frames = 20'000;

// Regions between margins: one that peers may write, one they may read, one whose key is an old one.
class Ground {
public:
    explicit Ground(ibv_pd *pd)
        : pd_{pd}, bytes_(open_bytes + 2 * small_bytes + 4 * margin_bytes, untouched) {
        open_ = registered(margin_bytes, open_bytes,
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
        read_only_ = registered(read_only_at, small_bytes, IBV_ACCESS_REMOTE_READ);
        register_spare();
    }
    ~Ground() {
        for (ibv_mr *const region : {open_, read_only_, spare_}) {
            (void)softrdma_ibv_dereg_mr(region);
        }
    }
    Ground(const Ground &) = delete;
    Ground &operator=(const Ground &) = delete;

    void register_spare() {
        stale_key_ = spare_ != nullptr ? spare_->rkey : 0;
        if (spare_ != nullptr) {
            assert_int_equal(softrdma_ibv_dereg_mr(spare_), 0);
        }
        spare_ = registered(spare_at, small_bytes, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    }
    [[nodiscard]] Aim open() const { return aim(*open_); }
    [[nodiscard]] Aim read_only() const { return aim(*read_only_); }
    [[nodiscard]] Aim stale() const {
        return {.key = stale_key_,
                .address = reinterpret_cast<std::uintptr_t>(spare_->addr),
                .bytes = small_bytes};
    }
    [[nodiscard]] bool is_untouched() const {
        const auto same = [](std::byte byte) { return byte == untouched; };
        return std::ranges::all_of(std::span{bytes_}.first(margin_bytes), same) &&
               std::ranges::all_of(std::span{bytes_}.subspan(margin_bytes + open_bytes), same);
    }

private:
    static constexpr std::size_t read_only_at = 2 * margin_bytes + open_bytes;
    static constexpr std::size_t spare_at = read_only_at + small_bytes + margin_bytes;

    [[nodiscard]] static Aim aim(const ibv_mr &region) {
        return {.key = region.rkey,
                .address = reinterpret_cast<std::uintptr_t>(region.addr),
                .bytes = region.length};
    }
    [[nodiscard]] ibv_mr *registered(std::size_t at, std::size_t size, int access) {
        ibv_mr *const region = softrdma_ibv_reg_mr(
            pd_, bytes_.data() + at, size, access | IBV_ACCESS_LOCAL_WRITE | SOFTRDMA_ACCESS_FLUSH_GLOBAL);
        assert_non_null(region);
        return region;
    }

    ibv_pd *const pd_;
    Bytes bytes_;
    ibv_mr *open_ = nullptr;
    ibv_mr *read_only_ = nullptr;
    ibv_mr *spare_ = nullptr;
    std::uint32_t stale_key_ = 0;
};

// The program on the device's side, and all its peers.
class Storm {
public:
    Storm() : dice_{seed} {
        (void)softrdma_ibv_destroy_cq(device_.cq);
        device_.cq = softrdma_ibv_create_cq(device_.mr->context, 8192, nullptr, nullptr, 0);
        assert_non_null(device_.cq);
        ground_ = std::make_unique<Ground>(device_.mr->pd);
        device_.fill(1);
        honest_id_ = device_.establish(honest_, {.ird = 4, .ord = 4});
    }

    void blow();

private:
    void work();
    void answer(rdma_cm_id *id);
    void act();
    void close(rdma_cm_id *id);
    void check_honest();
    void check_memory();
    void check_use();
    void calm();
    [[nodiscard]] test::Aims aims() const;
    [[nodiscard]] static std::size_t memory_in_use() {
        const auto info = mallinfo2();
        return info.uordblks + info.hblkhd;
    }

    Dice dice_;
    Device device_;
    std::unique_ptr<Ground> ground_;
    test::Peer honest_;
    rdma_cm_id *honest_id_ = nullptr;
    std::uint32_t honest_msn_ = 0;
    test::Aims aims_{};
    std::map<std::uint16_t, std::unique_ptr<Attacker>> attackers_;
    std::vector<rdma_cm_id *> ids_;
    Tally tally_;
    std::size_t calm_bytes_ = 0;
};

test::Aims Storm::aims() const {
    const Aim elsewhere{
        .key = device_.local_mr->rkey, .address = device_.address(8192), .bytes = small_bytes};
    return {.open = ground_->open(),
            .read_only = ground_->read_only(),
            .local = elsewhere,
            .foreign = {.key = device_.foreign_mr->rkey, .address = elsewhere.address, .bytes = small_bytes},
            .stale = ground_->stale()};
}

void Storm::close(rdma_cm_id *id) {
    std::erase(ids_, id);
    device_.close(id);
}

void Storm::answer(rdma_cm_id *id) {
    const auto attacker = attackers_.find(ntohs(softrdma_rdma_get_dst_port(id)));
    if (dice_.chance(2)) {
        if (attacker != attackers_.end()) {
            attacker->second->dropped_by_program();
        }
        (void)softrdma_rdma_reject(id, "no", 2);
        close(id);
        return;
    }
    device_.create_queue_pair(id);
    rdma_conn_param depths{};
    depths.responder_resources = depths.initiator_depth = Device::depth;
    if (softrdma_rdma_accept(id, &depths) != 0) {
        close(id);  // its peer has gone
        return;
    }
    ids_.push_back(id);
}

// Receives, and now and then something of its own.
void Storm::act() {
    if (ids_.empty()) {
        return;
    }
    rdma_cm_id *const id = ids_[dice_.below(ids_.size())];
    const auto kind = dice_.below(200);
    ibv_sge place{.addr = ground_->open().address + receives_at + 512 * dice_.below(30),
                  .length = Disorder::receive_bytes,
                  .lkey = ground_->open().key};
    if (kind < 150) {
        ibv_recv_wr request{};
        request.sg_list = &place;
        request.num_sge = 1;
        ibv_recv_wr *bad = nullptr;
        (void)ibv_post_recv(id->qp, &request, &bad);  // full, or over
    } else if (kind < 198) {
        ibv_send_wr request{};
        request.sg_list = &place;
        request.num_sge = 1;
        constexpr ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
        request.opcode = opcodes[dice_.below(3)];
        request.wr.rdma.remote_addr = dice_.any();
        ibv_send_wr *bad = nullptr;
        (void)ibv_post_send(id->qp, &request, &bad);
    } else if (kind == 198) {
        ground_->register_spare();
    } else {
        const auto attacker = attackers_.find(ntohs(softrdma_rdma_get_dst_port(id)));
        if (attacker != attackers_.end()) {
            if (attacker->second->must_end()) {
                return;  // that is the device's to do
            }
            attacker->second->dropped_by_program();
        }
        (void)softrdma_rdma_disconnect(id);
    }
}

void Storm::work() {
    std::array<ibv_wc, 64> completions;
    while (ibv_poll_cq(device_.cq, static_cast<int>(completions.size()), completions.data()) > 0) {
    }
    while (const auto event = device_.next_event()) {
        if (event->id == honest_id_) {
            fail_msg("the honest connection ended");
        }
        if (event->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            answer(event->id);
        } else if (event->type != RDMA_CM_EVENT_ESTABLISHED) {
            close(event->id);
        }
    }
    act();
}

// Writes, and reads back.
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
    while (!honest_.has_data()) {
        work();
        assert_false(deadline.passed());
    }
    test::assert_same_bytes(honest_.receive_fpdu().payload, payload);
}

void Storm::check_memory() {
    static const Bytes before = test::pattern(Device::memory_bytes, 1);
    assert_true(ground_->is_untouched());
    assert_true(device_.margins_are_untouched());
    assert_true(std::equal(before.begin(), before.begin() + 100, device_.at(0)));
    assert_true(std::equal(before.begin() + 116, before.end(), device_.at(116)));
}

void Storm::check_use() {
    assert_true(memory_in_use() < calm_bytes_ + (slots + ids_.size()) * most_connection_bytes);
}

// Who must be told and dropped is; the others go. Then nothing is left of them.
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

void Storm::blow() {
    auto said = std::chrono::steady_clock::now();
    aims_ = aims();
    for (std::uint64_t round = 0; tally_.frames < most_frames; ++round) {
        aims_ = aims();
        while (attackers_.size() < slots) {
            auto made = std::make_unique<Attacker>(device_, aims_, dice_, tally_);
            const std::uint16_t port = made->port();
            attackers_.insert_or_assign(port, std::move(made));
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
                calm_bytes_ = memory_in_use();
            } else if (calm_bytes_ != 0) {
                check_use();
            }
        }
        const auto now = std::chrono::steady_clock::now();
        if (now - said > std::chrono::seconds{10}) {
            said = now;
            tally_.print(seed);
        }
    }
    calm();
    check_memory();
    assert_true(memory_in_use() < calm_bytes_ + most_lost_bytes);
    tally_.print(seed);
    assert_true(tally_.terminates > 0 && tally_.closed > 0);
}

void peers_that_break_every_rule(void **) {
    std::fprintf(stderr, "seed %" PRIu64 ", %" PRIu64 " frames\n", seed, most_frames);
    test::watch_log();
    soft::limits::segment_timeout = std::chrono::minutes{10};  // however busy the machine is
    std::make_unique<Storm>()->blow();
}

}  // namespace

int main(int argc, char **argv) {
    seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : seed;
    most_frames = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : most_frames;
    const CMUnitTest tests[] = {cmocka_unit_test(peers_that_break_every_rule)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
