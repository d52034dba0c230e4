// SPDX-License-Identifier: BSD-3-Clause
// model/stream: plans the next operations.
#include <algorithm>

#include "stream.hpp"

namespace model {

namespace {

// The number of messages without a receive; the device keeps more.
constexpr std::size_t most_unexpected = 32;
constexpr std::size_t most_unexpected_bytes = 1024;

}  // namespace

// Returns a size that is mostly small, sometimes larger than an FPDU.
std::size_t Stream::size() {
    switch (below(8)) {
        case 0:
            return below(3) == 0 ? 0 : 8;
        case 1:
        case 2:
        case 3:
            return below(65);
        case 4:
        case 5:
            return below(5000);
        case 6:
            return below(20'000);
        default:
            return below(Layout::slot_bytes + 1);
    }
}

Range Stream::range_within(std::size_t bytes, std::size_t length) {
    return {.offset = below(bytes - length + 1), .length = length};
}

// Parts of the source: content and scatter list.
void Stream::gather(Side &side, Planned &planned, std::size_t length) {
    const conformance::End &end = side.end();
    const std::size_t count = length == 0 ? below(2) : 1 + below(end.sizes.sge);
    const bool is_inline = length <= end.sizes.max_inline && one_in(2);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t left = length - planned.content.size();
        const std::size_t bytes = i + 1 == count ? left : below(left + 1);
        const Range from = range_within(Layout::source_bytes, bytes);
        planned.request.sges.push_back(conformance::sge(end, from.offset, bytes));
        const auto *const data = end.memory.data() + from.offset;
        planned.content.insert(planned.content.end(), data, data + bytes);
        if (is_inline) {
            planned.request.sges.back().lkey = 0;
        }
    }
    planned.request.flags |= is_inline ? unsigned{IBV_SEND_INLINE} : 0U;
}

// A write, atomic write or read. What a read that is open has not brought yet must not be changed before it.
void Stream::aim(Side &side, Side &other, Planned &planned, const std::vector<Planned> &before) {
    const bool is_read = planned.operation.opcode == IBV_WR_RDMA_READ;
    const bool is_atomic = planned.operation.opcode == IBV_WR_ATOMIC_WRITE;
    const std::size_t length = is_atomic ? 8 : size();
    Range &remote = planned.operation.remote;
    remote = range_within(Layout::target_bytes, length);
    if (is_atomic) {
        remote.offset &= ~std::size_t{7};
    }
    if (is_read) {
        planned.operation.local = range_within(Layout::sink_bytes, length);
        planned.request.sges = {
            conformance::sge(side.end(), Layout::sink + planned.operation.local.offset, length)};
    } else {
        gather(side, planned, length);
        const bool read_before = std::ranges::any_of(before, [&remote](const Planned &one) {
            return one.operation.opcode == IBV_WR_RDMA_READ && one.operation.remote.overlaps(remote);
        });
        if (read_before || side.reads_from(remote)) {
            planned.request.flags |= IBV_SEND_FENCE;
        }
    }
    planned.request.remote_address = other.end().address(Layout::target + remote.offset);
    planned.request.rkey = length == 0 && one_in(2) ? 0 : other.end().mr->rkey;
}

Stream::Planned Stream::plan_flush(Side &other) {
    Planned planned;
    const Range place = range_within(Layout::target_bytes, size());
    planned.request = conformance::flush_request(other.end(), Layout::target + place.offset, place.length);
    planned.operation.opcode = conformance::flush_opcode;
    return planned;
}

Stream::Planned Stream::plan(Side &side, Side &other, const std::vector<Planned> &before) {
    const conformance::End &end = side.end();
    const auto sends_before = static_cast<std::size_t>(std::ranges::count_if(
        before, [](const Planned &one) { return takes_receive(one.operation.opcode); }));
    const std::size_t waiting = other.messages_waiting() + sends_before;
    const bool may_take_receive = waiting < other.receives_posted() + most_unexpected;
    const bool may_have_immediate = may_take_receive && end.native(verbs::native_immediate) && one_in(2);
    Planned planned;
    planned.request.flags = 0;
    switch (below(7)) {
        case 0:
        case 1:
            planned.operation.opcode = IBV_WR_RDMA_READ;
            break;
        case 2:
            if (end.native(verbs::native_atomic_write)) {
                planned.operation.opcode = IBV_WR_ATOMIC_WRITE;
            }
            break;
        case 3:
            if (end.native(verbs::native_flush)) {
                planned = plan_flush(other);
            }
            break;
        case 4:
            if (may_take_receive) {
                planned.operation.opcode = may_have_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
            }
            break;
        default:
            if (may_have_immediate) {
                planned.operation.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            }
            break;
    }
    if (is_send(planned.operation.opcode)) {
        const bool expected = waiting < other.receives_posted();
        gather(side, planned, expected ? size() : std::min(size(), most_unexpected_bytes));
    } else if (planned.operation.opcode != conformance::flush_opcode) {
        aim(side, other, planned, before);
    }
    if (has_immediate(planned.operation.opcode)) {
        planned.request.immediate = planned.operation.immediate = static_cast<std::uint32_t>(random_());
    }
    planned.request.opcode = planned.operation.opcode;
    planned.request.wr_id = planned.operation.wr_id = next_wr_id_++;
    planned.operation.signaled = one_in(2) || side.signal_is_due(before.size());
    planned.request.flags &= ~unsigned{IBV_SEND_SIGNALED};
    planned.request.flags |= (planned.operation.signaled ? unsigned{IBV_SEND_SIGNALED} : 0U) |
                             (one_in(8) ? unsigned{IBV_SEND_FENCE} : 0U) |
                             (one_in(8) ? unsigned{IBV_SEND_SOLICITED} : 0U);
    return planned;
}

}  // namespace model
