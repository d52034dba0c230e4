// SPDX-License-Identifier: BSD-3-Clause
// carry_device/copy: one end's copy of a link, on a connection of librpma, and what the peer's copy is known
// to have. The agent makes it and serves its events; the program's threads push.
#pragma once

#include <librpma.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "carry/link.hpp"
#include "carry/mirror.hpp"
#include "carry_device/spare.hpp"

namespace carry_device {

template <auto end>
struct Ends {
    template <typename Object>
    void operator()(Object *object) const {
        (void)end(&object);
    }
};
using LocalMemory = std::unique_ptr<rpma_mr_local, Ends<rpma_mr_dereg>>;
using RemoteMemory = std::unique_ptr<rpma_mr_remote, Ends<rpma_mr_remote_delete>>;
using Conn = std::unique_ptr<rpma_conn, Ends<rpma_conn_delete>>;
using Request = std::unique_ptr<rpma_conn_req, Ends<rpma_conn_req_delete>>;
using Configuration = std::unique_ptr<rpma_conn_cfg, Ends<rpma_conn_cfg_delete>>;

// The private data, by which an end says who it is. It has the same bytes on every machine that has the same
// Link.
struct Hello {
    std::uint32_t mark = static_cast<std::uint32_t>(carry::Link::mark);
    std::uint16_t port = 0;   // of the spare
    std::uint8_t side = 0;    // of the end that says it
    std::uint8_t size = 0;    // of the descriptor
    std::uint64_t proof = 0;  // that it has the connection
    std::uint64_t key = 0;    // of the spare
    char descriptor[30]{};    // of the copy
};
static_assert(sizeof(Hello) == 56);  // the least that a device takes

class Copy final : public carry::Mirror {
public:
    static constexpr std::uint32_t sends = 256;
    static constexpr std::uint32_t receives = 64;

    // The two ends' proofs that they have the connection: the own one, and the peer's as it has to be.
    struct Proofs {
        std::uint64_t own = 0;
        std::uint64_t peers = 0;
    };

    Copy(std::uint32_t place, const carry::FourTuple &connection, const Proofs &proofs, int agents_bell);
    ~Copy() override;

    // Puts memory of this process's own in the place of that of all Copies, those of its parents too. Returns
    // false without memory.
    [[nodiscard]] static bool share_no_more();

    // ---- the agent ----
    // Where this end's agent is found when the device has lost the peer.
    void announces(const SparePort &spare) { own_spare_ = spare; }
    // Makes the memory known to the device. Returns false when the device refuses it.
    [[nodiscard]] bool enter(rpma_peer *peer);
    [[nodiscard]] Hello hello() const;
    // Connects, or accepts, and posts the receives before.
    [[nodiscard]] bool connect(Request request);
    [[nodiscard]] bool take_hello(const rpma_conn_private_data &data);
    // The connection is there.
    [[nodiscard]] bool begin();
    [[nodiscard]] rpma_conn *conn() const { return conn_.get(); }
    [[nodiscard]] rpma_cq *receive_queue() const { return receive_queue_; }
    // Takes the messages that have come. Returns whether any has.
    [[nodiscard]] bool hear();
    // The device has lost the peer.
    void lose_device();
    [[nodiscard]] bool has_lost_device() const { return has_lost_device_.load(std::memory_order_acquire); }
    // From here on the device writes nothing to this end's copy.
    void leave_device();
    // From here on the connection brings what the peer's copy may lack.
    void go_on(Watched fd);
    [[nodiscard]] bool has_spare();
    // There is no other way to the peer either.
    void lose();
    // Pushes what had no room. Returns whether something is left.
    [[nodiscard]] bool catch_up();
    // Returns whether a turn is settled of which that was asked in vain; once.
    [[nodiscard]] bool settle_late();
    [[nodiscard]] bool awaits_turn();
    // Returns whether the device has sent all that was pushed.
    [[nodiscard]] bool is_quiet();

    [[nodiscard]] std::uint32_t place() const { return place_; }
    [[nodiscard]] const SparePort &own_spare() const { return own_spare_; }
    [[nodiscard]] const SparePort &peers_spare() const { return peers_spare_; }

    // ---- carry::Mirror ----
    [[nodiscard]] carry::Link &link() override { return *link_; }
    void push() override;
    void push_and_tell() override;
    bool settles_turn() override;
    [[nodiscard]] bool has_settled_turn() override;
    [[nodiscard]] bool is_cut_off() override { return has_lost_device() && !is_lost() && !has_spare(); }
    [[nodiscard]] bool is_lost() const override { return is_lost_.load(std::memory_order_acquire); }
    [[nodiscard]] bool wants_back() const override { return wants_back_.load(std::memory_order_acquire); }

private:
    // The peer's copy has this, or will have it by what is posted.
    struct Pushed {
        bool any = false;
        std::uint64_t put = 0;
        std::uint64_t doorbells = 0;
        std::uint32_t turn = 0;
        std::array<std::byte, 28> receiver{};
        std::array<std::uint32_t, 4> words{};
    };
    struct Mapping;
    class Batch;
    void push_all();
    void add_ring(Batch &batch, std::uint64_t put) const;
    [[nodiscard]] bool post(Batch &batch, std::uint32_t turn, bool settles, bool tells);
    void send(Batch &batch, std::uint32_t turn);
    void collect();
    [[nodiscard]] bool has_room() const;
    [[nodiscard]] bool may_tell() const;
    [[nodiscard]] bool say_state() const;
    void wait_for_peer() const;
    void wake_agent() const;

    const std::uint32_t place_;
    const std::uint32_t side_;
    const Proofs proofs_;
    const int agents_bell_;
    SparePort own_spare_;
    SparePort peers_spare_;
    carry::Link *link_;
    Mapping *mapping_ = nullptr;
    LocalMemory memory_;
    RemoteMemory peers_;
    Conn conn_;
    rpma_cq *queue_ = nullptr;
    rpma_cq *receive_queue_ = nullptr;
    std::mutex mutex_;
    Pushed pushed_;
    std::uint32_t open_ = 0;     // operations that may be under way
    std::uint32_t unasked_ = 0;  // posted since the last one with a completion
    std::uint32_t settled_ = 0;  // the last turn in the ring that the peer's copy is known to have
    std::uint32_t told_ = 0;     // messages
    std::uint64_t pushes_ = 0;   // by the device
    bool awaits_turn_ = false;   // the agent tells when it is settled
    bool is_late_ = false;       // something found no room
    bool owes_message_ = false;  // to the peer's agent
    std::unique_ptr<Spare> spare_;
    bool has_message_ = false;  // of the spare connection
    std::atomic<bool> has_lost_device_{false};
    std::atomic<bool> wants_back_{false};
    std::atomic<bool> is_lost_{false};
};

}  // namespace carry_device
