// SPDX-License-Identifier: BSD-3-Clause
// soft/api/domains: protection domains, and the thread domains and parent domains of verbs.h's inlines.
#include "soft/api/domains.hpp"

#include <cerrno>

#include "base/log.hpp"
#include "soft/api/made.hpp"
#include "soft/device/device.hpp"
#include "soft/memory/memory.hpp"
#include "softrdma.h"

namespace {

using soft::failed;
using soft::made;
using soft::ProtectionDomain;

ProtectionDomain *new_domain(ibv_context *context) {
    auto *const pd = new ProtectionDomain{};
    pd->context = context;
    soft::Context::of(*context).uses.fetch_add(1, std::memory_order_relaxed);
    return pd;
}

struct ThreadDomain : ibv_td {
    std::atomic<int> users{0};  // parent domains
};

}  // namespace

ibv_pd *softrdma_ibv_alloc_pd(ibv_context *context) {
    return made([&] { return new_domain(context); });
}

int softrdma_ibv_dealloc_pd(ibv_pd *pd) {
    auto *const domain = static_cast<ProtectionDomain *>(pd);
    if (domain->users.load(std::memory_order_acquire) != 0) {
        return EBUSY;
    }
    if (domain->inner != nullptr) {
        domain->inner->users.fetch_sub(1, std::memory_order_release);
    }
    if (domain->thread_domain != nullptr) {
        static_cast<ThreadDomain *>(domain->thread_domain)->users.fetch_sub(1, std::memory_order_release);
    }
    soft::Context::of(*pd->context).uses.fetch_sub(1, std::memory_order_release);
    delete domain;
    return 0;
}

namespace soft {

ibv_td *alloc_td(ibv_context *context, ibv_td_init_attr *attributes) {
    if (attributes->comp_mask != 0) {
        return failed<ibv_td>(EINVAL);
    }
    return made([&] {
        auto *const td = new ThreadDomain{};
        td->context = context;
        Context::of(*context).uses.fetch_add(1, std::memory_order_relaxed);
        return td;
    });
}

int dealloc_td(ibv_td *td) {
    auto *const domain = static_cast<ThreadDomain *>(td);
    if (domain->users.load(std::memory_order_acquire) != 0) {
        return EBUSY;
    }
    Context::of(*td->context).uses.fetch_sub(1, std::memory_order_release);
    delete domain;
    return 0;
}

ibv_pd *alloc_parent_domain(ibv_context *context, ibv_parent_domain_init_attr *attributes) {
    constexpr std::uint32_t known =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    auto *const inner = static_cast<ProtectionDomain *>(attributes->pd);
    if ((attributes->comp_mask & ~known) != 0 || inner == nullptr || inner->inner != nullptr ||
        inner->context != context || (attributes->td != nullptr && attributes->td->context != context)) {
        BASE_LOG(Error,
                 "no parent domain: expected a protection domain that is no parent domain, and at most a "
                 "thread domain, both of this context; comp_mask is 0x%x",
                 attributes->comp_mask);
        return failed<ibv_pd>(EINVAL);
    }
    return made([&] {
        ProtectionDomain *const parent = new_domain(context);
        parent->inner = inner;
        parent->thread_domain = attributes->td;
        inner->users.fetch_add(1, std::memory_order_relaxed);
        if (attributes->td != nullptr) {
            static_cast<ThreadDomain *>(attributes->td)->users.fetch_add(1, std::memory_order_relaxed);
        }
        return parent;
    });
}

}  // namespace soft
