// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/any_queue_pair: the functions of a queue pair of any type (connected: RC, UC and XRC; datagram:
// UD) that verbs calls, and the table of queue pairs by number.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/result.hpp"
#include "soft/queues/completion_queue.hpp"
#include "soft/queues/xrc_domain.hpp"
#include "soft/wire/by_number.hpp"

namespace soft {

// UD queue pairs have their UDP port in their number (datagram/queue_pair.hpp); all others have lower
// numbers than the first of these. Those that can be connected by number have the TCP port at which their
// peers find them in the lower 16 bits (cm/by_number.hpp), and the others a number there that is no such
// port.
using wire::first_datagram_number;
inline constexpr std::uint32_t lowest_port_of_number = 1024;

// Types that have only one of the two queues, and those whose peer acknowledges requests.
[[nodiscard]] constexpr bool is_xrc(ibv_qp_type type) {
    return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}
[[nodiscard]] constexpr bool is_reliable(ibv_qp_type type) {
    return type == IBV_QPT_RC || is_xrc(type);
}

class WorkRequests;

// An ibv_qp_ex with the layout of verbs.h. The constructor counts it as a user of its protection domain,
// completion queues and XRC domain; the destructor undoes that.
class AnyQueuePair : public ibv_qp_ex, public Completing {
public:
    static void destroy(AnyQueuePair *queue_pair);
    virtual ~AnyQueuePair();
    AnyQueuePair(const AnyQueuePair &) = delete;
    AnyQueuePair &operator=(const AnyQueuePair &) = delete;

    // Returns the queue pair of a pointer that verbs passes; null for null.
    [[nodiscard]] static AnyQueuePair *of(ibv_qp *qp) {
        return static_cast<AnyQueuePair *>(reinterpret_cast<ibv_qp_ex *>(qp));
    }
    [[nodiscard]] static const AnyQueuePair *of(const ibv_qp *qp) {
        return static_cast<const AnyQueuePair *>(reinterpret_cast<const ibv_qp_ex *>(qp));
    }
    // A queue pair that is not destroyed while this lives. A thread with a Hold may wait for the queue pair's
    // group; it delays only a thread that destroys this queue pair.
    class Hold {
    public:
        Hold() = default;
        explicit Hold(AnyQueuePair &queue_pair);
        Hold(Hold &&other) noexcept : queue_pair_{std::exchange(other.queue_pair_, nullptr)} {}
        Hold &operator=(Hold &&) = delete;
        ~Hold();
        // Returns null when there is no queue pair.
        [[nodiscard]] AnyQueuePair *get() const { return queue_pair_; }

    private:
        AnyQueuePair *queue_pair_ = nullptr;
    };
    // Returns the queue pair that has a number.
    [[nodiscard]] static Hold find(std::uint32_t number);
    // Lets find() return the queue pair. It is called after the constructors, when the queue pair is
    // complete.
    void show_number();

    // ---- verbs: they return 0 or an errno value; EINVAL in a child of the process that made it ----
    // The part of a chain that is posted when one of its requests cannot be.
    enum class ChainPart : std::uint8_t { BeforeTheBad, Nothing };
    int post_send(ibv_send_wr *request, ibv_send_wr **bad, ChainPart when_bad) {
        return inherited() ? fail_inherited(request, bad) : post_sends(request, bad, when_bad);
    }
    int post_receive(ibv_recv_wr *request, ibv_recv_wr **bad) {
        return inherited() ? fail_inherited(request, bad) : post_receives(request, bad);
    }
    int modify(const ibv_qp_attr &attributes, int mask) {
        return inherited() ? EINVAL : change_state(attributes, mask);
    }
    int query(ibv_qp_attr &attributes, ibv_qp_init_attr &init) const;
    [[nodiscard]] bool inherited() const { return send_queue_cq_.inherited(); }
    // Returns null when it belongs to no XRC domain.
    [[nodiscard]] const XrcHandle *xrcd() const { return xrcd_; }
    // Returns a number, not 0, that no other queue pair ever has, unlike qp_num.
    [[nodiscard]] std::uint64_t creation() const { return creation_; }
    // Returns the SOFTRDMA_OPERATION_ bits of its peer.
    [[nodiscard]] virtual unsigned peer_operations() const { return 0; }
    // Returns the reason why its connection ended, as an errno value; 0 before the end, and after an orderly
    // end.
    [[nodiscard]] virtual int end_error() const { return 0; }
    // Returns how many paths its connection has; none when it is not one of MPTCP.
    [[nodiscard]] virtual std::optional<std::size_t> paths() const { return std::nullopt; }
    // Returns the name of the link of its connection; null when there never was one.
    [[nodiscard]] const char *link_name() const { return link_name_.load(std::memory_order_acquire); }

    // Takes the object by which requests can be prepared one by one; the table of ibv_qp_ex is filled in.
    void prepare_requests_by(std::shared_ptr<WorkRequests> requests) { prepared_ = std::move(requests); }
    // Returns null when there is no such object.
    [[nodiscard]] WorkRequests *prepared_requests() const { return prepared_.get(); }

protected:
    // `number` is one that no other has, or 0 for the next free one that names no port. One of type XRC_RECV
    // belongs to `xrcd`. With `original` the queue pair is another handle of that one, whose number it tells,
    // and find() does not return it.
    AnyQueuePair(ibv_pd &domain, const ibv_qp_init_attr &attributes, std::uint32_t number = 0,
                 XrcHandle *xrcd = nullptr, const AnyQueuePair *original = nullptr);
    // Lets the completions stay in their queues without freeing places of this queue pair. It is called
    // before the destructor ends.
    void forget_completions();
    // Removes the number from the table, and waits until every Hold is gone. leave() of each type calls it
    // without a lock.
    void forget_number();
    // `name` is valid for ever.
    void set_link_name(const char *name) { link_name_.store(name, std::memory_order_release); }

    // Closes one of the handles of the queue pair (ibv_open_qp). Returns whether it was the last.
    [[nodiscard]] virtual bool close() { return true; }
    // The functions of each type, for the process that made the queue pair. leave() ends it before its
    // destructor, which may not begin while its group serves it.
    virtual void leave() = 0;
    virtual int post_sends(ibv_send_wr *request, ibv_send_wr **bad, ChainPart when_bad) = 0;
    virtual int post_receives(ibv_recv_wr *request, ibv_recv_wr **bad) = 0;
    virtual int change_state(const ibv_qp_attr &attributes, int mask) = 0;
    // Tells query() the state, and the attributes that only this type has.
    virtual void query_state(ibv_qp_attr &attributes) const = 0;

    CompletionQueue &send_queue_cq_;
    CompletionQueue &receive_queue_cq_;
    const ibv_qp_cap cap_;
    const bool signal_all_;

private:
    template <typename Request>
    static int fail_inherited(Request *request, Request **bad) {
        *bad = request;
        return EINVAL;
    }

    XrcHandle *const xrcd_;  // or null; its domain may own the protection domain and the completion queues
    const std::uint64_t creation_;
    std::atomic<unsigned> holds_{0};
    std::atomic<const char *> link_name_{nullptr};
    std::shared_ptr<WorkRequests> prepared_;
};

// Returns the sizes that a queue pair gets, at least those that are asked for. Fails with EINVAL when they
// exceed the device's limits, or when its queues belong to a parent process.
[[nodiscard]] base::Result<ibv_qp_cap> granted_sizes(const ibv_qp_init_attr &attributes);

}  // namespace soft
