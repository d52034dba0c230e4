// SPDX-License-Identifier: BSD-3-Clause
// When a peer breaks a rule, the device ends its connection with the TERMINATE that names the rule (RFC 5040
// section 4.8) and a line of log, and writes no memory. The next connection works.
#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::bytes;
using test::Device;
using test::Ends;
using test::fpdu;
using test::joined;

constexpr std::uint64_t top = UINT64_MAX - 3;

// Asserts that the device answers the last of these FPDUs with a TERMINATE that has this code and the parts
// of the message that RFC 5040 figure 10 asks for.
Bytes terminate_body(const Bytes &wrong, const TerminateCode &code) {
    const auto fpdu_at = [&](std::size_t at) {
        const std::size_t length =
            std::to_integer<std::size_t>(wrong[at]) << 8 | std::to_integer<std::size_t>(wrong[at + 1]);
        return fpdu_length_bytes + length + fpdu_trailer_bytes(length);
    };
    std::size_t last = 0;
    while (last + fpdu_at(last) < wrong.size()) {
        last += fpdu_at(last);
    }
    const auto culprit = std::span{wrong}.subspan(last);
    const std::size_t header = std::min(header_bytes(culprit), culprit.size());
    const bool whole = header == header_bytes(culprit);
    const bool of_rdmap = code.layer == 0;
    const bool quotes = whole && (of_rdmap ? code.type != 0 : code.layer == 1);
    const bool is_read = (culprit[3] & std::byte{0x0f}) == std::byte{1};
    const bool quotes_read = quotes && of_rdmap && code.type == 1 && is_read;
    Bytes body = bytes(
        {code.layer * 16U + code.type, code.code, (quotes ? 0xc0U : 0U) | (quotes_read ? 0x20U : 0U), 0});
    if (quotes) {
        const std::size_t quoted = header + (quotes_read ? read_request_bytes : 0);
        body.insert(body.end(), culprit.begin(), culprit.begin() + static_cast<std::ptrdiff_t>(quoted));
    }
    return body;
}

// Asserts that a peer that breaks a rule with these bytes gets this TERMINATE and the end of its stream, that
// the device logs it, and that no memory changes.
void expect_terminate(Ends &ends, const Bytes &wrong, const TerminateCode &code,
                      const MpaFrame &request = {}) {
    auto &[device, peer, other] = ends;
    device.fill(9);
    rdma_cm_id *const id = device.establish(peer, request);
    (void)test::logged();
    peer.send(wrong);
    const test::Fpdu terminate = peer.receive_fpdu();
    assert_true(terminate.segment.opcode == Opcode::Terminate);
    assert_true(terminate.segment.last);
    assert_int_equal(terminate.segment.msn, 1);
    assert_int_equal(terminate.segment.offset, 0);
    assert_same_bytes(terminate.payload, terminate_body(wrong, code));
    assert_int_equal(peer.receive_rest().size(), 0);
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
    assert_true(test::logged().warnings >= 1);
    assert_same_bytes({device.at(0), Device::memory_bytes}, test::pattern(Device::memory_bytes, 9));
    assert_true(device.margins_are_untouched());
    device.close(id);
}

MpaFrame from_a_soft_device(bool crc = false) {
    return {.crc = crc, .soft_operations = true, .ird = 4, .ord = 4};
}

Bytes write(std::uint32_t stag, std::uint64_t offset, std::size_t size = 8) {
    return fpdu({.opcode = Opcode::Write, .stag = stag, .offset = offset}, Bytes(size, std::byte{0x77}));
}

Bytes read(std::uint32_t stag, std::uint64_t offset, std::uint32_t size = 8, std::uint32_t msn = 1) {
    return fpdu(
        {.opcode = Opcode::ReadRequest, .msn = msn},
        encode(ReadRequest{
            .sink_stag = 1, .sink_offset = 2, .size = size, .source_stag = stag, .source_offset = offset}));
}

Bytes flush(std::uint32_t stag, std::uint64_t offset, std::uint32_t length = 8,
            FlushLevel level = FlushLevel::Visibility) {
    return fpdu({.opcode = Opcode::FlushRequest, .msn = 1},
                encode(FlushRequest{.stag = stag, .offset = offset, .length = length, .level = level}));
}

void rfc5041_7_1_a_tagged_segment_must_be_validated(Ends &ends) {
    const Device &device = ends.device;
    const std::uint32_t key = device.mr->rkey;
    const std::uint64_t end = device.address(Device::memory_bytes);
    expect_terminate(ends, write(key ^ 1, device.address()), terminate::tagged_invalid_stag);
    expect_terminate(ends, write(1, device.address()), terminate::tagged_invalid_stag);
    expect_terminate(ends, write(key, device.address() - 1), terminate::tagged_bounds);
    expect_terminate(ends, write(key, end - 7), terminate::tagged_bounds);
    expect_terminate(ends, write(key, end), terminate::tagged_bounds);
    expect_terminate(ends, write(key, 0), terminate::tagged_bounds);
    expect_terminate(ends, write(key, top), terminate::tagged_wrap);
    expect_terminate(ends, write(device.local_mr->rkey, device.address()), terminate::access);
    expect_terminate(ends, write(device.foreign_mr->rkey, device.address()), terminate::tagged_invalid_stag);
    // The write is longer than any buffer of the device, which refuses it before its first byte is placed.
    expect_terminate(ends, write(key, end - 40'000, 40'001), terminate::tagged_bounds);
    expect_terminate(ends, write(key, device.address() - 40'000, 40'001), terminate::tagged_bounds);
}

// A region that has taken a write is not looked up again for the writes behind it.
void rfc5041_7_1_each_of_many_tagged_segments_must_be_validated(Ends &ends) {
    const Device &device = ends.device;
    const std::uint32_t key = device.mr->rkey;
    const std::uint64_t end = device.address(Device::memory_bytes);
    const Bytes unchanged = test::pattern(Device::memory_bytes, 9);
    const auto behind_another = [&](const Bytes &wrong) {
        const auto first = std::span{unchanged}.first(8);
        return joined(fpdu({.opcode = Opcode::Write, .stag = key, .offset = device.address()},
                           Bytes(first.begin(), first.end())),
                      wrong);
    };
    expect_terminate(ends, behind_another(write(0, device.address())), terminate::tagged_invalid_stag);
    expect_terminate(ends, behind_another(write(key ^ 1, device.address())), terminate::tagged_invalid_stag);
    expect_terminate(ends, behind_another(write(key, device.address() - 1)), terminate::tagged_bounds);
    expect_terminate(ends, behind_another(write(key, end - 7)), terminate::tagged_bounds);
    expect_terminate(ends, behind_another(write(key, top)), terminate::tagged_wrap);
    expect_terminate(ends, behind_another(write(device.local_mr->rkey, device.address())), terminate::access);
    expect_terminate(ends, write(0, device.address()), terminate::tagged_invalid_stag);
}

void rfc5040_7_2_a_read_request_must_be_validated(Ends &ends) {
    const Device &device = ends.device;
    const std::uint32_t key = device.mr->rkey;
    const std::uint64_t end = device.address(Device::memory_bytes);
    expect_terminate(ends, read(key ^ 1, device.address()), terminate::invalid_stag);
    expect_terminate(ends, read(key, device.address() - 1), terminate::bounds);
    expect_terminate(ends, read(key, end - 7), terminate::bounds);
    expect_terminate(ends, read(key, device.address(), UINT32_MAX), terminate::bounds);
    expect_terminate(ends, read(key, top), terminate::wrap);
    expect_terminate(ends, read(device.local_mr->rkey, device.address()), terminate::access);
    expect_terminate(ends, read(device.foreign_mr->rkey, device.address()), terminate::invalid_stag);
    expect_terminate(ends, read(key, device.address(), 8, 2), terminate::untagged_msn);
    expect_terminate(ends, read(key, device.address(), 8, 0), terminate::untagged_msn);
    for (const std::size_t size : {0UL, 27UL, 29UL, 1024UL}) {
        expect_terminate(ends, fpdu({.opcode = Opcode::ReadRequest, .msn = 1}, Bytes(size)),
                         terminate::untagged_too_long);
    }
    expect_terminate(ends, fpdu({.opcode = Opcode::ReadRequest, .last = false, .msn = 1}, Bytes(28)),
                     terminate::untagged_offset);
    expect_terminate(ends, fpdu({.opcode = Opcode::ReadRequest, .offset = 4, .msn = 1}, Bytes(28)),
                     terminate::untagged_offset);
}

// The peer sends one request more than was agreed on, all before the first is answered.
void more_reads_than_agreed(Ends &ends) {
    Bytes requests;
    for (std::uint32_t msn = 1; msn <= Device::depth + 1U; ++msn) {
        requests = joined(std::move(requests), read(0, 0, 0, msn));
    }
    expect_terminate(ends, requests, terminate::untagged_no_buffer);
}

void rfc5041_7_1_an_untagged_segment_must_be_validated(Ends &ends) {
    const Bytes body(8);
    const auto send = [&](const Segment &segment) { return fpdu(segment, body); };
    expect_terminate(ends, send({.opcode = Opcode::Send, .msn = 2}), terminate::untagged_msn);
    expect_terminate(ends, send({.opcode = Opcode::Send, .msn = 0}), terminate::untagged_msn);
    expect_terminate(ends, send({.opcode = Opcode::Send, .offset = 8, .msn = 1}), terminate::untagged_offset);
    const Bytes first = send({.opcode = Opcode::Send, .last = false, .msn = 1});
    for (const std::uint32_t offset : {0U, 7U, 9U, 16U, UINT32_MAX}) {
        expect_terminate(ends, joined(first, send({.opcode = Opcode::Send, .offset = offset, .msn = 1})),
                         terminate::untagged_offset);
    }
    expect_terminate(ends, joined(first, send({.opcode = Opcode::Send, .msn = 2})), terminate::untagged_msn);
}

void rfc5041_7_1_payload_must_fit_the_untagged_buffer(Ends &ends) {
    auto &[device, peer, other] = ends;
    for (const std::size_t size : {9UL, 100UL, 60'000UL}) {
        rdma_cm_id *const id = device.establish(peer, {});
        device.fill(1);
        device.post_receive(id, 5, 16, 8);
        device.post_receive(id, 6, 64, 8);
        const Bytes wrong = fpdu({.opcode = Opcode::Send, .msn = 1}, Bytes(size, std::byte{0x55}));
        peer.send(wrong);
        assert_same_bytes(peer.receive_fpdu().payload, terminate_body(wrong, terminate::untagged_too_long));
        assert_int_equal(peer.receive_rest().size(), 0);
        device.expect_completion(5, IBV_WC_LOC_LEN_ERR);
        device.expect_completion(6, IBV_WC_WR_FLUSH_ERR);
        const Bytes before = test::pattern(Device::memory_bytes, 1);
        assert_same_bytes({device.at(0), 16}, std::span{before}.first(16));
        assert_same_bytes({device.at(24), 100}, std::span{before}.subspan(24, 100));
        device.close(id);
    }
}

void rfc5040_7_2_version_and_opcode_must_be_valid(Ends &ends) {
    const auto tagged = [](unsigned control) {
        return bytes({0, 14, control >> 8, control & 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    };
    const auto untagged = [](unsigned control, unsigned queue, unsigned length = 18) {
        return bytes({0,
                      length,
                      control >> 8,
                      control & 0xff,
                      0,
                      0,
                      0,
                      0,
                      0,
                      0,
                      0,
                      queue,
                      0,
                      0,
                      0,
                      1,
                      0,
                      0,
                      0,
                      0,
                      0,
                      0,
                      0,
                      0});
    };
    expect_terminate(ends, tagged(0xc240), terminate::tagged_version);
    expect_terminate(ends, untagged(0x4043, 0), terminate::untagged_version);
    expect_terminate(ends, tagged(0xc100), terminate::rdmap_version);
    expect_terminate(ends, tagged(0xc143), terminate::unexpected_opcode);
    expect_terminate(ends, untagged(0x4140, 0), terminate::unexpected_opcode);
    expect_terminate(ends, untagged(0x414e, 0), terminate::unexpected_opcode);
    expect_terminate(ends, untagged(0x4143, 1), terminate::untagged_queue);
    expect_terminate(ends, untagged(0x4141, 0), terminate::untagged_queue);
    expect_terminate(ends, untagged(0x4143, 0, 17), terminate::mpa_frame);
    expect_terminate(ends, tagged(0xc140 | 14), terminate::unexpected_opcode);  // atomic write, not agreed on
    expect_terminate(ends, bytes({0xff, 0xff, 0xff, 0xff}), terminate::tagged_version);
    expect_terminate(ends, bytes({0, 0, 0, 0}), terminate::untagged_version);
}

void opcodes_that_were_not_agreed_on(Ends &ends) {
    for (const Opcode opcode :
         {Opcode::Immediate, Opcode::ImmediateSolicited, Opcode::AtomicRequest, Opcode::AtomicResponse}) {
        expect_terminate(ends, fpdu({.opcode = opcode, .msn = 1}, Bytes(8)), terminate::unexpected_opcode);
    }
    const Device &device = ends.device;
    expect_terminate(ends, flush(device.mr->rkey, device.address()), terminate::unexpected_opcode);
    expect_terminate(ends, fpdu({.opcode = Opcode::FlushResponse, .msn = 1}, {}),
                     terminate::unexpected_opcode);
    // Only queue pairs by number acknowledge, and none of rdma_cm does.
    expect_terminate(ends, fpdu({.opcode = Opcode::Acknowledgement, .msn = 1}, Bytes(8)),
                     terminate::unexpected_opcode, from_a_soft_device());
}

void flushes(Ends &ends) {
    const Device &device = ends.device;
    const std::uint32_t key = device.mr->rkey;
    const MpaFrame soft = from_a_soft_device();
    expect_terminate(ends, flush(key ^ 1, device.address()), terminate::invalid_stag, soft);
    expect_terminate(ends, flush(key, device.address() - 1), terminate::bounds, soft);
    expect_terminate(ends, flush(key, top), terminate::wrap, soft);
    expect_terminate(ends, flush(device.local_mr->rkey, device.address()), terminate::access, soft);
    expect_terminate(ends, flush(device.foreign_mr->rkey, device.address()), terminate::invalid_stag, soft);
    expect_terminate(ends, flush(key, device.address(), 8, FlushLevel::Persistent), terminate::access, soft);
    expect_terminate(ends, flush(key, device.address(), 8, FlushLevel{3}), terminate::operation_unspecified,
                     soft);
    for (const std::size_t size : {0UL, 19UL, 21UL}) {
        expect_terminate(ends, fpdu({.opcode = Opcode::FlushRequest, .msn = 1}, Bytes(size)),
                         terminate::untagged_too_long, soft);
    }
}

void rfc7306_8_2_immediate_data_must_be_validated(Ends &ends) {
    const Device &device = ends.device;
    const MpaFrame soft = from_a_soft_device();
    const auto immediate = [](Segment segment, std::size_t size = immediate_bytes) {
        segment.opcode = Opcode::Immediate;
        return fpdu(segment, Bytes(size));
    };
    for (const std::size_t size : {0UL, 4UL, 7UL, 9UL, 1024UL}) {
        expect_terminate(ends, immediate({.msn = 1}, size), terminate::untagged_too_long, soft);
    }
    expect_terminate(ends, immediate({.last = false, .msn = 1}), terminate::untagged_offset, soft);
    expect_terminate(ends, immediate({.offset = 8, .msn = 1}), terminate::untagged_offset, soft);
    expect_terminate(ends, immediate({.msn = 0}), terminate::untagged_msn, soft);
    expect_terminate(ends, immediate({.msn = 2}), terminate::untagged_msn, soft);
    // Immediate data as the end of a send has the offset where the send's bytes end, and the send's number.
    const Bytes first = fpdu({.opcode = Opcode::Send, .last = false, .msn = 1}, Bytes(8));
    for (const std::uint32_t offset : {0U, 7U, 9U, 16U, UINT32_MAX}) {
        expect_terminate(ends, joined(first, immediate({.offset = offset, .msn = 1})),
                         terminate::untagged_offset, soft);
    }
    expect_terminate(ends, joined(first, immediate({.offset = 8, .msn = 2})), terminate::untagged_msn, soft);
    // Immediate data must not come before the write is whole.
    const Bytes open = fpdu(
        {.opcode = Opcode::Write, .last = false, .stag = device.mr->rkey, .offset = device.address()}, {});
    expect_terminate(ends, joined(open, immediate({.msn = 1})), terminate::operation_unspecified, soft);
}

void atomic_writes(Ends &ends) {
    const Device &device = ends.device;
    const std::uint32_t key = device.mr->rkey;
    const MpaFrame soft = from_a_soft_device();
    const auto atomic_write = [](std::uint32_t stag, std::uint64_t offset, std::size_t size) {
        return fpdu({.opcode = Opcode::AtomicWrite, .stag = stag, .offset = offset}, Bytes(size));
    };
    for (const std::size_t size : {0UL, 7UL, 9UL, 16UL}) {
        expect_terminate(ends, atomic_write(key, device.address(), size), terminate::operation_unspecified,
                         soft);
    }
    expect_terminate(ends, atomic_write(key, device.address(4), 8), terminate::operation_unspecified, soft);
    expect_terminate(ends, atomic_write(key ^ 1, device.address(), 8), terminate::tagged_invalid_stag, soft);
    expect_terminate(ends, atomic_write(key, device.address(Device::memory_bytes), 8),
                     terminate::tagged_bounds, soft);
    expect_terminate(ends, atomic_write(device.local_mr->rkey, device.address(), 8), terminate::access, soft);
}

Bytes atomic(std::uint32_t stag, std::uint64_t offset, std::uint32_t msn = 1,
             AtomicOperation operation = AtomicOperation::FetchAdd) {
    return fpdu({.opcode = Opcode::AtomicRequest, .msn = msn},
                encode(AtomicRequest{
                    .operation = operation, .identifier = 1, .stag = stag, .offset = offset, .add_swap = 1}));
}

void rfc7306_5_2_1_the_address_must_be_aligned(Ends &ends) {
    const Device &device = ends.device;
    for (const auto operation : {AtomicOperation::FetchAdd, AtomicOperation::CompareSwap}) {
        for (std::size_t offset = 1; offset < atomic_bytes; ++offset) {
            expect_terminate(ends, atomic(device.mr->rkey, device.address(offset), 1, operation),
                             terminate::catastrophic_stream, from_a_soft_device());
        }
    }
}

void rfc7306_8_2_an_atomic_request_must_be_validated(Ends &ends) {
    const Device &device = ends.device;
    const std::uint32_t key = device.mr->rkey;
    const MpaFrame soft = from_a_soft_device();
    expect_terminate(ends, atomic(key ^ 1, device.address()), terminate::invalid_stag, soft);
    expect_terminate(ends, atomic(key, device.address() - 8), terminate::bounds, soft);
    expect_terminate(ends, atomic(key, device.address(Device::memory_bytes)), terminate::bounds, soft);
    expect_terminate(ends, atomic(key, top), terminate::wrap, soft);
    expect_terminate(ends, atomic(device.local_mr->rkey, device.address()), terminate::access, soft);
    expect_terminate(ends, atomic(device.foreign_mr->rkey, device.address()), terminate::invalid_stag, soft);
    expect_terminate(ends, atomic(key, device.address(), 2), terminate::untagged_msn, soft);
    for (const std::size_t size : {0UL, 51UL, 53UL}) {
        expect_terminate(ends, fpdu({.opcode = Opcode::AtomicRequest, .msn = 1}, Bytes(size)),
                         terminate::untagged_too_long, soft);
    }
    Bytes requests;
    for (std::uint32_t msn = 1; msn <= Device::depth + 1U; ++msn) {
        requests = joined(std::move(requests), read(0, 0, 0, msn));
    }
    requests.resize(requests.size() - read(0, 0, 0).size());
    expect_terminate(ends, joined(requests, atomic(key, device.address(), Device::depth + 1U)),
                     terminate::untagged_no_buffer, soft);
}

// A peer must not invalidate a number that is no key, a key that no peer was given,
// or a key of another protection domain.
void rfc5040_5_3_a_key_must_be_one_that_can_be_invalidated(Ends &ends) {
    const Device &device = ends.device;
    for (const std::uint32_t key :
         {device.mr->rkey ^ 1, 0U, 1U, device.local_mr->rkey, device.foreign_mr->rkey}) {
        for (const Opcode opcode : {Opcode::SendInvalidate, Opcode::SendSolicitedInvalidate}) {
            expect_terminate(ends, fpdu({.opcode = opcode, .stag = key, .msn = 1}, Bytes(8)),
                             terminate::cannot_invalidate);
        }
    }
}

void answers_that_nobody_asked_for(Ends &ends) {
    const Device &device = ends.device;
    const Segment response{
        .opcode = Opcode::ReadResponse, .stag = device.mr->lkey, .offset = device.address()};
    expect_terminate(ends, fpdu(response, Bytes(8)), terminate::tagged_bounds);
    expect_terminate(ends, fpdu(response, {}), terminate::tagged_bounds);
    expect_terminate(ends, fpdu({.opcode = Opcode::FlushResponse, .msn = 1}, {}), terminate::untagged_msn,
                     from_a_soft_device());
    expect_terminate(ends, fpdu({.opcode = Opcode::AtomicResponse, .msn = 1}, encode(AtomicResponse{})),
                     terminate::untagged_msn, from_a_soft_device());
}

// The device checks the length before it checks whether there was a question.
void answers_must_be_of_their_length(Ends &ends) {
    const MpaFrame soft = from_a_soft_device();
    for (const std::size_t size : {1UL, 20UL, 1024UL}) {
        expect_terminate(ends, fpdu({.opcode = Opcode::FlushResponse, .msn = 1}, Bytes(size)),
                         terminate::untagged_too_long, soft);
    }
    for (const std::size_t size : {0UL, 11UL, 13UL}) {
        expect_terminate(ends, fpdu({.opcode = Opcode::AtomicResponse, .msn = 1}, Bytes(size)),
                         terminate::untagged_too_long, soft);
    }
}

void rfc5044_8_a_wrong_crc_must_be_detected(Ends &ends) {
    auto &device = ends.device;
    Bytes wrong =
        fpdu({.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address()}, Bytes(8), true);
    wrong.back() ^= std::byte{1};
    expect_terminate(ends, wrong, terminate::mpa_crc, from_a_soft_device(true));
    expect_terminate(ends, write(device.mr->rkey, device.address()), terminate::mpa_crc,
                     from_a_soft_device(true));
}

// The requests that are flushed then have no room in the queue either. That is not the fault of the peer.
void an_overrun_is_told_to_the_peer(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, test::plain);
    assert_int_equal(softrdma_ibv_resize_cq(device.cq, 1), 0);
    device.post(id, IBV_WR_RDMA_READ, 1, 0, 8, 0x7000, 0x99);
    (void)peer.receive_fpdu();
    device.post_receive(id, 2, 0, 8);
    device.post_receive(id, 3, 0, 8);
    peer.send(joined(fpdu({.opcode = Opcode::Send, .msn = 1}, Bytes(8)),
                     fpdu({.opcode = Opcode::Send, .msn = 2}, Bytes(8))));
    const test::Fpdu terminate = peer.receive_fpdu();
    assert_true(terminate.segment.opcode == Opcode::Terminate);
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(rfc5041_7_1_a_tagged_segment_must_be_validated),
                                fixture_test(rfc5041_7_1_each_of_many_tagged_segments_must_be_validated),
                                fixture_test(rfc5040_7_2_a_read_request_must_be_validated),
                                fixture_test(more_reads_than_agreed),
                                fixture_test(rfc5041_7_1_an_untagged_segment_must_be_validated),
                                fixture_test(rfc5041_7_1_payload_must_fit_the_untagged_buffer),
                                fixture_test(rfc5040_7_2_version_and_opcode_must_be_valid),
                                fixture_test(opcodes_that_were_not_agreed_on),
                                fixture_test(flushes),
                                fixture_test(rfc7306_8_2_immediate_data_must_be_validated),
                                fixture_test(atomic_writes),
                                fixture_test(rfc7306_5_2_1_the_address_must_be_aligned),
                                fixture_test(rfc7306_8_2_an_atomic_request_must_be_validated),
                                fixture_test(rfc5040_5_3_a_key_must_be_one_that_can_be_invalidated),
                                fixture_test(answers_that_nobody_asked_for),
                                fixture_test(answers_must_be_of_their_length),
                                fixture_test(rfc5044_8_a_wrong_crc_must_be_detected),
                                fixture_test(an_overrun_is_told_to_the_peer)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
