// SPDX-License-Identifier: BSD-3-Clause
// rstream/fabric: see the header.
#include "rstream/fabric.hpp"

#include <rdma/fi_cm.h>

#include <utility>

#include "rstream/info.hpp"

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
