// SPDX-License-Identifier: BSD-3-Clause
// rstream/fabric: see the header.
#include "rstream/fabric.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/clock.hpp"
#include "rstream/endpoint.hpp"
#include "rstream/event_queue.hpp"
#include "rstream/info.hpp"
#include "rstream/passive_endpoint.hpp"
#include "stream/looking.hpp"

namespace rstream {

// ---- fabric ----

fi_ops Fabric::fid_ops{
    .size = sizeof(fi_ops),
    .close = [](fid_t object) { return object_of<Fabric, fid_fabric>(object).close(); },
    .bind = absent,
    .control = absent,
    .ops_open = absent,
    .tostr = absent,
    .ops_set = absent,
};

fi_ops_fabric Fabric::fabric_ops{
    .size = sizeof(fi_ops_fabric),
    .domain = Domain::open,
    .passive_ep = PassiveEndpoint::open,
    .eq_open = EventQueue::open,
    .wait_open = absent,
    .trywait = try_wait,
    .domain2 = absent,
};

int Fabric::open(fi_fabric_attr *attributes, fid_fabric **fabric, void *context) {
    if (attributes->name != nullptr && attributes->name != std::string_view{fabric_name}) {
        return -FI_ENODATA;
    }
    return guarded([&] {
        *fabric = new Fabric{attributes->api_version, context};
        return 0;
    });
}

Fabric::Fabric(std::uint32_t version, void *context)
    : fid_fabric{.fid = {.fclass = FI_CLASS_FABRIC, .context = context, .ops = &fid_ops},
                 .ops = &fabric_ops,
                 .api_version = version} {}

int Fabric::close() {
    if (is_used()) {
        return -FI_EBUSY;
    }
    delete this;
    return 0;
}

fid_t Fabric::keep(Request request) {
    auto kept = std::make_unique<Kept>(
        Kept{.handle = {.fclass = FI_CLASS_CONNREQ, .context = nullptr, .ops = nullptr},
             .request = std::move(request)});
    Fid *const handle = &kept->handle;
    const base::Lock lock{mutex_};
    requests_.emplace(handle, std::move(kept));
    return handle;
}

std::optional<Request> Fabric::take(fid_t handle) {
    const base::Lock lock{mutex_};
    const auto node = requests_.extract(handle);
    return node.empty() ? std::optional<Request>{} : std::move(node.mapped()->request);
}

void Fabric::add_listener(fid_t passive) {
    const base::Lock lock{mutex_};
    listeners_.insert(passive);
}

void Fabric::remove_listener(fid_t passive) {
    const base::Lock lock{mutex_};
    listeners_.erase(passive);
}

bool Fabric::listens_by(fid_t handle) {
    const base::Lock lock{mutex_};
    return listeners_.contains(handle);
}

// ---- fi_trywait ----

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

// ---- domain ----

fi_ops Domain::fid_ops{
    .size = sizeof(fi_ops),
    .close = [](fid_t object) { return object_of<Domain, fid_domain>(object).close(); },
    .bind = absent,
    .control = absent,
    .ops_open = absent,
    .tostr = absent,
    .ops_set = absent,
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

fi_ops_mr Domain::memory_ops{
    .size = sizeof(fi_ops_mr),
    .reg = absent,
    .regv = absent,
    .regattr = absent,
};

int Domain::open(fid_fabric *fabric, fi_info *info, fid_domain **domain, void *context) {
    return guarded([&] {
        const char *const name =
            info != nullptr && info->domain_attr != nullptr ? info->domain_attr->name : nullptr;
        *domain = new Domain{Fabric::of(fabric), name != nullptr ? name : "", context};
        return 0;
    });
}

Domain::Domain(Fabric &fabric, std::string device, void *context)
    : fid_domain{.fid = {.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &fid_ops},
                 .ops = &domain_ops,
                 .mr = &memory_ops},
      fabric_{fabric},
      device_{std::move(device)} {}

int Domain::close() {
    if (is_used()) {
        return -FI_EBUSY;
    }
    delete this;
    return 0;
}

}  // namespace rstream
