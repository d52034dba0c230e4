// SPDX-License-Identifier: BSD-3-Clause
// registry/record: the facts that a process tells other programs about its rsockets. A process has a few
// files in memory, in its user's folder (registry/user_folder), each named rsocket-UID-SPACE-PID-INODE: SPACE
// is the namespace of PID (the inode of /proc/PID/ns/pid), and INODE the file's own. The process has locked a
// file while it has it mapped; so a file that nobody has locked was left behind. A file begins with a Header,
// in the place of one record, and records follow to its end. The process writes them in its mapping, so that
// no record costs a system call; the others read the file.
//
// Every user may read the files, because a client has to find the listeners of other users. The files tell
// no more than the kernel tells every user about its sockets.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace registry {

enum class Kind : std::uint8_t { Stream = 1, Datagram = 2 };
enum class State : std::uint8_t {
    Fresh = 1,
    Listening = 2,
    Connecting = 3,
    Accepted = 4,   // its peer is answered when it is used
    Connected = 5,  // of a stream over RDMA, Live::phase says more
    Closing = 6,
};
// The way that the bytes take. A listener has Rdma where it does not listen in TCP. A carried connection is
// the kernel's, and its bytes go through memory or over a device where Live::link says so.
enum class Mode : std::uint8_t { None = 0, Rdma = 1, Udp = 3, Carried = 4 };
// The link of an established stream, and its name at the same place (rpma_conn_get_link).
enum class Link : std::uint32_t { None = 0, Device = 1, Tcp = 2, Memory = 3, Tls = 4 };
inline constexpr std::array<std::string_view, 5> link_names{"", "device", "tcp", "memory", "tls"};
enum class Phase : std::uint32_t { None = 0, Connecting = 1, Established = 2, Over = 3 };

// The facts about an rsocket that hold until it changes its state. Texts end with a zero.
struct Description {
    Kind kind = Kind::Stream;
    State state = State::Fresh;
    Mode mode = Mode::None;
    std::uint8_t reserved = 0;
    std::int32_t fd = -1;
    // The kernel's socket has it, as fstat(2) and /proc/net/tcp tell. The machine has no other socket with
    // it.
    std::uint64_t inode = 0;
    // The family tells which type of address this is; AF_UNSPEC: there is none. The largest is first, so that
    // `{}` leaves no byte of it as this process's memory had it.
    union Address {
        sockaddr_in6 v6;
        sockaddr_in v4;
        sa_family_t family;
    };
    Address local{};
    Address peer{};
    std::array<char, 32> device{};
    std::array<char, 64> reason{};  // why this mode
};

// A stream writes these as it goes, under the lock of its shard. Each word is right by itself.
struct Live {
    Phase phase = Phase::None;
    std::int32_t error = 0;    // why the stream is over, as an errno value
    std::uint32_t thread = 0;  // of its shard
    Link link = Link::None;
    std::uint64_t sent_bytes = 0;
    std::uint64_t sent_messages = 0;
    std::uint64_t received_bytes = 0;
    std::uint64_t placed_bytes = 0;  // by riowrite
    // A stream has the peer's windows and credits since the beginning. Those that are left are this number
    // less the number that was sent. A carried connection has its bytes past TCP.
    union {
        std::uint64_t granted_bytes = 0;
        std::uint64_t sent_by_link;
    };
    union {
        std::uint64_t granted_messages = 0;
        std::uint64_t received_by_link;
    };
    // Says how often a send had to wait until the peer granted more, and until the device had sent its bytes;
    // or how often a carried connection's bytes went back to TCP, and whether they go over a device, not
    // memory.
    union {
        std::uint64_t stalls_for_peer = 0;
        std::uint64_t turns_back;
    };
    union {
        std::uint64_t stalls_for_device = 0;
        std::uint64_t is_by_device;
    };
};

struct Record {
    // Odd while the description is written, and 0 when the record was never used.
    std::uint32_t sequence = 0;
    std::uint32_t used = 0;
    Description description{};
    Live live{};
};
static_assert(sizeof(Record) == 256);

struct Header {
    std::array<char, 8> magic{'r', 's', 'o', 'c', 'k', 'e', 't', 's'};
    std::uint32_t version = 1;
    std::uint32_t record_bytes = sizeof(Record);
    std::array<std::byte, sizeof(Record) - 16> reserved{};
};
static_assert(sizeof(Header) == sizeof(Record));

// A process's first file has so many; the next has twice as many, and so on.
inline constexpr std::size_t first_file_bytes = 16384;
inline constexpr std::size_t most_file_bytes = std::size_t{16} << 20;

// The shared folder of the users' folders. Only root and its owner can take one away there.
inline constexpr const char *shared_folder = "/dev/shm";

}  // namespace registry
