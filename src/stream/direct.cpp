// SPDX-License-Identifier: BSD-3-Clause
// stream/connection: direct placement, into memory that the peer's program has mapped, and that ours has.
#include <bit>
#include <cerrno>

#include "stream/connection.hpp"
#include "stream/peer_memory.hpp"

namespace stream {

base::Result<void> Connection::map(void *begin, std::size_t bytes, bool for_peer, std::uint64_t offset) {
    if (!may_send()) {
        return base::failure(why_not_send());
    }
    if (for_peer && !own_maps_->has_slot()) {
        return base::failure(ENOMEM);
    }
    const int usage = for_peer ? RPMA_MR_USAGE_WRITE_DST : RPMA_MR_USAGE_WRITE_SRC;
    rpma_mr_local *registered = nullptr;
    // The memory is for this peer only, where the device can do that.
    int result = device_.is_of_kernel() ? rpma_mr_reg(device_.peer(), begin, bytes, usage, &registered)
                                        : rpma_conn_mr_reg(conn_.get(), begin, bytes, usage, &registered);
    if (result != 0) {
        return result == RPMA_E_PROVIDER ? base::failure(EFAULT) : failure_of(result);
    }
    Memory memory{registered};
    if (!for_peer) {
        own_maps_->add(begin, bytes, std::move(memory), std::nullopt);
        return {};
    }
    Slot slot{.offset = offset,
              .target = {.address = reinterpret_cast<std::uintptr_t>(begin),
                         .key = 0,
                         .length = static_cast<std::uint32_t>(bytes)}};
    if (result = rpma_mr_get_key(registered, &slot.target.key); result != 0) {
        return failure_of(result);
    }
    own_maps_->add(begin, bytes, std::move(memory), slot);
    send_what_is_owed();
    return {};
}

bool Connection::unmap(const void *begin, std::size_t bytes) {
    if (!own_maps_ || !own_maps_->remove(begin, bytes)) {
        return false;
    }
    if (phase_ == Phase::Established) {
        send_what_is_owed();
    }
    return true;
}

void Connection::unmap_all() {
    if (own_maps_) {
        own_maps_->clear();
    }
}

// Writes the slots of the peer's list that have changed. The word about a slot takes one of the peer's
// credits. A peer that would not give that credit back gets no word: it reads its list by itself.
void Connection::tell_mappings() {
    while (error_ == 0 && may_write_ && !peer_left_ && own_maps_->has_news() &&
           posted_->has_place(places_of(1) + kept_places) &&
           (!peer_counts_slots_ || allowance_->has_credit())) {
        const auto [index, slot] = own_maps_->take_news();
        const auto bytes = encode_slot(slot, peer_order_);
        std::array<rpma_op, 2> ops{};
        ops[0].bytes = bytes.data();
        ops[0].len = bytes.size();
        ops[0].remote_addr = peer_list_.address + std::uint64_t{peer_list_.length} * window_bytes +
                             std::uint64_t{index} * slot_bytes;
        ops[0].remote_key = peer_list_.key;
        std::optional<std::uint32_t> word;
        if (peer_counts_slots_) {
            allowance_->take_credit();
            ++live_->sent_messages;
            word = encode(Op::Slot, index);
        }
        post(ops, 0, word);
    }
}

// The peer has written this slot of our list, and may write it again at any time.
bool Connection::take_slot(std::uint32_t index) {
    if (index >= settings_.slots || !unread_->arrived_empty()) {
        return false;
    }
    const auto *const entry =
        reinterpret_cast<const std::uint64_t *>(list() + windows * window_bytes + index * slot_bytes);
    Slot slot;
    slot.offset = peer_wrote<std::uint64_t>(&entry[0]);
    slot.target.address = peer_wrote<std::uint64_t>(&entry[1]);
    const auto rest = peer_wrote<std::uint64_t>(&entry[2]);
    const auto [key, length] = std::bit_cast<std::array<std::uint32_t, 2>>(rest);
    slot.target.key = key;
    slot.target.length = length;
    return peer_maps_->set(index, slot);
}

base::Result<std::size_t> Connection::write_at(const iovec &from, std::uint64_t offset) {
    if (!may_send()) {
        return base::failure(why_not_send());
    }
    std::size_t written = 0;
    while (written < from.iov_len) {
        auto to = peer_maps_->find(offset + written);
        if (!to) {
            return written != 0 ? base::Result<std::size_t>{written} : base::failure(ENXIO);
        }
        // As with data, the peer learns of our mappings first. A write here takes no window and no credit.
        const std::size_t room = own_maps_->has_news() ? 0 : posted_->room(2);
        to->length = static_cast<std::uint32_t>(
            std::min({room, most_at_once, from.iov_len - written, std::size_t{to->length}}));
        if (to->length == 0 || !put({&from, 1}, written, *to, false)) {
            const int number = error_ != 0 ? error_ : EAGAIN;
            return written != 0 ? base::Result<std::size_t>{written} : base::failure(number);
        }
        written += to->length;
        live_->placed_bytes += to->length;
    }
    return written;
}

}  // namespace stream
