// SPDX-License-Identifier: BSD-3-Clause
// librpma/cq: a completion queue, with a channel of its own or a shared one.
#pragma once

#include "librpma/api.hpp"
#include "verbs/owned.hpp"

struct rpma_cq final {
public:
    // Armed. size above INT_MAX counts as INT_MAX; shared is nullptr or a channel that outlives the queue.
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_cq>> create(const verbs::Provider &provider,
                                                                          ibv_context *context,
                                                                          std::uint32_t size,
                                                                          ibv_comp_channel *shared);
    rpma_cq(const verbs::Provider &provider, verbs::CompletionChannel own_channel, verbs::CompletionQueue cq)
        : provider_{provider}, own_channel_{std::move(own_channel)}, cq_{std::move(cq)} {}

    [[nodiscard]] ibv_cq *get() const { return cq_.get(); }
    [[nodiscard]] int fd() const { return cq_->channel->fd; }
    [[nodiscard]] bool shares_channel() const { return !own_channel_; }

    // Waits for an event of the own channel, acknowledges it and arms the queue again.
    [[nodiscard]] int wait();
    // After an event of this queue came.
    [[nodiscard]] int acknowledge_and_arm();
    [[nodiscard]] int close();

private:
    const verbs::Provider &provider_;
    verbs::CompletionChannel own_channel_;
    verbs::CompletionQueue cq_;
};
