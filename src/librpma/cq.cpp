// SPDX-License-Identifier: BSD-3-Clause
// librpma/cq: a completion queue, with a channel of its own or a shared one.
#include "librpma/cq.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>

namespace {

// Solicited or not: every completion makes an event.
constexpr int any_completion = 0;

int arm(ibv_cq *cq) {
    const int result = ibv_req_notify_cq(cq, any_completion);
    if (result != 0) {
        BASE_LOG(Error, "ibv_req_notify_cq failed: %s", librpma::error_text(result));
        return RPMA_E_PROVIDER;
    }
    return 0;
}

}  // namespace

librpma::Result<std::unique_ptr<rpma_cq>> rpma_cq::create(const verbs::Provider &provider,
                                                          ibv_context *context, std::uint32_t size,
                                                          ibv_comp_channel *shared) {
    verbs::CompletionChannel own_channel;
    if (shared == nullptr) {
        own_channel = {provider, provider.create_comp_channel(context)};
        if (!own_channel) {
            BASE_LOG(Error, "ibv_create_comp_channel failed: %s", librpma::error_text(errno));
            return librpma::Failure{RPMA_E_PROVIDER};
        }
    }
    const int entries = static_cast<int>(std::min(size, std::uint32_t{INT_MAX}));
    verbs::CompletionQueue queue{
        provider,
        provider.create_cq(context, entries, nullptr, shared != nullptr ? shared : own_channel.get(), 0)};
    if (!queue) {
        BASE_LOG(Error, "ibv_create_cq(%d completions) failed: %s", entries, librpma::error_text(errno));
        return librpma::Failure{RPMA_E_PROVIDER};
    }
    if (const int result = arm(queue.get()); result != 0) {
        return librpma::Failure{result};
    }
    auto cq = librpma::make<rpma_cq>(provider, std::move(own_channel), std::move(queue));
    if (cq == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    return cq;
}

int rpma_cq::wait() {
    if (shares_channel()) {
        return RPMA_E_SHARED_CHANNEL;
    }
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    if (provider_.get_cq_event(own_channel_.get(), &cq, &context) != 0) {
        return RPMA_E_NO_COMPLETION;
    }
    return acknowledge_and_arm();
}

int rpma_cq::acknowledge_and_arm() {
    provider_.ack_cq_events(cq_.get(), 1);
    return arm(cq_.get());
}

int rpma_cq::close() {
    librpma::FirstError error;
    error.add(cq_.reset(), "ibv_destroy_cq");
    error.add(own_channel_.reset(), "ibv_destroy_comp_channel");
    return error.code();
}

int rpma_cq_get_fd(const struct rpma_cq *cq, int *fd) {
    if (cq == nullptr || fd == nullptr) {
        return RPMA_E_INVAL;
    }
    *fd = cq->fd();
    return 0;
}

int rpma_cq_wait(struct rpma_cq *cq) {
    if (cq == nullptr) {
        return RPMA_E_INVAL;
    }
    return cq->wait();
}

int rpma_cq_get_wc(struct rpma_cq *cq, int num_entries, struct ibv_wc *wc, int *num_entries_got) {
    if (cq == nullptr || wc == nullptr || num_entries < 1 ||
        (num_entries > 1 && num_entries_got == nullptr)) {
        return RPMA_E_INVAL;
    }
    const int got = ibv_poll_cq(cq->get(), num_entries, wc);
    if (got == 0) {
        BASE_LOG(Debug, "no completion in the queue");
        return RPMA_E_NO_COMPLETION;
    }
    if (got < 0) {
        BASE_LOG(Error, "ibv_poll_cq failed: %d", got);
        return RPMA_E_PROVIDER;
    }
    if (got > num_entries) {
        BASE_LOG(Error, "ibv_poll_cq gave %d completions, asked for %d", got, num_entries);
        return RPMA_E_UNKNOWN;
    }
    if (num_entries_got != nullptr) {
        *num_entries_got = got;
    }
    return 0;
}
