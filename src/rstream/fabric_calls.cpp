// SPDX-License-Identifier: BSD-3-Clause
// rstream/fabric_calls: libfabric's tables of a fabric and a domain, which name the objects that a program
// opens there, and fi_trywait, which looks at those objects.
#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>

#include <algorithm>
#include <span>

#include "base/clock.hpp"
#include "rstream/endpoint.hpp"
#include "rstream/event_queue.hpp"
#include "rstream/fabric.hpp"
#include "rstream/passive_endpoint.hpp"
#include "stream/looking.hpp"

namespace rstream {

fi_ops_fabric Fabric::fabric_ops{
    .size = sizeof(fi_ops_fabric),
    .domain = Domain::open,
    .passive_ep = PassiveEndpoint::open,
    .eq_open = EventQueue::open,
    .wait_open = absent,
    .trywait = try_wait,
    .domain2 = absent,
};

fi_ops_domain Domain::domain_ops{
    .size = sizeof(fi_ops_domain),
    .av_open = absent,
    .cq_open = absent,
    .endpoint = Endpoint::open,
    .scalable_ep = absent,
    .cntr_open = absent,
    .poll_open = absent,
    .stx_ctx = absent,
    .srx_ctx = absent,
    .query_atomic = absent,
    .query_collective = absent,
    .endpoint2 = absent,
};

namespace {

// Returns whether one of the objects has news.
bool look_at(std::span<fid_t const> objects) {
    bool any = false;
    for (auto *const object : objects) {
        any = (object->fclass == FI_CLASS_EP ? object_of<Endpoint, fid_ep>(object).has_news()
                                             : object_of<EventQueue, fid_eq>(object).has_event()) ||
              any;
    }
    return any;
}

bool look_for_a_while(std::span<fid_t const> objects) {
    bool any = look_at(objects);
    if (!any && stream::Looking::is_worth_while()) {
        const auto begin = base::Clock::now();
        do {
            any = look_at(objects);
        } while (!any && base::Clock::now() - begin < stream::Looking::usual_time);
        stream::Looking::found(any);
    }
    return any;
}

// The descriptors tell of news from now on, if there is none yet.
base::Result<bool> begin_to_wait(std::span<fid_t const> objects) {
    bool any = false;
    for (auto *const object : objects) {
        const auto found = object->fclass == FI_CLASS_EP ? object_of<Endpoint, fid_ep>(object).begin_to_wait()
                                                         : object_of<EventQueue, fid_eq>(object).has_event();
        if (!found) {
            return found;
        }
        any = *found || any;
    }
    return any;
}

}  // namespace

int Fabric::try_wait(fid_fabric *, fid_t *fids, int count) {
    if (fids == nullptr || count < 0) {
        return -FI_EINVAL;
    }
    const std::span<fid_t const> objects{fids, static_cast<std::size_t>(count)};
    if (!std::ranges::all_of(objects, [](const Fid *object) {
            return object != nullptr && (object->fclass == FI_CLASS_EP || object->fclass == FI_CLASS_EQ);
        })) {
        return -FI_EINVAL;
    }
    return guarded([&] {
        const auto for_endpoints = [objects](void (Endpoint::*function)()) {
            for (auto *const object : objects) {
                if (object->fclass == FI_CLASS_EP) {
                    (object_of<Endpoint, fid_ep>(object).*function)();
                }
            }
        };
        for_endpoints(&Endpoint::begin_to_look);
        if (look_for_a_while(objects)) {
            for_endpoints(&Endpoint::end_look);
            return -FI_EAGAIN;
        }
        const auto any = begin_to_wait(objects);
        return any && *any ? -FI_EAGAIN : returned<int>(any);
    });
}

}  // namespace rstream
