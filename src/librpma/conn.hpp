// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn: a connection, from its request or its acceptance on.
#pragma once

#include <algorithm>
#include <atomic>

#include "base/shared_value.hpp"
#include "librpma/connection_resources.hpp"
#include "librpma/flush_buffer.hpp"
#include "librpma/id_owner.hpp"
#include "librpma/mr_remote.hpp"

struct rpma_conn final : librpma::IdOwner {
public:
    rpma_conn(const rpma_peer &peer, const librpma::ConnectionConfiguration &configuration)
        : IdOwner{Kind::Connection},
          peer_{peer},
          provider_{peer.provider()},
          flush_buffer_{peer},
          inline_size_{configuration.inline_size},
          most_source_bytes_{std::max(inline_size_, librpma::least_inline_size)},
          checks_bounds_{configuration.bounds_check},
          needs_checks_from_{inline_size_ > 0 || checks_bounds_ ? 0 : std::size_t{UINT32_MAX} + 1} {}
    // Takes the id's events. The request, or the answer to it, is sent after that.
    void begin(librpma::ConnectionResources connection);
    // Gives the connection back, when the request or the answer could not be sent.
    [[nodiscard]] librpma::ConnectionResources give_back();

    [[nodiscard]] const rpma_peer &peer() const { return peer_; }
    [[nodiscard]] const verbs::Provider &provider() const { return provider_; }
    [[nodiscard]] ibv_qp *qp() const { return qp_; }
    [[nodiscard]] const rdma_cm_id &id() const { return *connection_.id; }
    // Returns nullptr when events go to an rpma_events.
    [[nodiscard]] rdma_event_channel *event_channel() const { return connection_.event_channel.get(); }
    [[nodiscard]] rpma_cq *cq() const { return connection_.cq; }
    [[nodiscard]] rpma_cq *rcq() const { return connection_.rcq; }
    // Returns up to how many bytes a source is taken during the post.
    [[nodiscard]] std::uint32_t inline_size() const { return inline_size_; }
    // Returns how long a source may be that is given as bytes.
    [[nodiscard]] std::uint32_t most_source_bytes() const { return most_source_bytes_; }
    [[nodiscard]] bool checks_bounds() const { return checks_bounds_; }
    // Returns whether a post of `len` bytes has to check the bounds or the inline size, or is too long. It is
    // one comparison, because every post makes it.
    [[nodiscard]] bool needs_checks(std::size_t len) const { return len >= needs_checks_from_; }
    // Returns whether the device does a write only after the flushes ahead of it.
    [[nodiscard]] bool keeps_order() const {
        return provider_.capabilities.keeps_order && has_native(verbs::native_flush);
    }
    [[nodiscard]] rpma_conn_private_data private_data() const { return connection_.private_data.view(); }
    // Returns nullptr when each completion queue has its own channel.
    [[nodiscard]] ibv_comp_channel *shared_channel() const { return connection_.shared_channel.get(); }
    [[nodiscard]] librpma::FlushBuffer &flush_buffer() const { return flush_buffer_; }

    // Relaxed is enough: a thread that posts got the connection, or the peer's configuration, in a way that
    // orders these values.
    [[nodiscard]] bool has_native(unsigned operations) const {
        return (native_operations_.load(std::memory_order_relaxed) & operations) == operations;
    }
    // Returns whether both ends support the operation on this region.
    [[nodiscard]] bool has_native(unsigned operation, const rpma_mr_remote &region) const {
        return has_native(operation) && region.takes_native();
    }
    [[nodiscard]] bool direct_write_to_pmem() const {
        return direct_write_to_pmem_.load(std::memory_order_relaxed);
    }
    void set_direct_write_to_pmem(bool supported) { base::set_shared(direct_write_to_pmem_, supported); }

    // This is the program's pointer. Relaxed order is enough, because the program orders the data behind it.
    void set_context(void *context) { base::set_shared(context_, context); }
    [[nodiscard]] void *context() const { return context_.load(std::memory_order_relaxed); }

    [[nodiscard]] librpma::Result<rpma_conn_event> next_event();
    // Returns the meaning of an event of the id, and acknowledges the event.
    [[nodiscard]] librpma::Result<rpma_conn_event> take_event(verbs::Event event);
    // Writes *ready on success, and NULL when the queue cannot be armed again; *is_rcq only on success.
    [[nodiscard]] int wait(int flags, rpma_cq **ready, bool *is_rcq);
    [[nodiscard]] int disconnect();
    // Disconnects when the operations that are posted now are done.
    [[nodiscard]] int drain();
    // Returns the reason of the end as an errno value; 0 when it has not ended or ended in order.
    [[nodiscard]] int error() const { return error_.load(std::memory_order_acquire); }
    [[nodiscard]] int close();

private:
    [[nodiscard]] int establish(const rdma_cm_event &event);
    [[nodiscard]] int learn_private_data(const rdma_cm_event &event);
    void learn_native_operations();
    void learn_error(rdma_cm_event_type event, int status);

    const rpma_peer &peer_;
    const verbs::Provider &provider_;
    // The resources of this end.
    librpma::ConnectionResources connection_;
    mutable librpma::FlushBuffer flush_buffer_;  // a flush makes it, and changes nothing else
    ibv_qp *qp_ = nullptr;
    std::uint32_t inline_size_;
    std::uint32_t most_source_bytes_;
    bool checks_bounds_;
    std::size_t needs_checks_from_;
    std::atomic<unsigned> native_operations_{0};
    std::atomic<bool> direct_write_to_pmem_{false};
    std::atomic<int> error_{0};
    std::atomic<void *> context_{nullptr};
};
