// SPDX-License-Identifier: BSD-3-Clause
// soft/link: what a connection runs on: bytes in order, in both directions, each with an end. A link does not
// know what its bytes mean. It calls nobody back, and nothing here blocks. The connection manager chooses the
// link while it sets a connection up, and the connection keeps it to its end.
//
// Threads: one at a time sends (send, send_all, finish), and one at a time receives (receive, discard). They
// may be two at the same moment, each with its user's lock for that direction. ready(), unread_bytes(),
// undelivered(), want() and abort() may run beside both. rest() belongs to the thread that receives. The
// others run beside nothing.
//
// Readiness is level-triggered: the descriptor of a link at rest tells of all that its user wants (want()),
// as long as that is there, whoever asks and however often. Threads take a group over from each other without
// a word about its links, and lose nothing by it. A link comes to rest with rest(), and leaves it with the
// next receive(); a user who looks at the link again and again need not let it rest.
//
// A new link is a class like TcpLink. tests/unit/link/contract.hpp has the tests that every link passes.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/result.hpp"

namespace soft {

// The user of a link, or of another socket, waits for this.
struct Interest {
    bool readable = false;
    bool writable = false;
    bool ended = false;  // the peer's end or a failure, for a user that does not read

    friend bool operator==(const Interest &, const Interest &) = default;
};

class Link {
public:
    Link() = default;
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;
    // Closes the link. Where bytes are unread, that may reset the connection, and the peer may lose what was
    // sent.
    virtual ~Link() = default;

    // The link takes bytes from the beginning of the first piece on.
    struct Sent {
        std::size_t bytes = 0;  // taken; 0: the link is full, or there is an error
        int error = 0;  // EFAULT: the memory of a piece is gone; others: the link takes nothing any more
    };
    [[nodiscard]] virtual Sent send(std::span<const iovec> pieces) = 0;
    // Sends a start-up frame, which a fresh link has room for. Fails with ENOBUFS when the link is full
    // before it has all, else as send().
    [[nodiscard]] base::Result<void> send_all(std::span<const std::byte> bytes);
    // Ends this direction: the peer's end of the bytes follows what was sent.
    virtual void finish() = 0;

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
        int error = 0;  // EFAULT: the memory of a piece is gone; others: nothing comes any more
    };
    [[nodiscard]] virtual Received receive(std::span<const iovec> pieces) = 0;
    // Receives what is there, for a turn, and throws it away; true at the peer's end or a failure.
    [[nodiscard]] bool discard();

    // Ends both directions. The peer still gets what was sent, and then its end.
    virtual void abort() = 0;
    // From here on the destructor resets the connection, and the peer loses what it has not received.
    virtual void abandon() = 0;

    // The user watches the descriptor for watched(wanted).
    [[nodiscard]] virtual int descriptor() const = 0;
    [[nodiscard]] virtual Interest watched(Interest wanted) const { return wanted; }
    // The descriptor of the link at rest tells of this from now on. Returns false if a part of it is there
    // already and the descriptor does not tell: then the user looks at the link once more.
    [[nodiscard]] virtual bool want(Interest) { return true; }
    // The user will look again when the descriptor tells. Returns false if there is something to look at now.
    [[nodiscard]] virtual bool rest() { return true; }
    // The lender of the link's descriptor may close it from here on. False: the process has no more of them.
    [[nodiscard]] virtual bool own_descriptor() = 0;
    // Takes the descriptor out of the link, which is over; nothing is closed.
    [[nodiscard]] virtual base::Fd take_descriptor() = 0;
    struct Ready {
        bool readable;
        bool writable;
        bool ended;  // the peer's end or a failure is here, perhaps behind bytes that are unread
    };
    [[nodiscard]] virtual Ready ready() const = 0;
    // Returns why the link failed, as an errno value, told once; 0 when there is none.
    [[nodiscard]] virtual int failure() = 0;

    // How many bytes have arrived that nobody has received.
    [[nodiscard]] virtual std::size_t unread_bytes() const = 0;
    // Returns true while the peer's side has not confirmed all that was sent. A peer may confirm the last
    // bytes only when it looks for more, or rests.
    [[nodiscard]] virtual bool undelivered() const = 0;
    // Returns when the link, which is full, fails with ETIMEDOUT if the peer takes nothing until then. The
    // user tries to send again at that time.
    [[nodiscard]] virtual base::Clock::time_point gives_up_at() const {
        return base::Clock::time_point::max();
    }
    // The link is full when so many bytes wait here for the peer to have room.
    virtual void limit_unsent(std::size_t bytes) = 0;
    // The largest packet of the path, in bytes.
    [[nodiscard]] virtual std::size_t max_segment() const = 0;
};

}  // namespace soft
