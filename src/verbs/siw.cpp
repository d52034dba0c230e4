// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/siw.hpp"

#include <cerrno>
#include <cstdint>
#include <set>

#include "base/fork.hpp"
#include "base/lock.hpp"
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

// Returns 0 or an errno value.
int cover_refused_offset(ibv_context *context) {
    const base::Lock lock{lock_of_covered};
    if (covered().contains(context)) {
        return 0;
    }
    ibv_device_attr attributes{};
    if (const int error = ibv_query_device(context, &attributes); error != 0) {
        return error;
    }
    if (attributes.vendor_id == vendor) {
        errno = ENOMEM;  // the driver may say nothing
        if (ibv_create_cq(context, entries_to_refused_offset + 1, nullptr, nullptr, 0) == nullptr) {
            return errno;
        }
    }
    covered().insert(context);
    return 0;
}

}  // namespace

ibv_cq *create_cq(ibv_context *context, int cqe, void *cq_context, ibv_comp_channel *channel,
                  int comp_vector) {
    if (const int error = cover_refused_offset(context); error != 0) {
        errno = error;
        return nullptr;
    }
    return ibv_create_cq(context, cqe, cq_context, channel, comp_vector);
}

}  // namespace verbs::siw
