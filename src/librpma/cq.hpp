// SPDX-License-Identifier: BSD-3-Clause
// librpma/cq: a completion queue, with a channel of its own or a shared one.
#pragma once

#include <atomic>

#include "librpma/api.hpp"
#include "verbs/owned.hpp"

struct rpma_cq final {
public:
    // They say which channel a queue has. An Unarmed queue has a channel of its own if waiting needs one, and
    // is armed only during a wait.
    enum class Channel { Own, Shared, None, Unarmed };
    // The queue is armed if its channel is Own or Shared. A size above INT_MAX counts as INT_MAX; `shared`
    // outlives the queue.
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
    // Returns whether a caller can wait for the queue only between begin_wait() and end_wait(), or not at
    // all.
    [[nodiscard]] bool is_polled() const { return unarmed_ || cq_->channel == nullptr; }
    [[nodiscard]] int fd() const { return cq_->channel->fd; }

    // Waits for an event of the queue's own channel and takes it.
    [[nodiscard]] int wait(int flags);
    // Counts an event of this queue that has come, and arms the queue again unless the RPMA_WAIT_ flags
    // forbid that.
    [[nodiscard]] int take_event(int flags);
    [[nodiscard]] int arm(bool solicited_only);
    // Changes the size, which is limited as in create().
    [[nodiscard]] int resize(std::uint32_t size);
    // These are for an Unarmed queue. Between the two the caller waits on the descriptor, and polls.
    [[nodiscard]] int begin_wait(int *fd);
    [[nodiscard]] int end_wait();
    // Destroys the queue unless connections use it.
    [[nodiscard]] int try_close();
    [[nodiscard]] int close();

private:
    void acknowledge_all();

    const verbs::Provider &provider_;
    verbs::CompletionChannel own_channel_;
    verbs::CompletionQueue cq_;
    bool unarmed_;
    // The events that came and were not acknowledged. Relaxed is enough for a count.
    std::atomic<unsigned> unacknowledged_{0};
};
