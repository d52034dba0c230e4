// SPDX-License-Identifier: BSD-3-Clause
// stream/direct: direct placement, into memory that the peer's program or our program has mapped.
#include <cerrno>

#include "stream/connection.hpp"

namespace stream {

base::Result<void> Connection::map(void *begin, std::size_t bytes, bool for_peer, std::uint64_t offset) {
    if (!life_.may_send()) {
        return base::failure(life_.why_not_send());
    }
    auto mapped = exchange_->outgoing().map(begin, bytes, for_peer, offset);
    if (mapped && for_peer) {
        (void)fail_if(exchange_->settle());
    }
    return mapped;
}

base::Result<void> Connection::unmap(const void *begin, std::size_t bytes) {
    if (!exchange_) {
        return base::failure(EINVAL);
    }
    const auto unmapped = exchange_->outgoing().unmap(begin, bytes);
    if (unmapped && life_.established()) {
        (void)fail_if(exchange_->settle());
    }
    return unmapped;
}

base::Result<void> Connection::unmap_all() {
    return exchange_ ? exchange_->outgoing().unmap_all() : base::Result<void>{};
}

base::Result<std::size_t> Connection::write_at(const iovec &from, std::uint64_t offset) {
    if (!life_.may_send()) {
        return base::failure(life_.why_not_send());
    }
    std::size_t written = 0;
    while (written < from.iov_len) {
        const auto to = exchange_->incoming().find(offset + written);
        if (!to) {
            return written != 0 ? base::Result<std::size_t>{written} : base::failure(ENXIO);
        }
        const auto outcome = exchange_->outgoing().write(from, written, *to);
        written += outcome.bytes;
        if (outcome.bytes == 0) {
            (void)fail_if(outcome.error);
            return Outgoing::Sent{.bytes = written, .error = outcome.error}.result(from.iov_len);
        }
    }
    return written;
}

base::Result<void> Outgoing::map(void *begin, std::size_t bytes, bool for_peer, std::uint64_t offset) {
    if (for_peer && !own_maps_.has_slot()) {
        return base::failure(ENOMEM);
    }
    const int usage = for_peer ? RPMA_MR_USAGE_WRITE_DST : RPMA_MR_USAGE_WRITE_SRC;
    rpma_mr_local *registered = nullptr;
    // The memory is for this peer only, where the device can do that.
    int result = common_.device.is_of_kernel()
                     ? rpma_mr_reg(common_.device.peer(), begin, bytes, usage, &registered)
                     : rpma_conn_mr_reg(common_.conn.get(), begin, bytes, usage, &registered);
    if (result != 0) {
        return result == RPMA_E_PROVIDER ? base::failure(EFAULT) : failure_of(result);
    }
    Memory memory{registered};
    if (!for_peer) {
        own_maps_.add(begin, bytes, std::move(memory), std::nullopt);
        return {};
    }
    Slot slot{.offset = offset,
              .memory = {.address = reinterpret_cast<std::uintptr_t>(begin),
                         .key = 0,
                         .length = static_cast<std::uint32_t>(bytes)}};
    if (result = rpma_mr_get_key(registered, &slot.memory.key); result != 0) {
        return failure_of(result);
    }
    own_maps_.add(begin, bytes, std::move(memory), slot);
    return {};
}

// Writes the slots of the peer's list that have changed. The word about a slot takes one of the peer's
// credits. A peer that would not give that credit back gets no word: it reads its list by itself.
int Outgoing::tell_mappings() {
    while (own_maps_.has_news() && posted_.has_place(places_of(1) + kept_places) &&
           (!peer_counts_slots_ || allowance_.has_credit())) {
        const auto [index, slot] = own_maps_.take_news();
        const auto bytes = encode_slot(slot, peer_order_);
        std::array<rpma_op, 2> ops{};
        ops[0].bytes = bytes.data();
        ops[0].len = bytes.size();
        ops[0].remote_addr = peer_list_.address + std::uint64_t{peer_list_.length} * window_bytes +
                             std::uint64_t{index} * slot_bytes;
        ops[0].remote_key = peer_list_.key;
        std::optional<std::uint32_t> word;
        if (peer_counts_slots_) {
            allowance_.take_credit();
            ++common_.report->sent_messages;
            word = encode(Op::Slot, index);
        }
        if (const int error = post(ops, 0, word); error != 0) {
            return error;
        }
    }
    return 0;
}

Outgoing::Sent Outgoing::write(const iovec &from, std::size_t skip, KeyedMemory to) {
    // As with data, the peer learns of our mappings first. A write here takes no window and no credit.
    const std::size_t room = own_maps_.has_news() ? 0 : posted_.room(2);
    to.length = static_cast<std::uint32_t>(
        std::min({room, longest_message, from.iov_len - skip, std::size_t{to.length}}));
    if (to.length == 0) {
        return {.bytes = 0, .error = 0};
    }
    if (const int error = put({&from, 1}, skip, to, false); error != 0) {
        return {.bytes = 0, .error = error};
    }
    common_.report->placed_bytes += to.length;
    return {.bytes = to.length, .error = 0};
}

}  // namespace stream
