// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "answers.hpp"

namespace test {

using namespace soft::wire;

void Answers::asked(const Segment &segment, std::span<const std::byte> body) {
    if (segment.opcode == Opcode::ReadRequest) {
        questions_.push_back({.opcode = segment.opcode, .read = decode_read_request(body).value()});
    } else if (segment.opcode == Opcode::AtomicRequest) {
        questions_.push_back({.opcode = segment.opcode, .atomic = decode_atomic_request(body).value()});
    } else if (segment.opcode == Opcode::FlushRequest) {
        questions_.push_back({.opcode = segment.opcode});
    }
}

// Answers the next `bytes` of a read.
Answers::Answer Answers::to(const Question &question, std::uint32_t bytes) const {
    if (question.opcode == Opcode::FlushRequest) {
        return {.segment = {.opcode = Opcode::FlushResponse, .msn = msn_}, .payload = {}};
    }
    if (question.opcode == Opcode::AtomicRequest) {
        const auto body = encode(AtomicResponse{.identifier = question.atomic.identifier,
                                                .original = found_at(question.atomic.offset)});
        return {.segment = {.opcode = Opcode::AtomicResponse, .msn = msn_},
                .payload = {body.begin(), body.end()}};
    }
    const ReadRequest &read = question.read;
    const std::uint32_t end = question.answered_bytes + bytes;
    const Bytes all = read_at(read.source_offset, end);
    return {.segment = {.opcode = Opcode::ReadResponse,
                        .last = end == read.size,
                        .stag = read.sink_stag,
                        .offset = read.sink_offset + question.answered_bytes},
            .payload = {all.begin() + question.answered_bytes, all.end()}};
}

Spoken Answers::right() {
    Question &oldest = questions_.front();
    const std::uint32_t left = oldest.read.size - oldest.answered_bytes;
    const std::uint32_t bytes = dice_.chance(80) ? left : static_cast<std::uint32_t>(dice_.below(left + 1));
    const Answer answer = to(oldest, bytes);
    oldest.answered_bytes += bytes;
    msn_ += oldest.opcode == Opcode::ReadRequest ? 0 : 1;
    if (answer.segment.last) {
        questions_.pop_front();
    }
    return {.bytes = fpdu(answer.segment, answer.payload, crc_)};
}

// Returns a positive or negative difference, never 0.
std::uint32_t Answers::off() {
    return static_cast<std::uint32_t>(1 + dice_.below(3)) * (dice_.chance(50) ? 1U : UINT32_MAX);
}

void Answers::spoil_read_response(Answer &answer) {
    switch (dice_.below(5)) {
        case 0:  // another key, perhaps a good one
            answer.segment.stag ^= 1U << dice_.below(32);
            break;
        case 1:
            answer.segment.offset += off();
            break;
        case 2:  // goes on when it was all, or ends too early
            answer.segment.last = !answer.segment.last;
            break;
        case 3:  // longer than what was asked for
            answer.payload.resize(questions_.front().read.size + 1 + dice_.below(64));
            break;
        default:  // what was asked for next
            if (questions_.size() > 1 && questions_[1].opcode == Opcode::ReadRequest &&
                questions_[1].read.sink_offset != answer.segment.offset) {
                answer = to(questions_[1], questions_[1].read.size);
            } else {
                answer.segment = {.opcode = Opcode::FlushResponse, .msn = msn_};
            }
            break;
    }
}

void Answers::spoil_untagged(Answer &answer) {
    const bool to_atomic = answer.segment.opcode == Opcode::AtomicResponse;
    switch (dice_.below(6)) {
        case 0:
            answer.segment.msn += off();
            break;
        case 1:
            answer.segment.last = false;
            break;
        case 2:
            answer.segment.offset = 1 + dice_.below(16);
            break;
        case 3:  // of another operation
            answer.segment.opcode = to_atomic ? Opcode::FlushResponse : Opcode::AtomicResponse;
            break;
        case 4:  // longer than it is
            answer.payload.resize(answer.payload.size() + 1 + dice_.below(64));
            break;
        default:
            if (to_atomic) {
                Question another = questions_.front();
                another.atomic.identifier += off();
                answer = to(another, 0);
            } else {
                answer = unasked();
            }
            break;
    }
}

// Returns an answer that fits no possible question.
Answers::Answer Answers::unasked() {
    const Bytes some(dice_.below(64));
    switch (dice_.below(3)) {
        case 0:
            return {.segment = {.opcode = Opcode::ReadResponse,
                                .last = dice_.chance(50),
                                .stag = static_cast<std::uint32_t>(dice_.any()),
                                .offset = dice_.any()},
                    .payload = some};
        case 1:
            return {.segment = {.opcode = Opcode::FlushResponse, .msn = msn_ + off()}, .payload = {}};
        default:
            return {.segment = {.opcode = Opcode::AtomicResponse, .msn = msn_ + off()},
                    .payload = Bytes(atomic_response_bytes)};
    }
}

Spoken Answers::wrong() {
    Answer answer;
    if (questions_.empty() || dice_.chance(20)) {
        answer = unasked();
    } else {
        const Question &oldest = questions_.front();
        answer =
            to(oldest, static_cast<std::uint32_t>(dice_.below(oldest.read.size - oldest.answered_bytes + 1)));
        if (oldest.opcode == Opcode::ReadRequest) {
            spoil_read_response(answer);
        } else {
            spoil_untagged(answer);
        }
    }
    return {.bytes = fpdu(answer.segment, answer.payload, crc_), .verdict = Verdict::Terminated};
}

}  // namespace test
