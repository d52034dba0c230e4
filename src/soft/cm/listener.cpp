// SPDX-License-Identifier: BSD-3-Clause
#include "soft/cm/listener.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/error_text.hpp"
#include "base/log.hpp"
#include "soft/cm/rejection.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

namespace {

constexpr int accepts_in_a_turn = 64;  // then other connections have their turn
constexpr base::Milliseconds accept_again_after{100};
// The time for the request of a peer that will be rejected, because it holds the spare descriptor meanwhile.
constexpr base::Milliseconds rejected_request_timeout{1'000};

bool is_out_of_descriptors(const base::Result<tcp::AcceptedSocket> &accepted) {
    return !accepted && (accepted.error().number == EMFILE || accepted.error().number == ENFILE);
}

}  // namespace

base::Result<base::Fd> Listener::spare_of(const base::Fd &socket) {
    base::Fd spare{fcntl(socket.get(), F_DUPFD_CLOEXEC, 0)};
    if (!spare) {
        return base::last_failure();
    }
    return spare;
}

Listener::Listener(Owner &owner, base::Fd socket, base::Fd spare, std::shared_ptr<Group> group,
                   base::SharedTls tls, bool by_number)
    : HandshakeOwner{by_number},
      owner_{owner},
      socket_{std::move(socket)},
      group_{std::move(group)},
      tls_{std::move(tls)},
      most_handshakes_{std::min(limits::in_force().max_handshakes, limits::share_of_descriptors())} {
    const base::Lock lock{group_->mutex()};
    spare_ = std::move(spare);
    group_->add(*this, socket_.get(), {.readable = true});
}

Listener::~Listener() {
    if (group_->inherited()) {
        return;  // the parent's, which still listens, and whose lock may be held for ever here
    }
    const base::Lock lock{group_->mutex()};
    handshakes_.clear();
    group_->remove(*this, socket_.get());
    (void)shutdown(socket_.get(), SHUT_RDWR);  // closing it is not enough when a child has it too
}

bool Listener::take_spare() {
    if (!spare_) {
        spare_ = spare_of(socket_).value_or(base::Fd{});
    }
    return static_cast<bool>(spare_);
}

// The kernel looks for a descriptor before it looks for a connection. Without a free descriptor accept(2)
// therefore fails also when no connection waits.
base::Result<tcp::AcceptedSocket> Listener::accept_next() {
    if (!take_spare()) {
        return base::last_failure();
    }
    auto accepted = tcp::accept(socket_.get());
    if (is_out_of_descriptors(accepted) && rejected_ == nullptr) {
        spare_.reset();
        accepted = tcp::accept(socket_.get());
        if (!accepted) {
            (void)take_spare();
        }
    }
    return accepted;
}

void Listener::progress() {
    group_->mutex().assert_held();
    for (int round = 0; round < accepts_in_a_turn && !paused_; ++round) {
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

// A connection that has the spare descriptor is read only to be rejected, so that the peer gets the reason
// and does not wait.
void Listener::begin_accepted(tcp::AcceptedSocket accepted) {
    const bool with_spare = !spare_;
    Handshake *const handshake = begin_handshake(std::move(accepted));
    if (!with_spare) {
        accept_fails_ = false;
    } else if (handshake != nullptr) {
        rejected_ = handshake;
        group_->set_deadline(*handshake, base::Clock::now() + rejected_request_timeout);
    }
}

Handshake *Listener::begin_handshake(tcp::AcceptedSocket accepted) {
    auto begun = Handshake::begin(*this, group_, std::move(accepted.socket), accepted.peer, tls_, nullptr);
    if (begun == nullptr) {
        return nullptr;
    }
    handshakes_.push_back(std::move(begun));
    try {
        shares_.add(base::origin_of(accepted.peer));
    } catch (const std::bad_alloc &) {
        handshakes_.pop_back();
        throw;
    }
    return handshakes_.back().get();
}

// The connection stays in the backlog, and the listener looks again later, when there may be descriptors or
// memory. The log says so once, until a connection is accepted.
void Listener::pause_accepting(int error) {
    if (!std::exchange(accept_fails_, true)) {
        BASE_LOG_PEER(Warning, "cannot accept connections, which wait until it can: %s",
                      base::error_text(error));
    }
    paused_ = true;
    group_->change(*this, socket_.get(), {.readable = true}, {});
    group_->set_deadline(*this, base::Clock::now() + accept_again_after);
}

void Listener::expire() {
    group_->mutex().assert_held();
    resume_accepting();
}

void Listener::resume_accepting() {
    if (std::exchange(paused_, false)) {
        group_->change(*this, socket_.get(), {}, {.readable = true});
    }
}

// Ends the oldest handshake of the origin that has most of them. So silent peers of one origin take no places
// from others, and a peer that sends its request is done before its handshake is the oldest. The request of
// that oldest handshake may have come and not been read yet.
void Listener::end_oldest_handshake() {
    const std::size_t most = shares_.most();
    const auto oldest = std::ranges::find_if(handshakes_, [&](const auto &one) {
        group_->mutex().assert_held();
        return shares_.of(base::origin_of(one->peer())) == most;
    });
    Handshake &handshake = **oldest;
    handshake.progress();
    if (handshakes_.size() > most_handshakes_) {
        handshake.give_way();
    }
}

void Listener::handshake_done(Handshake &handshake, const wire::MpaFrame &request) {
    group_->mutex().assert_held();
    if (&handshake == rejected_) {
        // No byte of the peer is unread, so destroying the link at once loses nothing.
        BASE_LOG_PEER(Warning,
                      "no connection with %s: rejected, because this process has no file descriptor for it",
                      tcp::text_of(handshake.peer()).c_str());
        (void)send_rejection(handshake.link(), request, Reason::NoDescriptors, {});
    } else {
        owner_.request_arrived(handshake, request);
    }
    forget(handshake);
}

void Listener::handshake_failed(Handshake &handshake, int) {
    group_->mutex().assert_held();
    forget(handshake);
}

void Listener::forget(Handshake &handshake) {
    if (&handshake == rejected_) {
        rejected_ = nullptr;
        spare_ = handshake.take_link()->take_descriptor();
        // This is one step, so that no other thread can get the descriptor.
        if (dup3(socket_.get(), spare_.get(), O_CLOEXEC) < 0) {
            spare_.reset();
        }
        resume_accepting();
    }
    shares_.remove(base::origin_of(handshake.peer()));
    std::erase_if(handshakes_, [&](const auto &one) { return one.get() == &handshake; });
}

}  // namespace soft
