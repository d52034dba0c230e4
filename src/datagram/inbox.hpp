// SPDX-License-Identifier: BSD-3-Clause
// datagram/inbox: messages that came and that the program has not taken, oldest first.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "datagram/wire.hpp"

namespace datagram {

struct Message {
    Address from;
    std::size_t size;
    std::array<std::byte, slot_bytes> bytes;

    [[nodiscard]] std::span<const std::byte> content() const { return std::span{bytes}.first(size); }
};

// The inbox has room for `room` messages, and touches their memory when it uses it.
class Inbox {
public:
    explicit Inbox(std::size_t room)
        : room_{room}, messages_{std::make_unique_for_overwrite<Message[]>(room)} {}

    [[nodiscard]] bool empty() const { return used_ == 0; }
    [[nodiscard]] bool full() const { return room() == 0; }
    [[nodiscard]] std::size_t room() const { return room_ - used_; }

    // There is room, and the content is no longer than a slot.
    void add(const Address &from, std::span<const std::byte> content) {
        Message &message = messages_[(first_ + used_++) % room_];
        message.from = from;
        message.size = content.size();
        std::ranges::copy(content, message.bytes.begin());
    }
    // The inbox is not empty.
    [[nodiscard]] const Message &front() const { return messages_[first_]; }
    void drop_front() {
        first_ = (first_ + 1) % room_;
        --used_;
    }

private:
    const std::size_t room_;
    const std::unique_ptr<Message[]> messages_;
    std::size_t first_ = 0;
    std::size_t used_ = 0;
};

}  // namespace datagram
