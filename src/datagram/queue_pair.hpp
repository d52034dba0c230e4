// SPDX-License-Identifier: BSD-3-Clause
// datagram/queue_pair: an unreliable-datagram queue pair at one address of this machine, with slots for the
// messages that it sends and receives, and the look-up of the way to a peer.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/interface_table.hpp"
#include "base/result.hpp"
#include "datagram/wire.hpp"
#include "verbs/owned.hpp"

namespace datagram {

// Says how many messages there is room for, in each direction.
struct Room {
    std::size_t receives;
    std::size_t sends;
};

class QueuePair {
public:
    // Works like stream::Device::choose_by().
    static void choose_by(const base::InterfaceTable &chosen);
    // Makes a queue pair at the address, whose port does not matter. ENODEV: no device serves the address.
    // Other errors: the device has no such queue pairs, or no more.
    [[nodiscard]] static base::Result<std::unique_ptr<QueuePair>> create(const Address &here, Room room);
    QueuePair(const QueuePair &) = delete;
    QueuePair &operator=(const QueuePair &) = delete;
    ~QueuePair();

    [[nodiscard]] std::uint32_t number() const { return id_->qp->qp_num; }
    // The longest message, its label included.
    [[nodiscard]] std::size_t most_bytes() const { return most_bytes_; }
    // Returns whether it has failed, and neither sends nor receives any more.
    [[nodiscard]] bool is_broken() const { return is_broken_; }

    // A slot to write a message into, of slot_bytes; empty when all are on their way.
    [[nodiscard]] std::span<std::byte> slot_to_send() const;
    // Sends the first bytes of that slot. Returns false when the device does not take it.
    [[nodiscard]] bool send(std::size_t bytes, ibv_ah *to, std::uint32_t qp_num);
    [[nodiscard]] bool has_sent_all() const { return free_sends_.size() == room_.sends; }

    struct Received {
        std::span<const std::byte> message;  // its label first
        std::uint32_t qp_num;                // of the sender
        // The address that it came from, as the device saw it; nothing where the device does not tell an IP
        // address.
        std::optional<Ip> source;
    };
    // Takes at most `most` completions, and gives what was received to take(Received). Returns how many
    // completions.
    template <typename Take>
    std::size_t poll(std::size_t most, Take take);

    // A look-up that `asker` began has this result. The handle is empty when there is no way.
    struct LookedUp {
        void *asker;
        verbs::AddressHandle handle;
    };
    // Asks for the way to an address, which next_looked_up() gives while the look-up lives.
    [[nodiscard]] base::Result<verbs::Id> look_up(const Address &to, void *asker);
    [[nodiscard]] std::optional<LookedUp> next_looked_up();

    // Between these two calls the descriptor is readable when there is something to poll that was not there
    // when the wait began. There may be any number of waits at once.
    [[nodiscard]] base::Result<int> begin_wait();
    void end_wait(bool others_wait);

private:
    QueuePair(const verbs::Provider &provider, Room room) : provider_{provider}, room_{room} {}
    [[nodiscard]] base::Result<void> bind(const Address &here);
    [[nodiscard]] base::Result<void> find_port(const Ip &here);
    [[nodiscard]] base::Result<void> make_queues();
    [[nodiscard]] std::byte *receive_slot(std::size_t index) const;
    [[nodiscard]] std::byte *send_slot(std::size_t index) const;
    [[nodiscard]] bool post_receive(std::size_t index);
    [[nodiscard]] Received received(const ibv_wc &completion) const;
    [[nodiscard]] verbs::AddressHandle handle_towards(const rdma_cm_id &id) const;

    static constexpr std::size_t most_at_once = 16;
    static constexpr std::uint64_t is_send = 1ULL << 32;  // in a request's number, with the slot's

    const verbs::Provider &provider_;
    const Room room_;
    std::size_t most_bytes_ = 0;
    bool is_ethernet_ = false;
    std::uint8_t gid_index_ = 0;
    bool is_broken_ = false;
    std::vector<std::uint32_t> free_sends_;
    // The members are made in this order: each needs those before it.
    verbs::EventChannel events_;
    verbs::Id id_;
    verbs::ProtectionDomain domain_;
    std::unique_ptr<std::byte[]> bytes_;
    verbs::MemoryRegion region_;
    verbs::CompletionChannel channel_;  // none where the device is waited for without
    verbs::CompletionQueue queue_;
    verbs::QueuePair pair_;
};

template <typename Take>
std::size_t QueuePair::poll(std::size_t most, Take take) {
    std::array<ibv_wc, most_at_once> completions;
    const int count =
        ibv_poll_cq(queue_.get(), static_cast<int>(std::min(most, most_at_once)), completions.data());
    for (const ibv_wc &completion :
         std::span{completions}.first(static_cast<std::size_t>(std::max(count, 0)))) {
        const auto index = static_cast<std::uint32_t>(completion.wr_id);
        is_broken_ = is_broken_ || completion.status != IBV_WC_SUCCESS;
        if ((completion.wr_id & is_send) != 0) {
            free_sends_.push_back(index);
            continue;
        }
        if (completion.status == IBV_WC_SUCCESS) {
            take(received(completion));
        }
        is_broken_ = is_broken_ || !post_receive(index);
    }
    return static_cast<std::size_t>(std::max(count, 0));
}

}  // namespace datagram
