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

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "registry/record.hpp"
#include "stream/allowance.hpp"
#include "stream/device.hpp"
#include "stream/iomaps.hpp"
#include "stream/listener.hpp"
#include "stream/receive_ring.hpp"
#include "stream/send_ring.hpp"
#include "stream/shard.hpp"
#include "stream/window_list.hpp"

namespace stream {

// Buffers whose size nobody has set. On a device of the kernel all of their memory is pinned. On the soft
// device only what has been used is there.
inline constexpr std::uint32_t usual_bytes = 131072;
inline constexpr std::uint32_t usual_bytes_of_soft = 1048576;

struct Settings {
    std::uint16_t sends = 384;     // messages that may be posted and not complete
    std::uint16_t receives = 384;  // messages of the peer that have a place; 16 at least
    std::uint32_t inline_bytes = 64;
    // 0: as many as are usual on the device.
    std::uint32_t send_bytes = 0;
    std::uint32_t receive_bytes = 0;  // both halves
    std::uint32_t slots = 0;          // mappings that the peer may have here at once
};

enum class Side { Active, Passive };

// Take copies the bytes to the program and consumes them, Peek only copies them, Discard only consumes them,
// Count does neither.
enum class Reading { Take, Peek, Discard, Count };

// The owner of a stream. Whichever thread notices that the stream has changed tells it, with the shard's lock
// held.
class Observer {
public:
    virtual void changed() = 0;

protected:
    ~Observer() = default;
};

class Connection final : private Member {
public:
    using Made = base::Result<std::unique_ptr<Connection>>;

    // The stream joins the shard of this thread. The caller does not hold the shard's lock here, nor in the
    // destructor.
    // Begins a stream over the soft device, on a TCP socket that is connected. On it the peer asks (Passive),
    // or is asked (Active). The socket stays the caller's, who closes it after the connection is destroyed.
    [[nodiscard]] static Made begin(Side side, int socket, const Settings &settings, Observer &observer);
    // Asks the peer at the remote address, over the device of the kernel that serves the local one. When the
    // local port is 0 the device chooses one.
    [[nodiscard]] static Made reach(const Device &device, const sockaddr_storage &local,
                                    const sockaddr_storage &remote, const Settings &settings,
                                    Observer &observer);
    // Answers a peer that asked over a device of the kernel.
    [[nodiscard]] static Made answer(Asked asked, const Settings &settings, Observer &observer);
    // Operations that are posted still go out, where the device sends them without us. A forked child never
    // destroys or uses what it inherited: base::leave_to_parent().
    ~Connection();
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    // The shard has the lock.
    [[nodiscard]] base::SmallMutex &mutex() const RETURN_CAPABILITY(shard_->mutex()) {
        return shard_->mutex();
    }
    // As Shard::serve().
    [[nodiscard]] bool serve_shard() const REQUIRES(mutex()) { return shard_->serve(); }
    // From now on the stream says here how it fares.
    void report_to(registry::Live &live) REQUIRES(mutex());
    // The observer is told nothing any more, and nobody how the stream fares.
    void forget_observer() REQUIRES(mutex());
    [[nodiscard]] const std::shared_ptr<Shard> &shard() const { return shard_; }

    // The stream keeps what is sent before the peer has answered, as much as the send buffer has room for,
    // and sends it when the peer has answered.
    void keep_early_sends() REQUIRES(mutex()) { keeps_early_sends_ = true; }
    // Returns what was sent and kept, and forgets it.
    [[nodiscard]] std::vector<std::byte> take_unsent() REQUIRES(mutex()) {
        return std::exchange(unsent_, {});
    }
    [[nodiscard]] bool has_unsent() const REQUIRES(mutex()) { return !unsent_.empty(); }

    // Whether the request has been sent, or the peer's has been answered.
    [[nodiscard]] bool answered() const REQUIRES(mutex()) { return phase_ != Phase::Asking; }
    [[nodiscard]] bool established() const REQUIRES(mutex()) { return phase_ == Phase::Established; }
    [[nodiscard]] bool was_established() const REQUIRES(mutex()) { return was_established_; }
    // Whether a device has accepted the request, even if there is no stream because of what it said.
    [[nodiscard]] bool was_accepted() const REQUIRES(mutex()) { return was_accepted_; }
    // 0, or an errno value: why the stream broke, or never began.
    [[nodiscard]] int error() const REQUIRES(mutex()) { return error_; }
    // Whether receive() would give at least `bytes` bytes, or all that can come before some are read, or an
    // end or an error.
    [[nodiscard]] bool can_receive(std::size_t bytes) const REQUIRES(mutex());
    // Whether send() would take bytes, or give an error.
    [[nodiscard]] bool can_send() const REQUIRES(mutex());
    // Whether the peer sends no more.
    [[nodiscard]] bool peer_ended() const REQUIRES(mutex()) { return peer_ended_; }
    // Whether nothing can be sent any more, and nothing received but the bytes that have come.
    [[nodiscard]] bool is_over() const REQUIRES(mutex()) { return phase_ == Phase::Over || peer_left_; }
    [[nodiscard]] std::size_t readable() const REQUIRES(mutex()) { return unread_ ? unread_->readable() : 0; }
    // The addresses of both ends, of a stream over a device of the kernel. ENOTCONN: they are not known yet,
    // or the stream is over the soft device.
    [[nodiscard]] base::Result<sockaddr_storage> local_name() const REQUIRES(mutex());
    [[nodiscard]] base::Result<sockaddr_storage> peer_name() const REQUIRES(mutex());
    // The settings, as far as the device and the protocol allow them.
    [[nodiscard]] const Settings &settings() const { return settings_; }
    // Whether a send of many bytes should first look for bytes that have left. The look makes room where
    // there is too little. Where there is a send buffer, the next bytes then take its first place.
    [[nodiscard]] bool looks_before_send(std::size_t bytes) const REQUIRES(mutex()) {
        return !idle() && (!sends_in_place() || posted_->free() < std::min(bytes, most_at_once));
    }
    // Whether everything that was sent has left this end: the device needs none of it any more.
    [[nodiscard]] bool idle() const REQUIRES(mutex()) {
        return phase_ == Phase::Over ||
               (unsent_.empty() && (phase_ != Phase::Established || (!owed_ && posted_->idle())));
    }
    // Whether, after leave(), the peer has everything that was sent, or cannot have it.
    [[nodiscard]] bool gone() const REQUIRES(mutex()) {
        return idle() && (phase_ != Phase::Established || !drains_);
    }

    // Receives bytes as most come: those that the program wants lie together. Returns how many; 0: none are
    // taken, and receive() tells why.
    [[nodiscard]] std::size_t receive_at_once(void *bytes, std::size_t size) REQUIRES(mutex());
    // Returns how many bytes; 0 is the end of the stream, where the parts have room for any. EAGAIN: there
    // are none now.
    [[nodiscard]] base::Result<std::size_t> receive(std::span<const iovec> parts, Reading reading)
        REQUIRES(mutex());
    // Sends bytes as most are: in one piece that the device takes during the post, for which there is room.
    // False: none are sent, and send() tells why.
    [[nodiscard]] bool send_at_once(const void *bytes, std::size_t size) REQUIRES(mutex());
    // Returns how many bytes it has posted. EAGAIN: there is no room now. EPIPE: no more may be sent.
    [[nodiscard]] base::Result<std::size_t> send(std::span<const iovec> parts) REQUIRES(mutex());

    // Direct placement, in direct.cpp.
    // Registers memory. With for_peer the peer may write there, and knows the memory as `offset`; it has less
    // than 4 GiB then. EAGAIN: there is no peer yet. ENOMEM: the peer has no slot left for it.
    [[nodiscard]] base::Result<void> map(void *begin, std::size_t bytes, bool for_peer, std::uint64_t offset)
        REQUIRES(mutex());
    // Ends the oldest mapping of exactly this memory: the peer cannot write there any more. False: there is
    // no such mapping.
    [[nodiscard]] bool unmap(const void *begin, std::size_t bytes) REQUIRES(mutex());
    // Ends all mappings.
    void unmap_all() REQUIRES(mutex());
    // Writes into what the peer has mapped. Returns how many bytes, which are fewer where the mapping ends.
    // ENXIO: nothing is mapped there. EAGAIN and EPIPE as send().
    [[nodiscard]] base::Result<std::size_t> write_at(const iovec &from, std::uint64_t offset)
        REQUIRES(mutex());

    // Cuts the stream off at once; what has not left is lost, and nothing of the peer's is placed any more.
    void abort() REQUIRES(mutex());
    // Ends one direction or both.
    void shut(bool receiving, bool sending) REQUIRES(mutex());
    // Ends both directions, behind what was sent. The caller serves the shard until gone().
    void leave() REQUIRES(mutex());

private:
    enum class Phase { Asking, Connecting, Established, Over };
    // Places in the send queue that are kept for our words that take no credit.
    static constexpr std::uint32_t kept_places = 8;
    static constexpr std::size_t most_at_once = longest_message;
    static constexpr std::size_t receives_at_once = 32;

    Connection(std::shared_ptr<Shard> shard, Side side, const Settings &settings, Observer &observer)
        : shard_{std::move(shard)},
          device_{shard_->device()},
          side_{side},
          settings_{settings},
          observer_{&observer} {}

    // Makes the request of librpma: the one difference between the three ways to begin.
    using MakeRequest = std::function<base::Result<Request>(rpma_conn_cfg *)>;

    // Connecting, in connect.cpp.
    [[nodiscard]] static Made begin(const Device &device, Side side, const Settings &settings,
                                    Observer &observer, const MakeRequest &make_request);
    [[nodiscard]] base::Result<void> ask(const MakeRequest &make_request) REQUIRES(mutex());
    [[nodiscard]] base::Result<void> make_memory() REQUIRES(mutex());
    [[nodiscard]] base::Result<void> connect() REQUIRES(mutex());
    [[nodiscard]] Hello hello() const REQUIRES(mutex());
    void meet(const rpma_conn_private_data &data) REQUIRES(mutex());
    void go_on_asking() REQUIRES(mutex());
    void take_request_event() override;
    void take_event(rpma_conn_event event) override;
    void expect_event(bool expected) REQUIRES(mutex());

    // Messages, in messages.cpp.
    void take_completion(const ibv_wc &completion) override;
    void keep_early(const ibv_wc &completion) REQUIRES(mutex());
    void take_failure(ibv_wc_status status) REQUIRES(mutex());
    void take_closely(std::uint32_t bits) REQUIRES(mutex());
    void go_on() override;
    // The receive of a word that comes as a message, on iWARP. Elsewhere words have no place in memory, and
    // their receives are all alike.
    [[nodiscard]] rpma_recv_op receive_of(std::size_t index) const REQUIRES(mutex()) {
        return {.op_context = reinterpret_cast<const void *>(index),
                .local = private_.get(),
                .offset = index * word_bytes,
                .len = word_bytes,
                .reserved = 0};
    }
    void post_receives() REQUIRES(mutex());
    // Takes a word that tells of no bytes.
    void take_word(Word word) REQUIRES(mutex());
    [[nodiscard]] bool take_windows() REQUIRES(mutex());
    // Whether send_what_is_owed() may have something to send.
    [[nodiscard]] bool owes() const REQUIRES(mutex()) {
        return unread_->owes_update() || owed_ || !unsent_.empty() || own_maps_->has_news();
    }
    void send_what_is_owed() REQUIRES(mutex());
    // Notes that the program has taken bytes, and tells the peer if that is due.
    void consumed(std::size_t bytes) REQUIRES(mutex()) {
        unread_->consume(bytes);
        live_->received_bytes += bytes;
        if (unread_->owes_update() && phase_ == Phase::Established) {
            send_what_is_owed();
        }
    }
    bool send_update() REQUIRES(mutex());
    bool post(std::span<rpma_op> writes_and_room, std::size_t bytes, std::optional<std::uint32_t> word)
        REQUIRES(mutex());
    // Posts a message of these operations. They take `bytes` bytes of the send buffer.
    bool hand_over(std::span<const rpma_op> ops, std::size_t bytes) REQUIRES(mutex()) {
        posted_->posted(bytes, static_cast<std::uint32_t>(ops.size()));
        return hand_over(ops);
    }
    bool hand_over(std::span<const rpma_op> ops) REQUIRES(mutex()) {
        if (const int result = rpma_post(conn_.get(), ops.data(), ops.size(), nullptr); result != 0) {
            // There is a place in the send queue: the device had no memory for what has not left.
            fail(result == RPMA_E_AGAIN ? ENOMEM : ECONNRESET);
            return false;
        }
        return true;
    }
    // How many completions of this stream there may be at once.
    [[nodiscard]] std::uint32_t most_completions() const {
        return settings_.sends + kept_places + settings_.receives;
    }
    [[nodiscard]] std::uint32_t places_of(std::size_t writes) const {
        return static_cast<std::uint32_t>(device_.is_iwarp() ? writes + 1 : std::max<std::size_t>(writes, 1));
    }
    void enter(Phase phase) REQUIRES(mutex());
    void fail(int number) REQUIRES(mutex());
    void break_off(int number) REQUIRES(mutex());
    void violated(const char *what) REQUIRES(mutex());

    // Bytes, in transfer.cpp.
    // Whether a post takes the bytes where they are, and copies what has not left when it returns: the soft
    // device does so with as many as a message has. On other devices bytes are copied into the send buffer.
    [[nodiscard]] bool sends_in_place() const { return !device_.is_of_kernel(); }
    [[nodiscard]] bool may_send() const REQUIRES(mutex()) {
        return phase_ == Phase::Established && may_write_ && !peer_left_;
    }
    // Whether what is sent is kept for later.
    [[nodiscard]] bool keeps_sends() const REQUIRES(mutex()) {
        const bool asks = phase_ == Phase::Asking || phase_ == Phase::Connecting;
        return may_write_ && (!unsent_.empty() ? phase_ != Phase::Over : asks && keeps_early_sends_);
    }
    [[nodiscard]] base::Result<std::size_t> keep(std::span<const iovec> parts) REQUIRES(mutex());
    [[nodiscard]] base::Result<std::size_t> post_bytes(std::span<const iovec> parts) REQUIRES(mutex());
    void send_unsent() REQUIRES(mutex());
    // Returns an errno value.
    [[nodiscard]] int why_not_send() const REQUIRES(mutex());
    bool put(std::span<const iovec> parts, std::size_t skip, Target to, bool tells) REQUIRES(mutex());
    bool put_copied(std::span<const iovec> parts, std::size_t skip, Target to, bool tells) REQUIRES(mutex());
    void prepare_message() REQUIRES(mutex());
    bool post_message(const void *bytes, const Target &to) REQUIRES(mutex());
    [[nodiscard]] std::size_t room_for_message() const REQUIRES(mutex());
    [[nodiscard]] std::size_t next_message(std::size_t most) const REQUIRES(mutex());
    void count_message(std::uint32_t bytes) REQUIRES(mutex()) {
        ++live_->sent_messages;
        live_->sent_bytes += bytes;
    }
    // Counts a send that finds no room, once until the next message.
    void note_stall() REQUIRES(mutex());

    // Mappings, in direct.cpp.
    [[nodiscard]] bool take_slot(std::uint32_t index) REQUIRES(mutex());
    void tell_mappings() REQUIRES(mutex());

    // shared_ is the memory that the peer writes: the list, then the receive buffer. private_ has the places
    // of the words that come, then the send buffer, if there is one.
    [[nodiscard]] std::byte *list() const REQUIRES(mutex()) { return shared_base_; }
    [[nodiscard]] std::size_t list_bytes() const {
        return windows * window_bytes + settings_.slots * slot_bytes;
    }
    [[nodiscard]] std::byte *buffer() const REQUIRES(mutex()) { return buffer_; }
    [[nodiscard]] std::byte *words() const REQUIRES(mutex()) { return private_base_; }
    [[nodiscard]] std::size_t send_buffer_at() const { return std::size_t{settings_.receives} * word_bytes; }

    const std::shared_ptr<Shard> shard_;
    const Device &device_;
    const Side side_;
    const Settings settings_;
    Observer *observer_ GUARDED_BY(mutex());
    registry::Live unreported_ GUARDED_BY(mutex());
    registry::Live *live_ GUARDED_BY(mutex()) = &unreported_;
    // The messages that were sent before the last stall.
    std::uint64_t stalled_at_ GUARDED_BY(mutex()) = UINT64_MAX;
    Shard::Lane *lane_ GUARDED_BY(mutex()) = nullptr;
    std::uint32_t number_ GUARDED_BY(mutex()) = 0;  // the queue pair's, of conn_
    bool expects_event_ GUARDED_BY(mutex()) = false;
    Phase phase_ GUARDED_BY(mutex()) = Phase::Asking;
    int error_ GUARDED_BY(mutex()) = 0;

    // Members are destroyed from the last to the first: the connection before the memory that it uses.
    Memory shared_ GUARDED_BY(mutex());
    Memory private_ GUARDED_BY(mutex());
    std::byte *shared_base_ GUARDED_BY(mutex()) = nullptr;
    std::byte *buffer_ GUARDED_BY(mutex()) = nullptr;
    std::byte *private_base_ GUARDED_BY(mutex()) = nullptr;
    std::uint32_t shared_key_ GUARDED_BY(mutex()) = 0;
    Request request_ GUARDED_BY(mutex());
    Connected conn_ GUARDED_BY(mutex());

    // These are there once the peer's Hello is.
    std::optional<Allowance> allowance_ GUARDED_BY(mutex());
    std::optional<WindowList> granted_ GUARDED_BY(mutex());
    std::optional<ReceiveRing> unread_ GUARDED_BY(mutex());
    std::optional<SendRing> posted_ GUARDED_BY(mutex());
    std::optional<OwnMaps> own_maps_ GUARDED_BY(mutex());
    std::optional<PeerMaps> peer_maps_ GUARDED_BY(mutex());
    Target peer_list_ GUARDED_BY(mutex());
    // A message of bytes that the device takes during the post: a write, and on iWARP the word behind it.
    std::array<rpma_op, 2> message_ GUARDED_BY(mutex()){};
    std::uint32_t message_ops_ GUARDED_BY(mutex()) = 0;
    std::uint32_t message_word_ GUARDED_BY(mutex()) = 0;
    // Receives of words that have come, to be posted again together.
    std::array<rpma_recv_op, receives_at_once> taken_ GUARDED_BY(mutex()){};
    std::uint32_t taken_count_ GUARDED_BY(mutex()) = 0;
    std::endian peer_order_ GUARDED_BY(mutex()) = std::endian::native;
    bool peer_counts_slots_ GUARDED_BY(mutex()) = false;
    // Completions that came before the connection was established.
    std::vector<ibv_wc> early_ GUARDED_BY(mutex());
    // The entry of the peer's list that is written next.
    std::uint32_t peer_window_ GUARDED_BY(mutex()) = 1;

    bool was_accepted_ GUARDED_BY(mutex()) = false;
    bool was_established_ GUARDED_BY(mutex()) = false;
    bool may_read_ GUARDED_BY(mutex()) = true;
    bool may_write_ GUARDED_BY(mutex()) = true;
    bool peer_ended_ GUARDED_BY(mutex()) = false;
    bool peer_left_ GUARDED_BY(mutex()) = false;
    // The device ends the connection by itself when what is posted has left.
    bool drains_ GUARDED_BY(mutex()) = false;
    bool keeps_early_sends_ GUARDED_BY(mutex()) = false;
    std::vector<std::byte> unsent_ GUARDED_BY(mutex());
    // The word that tells the peer of our end, sent as soon as the send queue has a place.
    std::optional<Control> owed_ GUARDED_BY(mutex());
};

inline std::size_t Connection::room_for_message() const {
    // News of mappings go to the peer before any later byte.
    const std::size_t room = own_maps_->has_news() ? 0 : posted_->room(message_ops_ + 1);
    return std::min(room, std::size_t{allowance_->room()});
}

// Posts a message of bytes that the device takes during the post. It changes what prepare_message() has
// prepared, because most messages are like this.
[[gnu::always_inline]] inline bool Connection::post_message(const void *bytes, const Target &to) {
    message_word_ = encode(Op::Data, to.length);
    rpma_op &write = message_[0];
    write.bytes = bytes;
    write.len = to.length;
    write.remote_addr = to.address;
    write.remote_key = to.key;
    write.imm = message_word_;
    if (message_ops_ == 1) {  // on iWARP the word behind the write completes
        const bool is_silent = posted_->may_be_silent(to.length);
        write.flags = is_silent ? RPMA_F_COMPLETION_ON_ERROR : RPMA_F_COMPLETION_ALWAYS;
        if (is_silent) [[likely]] {
            posted_->posted_silently(to.length);
            return hand_over({message_.data(), 1});
        }
    }
    return hand_over({message_.data(), message_ops_}, to.length);
}

[[gnu::always_inline]] inline std::size_t Connection::receive_at_once(void *bytes, std::size_t size) {
    const Part unread = unread_->front();
    const std::size_t received = std::min(size, unread.size);
    if (received < std::min(size, unread_->readable())) [[unlikely]] {
        return 0;  // the rest is where the buffer begins
    }
    std::memcpy(bytes, buffer() + unread.offset, received);
    consumed(received);
    return received;
}

[[gnu::always_inline]] inline bool Connection::send_at_once(const void *bytes, std::size_t size) {
    if (!may_send() || !unsent_.empty() || size - 1 >= settings_.inline_bytes || size > room_for_message())
        [[unlikely]] {
        return false;
    }
    const auto length = static_cast<std::uint32_t>(size);
    if (!post_message(bytes, allowance_->take(length))) [[unlikely]] {
        return false;  // the stream is over
    }
    count_message(length);
    return true;
}

}  // namespace stream
