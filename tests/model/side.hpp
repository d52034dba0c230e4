// SPDX-License-Identifier: BSD-3-Clause
// model/side: one end of a connection and its oracle. The oracle knows every request that was accepted and is
// not yet completed, every message on its way, and each byte of memory that a peer may have changed.
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

// The memory of an end has a source that it sends from, which changes only while nothing is open; a sink
// where its reads land; a target that the other side writes and reads; and slots for receives.
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

// The device has accepted this request. `remote` is in the target of the other side, `local` in the sink of
// this side.
struct Operation {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    std::uint64_t wr_id = 0;
    bool signaled = false;
    std::uint32_t immediate = 0;
    Range remote{};
    Range local{};
    // For a write: its bytes, and the bytes that were there before.
    std::vector<std::byte> content{};
    std::vector<std::byte> before{};
};

// A device with SOFTRDMA_FAULTS may end a connection at any request. When that request is a longer write, the
// device places only its first torn_bytes.
struct Faults {
    std::size_t torn_bytes;
};

// Returns whether the operation takes a receive of the other side.
[[nodiscard]] bool is_send(ibv_wr_opcode opcode);
[[nodiscard]] bool has_immediate(ibv_wr_opcode opcode);
[[nodiscard]] inline bool takes_receive(ibv_wr_opcode opcode) {
    return is_send(opcode) || has_immediate(opcode);
}

// The way in which a connection was ended decides which completions it may have.
enum class Ending { None, Here, There, RefusedThere };

class Side {
public:
    Side(conformance::End &end, const std::string &name, std::optional<Faults> faults)
        : end_{end}, name_{name}, faults_{faults} {}
    void begin(std::uint64_t pattern);

    // ---- the test calls these when the device has accepted a request ----
    void posted(const Operation &operation, const std::vector<std::byte> &content, Side &other);
    void posted_receive(std::uint64_t wr_id, std::vector<ibv_sge> sges);

    // ---- these look at completions and memory, and return "" or a text that says what is wrong ----
    [[nodiscard]] std::string poll(int most);
    // After the end of the connection every request must have completed, and memory must be as the oracle
    // knows it.
    [[nodiscard]] std::string poll_rest();
    [[nodiscard]] std::string compare() const;
    // The connection has ended though no program asked for it: by a fault on this side, or on the other.
    [[nodiscard]] bool failed() const { return send_failed_ || receive_failed_; }
    [[nodiscard]] bool cut() const { return cut_; }
    // By number, what completes has arrived: the other side, which has seen all of its completions, has these
    // messages.
    [[nodiscard]] std::string account_for_messages(const Side &other) const;
    // Requests of this side have failed. The target of the other side must hold the first of them, and the
    // rest not.
    [[nodiscard]] std::string account_for_failed(Side &other);
    void end(Ending how) { ending_ = how; }
    [[nodiscard]] Ending ending() const { return ending_; }
    // The other side may have lost writes that have completed on this side.
    void forget_unsettled(Side &other);

    // The device rounds the size of a queue up to a power of two.
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
    // The other side has sent this message.
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
    std::size_t acknowledged_ = 0;  // messages of this side whose requests are done
    std::size_t received_ = 0;      // messages of the other side
    std::vector<std::byte> target_;
    std::vector<std::byte> sink_;
    std::vector<char> target_unknown_;
    std::vector<char> sink_unknown_;
    std::size_t next_slot_ = 0;
};

inline constexpr std::uint64_t receive_mark = std::uint64_t{1} << 63;

}  // namespace model
