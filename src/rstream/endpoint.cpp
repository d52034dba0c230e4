// SPDX-License-Identifier: BSD-3-Clause
// rstream/endpoint: the beginning and the end of a stream, and its options.
#include "rstream/endpoint.hpp"

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <utility>

#include "base/address.hpp"
#include "rstream/info.hpp"
#include "rstream/passive_endpoint.hpp"
#include "stream/address.hpp"
#include "stream/leaving.hpp"

namespace rstream {

namespace {

// A program that calls these gets -FI_ENOSYS.
fi_ops_rma no_rma{sizeof(fi_ops_rma), absent, absent, absent, absent, absent, absent, absent, absent, absent};
fi_ops_tagged no_tagged{
    sizeof(fi_ops_tagged), absent, absent, absent, absent, absent, absent, absent, absent, absent};
fi_ops_atomic no_atomic{sizeof(fi_ops_atomic),
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent};

// Reads an option that the program gives as an unsigned integer of 2, 4 or 8 bytes.
std::optional<std::uint64_t> number_of(const void *value, std::size_t size) {
    if (value == nullptr) {
        return std::nullopt;
    }
    switch (size) {
        case sizeof(std::uint16_t):
            return *static_cast<const std::uint16_t *>(value);
        case sizeof(std::uint32_t):
            return *static_cast<const std::uint32_t *>(value);
        case sizeof(std::uint64_t):
            return *static_cast<const std::uint64_t *>(value);
        default:
            return std::nullopt;
    }
}

template <typename T>
int give(T number, void *value, std::size_t *size) {
    if (*size < sizeof(number)) {
        *size = sizeof(number);
        return -FI_ETOOSMALL;
    }
    *static_cast<T *>(value) = number;
    *size = sizeof(number);
    return 0;
}

// The protocol of streams cannot tell of a larger buffer.
constexpr std::uint64_t most_buffer_bytes = std::uint64_t{1} << 30;

}  // namespace

fi_ops Endpoint::fid_ops{
    .size = sizeof(fi_ops),
    .close = [](fid_t object) { return of(object).close(); },
    .bind = [](fid_t object, fid_t other, std::uint64_t) { return of(object).bind(*other); },
    .control = [](fid_t object, int command,
                  void *argument) { return of(object).control(command, argument); },
    .ops_open = absent,
    .tostr = absent,
    .ops_set = absent,
};

fi_ops_ep Endpoint::endpoint_ops{
    .size = sizeof(fi_ops_ep),
    .cancel = absent,
    .getopt = [](fid_t object, int level, int name, void *value,
                 std::size_t *size) { return of(object).get_option(level, name, value, size); },
    .setopt = [](fid_t object, int level, int name, const void *value,
                 std::size_t size) { return of(object).set_option(level, name, value, size); },
    .tx_ctx = absent,
    .rx_ctx = absent,
    .rx_size_left = absent,
    .tx_size_left = absent,
};

fi_ops_cm Endpoint::connection_ops{
    .size = sizeof(fi_ops_cm),
    .setname = absent,
    .getname =
        [](fid_t object, void *place, std::size_t *size) {
            const auto name = of(object).name(base::End::Local);
            return name ? give_address(*name, place, size) : -name.error().number;
        },
    .getpeer =
        [](fid_ep *ep, void *place, std::size_t *size) {
            const auto name = of(ep).name(base::End::Peer);
            return name ? give_address(*name, place, size) : -name.error().number;
        },
    .connect =
        [](fid_ep *ep, const void *address, const void *parameter, std::size_t size) {
            return parameter != nullptr || size != 0 ? -FI_ENOSYS : of(ep).connect(address);
        },
    .listen = absent,
    .accept =
        [](fid_ep *ep, const void *parameter, std::size_t size) {
            return parameter != nullptr || size != 0 ? -FI_ENOSYS : of(ep).accept();
        },
    .reject = absent,
    .shutdown = [](fid_ep *ep,
                   std::uint64_t flags) { return flags != 0 ? -FI_EBADFLAGS : of(ep).shutdown(); },
    .join = absent,
};

int Endpoint::open(fid_domain *domain, fi_info *info, fid_ep **ep, void *context) {
    if (info == nullptr || info->ep_attr == nullptr || info->ep_attr->type != FI_EP_SOCK_STREAM) {
        return -FI_EINVAL;
    }
    return guarded([&] {
        Domain &own = Domain::of(domain);
        auto request = own.fabric().take(info->handle);
        if (info->handle != nullptr && !request && !own.fabric().listens_by(info->handle)) {
            return -FI_EINVAL;
        }
        *ep = new Endpoint{own, *info, std::move(request), context};
        return 0;
    });
}

Endpoint::Endpoint(Domain &domain, const fi_info &info, std::optional<Request> request, void *context)
    : fid_ep{.fid = {.fclass = FI_CLASS_EP, .context = context, .ops = &fid_ops},
             .ops = &endpoint_ops,
             .cm = &connection_ops,
             .msg = &message_ops,
             .rma = &no_rma,
             .tagged = &no_tagged,
             .atomic = &no_atomic,
             .collective = nullptr},
      domain_{domain},
      peer_{address_of(info.dest_addr, info.dest_addrlen)},
      request_{std::move(request)} {
    local_ = address_of(info.src_addr, info.src_addrlen).value_or(sockaddr_storage{});
    if (info.handle != nullptr && !request_) {
        local_ = object_of<PassiveEndpoint, fid_pep>(info.handle).name();
    }
    const auto messages = [](std::size_t size) {
        return static_cast<std::uint16_t>(size == 0 ? usual_messages
                                                    : std::min<std::size_t>(size, stream::most_messages));
    };
    settings_.sends = messages(info.tx_attr != nullptr ? info.tx_attr->size : 0);
    settings_.receives = messages(info.rx_attr != nullptr ? info.rx_attr->size : 0);
    settings_.send_bytes = usual_buffer_bytes;
    settings_.receive_bytes = usual_buffer_bytes;
}

// The bytes that were sent still go to the peer. A request that is not accepted is rejected.
int Endpoint::close() {
    if (stream_ != nullptr) {
        const base::Lock lock{shard_->mutex()};
        stream_->mutex().assert_held();
        stream_->forget_observer();  // what is noticed from here on is no event
    }
    if (queue_ != nullptr) {
        (void)queue_->leave(*this, &fid);
        queue_->release();
    }
    if (stream_ != nullptr) {
        {
            const base::Lock lock{shard_->mutex()};
            (void)shard_->serve();
            stream_->mutex().assert_held();
            stream_->leave();
            end_watch_of_queue();
            end_watch(Watcher::Program);
        }
        stream::Leaving::instance().add(std::move(stream_), {});
    }
    (void)stream::Leaving::instance().sweep();
    delete this;
    return 0;
}

int Endpoint::bind(const Fid &object) {
    if (object.fclass != FI_CLASS_EQ || queue_ != nullptr) {
        return -FI_EINVAL;
    }
    queue_ = &object_of<EventQueue, fid_eq>(const_cast<fid_t>(&object));
    queue_->use();
    return 0;
}

int Endpoint::control(int command, void *argument) {
    switch (command) {
        case FI_ENABLE:
            return queue_ != nullptr ? 0 : -FI_ENOEQ;
        case FI_GETWAIT:
            return argument != nullptr ? get_wait(static_cast<int *>(argument)) : -FI_EINVAL;
        case FI_GETWAITOBJ:
            if (argument == nullptr) {
                return -FI_EINVAL;
            }
            *static_cast<fi_wait_obj *>(argument) = FI_WAIT_FD;
            return 0;
        default:
            return -FI_ENOSYS;
    }
}

int Endpoint::set_option(int level, int name, const void *value, std::size_t size) {
    const bool is_buffer = name == FI_OPT_SEND_BUF_SIZE || name == FI_OPT_RECV_BUF_SIZE;
    if (level != FI_OPT_ENDPOINT || (!is_buffer && name != FI_OPT_TX_SIZE && name != FI_OPT_RX_SIZE)) {
        return -FI_ENOPROTOOPT;
    }
    const auto number = number_of(value, size);
    if (!number || *number == 0 || *number > (is_buffer ? most_buffer_bytes : stream::most_messages)) {
        return -FI_EINVAL;
    }
    if (stream_ != nullptr) {
        return -FI_EOPBADSTATE;
    }
    if (is_buffer) {
        (name == FI_OPT_SEND_BUF_SIZE ? settings_.send_bytes : settings_.receive_bytes) =
            static_cast<std::uint32_t>(*number);
    } else {
        (name == FI_OPT_TX_SIZE ? settings_.sends : settings_.receives) = static_cast<std::uint16_t>(*number);
    }
    return 0;
}

int Endpoint::get_option(int level, int name, void *value, std::size_t *size) const {
    if (level != FI_OPT_ENDPOINT) {
        return -FI_ENOPROTOOPT;
    }
    if (value == nullptr || size == nullptr) {
        return -FI_EINVAL;
    }
    const stream::Settings &settings = stream_ != nullptr ? stream_->settings() : settings_;
    switch (name) {
        case FI_OPT_SEND_BUF_SIZE:
            return give(settings.send_bytes, value, size);
        case FI_OPT_RECV_BUF_SIZE:
            return give(settings.receive_bytes, value, size);
        case FI_OPT_TX_SIZE:
            return give(settings.sends, value, size);
        case FI_OPT_RX_SIZE:
            return give(settings.receives, value, size);
        case FI_OPT_CM_DATA_SIZE:
            return give(std::size_t{0}, value, size);
        default:
            return -FI_ENOPROTOOPT;
    }
}

int Endpoint::connect(const void *address) {
    if (queue_ == nullptr) {
        return -FI_ENOEQ;
    }
    if (stream_ != nullptr || request_) {
        return -FI_EOPBADSTATE;
    }
    const auto given = address != nullptr ? address_of(address, sizeof(sockaddr_in6)) : peer_;
    if (!given) {
        return -FI_EINVAL;
    }
    return guarded([&] {
        const sockaddr_storage remote = base::without_mapping(*given);
        sockaddr_storage local = base::without_mapping(local_);
        if (local.ss_family == AF_UNSPEC || base::is_wildcard(local)) {
            const auto source = stream::source_to(remote);
            if (!source) {
                return -source.error().number;
            }
            const std::uint16_t port = local.ss_family == AF_UNSPEC ? 0 : base::port_of(local);
            local = *source;
            base::set_port(local, port);
        }
        if (local.ss_family != remote.ss_family) {
            return -FI_EINVAL;
        }
        const auto device = device_at(local, domain_->device());
        return device ? begin(stream::Approach::to(**device, local, remote)) : -device.error().number;
    });
}

int Endpoint::accept() {
    if (queue_ == nullptr) {
        return -FI_ENOEQ;
    }
    if (stream_ != nullptr || !request_ || request_->asked.request == nullptr) {
        return -FI_EOPBADSTATE;
    }
    return guarded([&] { return begin(stream::Approach::answering(std::move(request_->asked))); });
}

int Endpoint::begin(stream::Approach approach) {
    auto shard = stream::Shard::make(*approach.device);
    if (!shard) {
        return -shard.error().number;
    }
    shard_ = std::move(*shard);
    auto stream = stream::Connection::begin(std::move(approach), settings_, *this, shard_);
    if (!stream) {
        return -stream.error().number;
    }
    request_.reset();
    stream_ = std::move(*stream);
    open_.store(stream_.get(), std::memory_order_release);
    auto watched = queue_->join(*this);
    const base::Lock lock{shard_->mutex()};
    if (watched && wait_set_) {
        watched = watch_for_program();
    }
    if (!watched) {
        stream_->mutex().assert_held();
        stream_->abort();
        return -watched.error().number;
    }
    (void)shard_->serve();
    changed();  // it may have failed at once
    tell_descriptor();
    return 0;
}

int Endpoint::shutdown() {
    stream::Connection *const stream = open_.load(std::memory_order_acquire);
    if (stream == nullptr) {
        return -FI_ENOTCONN;
    }
    const base::Lock lock{stream->mutex()};
    if (!stream->life().was_established()) {
        return -FI_ENOTCONN;
    }
    stream->shut(false, true);
    return 0;
}

base::Result<sockaddr_storage> Endpoint::name(base::End end) const {
    stream::Connection *const stream = open_.load(std::memory_order_acquire);
    if (stream == nullptr) {
        return end == base::End::Local && local_.ss_family != AF_UNSPEC
                   ? base::Result<sockaddr_storage>{local_}
                   : base::failure(end == base::End::Local ? FI_EOPBADSTATE : ENOTCONN);
    }
    const base::Lock lock{stream->mutex()};
    return stream->name(end);
}

void Endpoint::changed() {
    stream_->mutex().assert_held();
    const stream::Life &life = stream_->life();
    if (!told_connected_ && life.was_established()) {
        told_connected_ = true;
        queue_->push({.type = FI_CONNECTED, .fid = &fid, .info = nullptr, .error = 0, .data = {}});
    }
    const bool is_over = life.phase() == stream::Phase::Over;
    if (told_end_ || (!is_over && !life.peer_ended())) {
        return;
    }
    told_end_ = true;
    if (told_connected_) {
        queue_->push({.type = FI_SHUTDOWN, .fid = &fid, .info = nullptr, .error = 0, .data = {}});
        return;
    }
    const auto answer = life.was_accepted() ? std::span<const std::byte>{} : stream_->answer();
    queue_->push({.type = 0,
                  .fid = &fid,
                  .info = nullptr,
                  .error = life.error() != 0 ? life.error() : ECONNREFUSED,
                  .data = {answer.begin(), answer.end()}});
}

}  // namespace rstream
