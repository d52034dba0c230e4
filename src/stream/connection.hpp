// SPDX-License-Identifier: BSD-3-Clause
// stream/connection: one byte stream on one connection of librpma. The lock of its shard guards it, which the
// caller holds.
//
//                        reply, or first message             both directions ended, or broken
//      Asking ──────► Connecting ─────────► Established ─────────────────────────► Over
//         request came, or none is needed
//
// take_word checks what a peer sends; the first word that the protocol does not allow ends the stream with
// EPROTO.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <functional>
#include <vector>

#include "stream/allowance.hpp"
#include "stream/device.hpp"
#include "stream/iomaps.hpp"
#include "stream/listener.hpp"
#include "stream/receive_ring.hpp"
#include "stream/send_ring.hpp"
#include "stream/shard.hpp"
#include "stream/window_list.hpp"

namespace stream {

struct Settings {
    std::uint16_t sends = 384;     // messages that may be posted and not complete
    std::uint16_t receives = 384;  // messages of the peer that have a place; 16 at least
    std::uint32_t inline_bytes = 64;
    std::uint32_t send_bytes = 131072;
    std::uint32_t receive_bytes = 131072;  // both halves
    std::uint32_t slots = 0;               // mappings that the peer may have here at once
};

enum class Side { Active, Passive };

// Take hands the bytes over, Peek leaves them there as well, Discard only takes them away, Count does
// neither.
enum class Reading { Take, Peek, Discard, Count };

// Who is told, with the shard's lock held, when something has become of a stream, whoever noticed.
class Observer {
public:
    virtual void changed() = 0;

protected:
    ~Observer() = default;
};

class Connection final : private Member {
public:
    using Made = base::Result<std::unique_ptr<Connection>>;

    // The stream is of this thread's shard, whose lock the caller does not hold here, nor in the destructor.
    //
    // Over the soft device. socket: connected, over TCP; the peer is about to ask on it (Passive), or to be
    // asked. It stays the caller's, who closes it after the connection is destroyed.
    [[nodiscard]] static Made begin(Side side, int socket, const Settings &settings, Observer &observer);
    // Over a device of the kernel, which serves the local address: asks the peer at the remote one. A local
    // port of 0 is the device's choice.
    [[nodiscard]] static Made reach(const Device &device, const sockaddr_storage &local,
                                    const sockaddr_storage &remote, const Settings &settings,
                                    Observer &observer);
    // Over a device of the kernel: answers a peer that asked.
    [[nodiscard]] static Made answer(Asked asked, const Settings &settings, Observer &observer);
    // Operations that are posted still go out, as far as the device can see to that.
    ~Connection();
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    // The observer goes; with the shard's lock.
    void forget_observer() { observer_ = nullptr; }
    // Of a process that has forked this one: it cannot be used, and is not to be locked.
    [[nodiscard]] bool inherited() const { return shard_->inherited(); }
    [[nodiscard]] const std::shared_ptr<Shard> &shard() const { return shard_; }

    // The peer knows whether it is connected.
    [[nodiscard]] bool answered() const { return phase_ != Phase::Asking; }
    [[nodiscard]] bool established() const { return phase_ == Phase::Established; }
    [[nodiscard]] bool was_established() const { return was_established_; }
    // 0, or why it is broken or never was.
    [[nodiscard]] int error() const { return error_; }
    // Whether receive() would have bytes, at least so many or all that can come before some are read, or an
    // end or error to tell.
    [[nodiscard]] bool can_receive(std::size_t bytes) const;
    // Whether send() would take bytes, or an error to tell.
    [[nodiscard]] bool can_send() const;
    // The peer sends no more.
    [[nodiscard]] bool peer_ended() const { return peer_ended_; }
    // Nothing can be sent or received any more, except what is here.
    [[nodiscard]] bool is_over() const { return phase_ == Phase::Over || peer_left_; }
    [[nodiscard]] std::size_t readable() const { return unread_ ? unread_->readable() : 0; }
    // The ends' addresses where a device of the kernel has them; ENOTCONN: not known yet, or not here.
    [[nodiscard]] base::Result<sockaddr_storage> local_name() const;
    [[nodiscard]] base::Result<sockaddr_storage> peer_name() const;
    // Everything that was sent has left: the device needs none of it any more.
    [[nodiscard]] bool idle() const { return phase_ != Phase::Established || (!owed_ && posted_->idle()); }
    // leave() was called, and the peer has everything that was sent, or cannot have it.
    [[nodiscard]] bool gone() const { return phase_ != Phase::Established || (!drains_ && idle()); }

    // How many bytes; 0 is the end of the stream, where there is room for any. EAGAIN: none now.
    [[nodiscard]] base::Result<std::size_t> receive(std::span<const iovec> parts, Reading reading);
    // How many bytes are on their way. EAGAIN: there is no room now. EPIPE: no more may be sent.
    [[nodiscard]] base::Result<std::size_t> send(std::span<const iovec> parts);

    // Direct placement, in direct.cpp.
    // Registers memory; for_peer: the peer may write there, and knows it as `offset`, at most 4 GiB of it.
    // EAGAIN: there is no peer yet. ENOMEM: the peer has no slot left for it.
    [[nodiscard]] base::Result<void> map(void *begin, std::size_t bytes, bool for_peer, std::uint64_t offset);
    // Ends the oldest mapping of exactly this memory: the peer cannot write there any more. False: there is
    // none.
    [[nodiscard]] bool unmap(const void *begin, std::size_t bytes);
    // Ends all mappings.
    void unmap_all();
    // Writes into what the peer has mapped. How many bytes; fewer where the mapping ends. ENXIO: nothing is
    // mapped there. EAGAIN and EPIPE as send().
    [[nodiscard]] base::Result<std::size_t> write_at(const iovec &from, std::uint64_t offset);

    // Ends at once, and lets nobody wait for what has not left.
    void abort();
    // Ends one direction or both.
    void shut(bool receiving, bool sending);
    // Ends both, behind what was sent. serve() takes it further until gone().
    void leave();

private:
    enum class Phase { Asking, Connecting, Established, Over };
    // Places in the send queue for words of ours that take no credit, two or three places each.
    static constexpr std::uint32_t kept_places = 8;
    // Bytes of a message.
    static constexpr std::size_t most_at_once = 65536;

    Connection(std::shared_ptr<Shard> shard, Side side, const Settings &settings, Observer &observer)
        : shard_{std::move(shard)},
          device_{shard_->device()},
          side_{side},
          settings_{settings},
          observer_{&observer} {}

    // How the connection manager comes by it: the one difference between the three ways to begin.
    using MakeRequest = std::function<base::Result<Request>(rpma_conn_cfg *)>;

    // Connecting, in connect.cpp.
    [[nodiscard]] static Made begin(const Device &device, Side side, const Settings &settings,
                                    Observer &observer, const MakeRequest &make_request);
    [[nodiscard]] base::Result<void> ask(const MakeRequest &make_request);
    [[nodiscard]] base::Result<void> make_memory();
    [[nodiscard]] base::Result<void> connect();
    [[nodiscard]] Hello hello() const;
    void meet(const rpma_conn_private_data &data);
    void go_on_asking();
    void take_request_event() override;
    void take_event(rpma_conn_event event) override;
    void expect_event(bool expected);

    // Messages, in messages.cpp.
    void take_completion(const ibv_wc &completion) override;
    void take_failure(ibv_wc_status status);
    void go_on() override;
    void take_word(Word word);
    [[nodiscard]] bool take_windows();
    void send_what_is_owed();
    bool send_update();
    bool post(std::span<rpma_op> writes_and_room, std::size_t bytes, std::optional<std::uint32_t> word);
    // That are there at once.
    [[nodiscard]] std::uint32_t most_completions() const {
        return settings_.sends + kept_places + settings_.receives;
    }
    [[nodiscard]] std::uint32_t places_of(std::size_t writes) const {
        return static_cast<std::uint32_t>(device_.is_iwarp() ? writes + 1 : std::max<std::size_t>(writes, 1));
    }
    void fail(int number);
    void break_off(int number);
    void violated(const char *what);

    // Bytes, in transfer.cpp.
    [[nodiscard]] base::Result<void> may_send() const;
    [[nodiscard]] std::size_t send_message(std::span<const iovec> parts, std::size_t skip, std::size_t most);
    bool put(std::span<const iovec> parts, std::size_t skip, Target to, std::optional<std::uint32_t> word);
    [[nodiscard]] std::size_t next_message(std::size_t most) const;

    // Mappings, in direct.cpp.
    [[nodiscard]] bool take_slot(std::uint32_t index);
    void tell_mappings();

    // The memory that the peer writes, and ours.
    [[nodiscard]] std::byte *list() const { return shared_base_; }
    [[nodiscard]] std::size_t list_bytes() const {
        return windows * window_bytes + settings_.slots * slot_bytes;
    }
    [[nodiscard]] std::byte *buffer() const;
    [[nodiscard]] std::byte *words() const { return private_base_; }
    [[nodiscard]] std::size_t send_buffer_at() const { return std::size_t{settings_.receives} * word_bytes; }

    const std::shared_ptr<Shard> shard_;
    const Device &device_;
    Side side_;
    Settings settings_;
    Observer *observer_;
    Shard::Lane *lane_ = nullptr;
    std::uint32_t number_ = 0;  // of conn_
    bool expects_event_ = false;
    Phase phase_ = Phase::Asking;
    int error_ = 0;

    // The connection goes first, then what it uses.
    Memory shared_;
    Memory private_;
    std::byte *shared_base_ = nullptr;
    std::byte *private_base_ = nullptr;
    std::uint32_t shared_key_ = 0;
    Request request_;
    Connected conn_;

    // Known from the peer's Hello on.
    std::optional<Allowance> allowance_;
    std::optional<WindowList> granted_;
    std::optional<ReceiveRing> unread_;
    std::optional<SendRing> posted_;
    std::optional<OwnMaps> own_maps_;
    std::optional<PeerMaps> peer_maps_;
    Target peer_list_;
    std::endian peer_order_ = std::endian::native;
    bool peer_counts_slots_ = false;
    // What completed before.
    std::vector<ibv_wc> early_;
    // The window of the peer's list that is written next.
    std::uint32_t peer_window_ = 1;

    bool was_established_ = false;
    bool may_read_ = true;
    bool may_write_ = true;
    bool peer_ended_ = false;
    bool peer_left_ = false;
    // The device ends the connection by itself behind what is posted.
    bool drains_ = false;
    // How it is said to the peer that we end, as soon as there is a place for it.
    std::optional<Control> owed_;
};

}  // namespace stream
