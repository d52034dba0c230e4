// SPDX-License-Identifier: BSD-3-Clause
// A hostile peer takes its frames here. They are whole FPDUs, in any order, from a seed. Their
// numbers, keys and checksums are right, or one of them is wrong. The class knows for which of the
// frames the device must end the connection.
#pragma once

#include <cstdint>

#include "answers.hpp"

namespace test {

// This is a region as a peer knows it.
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

class Disorder {
public:
    static constexpr std::size_t receive_bytes = 512;  // of the receives that wait for its sends

    Disorder(Dice &dice, const Aims &aims, bool crc, bool soft, unsigned depth)
        : dice_{dice}, aims_{aims}, crc_{crc}, soft_{soft}, depth_{depth}, answers_{dice, crc} {}

    [[nodiscard]] Spoken next();

    // Notes that the other side has sent this segment, which may be an answer, a question or anything else.
    void heard(const soft::wire::Segment &segment, std::span<const std::byte> payload);

private:
    using Segment = soft::wire::Segment;
    [[nodiscard]] Spoken valid();
    [[nodiscard]] Spoken out_of_order();
    [[nodiscard]] Spoken out_of_place();
    [[nodiscard]] Spoken malformed();
    [[nodiscard]] Spoken made(const Segment &segment, std::span<const std::byte> payload,
                              Verdict verdict = Verdict::Goes_on);
    [[nodiscard]] Spoken write(const Aim &aim, std::uint64_t offset, std::size_t size, bool last,
                               Verdict verdict);
    [[nodiscard]] Spoken read(const Aim &aim, std::uint64_t offset, std::size_t size, std::uint32_t msn,
                              Verdict verdict);
    [[nodiscard]] Spoken flush(const Aim &aim, std::uint32_t level, Verdict verdict);
    [[nodiscard]] Spoken send(bool may_end);
    [[nodiscard]] Spoken immediate();
    [[nodiscard]] Spoken request();
    // Changes a byte of an FPDU, and computes its checksum again.
    void patch(Spoken &frame, std::size_t at, std::byte value) const;
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
    Answers answers_;
};

}  // namespace test
