// SPDX-License-Identifier: BSD-3-Clause
// cli/peers/probe: asks for a stream of rsockets, and reads what comes.
#include "cli/peers/probe.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "cli/plain_tcp.hpp"
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

std::string first_line(std::span<const std::byte> bytes) {
    return printable(bytes.first(std::min(bytes.size(), most_text)), "\r\n");
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
    while (wait_until_ready(fd, POLLIN, until) && recv(fd.get(), dropped.data(), dropped.size(), 0) > 0) {
    }
}

// Reads until the frame is complete or cannot be one, at most until the time. Returns the bytes that have
// come.
std::span<const std::byte> read_answer(const base::Fd &fd, std::span<std::byte> room, Time until,
                                       bool &has_closed) {
    std::size_t size = 0;
    while (size < room.size() && wait_until_ready(fd, POLLIN, until)) {
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

}  // namespace

Outcome<Probed> probe(const Address &address, const ProbeOptions &options) {
    Probed probed;
    const base::Fd fd = TRY(connect_tcp(address, base::Clock::now() + options.timeout, probed.address));
    probed.is_listed = registry::is_known_listener(probed.address);
    std::array<std::byte, wire::mpa_max_frame_bytes> room{};
    if (!options.at_once && !probed.is_listed &&
        wait_until_ready(fd, POLLIN, base::Clock::now() + banner_time)) {
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
