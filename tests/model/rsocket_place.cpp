// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_pair: direct placement. What was mapped is known to the other end when it has received what
// was sent later; what it placed is in the memory when that was received which it sent later.
#include <rpma/rsocket.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "rsocket_pair.hpp"

namespace model {

namespace {

constexpr std::size_t most_mapped = 40'000;

}  // namespace

std::string RsocketPair::map(int end) {
    End &owner = ends_[index(end)];
    if (owner.mapped != nullptr) {
        if (owner.mapped->pending || !dice_.one_in(8)) {
            return {};
        }
        const int result = riounmap(owner.fd, owner.mapped->memory.data(), owner.mapped->memory.size());
        owner.mapped = nullptr;
        return result == 0 ? "" : wrong(end, "riounmap", result);
    }
    auto mapped = std::make_unique<Mapped>();
    mapped->memory.resize(1 + dice_.below(most_mapped));
    mapped->expected = mapped->memory;
    mapped->offset = static_cast<std::int64_t>(dice_.below(1 << 20));
    mapped->known_after = owner.sent.sent();
    const off_t result =
        riomap(owner.fd, mapped->memory.data(), mapped->memory.size(), PROT_WRITE, 0, mapped->offset);
    if (result == mapped->offset) {
        owner.mapped = std::move(mapped);
        return {};
    }
    // The end of this direction was announced: nothing can be told any more.
    return result < 0 && errno == EPIPE && !owner.writes ? "" : broke(end, "riomap");
}

std::string RsocketPair::place(int end) {
    End &writer = ends_[index(end)];
    const End &owner = ends_[index(1 - end)];
    Mapped *const mapped = owner.mapped.get();
    if (mapped == nullptr || owner.sent.received() <= mapped->known_after || !writer.writes) {
        return {};
    }
    const std::size_t at = dice_.below(mapped->memory.size());
    room_.resize(std::min(1 + dice_.size(), mapped->memory.size() - at));
    std::ranges::generate(room_,
                          [&, next = dice_.any()]() mutable { return static_cast<std::byte>(next++ >> 3); });
    const auto offset = mapped->offset + static_cast<std::int64_t>(at);
    const auto count =
        static_cast<ssize_t>(riowrite(writer.fd, room_.data(), room_.size(), offset, MSG_NOSIGNAL));
    if (count < 0) {
        return errno == EAGAIN ? "" : broke(end, "riowrite");
    }
    if (count == 0 || static_cast<std::size_t>(count) > room_.size()) {
        return wrong(end, "riowrite", count);
    }
    std::copy_n(room_.begin(), count, mapped->expected.begin() + static_cast<std::ptrdiff_t>(at));
    mapped->pending = true;
    mapped->placed_after = writer.sent.sent();
    return {};
}

std::string RsocketPair::check_placed(int end) {
    Mapped *const mapped = ends_[index(end)].mapped.get();
    if (mapped == nullptr || !mapped->pending ||
        ends_[index(1 - end)].sent.received() <= mapped->placed_after) {
        return {};
    }
    mapped->pending = false;
    return mapped->memory == mapped->expected ? "" : wrong(end, "memory that differs, from place", 0);
}

}  // namespace model
