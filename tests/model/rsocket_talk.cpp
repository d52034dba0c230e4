// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_pair: calls that wait, a thread for each direction and side: two for each socket.
#include <rpma/rsocket.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "rsocket_pair.hpp"

namespace model {

void RsocketPair::speak(int end, std::uint64_t seed, std::size_t total, Bytes bytes, Outcome &outcome) const {
    Dice dice{seed};
    const End &from = ends_[index(end)];
    std::vector<std::byte> room;
    while (total != 0) {
        room.resize(std::min(total, 1 + dice.size()));
        bytes.next(room);
        const ssize_t count = rsend(from.fd, room.data(), room.size(), MSG_NOSIGNAL);
        if (count != static_cast<ssize_t>(room.size())) {
            outcome.broke = may_break_ && (count >= 0 || is_break(errno));
            outcome.wrong = outcome.broke ? "" : wrong(end, "rsend that waits", count);
            return;
        }
        bytes.send(room.size());
        total -= room.size();
    }
}

void RsocketPair::listen(int end, std::uint64_t seed, Outcome &outcome) {
    Dice dice{seed};
    std::vector<std::byte> room;
    Bytes &theirs = ends_[index(1 - end)].sent;
    while (theirs.on_their_way() != 0 && outcome.wrong.empty()) {
        room.resize(std::min(theirs.on_their_way(), 1 + dice.size()));
        const ssize_t count = rrecv(fd(end), room.data(), room.size(), dice.one_in(4) ? MSG_WAITALL : 0);
        if (count <= 0) {
            outcome.broke = may_break_ && count < 0 && is_break(errno);
            outcome.wrong = outcome.broke ? "" : wrong(end, "rrecv that waits", count);
            return;
        }
        outcome.wrong = received(end, count, room, false);
    }
}

std::string RsocketPair::converse(const std::array<std::uint64_t, 2> &totals, int first, int last) {
    std::array<Outcome, 4> outcomes;
    {
        std::vector<std::jthread> threads;
        for (int end = 0; end < 2; ++end) {
            Bytes &sent = ends_[index(end)].sent;
            // The oracle is told beforehand; the speaker begins where it was.
            const Bytes before = sent;
            const std::uint64_t total = totals[index(end)];
            sent.send(total);
            if (end >= first && end <= last) {
                threads.emplace_back([this, end, total, before, seed = dice_.any(), &outcomes] {
                    speak(end, seed, total, before, outcomes[index(end)]);
                });
            }
        }
        for (int end = first; end <= last; ++end) {
            threads.emplace_back(
                [this, end, seed = dice_.any(), &outcomes] { listen(end, seed, outcomes[index(2 + end)]); });
        }
    }
    std::string text;
    for (const Outcome &outcome : outcomes) {
        broken_ = broken_ || outcome.broke;
        text += outcome.wrong;
    }
    return text;
}

std::string RsocketPair::talk() {
    std::array<std::uint64_t, 2> totals{};
    for (int end = 0; end < 2; ++end) {
        if (ends_[index(end)].writes && !dice_.one_in(3)) {
            totals[index(end)] = dice_.below(most_bytes);
        }
    }
    set_waiting(true);
    auto text = converse(totals, 0, 1);
    set_waiting(false);
    return text;
}

}  // namespace model
