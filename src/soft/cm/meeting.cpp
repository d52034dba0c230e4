// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/meeting: see the header.
#include "soft/cm/meeting.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/interfaces.hpp"
#include "soft/link/memory_link.hpp"

namespace soft {

namespace {

// Another version of the device may have another layout of the memory; the two ends then do not continue.
constexpr std::array<char, Greeting::version_bytes> version{'s', 'o', 'f', 't', 'r', 'd', 'm', 'a',
                                                            ' ', 'r', 'i', 'n', 'g', 's', '2'};

// The part of the secret that makes the name, which any process can see from then on. The rest is in the
// greeting.
constexpr std::size_t secret_bytes_in_name = 16;

// The number of foreign processes that may connect to the name, and are refused, before the peer's process.
constexpr int most_strangers = 16;

struct Name {
    sockaddr_un address{};
    socklen_t length = 0;
};

std::string text_of_name(const tcp::Address &initiator, const tcp::Address &responder) {
    return std::string{"softrdma "} + tcp::text_of(initiator).c_str() + " " + tcp::text_of(responder).c_str();
}

std::string text_of_name(const Link::Secret &secret) {
    std::string text = "softrdma ";
    for (const std::byte byte : std::span{secret}.first<secret_bytes_in_name>()) {
        constexpr std::string_view digits = "0123456789abcdef";
        text += digits[std::to_integer<std::size_t>(byte >> 4)];
        text += digits[std::to_integer<std::size_t>(byte & std::byte{15})];
    }
    return text;
}

// Returns the name of a connection whose initiator and responder have these addresses.
Name name_of(const MetOn &connection, const tcp::Address &initiator, const tcp::Address &responder) {
    const std::string text =
        connection.secret ? text_of_name(*connection.secret) : text_of_name(initiator, responder);
    Name name;
    name.address.sun_family = AF_UNIX;
    // The first byte stays 0, which makes the name abstract.
    text.copy(name.address.sun_path + 1, sizeof(name.address.sun_path) - 1);
    name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    return name;
}

Greeting greeting_of(const MetOn &connection) {
    Greeting greeting;
    const auto add = [&greeting](std::span<const std::byte> bytes) {
        std::ranges::copy(bytes, greeting.bytes.data() + greeting.size);
        greeting.size += bytes.size();
    };
    add(std::as_bytes(std::span{version}));
    if (connection.secret) {
        add(std::span{*connection.secret}.subspan<secret_bytes_in_name>());
    }
    return greeting;
}

const sockaddr *any(const Name &name) {
    return reinterpret_cast<const sockaddr *>(&name.address);
}

base::Fd unix_socket() {
    return base::Fd{socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
}

bool is_same_address(const tcp::Address &one, const tcp::Address &other) {
    if (one.ss_family != other.ss_family) {
        return false;
    }
    if (one.ss_family == AF_INET) {
        return reinterpret_cast<const sockaddr_in &>(one).sin_addr.s_addr ==
               reinterpret_cast<const sockaddr_in &>(other).sin_addr.s_addr;
    }
    return std::memcmp(&reinterpret_cast<const sockaddr_in6 &>(one).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6 &>(other).sin6_addr, sizeof(in6_addr)) == 0;
}

bool is_loopback(const tcp::Address &address) {
    if (address.ss_family == AF_INET) {
        return (ntohl(reinterpret_cast<const sockaddr_in &>(address).sin_addr.s_addr) >> 24) ==
               IN_LOOPBACKNET;
    }
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr);
}

bool is_here(const tcp::Address &address) {
    if (is_loopback(address)) {
        return true;
    }
    const auto known = local_addresses();
    return known && std::ranges::any_of(**known, [&address](const LocalAddress &one) {
               return is_same_address(one.address, address);
           });
}

void stays_on_tcp(const tcp::Address &peer, const char *why) {
    BASE_LOG_PEER(Notice, "the connection with %s, which is on this host, stays on TCP: %s",
                  tcp::text_of(peer).c_str(), why);
}

// Returns the peer's process if it is one of this user: its number, or 0 when it has none here. The kernel
// tells it, and the peer cannot choose it.
std::optional<pid_t> process_of_this_user(int socket) {
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) {
        return std::nullopt;
    }
    return peer.pid;
}

union ControlRoom {
    cmsghdr header;
    std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes;
};

bool greet(int socket, Greeting greeting, int memory) {
    iovec text{.iov_base = greeting.bytes.data(), .iov_len = greeting.size};
    ControlRoom room{};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = &room;
    message.msg_controllen = sizeof(room);
    cmsghdr *const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory, sizeof(memory));
    return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(greeting.size);
}

// Returns the descriptor that came with the greeting.
base::Result<base::Fd> greeted(int socket, const Greeting &greeting) {
    std::array<std::byte, sizeof(greeting.bytes) + 1> text{};
    iovec place{.iov_base = text.data(), .iov_len = text.size()};
    ControlRoom room{};
    msghdr message{};
    message.msg_iov = &place;
    message.msg_iovlen = 1;
    message.msg_control = &room;
    message.msg_controllen = sizeof(room);
    const ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (bytes < 0) {
        return base::last_failure();
    }
    // The kernel puts as many descriptors into the room as its alignment allows: two. All of them are ours.
    base::Fd memory;
    bool alone = true;
    if (const cmsghdr *const header = CMSG_FIRSTHDR(&message);
        header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
            int number = -1;
            std::memcpy(&number, room.bytes.data() + at, sizeof(number));
            alone = !memory;
            memory.reset(number);
        }
    }
    const bool truncated = (message.msg_flags & MSG_CTRUNC) != 0;
    if (!memory) {
        return base::failure(truncated ? EMFILE : EPROTO);
    }
    if (!alone || bytes != static_cast<ssize_t>(greeting.size) ||
        std::memcmp(text.data(), greeting.bytes.data(), greeting.size) != 0) {
        return base::failure(EPROTO);
    }
    return memory;
}

// Returns whether a greeting failed because another process than the peer came.
bool is_strange(int error) {
    return error == EPROTO || error == EAGAIN || error == ECONNRESET;
}

// Returns whether the two ends of a connection may continue through memory.
bool may_meet(const MetOn &connection) {
    if (within_host_of_environment().value_or(WithinHost::Tcp) == WithinHost::Tcp ||
        !is_here(connection.here) || !is_here(connection.there)) {
        return false;
    }
    if (connection.uses_tls && !connection.secret) {
        stays_on_tcp(connection.there, "OpenSSL gives the two ends no common secret");
        return false;
    }
    return true;
}

}  // namespace

std::unique_ptr<Meeting> Meeting::offer(const MetOn &connection, Group &group) {
    if (!may_meet(connection)) {
        return nullptr;
    }
    const tcp::Address &there = connection.there;
    const Name name = name_of(connection, connection.here, there);
    base::Fd socket = unix_socket();
    if (!socket || bind(socket.get(), any(name), name.length) != 0 || listen(socket.get(), 1) != 0) {
        stays_on_tcp(there, std::strerror(errno));
        return nullptr;
    }
    if (const auto allowed = group.allow_nudges(); !allowed) {
        stays_on_tcp(there, std::strerror(allowed.error().number));
        return nullptr;
    }
    return std::make_unique<Meeting>(std::move(socket), greeting_of(connection));
}

base::Result<SharedRings> Meeting::join() const {
    for (int stranger = 0; stranger < most_strangers; ++stranger) {
        const base::Fd socket{accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
        if (!socket) {
            return base::failure(errno == EAGAIN ? ECONNRESET : errno);
        }
        const auto process = process_of_this_user(socket.get());
        if (!process) {
            continue;
        }
        auto memory = greeted(socket.get(), greeting_);
        if (!memory && greeting_.is_secret() && is_strange(memory.error().number)) {
            continue;  // a process of this user saw the name; the peer's greeting comes before its reply
        }
        if (!memory) {
            return std::unexpected{memory.error()};
        }
        auto rings = SharedRings::join(std::move(*memory));
        if (rings) {
            rings->set_peers_process(*process);
        }
        return rings;
    }
    return base::failure(ECONNRESET);
}

std::optional<SharedRings> meet(const MetOn &connection, Group &group) {
    if (!may_meet(connection)) {
        return std::nullopt;
    }
    const tcp::Address &there = connection.there;
    const Name name = name_of(connection, there, connection.here);
    const base::Fd socket = unix_socket();
    if (!socket || connect(socket.get(), any(name), name.length) != 0) {
        stays_on_tcp(there,
                     errno == ECONNREFUSED ? "its process is not to be found here" : std::strerror(errno));
        return std::nullopt;
    }
    const auto process = process_of_this_user(socket.get());
    if (!process) {
        stays_on_tcp(there, "it is another user's process");
        return std::nullopt;
    }
    auto rings = SharedRings::make();
    const auto allowed = rings ? group.allow_nudges() : std::unexpected{rings.error()};
    if (!allowed) {
        stays_on_tcp(there, std::strerror(allowed.error().number));
        return std::nullopt;
    }
    if (!greet(socket.get(), greeting_of(connection), rings->file())) {
        stays_on_tcp(there, std::strerror(errno));
        return std::nullopt;
    }
    rings->close_file();
    rings->set_peers_process(*process);
    return std::move(*rings);
}

std::unique_ptr<Link> through_memory(SharedRings rings, std::unique_ptr<Link> met_on) {
    auto below = met_on->take_below();
    return std::make_unique<MemoryLink>(std::move(rings), below ? std::move(below) : std::move(met_on));
}

}  // namespace soft
