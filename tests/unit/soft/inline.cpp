// SPDX-License-Identifier: BSD-3-Clause
// Inline data belongs to the program again when the post returns, however much of it TCP has taken by then.
// The device copies the rest into memory that it allocates only then.
#include <atomic>
#include <cerrno>

#include "../../limits.hpp"
#include "failing_new.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

std::atomic<std::size_t> memory_left{SIZE_MAX};  // the largest piece that there is

}  // namespace

bool test::allocation_fails(std::size_t size) {
    return size > memory_left.load();
}

namespace {

using namespace soft::wire;
using test::Bytes;
using test::Device;
using test::Ends;
using test::pattern;

constexpr std::size_t large = 60'000;
constexpr std::size_t small = 100;
constexpr int room_bytes = 4096;  // of the peer, which the kernel makes what it allows
constexpr std::uint64_t remote_address = 0x10000;

// Connects a peer whose TCP takes little with a queue pair that takes inline data of any length.
rdma_cm_id *establish(Ends &ends, const MpaFrame &request) {
    auto &[device, peer, other] = ends;
    device.inline_bytes = SOFTRDMA_MAX_INLINE_SIZE;
    peer.connect(device.port(), 0, 1, room_bytes);
    peer.send_frame(request);
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    (void)peer.receive_frame(MpaRole::Reply);
    peer.send(test::ready_to_receive(request.crc));
    (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    return id;
}

// Posts writes of inline data as one chain. When post() returns, it has changed their bytes.
class Chain {
public:
    void add(std::uint64_t wr_id, std::size_t size) {
        assert_true(count_ < most);
        bytes_[count_] = pattern(size, static_cast<unsigned>(wr_id));
        // The request has two pieces.
        const auto begin = reinterpret_cast<std::uintptr_t>(bytes_[count_].data());
        const auto half = static_cast<std::uint32_t>(size / 2);
        pieces_[count_][0] = {.addr = begin, .length = half, .lkey = 0};
        pieces_[count_][1] = {
            .addr = begin + half, .length = static_cast<std::uint32_t>(size) - half, .lkey = 0};
        ibv_send_wr &request = requests_[count_];
        request.wr_id = wr_id;
        request.sg_list = pieces_[count_].data();
        request.num_sge = 2;
        request.opcode = IBV_WR_RDMA_WRITE;
        request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
        request.wr.rdma.remote_addr = remote_address;
        request.wr.rdma.rkey = 7;
        if (count_ != 0) {
            requests_[count_ - 1].next = &request;
        }
        ++count_;
    }
    // Returns the result of the post. `refused` is the wr_id of the request that was refused.
    int post(rdma_cm_id *id, std::uint64_t &refused) {
        ibv_send_wr *bad = nullptr;
        const int error = ibv_post_send(id->qp, requests_.data(), &bad);
        refused = bad != nullptr ? bad->wr_id : 0;
        for (Bytes &bytes : bytes_) {
            std::ranges::fill(bytes, std::byte{0});
        }
        return error;
    }

private:
    static constexpr std::size_t most = 3;
    std::array<ibv_send_wr, most> requests_{};
    std::array<std::array<ibv_sge, 2>, most> pieces_{};
    std::array<Bytes, most> bytes_;
    std::size_t count_ = 0;
};

int post(rdma_cm_id *id, std::uint64_t wr_id, std::size_t size) {
    Chain chain;
    std::uint64_t refused = 0;
    chain.add(wr_id, size);
    return chain.post(id, refused);
}

// The peer receives the write with the bytes that it had when it was posted, in any number of FPDUs.
void expect_write(test::Peer &peer, std::uint64_t wr_id, std::size_t size, bool crc = false) {
    Bytes all;
    bool last = false;
    while (!last) {
        const test::Fpdu fpdu = peer.receive_fpdu();
        assert_true(fpdu.segment.opcode == Opcode::Write);
        assert_int_equal(fpdu.segment.offset, remote_address + all.size());
        assert_true(!crc || fpdu.checksum_is_right);
        all.insert(all.end(), fpdu.payload.begin(), fpdu.payload.end());
        last = fpdu.segment.last;
    }
    test::assert_same_bytes(all, pattern(size, static_cast<unsigned>(wr_id)));
}

// Large writes are posted until TCP takes no more and some of them wait. Their wr_ids are 1, 2 and so on.
struct Filled {
    std::uint64_t posted = 0;
    std::uint64_t done = 0;
};
Filled fill(Device &device, rdma_cm_id *id) {
    constexpr std::uint64_t most = 60;
    constexpr std::uint64_t behind = 3;
    Filled filled;
    while (filled.posted < filled.done + behind) {
        assert_true(filled.posted < most);
        assert_int_equal(post(id, ++filled.posted, large), 0);
        while (device.has_completion()) {
            device.expect_completion(++filled.done);
        }
    }
    return filled;
}

void expect_writes(test::Peer &peer, const Filled &filled, bool crc = false) {
    for (std::uint64_t wr_id = 1; wr_id <= filled.posted; ++wr_id) {
        expect_write(peer, wr_id, large, crc);
    }
}

// Expects the completions of the requests. They come when all bytes that leave together have left,
// because the peer has read everything by then.
void expect_completions(Device &device, const Filled &filled) {
    for (std::uint64_t wr_id = filled.done + 1; wr_id <= filled.posted; ++wr_id) {
        device.expect_completion(wr_id);
    }
}

// The bytes go in one segment, in one segment with a CRC, and in the smaller
// segments of a peer that is no soft device.
void what_tcp_does_not_take_keeps_its_bytes(Ends &ends) {
    MpaFrame with_crc = test::from_a_soft_device;
    with_crc.crc = true;
    for (const MpaFrame &request : {test::from_a_soft_device, with_crc, test::plain}) {
        rdma_cm_id *const id = establish(ends, request);
        const Filled filled = fill(ends.device, id);
        expect_writes(ends.peer, filled, request.crc);
        expect_completions(ends.device, filled);
        // No request waits any more.
        assert_int_equal(post(id, 1, SOFTRDMA_MAX_INLINE_SIZE), 0);
        expect_write(ends.peer, 1, SOFTRDMA_MAX_INLINE_SIZE, request.crc);
        ends.device.expect_completion(1);
        ends.device.close(id);
        ends.peer.close();
    }
}

void a_chain_of_both_sizes_keeps_its_order(Ends &ends) {
    rdma_cm_id *const id = establish(ends, test::from_a_soft_device);
    Filled filled = fill(ends.device, id);
    const std::uint64_t next = filled.posted + 1;
    Chain chain;
    std::uint64_t refused = 0;
    chain.add(next, small);
    chain.add(next + 1, large);
    chain.add(next + 2, small);
    assert_int_equal(chain.post(id, refused), 0);
    expect_writes(ends.peer, filled);
    expect_write(ends.peer, next, small);
    expect_write(ends.peer, next + 1, large);
    expect_write(ends.peer, next + 2, small);
    filled.posted += 3;
    expect_completions(ends.device, filled);
}

void a_queue_full_of_inline_data(Ends &ends) {
    rdma_cm_id *const id = establish(ends, test::from_a_soft_device);
    Filled filled = fill(ends.device, id);
    while (post(id, filled.posted + 1, large) == 0) {
        ++filled.posted;
    }
    assert_in_range(filled.posted - filled.done, 60, 64);
    assert_int_equal(post(id, filled.posted + 1, large), ENOMEM);
    expect_writes(ends.peer, filled);
    expect_completions(ends.device, filled);
    assert_int_equal(post(id, 1, large), 0);
    expect_write(ends.peer, 1, large);
    ends.device.expect_completion(1);
}

// Posts the chain when its bytes are in memory already, so that only the device finds no memory.
int post_without_memory(rdma_cm_id *id, Chain &chain, std::size_t left, std::uint64_t &refused) {
    memory_left.store(left);
    const int error = chain.post(id, refused);
    memory_left.store(SIZE_MAX);
    return error;
}

// A program that gets ENOMEM can post the rest later.
void without_memory_for_the_copy(Ends &ends) {
    rdma_cm_id *const id = establish(ends, test::from_a_soft_device);
    std::uint64_t refused = 0;
    Chain first;
    first.add(1, small);
    first.add(2, large);
    assert_int_equal(post_without_memory(id, first, large - 1, refused), ENOMEM);
    assert_int_equal(refused, 2);  // the device does not know yet that TCP would take all of it
    expect_write(ends.peer, 1, small);
    ends.device.expect_completion(1);

    Filled filled = fill(ends.device, id);
    const std::uint64_t next = filled.posted + 1;
    Chain chain;
    chain.add(next, small);
    chain.add(next + 1, large);
    chain.add(next + 2, small);
    assert_int_equal(post_without_memory(id, chain, large - 1, refused), ENOMEM);
    assert_int_equal(refused, next + 1);
    Chain one;
    one.add(next + 1, small);
    assert_int_equal(post_without_memory(id, one, small - 1, refused), ENOMEM);
    assert_int_equal(refused, next + 1);
    assert_int_equal(post(id, next + 1, large), 0);
    expect_writes(ends.peer, filled);
    expect_write(ends.peer, next, small);
    expect_write(ends.peer, next + 1, large);
    filled.posted += 2;
    expect_completions(ends.device, filled);
}

// Requests that wait are flushed, and one that TCP has begun with ends with the connection.
void a_connection_that_ends_meanwhile(Ends &ends) {
    rdma_cm_id *const id = establish(ends, test::from_a_soft_device);
    const Filled filled = fill(ends.device, id);
    assert_int_equal(softrdma_rdma_disconnect(id), 0);
    for (std::uint64_t wr_id = filled.done + 1; wr_id <= filled.posted; ++wr_id) {
        ends.device.expect_completion(wr_id, IBV_WC_WR_FLUSH_ERR);
    }
    assert_int_equal(post(id, 1, large), 0);
    ends.device.expect_completion(1, IBV_WC_WR_FLUSH_ERR);
}

// The longest queue with the most inline data takes no more memory than one without.
void room_is_made_when_it_is_needed(Ends &ends) {
    auto &device = ends.device;
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = device.cq;
    attributes.cap = {.max_send_wr = 16384,
                      .max_recv_wr = 1,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_data = SOFTRDMA_MAX_INLINE_SIZE};
    attributes.qp_type = IBV_QPT_RC;
    memory_left.store(std::size_t{4} << 20);
    ibv_qp *const qp = softrdma_ibv_create_qp(device.mr->pd, &attributes);
    memory_left.store(SIZE_MAX);
    assert_non_null(qp);
    assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
}

}  // namespace

int main() {
    test::limits().unread_bytes_of_process = 0;  // TCP takes the least for each
    const CMUnitTest tests[] = {
        fixture_test(what_tcp_does_not_take_keeps_its_bytes),
        fixture_test(a_chain_of_both_sizes_keeps_its_order),
        fixture_test(a_queue_full_of_inline_data),
        fixture_test(without_memory_for_the_copy),
        fixture_test(a_connection_that_ends_meanwhile),
        fixture_test(room_is_made_when_it_is_needed),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
