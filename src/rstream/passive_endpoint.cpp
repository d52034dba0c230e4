// SPDX-License-Identifier: BSD-3-Clause
// rstream/passive_endpoint: see the header.
#include "rstream/passive_endpoint.hpp"

#include <algorithm>
#include <utility>

#include "base/address.hpp"
#include "rstream/fabric.hpp"
#include "rstream/info.hpp"

namespace rstream {

namespace {

// rdma_reject(3) takes this on each device, less what the kernel's connection manager adds.
constexpr std::size_t most_reason_bytes = 148;

}  // namespace

fi_ops PassiveEndpoint::fid_ops{
    .size = sizeof(fi_ops),
    .close = [](fid_t object) { return object_of<PassiveEndpoint, fid_pep>(object).close(); },
    .bind = [](fid_t object, fid_t other,
               std::uint64_t) { return object_of<PassiveEndpoint, fid_pep>(object).bind(*other); },
    .control =
        [](fid_t object, int command, void *argument) {
            return object_of<PassiveEndpoint, fid_pep>(object).control(command, argument);
        },
    .ops_open = absent,
    .tostr = absent,
    .ops_set = absent,
};

fi_ops_ep PassiveEndpoint::endpoint_ops{
    .size = sizeof(fi_ops_ep),
    .cancel = absent,
    .getopt =
        [](fid_t object, int level, int name, void *value, std::size_t *size) {
            return object_of<PassiveEndpoint, fid_pep>(object).get_option(level, name, value, size);
        },
    .setopt = absent,
    .tx_ctx = absent,
    .rx_ctx = absent,
    .rx_size_left = absent,
    .tx_size_left = absent,
};

fi_ops_cm PassiveEndpoint::connection_ops{
    .size = sizeof(fi_ops_cm),
    .setname =
        [](fid_t object, void *address, std::size_t size) {
            return object_of<PassiveEndpoint, fid_pep>(object).set_name(address, size);
        },
    .getname =
        [](fid_t object, void *place, std::size_t *size) {
            return give_address(object_of<PassiveEndpoint, fid_pep>(object).name(), place, size);
        },
    .getpeer = absent,
    .connect = absent,
    .listen = [](fid_pep *pep) { return of(pep).listen(); },
    .accept = absent,
    .reject = [](fid_pep *pep, fid_t handle, const void *reason,
                 std::size_t size) { return of(pep).reject(handle, reason, size); },
    .shutdown = absent,
    .join = absent,
};

int PassiveEndpoint::open(fid_fabric *fabric, fi_info *info, fid_pep **pep, void *context) {
    if (info == nullptr || info->ep_attr == nullptr || info->ep_attr->type != FI_EP_SOCK_STREAM) {
        return -FI_EINVAL;
    }
    return guarded([&] {
        Info own{fi_dupinfo(info)};
        if (own == nullptr) {
            return -FI_ENOMEM;
        }
        sockaddr_storage everywhere{};
        everywhere.ss_family = info->addr_format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET;
        const auto local = address_of(info->src_addr, info->src_addrlen);
        *pep = new PassiveEndpoint{Fabric::of(fabric), std::move(own), local.value_or(everywhere), context};
        return 0;
    });
}

PassiveEndpoint::PassiveEndpoint(Fabric &fabric, Info info, sockaddr_storage local, void *context)
    : fid_pep{.fid = {.fclass = FI_CLASS_PEP, .context = context, .ops = &fid_ops},
              .ops = &endpoint_ops,
              .cm = &connection_ops},
      fabric_{fabric},
      info_{std::move(info)},
      local_{local} {
    fabric_->add_listener(&fid);
}

// Peers whose requests the program has not read are rejected. It may still answer the others.
int PassiveEndpoint::close() {
    if (queue_ != nullptr) {
        for (const EventQueue::Event &unread : queue_->leave(*this, &fid)) {
            (void)fabric_->take(unread.info->handle);
        }
        queue_->release();
    }
    for (const auto &listener : listeners_) {
        listener->stop();
    }
    fabric_->remove_listener(&fid);
    delete this;
    return 0;
}

int PassiveEndpoint::bind(const Fid &object) {
    if (object.fclass != FI_CLASS_EQ || queue_ != nullptr) {
        return -FI_EINVAL;
    }
    queue_ = &object_of<EventQueue, fid_eq>(const_cast<fid_t>(&object));
    queue_->use();
    return 0;
}

int PassiveEndpoint::control(int command, const void *argument) {
    if (command != FI_BACKLOG || argument == nullptr || *static_cast<const int *>(argument) < 0) {
        return -FI_EINVAL;
    }
    if (!listeners_.empty()) {
        return -FI_EOPBADSTATE;
    }
    backlog_ = *static_cast<const int *>(argument);
    return 0;
}

int PassiveEndpoint::get_option(int level, int name, void *value, std::size_t *size) const {
    if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) {
        return -FI_ENOPROTOOPT;
    }
    if (*size < sizeof(std::size_t)) {
        return -FI_ETOOSMALL;
    }
    *static_cast<std::size_t *>(value) = most_reason_bytes;
    *size = sizeof(std::size_t);
    return 0;
}

int PassiveEndpoint::set_name(const void *address, std::size_t size) {
    const auto local = address_of(address, size);
    if (!local) {
        return -FI_EINVAL;
    }
    if (!listeners_.empty()) {
        return -FI_EOPBADSTATE;
    }
    local_ = *local;
    return 0;
}

sockaddr_storage PassiveEndpoint::name() const {
    sockaddr_storage name = local_;
    if (!listeners_.empty()) {
        if (const auto known = listeners_.front()->name()) {
            base::set_port(name, base::port_of(*known));
        }
    }
    return name;
}

int PassiveEndpoint::listen() {
    if (queue_ == nullptr) {
        return -FI_ENOEQ;
    }
    if (!listeners_.empty()) {
        return -FI_EOPBADSTATE;
    }
    return guarded([&] {
        auto listeners = make_listeners();
        if (!listeners) {
            return -listeners.error().number;
        }
        std::vector<int> descriptors;
        for (const auto &listener : *listeners) {
            descriptors.push_back(listener->fd());
        }
        listeners_ = std::move(*listeners);
        Source *const source = this;
        const auto added = queue_->wait_set().add(descriptors, source);
        return returned<int>(added ? queue_->join(*this) : added);
    });
}

// At a wildcard address it listens on the soft device and on those of the kernel.
base::Result<PassiveEndpoint::Listeners> PassiveEndpoint::make_listeners() const {
    const bool everywhere = base::is_wildcard(local_);
    const char *const chosen = info_->domain_attr != nullptr ? info_->domain_attr->name : nullptr;
    const auto device = everywhere ? base::Result<const stream::Device *>{nullptr}
                                   : device_at(local_, chosen != nullptr ? chosen : "");
    if (!device) {
        return std::unexpected{device.error()};
    }
    const stream::Listener::Options options{.backlog = backlog_, .reuse = true, .v6_only = false};
    sockaddr_storage local = local_;
    Listeners listeners;
    if (everywhere ? stream::Device::soft_may_serve(local.ss_family) : !(*device)->is_of_kernel()) {
        auto listener = stream::Listener::on_soft_at(local, options);
        if (!listener) {
            return std::unexpected{listener.error()};
        }
        base::set_port(local, base::port_of((*listener)->name().value_or(local)));
        listeners.push_back(std::move(*listener));
    }
    if (everywhere || (*device)->is_of_kernel()) {
        auto listener = stream::Listener::at(local, options);
        if (!listener) {
            return std::unexpected{listener.error()};
        }
        if (*listener != nullptr) {
            listeners.push_back(std::move(*listener));
        }
    }
    return listeners.empty() ? base::Result<Listeners>{base::failure(EADDRNOTAVAIL)} : std::move(listeners);
}

// One request of each device at a time: the queue keeps no more than it is read.
void PassiveEndpoint::serve() {
    for (const auto &listener : listeners_) {
        auto asked = listener->next();
        if (!asked) {
            continue;
        }
        Info info = info_of(*asked);
        info->handle = fabric_->keep({.listener = listener, .asked = std::move(*asked)});
        queue_->push({.type = FI_CONNREQ, .fid = &fid, .info = std::move(info), .error = 0, .data = {}});
    }
}

Info PassiveEndpoint::info_of(const stream::Asked &asked) const {
    Info info{fi_dupinfo(info_.get())};
    if (info == nullptr) {
        throw std::bad_alloc{};
    }
    sockaddr_storage local = name();
    (void)rpma_conn_req_get_local_addr(asked.request.get(), &local);
    set_address(info->src_addr, info->src_addrlen, local);
    set_address(info->dest_addr, info->dest_addrlen, asked.peer);
    set_device(*info, asked.device->name());
    return info;
}

int PassiveEndpoint::reject(fid_t handle, const void *reason, std::size_t size) {
    if (reason == nullptr && size != 0) {
        return -FI_EINVAL;
    }
    auto request = fabric_->take(handle);
    if (!request) {
        return -FI_EINVAL;
    }
    rpma_conn_private_data data{.ptr = const_cast<void *>(reason),
                                .len = static_cast<std::uint8_t>(std::min(size, most_reason_bytes))};
    rpma_conn_req *req = request->asked.request.release();
    return rpma_conn_req_reject(&req, size != 0 ? &data : nullptr) == 0 ? 0 : -FI_EIO;
}

}  // namespace rstream
