// SPDX-License-Identifier: BSD-3-Clause
// One connection has much to send to a peer that takes all of it at once. After a part of it the other
// connections of its group have their turn.
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "soft/connected/queue_pair.hpp"
#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::Bytes;
using test::Ends;
using test::fpdu;

constexpr std::size_t read_bytes = std::size_t{512} << 20;
constexpr std::uint32_t reads = 4;
// One turn sends at most this, with the bytes that earlier turns left in the buffers of the two sockets.
constexpr std::size_t most_in_a_turn = std::size_t{8 + 24} << 20;

// Takes the received bytes and reads none of them, which costs almost no time.
class Taker {
public:
    explicit Taker(int socket) : thread_{[this, socket] { run(socket); }} {}
    ~Taker() { thread_.join(); }
    Taker(const Taker &) = delete;
    Taker &operator=(const Taker &) = delete;

    [[nodiscard]] std::size_t taken() const { return taken_.load(); }

private:
    void run(int socket) {
        Bytes waste(std::size_t{1} << 20);
        for (ssize_t count = 1; count > 0 && taken_.load() < reads * read_bytes;) {
            count = recv(socket, waste.data(), waste.size(), MSG_TRUNC);
            taken_.fetch_add(count > 0 ? static_cast<std::size_t>(count) : 0);
        }
    }

    std::atomic<std::size_t> taken_{0};
    std::thread thread_;
};

void a_turn_ends_though_the_peer_takes_all(Ends &ends) {
    auto &[device, peer, other] = ends;
    void *const memory =
        mmap(nullptr, read_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    ibv_mr *const region = softrdma_ibv_reg_mr(device.mr->pd, memory, read_bytes, IBV_ACCESS_REMOTE_READ);
    assert_non_null(region);
    rdma_cm_id *const id = device.establish(peer, test::from_a_soft_device);
    auto &queue_pair = static_cast<soft::QueuePair &>(*soft::AnyQueuePair::of(id->qp));
    std::size_t longest = 0;
    {
        const Taker taker{peer.socket()};
        const base::Lock lock{queue_pair.group()->mutex()};  // no other thread serves the group
        for (std::uint32_t msn = 1; msn <= reads; ++msn) {
            peer.send(fpdu({.opcode = Opcode::ReadRequest, .msn = msn},
                           encode(ReadRequest{.sink_stag = 1,
                                              .sink_offset = 0,
                                              .size = read_bytes,
                                              .source_stag = region->rkey,
                                              .source_offset = reinterpret_cast<std::uintptr_t>(memory)})));
        }
        while (taker.taken() < reads * read_bytes) {
            const std::size_t before = taker.taken();
            queue_pair.progress();
            longest = std::max(longest, taker.taken() - before);
        }
    }
    assert_in_range(longest, 1, most_in_a_turn);
    device.close(id);
    assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
    assert_int_equal(munmap(memory, read_bytes), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(a_turn_ends_though_the_peer_takes_all)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
