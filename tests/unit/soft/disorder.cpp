// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "disorder.hpp"

namespace test {

using namespace soft::wire;

Spoken Disorder::made(const Segment &segment, std::span<const std::byte> payload, Verdict verdict) {
    return {.bytes = fpdu(segment, payload, crc_), .verdict = verdict};
}

// Returns a size that is small most of the time.
std::size_t Disorder::size() {
    const auto kind = dice_.below(100);
    return dice_.below(kind < 75 ? 64 : kind < 97 ? 2000 : 40'000);
}

Spoken Disorder::write(const Aim &aim, std::uint64_t offset, std::size_t bytes, bool last, Verdict verdict) {
    in_write_ = !last;
    return made({.opcode = Opcode::Write, .last = last, .stag = aim.key, .offset = aim.address + offset},
                pattern(bytes, static_cast<unsigned>(dice_.any())), verdict);
}

Spoken Disorder::read(const Aim &aim, std::uint64_t offset, std::size_t bytes, std::uint32_t msn,
                      Verdict verdict) {
    return made({.opcode = Opcode::ReadRequest, .msn = msn},
                encode(ReadRequest{.sink_stag = static_cast<std::uint32_t>(dice_.any()),
                                   .sink_offset = dice_.any(),
                                   .size = static_cast<std::uint32_t>(bytes),
                                   .source_stag = aim.key,
                                   .source_offset = aim.address + offset}),
                verdict);
}

Spoken Disorder::flush(const Aim &aim, std::uint32_t level, Verdict verdict) {
    return made({.opcode = Opcode::FlushRequest, .msn = request_msn_},
                encode(FlushRequest{
                    .stag = aim.key, .offset = aim.address, .length = 64, .level = FlushLevel{level}}),
                verdict);
}

Spoken Disorder::send(bool may_end) {
    const std::size_t room = receive_bytes - std::min<std::size_t>(message_bytes_, receive_bytes);
    const std::size_t bytes = std::min<std::size_t>(dice_.below(160), room);
    const Segment segment{.opcode = dice_.chance(80) ? Opcode::Send : Opcode::SendSolicited,
                          .last = may_end && (bytes == room || dice_.chance(70)),
                          .offset = message_bytes_,
                          .msn = send_msn_};
    Spoken frame = made(segment, pattern(bytes, send_msn_));
    in_message_ = !segment.last;
    message_bytes_ = segment.last ? 0 : message_bytes_ + static_cast<std::uint32_t>(bytes);
    send_msn_ += segment.last ? 1 : 0;
    return frame;
}

Spoken Disorder::immediate() {
    Spoken frame = made({.opcode = dice_.chance(50) ? Opcode::Immediate : Opcode::ImmediateSolicited,
                         .offset = message_bytes_,
                         .msn = send_msn_},
                        Bytes(immediate_bytes));
    if (!in_message_ && in_write_) {
        frame.verdict = Verdict::Terminated;
    }
    in_message_ = false;
    message_bytes_ = 0;
    ++send_msn_;
    return frame;
}

// Makes a request that is answered. Whether the device bears one more than was agreed on depends on the
// answers that it has sent meanwhile.
Spoken Disorder::request() {
    const Verdict verdict = open_requests_ < depth_ ? Verdict::Goes_on : Verdict::Unknown;
    Spoken frame;
    if (soft_ && dice_.chance(30)) {
        frame = flush(aims_.open, 1, verdict);
    } else if (soft_ && dice_.chance(30)) {
        frame = made({.opcode = Opcode::AtomicRequest, .msn = request_msn_},
                     encode(AtomicRequest{.operation = dice_.chance(50) ? AtomicOperation::FetchAdd
                                                                        : AtomicOperation::CompareSwap,
                                          .identifier = request_msn_,
                                          .stag = aims_.open.key,
                                          .offset = aims_.open.address + 8 * dice_.below(100),
                                          .add_swap = dice_.any(),
                                          .add_swap_mask = dice_.any(),
                                          .compare = dice_.any(),
                                          .compare_mask = dice_.any()}),
                     verdict);
    } else if (dice_.chance(10)) {
        const Aim nowhere{.key = static_cast<std::uint32_t>(dice_.any()), .address = dice_.any(), .bytes = 0};
        frame = read(nowhere, 0, 0, request_msn_, verdict);
    } else {
        const Aim &aim = dice_.chance(50) ? aims_.open : aims_.read_only;
        const std::size_t bytes = std::min(size(), aim.bytes);
        frame = read(aim, dice_.below(aim.bytes - bytes + 1), bytes, request_msn_, verdict);
    }
    ++request_msn_;
    ++open_requests_;
    return frame;
}

void Disorder::heard(const Segment &segment, std::span<const std::byte> payload) {
    const bool answers = (segment.opcode == Opcode::ReadResponse && segment.last) ||
                         segment.opcode == Opcode::FlushResponse || segment.opcode == Opcode::AtomicResponse;
    if (answers) {
        open_requests_ -= open_requests_ != 0 ? 1 : 0;
    } else {
        answers_.asked(segment, payload);
    }
}

Spoken Disorder::valid() {
    if (answers_.owed() && dice_.chance(40)) {
        return answers_.right();
    }
    const auto kind = dice_.below(10);
    if (kind < 3) {
        const std::size_t bytes = size();
        return write(aims_.open, dice_.below(aims_.open.bytes - bytes), bytes, dice_.chance(90),
                     Verdict::Goes_on);
    }
    if (kind < 6) {
        return send(true);
    }
    if (kind == 6 && soft_ && (in_message_ || !in_write_)) {
        return immediate();
    }
    if (kind == 7 && soft_) {
        return made({.opcode = Opcode::AtomicWrite,
                     .stag = aims_.open.key,
                     .offset = aims_.open.address + 8 * dice_.below(100)},
                    Bytes(atomic_write_bytes));
    }
    if (kind == 8) {
        const Aim nowhere{.key = static_cast<std::uint32_t>(dice_.any()), .address = dice_.any(), .bytes = 0};
        return write(nowhere, 0, 0, !in_write_ || dice_.chance(50), Verdict::Goes_on);
    }
    return open_requests_ < depth_ || dice_.chance(3) ? request() : send(true);
}

Spoken Disorder::out_of_order() {
    if (answers_.owed() && dice_.chance(50)) {
        return answers_.wrong();
    }
    const std::uint32_t off =
        static_cast<std::uint32_t>(1 + dice_.below(3)) * (dice_.chance(50) ? 1U : UINT32_MAX);
    const Bytes eight(8);
    switch (dice_.below(10)) {
        case 0:
            return made({.opcode = Opcode::Send, .offset = message_bytes_, .msn = send_msn_ + off}, eight,
                        Verdict::Terminated);
        case 1:
            return made({.opcode = Opcode::Send, .offset = message_bytes_ + off, .msn = send_msn_}, eight,
                        Verdict::Terminated);
        case 2:
            return read(aims_.open, 0, 8, request_msn_ + off, Verdict::Terminated);
        case 3:  // a key that the peer may not give back
            return made(
                {.opcode = dice_.chance(50) ? Opcode::SendInvalidate : Opcode::SendSolicitedInvalidate,
                 .stag = dice_.chance(50) ? aims_.local.key : aims_.foreign.key,
                 .offset = message_bytes_,
                 .msn = send_msn_},
                {}, Verdict::Terminated);
        case 4:
            return answers_.wrong();
        case 5: {
            const auto body = encode(TerminateCode{static_cast<std::uint8_t>(dice_.below(16)),
                                                   static_cast<std::uint8_t>(dice_.below(16)),
                                                   static_cast<std::uint8_t>(dice_.any())});
            return made({.opcode = Opcode::Terminate, .msn = static_cast<std::uint32_t>(dice_.below(3))},
                        body, Verdict::Closed);
        }
        case 6: {  // an operation that was not agreed on, or of a wrong length
            constexpr Opcode opcodes[] = {Opcode::AtomicRequest, Opcode::AtomicResponse, Opcode::FlushRequest,
                                          Opcode::FlushResponse, Opcode::Immediate,      Opcode::AtomicWrite};
            return made({.opcode = opcodes[dice_.below(std::size(opcodes))], .stag = 1, .msn = request_msn_},
                        Bytes(1 + dice_.below(7)), Verdict::Terminated);
        }
        case 7:  // in several segments
            return made({.opcode = Opcode::ReadRequest, .last = false, .msn = request_msn_}, Bytes(14),
                        Verdict::Terminated);
        case 8:  // to another queue
        {
            Spoken frame = read(aims_.open, 0, 8, request_msn_, Verdict::Terminated);
            constexpr std::byte queues[] = {std::byte{0}, std::byte{2}, std::byte{3}, std::byte{7}};
            patch(frame, 11, queues[dice_.below(std::size(queues))]);
            return frame;
        }
        default:  // longer than any receive
        {
            Spoken frame =
                made({.opcode = Opcode::Send, .last = false, .offset = message_bytes_, .msn = send_msn_},
                     Bytes(receive_bytes + 1), Verdict::Unknown);
            message_bytes_ += receive_bytes + 1;
            in_message_ = true;
            return frame;
        }
    }
}

Spoken Disorder::out_of_place() {
    const std::size_t bytes = 1 + size();
    const Aim aims[] = {aims_.local, aims_.foreign, aims_.stale};
    const Aim &forbidden = aims[dice_.below(std::size(aims))];
    const auto verdict = Verdict::Terminated;
    switch (dice_.below(8)) {
        case 0:
            return write(forbidden, 0, std::min(bytes, forbidden.bytes), true, verdict);
        case 1:
            return write(aims_.read_only, 0, std::min(bytes, aims_.read_only.bytes), true, verdict);
        case 2:
            return write(aims_.open, aims_.open.bytes - bytes + 1, bytes, true, verdict);
        case 3:
            return write(aims_.open, UINT64_MAX - dice_.below(bytes), bytes, true, verdict);
        case 4:
            return write({.key = aims_.open.key, .address = UINT64_MAX - dice_.below(bytes), .bytes = 0}, 0,
                         bytes, true, verdict);
        case 5:
            return read(forbidden, 0, std::min(bytes, forbidden.bytes), request_msn_, verdict);
        case 6:
            return read(aims_.read_only, aims_.read_only.bytes - dice_.below(8), 9, request_msn_, verdict);
        default:
            return flush(dice_.chance(50) ? forbidden : aims_.open,
                         static_cast<std::uint32_t>(2 + dice_.below(2)), verdict);
    }
}

Spoken Disorder::malformed() {
    Spoken frame = write(aims_.open, 0, 8, true, Verdict::Terminated);
    switch (dice_.below(6)) {
        case 0:  // versions
            patch(frame, 2, std::byte{0xc0} | static_cast<std::byte>(2 + dice_.below(2)));
            return frame;
        case 1:
            patch(frame, 3, static_cast<std::byte>(dice_.below(3) << 6 & 0x80));
            return frame;
        case 2:
            patch(frame, 3, std::byte{0x4f});
            return frame;
        case 3:  // a tagged opcode on an untagged segment
            patch(frame, 2, std::byte{0x41});
            return frame;
        case 4:  // shorter than its header
            patch(frame, 1, static_cast<std::byte>(dice_.below(14)));
            return frame;
        default:  // reserved bits, and a checksum that counts or does not
            if (dice_.chance(50)) {
                patch(frame, 2, std::byte{0xc1} | static_cast<std::byte>(dice_.below(16) << 2));
                frame.verdict = Verdict::Goes_on;
            } else {
                frame.bytes.back() ^= std::byte{0x10};
                frame.verdict = crc_ ? Verdict::Terminated : Verdict::Goes_on;
            }
            return frame;
    }
}

void Disorder::patch(Spoken &frame, std::size_t at, std::byte value) const {
    frame.bytes[at] = value;
    if (crc_) {
        Crc sum;
        sum.feed(std::span{frame.bytes}.first(frame.bytes.size() - fpdu_crc_bytes));
        std::ranges::copy(sum.digest(), frame.bytes.end() - fpdu_crc_bytes);
    }
}

Spoken Disorder::next() {
    const auto kind = dice_.below(1000);
    if (kind < 982) {
        return valid();
    }
    if (kind < 991) {
        return out_of_order();
    }
    return kind < 996 ? out_of_place() : malformed();
}

}  // namespace test
