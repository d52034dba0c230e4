// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/siw.hpp"

#include <cstdint>
#include <set>

#include "base/fork.hpp"
#include "base/lock.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"

namespace verbs::siw {

namespace {

constexpr std::uint32_t vendor = 0x626d74;
// An entry of a queue has 32 bytes.
constexpr int entries_to_refused_offset = 0x90000 / 32;

constinit base::LastingMutex lock_of_covered;

// Never destroyed: other threads may be in a call when main() returns.
std::set<ibv_context *> &covered() REQUIRES(lock_of_covered) {
    static auto &contexts = *new std::set<ibv_context *>;
    return contexts;
}

const base::HeldWhileForking<lock_of_covered> covered_survives_forks{base::ForkLevel::Verbs};

// Without the cover the queues of the program work up to that offset.
void cover_refused_offset(ibv_context *context) {
    const base::Lock lock{lock_of_covered};
    if (!covered().insert(context).second) {
        return;
    }
    ibv_device_attr attributes{};
    if (ibv_query_device(context, &attributes) == 0 && attributes.vendor_id == vendor &&
        ibv_create_cq(context, entries_to_refused_offset + 1, nullptr, nullptr, 0) == nullptr) {
        BASE_LOG(Warning,
                 "%s: no queue covers an offset that siw's driver takes for a failure, so the device makes "
                 "few queues",
                 ibv_get_device_name(context->device));
    }
}

}  // namespace

ibv_cq *create_cq(ibv_context *context, int cqe, void *cq_context, ibv_comp_channel *channel,
                  int comp_vector) {
    cover_refused_offset(context);
    return ibv_create_cq(context, cqe, cq_context, channel, comp_vector);
}

}  // namespace verbs::siw
