// SPDX-License-Identifier: BSD-3-Clause
// librpma/cq: a completion queue, with a channel of its own or a shared one.
#include "librpma/cq.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "librpma/event_channel.hpp"
#include "librpma/peer.hpp"

namespace {

// Acknowledging takes a lock, so it is done for this many events at once, and at the end.
constexpr unsigned acknowledged_at_once = 64;

int entries_of(std::uint32_t size) {
    return static_cast<int>(std::min(size, std::uint32_t{INT_MAX}));
}

}  // namespace

namespace librpma {

namespace {

// Returns the reason why a poll gave no completion, or more than were asked for.
[[gnu::noinline, gnu::cold]] int polled_none(int got, int asked) {
    if (got == 0) {
        BASE_LOG(Debug, "no completion in the queue");
        return RPMA_E_NO_COMPLETION;
    }
    if (got < 0) {
        BASE_LOG(Error, "ibv_poll_cq returned %d", got);
        return RPMA_E_PROVIDER;
    }
    BASE_LOG(Error, "ibv_poll_cq gave %d completions, asked for %d", got, asked);
    return RPMA_E_UNKNOWN;
}

}  // namespace

}  // namespace librpma

librpma::Result<std::unique_ptr<rpma_cq>> rpma_cq::create(const verbs::Provider &provider,
                                                          ibv_context *context, std::uint32_t size,
                                                          Channel channel, ibv_comp_channel *shared) {
    verbs::CompletionChannel own_channel;
    const bool unarmed = channel == Channel::Unarmed;
    if (channel == Channel::Own || (unarmed && !provider.capabilities.waits_unarmed)) {
        own_channel = {provider, provider.completion.create_comp_channel(context)};
        if (!own_channel) {
            BASE_LOG(Error, "ibv_create_comp_channel failed: %s", librpma::error_text(errno));
            return librpma::Failure{RPMA_E_PROVIDER};
        }
        if (unarmed && ::fcntl(own_channel->fd, F_SETFL, O_NONBLOCK) != 0) {
            BASE_LOG(Error, "fcntl of a completion channel failed: %s", librpma::error_text(errno));
            return librpma::Failure{RPMA_E_PROVIDER};
        }
    }
    const int entries = entries_of(size);
    verbs::CompletionQueue queue{provider,
                                 provider.completion.create_cq(context, entries, nullptr,
                                                               own_channel ? own_channel.get() : shared, 0)};
    if (!queue) {
        BASE_LOG(Error, "ibv_create_cq(%d completions) failed: %s", entries, librpma::error_text(errno));
        librpma::log_queue_limits(provider, context);
        return librpma::Failure{RPMA_E_PROVIDER};
    }
    auto cq = librpma::make<rpma_cq>(provider, std::move(own_channel), std::move(queue), unarmed);
    if (cq == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    if (const int result = cq->is_polled() ? 0 : cq->arm(false); result != 0) {
        return librpma::Failure{result};
    }
    return cq;
}

int rpma_cq::wait(int flags) {
    if (is_polled()) {
        return RPMA_E_NOSUPP;
    }
    if (!own_channel_) {
        return RPMA_E_SHARED_CHANNEL;
    }
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    if (provider_.completion.get_cq_event(own_channel_.get(), &cq, &context) != 0) {
        return RPMA_E_NO_COMPLETION;
    }
    return take_event(flags);
}

int rpma_cq::take_event(int flags) {
    const unsigned before = unacknowledged_.fetch_add(1, std::memory_order_relaxed);
    if ((before + 1) % acknowledged_at_once == 0) {
        unacknowledged_.fetch_sub(acknowledged_at_once, std::memory_order_relaxed);
        provider_.completion.ack_cq_events(cq_.get(), acknowledged_at_once);
    }
    return (flags & RPMA_WAIT_NO_REARM) != 0 ? 0 : arm(false);
}

int rpma_cq::arm(bool solicited_only) {
    const int result = ibv_req_notify_cq(cq_.get(), solicited_only ? 1 : 0);
    if (result != 0) {
        BASE_LOG(Error, "ibv_req_notify_cq failed: %s", librpma::error_text(result));
        return RPMA_E_PROVIDER;
    }
    return 0;
}

int rpma_cq::resize(std::uint32_t size) {
    const int error = provider_.completion.resize_cq(cq_.get(), entries_of(size));
    if (error != 0) {
        BASE_LOG(Error, "ibv_resize_cq(%d completions) failed: %s", entries_of(size),
                 librpma::error_text(error));
        errno = error;
        return RPMA_E_PROVIDER;
    }
    return 0;
}

int rpma_cq::begin_wait(int *fd) {
    if (!unarmed_) {
        return RPMA_E_NOSUPP;
    }
    if (own_channel_) {
        const int result = arm(false);
        if (result == 0) {
            *fd = own_channel_->fd;
        }
        return result;
    }
    return librpma::waited(provider_.beyond.cq_wait_begin(cq_.get(), fd), "softrdma_cq_wait_begin");
}

int rpma_cq::end_wait() {
    if (!unarmed_) {
        return RPMA_E_NOSUPP;
    }
    if (!own_channel_) {
        return librpma::waited(provider_.beyond.cq_wait_end(cq_.get()), "softrdma_cq_wait_end");
    }
    int result = 0;
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    while (result == 0 && provider_.completion.get_cq_event(own_channel_.get(), &cq, &context) == 0) {
        result = take_event(RPMA_WAIT_NO_REARM);
    }
    return result;
}

// Before a device destroys a queue it waits until all events are acknowledged.
void rpma_cq::acknowledge_all() {
    if (const unsigned left = unacknowledged_.exchange(0, std::memory_order_relaxed); left != 0 && cq_) {
        provider_.completion.ack_cq_events(cq_.get(), left);
    }
}

int rpma_cq::try_close() {
    acknowledge_all();
    librpma::FirstError error;
    error.add(cq_.try_reset(), "ibv_destroy_cq (does a connection still use it?)");
    return error.code();
}

int rpma_cq::close() {
    acknowledge_all();
    librpma::FirstError error;
    error.add(cq_.reset(), "ibv_destroy_cq");
    error.add(own_channel_.reset(), "ibv_destroy_comp_channel");
    return error.code();
}

int rpma_cq_new(struct rpma_peer *peer, uint32_t cq_size, int flags, struct rpma_cq **cq_ptr) {
    if (peer == nullptr || (flags != 0 && flags != RPMA_CQ_POLLED && flags != RPMA_CQ_UNARMED) ||
        cq_ptr == nullptr) {
        return librpma::invalid("peer or cq_ptr is NULL, or flags is none of those that can be");
    }
    const auto channel = flags == RPMA_CQ_POLLED    ? rpma_cq::Channel::None
                         : flags == RPMA_CQ_UNARMED ? rpma_cq::Channel::Unarmed
                                                    : rpma_cq::Channel::Own;
    return librpma::give(rpma_cq::create(peer->provider(), peer->pd()->context, cq_size, channel), cq_ptr);
}

int rpma_cq_resize(struct rpma_cq *cq, uint32_t cq_size) {
    return cq == nullptr ? librpma::invalid("cq is NULL") : cq->resize(cq_size);
}

int rpma_cq_delete(struct rpma_cq **cq_ptr) {
    if (cq_ptr != nullptr && *cq_ptr != nullptr) {
        if (const int result = (*cq_ptr)->try_close(); result != 0) {
            return result;
        }
    }
    return librpma::destroy(cq_ptr);
}

int rpma_cq_wait_begin(struct rpma_cq *cq, int *fd) {
    return cq == nullptr || fd == nullptr ? librpma::invalid("cq or fd is NULL") : cq->begin_wait(fd);
}

int rpma_cq_wait_end(struct rpma_cq *cq) {
    return cq == nullptr ? librpma::invalid("cq is NULL") : cq->end_wait();
}

int rpma_cq_get_fd(const struct rpma_cq *cq, int *fd) {
    if (cq == nullptr || fd == nullptr) {
        return librpma::invalid("cq or fd is NULL");
    }
    if (cq->is_polled()) {
        return RPMA_E_NOSUPP;
    }
    *fd = cq->fd();
    return 0;
}

int rpma_cq_wait(struct rpma_cq *cq) {
    return rpma_cq_wait_event(cq, 0);
}

int rpma_cq_wait_event(struct rpma_cq *cq, int flags) {
    if (cq == nullptr || (flags & ~RPMA_WAIT_NO_REARM) != 0) {
        return librpma::invalid("cq is NULL, or flags has unknown bits");
    }
    return cq->wait(flags);
}

int rpma_cq_rearm(struct rpma_cq *cq, bool solicited_only) {
    if (cq == nullptr) {
        return librpma::invalid("cq is NULL");
    }
    if (cq->is_polled()) {
        return RPMA_E_NOSUPP;
    }
    return cq->arm(solicited_only);
}

int rpma_cq_get_wc(struct rpma_cq *cq, int num_entries, struct ibv_wc *wc, int *num_entries_got) {
    if (cq == nullptr || wc == nullptr ||
        (num_entries != 1 && (num_entries < 1 || num_entries_got == nullptr))) {
        return librpma::invalid(
            "cq or wc is NULL, num_entries is below 1, or num_entries_got is NULL for several");
    }
    const int got = ibv_poll_cq(cq->get(), num_entries, wc);
    // One comparison checks that `got` is from 1 to num_entries.
    if (static_cast<unsigned>(got) - 1 >= static_cast<unsigned>(num_entries)) [[unlikely]] {
        return librpma::polled_none(got, num_entries);
    }
    if (num_entries_got != nullptr) {
        *num_entries_got = got;
    }
    return 0;
}
