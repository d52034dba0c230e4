// SPDX-License-Identifier: BSD-3-Clause
// A peer's side of the protocol, spoken out of order: whole FPDUs with the right numbers, keys and checksums
// or with one of them wrong, in any order, from a seed. It knows which of them its peer must not bear.
#pragma once

#include <cstdint>
#include <deque>
#include <random>

#include "soft/wire/rdmap.hpp"

// Last, as it wants.
#include "fpdu.hpp"

namespace test {

class Dice {
public:
    explicit Dice(std::uint64_t seed) : engine_{seed} {}
    // 0 to limit - 1.
    std::uint64_t below(std::uint64_t limit) { return engine_() % limit; }
    bool chance(unsigned percent) { return below(100) < percent; }
    std::uint64_t any() { return engine_(); }

private:
    std::mt19937_64 engine_;
};

// A region as a peer knows it.
struct Aim {
    std::uint32_t key;
    std::uint64_t address;
    std::size_t bytes;
};

struct Aims {
    Aim open;       // peers may read and write it
    Aim read_only;  // they may read it
    Aim local;      // neither
    Aim foreign;    // of another protection domain
    Aim stale;      // deregistered
};

// What becomes of the connection behind a frame.
enum class Verdict {
    Goes_on,
    Terminated,  // the device says why
    Closed,      // the peer has said that it is over
    Unknown
};

class Disorder {
public:
    static constexpr std::size_t receive_bytes = 512;  // of the receives that wait for its sends

    Disorder(Dice &dice, const Aims &aims, bool crc, bool soft, unsigned depth)
        : dice_{dice}, aims_{aims}, crc_{crc}, soft_{soft}, depth_{depth} {}

    struct Frame {
        Bytes bytes;
        Verdict verdict = Verdict::Goes_on;
    };
    [[nodiscard]] Frame next();

    // What the other side said: it answered a request, it asks for a read.
    void answered() { open_requests_ -= open_requests_ != 0 ? 1 : 0; }
    void asked(const soft::wire::ReadRequest &read) { asked_.push_back(read); }

private:
    using Segment = soft::wire::Segment;
    [[nodiscard]] Frame valid();
    [[nodiscard]] Frame out_of_order();
    [[nodiscard]] Frame out_of_place();
    [[nodiscard]] Frame malformed();
    [[nodiscard]] Frame made(const Segment &segment, std::span<const std::byte> payload,
                             Verdict verdict = Verdict::Goes_on);
    [[nodiscard]] Frame write(const Aim &aim, std::uint64_t offset, std::size_t size, bool last,
                              Verdict verdict);
    [[nodiscard]] Frame read(const Aim &aim, std::uint64_t offset, std::size_t size, std::uint32_t msn,
                             Verdict verdict);
    [[nodiscard]] Frame flush(const Aim &aim, std::uint32_t level, Verdict verdict);
    [[nodiscard]] Frame send(bool may_end);
    [[nodiscard]] Frame immediate();
    [[nodiscard]] Frame request();
    [[nodiscard]] Frame answer();
    // Bytes of an FPDU changed, and its checksum made anew.
    void patch(Frame &frame, std::size_t at, std::byte value) const;
    [[nodiscard]] std::size_t size();

    Dice &dice_;
    const Aims &aims_;
    const bool crc_;
    const bool soft_;
    const unsigned depth_;
    std::uint32_t send_msn_ = 1;
    std::uint32_t request_msn_ = 1;
    std::uint32_t message_bytes_ = 0;
    bool in_message_ = false;
    bool in_write_ = false;
    unsigned open_requests_ = 0;
    std::deque<soft::wire::ReadRequest> asked_;
};

}  // namespace test
