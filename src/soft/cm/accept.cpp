// SPDX-License-Identifier: BSD-3-Clause
// soft/cm: the connections that come to a listener, whose sockets are read until their MPA request is whole.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "soft/cm/cm.hpp"

namespace soft {

namespace {

constexpr int accepts_in_a_turn = 64;  // then other connections are served
constexpr base::Milliseconds accept_again_after{100};
// How long a peer that will be rejected may take for its request: it holds the spare descriptor meanwhile.
constexpr base::Milliseconds rejected_request_timeout{1'000};

bool is_out_of_descriptors(const base::Result<tcp::Accepted> &accepted) {
    return !accepted && (accepted.error().number == EMFILE || accepted.error().number == ENFILE);
}

}  // namespace

bool CmId::has_spare() {
    if (!spare_) {
        spare_.reset(fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
    }
    return static_cast<bool>(spare_);
}

// The kernel looks for a descriptor before it looks for a connection. Without a free descriptor accept(2)
// therefore fails also when no connection waits.
base::Result<tcp::Accepted> CmId::accept_next() {
    if (!has_spare()) {
        return base::last_failure();
    }
    auto accepted = tcp::accept(socket_.get());
    if (is_out_of_descriptors(accepted) && rejected_ == nullptr) {
        spare_.reset();
        accepted = tcp::accept(socket_.get());
        if (!accepted) {
            (void)has_spare();
        }
    }
    return accepted;
}

void CmId::progress() {
    handshake_group_->mutex().assert_held();
    for (int round = 0; round < accepts_in_a_turn && !accept_paused_; ++round) {
        auto accepted = accept_next();
        if (!accepted) {
            const int error = accepted.error().number;
            if (error != EAGAIN && error != ECONNABORTED && error != EINTR) {
                pause_accepting(error);
            }
            return;
        }
        try {
            begin_accepted(*std::move(accepted));
        } catch (const std::bad_alloc &) {
            BASE_LOG_PEER(Error, "connection dropped: out of memory");
        }
        if (handshakes_.size() > most_handshakes_) {
            end_oldest_handshake();
        }
    }
}

// A connection that has the spare descriptor is read only to be rejected, so that the peer is told and does
// not wait in vain.
void CmId::begin_accepted(tcp::Accepted accepted) {
    const bool with_spare = !spare_;
    const std::size_t before = handshakes_.size();
    begin_handshake(std::move(accepted.socket), accepted.peer, Handshake::Role::Responder, nullptr);
    if (!with_spare) {
        accept_fails_ = false;
    } else if (handshakes_.size() != before) {
        rejected_ = handshakes_.back().get();
        handshake_group_->set_deadline(*handshakes_.back(), base::Clock::now() + rejected_request_timeout);
    }
}

// The connection stays in the backlog, and the listener looks again later, when there may be descriptors or
// memory. The log says so once, until a connection is accepted.
void CmId::pause_accepting(int error) {
    if (!std::exchange(accept_fails_, true)) {
        BASE_LOG_PEER(Warning, "cannot accept connections, which wait until it can: %s",
                      std::strerror(error));
    }
    accept_paused_ = true;
    handshake_group_->change(*this, socket_.get(), {.readable = true}, {});
    handshake_group_->set_deadline(*this, base::Clock::now() + accept_again_after);
}

void CmId::expire() {
    handshake_group_->mutex().assert_held();
    if (std::exchange(accept_paused_, false)) {
        handshake_group_->change(*this, socket_.get(), {}, {.readable = true});
    }
}

// Ends the oldest handshake of the origin that has most of them. Silent peers of one origin therefore take
// nothing from others, and a peer that sends its request is done before its handshake is the oldest. The
// request of that handshake may have come without having been looked at.
void CmId::end_oldest_handshake() {
    const std::size_t most = shares_.most();
    const auto oldest = std::ranges::find_if(handshakes_, [&](const auto &one) {
        handshake_group_->mutex().assert_held();
        return shares_.of(origin_of(one->peer())) == most;
    });
    Handshake &handshake = **oldest;
    handshake.progress();
    if (handshakes_.size() > most_handshakes_) {
        handshake.give_way();
    }
}

void CmId::forget(Handshake &handshake) {
    if (&handshake == rejected_) {
        rejected_ = nullptr;
        spare_ = handshake.take_link()->take_descriptor();
        // One step, in which no other thread can get the descriptor.
        if (dup3(socket_.get(), spare_.get(), O_CLOEXEC) < 0) {
            spare_.reset();
        }
        CmId::expire();
    }
    shares_.remove(origin_of(handshake.peer()));
    std::erase_if(handshakes_, [&](const auto &one) { return one.get() == &handshake; });
}

}  // namespace soft
