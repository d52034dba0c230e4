// SPDX-License-Identifier: BSD-3-Clause
// model/side: one end of a connection and what it must look like: the oracle. It knows every request that was
// accepted and not yet told done, every message on its way, and each byte of memory that a peer may have
// changed.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ends.hpp"
#include "requests.hpp"

namespace model {

// An end's memory: what it sends from, which changes only while nothing is open; where its reads land; where
// the other side writes and reads; its receive buffers.
struct Layout {
    static constexpr std::size_t source_bytes = 256 * 1024;
    static constexpr std::size_t sink_bytes = 256 * 1024;
    static constexpr std::size_t target_bytes = 256 * 1024;
    static constexpr std::size_t slot_bytes = 128 * 1024;
    static constexpr std::size_t slots = 16;

    static constexpr std::size_t sink = source_bytes;
    static constexpr std::size_t target = sink + sink_bytes;
    static constexpr std::size_t first_slot = target + target_bytes;
    static constexpr std::size_t all_bytes = first_slot + slots * slot_bytes;
};

struct Range {
    std::size_t offset = 0;
    std::size_t length = 0;

    [[nodiscard]] bool overlaps(const Range &other) const {
        return offset < other.offset + other.length && other.offset < offset + length;
    }
};

// A request that was accepted. `remote` is in the other side's target, `local` in this side's sink.
struct Operation {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    std::uint64_t wr_id = 0;
    bool signaled = false;
    std::uint32_t immediate = 0;
    Range remote{};
    Range local{};
    // Of a write that was posted: its bytes, and those that were there.
    std::vector<std::byte> content{};
    std::vector<std::byte> before{};
};

// SOFTRDMA_FAULTS, when the device has it: any request may be the last of its connection, and of a longer
// write that is, so many bytes are placed.
struct Faults {
    std::size_t torn_bytes;
};

// What takes a receive of the other side.
[[nodiscard]] bool is_send(ibv_wr_opcode opcode);
[[nodiscard]] bool has_immediate(ibv_wr_opcode opcode);
[[nodiscard]] inline bool takes_receive(ibv_wr_opcode opcode) {
    return is_send(opcode) || has_immediate(opcode);
}

// How a connection was ended, and so what its completions may be.
enum class Ending { None, Here, There, RefusedThere };

class Side {
public:
    Side(conformance::End &end, const std::string &name, std::optional<Faults> faults)
        : end_{end}, name_{name}, faults_{faults} {}
    void begin(std::uint64_t pattern);

    // ---- what is asked for: request and effect, once it was accepted ----
    void posted(const Operation &operation, const std::vector<std::byte> &content, Side &other);
    void posted_receive(std::uint64_t wr_id, std::vector<ibv_sge> sges);

    // ---- what comes back: "" or what is wrong with it ----
    [[nodiscard]] std::string poll(int most);
    // After the end: every request was told of, memory is what it must be.
    [[nodiscard]] std::string poll_rest();
    [[nodiscard]] std::string compare() const;
    // Its connection has ended, though nobody asked for it: a fault on this side, or on the other.
    [[nodiscard]] bool failed() const { return send_failed_ || receive_failed_; }
    [[nodiscard]] bool cut() const { return cut_; }
    // What this side posted and was told has failed: some of it, in order, is in the other side's target.
    [[nodiscard]] std::string account_for_failed(Side &other);
    void end(Ending how) { ending_ = how; }
    [[nodiscard]] Ending ending() const { return ending_; }
    // The other side may have lost what this side was told is done.
    void forget_unsettled(Side &other);

    // The device rounds what is asked for up to a power of two.
    [[nodiscard]] std::size_t send_slots() const { return std::bit_ceil(end_.sizes.send_wr); }
    [[nodiscard]] std::size_t slots_free() const { return send_slots() - open_.size(); }
    [[nodiscard]] std::size_t receives_free() const {
        return std::bit_ceil(end_.sizes.receive_wr) - receives_.size();
    }
    [[nodiscard]] std::size_t receives_posted() const { return receives_.size(); }
    [[nodiscard]] std::size_t messages_waiting() const { return messages_.size(); }
    [[nodiscard]] bool settled() const;
    [[nodiscard]] bool reads_from(const Range &remote) const;
    [[nodiscard]] bool signal_is_due(std::size_t about_to_post) const;
    [[nodiscard]] conformance::End &end() const { return end_; }
    [[nodiscard]] const std::vector<std::byte> &target() const { return target_; }
    void change_source(std::uint64_t pattern);
    // The slots are used in turn.
    [[nodiscard]] std::size_t take_slot() { return next_slot_++ % Layout::slots; }
    void give_back_slot() { --next_slot_; }

private:
    // That the other side sent.
    struct Message {
        Operation operation;
        std::vector<std::byte> content;  // of a write: in the target
    };
    struct Posted {
        std::uint64_t wr_id;
        std::vector<ibv_sge> sges;
    };
    [[nodiscard]] std::string completed(const ibv_wc &completion);
    [[nodiscard]] std::string received(const ibv_wc &completion);
    [[nodiscard]] std::string differs(const ibv_wc &completion, const Message &message) const;
    [[nodiscard]] std::string sent(const ibv_wc &completion);
    [[nodiscard]] bool may_fail(ibv_wc_status status) const;
    [[nodiscard]] std::string wrong(const std::string &what) const { return name_ + ": " + what; }

    conformance::End &end_;
    std::string name_;
    Ending ending_ = Ending::None;
    std::optional<Faults> faults_;
    bool cut_ = false;  // by a fault of this side
    bool send_failed_ = false;
    bool receive_failed_ = false;

    std::deque<Operation> open_;
    std::vector<Operation> failed_;
    std::deque<Posted> receives_;
    std::deque<Message> messages_;  // not received yet
    std::deque<Range> unsettled_;   // writes behind which no answer has come
    std::vector<std::byte> target_;
    std::vector<std::byte> sink_;
    std::vector<char> target_unknown_;
    std::vector<char> sink_unknown_;
    std::size_t next_slot_ = 0;
};

inline constexpr std::uint64_t receive_mark = std::uint64_t{1} << 63;

}  // namespace model
