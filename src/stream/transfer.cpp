// SPDX-License-Identifier: BSD-3-Clause
// stream/connection: the program's bytes, and the end that it wants.
#include <cerrno>

#include "base/parts.hpp"
#include "stream/connection.hpp"

namespace stream {

bool Connection::can_receive(std::size_t bytes) const {
    const bool has_bytes = readable() != 0 && (readable() >= bytes || incoming_->is_full());
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
        incoming_->copy(parts, bytes);
    }
    if (reading == Reading::Take || reading == Reading::Discard) {
        consumed(bytes);
    }
    return bytes;
}

bool Connection::can_send() const {
    if (!life_.may_write() || life_.is_over()) {
        return true;
    }
    if (keeps_sends()) {
        return early_sends_.size() < settings_.send_bytes;
    }
    return life_.established() && outgoing_->has_room();
}

base::Result<std::size_t> Connection::send(std::span<const iovec> parts) {
    if (!life_.may_send() || !early_sends_.empty()) {
        return keeps_sends() ? keep(parts) : base::failure(life_.why_not_send());
    }
    return sent(outgoing_->send(parts), base::size_of(parts));
}

base::Result<std::size_t> Connection::keep(std::span<const iovec> parts) {
    const std::size_t bytes = early_sends_.keep(parts, settings_.send_bytes);
    return bytes != 0 || base::size_of(parts) == 0 ? base::Result<std::size_t>{bytes} : base::failure(EAGAIN);
}

base::Result<std::size_t> Connection::sent(const Outgoing::Sent &outcome, std::size_t wanted) {
    (void)fail_if(outcome.error);
    return outcome.bytes != 0 || wanted == 0 ? base::Result<std::size_t>{outcome.bytes}
                                             : base::failure(life_.error() != 0 ? life_.error() : EAGAIN);
}

void Connection::abort() {
    life_.abort();
    break_off(ECONNABORTED);
}

void Connection::shut(bool receiving, bool sending) {
    if (life_.shut(receiving, sending) && life_.established()) {
        send_what_is_owed();
    }
}

void Connection::leave() {
    shut(true, true);
    if (!device_.is_of_kernel() && life_.established() && !life_.owes_word()) {
        drains_ = rpma_conn_drain(conn_.get()) == 0;
    }
}

}  // namespace stream
