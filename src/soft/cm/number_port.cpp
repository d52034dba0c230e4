// SPDX-License-Identifier: BSD-3-Clause
#include "soft/cm/number_port.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "base/mutex.hpp"
#include "soft/cm/by_number.hpp"
#include "soft/cm/rejection.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/limits.hpp"
#include "soft/ground/tcp.hpp"

namespace soft {

namespace {

constexpr unsigned bits_of_port = 16;

constinit base::LastingMutex ports_lock;  // no group's lock is taken with it, nor the other way round

const base::HeldWhileForking<ports_lock> ports_survive_forks{base::ForkLevel::SoftCm};

// The ports of this process. A child has others, because its parent's sockets are not its own.
struct Ports : base::Inheritable {
    std::vector<std::shared_ptr<NumberPort>> all;
    std::shared_ptr<Group> group;  // serves all listeners
};

// They are never destroyed, because queue pairs may be destroyed while the process ends.
Ports &ports() REQUIRES(ports_lock) {
    static std::unique_ptr<Ports> &current = *new std::unique_ptr<Ports>;
    if (current == nullptr || current->inherited()) {
        if (current != nullptr) {
            base::leave_to_parent(std::move(current));
        }
        current = std::make_unique<Ports>();
    }
    return *current;
}

base::Result<base::Fd> bound_anywhere(sa_family_t family) {
    tcp::Address any{};
    any.ss_family = family;
    tcp::Options options;
    options.v6_only = false;
    return tcp::bound(reinterpret_cast<const sockaddr &>(any), options);
}

base::Result<std::shared_ptr<NumberPort>> new_port() {
    auto socket = bound_anywhere(AF_INET6);
    if (!socket && socket.error().number == EAFNOSUPPORT) {
        socket = bound_anywhere(AF_INET);
    }
    if (!socket) {
        return std::unexpected{socket.error()};
    }
    // The port is at the same place for IPv6.
    const tcp::Address here = tcp::local_address(socket->get());
    const std::uint16_t port = ntohs(reinterpret_cast<const sockaddr_in &>(here).sin_port);
    if (port < lowest_port_of_number) {
        BASE_LOG(Error, "no queue pair: the kernel gives ports below %u (net.ipv4.ip_local_port_range)",
                 lowest_port_of_number);
        return base::failure(EADDRNOTAVAIL);
    }
    return std::make_shared<NumberPort>(*std::move(socket), port);
}

}  // namespace

base::Result<QueuePairNumber> QueuePairNumber::take() {
    const base::Lock lock{ports_lock};
    auto &all = ports().all;
    auto found =
        std::ranges::find_if(all, [](const auto &one) { return one->taken_ < NumberPort::most_taken; });
    if (found == all.end()) {
        auto made = new_port();
        if (!made) {
            return std::unexpected{made.error()};
        }
        all.push_back(*std::move(made));
        found = all.end() - 1;
    }
    NumberPort &port = **found;
    while (port.is_taken_[port.next_]) {
        port.next_ = (port.next_ + 1) % NumberPort::places;
    }
    const std::size_t place = port.next_;
    port.next_ = (place + 1) % NumberPort::places;
    port.is_taken_[place] = true;
    ++port.taken_;
    return QueuePairNumber{*found, static_cast<std::uint32_t>(place) << bits_of_port | port.port_};
}

QueuePairNumber::~QueuePairNumber() {
    if (port_ != nullptr) {
        const base::Lock lock{ports_lock};
        port_->is_taken_[value_ >> bits_of_port] = false;
        --port_->taken_;
    }
}

// The group's lock is taken without the lock of the ports, for which fork(2) and every queue pair that is
// made wait.
base::Result<std::shared_ptr<Group>> NumberPort::listen() {
    std::shared_ptr<Group> group;
    {
        const base::Lock lock{ports_lock};
        if (ports().group == nullptr) {
            auto made = Group::create();
            if (!made) {
                return std::unexpected{made.error()};
            }
            ports().group = *std::move(made);
        }
        group = ports().group;
    }
    const base::Lock begins{begins_};
    if (listener_ == nullptr) {
        auto spare = Listener::spare_of(socket_);
        if (!spare) {
            return std::unexpected{spare.error()};
        }
        if (auto listening = tcp::listen(socket_.get(), limits::max_listen_backlog); !listening) {
            return std::unexpected{listening.error()};
        }
        listener_ = std::make_unique<Listener>(*this, std::move(socket_), *std::move(spare), group,
                                               tls_of_new_ids(), true);
    }
    return group;
}

void NumberPort::request_arrived(Handshake &handshake, const wire::MpaFrame &request) {
    const auto names = wire::decode_names(request.private_data);
    const bool is_ours = names && (names->destination & UINT16_MAX) == port_;
    const auto held = is_ours ? AnyQueuePair::find(names->destination) : AnyQueuePair::Hold{};
    if (held.get() != nullptr) {
        // The number has this port, so it is a queue pair that is connected by number.
        auto &queue_pair = static_cast<QueuePair &>(*held.get());
        static_cast<ByNumber &>(*queue_pair.connector()).request_arrived(handshake, request, *names);
        return;
    }
    BASE_LOG_PEER(Info, "no connection with %s: %s", tcp::text_of(handshake.peer()).c_str(),
                  names ? "it names a queue pair that is not here" : "it names no queue pair");
    (void)refuse(handshake.take_link(), handshake.peer(), request, Reason::Unsaid, {});
}

}  // namespace soft
