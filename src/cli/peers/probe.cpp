// SPDX-License-Identifier: BSD-3-Clause
// cli/peers/probe: makes TCP connections, with deadlines.
#include "cli/peers/probe.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "registry/known_listener.hpp"
#include "soft/wire/ddp.hpp"
#include "soft/wire/mpa.hpp"
#include "stream/wire.hpp"

namespace cli {

namespace {

namespace wire = soft::wire;
using std::chrono::milliseconds;
using Time = base::Clock::time_point;

// A server that speaks first has sent its first bytes by then, unless the network is slow.
constexpr milliseconds banner_time{250};
// The peer has taken our end by then, or the kernel delivers it later.
constexpr milliseconds end_time{1000};
constexpr std::size_t most_text = 60;

bool wait_for(const base::Fd &fd, short events, Time until) {
    while (true) {
        const auto left = std::chrono::ceil<milliseconds>(until - base::Clock::now()).count();
        pollfd one{.fd = fd.get(), .events = events, .revents = 0};
        const int ready = poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
        if (ready >= 0 || errno != EINTR) {
            return ready > 0;
        }
    }
}

std::string first_line(std::span<const std::byte> bytes) {
    return printable(bytes.first(std::min(bytes.size(), most_text)), "\r\n");
}

// Connects to the first of the host's addresses that accepts, and returns that address.
Outcome<base::Fd> connect(const Address &address, Time until, sockaddr_storage &peer, socklen_t &length) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *first = nullptr;
    if (const int error = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &first);
        error != 0) {
        return failed(Exit::Unreachable, "{}: unknown host: {}", address.host, gai_strerror(error));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{first, freeaddrinfo};
    int error = 0;
    for (const addrinfo *one = first; one != nullptr; one = one->ai_next) {
        base::Fd fd{::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
        socklen_t size = sizeof(error);
        error = !fd || ::connect(fd.get(), one->ai_addr, one->ai_addrlen) != 0 ? errno : 0;
        if (error == EINPROGRESS) {
            error = ETIMEDOUT;
            if (wait_for(fd, POLLOUT, until)) {
                (void)getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
            }
        }
        if (error == 0) {
            std::copy_n(reinterpret_cast<const std::byte *>(one->ai_addr), one->ai_addrlen,
                        reinterpret_cast<std::byte *>(&peer));
            length = one->ai_addrlen;
            return fd;
        }
    }
    return failed(Exit::Unreachable, "{}: {}", address.text(),
                  error == ECONNREFUSED ? "no program listens there in TCP (expected the port of a server)"
                                        : errno_text(error));
}

bool send_all(const base::Fd &fd, std::span<const std::byte> bytes) {
    return send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

// Sends the request, with memory that the peer could write to; such bytes are read and dropped.
bool ask(const base::Fd &fd) {
    constexpr std::uint64_t somewhere = 0x10000;
    constexpr std::uint16_t credits = 16;
    stream::Hello hello;
    hello.big_endian = false;
    hello.credits = credits;
    hello.list = {.address = somewhere, .key = 1, .length = stream::windows};
    hello.data = {.address = 2 * somewhere, .key = 1, .length = somewhere};
    const auto bytes = stream::encode(hello);
    wire::MpaFrame request;
    request.soft_operations = true;
    request.private_data = bytes;
    std::array<std::byte, wire::mpa_max_frame_bytes> frame{};
    return send_all(fd, std::span{frame}.first(wire::encode_mpa_frame(request, frame)));
}

// Tells a peer with rsockets that its client has ended, and waits until the peer has taken that.
void end(const base::Fd &fd, bool crc) {
    const std::uint32_t word =
        stream::encode(stream::Op::Control, static_cast<std::uint32_t>(stream::Control::Disconnect));
    const wire::Segment segment{.opcode = wire::Opcode::Send, .msn = 1, .payload_bytes = stream::word_bytes};
    std::array<std::byte, wire::untagged_bytes + stream::word_bytes + wire::fpdu_max_trailer_bytes> bytes{};
    std::size_t at = wire::encode_header(segment, bytes);
    for (unsigned shift = 0; shift < 32; shift += 8) {
        bytes.at(at++) =
            static_cast<std::byte>(word >> shift);  // the request says that this side is little-endian
    }
    at += wire::fpdu_pad_bytes(wire::segment_bytes(segment));
    if (crc) {
        wire::Crc sum;
        sum.feed(std::span{bytes}.first(at));
        std::ranges::copy(sum.digest(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
    (void)send_all(fd, std::span{bytes}.first(wire::fpdu_bytes(segment)));
    (void)shutdown(fd.get(), SHUT_WR);
    const Time until = base::Clock::now() + end_time;
    std::array<std::byte, 4096> dropped{};
    while (wait_for(fd, POLLIN, until) && recv(fd.get(), dropped.data(), dropped.size(), 0) > 0) {
    }
}

// Reads until the frame is complete or cannot be one, at most until the time. Returns the bytes that have
// come.
std::span<const std::byte> read_answer(const base::Fd &fd, std::span<std::byte> room, Time until,
                                       bool &has_closed) {
    std::size_t size = 0;
    while (size < room.size() && wait_for(fd, POLLIN, until)) {
        const ssize_t got = recv(fd.get(), room.data() + size, room.size() - size, 0);
        if (got <= 0) {
            has_closed = true;
            break;
        }
        size += static_cast<std::size_t>(got);
        if (size < wire::mpa_header_bytes) {
            continue;
        }
        const auto tail = wire::mpa_tail_bytes(room.first<wire::mpa_header_bytes>(), wire::MpaRole::Reply);
        if (!tail || size >= wire::mpa_header_bytes + *tail) {
            break;
        }
    }
    return room.first(size);
}

void take_reply(const base::Fd &fd, const wire::MpaFrame &reply, Probed &probed) {
    probed.mpa_revision = reply.revision;
    probed.crc = reply.crc;
    probed.soft_extensions = reply.soft_operations && !reply.reject;
    if (reply.reject) {
        probed.peer = Probed::Peer::Refuses;
        return;
    }
    if (reply.markers || reply.revision > 2) {
        probed.peer = reply.markers ? Probed::Peer::WantsMarkers : Probed::Peer::NewerMpa;
        return;
    }
    const auto hello = stream::decode_hello(reply.private_data);
    if (hello) {
        probed.peer = Probed::Peer::Rsockets;
        probed.version = stream::protocol_version;
        probed.is_ours = hello->counts_slots;
        end(fd, reply.crc);
        return;
    }
    const bool is_another_version =
        hello.error().number == ENOTSUP && reply.private_data.size() >= stream::hello_bytes;
    probed.peer = is_another_version ? Probed::Peer::AnotherVersion : Probed::Peer::OtherProgram;
    probed.version = is_another_version ? static_cast<int>(reply.private_data.front()) : 0;
}

// Returns the text behind its length, which takes so many bytes.
std::string sized(unsigned bytes, std::string_view text) {
    std::string all;
    for (unsigned left = bytes; left-- > 0;) {
        all += static_cast<char>(text.size() >> (8 * left));
    }
    return all.append(text);
}

// Returns the beginning of a handshake of TLS 1.3 (RFC 8446 section 4.1.2). No server takes it to its end,
// because this client has no key for what follows.
std::string client_hello() {
    using namespace std::string_literals;
    const std::string any(32, 'r');
    const std::string x25519 = "\x00\x1D"s;
    const std::string extensions = "\x00\x2B"s + sized(2, "\x02\x03\x04") +                // version 1.3
                                   "\x00\x0A"s + sized(2, sized(2, x25519)) +              // the groups
                                   "\x00\x0D"s + sized(2, sized(2, "\x08\x04\x04\x03")) +  // the signatures
                                   "\x00\x33"s + sized(2, sized(2, x25519 + sized(2, any)));
    const std::string hello = "\x03\x03" + any + sized(1, "") + sized(2, "\x13\x01\x13\x02\x13\x03") +
                              sized(1, "\x00"s) + sized(2, extensions);
    return "\x16\x03\x01" + sized(2, "\x01" + sized(3, hello));
}

// Returns whether the bytes begin as an alert or a handshake of TLS does (RFC 8446 section 5.1).
bool is_tls(std::span<const std::byte> bytes) {
    return bytes.size() >= 3 && (bytes[0] == std::byte{21} || bytes[0] == std::byte{22}) &&
           bytes[1] == std::byte{3} && bytes[2] <= std::byte{4};
}

}  // namespace

bool speaks_tls(const Address &address, milliseconds timeout) {
    sockaddr_storage peer{};
    socklen_t length = 0;
    const auto fd = connect(address, base::Clock::now() + timeout, peer, length);
    const std::string hello = client_hello();
    std::array<std::byte, 5> room{};
    if (!fd || !send_all(*fd, std::as_bytes(std::span{hello})) ||
        !wait_for(*fd, POLLIN, base::Clock::now() + timeout)) {
        return false;
    }
    const ssize_t got = recv(fd->get(), room.data(), room.size(), 0);
    return got > 0 && is_tls(std::span{room}.first(static_cast<std::size_t>(got)));
}

Outcome<Probed> probe(const Address &address, const ProbeOptions &options) {
    Probed probed;
    sockaddr_storage peer{};
    socklen_t length = 0;
    const base::Fd fd = TRY(connect(address, base::Clock::now() + options.timeout, peer, length));
    probed.address = peer;
    probed.is_listed = registry::is_known_listener(peer);
    std::array<std::byte, wire::mpa_max_frame_bytes> room{};
    if (!options.at_once && !probed.is_listed && wait_for(fd, POLLIN, base::Clock::now() + banner_time)) {
        const ssize_t got = recv(fd.get(), room.data(), room.size(), 0);
        probed.peer = got > 0 ? Probed::Peer::SpeaksFirst : Probed::Peer::Closes;
        probed.text = first_line(std::span{room}.first(got > 0 ? static_cast<std::size_t>(got) : 0));
        return probed;
    }
    const Time begin = base::Clock::now();
    bool has_closed = !ask(fd);
    const auto answer = has_closed ? std::span<const std::byte>{}
                                   : read_answer(fd, room, begin + options.timeout, has_closed);
    probed.seconds = std::chrono::duration<double>{base::Clock::now() - begin}.count();
    if (answer.empty()) {
        probed.peer = !has_closed                            ? Probed::Peer::Silent
                      : speaks_tls(address, options.timeout) ? Probed::Peer::Tls
                                                             : Probed::Peer::Closes;
        return probed;
    }
    const auto reply = answer.size() >= wire::mpa_header_bytes
                           ? wire::decode_mpa_frame(answer, wire::MpaRole::Reply)
                           : wire::Decoded<wire::MpaFrame>{std::unexpected{wire::Violation{}}};
    if (reply) {
        take_reply(fd, *reply, probed);
    } else if (is_tls(answer)) {
        probed.peer = Probed::Peer::Tls;
    } else {
        probed.peer = Probed::Peer::Answers;
        probed.text = first_line(answer);
    }
    return probed;
}

}  // namespace cli
