// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/protocol: the messages of a client and a server: first private data of the connection, then
// sends. Contents move by one-sided operations. There is no I/O here. All numbers are little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cli/arguments.hpp"
#include "cli/failure.hpp"
#include "cli/protocol/tag.hpp"

namespace cli {

enum class Mode : std::uint8_t {
    Push = 1,
    Pull = 2,
    Measure = 3,         // in volatile memory of the server
    MeasureDurable = 4,  // in a file of the server
    Status = 5,          // only a look (Ask::Look): at the server
    List = 6,            // and at the contents
    Tag = 7,             // only the offer, which has the newest tag of a name
};

enum class Status : std::uint8_t {
    Ok = 0,
    Busy = 1,     // another push of that name is under way
    Version = 2,  // the server speaks another version
    Failed = 3,   // the server cannot serve the request now
    Limit = 4,    // the client asks for more than the server allows
    Full = 5,     // the server has its maximum of clients
    Forgot = 6,   // of Mode::Tag: the server has lost the newest tag of the name
};

enum class Durability : std::uint8_t { None = 0, PageCache = 1, Dax = 2 };
// Returns a text for people, which is "page cache", "DAX" or "not durable".
[[nodiscard]] const char *durability_text(Durability durability);

// Version 4: contents have names, and a client asks for room. A peer of another version gets Status::Version,
// which every version knows.
inline constexpr std::uint16_t protocol_version = 4;

inline constexpr std::string_view default_name = "default";                // of a content
inline constexpr std::uint64_t largest_capacity = std::uint64_t{1} << 46;  // bytes of a content
inline constexpr std::uint32_t largest_message = std::uint32_t{64} << 20;  // bytes of a client that measures

// A committed content.
struct Content {
    std::uint64_t sequence;  // counts the commits of its name, from 1
    std::uint64_t length;    // bytes
    std::uint32_t checksum;  // CRC32C of them
};

// The client's message, with the connection request.
//    0        4         6      7          8          12              16     56
//    | magic  | version | mode | reserved | messages | message bytes | name |
// Messages and their bytes are the number and the size of the receives that the server posts for a client
// that measures; a client that pulls has the sequence there. The name ends with a zero or its field.
using HelloBytes = std::array<std::byte, 16 + longest_name>;
static_assert(sizeof(HelloBytes) <= 56, "RDMA_PS_TCP's limit for a request");

struct Hello {
    std::uint16_t version;
    Mode mode;
    std::uint32_t messages = 0;
    std::uint32_t message_bytes = 0;
    std::uint64_t sequence = 0;  // of the content to pull; 0 is the newest
    // Empty for a client that measures, or wants the status, or a list of all.
    std::string
        name{};  // NOLINT(readability-redundant-member-init): g++ wants one where a hello is made without
};

// The server's message, when it accepts. It also accepts clients that it will not serve, because a rejection
// carries no reason.
//    0        4         6        7            8          16             17                38
//    | magic  | version | status | durability | capacity | peer config  | memory region   |
//    38         40         48       56         60                           128
//    | TCP port | sequence | length | checksum | reserved, see below        |
//    60      68       76       84         92
//    | epoch | number | writer | instance |
// Peer config and memory region are librpma's descriptors. The region is the content of a pull, or the window
// of a push. For a pull, sequence, length and checksum are those of the content, 0 when
// nothing was pushed yet; for a push, the sequence is that of its commit. The capacity is the size of the
// largest content. The port is that of the baseline for a client that measures. The epoch, number and writer
// are the newest tag of the name that the server knows, and 0 without one; for Mode::Tag, the sequence is
// that of its content. The instance is another for each start of a server. Unless the status is Ok or Forgot,
// a text for people follows at 8.
using OfferBytes = std::array<std::byte, 196>;
static_assert(sizeof(OfferBytes) <= 196, "RDMA_PS_TCP's limit for an answer");

using RegionBytes = std::array<std::byte, 21>;

struct Offer {
    std::uint16_t version = protocol_version;
    Status status = Status::Ok;
    Durability durability = Durability::None;
    std::uint64_t capacity = 0;
    std::byte peer_configuration{};
    RegionBytes memory_region{};
    std::uint16_t tcp_port = 0;
    std::uint64_t sequence = 0;
    std::uint64_t length = 0;
    std::uint32_t checksum = 0;
    Tag tag{};  // NOLINT(readability-redundant-member-init): as the reason
    std::uint64_t instance = 0;
    // Why the status is neither Ok nor Forgot.
    std::string
        reason{};  // NOLINT(readability-redundant-member-init): g++ wants one where an offer is made without
};

// The window is memory of the server through which the bytes of a push go: the client writes them there, one
// behind the other and from the beginning again, and has each portion stored before it writes over it.
inline constexpr std::size_t window_size = std::size_t{16} << 20;

// The requests that a client sends. The server answers each, in order; most_requests may be open at once.
enum class Ask : std::uint8_t {
    Store = 1,     // store so many bytes, the next ones of the window, at this offset of the content
    Commit = 2,    // commit the content, which has this length, checksum and label
    Alive = 3,     // no request: the transfer is still active
    Reserve = 4,   // make room for a content of this length, once on a connection
    Rollback = 5,  // commit the content whose sequence is the offset again
    // Make a text about the server or its contents (cli/protocol/health, cli/protocol/note), once on a
    // connection. The answer has a region of it. For a push of a content of this length: the checksums of the
    // newest content's blocks (cli/protocol/blocks), of which the push keeps those over which its offsets
    // pass; no text when all bytes have to come. For a pull: those of its content, no text when there are
    // none. With the offset look_to_resume, those of what an earlier push has left are meant, and this push
    // leaves its bytes too when it is cut off.
    Look = 6,
    // Give the content, which has this length and checksum, the tag that is the label's text. A push does it
    // before any byte.
    Tag = 7,
};

// Returns whether a push ends with the request: nothing may follow.
[[nodiscard]] constexpr bool commits(Ask ask) {
    return ask == Ask::Commit || ask == Ask::Rollback;
}

inline constexpr std::uint64_t look_to_resume = 1;

//    0     4          8        16       24      88
//    | ask | checksum | offset | length | label |      the label ends with a zero or its field
inline constexpr std::size_t longest_label = 64;
using RequestBytes = std::array<std::byte, 24 + longest_label>;
inline constexpr std::uint32_t most_requests = 16;

struct Request {
    Ask ask{};
    std::uint64_t offset = 0;  // in the content
    std::uint64_t length = 0;
    std::uint32_t checksum = 0;
    std::string
        label{};  // NOLINT(readability-redundant-member-init): g++ wants one where a request is made without
};

enum class Verdict : std::uint8_t {
    Done = 1,
    Different = 2,   // the bytes that arrived are not those of the request: nothing was committed
    NotDurable = 3,  // storage failed: nothing was committed
    Unknown = 4,  // storage failed at the commit itself: the next start of the server may find it committed
    Ended = 5,    // it answers no request: the server ends the connection
    NoRoom = 6,   // the server has no room for the content: nothing was committed
    Newer = 7,    // the server has the content of this tag, or of a later one, and needs no bytes
};

// The reason why the server ends a connection.
enum class Ending : std::uint8_t {
    NoProgress = 1,  // the client did nothing for so many seconds, as the sequence says
    NotLetIn = 2,    // its key or certificate was taken away
    ServerStops = 3,
    NotServed = 4,  // it asked for something that the server does not do
    TooSlow = 5,    // another push needs the room of this one, which has stored little of its content
};

//    0         4       8          16         20              41         44
//    | verdict | errno | sequence | checksum | memory region | reserved |
// Errno is Linux's, or an Ending. The sequence is a commit's; of NoRoom without an errno, it is how many
// bytes there is room for; of Newer, the epoch of the newest tag; of a Look, the length of the text, which
// has this checksum. The region is that of a Look.
using AnswerBytes = std::array<std::byte, 44>;

struct Answer {
    Verdict verdict = Verdict::Done;
    int error = 0;  // of Verdict::Ended: the Ending
    std::uint64_t sequence = 0;
    std::uint32_t checksum = 0;
    RegionBytes memory_region{};
};

[[nodiscard]] HelloBytes encode_hello(const Hello &hello);
[[nodiscard]] OfferBytes encode_offer(const Offer &offer);
[[nodiscard]] RequestBytes encode_request(const Request &request);
[[nodiscard]] AnswerBytes encode_answer(const Answer &answer);

// These ignore bytes after the private data, because some transports pad it with zeros. The failure's text
// names the fault and follows the peer's name. A hello of another version is decoded, but its mode has no
// meaning then.
[[nodiscard]] Outcome<Hello> decode_hello(std::span<const std::byte> bytes);
[[nodiscard]] Outcome<Offer> decode_offer(std::span<const std::byte> bytes);
[[nodiscard]] Outcome<Request> decode_request(std::span<const std::byte> bytes);
[[nodiscard]] Outcome<Answer> decode_answer(std::span<const std::byte> bytes);

// Returns the text for people of an answer whose verdict is Ended.
[[nodiscard]] std::string ending_text(const Answer &answer);

}  // namespace cli
