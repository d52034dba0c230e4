// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "soft/ground/limits.hpp"
#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "attacker.hpp"

namespace test {

using namespace soft::wire;

namespace {

MpaFrame a_request(Dice &dice) {
    const bool old = dice.chance(10);
    return {.revision = static_cast<std::uint8_t>(old ? 1 : 2),
            .crc = dice.chance(20),
            .soft_operations = dice.chance(60),
            .enhanced = !old,
            .peer_to_peer = dice.chance(50),
            .rtr_send = dice.chance(20),
            .rtr_write = dice.chance(70),
            .rtr_read = dice.chance(30),
            .ird = 4,
            .ord = 4};
}

// Some replies refuse the connection. To others the device answers with the reason why it cannot continue.
MpaFrame a_reply(Dice &dice) {
    MpaFrame frame = a_request(dice);
    frame.role = MpaRole::Reply;
    frame.reject = dice.chance(3);
    frame.rtr_write = !dice.chance(3);
    frame.ird = static_cast<std::uint16_t>(1 + dice.below(6));
    frame.ord = static_cast<std::uint16_t>(dice.chance(3) ? 65 + dice.below(1000) : dice.below(5));
    return frame;
}

// Returns how the device must treat a start-up with this reply.
Verdict verdict_of(const MpaFrame &reply) {
    if (reply.reject) {
        return Verdict::Closed;
    }
    const bool another_rtr = reply.peer_to_peer && !reply.rtr_write;
    const bool too_deep = reply.ord > soft::limits::max_rd_atomic;
    return reply.enhanced && (another_rtr || too_deep) ? Verdict::Terminated : Verdict::Goes_on;
}

}  // namespace

Attacker::Attacker(const MpaFrame &first, const Aims &aims, Dice &dice, Tally &tally)
    : dice_{dice},
      tally_{tally},
      first_{first},
      disorder_{dice, aims, first.crc, first.soft_operations, Device::depth},
      reads_{dice.chance(90)},
      drips_{dice.chance(5)},
      resets_{dice.chance(95)},
      patience_{1 + dice.below(400)} {
    ++tally.connections;
    start();
}

Attacker::Attacker(const Aims &aims, Dice &dice, Tally &tally) : Attacker{a_reply(dice), aims, dice, tally} {
    port_ = peer_.listen();
}

Attacker::Attacker(std::uint16_t device_port, const Aims &aims, Dice &dice, Tally &tally)
    : Attacker{a_request(dice), aims, dice, tally} {
    peer_.connect(device_port);
    sockaddr_in name{};
    socklen_t length = sizeof(name);
    assert_int_equal(getsockname(peer_.socket(), reinterpret_cast<sockaddr *>(&name), &length), 0);
    port_ = ntohs(name.sin_port);
}

// Most start-ups are good.
void Attacker::start() {
    out_ = encoded(first_);
    ++frames_in_out_;
    if (first_.role == MpaRole::Reply) {
        verdict_ = verdict_of(first_);
    }
    switch (dice_.below(40)) {
        case 0:  // a part of the frame
            out_.resize(dice_.below(out_.size()));
            silent_ = true;
            break;
        case 1: {  // nonsense in any byte that has a meaning
            const std::size_t at = dice_.below(16);
            out_[at] ^= static_cast<std::byte>(1 + dice_.below(255));
            verdict_ = Verdict::Closed;
            break;
        }
        case 2:  // flags that the device does not support
            out_[16] |= std::byte{0x80};
            verdict_ = Verdict::Closed;
            break;
        case 3:
            out_[17] = static_cast<std::byte>(3 + dice_.below(200));
            verdict_ = Verdict::Closed;
            break;
        case 4:  // longer than any frame may be
            out_[18] = static_cast<std::byte>(3 + dice_.below(250));
            verdict_ = Verdict::Closed;
            break;
        default:
            break;
    }
}

void Attacker::speak() {
    const auto count = 1 + dice_.below(dice_.chance(20) ? 64 : 8);
    for (std::uint64_t i = 0; i < count && verdict_ == Verdict::Goes_on; ++i) {
        const auto frame = disorder_.next();
        out_.insert(out_.end(), frame.bytes.begin(), frame.bytes.end());
        ++frames_in_out_;
        verdict_ = frame.verdict;
    }
    // A peer that has broken a rule may continue as if it had broken none.
    if (verdict_ != Verdict::Goes_on && dice_.chance(30)) {
        const auto frame = disorder_.next();
        out_.insert(out_.end(), frame.bytes.begin(), frame.bytes.end());
    }
}

void Attacker::give() {
    const std::size_t most = drips_             ? 1 + dice_.below(out_.size() / 64 + 7)
                             : dice_.chance(10) ? dice_.below(64)
                                                : out_.size();
    const std::size_t count = wire_->give(std::span{out_}.first(std::min(most, out_.size())));
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(count));
    if (out_.empty()) {
        tally_.frames += std::exchange(frames_in_out_, 0);
    }
    if (wire_->is_spoilt() && !std::exchange(spoilt_, true)) {
        ++tally_.spoilt;
        verdict_ = verdict_ == Verdict::Unknown ? verdict_ : Verdict::Closed;
    }
}

// With TLS this decides what the peer does below and around it.
void Attacker::open_wire() {
    wire_.emplace(peer_.socket(), first_.role == MpaRole::Reply ? Wire::Side::Server : Wire::Side::Client);
    if (wire_->uses_tls()) {
        if (drips_) {
            wire_->drip(1 + dice_.below(200));
        }
        if (dice_.chance(10)) {
            wire_->spoil_after(dice_.below(dice_.chance(50) ? 600 : 20'000), dice_.any());
        }
    }
}

// Asserts that everything the device sends is well formed.
void Attacker::understand() {
    std::size_t at = 0;
    const auto left = [&] { return std::span{in_}.subspan(at); };
    if (!greeted_ && left().size() >= mpa_header_bytes) {
        const MpaRole role = first_.role == MpaRole::Reply ? MpaRole::Request : MpaRole::Reply;
        const auto tail = mpa_tail_bytes(left().first<mpa_header_bytes>(), role);
        assert_true(tail.has_value());
        if (left().size() >= mpa_header_bytes + *tail) {
            at += mpa_header_bytes + *tail;
            greeted_ = true;
        }
    }
    while (greeted_) {
        const auto segment = decode_header(left());
        assert_true(segment.has_value());
        if (!*segment || left().size() < fpdu_bytes(**segment)) {
            break;
        }
        assert_false(terminated_);  // the TERMINATE was the last message
        disorder_.heard(**segment,
                        left().subspan(header_bytes((*segment)->opcode), (*segment)->payload_bytes));
        terminated_ = (*segment)->opcode == Opcode::Terminate;
        at += fpdu_bytes(**segment);
    }
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(at));
}

void Attacker::check_end(int error) const {
    if (spoilt_) {
        return;  // it may have broken another rule before
    }
    assert_int_not_equal(error, EPROTO);
    if (verdict_ == Verdict::Terminated && error == 0) {
        assert_true(terminated_);
        assert_true(in_.empty());
    }
    if (verdict_ == Verdict::Goes_on && !silent_) {
        fail_msg("a peer that kept the rules was dropped (error %d)", error);
    }
    if (verdict_ == Verdict::Goes_on || verdict_ == Verdict::Closed) {
        assert_false(terminated_);
    }
}

Attacker::~Attacker() {
    if (resets_) {
        const linger at_once{.l_onoff = 1, .l_linger = 0};
        (void)setsockopt(peer_.socket(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
}

// Returns false when the device has ended the connection.
bool Attacker::take() {
    const auto end = wire_->take(in_);
    understand();
    if (end) {
        check_end(*end);
    }
    return !end;
}

bool Attacker::step() {
    if (peer_.socket() < 0) {
        peer_.accept();
    }
    if (!wire_) {
        open_wire();
    }
    if (out_.empty() && verdict_ == Verdict::Goes_on && !silent_) {
        if (patience_-- == 0) {
            return false;  // leaves and sends nothing more
        }
        speak();
        if (dice_.chance(1)) {
            wire_->change_key();
        }
        if (patience_ % 64 == 0 && dice_.chance(5)) {
            silent_ = true;
            out_.resize(out_.size() - dice_.below(out_.size()));  // perhaps in the middle of a frame
        }
    }
    if (!out_.empty() || wire_->uses_tls()) {
        give();  // TLS may have bytes left
    }
    if (!reads_ || silent_) {
        if (patience_ == 0) {
            return false;
        }
        --patience_;
        return true;
    }
    if (!take()) {
        tally_.terminates += terminated_ ? 1 : 0;
        tally_.closed += terminated_ ? 0 : 1;
        return false;
    }
    if (must_end() && out_.empty()) {
        if (!deadline_) {
            deadline_ = std::make_unique<Clock>();
        }
        assert_false(deadline_->passed());  // the device has neither told nor dropped the peer
    }
    return verdict_ != Verdict::Unknown || patience_-- != 0;
}

}  // namespace test
