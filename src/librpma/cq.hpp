// SPDX-License-Identifier: BSD-3-Clause
// librpma/cq: a completion queue, with a channel of its own or a shared one.
#pragma once

#include <atomic>

#include "librpma/api.hpp"
#include "verbs/owned.hpp"

struct rpma_cq final {
public:
    // The channel of a queue. An Unarmed queue has its own where waiting needs one, and arms it only
    // meanwhile.
    enum class Channel { Own, Shared, None, Unarmed };
    // Armed if its channel is Own or Shared. size above INT_MAX counts as INT_MAX; shared outlives the queue.
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_cq>> create(const verbs::Provider &provider,
                                                                          ibv_context *context,
                                                                          std::uint32_t size, Channel channel,
                                                                          ibv_comp_channel *shared = nullptr);
    rpma_cq(const verbs::Provider &provider, verbs::CompletionChannel own_channel, verbs::CompletionQueue cq,
            bool unarmed)
        : provider_{provider}, own_channel_{std::move(own_channel)}, cq_{std::move(cq)}, unarmed_{unarmed} {}
    ~rpma_cq() { (void)close(); }
    rpma_cq(const rpma_cq &) = delete;
    rpma_cq &operator=(const rpma_cq &) = delete;

    [[nodiscard]] ibv_cq *get() const { return cq_.get(); }
    // There is nothing to wait for but between begin_wait() and end_wait(), if at all.
    [[nodiscard]] bool is_polled() const { return unarmed_ || cq_->channel == nullptr; }
    [[nodiscard]] int fd() const { return cq_->channel->fd; }

    // Waits for an event of the own channel and takes it.
    [[nodiscard]] int wait(int flags);
    // An event of this queue came: it is counted, and the queue armed again unless the RPMA_WAIT_ flags say
    // no.
    [[nodiscard]] int take_event(int flags);
    [[nodiscard]] int arm(bool solicited_only);
    // As create() has the size.
    [[nodiscard]] int resize(std::uint32_t size);
    // For an Unarmed queue. Between the two the caller waits on the descriptor, and polls.
    [[nodiscard]] int begin_wait(int *fd);
    [[nodiscard]] int end_wait();
    // Ends the queue unless connections use it.
    [[nodiscard]] int try_close();
    [[nodiscard]] int close();

private:
    void acknowledge_all();

    const verbs::Provider &provider_;
    verbs::CompletionChannel own_channel_;
    verbs::CompletionQueue cq_;
    bool unarmed_;
    // Events that came and were not acknowledged. Relaxed: only a count.
    std::atomic<unsigned> unacknowledged_{0};
};
