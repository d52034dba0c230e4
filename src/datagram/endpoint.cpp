// SPDX-License-Identifier: BSD-3-Clause
// datagram/endpoint: messages of one UDP socket.
#include "datagram/endpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>

#include "base/log.hpp"
#include "base/parts.hpp"

namespace datagram {

namespace {

using std::chrono::seconds;

// Says how many peers an endpoint remembers. It forgets the one that it has not sent to for longest.
constexpr std::size_t most_peers = 1024;
// At how many addresses of this machine an endpoint has queue pairs. Messages from others go over UDP.
constexpr std::size_t most_locals = 16;
// Says how long an endpoint uses the queue pair of a peer from which it hears nothing.
constexpr seconds trust{1};
// Says how long an endpoint waits before it looks for the way to a peer again.
constexpr seconds look_up_pause{1};
// Says how many datagrams one call takes off the socket at most, and how many times it polls a queue.
constexpr int datagrams_at_once = 64;
constexpr int rounds_at_once = 8;

// Copies the parts one after the other; there is room for them.
void gather(std::span<const iovec> parts, std::span<std::byte> to) {
    base::for_pieces(parts, 0, to.size(), [to](std::span<const std::byte> piece, std::size_t before) {
        std::ranges::copy(piece, to.subspan(before).begin());
    });
}

Address with_scope(Address address, std::uint32_t scope) {
    const in6_addr ip = address.ip.v6();
    address.scope = IN6_IS_ADDR_LINKLOCAL(&ip) ? scope : 0;
    return address;
}

}  // namespace

Endpoint::~Endpoint() {
    if (dropped_ != 0) {
        BASE_LOG(Info, "dropped %" PRIu64 " datagrams: no messages of rsockets, or too many", dropped_);
    }
}

// The socket may have other addresses of its own now, too.
void Endpoint::peer_changed() {
    AnyAddress name{};
    socklen_t length = sizeof(name);
    default_peer_ = getpeername(socket_, &name.any, &length) == 0 ? address_of(&name, length) : std::nullopt;
    own_port_ = 0;
    peers_.clear();
    look_ups_ = 0;
}

// ---- peers ----

Endpoint::Peer &Endpoint::peer_at(const Address &address) {
    const auto now = base::Clock::now();
    if (const auto known = peers_.find(address); known != peers_.end()) {
        known->second.used = now;
        return known->second;
    }
    if (peers_.size() == most_peers) {
        forget_one();
    }
    const auto source = udp::source_towards(socket_, address);
    const bool has_pair = source && !address.ip.is_multicast();
    const Ip unknown = address.ip.is_v4() ? Ip::of_v4({INADDR_ANY}) : Ip{};
    QueuePair *const from = has_pair ? pair_at(with_scope({.ip = *source}, address.scope)) : nullptr;
    Peer &peer = peers_[address];
    peer.source = source.value_or(unknown);
    peer.from = from;
    peer.used = now;
    return peer;
}

void Endpoint::forget_one() {
    const auto oldest = std::ranges::min_element(peers_, {}, [](const auto &one) { return one.second.used; });
    look_ups_ -= oldest->second.look_up ? 1U : 0U;
    peers_.erase(oldest);
}

QueuePair *Endpoint::pair_at(const Address &here) {
    const auto known = std::ranges::find(locals_, here, &Local::address);
    if (known != locals_.end()) {
        return known->pair.get();
    }
    if (locals_.size() == most_locals) {
        return nullptr;
    }
    auto made = QueuePair::create(here, room_);
    locals_.push_back({.address = here, .pair = made ? std::move(*made) : nullptr});
    has_news_ = true;
    return locals_.back().pair.get();
}

// A forged answer can only name a queue pair at the address that it claims to come from.
void Endpoint::learn(const Address &from, std::uint32_t qp_num) {
    const auto known = peers_.find(from);
    if (known == peers_.end() || known->second.from == nullptr) {
        return;
    }
    Peer &peer = known->second;
    const auto now = base::Clock::now();
    peer.qp_num = qp_num;
    peer.heard = now;
    if (peer.way || peer.look_up || now < peer.searched + look_up_pause) {
        return;
    }
    peer.searched = now;
    if (auto begun = peer.from->look_up(from, &peer)) {
        peer.look_up = std::move(*begun);
        ++look_ups_;
    }
}

void Endpoint::finish_look_ups() {
    for (const Local &local : locals_) {
        while (look_ups_ != 0 && local.pair != nullptr) {
            auto found = local.pair->next_looked_up();
            if (!found) {
                break;
            }
            Peer &peer = *static_cast<Peer *>(found->asker);
            peer.way = std::move(found->handle);
            peer.look_up.reset();
            --look_ups_;
        }
    }
}

// ---- out ----

bool Endpoint::is_reached(const Peer &peer, std::size_t message_bytes) {
    return peer.from != nullptr && peer.way && peer.qp_num != 0 && !peer.from->is_broken() &&
           base::Clock::now() < peer.heard + trust &&
           label_bytes(peer.source) + message_bytes <= peer.from->most_bytes();
}

base::Result<void> Endpoint::send(std::span<const iovec> parts, const sockaddr *name, socklen_t length) {
    const auto to = name != nullptr ? address_of(name, length) : default_peer_;
    if (!to) {
        return base::failure(name == nullptr ? EDESTADDRREQ : EINVAL);
    }
    const std::size_t size = base::size_of(parts);
    if (size > most_message_bytes(to->ip)) {
        return base::failure(EMSGSIZE);
    }
    Peer &peer = peer_at(*to);
    if (!is_reached(peer, size)) {
        serve_socket();  // its answer may be there
        finish_look_ups();
    }
    if (is_reached(peer, size)) {
        if (const auto sent = send_by_pair(peer, parts, size)) {
            return *sent ? base::Result<void>{} : base::failure(EAGAIN);
        }
    }
    std::array<std::byte, slot_bytes> bytes;
    const bool has_pair = peer.from != nullptr && !peer.from->is_broken();
    encode(Envelope{.qp_num = has_pair ? peer.from->number() : 0, .ip = peer.source}, bytes);
    const std::size_t header = envelope_bytes(peer.source);
    gather(parts, std::span{bytes}.subspan(header));
    return udp::send(socket_, std::span{bytes}.first(header + size), name, length);
}

std::optional<bool> Endpoint::send_by_pair(Peer &peer, std::span<const iovec> parts, std::size_t bytes) {
    if (peer.from->slot_to_send().empty()) {
        const auto local =
            std::ranges::find_if(locals_, [&](const Local &one) { return one.pair.get() == peer.from; });
        serve_pair(*local);
    }
    const auto slot = peer.from->slot_to_send();
    if (slot.empty()) {
        return false;
    }
    encode(Address{.ip = peer.source, .port = own_port()}, slot);
    const std::size_t header = label_bytes(peer.source);
    gather(parts, slot.subspan(header));
    if (!peer.from->send(header + bytes, peer.way.get(), peer.qp_num)) {
        peer.way.reset();
        return std::nullopt;
    }
    return true;
}

std::uint16_t Endpoint::own_port() {
    if (own_port_ == 0) {
        AnyAddress name{};
        socklen_t length = sizeof(name);
        const auto own =
            getsockname(socket_, &name.any, &length) == 0 ? address_of(&name, length) : std::nullopt;
        own_port_ = own ? own->port : std::uint16_t{0};
    }
    return own_port_;
}

bool Endpoint::can_send() const {
    return std::ranges::all_of(locals_, [](const Local &one) {
        return one.pair == nullptr || one.pair->is_broken() || !one.pair->slot_to_send().empty();
    });
}

bool Endpoint::has_sent_all() const {
    return std::ranges::all_of(locals_, [](const Local &one) {
        return one.pair == nullptr || one.pair->is_broken() || one.pair->has_sent_all();
    });
}

std::vector<QueuePair *> Endpoint::pairs() const {
    std::vector<QueuePair *> pairs;
    for (const Local &local : locals_) {
        if (local.pair != nullptr && !local.pair->is_broken()) {
            pairs.push_back(local.pair.get());
        }
    }
    return pairs;
}

// ---- in ----

void Endpoint::serve() {
    serve_socket();
    for (const Local &local : locals_) {
        serve_pair(local);
    }
    finish_look_ups();
}

void Endpoint::serve_socket() {
    std::array<std::byte, most_header_bytes + slot_bytes> buffer;
    for (int i = 0; i < datagrams_at_once && !inbox_.full(); ++i) {
        const auto arrival = udp::receive(socket_, buffer);
        if (arrival) {
            arrived(*arrival, std::span{buffer}.first(std::min(arrival->bytes, buffer.size())));
        } else if (arrival.error().number == EAGAIN || arrival.error().number == EINTR) {
            break;
        } else {
            error_ = arrival.error().number;
            has_news_ = true;
        }
    }
}

// Any sender may have written the datagram.
void Endpoint::arrived(const udp::Arrival &arrival, std::span<const std::byte> datagram) {
    const auto envelope = decode_envelope(datagram);
    if (!envelope || envelope->ip.is_v4() != arrival.from.ip.is_v4() ||
        arrival.bytes > envelope_bytes(envelope->ip) + slot_bytes) {
        ++dropped_;
        return;
    }
    // A queue pair at another address than the sender's is not used.
    const bool has_pair = is_number_of_pair(envelope->qp_num) && names(*envelope, arrival.from.ip);
    if (has_pair) {
        learn(arrival.from, envelope->qp_num);
    }
    if (envelope->op == Op::Answer) {
        return;
    }
    if (has_pair && arrival.unicast) {
        answer(arrival);
    }
    deliver(arrival.from, datagram.subspan(envelope_bytes(envelope->ip)));
}

// Each message gets one answer, which is no longer than the message. So a sender that forges an address
// cannot flood that address with answers.
void Endpoint::answer(const udp::Arrival &arrival) {
    const QueuePair *const pair = pair_at(with_scope({.ip = arrival.to}, arrival.from.scope));
    if (pair == nullptr || pair->is_broken()) {
        return;
    }
    std::array<std::byte, most_header_bytes> bytes;
    encode(Envelope{.op = Op::Answer, .qp_num = pair->number(), .ip = arrival.to}, bytes);
    udp::send_from(socket_, family_, arrival.to, arrival.from,
                   std::span{bytes}.first(envelope_bytes(arrival.to)));
}

void Endpoint::serve_pair(const Local &local) {
    if (local.pair == nullptr || local.pair->is_broken()) {
        return;
    }
    // When the inbox is full, messages stay in the queue pair; but when no slot for sending is free the queue
    // is polled all the same, because completions of sends may be behind them.
    if (inbox_.full() && !local.pair->slot_to_send().empty()) {
        return;
    }
    for (int i = 0; i < rounds_at_once; ++i) {
        const std::size_t most = std::max(inbox_.room(), std::size_t{1});
        const std::size_t taken =
            local.pair->poll(most, [&](const QueuePair::Received &message) { received(local, message); });
        has_news_ = has_news_ || taken != 0;
        if (taken == 0 || inbox_.full()) {
            return;
        }
    }
}

// A label names the sender of a message, and any sender that reaches the queue pair can write one. So its
// address must be the one that the device saw, if the device tells that.
void Endpoint::received(const Local &local, const QueuePair::Received &message) {
    const auto label = decode_label(message.message);
    const bool is_genuine = label && (!message.source || *message.source == label->ip);
    if (!is_genuine || inbox_.full() || (family_ == AF_INET && !label->ip.is_v4())) {
        ++dropped_;
        return;
    }
    const Address from = with_scope(*label, local.address.scope);
    if (default_peer_ && *default_peer_ != from) {
        ++dropped_;
        return;
    }
    const auto known = peers_.find(from);
    if (known != peers_.end() && known->second.qp_num == message.qp_num) {
        known->second.heard = base::Clock::now();
    }
    deliver(from, message.message.subspan(label_bytes(label->ip)));
}

void Endpoint::deliver(const Address &from, std::span<const std::byte> content) {
    inbox_.add(from, content);
    has_news_ = true;
}

}  // namespace datagram
