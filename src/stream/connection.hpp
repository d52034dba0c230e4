// SPDX-License-Identifier: BSD-3-Clause
// stream/connection: one byte stream on one connection of librpma. The lock of its shard guards it; the
// caller holds that lock.
//
//      Connection ── Life             how far it has come, which directions have ended (life.hpp)
//                 ├─ RpmaConnection   the request and the connection of librpma, the place in the shard
//                 └─ Exchange         what both ends say to each other, once the peer's Hello is there
//                     ├─ Outgoing     posts: bytes, words, news of mappings
//                     └─ Incoming     the peer's bytes, words and mappings
//
// Connection alone ends the stream: the others return why they cannot go on.
//
// Exchange checks what a peer sends; the first word that the protocol does not allow ends the stream with
// EPROTO.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <vector>

#include "base/address.hpp"
#include "stream/approach.hpp"
#include "stream/exchange.hpp"

namespace stream {

// Take copies the bytes to the program and consumes them, Peek only copies them, Discard only consumes them,
// Count does neither.
enum class Reading { Take, Peek, Discard, Count };

// The owner of a stream is one. The thread that notices a change of the stream tells the owner, with the
// shard's lock held.
class Observer {
public:
    virtual void changed() = 0;

protected:
    ~Observer() = default;
};

class Connection final : private Member {
public:
    using Made = base::Result<std::unique_ptr<Connection>>;

    // The stream joins the shard, or that of this thread. The caller does not hold the shard's lock here, nor
    // in the destructor.
    [[nodiscard]] static Made begin(Approach approach, const Settings &settings, Observer &observer,
                                    std::shared_ptr<Shard> shard);
    [[nodiscard]] static Made begin(base::Result<Approach> approach, const Settings &settings,
                                    Observer &observer);
    // Posted operations still go out, if the device sends them by itself. A forked child never destroys or
    // uses what it inherited: base::leave_to_parent().
    ~Connection();
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    // Returns the lock of the shard.
    [[nodiscard]] base::SmallMutex &mutex() const RETURN_CAPABILITY(shard_->mutex()) {
        return shard_->mutex();
    }
    // Works as Shard::serve().
    [[nodiscard]] bool serve_shard() const REQUIRES(mutex()) { return shard_->serve(); }
    // From now on the stream writes its counters here.
    void report_to(registry::Live &live) REQUIRES(mutex());
    // From now on the stream tells the observer nothing, and writes no counters for other programs.
    void forget_observer() REQUIRES(mutex());
    [[nodiscard]] const std::shared_ptr<Shard> &shard() const { return shard_; }

    // Returns how far the stream has come, and how it ended.
    [[nodiscard]] const Life &life() const REQUIRES(mutex()) { return life_; }
    // Returns whether receive() would give at least `bytes` bytes, or all that can come before some are read,
    // or an end or an error.
    [[nodiscard]] bool can_receive(std::size_t bytes) const REQUIRES(mutex());
    // Returns whether send() would take bytes, or give an error.
    [[nodiscard]] bool can_send() const REQUIRES(mutex());
    [[nodiscard]] std::size_t readable() const REQUIRES(mutex()) {
        return exchange_ ? exchange_->incoming().readable() : 0;
    }
    // Returns the address of one end. ENOTCONN: it is not known yet, or the stream is on a TCP socket of the
    // caller's.
    [[nodiscard]] base::Result<sockaddr_storage> name(base::End end) const REQUIRES(mutex());
    // Returns the private data of the peer's answer, which may be a refusal. It is there until the stream is
    // destroyed.
    [[nodiscard]] std::span<const std::byte> answer() const REQUIRES(mutex());
    // Returns the settings, as far as the device and the protocol allow them.
    [[nodiscard]] const Settings &settings() const { return settings_; }
    // Returns whether a send of many bytes should first look for bytes that have left. The look makes room
    // where there is too little. Where there is a send buffer, the next bytes then take its first place. Few
    // bytes go into the request itself.
    [[nodiscard]] bool looks_before_send(std::size_t bytes) const REQUIRES(mutex()) {
        return bytes > settings_.inline_bytes && exchange_ && !idle() &&
               (!Outgoing::sends_in_place(device_) || !exchange_->outgoing().has_room_at_once(bytes));
    }
    // Returns whether everything that was sent has left this end: the device needs none of it any more.
    [[nodiscard]] bool idle() const REQUIRES(mutex()) {
        return life_.phase() == Phase::Over || !life_.established() ||
               (!life_.owes_word() && exchange_->outgoing().idle());
    }
    // Returns whether, after leave(), the peer has everything that was sent, or cannot have it.
    [[nodiscard]] bool gone() const REQUIRES(mutex()) { return idle() && (!life_.established() || !drains_); }

    // Receives bytes as most come: those that the program wants lie together. Returns how many, and 0
    // when none are taken; receive() then tells why.
    [[nodiscard]] std::size_t receive_at_once(void *bytes, std::size_t size) REQUIRES(mutex());
    // Returns how many bytes; 0 is the end of the stream, where the parts have room for any. EAGAIN: there
    // are none now.
    [[nodiscard]] base::Result<std::size_t> receive(std::span<const iovec> parts, Reading reading)
        REQUIRES(mutex());
    // Sends bytes as most are: in one piece that the device takes during the post, for which there is room.
    // Returns false when none are sent, and send() tells why.
    [[nodiscard]] bool send_at_once(const void *bytes, std::size_t size) REQUIRES(mutex());
    // Returns how many bytes it has posted. EAGAIN: there is no room now. EPIPE: no more may be sent.
    [[nodiscard]] base::Result<std::size_t> send(std::span<const iovec> parts) REQUIRES(mutex());

    // Registers memory for direct placement (direct.cpp). With for_peer the peer may write there, and knows
    // the memory as `offset`; such memory has less than 4 GiB. EAGAIN: there is no peer yet. ENOMEM: the
    // peer has no slot left for it.
    [[nodiscard]] base::Result<void> map(void *begin, std::size_t bytes, bool for_peer, std::uint64_t offset)
        REQUIRES(mutex());
    // Ends the oldest mapping of exactly this memory: the peer cannot write there any more. Fails with EINVAL
    // when there is no such mapping, and with EBUSY when the peer may still write there.
    [[nodiscard]] base::Result<void> unmap(const void *begin, std::size_t bytes) REQUIRES(mutex());
    // Ends all mappings. Fails with EBUSY when the peer may still write into some; these stay.
    [[nodiscard]] base::Result<void> unmap_all() REQUIRES(mutex());
    [[nodiscard]] bool has_mappings() const REQUIRES(mutex()) {
        return exchange_ && exchange_->outgoing().has_mappings();
    }
    // Writes into what the peer has mapped. Returns how many bytes, which are fewer where the mapping ends.
    // ENXIO: nothing is mapped there. EAGAIN and EPIPE have the meaning that they have for send().
    [[nodiscard]] base::Result<std::size_t> write_at(const iovec &from, std::uint64_t offset)
        REQUIRES(mutex());

    // Cuts the stream off at once. Bytes that have not left are lost, and the peer's bytes are placed no
    // more.
    void abort() REQUIRES(mutex());
    // Ends one direction or both.
    void shut(bool receiving, bool sending) REQUIRES(mutex());
    // Ends both directions behind the bytes that were sent. The caller serves the shard until gone().
    void leave() REQUIRES(mutex());

private:
    Connection(std::shared_ptr<Shard> shard, const Approach &approach, const Settings &settings,
               Observer &observer);

    // These connect, and are in connect.cpp.
    [[nodiscard]] base::Result<void> connect() REQUIRES(mutex());
    void meet(const rpma_conn_private_data &data) REQUIRES(mutex());
    void take_request_event() override;
    void take_event(rpma_conn_event event) override;

    // Messages, in messages.cpp.
    void take_completion(const ibv_wc &completion) override;
    void take_unusual(const ibv_wc &completion) REQUIRES(mutex());
    void go_on() override;
    void fail(int number) REQUIRES(mutex());
    // Ends the stream if there is an error, which is 0 or an errno value. Returns whether there is none.
    bool fail_if(int error) REQUIRES(mutex()) {
        if (error != 0) [[unlikely]] {
            fail(error);
        }
        return error == 0;
    }
    void break_off(int number) REQUIRES(mutex());
    void end_for(Trouble trouble) REQUIRES(mutex());

    const std::shared_ptr<Shard> shard_;
    const Device &device_;
    const Side side_;
    const bool on_socket_;
    const Settings settings_;
    Observer *observer_ GUARDED_BY(mutex());
    Report report_ GUARDED_BY(mutex());
    Life life_ GUARDED_BY(mutex()){report_};
    // The device ends the connection by itself when what is posted has left.
    bool drains_ GUARDED_BY(mutex()) = false;
    // Completions that came before the connection was established.
    std::vector<ibv_wc> early_completions_ GUARDED_BY(mutex());

    // Members are destroyed from the last to the first: the connection before the memory that it uses.
    StreamMemory memory_ GUARDED_BY(mutex());
    RpmaConnection rpma_ GUARDED_BY(mutex());

    // It exists from the time when the peer's Hello is known.
    std::optional<Exchange> exchange_ GUARDED_BY(mutex());
};

[[gnu::always_inline]] inline std::size_t Connection::receive_at_once(void *bytes, std::size_t size) {
    const std::size_t received = exchange_->incoming().copy_at_once(bytes, size);
    if (received != 0) [[likely]] {
        (void)fail_if(exchange_->consume(received));
    }
    return received;
}

[[gnu::always_inline]] inline bool Connection::send_at_once(const void *bytes, std::size_t size) {
    if (!life_.may_send() || size - 1 >= settings_.inline_bytes || size > exchange_->outgoing().room())
        [[unlikely]] {
        return false;
    }
    return fail_if(exchange_->outgoing().send_piece(bytes, static_cast<std::uint32_t>(size)));
}

}  // namespace stream
