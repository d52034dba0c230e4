// SPDX-License-Identifier: BSD-3-Clause
// soft/api/domains: thread domains and parent domains, which verbs.h's inlines reach by the table of calls.
// The device locks what it shares between threads, whatever domain it has, and calls no allocator of a
// parent domain: no hardware reads the memory of its queues.
#pragma once

#include <infiniband/verbs.h>

namespace soft {

[[nodiscard]] ibv_td *alloc_td(ibv_context *context, ibv_td_init_attr *attributes);
[[nodiscard]] int dealloc_td(ibv_td *td);
// Returns a protection domain that stands for attributes->pd: their regions and queue pairs work together.
// softrdma_ibv_dealloc_pd deallocates it.
[[nodiscard]] ibv_pd *alloc_parent_domain(ibv_context *context, ibv_parent_domain_init_attr *attributes);

}  // namespace soft
