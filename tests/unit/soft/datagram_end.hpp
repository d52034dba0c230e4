// SPDX-License-Identifier: BSD-3-Clause
// A datagram end is a UD queue pair of the loopback device with its objects and memory. Every function
// asserts (cmocka) that it succeeds, and none waits longer than 40 s.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "softrdma.h"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace test {

inline constexpr std::uint32_t qkey = 0x11111111;
inline constexpr std::size_t route_bytes = sizeof(ibv_grh);

// This is a received message.
struct Message {
    ibv_wc completion{};
    ibv_grh route{};
    std::string text;
};

class DatagramEnd {
public:
    static constexpr std::size_t slot_bytes = 8192;
    static constexpr std::size_t slots = 16;

    // Brings the queue pair into this state. Its GID is that of 127.0.0.1, or of ::1 with `ipv6`.
    explicit DatagramEnd(ibv_qp_state state = IBV_QPS_RTS, bool ipv6 = false);
    // Has the id make the queue pair.
    explicit DatagramEnd(rdma_cm_id *id);
    ~DatagramEnd();
    DatagramEnd(const DatagramEnd &) = delete;
    DatagramEnd &operator=(const DatagramEnd &) = delete;

    // Returns 0 or an errno value.
    [[nodiscard]] int modify(ibv_qp_state state, int more = 0) const;
    // Goes from RESET through all states up to this one.
    void climb(ibv_qp_state to) const;
    [[nodiscard]] ibv_qp_state state() const;

    void post_receive(std::uint64_t slot, std::size_t bytes = slot_bytes) const;
    // Sends from the second half of the slot. Returns 0 or an errno value.
    [[nodiscard]] int post_send(ibv_send_wr request) const;
    // Sends the text to a queue pair.
    void send(std::string_view text, ibv_ah *to, std::uint32_t qp_num, std::uint32_t with_qkey = qkey);
    void send(std::string_view text, const DatagramEnd &to, std::uint32_t with_qkey = qkey);

    [[nodiscard]] ibv_wc next_completion() const;
    // Returns the next completion of this opcode. A message may complete before a send of this end that it
    // does not answer.
    [[nodiscard]] ibv_wc next_completion(ibv_wc_opcode opcode);
    // Returns the next message that was received into a slot.
    [[nodiscard]] Message next_message();
    // Asserts that no further message has come. The loopback interface delivers at once, so the sockets know.
    void expect_nothing() const;

    [[nodiscard]] ibv_gid gid() const;
    // Returns an address handle that is destroyed with this end.
    [[nodiscard]] ibv_ah *handle_to(const ibv_gid &to);
    [[nodiscard]] ibv_ah_attr attributes_to(const ibv_gid &to) const;
    [[nodiscard]] ibv_sge sge(std::size_t slot, std::size_t bytes) const;
    [[nodiscard]] char *at(std::size_t slot) const { return memory_ + slot * slot_bytes; }

    ibv_context *context = nullptr;
    ibv_pd *pd = nullptr;
    ibv_comp_channel *channel = nullptr;
    ibv_cq *cq = nullptr;
    ibv_qp *qp = nullptr;
    ibv_mr *mr = nullptr;

private:
    void create_objects();
    [[nodiscard]] ibv_qp_init_attr wanted() const;

    bool ipv6_ = false;
    int gid_index_ = 0;
    rdma_cm_id *id_ = nullptr;  // the id that made the queue pair
    char *memory_ = nullptr;
    std::vector<ibv_ah *> handles_;
    std::vector<ibv_wc> kept_;
};

// Returns a context of the loopback device.
[[nodiscard]] ibv_context *loopback();
[[nodiscard]] ibv_gid gid_of(const char *address);

}  // namespace test
