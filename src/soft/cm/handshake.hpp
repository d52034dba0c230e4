// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/handshake: the start-up of one link: the handshake of TLS, if that is asked for, and then that of
// MPA (RFC 5044 section 7.1, RFC 6581): the initiator connects, sends its request and reads the
// reply; the responder reads the request. The connection manager does the rest.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/link/link.hpp"
#include "soft/progress/progress.hpp"
#include "soft/tls/tls_start.hpp"
#include "soft/wire/mpa.hpp"

namespace soft {

class Handshake;

// It is called with the group's lock held, and may destroy the handshake.
class HandshakeOwner {
public:
    // Is called when the initiator's link can take the request, and does not destroy the handshake. Returns
    // whether the request offers to continue through memory.
    [[nodiscard]] virtual bool offers_memory(Handshake &) { return false; }
    // Returns how the log tells of a start-up that fails with this errno value. By number, a peer that is not
    // ready yet is no failure, and one that takes its own attempt is none.
    [[nodiscard]] base::LogLevel level_of_failure(int error) const {
        const bool expected = by_number_ && (error == ECONNREFUSED || error == ECONNRESET);
        return expected ? base::LogLevel::Info : base::LogLevel::Warning;
    }
    virtual void handshake_done(Handshake &handshake, const wire::MpaFrame &frame) = 0;
    // `error` is the reason why there will be no connection, an errno value.
    virtual void handshake_failed(Handshake &handshake, int error) = 0;

protected:
    explicit HandshakeOwner(bool by_number = false) : by_number_{by_number} {}
    ~HandshakeOwner() = default;

private:
    const bool by_number_;
};

class Handshake final : public Source {
public:
    enum class Role { Initiator, Responder };

    // Adds itself to the group, whose lock the caller holds. The initiator has a request. A responder has
    // none, and begins only after a delay, if there is one.
    Handshake(HandshakeOwner &owner, std::shared_ptr<Group> group, std::unique_ptr<Link> link,
              const tcp::Address &peer, const base::SharedTls &tls, const wire::MpaFrame *request,
              base::Milliseconds delay);
    // Begins a handshake on a TCP socket, with the group's lock held. Returns null when the peer is not
    // served, because too many peers of its address guess keys.
    [[nodiscard]] static std::unique_ptr<Handshake> begin(HandshakeOwner &owner,
                                                          const std::shared_ptr<Group> &group,
                                                          base::Fd socket, const tcp::Address &peer,
                                                          const base::SharedTls &tls,
                                                          const wire::MpaFrame *request);
    ~Handshake() override;
    Handshake(const Handshake &) = delete;
    Handshake &operator=(const Handshake &) = delete;

    [[nodiscard]] Role role() const { return role_; }
    [[nodiscard]] Link &link() const { return *link_; }
    [[nodiscard]] const tcp::Address &peer() const { return peer_; }
    // Gives the proof of TLS away when the handshake is done; null without TLS.
    [[nodiscard]] std::unique_ptr<TlsProof> take_proof() {
        return shaken_ != nullptr ? shaken_->take_proof() : nullptr;
    }
    // Takes the link out of the group, for its next owner.
    [[nodiscard]] std::unique_ptr<Link> take_link();

    void progress() override;
    void expire() override;
    // Ends the handshake, because others need its place.
    void give_way();

private:
    [[nodiscard]] wire::MpaRole expected_role() const {
        return role_ == Role::Initiator ? wire::MpaRole::Reply : wire::MpaRole::Request;
    }
    void connected();
    [[nodiscard]] bool send_request();
    [[nodiscard]] bool has_its_turn();
    [[nodiscard]] bool go_on_with_tls();
    [[nodiscard]] const char *missing() const;
    void fail(int error, const char *text);
    void fail_to_receive(int error);
    // Returns true when the first `bytes` of the frame have come.
    [[nodiscard]] bool read_up_to(std::size_t bytes);

    HandshakeOwner &owner_;
    const std::shared_ptr<Group> group_;
    std::unique_ptr<Link> link_;
    const tcp::Address peer_;
    const Role role_;
    bool connecting_;
    bool delayed_;
    std::size_t last_look_ = SIZE_MAX;  // the bytes of the frame at the last look behind the deadline
    std::optional<base::Clock::time_point> waits_;  // for its turn, since then
    base::Clock::duration waited_{};                // before that, and not yet added to the deadline
    std::unique_ptr<TlsStart> tls_;                 // until the link is secure
    std::unique_ptr<TlsStart> shaken_;              // from then on
    wire::MpaFrame request_;                        // an initiator's, with private_data_
    std::vector<std::byte> private_data_;
    std::array<std::byte, wire::mpa_max_frame_bytes> frame_{};
    std::size_t frame_bytes_ = 0;
};

}  // namespace soft
