// SPDX-License-Identifier: BSD-3-Clause
#include "soft/cm/by_number.hpp"

#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/address.hpp"
#include "base/log.hpp"
#include "soft/cm/number_port.hpp"
#include "soft/cm/rejection.hpp"
#include "soft/cm/wanted.hpp"
#include "soft/datagram/socket.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/interfaces.hpp"
#include "soft/ground/limits.hpp"
#include "soft/link/multipath_link.hpp"
#include "soft/tls/tls_start.hpp"

namespace soft {

namespace {

// Between two attempts of requests that wait, and the first time without requests. Then it doubles, up to the
// longest.
constexpr base::Milliseconds retry_interval{200};
constexpr base::Milliseconds longest_retry_interval = limits::handshake_timeout;
// Between two tries to give a link to a queue pair whose group another thread serves.
constexpr base::Milliseconds start_interval{20};

const sockaddr &raw(const tcp::Address &address) {
    return reinterpret_cast<const sockaddr &>(address);
}

// Two soft devices need nothing of each other that one of them cannot have.
bool is_of_soft_device(const wire::MpaFrame &frame) {
    return frame.soft_operations && frame.enhanced && frame.peer_to_peer && frame.rtr_write &&
           !frame.markers && frame.revision == 2;
}

wire::QueuePairType type_of(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_UC:
            return wire::QueuePairType::Unreliable;
        case IBV_QPT_XRC_SEND:
            return wire::QueuePairType::XrcSend;
        case IBV_QPT_XRC_RECV:
            return wire::QueuePairType::XrcReceive;
        default:
            return wire::QueuePairType::Reliable;
    }
}

// Returns the type that the peer of a queue pair has.
wire::QueuePairType opposite_of(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_XRC_SEND:
            return wire::QueuePairType::XrcReceive;
        case IBV_QPT_XRC_RECV:
            return wire::QueuePairType::XrcSend;
        default:
            return type_of(type);
    }
}

base::Result<void> no_path(const ibv_qp &queue_pair, const char *expected) {
    BASE_LOG(Error, "queue pair 0x%06x has no path to its peer: expected %s", queue_pair.qp_num, expected);
    return base::failure(EINVAL);
}

}  // namespace

base::Result<void> ByNumber::aim(const ibv_qp_attr &attributes) {
    const ibv_qp &qp = queue_pair_.qp_base;
    const auto &device = *static_cast<const Device *>(qp.context->device);
    const ibv_ah_attr &way = attributes.ah_attr;
    const auto gids = udp::gids_of(device);
    const std::size_t source = way.is_global != 0 ? way.grh.sgid_index : 0;
    if (way.port_num != 1) {
        return no_path(qp, "port 1");
    }
    if (source >= gids.size()) {
        return no_path(qp, "a GID of this device as source");
    }
    if (way.is_global == 0 && way.dlid != 0) {
        return no_path(qp, "a GID (global), or LID 0, which is this device's own");
    }
    const ibv_gid &destination = way.is_global != 0 ? way.grh.dgid : gids[source];
    if (udp::is_unspecified(destination) || udp::is_multicast(destination) ||
        udp::is_ipv4(destination) != udp::is_ipv4(gids[source])) {
        return no_path(qp, "the GID of one host, of the IP version of the source");
    }
    const std::uint32_t interface = if_nametoindex(device.interface.c_str());
    Path path{.here = udp::address_of({.gid = gids[source], .interface = interface}),
              .there = udp::address_of({.gid = destination,
                                        .port = static_cast<std::uint16_t>(attributes.dest_qp_num),
                                        .interface = interface}),
              .peer = attributes.dest_qp_num,
              .options = {}};
    if (way.is_global != 0 && way.grh.traffic_class != 0) {
        path.options.service_type = way.grh.traffic_class;
    }
    const base::SharedTls &tls = tls_of_new_ids();
    if (auto ready = may_let_in(*tls); !ready) {
        return ready;
    }
    if (auto may = may_be_secure(*tls, *queue_pair_.group()); !may) {
        return may;
    }
    auto group = number_.port().listen();
    if (!group) {
        return std::unexpected{group.error()};
    }
    group_ = *std::move(group);
    const base::Lock lock{group_->mutex()};
    path_ = path;
    aimed_ = true;
    refused_peer_ = false;
    retry_after_ = retry_interval;
    return {};
}

// The peer may have come since aim().
void ByNumber::begin() {
    const base::Lock lock{group_->mutex()};
    try_if_wanted();
}

void ByNumber::expect_answer_within(base::Clock::duration time) {
    const base::Lock lock{group_->mutex()};
    time_to_answer_ = time;
}

void ByNumber::send_waits() {
    const base::Lock lock{group_->mutex()};
    if (!aimed_ || std::exchange(tries_again_, true)) {
        return;
    }
    const auto now = base::Clock::now();
    const bool for_ever = time_to_answer_ >= base::Clock::time_point::max() - now;
    gives_up_at_ = for_ever ? base::Clock::time_point::max() : now + time_to_answer_;
    group_->set_deadline(*this, now + retry_interval);
}

void ByNumber::stop() {
    if (group_ == nullptr) {
        return;
    }
    const base::Lock lock{group_->mutex()};
    aimed_ = tries_again_ = refused_peer_ = false;
    group_->clear_deadline(*this);
    end_attempt();
}

void ByNumber::expire() {
    assert_held();
    try {
        if (starting_ && !try_to_start({})) {
            group_->set_deadline(*this, base::Clock::now() + start_interval);
            return;
        }
    } catch (const std::bad_alloc &) {
        BASE_LOG_PEER(Error, "queue pair 0x%06x has no connection: out of memory", number_.value());
    }
    tries_again_ = tries_again_ && queue_pair_.waits_to_send();
    if (tries_again_) {
        const auto now = base::Clock::now();
        if (now >= gives_up_at_) {
            if (!queue_pair_.nobody_answers()) {
                group_->set_deadline(*this, now + start_interval);
                return;
            }
            tries_again_ = false;
            attempt_failed(Answer::None);  // an unreliable queue pair only loses the requests
            return;
        }
        group_->set_deadline(*this, std::min(now + retry_interval, gives_up_at_));
    }
    try_if_wanted();
}

bool ByNumber::to_itself() const {
    return path_.peer == number_.value() && base::same_host(path_.here, path_.there);
}

// Returns whether this end's attempt counts when both try at once.
bool ByNumber::comes_first() const {
    if (path_.peer != number_.value()) {
        return number_.value() > path_.peer;
    }
    const ibv_gid here = gid_of(raw(path_.here));
    const ibv_gid there = gid_of(raw(path_.there));
    return std::memcmp(here.raw, there.raw, sizeof(here.raw)) > 0;
}

ConnectionParameters ByNumber::parameters(bool initiator, bool crc) const {
    return {.initiator = initiator,
            .ready_to_receive = true,
            .crc = crc,
            .soft_peer = true,
            .by_number = true,
            .acknowledged = is_reliable(),
            .ird = limits::max_rd_atomic};
}

base::Result<void> ByNumber::try_to_connect() {
    tcp::Options options = path_.options;
    options.within_host = to_itself() || is_here(path_.there);
    options.port_when_connected = !to_itself();
    auto socket = tcp::bound(raw(path_.here), options);
    if (!socket) {
        return std::unexpected{socket.error()};
    }
    const tcp::Address there = to_itself() ? tcp::local_address(socket->get()) : path_.there;
    socket = tcp::connect(*std::move(socket), raw(there), options);
    if (!socket) {
        return std::unexpected{socket.error()};
    }
    if (to_itself()) {
        ConnectionParameters own = parameters(true, false);
        own.ready_to_receive = false;
        start(link_on(*std::move(socket), limits::silence_timeout), there, own);
        return {};
    }
    meeting_ = Meeting::begin(tcp::local_address(socket->get()), there);
    const auto names = wire::encode(wire::QueuePairNames{
        .type = type_of(queue_pair_.qp_base.qp_type), .destination = path_.peer, .source = number_.value()});
    const wire::MpaFrame request{.crc = crc_wanted(*tls_of_new_ids()),
                                 .soft_operations = true,
                                 .peer_to_peer = true,
                                 .rtr_write = true,
                                 .ird = limits::max_rd_atomic,
                                 .ord = limits::max_rd_atomic,
                                 .private_data = names};
    attempt_ = Handshake::begin(*this, group_, *std::move(socket), there, tls_of_new_ids(), &request);
    return {};
}

void ByNumber::try_if_wanted() {
    if (attempt_ != nullptr || starting_ || !queue_pair_.wants_link()) {
        return;
    }
    int error = ENOMEM;
    try {
        const auto tried = try_to_connect();
        error = tried ? 0 : tried.error().number;
    } catch (const std::bad_alloc &) {
        end_attempt();
    }
    if (error != 0) {
        BASE_LOG_PEER_AT(static_cast<int>(level_of_failure(error)),
                         "queue pair 0x%06x cannot connect to %s: %s", number_.value(),
                         tcp::text_of(path_.there).c_str(), std::strerror(error));
        attempt_failed(answer_of(error));
    }
}

void ByNumber::end_attempt() {
    attempt_.reset();
    meeting_.reset();
    starting_.reset();
}

// Nobody listens there, or somebody who speaks otherwise, or does not trust this end.
ByNumber::Answer ByNumber::answer_of(int error) {
    return error == ECONNREFUSED || error == EPROTO || error == EACCES ? Answer::NotReady : Answer::None;
}

// A peer that is not ready connects when it is, unless it was refused already. One that has not answered, or
// is out of descriptors, may be ready, and have been refused before this end was.
void ByNumber::attempt_failed(Answer answer) {
    end_attempt();
    if (answer == Answer::NotReady) {
        if (std::exchange(refused_peer_, false)) {
            try_if_wanted();
        }
    } else if (!tries_again_) {
        group_->set_deadline(*this, base::Clock::now() + retry_after_);
        retry_after_ = std::min(2 * retry_after_, longest_retry_interval);
    }
}

bool ByNumber::offers_memory(Handshake &handshake) {
    assert_held();
    if (meeting_ && !meeting_->offer(secrets_of(handshake.link()), *queue_pair_.group())) {
        meeting_.reset();
    }
    return meeting_ != nullptr;
}

void ByNumber::handshake_done(Handshake &handshake, const wire::MpaFrame &reply) {
    assert_held();
    if (reply.reject || !is_of_soft_device(reply)) {
        BASE_LOG_PEER(Info, "queue pair 0x%06x: %s does not connect yet, or has no such queue pair",
                      number_.value(), tcp::text_of(path_.there).c_str());
        attempt_failed(reply.reject && reply.soft_operations ? Answer::None : Answer::NotReady);
        return;
    }
    const bool crc = reply.crc || crc_wanted(*tls_of_new_ids());
    auto link = link_behind_reply(handshake.take_link(), path_.there, std::move(meeting_), reply);
    if (!link) {
        attempt_failed(Answer::None);
        return;
    }
    start(*std::move(link), path_.there, parameters(true, crc));
    attempt_.reset();
}

void ByNumber::handshake_failed(Handshake &, int error) {
    assert_held();
    attempt_failed(answer_of(error));
}

bool ByNumber::is_from_peer(const Handshake &handshake, const wire::QueuePairNames &names) const {
    return aimed_ && names.source == path_.peer && names.type == opposite_of(queue_pair_.qp_base.qp_type) &&
           base::same_host(handshake.peer(), path_.there) &&
           base::same_host(tcp::local_address(handshake.link().descriptor()), path_.here);
}

// A request whose peer has given it up meanwhile is dropped: the peer tries again, if it is still there.
void ByNumber::request_arrived(Handshake &handshake, const wire::MpaFrame &request,
                               const wire::QueuePairNames &names) {
    assert_held();
    const bool expected = is_of_soft_device(request) && is_from_peer(handshake, names) &&
                          queue_pair_.wants_link() && !starting_;
    const bool ours_counts = expected && attempt_ != nullptr && comes_first();
    refused_peer_ = refused_peer_ || ours_counts;
    if (!expected || ours_counts) {
        BASE_LOG_PEER(Info, "queue pair 0x%06x refuses queue pair 0x%06x of %s%s", number_.value(),
                      names.source, tcp::text_of(handshake.peer()).c_str(),
                      ours_counts ? ", to which it connects itself" : "");
        (void)refuse(handshake.take_link(), handshake.peer(), request, Reason::Unsaid, {});
    } else if (!handshake.link().ready().ended) {
        end_attempt();
        answer(handshake, request);
    }
}

void ByNumber::answer(Handshake &handshake, const wire::MpaFrame &request) {
    std::unique_ptr<Link> link = handshake.take_link();
    const tcp::Address &peer = handshake.peer();
    const bool crc = request.crc || crc_wanted(*tls_of_new_ids());
    const wire::MpaFrame reply{.crc = crc,
                               .soft_operations = true,
                               .peer_to_peer = true,
                               .rtr_write = true,
                               .ird = limits::max_rd_atomic,
                               .ord = limits::max_rd_atomic};
    if (!send_reply(link, peer, request, reply, *queue_pair_.group())) {
        return;  // the peer has gone
    }
    start(std::move(link), peer, parameters(false, crc));
}

// The thread that serves the queue pair's group may wait for a page of memory, and this group serves all
// queue pairs by number. So the link waits here meanwhile, and its bytes in its socket.
void ByNumber::start(std::unique_ptr<Link> link, const tcp::Address &peer,
                     const ConnectionParameters &parameters) {
    BriefWait &waits = number_.port().waits();
    starting_.emplace(std::move(link), peer, parameters);
    if (!try_to_start(waits.until())) {
        waits.was_in_vain();
        group_->set_deadline(*this, base::Clock::now() + start_interval);
    }
}

bool ByNumber::try_to_start(base::Clock::time_point until) {
    Starting starting = std::move(*starting_);
    starting_.reset();
    if (!queue_pair_.start_by_number(starting.link, starting.peer, starting.parameters, until)) {
        starting_ = std::move(starting);
    }
    return !starting_;
}

}  // namespace soft
