// SPDX-License-Identifier: BSD-3-Clause
// What a hostile peer answers to reads, flushes and atomic operations: in their order, as they want it; or
// anything else, of which it knows that it is not to be borne.
#pragma once

#include <cstdint>
#include <deque>

#include "dice.hpp"
#include "soft/wire/rdmap.hpp"

// Last, as it wants.
#include "fpdu.hpp"

namespace test {

// What becomes of the connection behind a frame.
enum class Verdict {
    Goes_on,
    Terminated,  // the device says why
    Closed,      // the peer has said that it is over
    Unknown
};

struct Spoken {
    Bytes bytes;
    Verdict verdict = Verdict::Goes_on;
};

// What a peer has at an address, when it is read, and when an atomic operation finds it.
[[nodiscard]] inline Bytes read_at(std::uint64_t address, std::size_t size) {
    return pattern(size, static_cast<unsigned>(address));
}
[[nodiscard]] inline std::uint64_t found_at(std::uint64_t address) {
    return address * 31;
}

class Answers {
public:
    Answers(Dice &dice, bool crc) : dice_{dice}, crc_{crc} {}

    // The other side says this, which may be a question.
    void asked(const soft::wire::Segment &segment, std::span<const std::byte> body);
    [[nodiscard]] bool owed() const { return !questions_.empty(); }
    // The next segment for the oldest question; there is one.
    [[nodiscard]] Spoken right();
    // Whatever else was asked meanwhile, no answer.
    [[nodiscard]] Spoken wrong();

private:
    struct Question {
        soft::wire::Opcode opcode;
        soft::wire::ReadRequest read{};
        soft::wire::AtomicRequest atomic{};
        std::uint32_t answered_bytes = 0;
    };
    // An answer before it is an FPDU.
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
