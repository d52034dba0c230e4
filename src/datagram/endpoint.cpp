// SPDX-License-Identifier: BSD-3-Clause
// datagram/endpoint: messages of one UDP socket.
#include "datagram/endpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>

#include "base/log.hpp"

namespace datagram {

namespace {

// Addresses that an endpoint remembers. The one that was not sent to for longest is forgotten.
constexpr std::size_t most_peers = 1024;
// Datagrams that one call takes off the socket at most.
constexpr int datagrams_at_once = 64;

// The parts one after the other; false when there is no room.
bool gather(std::span<const iovec> parts, std::span<std::byte> &room) {
    auto rest = room;
    for (const iovec &part : parts) {
        if (part.iov_len > rest.size()) {
            return false;
        }
        std::copy_n(static_cast<const std::byte *>(part.iov_base), part.iov_len, rest.begin());
        rest = rest.subspan(part.iov_len);
    }
    room = room.first(room.size() - rest.size());
    return true;
}

}  // namespace

Endpoint::~Endpoint() {
    if (dropped_ != 0) {
        BASE_LOG(Info, "dropped %" PRIu64 " datagrams that are no messages of rsockets", dropped_);
    }
}

void Endpoint::peer_changed() {
    AnyAddress name{};
    socklen_t length = sizeof(name);
    default_peer_ = getpeername(socket_, &name.any, &length) == 0 ? address_of(&name, length) : std::nullopt;
}

Endpoint::Peer &Endpoint::peer_at(const Address &address) {
    const auto now = base::Clock::now();
    if (const auto known = peers_.find(address); known != peers_.end()) {
        known->second.used = now;
        return known->second;
    }
    if (peers_.size() == most_peers) {
        peers_.erase(std::ranges::min_element(peers_, {}, [](const auto &one) { return one.second.used; }));
    }
    const Ip unknown = address.ip.is_v4() ? Ip::of_v4({INADDR_ANY}) : Ip{};
    const Ip source = udp::source_towards(socket_, address).value_or(unknown);
    return peers_.try_emplace(address, Peer{.source = source, .used = now}).first->second;
}

base::Result<void> Endpoint::send(std::span<const iovec> parts, const sockaddr *name, socklen_t length) {
    const auto to = name != nullptr ? address_of(name, length) : default_peer_;
    if (!to) {
        return base::failure(name == nullptr ? EDESTADDRREQ : EINVAL);
    }
    std::array<std::byte, slot_bytes> bytes;
    const std::size_t header = envelope_bytes(to->ip);
    auto content = std::span{bytes}.subspan(header);
    if (!gather(parts, content)) {
        return base::failure(EMSGSIZE);
    }
    encode(Envelope{.ip = peer_at(*to).source}, bytes);
    return udp::send(socket_, std::span{bytes}.first(header + content.size()), name, length);
}

bool Endpoint::serve() {
    bool any = false;
    std::array<std::byte, most_header_bytes + slot_bytes> buffer;
    for (int i = 0; i < datagrams_at_once && !inbox_.full(); ++i) {
        const auto arrival = udp::receive(socket_, buffer);
        if (arrival) {
            any |= arrived(*arrival, std::span{buffer}.first(std::min(arrival->bytes, buffer.size())));
        } else if (arrival.error().number == EAGAIN || arrival.error().number == EINTR) {
            break;
        } else {
            error_ = arrival.error().number;
            any = true;
        }
    }
    return any;
}

// Everything of a datagram is a stranger's.
bool Endpoint::arrived(const udp::Arrival &arrival, std::span<const std::byte> datagram) {
    const auto envelope = decode_envelope(datagram);
    if (!envelope || envelope->ip.is_v4() != arrival.from.ip.is_v4() ||
        arrival.bytes > envelope_bytes(envelope->ip) + slot_bytes) {
        ++dropped_;
        return false;
    }
    if (envelope->what == What::Answer) {
        return false;
    }
    inbox_.add(arrival.from, datagram.subspan(envelope_bytes(envelope->ip)));
    return true;
}

}  // namespace datagram
