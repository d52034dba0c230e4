// SPDX-License-Identifier: BSD-3-Clause
// soft/link: a link carries the bytes of a connection in order, in both directions, each with an end. A link
// does not know the meaning of its bytes. It makes no calls back, and no function here blocks. The connection
// manager chooses the link while it sets a connection up, and the connection keeps it to its end.
//
// Threads: one at a time sends (send, send_all, finish), and one at a time receives (receive, discard). These
// may be two threads at the same moment, each with its user's lock for that direction. ready(),
// unread_bytes(), undelivered(), want() and abort() may run in parallel with both. rest(), reported() and
// look() belong to the thread that receives. The other functions do not run in parallel with any.
//
// Readiness is level-triggered: the descriptor of a link at rest reports everything that its user wants
// (want()) as long as it is there, to any thread and any number of times. So threads take a group over from
// each other without any exchange about its links, and lose no event. A link comes to rest with rest(), and
// leaves it with the next receive(), look() or reported(). A user that polls the link need not let it rest.
//
// A new link is a class like TcpLink. tests/unit/link/contract.hpp has the tests that every link passes.
#pragma once

#include <sys/uio.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/result.hpp"

namespace soft {

// The events for which the user of a link, or of another socket, waits.
struct Interest {
    bool readable = false;
    bool writable = false;
    bool ended = false;  // the peer's end or a failure, for a user that does not read

    friend bool operator==(const Interest &, const Interest &) = default;
};

class TlsLink;  // soft/tls

class Link {
public:
    Link() = default;
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;
    // Closes the link. When bytes are unread, that may reset the connection, and the peer may lose bytes that
    // were sent.
    virtual ~Link() = default;

    // The link takes bytes from the beginning of the first piece on. A user that sends on presents first the
    // bytes that the link has not taken, because it may have begun with them.
    struct Sent {
        std::size_t bytes = 0;  // taken; 0: the link is full, or there is an error
        int error = 0;          // EFAULT: the memory of a piece is gone; others: the link takes no more bytes
    };
    [[nodiscard]] virtual Sent send(std::span<const iovec> pieces) = 0;
    // Returns whether one call with the bytes of many requests takes much less time than a call for each.
    [[nodiscard]] virtual bool gains_by_batches() const { return true; }
    // Sends a start-up frame, for which a new link has room. Fails with ENOBUFS when the link is full before
    // it has all bytes, otherwise as send().
    [[nodiscard]] base::Result<void> send_all(std::span<const std::byte> bytes);
    // Ends this direction: the peer gets the end after the bytes that were sent. Returns false when the link
    // is full and still has the end; the user then calls it again when the link is writable.
    virtual bool finish() = 0;

    // The link fills the pieces from the beginning of the first on.
    struct Received {
        enum class State : std::uint8_t {
            More,     // the caller asks again, because there may be more
            Drained,  // the caller comes again when the link is readable
            Ended,    // the peer has finished; no bytes
            Failed    // see error; no bytes
        };
        std::size_t bytes = 0;
        State state = State::Drained;
        int error = 0;  // EFAULT: the memory of a piece is gone; others: no more bytes come
    };
    [[nodiscard]] virtual Received receive(std::span<const iovec> pieces) = 0;
    // Receives the bytes that have come, for one turn, and drops them. Returns true at the peer's end or a
    // failure.
    [[nodiscard]] bool discard();

    // Ends both directions. The peer still gets the bytes that were sent, and then the end.
    virtual void abort() = 0;
    // Makes the destructor reset the connection, so that the peer loses the bytes that it has not received.
    virtual void abandon() = 0;

    // Returns the descriptor, which the user watches for watched(wanted). It is a TCP socket, which has the
    // addresses of the two ends and the program's options.
    [[nodiscard]] virtual int descriptor() const = 0;
    [[nodiscard]] virtual Interest watched(Interest wanted) const { return wanted; }
    // Sets what the descriptor of the link at rest reports from now on. Returns false if the user has to look
    // at the link once more: a part of it is there already and the descriptor does not report it, the peer
    // may wait for the room of bytes that were received, or the link will give its peer up (gives_up_at()).
    [[nodiscard]] virtual bool want(Interest) { return true; }
    // Lets the link rest: the user looks again when the descriptor reports an event. Returns false if there
    // is an event already.
    [[nodiscard]] virtual bool rest() { return true; }
    // Is called when the descriptor of the link at rest may have reported an event.
    virtual void reported() {}
    // Looks without a system call, and does not let the link rest any longer. Returns whether the link has
    // something that its user wants, or nothing when only the descriptor tells.
    [[nodiscard]] virtual std::optional<bool> look() { return std::nullopt; }
    // Gives the link a descriptor of its own in place of one that the program has lent, so that the program
    // may close that. Returns false when the process has no more descriptors.
    [[nodiscard]] virtual bool own_lent_descriptor() = 0;
    // Takes the descriptor out of the link, which has ended, without closing it.
    [[nodiscard]] virtual base::Fd take_descriptor() = 0;
    struct Ready {
        bool readable;  // a receive has something to do, perhaps only to give the peer room
        bool writable;
        bool ended;  // the peer's end or a failure has come, perhaps behind unread bytes
    };
    [[nodiscard]] virtual Ready ready() const = 0;
    // Returns the reason why the link failed, as an errno value, once; 0 when there is none.
    [[nodiscard]] virtual int failure() = 0;

    // Returns how many bytes have arrived and were not received.
    [[nodiscard]] virtual std::size_t unread_bytes() const = 0;
    // Returns true while the peer's side has not confirmed all sent bytes. A peer may confirm the last bytes
    // only when it looks for more, or rests.
    [[nodiscard]] virtual bool undelivered() const = 0;
    // Returns when the link, which is full, fails with ETIMEDOUT if the peer takes nothing until then. The
    // user tries to send again at that time.
    [[nodiscard]] virtual base::Clock::time_point gives_up_at() const {
        return base::Clock::time_point::max();
    }
    // Returns for how long a peer may take nothing, as the program's TCP_USER_TIMEOUT says it; 0: for ever.
    [[nodiscard]] virtual std::chrono::milliseconds user_timeout() const {
        return std::chrono::milliseconds::zero();
    }
    // Looks whether the peer is silent, where the kernel does not, and then makes the link fail with
    // ETIMEDOUT. It belongs to the thread that receives. Returns when it has to be called again.
    [[nodiscard]] virtual base::Clock::time_point look_at_peer() { return base::Clock::time_point::max(); }
    // Returns how many paths the connection has; none when it is not one of MPTCP.
    [[nodiscard]] virtual std::optional<std::size_t> paths() const { return std::nullopt; }
    // Makes the link full when this many bytes wait here until the peer has room.
    virtual void limit_unsent(std::size_t bytes) = 0;
    // Returns this link if it is one of TLS; its users ask it for what only TLS has.
    [[nodiscard]] virtual TlsLink *tls() { return nullptr; }
    // Memory that the users of the two ends share, if the link goes through memory. It is all zero at first.
    // Each end writes its own piece, and reads the peer's, which may have any content. The pieces last as
    // long as the link, and have the alignment of a cache line.
    struct SharedPieces {
        std::span<std::byte> own;
        std::span<std::byte> peers;
        pid_t process = 0;  // the peer's, as the kernel has told it; 0 when it has no number here
    };
    [[nodiscard]] virtual SharedPieces shared_pieces() const { return {}; }
    // Returns the name of this kind of link, for people.
    [[nodiscard]] virtual const char *name() const = 0;
    // Returns how many bytes one segment of the path carries.
    [[nodiscard]] virtual std::size_t max_segment() const = 0;
};

}  // namespace soft
