// SPDX-License-Identifier: BSD-3-Clause
// Tests speak as a TCP peer to the soft device in their own process. Every function asserts (cmocka) that it
// succeeds, and none waits longer than 40 s.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "softrdma.h"

// These come last, because they assert.
#include "peer.hpp"

#include "../base/fixture.hpp"

namespace test {

// A peer asks for a connection with one of these frames. `plain` comes from a device that is not ours.
inline constexpr soft::wire::MpaFrame plain{.ird = 4, .ord = 4};
inline constexpr soft::wire::MpaFrame from_a_soft_device{.soft_operations = true, .ird = 4, .ord = 4};

// This is a copy of an event of the connection manager.
struct Event {
    rdma_cm_event_type type;
    int status;
    rdma_cm_id *id;
    std::uint8_t responder_resources;
    std::uint8_t initiator_depth;
    std::string private_data;
};

class Device {
public:
    static constexpr std::size_t memory_bytes = 256 * 1024;
    static constexpr std::size_t margin_bytes = 4096;  // before and behind, not registered
    static constexpr std::uint8_t depth = 4;           // reads and flushes at once
    static constexpr std::byte untouched{0xee};

    // Listens on 127.0.0.1, at a port of its own, and watches the log.
    Device();
    ~Device();
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    [[nodiscard]] std::uint16_t port() const;

    // Waits for the next event of this type, and of this id unless it is
    // null. Other events are kept for later.
    Event wait_for(rdma_cm_event_type type, const rdma_cm_id *id = nullptr);
    // Returns the oldest event that no call has returned yet.
    std::optional<Event> next_event();
    // Lets the device work, as a program does that polls.
    void work();
    void work_until(const std::function<bool()> &done);
    // Works until the device has read every byte that this peer has sent, and has acted on them. The
    // connection must be open and must not be stalled.
    void work_until_read(const Peer &peer);
    // Returns how many bytes for this peer the kernel has taken from the device.
    [[nodiscard]] static std::uint64_t bytes_taken(const Peer &peer);
    // Works, and returns whether there is an event.
    [[nodiscard]] bool has_event();

    // Returns the id of the next request, with a queue pair, as responder.
    [[nodiscard]] rdma_cm_id *take_request();
    void accept(rdma_cm_id *id, std::string_view private_data = {});
    // Returns an id that asks 127.0.0.1:port for a connection, as initiator.
    [[nodiscard]] rdma_cm_id *connect(std::uint16_t port, std::string_view private_data = {});
    void create_queue_pair(rdma_cm_id *id);
    void close(rdma_cm_id *id);

    // Accepts a connection as responder: the peer sends its request, the device accepts
    // it, and the peer sends its first FPDU.
    [[nodiscard]] rdma_cm_id *establish(Peer &peer, const soft::wire::MpaFrame &request);

    [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t length) const;
    void post_receive(rdma_cm_id *id, std::uint64_t wr_id, std::size_t offset, std::size_t length);
    // Posts to `srq`.
    void post_shared_receive(std::uint64_t wr_id, ibv_sge place) const {
        ibv_recv_wr request{};
        request.wr_id = wr_id;
        request.sg_list = &place;
        request.num_sge = 1;
        ibv_recv_wr *bad = nullptr;
        assert_int_equal(ibv_post_srq_recv(srq, &request, &bad), 0);
    }
    void post(rdma_cm_id *id, ibv_wr_opcode opcode, std::uint64_t wr_id, std::size_t offset,
              std::size_t length, std::uint64_t remote_address = 0, std::uint32_t rkey = 0);
    [[nodiscard]] ibv_wc next_completion();
    // Works, and returns whether there is a completion.
    [[nodiscard]] bool has_completion();
    // Works, and drops the completions that are there.
    void forget_completions();
    void expect_completion(std::uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS);

    // Returns the address that peers use for memory[offset]. `mr` allows everything there.
    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const;
    [[nodiscard]] std::byte *at(std::size_t offset) { return memory_.data() + margin_bytes + offset; }
    // Fills the memory, and both margins with `untouched`.
    void fill(unsigned seed);
    [[nodiscard]] bool margins_are_untouched() const;

    ibv_mr *mr = nullptr;          // everything
    ibv_mr *local_mr = nullptr;    // the same bytes, local writing only
    ibv_mr *foreign_mr = nullptr;  // the same bytes, everything, another protection domain
    ibv_cq *cq = nullptr;
    std::uint32_t inline_bytes = 0;  // of queue pairs made later
    // A test may set a queue of its own here. Queue pairs made later take their receives from it.
    ibv_srq *srq = nullptr;

private:
    void poll_events();

    rdma_event_channel *events_ = nullptr;
    rdma_cm_id *listener_ = nullptr;
    ibv_pd *pd_ = nullptr;
    ibv_pd *other_pd_ = nullptr;
    Bytes memory_;
    std::vector<Event> seen_;
    std::deque<ibv_wc> completions_;
    std::vector<rdma_cm_id *> open_;
};

// This is the fixture of most tests in this folder.
struct Ends {
    Device device;
    Peer peer;
    Peer other;
};

// watch_log() has the device count its log lines instead of printing them. logged()
// returns the counts since its last call.
struct LogCount {
    int errors = 0;
    int warnings = 0;
};
void watch_log();
[[nodiscard]] LogCount logged();

}  // namespace test
