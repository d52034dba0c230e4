// SPDX-License-Identifier: BSD-3-Clause
#include "librpma/event_channel.hpp"

#include <cerrno>

namespace librpma {

int log_provider_failure(const char *call, int number) {
    BASE_LOG(Error, "%s failed: %s", call, error_text(number));
    return RPMA_E_PROVIDER;
}

int waited(int number, const char *call) {
    if (number == EINVAL) {
        BASE_LOG(Error, "%s: nobody waits, or the process that made the queue is this one's parent", call);
        return RPMA_E_INVAL;
    }
    return number == 0 ? 0 : log_provider_failure(call, number);
}

Result<verbs::EventChannel> make_channel(const verbs::Provider &provider) {
    verbs::EventChannel channel{provider, provider.cm.create_event_channel()};
    if (!channel) {
        return Failure{log_provider_failure("rdma_create_event_channel", errno)};
    }
    return channel;
}

Result<verbs::Event> next_event(const verbs::Provider &provider, rdma_event_channel *channel) {
    rdma_cm_event *event = nullptr;
    if (provider.cm.get_cm_event(channel, &event) == 0) {
        return verbs::Event{provider, event};
    }
    // librdmacm sets ENODATA for an incomplete event, EAGAIN when there is none, and EINTR after a signal.
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENODATA || errno == EINTR) {
        BASE_LOG(Debug, "no event on the channel");
        return Failure{RPMA_E_NO_EVENT};
    }
    return Failure{log_provider_failure("rdma_get_cm_event", errno)};
}

}  // namespace librpma
