// SPDX-License-Identifier: BSD-3-Clause
// carry_device/finding: how the agent of one end finds the process that has the other end, on another host.
// All processes of a host that use a device bind one well-known port of UDP. The kernel gives a datagram to
// one of them. That process passes it on to all others, by a broadcast on the loopback interface, unless the
// connection is its own. So no process keeps a list, and none has to stay.
//
//      side 1            the port of side 0's host           side 0's process
//        ── Asks ──────►  any process
//                         ── Asks, passed on ──────────────►  has the connection
//        ◄─────────────── Answers: the port of its device, and a proof ──
//        ── connects to that port, with a proof (Hello) ────►
//
// Side 0 sends Calls to side 1's host when it begins to listen: the end that came first has asked in vain. It
// calls an asker that has not seen all that it has itself: that one asks again when it has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>

#include "carry/link.hpp"
#include "carry_device/proof.hpp"
#include "carry_device/watched.hpp"

namespace carry_device {

// A datagram. It has the same bytes on every machine that has the same Link.
struct Word {
    enum Kind : std::uint8_t { Calls = 1, Asks, Answers };

    std::uint64_t mark = carry::Link::mark;
    std::uint64_t name = 0;     // of the connection
    std::uint64_t asks = 0;     // the random number of side 1
    std::uint64_t answers = 0;  // that of side 0
    Lengths lengths{};          // what the speaker has of the connection's first bytes, where it says so
    std::uint16_t port = 0;     // of the device, in an answer; of the asker, where it is passed on
    Kind kind = Calls;
    bool is_passed_on = false;
    Digest proof{};  // of an answer
};
static_assert(sizeof(Word) == 72);

class Finding {
public:
    // A process may take the datagrams from here on that come to the port.
    static constexpr std::uint16_t well_known = 20481;

    // A word, and who has sent it: an address and a port.
    struct Heard {
        Word word;
        in6_addr address{};  // none where it was passed on
        std::uint16_t port = 0;

        [[nodiscard]] bool is_from(const in6_addr &peer) const {
            return word.is_passed_on || IN6_ARE_ADDR_EQUAL(&address, &peer) != 0;
        }
    };
    using IsPeer = bool (*)(const in6_addr &);

    explicit Finding(IsPeer is_peer, std::uint16_t port = well_known) : is_peer_{is_peer}, number_{port} {}
    // events: an epoll set of the agent's, which wakes it. The kernel prefers the process that has taken the
    // port last. Returns false when the port is another program's.
    [[nodiscard]] bool take_port(int events);
    // Sends a word from an end to a port of the other one's host. A datagram may be lost.
    void send(const carry::FourTuple &connection, std::uint16_t port, const Word &word);
    // Calls heard(what) for each word that has come. It returns whether the connection is this process's.
    // Returns whether more may have come: who sends many does not keep the agent from its work.
    bool serve(const std::function<bool(const Heard &)> &heard);
    // In a forked child, which is asked for nothing.
    void close_in_child();

private:
    static constexpr int most_at_once = 64;  // from a socket
    // For the words that this process sends from one address, and their answers.
    struct Own {
        carry::FourTuple::End end;
        Watched fd;
    };
    [[nodiscard]] int own_at(const carry::FourTuple::End &end);
    [[nodiscard]] static bool hear(int fd, Heard &heard);
    void pass_on(const Heard &heard);

    const IsPeer is_peer_;
    const std::uint16_t number_;
    int events_ = -1;
    Watched port_;
    base::Fd passes_;
    std::list<Own> own_;
};

}  // namespace carry_device
