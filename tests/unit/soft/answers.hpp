// SPDX-License-Identifier: BSD-3-Clause
// A hostile peer answers reads, flushes and atomic operations with the help of this class. It gives the right
// answers in the right order, or wrong ones, and knows how the device must treat each of the wrong ones.
#pragma once

#include <cstdint>
#include <deque>

#include "dice.hpp"
#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "fpdu.hpp"

namespace test {

// The device does this with the connection after it has received a frame.
enum class Verdict {
    Goes_on,
    Terminated,  // the device sends the reason
    Closed,      // the peer has ended the connection
    Unknown
};

struct Spoken {
    Bytes bytes;
    Verdict verdict = Verdict::Goes_on;
};

// These return the bytes that the peer pretends to have at an address when the device reads there, and the
// number that an atomic operation of the device finds there.
[[nodiscard]] inline Bytes read_at(std::uint64_t address, std::size_t size) {
    return pattern(size, static_cast<unsigned>(address));
}
[[nodiscard]] inline std::uint64_t found_at(std::uint64_t address) {
    return address * 31;
}

class Answers {
public:
    Answers(Dice &dice, bool crc) : dice_{dice}, crc_{crc} {}

    // Notes that the other side has sent this segment, which may be a question.
    void asked(const soft::wire::Segment &segment, std::span<const std::byte> body);
    [[nodiscard]] bool owed() const { return !questions_.empty(); }
    // Returns the next segment of the answer to the oldest question. There must be one.
    [[nodiscard]] Spoken right();
    // Returns a segment that answers no question, whatever the other side has asked.
    [[nodiscard]] Spoken wrong();

private:
    struct Question {
        soft::wire::Opcode opcode;
        soft::wire::ReadRequest read{};
        soft::wire::AtomicRequest atomic{};
        std::uint32_t answered_bytes = 0;
    };
    // This is an answer that is not yet encoded as an FPDU.
    struct Answer {
        soft::wire::Segment segment;
        Bytes payload;
    };
    [[nodiscard]] Answer to(const Question &question, std::uint32_t bytes) const;
    void spoil_read_response(Answer &answer);
    void spoil_untagged(Answer &answer);
    [[nodiscard]] Answer unasked();
    [[nodiscard]] std::uint32_t off();

    Dice &dice_;
    const bool crc_;
    std::deque<Question> questions_;
    std::uint32_t msn_ = 1;  // of the next answer that is no read response
};

}  // namespace test
