// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "faulty_link.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

namespace test {

namespace {

// These are the first bytes of the pieces, `most` at most.
struct Beginning {
    Beginning(std::span<const iovec> from, std::size_t most) {
        for (const iovec &piece : from) {
            if (count == pieces.size() || bytes == most) {
                break;
            }
            pieces[count] = piece;
            pieces[count].iov_len = std::min(piece.iov_len, most - bytes);
            bytes += pieces[count++].iov_len;
        }
    }

    std::array<iovec, 64> pieces;
    std::size_t count = 0;
    std::size_t bytes = 0;

    [[nodiscard]] std::span<const iovec> all() const { return std::span{pieces}.first(count); }
};

}  // namespace

soft::Link::Sent FaultyLink::send(std::span<const iovec> pieces) {
    if (sending_.bytes == faults_.sent_before_cut) {
        link_->abort();
        return {.error = ECONNRESET};
    }
    if (delays(sending_)) {
        return {};
    }
    const Beginning beginning{pieces, std::min(faults_.most, faults_.sent_before_cut - sending_.bytes)};
    const Sent sent = link_->send(beginning.all());
    sending_.bytes += sent.bytes;
    return sent;
}

soft::Link::Received FaultyLink::receive(std::span<const iovec> pieces) {
    if (receiving_.bytes == faults_.received_before_cut) {
        link_->abort();
        return {.state = Received::State::Failed, .error = ECONNRESET};
    }
    if (delays(receiving_)) {
        return {};
    }
    const Beginning beginning{pieces, std::min(faults_.most, faults_.received_before_cut - receiving_.bytes)};
    const Received received = link_->receive(beginning.all());
    receiving_.bytes += received.bytes;
    return received;
}

}  // namespace test
