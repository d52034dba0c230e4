// SPDX-License-Identifier: BSD-3-Clause
// librpma/event_channel: channels of rdma_cm events, and the results of the provider's calls that wait.
#pragma once

#include "librpma/api.hpp"
#include "verbs/owned.hpp"

namespace librpma {

// Logs that a call failed, with its errno value, and returns RPMA_E_PROVIDER.
[[nodiscard]] int log_provider_failure(const char *call, int number);
// Returns the return code for the errno value of beginning or ending a wait, and logs a failure.
[[nodiscard]] int waited(int number, const char *call);
[[nodiscard]] Result<verbs::EventChannel> make_channel(const verbs::Provider &provider);
// Returns the next event of a channel; RPMA_E_NO_EVENT when the channel is non-blocking and has none.
[[nodiscard]] Result<verbs::Event> next_event(const verbs::Provider &provider, rdma_event_channel *channel);

}  // namespace librpma
