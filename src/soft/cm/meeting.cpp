// SPDX-License-Identifier: BSD-3-Clause
#include "soft/cm/meeting.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "base/error_text.hpp"
#include "base/log.hpp"
#include "base/own_user.hpp"
#include "base/parts.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/interfaces.hpp"
#include "soft/link/memory_link.hpp"

namespace soft {

namespace {

// Another version of the device may have another layout of the memory. So each version has names of its own,
// and the ends of two versions stay on TCP. Each greeting begins with the version too. The beginning of a
// name is short, so that there is room for two addresses of IPv6.
constexpr std::string_view version = "softrdma rings 3";
constexpr std::string_view begin_of_name = "softrdma3";

// A secret has a part for the name, one for the greeting, and one for the password.
constexpr std::size_t part_bytes = sizeof(TlsLink::Secret) / 3;
static_assert(part_bytes == sizeof(SharedRings::Password));
constexpr std::size_t most_greeting_bytes = version.size() + part_bytes;

constexpr std::string_view hex_digits = "0123456789abcdef";

// The number of foreign processes that may connect to the name, and are refused, before the peer's process.
constexpr int most_strangers = 16;

struct Name {
    sockaddr_un address{};
    socklen_t length = 0;
};

Name name_of(const Watchwords &words) {
    Name name;
    name.address.sun_family = AF_UNIX;
    // The first byte stays 0, which makes the name abstract.
    const std::size_t characters =
        words.name.copy(name.address.sun_path + 1, sizeof(name.address.sun_path) - 1);
    name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + characters);
    return name;
}

const sockaddr *any(const Name &name) {
    return reinterpret_cast<const sockaddr *>(&name.address);
}

base::Fd unix_socket() {
    return base::Fd{socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
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
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        !base::is_own_peer(socket, peer.pid, peer.uid)) {
        return std::nullopt;
    }
    return peer.pid;
}

union ControlRoom {
    cmsghdr header;
    std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes;
};

bool greet(int socket, const std::string &greeting, int memory) {
    iovec text = base::part_of(greeting.data(), greeting.size());
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
base::Result<base::Fd> greeted(int socket, const std::string &greeting) {
    std::array<char, most_greeting_bytes + 1> text{};
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
    if (!alone || std::string_view{text.data(), static_cast<std::size_t>(bytes)} != greeting) {
        return base::failure(EPROTO);
    }
    return memory;
}

// Returns whether a greeting failed because another process than the peer came.
bool is_strange(int error) {
    return error == EPROTO || error == EAGAIN || error == ECONNRESET;
}

// Returns whether the two ends of a connection are on this host, and may continue through memory.
bool may_meet(const tcp::Address &here, const tcp::Address &there) {
    if (!is_here(here) || !is_here(there)) {
        return false;
    }
    if (within_host_of_environment().value_or(WithinHost::Tcp) == WithinHost::Tcp) {
        BASE_LOG_PEER(Info,
                      "the connection with %s, which is on this host, stays on TCP: SOFTRDMA_SHM says so",
                      tcp::text_of(there).c_str());
        return false;
    }
    return true;
}

// Returns a number of the network namespace of a socket that no other namespace has; 0 when the kernel has
// none.
std::uint64_t namespace_of(int socket) {
    std::uint64_t cookie = 0;
    socklen_t size = sizeof(cookie);
    return getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

// An end whose user shares its number with others recognises only processes of its own user namespace. So
// these have names of their own: an end of another namespace must not find a name whose owner would refuse
// it.
std::string begin_of_own_name() {
    const std::optional<ino_t> shared = base::namespace_of_shared_number();
    return shared ? "s" + std::to_string(*shared) : std::string{begin_of_name};
}

// Returns what the two ends know of each other when they meet at a Unix socket like this one. It takes the
// addresses of both. Returns nothing when TLS gives them no secret.
std::optional<Watchwords> watchwords_of(int socket, const tcp::Address &initiator,
                                        const tcp::Address &responder, const SecretFor &secret_for) {
    std::string name = begin_of_own_name();
    for (const tcp::Address &address : {initiator, responder}) {
        name.append(" ").append(tcp::text_of(address).c_str());
    }
    if (!secret_for) {
        return Watchwords{.name = std::move(name), .greeting = std::string{version}, .password = {}};
    }
    const std::uint64_t cookie = namespace_of(socket);
    const auto secret = cookie != 0 ? secret_for(name + " " + std::to_string(cookie)) : std::nullopt;
    if (!secret) {
        return std::nullopt;
    }
    const auto part = [&secret](std::size_t number) {
        return std::string_view{reinterpret_cast<const char *>(secret->data()) + number * part_bytes,
                                part_bytes};
    };
    Watchwords words{.name = begin_of_own_name() + " ", .greeting = std::string{version}, .password = {}};
    for (const char byte : part(0)) {
        words.name += hex_digits[static_cast<unsigned char>(byte) >> 4];
        words.name += hex_digits[static_cast<unsigned char>(byte) & 15];
    }
    words.greeting += part(1);
    words.password.emplace();
    part(2).copy(reinterpret_cast<char *>(words.password->data()), part_bytes);
    return words;
}

constexpr const char *no_secret = "OpenSSL gives the two ends no secret, or the kernel no SO_NETNS_COOKIE";

}  // namespace

SecretFor secrets_of(Link &link) {
    const TlsLink *const secure = link.tls();
    if (secure == nullptr) {
        return {};
    }
    return [secure](std::string_view context) { return secure->secret(context); };
}

std::unique_ptr<Meeting> Meeting::begin(const tcp::Address &here, const tcp::Address &there) {
    if (!may_meet(here, there)) {
        return nullptr;
    }
    base::Fd socket = unix_socket();
    if (!socket) {
        stays_on_tcp(there, base::error_text(errno));
        return nullptr;
    }
    return std::make_unique<Meeting>(std::move(socket), here, there);
}

bool Meeting::offer(const SecretFor &secret, Group &group) {
    auto words = watchwords_of(socket_.get(), here_, there_, secret);
    if (!words) {
        stays_on_tcp(there_, no_secret);
        return false;
    }
    words_ = std::move(*words);
    const Name name = name_of(words_);
    if (bind(socket_.get(), any(name), name.length) != 0 || listen(socket_.get(), 1) != 0) {
        stays_on_tcp(there_, base::error_text(errno));
        return false;
    }
    if (const auto allowed = group.allow_nudges(); !allowed) {
        stays_on_tcp(there_, base::error_text(allowed.error().number));
        return false;
    }
    kept_.reset(fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
    if (!kept_) {
        stays_on_tcp(there_, base::error_text(errno));
        return false;
    }
    return true;
}

base::Result<SharedRings> Meeting::join() {
    kept_.reset();
    for (int stranger = 0; stranger < most_strangers; ++stranger) {
        const base::Fd socket{accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
        if (!socket) {
            return base::failure(errno == EAGAIN ? ECONNRESET : errno);
        }
        const auto process = process_of_this_user(socket.get());
        if (!process) {
            continue;
        }
        if (!words_.password) {
            socket_.reset();  // nobody else is awaited, and the memory takes its descriptor
        }
        auto memory = greeted(socket.get(), words_.greeting);
        if (!memory && words_.password && is_strange(memory.error().number)) {
            continue;  // a process of this user saw the name; the peer's greeting comes before its reply
        }
        if (!memory) {
            return std::unexpected{memory.error()};
        }
        auto rings = SharedRings::join(std::move(*memory));
        if (rings) {
            rings->set_peers_process(*process);
            if (words_.password) {
                rings->write_password(*words_.password);
            }
        }
        return rings;
    }
    return base::failure(ECONNRESET);
}

std::optional<SharedRings> meet(const tcp::Address &here, const tcp::Address &there, const SecretFor &secret,
                                Group &group) {
    if (!may_meet(here, there)) {
        return std::nullopt;
    }
    const base::Fd socket = unix_socket();
    if (!socket) {
        stays_on_tcp(there, base::error_text(errno));
        return std::nullopt;
    }
    const auto words = watchwords_of(socket.get(), there, here, secret);
    if (!words) {
        stays_on_tcp(there, no_secret);
        return std::nullopt;
    }
    const Name name = name_of(*words);
    if (connect(socket.get(), any(name), name.length) != 0) {
        stays_on_tcp(there,
                     errno == ECONNREFUSED ? "its process is not to be found here" : base::error_text(errno));
        return std::nullopt;
    }
    const auto process = process_of_this_user(socket.get());
    if (!process) {
        stays_on_tcp(there, "it is another user's process, or one whose user has no number here");
        return std::nullopt;
    }
    auto rings = SharedRings::make();
    const auto allowed = rings ? group.allow_nudges() : std::unexpected{rings.error()};
    if (!allowed) {
        stays_on_tcp(there, base::error_text(allowed.error().number));
        return std::nullopt;
    }
    if (!greet(socket.get(), words->greeting, rings->file())) {
        stays_on_tcp(there, base::error_text(errno));
        return std::nullopt;
    }
    rings->close_file();
    rings->set_peers_process(*process);
    if (words->password) {
        rings->expect_password(*words->password);
    }
    return std::move(*rings);
}

namespace {

// Returns a link through memory for an end that has met its peer on the link `met_on`. TLS is over then: its
// bytes would protect nothing from the two processes, and no other process has the memory.
std::unique_ptr<Link> through_memory(SharedRings rings, std::unique_ptr<Link> met_on) {
    TlsLink *const secure = met_on->tls();
    std::unique_ptr<Link> below = secure != nullptr ? secure->take_below() : std::move(met_on);
    return std::make_unique<MemoryLink>(std::move(rings), std::move(below), secure != nullptr);
}

}  // namespace

base::Result<void> send_reply(std::unique_ptr<Link> &link, const tcp::Address &peer,
                              const wire::MpaFrame &request, wire::MpaFrame reply, Group &group) {
    auto rings = request.same_host
                     ? meet(tcp::local_address(link->descriptor()), peer, secrets_of(*link), group)
                     : std::nullopt;
    reply.role = wire::MpaRole::Reply;
    reply.revision = request.revision;
    reply.same_host = rings.has_value();
    std::array<std::byte, wire::mpa_max_frame_bytes> bytes;
    const std::size_t size = wire::encode_mpa_frame(reply, bytes);
    if (const auto sent = link->send_all(std::span{bytes}.first(size)); !sent) {
        return sent;
    }
    if (rings) {
        link = through_memory(*std::move(rings), std::move(link));
    }
    return {};
}

base::Result<std::unique_ptr<Link>> link_behind_reply(std::unique_ptr<Link> link, const tcp::Address &peer,
                                                      std::unique_ptr<Meeting> meeting,
                                                      const wire::MpaFrame &reply) {
    if (!reply.same_host || !meeting) {
        return link;
    }
    auto rings = meeting->join();
    if (!rings) {
        BASE_LOG_PEER(Warning, "no connection with %s, which is on this host: %s", tcp::text_of(peer).c_str(),
                      base::error_text(rings.error().number));
        return std::unexpected{rings.error()};
    }
    return through_memory(*std::move(rings), std::move(link));
}

}  // namespace soft
