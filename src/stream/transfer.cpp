// SPDX-License-Identifier: BSD-3-Clause
// stream/connection: the program's bytes, and the end that it wants.
#include <cerrno>

#include "base/parts.hpp"
#include "stream/connection.hpp"

namespace stream {

bool Connection::can_receive(std::size_t bytes) const {
    const bool has_bytes = readable() != 0 && (readable() >= bytes || exchange_->incoming().is_full());
    return has_bytes || life_.peer_ended() || !life_.may_read() || life_.phase() == Phase::Over;
}

base::Result<std::size_t> Connection::receive(std::span<const iovec> parts, Reading reading) {
    const std::size_t bytes = std::min(base::size_of(parts), readable());
    if (bytes == 0) {
        if (readable() != 0 || life_.peer_ended() || !life_.may_read()) {
            return 0;
        }
        if (life_.error() != 0) {
            return base::failure(life_.error());
        }
        return life_.phase() != Phase::Over ? base::Result<std::size_t>{base::failure(EAGAIN)} : 0;
    }
    if (reading == Reading::Take || reading == Reading::Peek) {
        exchange_->incoming().copy(parts, bytes);
    }
    if (reading == Reading::Take || reading == Reading::Discard) {
        (void)fail_if(exchange_->consume(bytes));
    }
    return bytes;
}

bool Connection::can_send() const {
    if (!life_.may_write() || life_.is_over()) {
        return true;
    }
    return life_.established() && exchange_->outgoing().has_room();
}

base::Result<std::size_t> Connection::send(std::span<const iovec> parts) {
    if (!life_.may_send()) {
        return base::failure(life_.why_not_send());
    }
    const auto sent = exchange_->outgoing().send(parts);
    (void)fail_if(sent.error);
    return sent.result(base::size_of(parts));
}

void Connection::abort() {
    life_.abort();
    break_off(ECONNABORTED);
}

void Connection::shut(bool receiving, bool sending) {
    if (life_.shut(receiving, sending) && life_.established()) {
        (void)fail_if(exchange_->settle());
    }
}

void Connection::leave() {
    shut(true, true);
    if (!drains_ && !device_.is_of_kernel() && life_.established() && !life_.owes_word()) {
        drains_ = rpma_.drain();
    }
}

}  // namespace stream
