// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/meeting: see the header.
#include "soft/cm/meeting.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/log.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/interfaces.hpp"

namespace soft {

namespace {

// The bytes that go with the descriptor of the memory. Another version of the device may have another layout
// of the memory; the two ends then stay on TCP.
constexpr std::array<char, 16> greeting{'s', 'o', 'f', 't', 'r', 'd', 'm', 'a',
                                        ' ', 'r', 'i', 'n', 'g', 's', '2'};

// The number of foreign processes that may connect to the name, and are refused, before the peer's process.
constexpr int most_strangers = 16;

struct Name {
    sockaddr_un address{};
    socklen_t length = 0;
};

Name name_of(const tcp::Address &initiator, const tcp::Address &responder) {
    Name name;
    name.address.sun_family = AF_UNIX;
    // The first byte stays 0, which makes the name abstract.
    const int characters =
        std::snprintf(name.address.sun_path + 1, sizeof(name.address.sun_path) - 1, "softrdma %s %s",
                      tcp::text_of(initiator).c_str(), tcp::text_of(responder).c_str());
    name.length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(characters));
    return name;
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

bool greet(int socket, int memory) {
    iovec text{.iov_base = const_cast<char *>(greeting.data()), .iov_len = greeting.size()};
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
    return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(greeting.size());
}

// Returns the descriptor that came with the greeting.
base::Result<base::Fd> greeted(int socket) {
    std::array<char, greeting.size() + 1> text{};
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
    if (!alone || bytes != static_cast<ssize_t>(greeting.size()) ||
        std::memcmp(text.data(), greeting.data(), greeting.size()) != 0) {
        return base::failure(EPROTO);
    }
    return memory;
}

// Returns whether the two ends of a connection may continue through memory.
bool may_meet(const tcp::Address &here, const tcp::Address &there, const base::TlsAsked &tls) {
    if (within_host_of_environment().value_or(WithinHost::Tcp) == WithinHost::Tcp || !is_here(here) ||
        !is_here(there)) {
        return false;
    }
    if (tls.is_required()) {
        BASE_LOG(Debug, "the connection with %s, which is on this host, stays on TCP, because it uses TLS",
                 tcp::text_of(there).c_str());
        return false;
    }
    return true;
}

}  // namespace

std::unique_ptr<Meeting> Meeting::offer(const tcp::Address &here, const tcp::Address &there,
                                        const base::TlsAsked &tls, Group &group) {
    if (!may_meet(here, there, tls)) {
        return nullptr;
    }
    const Name name = name_of(here, there);
    base::Fd socket = unix_socket();
    if (!socket || bind(socket.get(), any(name), name.length) != 0 || listen(socket.get(), 1) != 0) {
        stays_on_tcp(there, std::strerror(errno));
        return nullptr;
    }
    if (const auto allowed = group.allow_nudges(); !allowed) {
        stays_on_tcp(there, std::strerror(allowed.error().number));
        return nullptr;
    }
    return std::make_unique<Meeting>(std::move(socket));
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
        auto memory = greeted(socket.get());
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

std::optional<SharedRings> meet(const tcp::Address &here, const tcp::Address &there,
                                const base::TlsAsked &tls, Group &group) {
    if (!may_meet(here, there, tls)) {
        return std::nullopt;
    }
    const Name name = name_of(there, here);
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
    if (!greet(socket.get(), rings->file())) {
        stays_on_tcp(there, std::strerror(errno));
        return std::nullopt;
    }
    rings->close_file();
    rings->set_peers_process(*process);
    return std::move(*rings);
}

}  // namespace soft
