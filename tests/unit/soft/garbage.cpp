// SPDX-License-Identifier: BSD-3-Clause
// A byte of garbage, at every place of a valid conversation, ends that connection with a reason, and nothing
// else. The conversation beside it continues.
#include <algorithm>

#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::Device;
using test::Ends;
using test::fpdu;
using test::joined;

constexpr std::size_t write_at = 4096;  // where the conversation writes, and how much
constexpr std::size_t write_bytes = 40;
constexpr std::size_t receive_at = 8192;
constexpr std::size_t receive_bytes = 64;

// An initiator sends these messages: start-up, ready-to-receive, write, send in
// two segments, read, flush, atomic write.
struct Conversation {
    Bytes startup;
    std::vector<Bytes> fpdus;

    [[nodiscard]] Bytes all() const {
        Bytes bytes = startup;
        for (const Bytes &one : fpdus) {
            bytes = joined(std::move(bytes), one);
        }
        return bytes;
    }
};

Conversation conversation(const Device &device, bool crc) {
    const std::uint32_t key = device.mr->rkey;
    const auto read = encode(ReadRequest{
        .sink_stag = 7, .sink_offset = 8, .size = 24, .source_stag = key, .source_offset = device.address()});
    const auto flush = encode(FlushRequest{
        .stag = key, .offset = device.address(write_at), .length = 8, .level = FlushLevel::Visibility});
    const Bytes data = test::bytes(std::string_view{"data"});
    return {.startup = test::encoded({.crc = crc,
                                      .soft_operations = true,
                                      .peer_to_peer = true,
                                      .rtr_write = true,
                                      .ird = 4,
                                      .ord = 4,
                                      .private_data = data}),
            .fpdus = {
                test::ready_to_receive(crc),
                fpdu({.opcode = Opcode::Write, .stag = key, .offset = device.address(write_at)},
                     test::pattern(write_bytes, 77), crc),
                fpdu({.opcode = Opcode::Send, .last = false, .msn = 1}, test::pattern(9, 78), crc),
                fpdu({.opcode = Opcode::SendSolicited, .offset = 9, .msn = 1}, test::pattern(6, 79), crc),
                fpdu({.opcode = Opcode::ReadRequest, .msn = 1}, read, crc),
                fpdu({.opcode = Opcode::FlushRequest, .msn = 2}, flush, crc),
                fpdu({.opcode = Opcode::AtomicWrite, .stag = key, .offset = device.address(write_at)},
                     test::pattern(8, 80), crc),
            }};
}

// Continues the conversation beside it, which writes and reads back.
void still_works(Ends &ends, std::uint32_t &msn) {
    auto &[device, peer, other] = ends;
    const std::uint32_t key = device.mr->rkey;
    const Bytes payload = test::pattern(16, msn);
    other.send(fpdu({.opcode = Opcode::Write, .stag = key, .offset = device.address(100)}, payload));
    other.send(fpdu({.opcode = Opcode::ReadRequest, .msn = ++msn},
                    encode(ReadRequest{.sink_stag = 1,
                                       .sink_offset = 2,
                                       .size = 16,
                                       .source_stag = key,
                                       .source_offset = device.address(100)})));
    device.work_until([&] { return other.has_data(); });
    assert_same_bytes(other.receive_fpdu().payload, payload);
}

// Returns whether all memory that the conversation may not change is unchanged.
bool nothing_else_was_touched(Device &device) {
    const Bytes before = test::pattern(Device::memory_bytes, 1);
    const auto same = [&](std::size_t from, std::size_t to) {
        return std::equal(device.at(from), device.at(to), before.begin() + static_cast<std::ptrdiff_t>(from));
    };
    return device.margins_are_untouched() && same(0, 100) && same(116, write_at) &&
           same(write_at + write_bytes, receive_at) && same(receive_at + receive_bytes, Device::memory_bytes);
}

// Lets the peer send these bytes to a device that accepts, until the connection has ended.
void say(Ends &ends, const Bytes &bytes) {
    auto &[device, peer, other] = ends;
    peer.connect(device.port());
    peer.send(bytes);
    peer.finish();
    rdma_cm_id *id = nullptr;
    device.work_until([&] {
        // Refused start-ups end without an event.
        if (device.has_event() && id == nullptr) {
            id = device.take_request();
            device.post_receive(id, 1, receive_at, receive_bytes);
            device.accept(id);
        }
        return peer.has_ended();
    });
    if (id != nullptr) {
        device.close(id);
    }
    device.forget_completions();
}

void a_valid_conversation(Ends &ends) {
    auto &[device, peer, other] = ends;
    for (const bool crc : {false, true}) {
        device.fill(1);
        const Conversation good = conversation(device, crc);
        peer.connect(device.port());
        peer.send(good.all());
        rdma_cm_id *const id = device.take_request();
        device.post_receive(id, 1, receive_at, receive_bytes);
        device.accept(id);
        (void)peer.receive_frame(MpaRole::Reply);
        device.expect_completion(1);
        assert_same_bytes(peer.receive_fpdu().payload, {device.at(0), 24});
        assert_true(peer.receive_fpdu().segment.opcode == Opcode::FlushResponse);
        peer.finish();
        assert_int_equal(peer.receive_rest().size(), 0);
        assert_int_equal(test::logged().warnings, 0);
        assert_same_bytes({device.at(write_at), 8}, test::pattern(8, 80));
        assert_same_bytes({device.at(receive_at), 9}, test::pattern(9, 78));
        assert_same_bytes({device.at(receive_at + 9), 6}, test::pattern(6, 79));
        assert_true(nothing_else_was_touched(device));
        device.close(id);
    }
}

// With CRC32C every changed byte of an FPDU is noticed, and the FPDU has no effect.
void a_changed_byte_with_crc(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const beside = device.establish(other, {.ird = 4, .ord = 4});
    std::uint32_t msn = 0;
    const Bytes before = test::pattern(Device::memory_bytes, 1);
    const Conversation good = conversation(device, true);
    const Bytes all = good.all();
    const std::size_t write_begins = good.startup.size() + good.fpdus[0].size();
    const std::size_t write_ends = write_begins + good.fpdus[1].size();
    for (std::size_t place = 0; place < all.size(); ++place) {
        device.fill(1);
        (void)test::logged();
        Bytes bad = all;
        bad[place] ^= std::byte{0xff};
        say(ends, bad);
        if (place >= good.startup.size() || place < 16) {
            assert_true(test::logged().warnings >= 1);
        }
        if (place >= write_begins && place < write_ends) {
            assert_same_bytes({device.at(write_at), write_bytes},
                              std::span{before}.subspan(write_at, write_bytes));
        }
        assert_true(nothing_else_was_touched(device));
        still_works(ends, msn);
    }
    device.close(beside);
}

// Without CRC32C, an inserted byte moves everything after it, and may name another place of the same region.
void an_inserted_byte_without_crc(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const beside = device.establish(other, {.ird = 4, .ord = 4});
    std::uint32_t msn = 0;
    const Conversation good = conversation(device, false);
    const Bytes all = good.all();
    for (std::size_t place = 0; place <= all.size(); ++place) {
        device.fill(1);
        (void)test::logged();
        Bytes bad = all;
        bad.insert(bad.begin() + static_cast<std::ptrdiff_t>(place), std::byte{0xa5});
        say(ends, bad);
        assert_true(test::logged().warnings >= 1);
        assert_true(device.margins_are_untouched());
        still_works(ends, msn);
    }
    device.close(beside);
}

// The peer leaves after each byte. When that is in the middle of a frame the device logs a line, and when it
// is between two frames the device logs none.
void an_end_at_every_place(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const beside = device.establish(other, {.ird = 4, .ord = 4});
    std::uint32_t msn = 0;
    for (const bool crc : {false, true}) {
        const Bytes all = conversation(device, crc).all();
        for (std::size_t size = 0; size <= all.size(); ++size) {
            device.fill(1);
            say(ends, Bytes(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size)));
            assert_true(nothing_else_was_touched(device));
            still_works(ends, msn);
        }
    }
    device.close(beside);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(a_valid_conversation), fixture_test(a_changed_byte_with_crc),
                                fixture_test(an_inserted_byte_without_crc),
                                fixture_test(an_end_at_every_place)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
