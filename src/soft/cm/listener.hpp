// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/listener: the part of an id that listens: the connections that come to its socket, until the MPA
// request of each is complete.
//
//     made ─► accepts ◄──► pauses, for want of descriptors or memory
//                └────────────┴─► destroyed: the socket is shut, and its handshakes end
//
//     a connection: accepted ─► its handshake ─┬─► request_arrived
//                                              ├─► rejected, when it has the spare descriptor
//                                              └─► dropped: too slow, or the oldest of too many
//
// The lock of the group that serves the socket guards all of it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "base/origin.hpp"
#include "base/result.hpp"
#include "soft/cm/handshake.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

class Listener final : public HandshakeOwner, public Source {
public:
    // Gets each request, with the group's lock held, and may take the handshake's link. A link that it leaves
    // is closed.
    class Owner {
    public:
        virtual void request_arrived(Handshake &handshake, const wire::MpaFrame &request) = 0;

    protected:
        ~Owner() = default;
    };

    // Takes the spare descriptor of a socket. Fails with EMFILE or ENFILE.
    [[nodiscard]] static base::Result<base::Fd> spare_of(const base::Fd &socket);

    // The socket listens already. Without a spare the listener could not even reject when the process has no
    // other descriptor.
    Listener(Owner &owner, base::Fd socket, base::Fd spare, std::shared_ptr<Group> group, base::SharedTls tls,
             bool by_number);
    ~Listener() override;
    Listener(const Listener &) = delete;
    Listener &operator=(const Listener &) = delete;

    [[nodiscard]] int socket() const { return socket_.get(); }

    void progress() override;
    void expire() override;
    void handshake_done(Handshake &handshake, const wire::MpaFrame &request) override;
    void handshake_failed(Handshake &handshake, int error) override;

private:
    // Takes a spare descriptor, if it has none. Returns whether it has one now.
    bool take_spare() REQUIRES(group_->mutex());
    // Accepts the next connection, with the spare descriptor when there is no other.
    [[nodiscard]] base::Result<tcp::AcceptedSocket> accept_next() REQUIRES(group_->mutex());
    void begin_accepted(tcp::AcceptedSocket accepted) REQUIRES(group_->mutex());
    // Returns null when the peer is not served.
    Handshake *begin_handshake(tcp::AcceptedSocket accepted) REQUIRES(group_->mutex());
    void pause_accepting(int error) REQUIRES(group_->mutex());
    void resume_accepting() REQUIRES(group_->mutex());
    void end_oldest_handshake() REQUIRES(group_->mutex());
    void forget(Handshake &handshake) REQUIRES(group_->mutex());

    Owner &owner_;
    const base::Fd socket_;
    const std::shared_ptr<Group> group_;
    const base::SharedTls tls_;
    const std::size_t most_handshakes_;
    std::vector<std::unique_ptr<Handshake>> handshakes_ GUARDED_BY(group_->mutex());  // the oldest first
    base::Shares shares_ GUARDED_BY(group_->mutex());  // how many each origin has
    bool paused_ GUARDED_BY(group_->mutex()) = false;
    bool accept_fails_ GUARDED_BY(group_->mutex()) = false;  // it has been logged
    base::Fd spare_ GUARDED_BY(group_->mutex());             // a descriptor for when the process has no other
    const Handshake *rejected_ GUARDED_BY(group_->mutex()) =
        nullptr;  // the handshake that has the spare descriptor
};

}  // namespace soft
