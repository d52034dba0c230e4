// SPDX-License-Identifier: BSD-3-Clause
// datagram/queue_pair: an unreliable-datagram queue pair at one address of this machine.
#include "datagram/queue_pair.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>

#include <cerrno>
#include <string>

#include "base/log.hpp"
#include "verbs/select.hpp"

namespace datagram {

namespace {

constexpr std::size_t route_bytes = sizeof(ibv_grh);  // in front of each message that is received
constexpr std::size_t receive_stride = (route_bytes + slot_bytes + 63) / 64 * 64;
constexpr int look_up_ms = 1000;
constexpr std::uint8_t default_hops = 64;

std::string text_of(const Address &address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const in_addr v4 = address.ip.v4();
    const in6_addr v6 = address.ip.v6();
    const bool is_v4 = address.ip.is_v4();
    (void)inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? static_cast<const void *>(&v4) : &v6, text.data(),
                    text.size());
    std::array<char, IF_NAMESIZE> interface{};
    const bool has_scope = address.scope != 0 && if_indextoname(address.scope, interface.data()) != nullptr;
    return std::string{text.data()} + (has_scope ? std::string{"%"} + interface.data() : "");
}

AnyAddress without_port(Address address) {
    AnyAddress name;
    address.port = 0;
    (void)write_address(address, address.ip.is_v4() ? AF_INET : AF_INET6, name);
    return name;
}

bool is_gid_of(const ibv_gid &gid, const Ip &ip) {
    return std::ranges::equal(gid.raw, ip.bytes);
}

// Returns the sender's address from the 40 bytes before a message: they are a global route header, or, of
// RoCE version 2 over IPv4, have an IPv4 header in their last 20 bytes.
std::optional<Ip> source_of(std::span<const std::byte> route) {
    constexpr std::size_t v4_at = 20;
    constexpr std::size_t v4_source_at = v4_at + 12;
    if (std::to_integer<unsigned>(route[0]) >> 4 == 6) {
        Ip ip;
        std::memcpy(ip.bytes.data(), &route[8], ip.bytes.size());
        return ip;
    }
    if (std::to_integer<unsigned>(route[v4_at]) >> 4 == 4) {
        in_addr address;
        std::memcpy(&address, &route[v4_source_at], sizeof(address));
        return Ip::of_v4(address);
    }
    return std::nullopt;
}

// Never destroyed: other threads may be in a call when main() returns.
base::InterfaceTable &table() {
    static auto *const chosen = new base::InterfaceTable;
    return *chosen;
}

// Returns the context of a device that serves an address of this machine. The table, where it has a line for
// the address, chooses the device. ENODEV: none does, and nothing is logged.
base::Result<ibv_context *> context_at(const Address &here, const char *text) {
    const AnyAddress name = without_port(here);
    for (const auto kind : {verbs::DeviceKind::Kernel, verbs::DeviceKind::Soft}) {
        const auto context = verbs::find_local_context(text, kind);
        if (!context || (*context != nullptr &&
                         table().admits(name.any, kind == verbs::DeviceKind::Kernel ? "kernel" : "soft",
                                        (*context)->device->name))) {
            return context;
        }
    }
    return base::failure(ENODEV);
}

base::Result<void> never_blocks(int fd) {
    return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 ? base::Result<void>{} : base::last_failure();
}

}  // namespace

base::Result<std::unique_ptr<QueuePair>> QueuePair::create(const Address &here, Room room) {
    const std::string text = text_of(here);
    const auto context = context_at(here, text.c_str());
    if (!context) {
        return std::unexpected{context.error()};
    }
    std::unique_ptr<QueuePair> made{new QueuePair{verbs::provider_of(*context), room}};
    auto result = made->bind(here);
    result = result ? made->find_port(here.ip) : result;
    result = result ? made->make_queues() : result;
    if (!result) {
        BASE_LOG(Notice, "datagrams at %s go over UDP alone: no queue pair: %s", text.c_str(),
                 verbs::error_text(result.error().number));
        return std::unexpected{result.error()};
    }
    return made;
}

void QueuePair::choose_by(const base::InterfaceTable &chosen) {
    table() = chosen;
}

QueuePair::~QueuePair() = default;

base::Result<void> QueuePair::bind(const Address &here) {
    events_ = {provider_, provider_.cm.create_event_channel()};
    if (!events_) {
        return base::last_failure();
    }
    if (auto set = never_blocks(events_->fd); !set) {
        return set;
    }
    rdma_cm_id *raw = nullptr;
    if (provider_.cm.create_id(events_.get(), &raw, nullptr, RDMA_PS_UDP) != 0) {
        return base::last_failure();
    }
    id_ = {provider_, raw};
    AnyAddress name = without_port(here);
    if (provider_.cm.bind_addr(raw, &name.any) != 0) {
        return base::last_failure();
    }
    return raw->verbs != nullptr ? base::Result<void>{} : base::failure(ENODEV);
}

base::Result<void> QueuePair::find_port(const Ip &here) {
    ibv_port_attr port{};
    if (const int error = provider_.device.query_port(id_->verbs, id_->port_num, &port); error != 0) {
        return base::failure(error);
    }
    is_ethernet_ = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    most_bytes_ = std::min<std::size_t>(slot_bytes, 128U << port.active_mtu);
    if (!is_ethernet_) {
        return {};  // the first GID is InfiniBand's own
    }
    bool found = false;
    for (int i = 0; i < std::min(port.gid_tbl_len, 256); ++i) {
        ibv_gid_entry entry{};
        if (provider_.device.query_gid(id_->verbs, id_->port_num, static_cast<std::uint32_t>(i), &entry) ==
                0 &&
            is_gid_of(entry.gid, here) && (!found || entry.gid_type == IBV_GID_TYPE_ROCE_V2)) {
            gid_index_ = static_cast<std::uint8_t>(i);
            found = true;
        }
    }
    return found ? base::Result<void>{} : base::failure(EADDRNOTAVAIL);
}

base::Result<void> QueuePair::make_queues() {
    domain_ = {provider_, provider_.domain.alloc_pd(id_->verbs)};
    if (!domain_) {
        return base::last_failure();
    }
    const std::size_t size = room_.receives * receive_stride + room_.sends * slot_bytes;
    bytes_ = std::make_unique_for_overwrite<std::byte[]>(size);
    region_ = {provider_, provider_.domain.reg_mr(domain_.get(), bytes_.get(), size, IBV_ACCESS_LOCAL_WRITE)};
    if (!region_) {
        return base::last_failure();
    }
    if (!provider_.capabilities.waits_unarmed) {
        channel_ = {provider_, provider_.completion.create_comp_channel(id_->verbs)};
        if (!channel_) {
            return base::last_failure();
        }
        if (auto set = never_blocks(channel_->fd); !set) {
            return set;
        }
    }
    queue_ = {provider_,
              provider_.completion.create_cq(id_->verbs, static_cast<int>(room_.receives + room_.sends),
                                             nullptr, channel_.get(), 0)};
    if (!queue_) {
        return base::last_failure();
    }
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = attributes.recv_cq = queue_.get();
    attributes.cap.max_send_wr = static_cast<std::uint32_t>(room_.sends);
    attributes.cap.max_recv_wr = static_cast<std::uint32_t>(room_.receives);
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    attributes.qp_type = IBV_QPT_UD;
    attributes.sq_sig_all = 1;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.pd = domain_.get();
    if (provider_.cm.create_qp_ex(id_.get(), &attributes) != 0) {
        return base::last_failure();
    }
    pair_ = {provider_, id_.get()};
    for (std::uint32_t i = 0; i < room_.sends; ++i) {
        free_sends_.push_back(i);
    }
    for (std::size_t i = 0; i < room_.receives; ++i) {
        if (!post_receive(i)) {
            return base::failure(EIO);
        }
    }
    return {};
}

std::byte *QueuePair::receive_slot(std::size_t index) const {
    return &bytes_[index * receive_stride];
}

std::byte *QueuePair::send_slot(std::size_t index) const {
    return &bytes_[room_.receives * receive_stride + index * slot_bytes];
}

bool QueuePair::post_receive(std::size_t index) {
    ibv_sge place{.addr = reinterpret_cast<std::uintptr_t>(receive_slot(index)),
                  .length = route_bytes + slot_bytes,
                  .lkey = region_->lkey};
    ibv_recv_wr request{.wr_id = index, .next = nullptr, .sg_list = &place, .num_sge = 1};
    ibv_recv_wr *bad = nullptr;
    return ibv_post_recv(id_->qp, &request, &bad) == 0;
}

QueuePair::Received QueuePair::received(const ibv_wc &completion) const {
    const std::span slot{receive_slot(static_cast<std::uint32_t>(completion.wr_id)),
                         route_bytes + slot_bytes};
    const std::size_t bytes = std::clamp<std::size_t>(completion.byte_len, route_bytes, slot.size());
    const bool has_route = is_ethernet_ && (completion.wc_flags & IBV_WC_GRH) != 0;
    return {.message = slot.first(bytes).subspan(route_bytes),
            .qp_num = completion.src_qp,
            .source = has_route ? source_of(slot.first(route_bytes)) : std::nullopt};
}

std::span<std::byte> QueuePair::slot_to_send() const {
    return free_sends_.empty() ? std::span<std::byte>{}
                               : std::span{send_slot(free_sends_.back()), slot_bytes};
}

bool QueuePair::send(std::size_t bytes, ibv_ah *to, std::uint32_t qp_num) {
    const std::uint32_t index = free_sends_.back();
    ibv_sge place{.addr = reinterpret_cast<std::uintptr_t>(send_slot(index)),
                  .length = static_cast<std::uint32_t>(bytes),
                  .lkey = region_->lkey};
    ibv_send_wr request = verbs::request_of(IBV_WR_SEND, &place, 0, is_send | index);
    request.wr.ud.ah = to;
    request.wr.ud.remote_qpn = qp_num;
    request.wr.ud.remote_qkey = RDMA_UDP_QKEY;
    ibv_send_wr *bad = nullptr;
    if (ibv_post_send(id_->qp, &request, &bad) != 0) {
        return false;
    }
    free_sends_.pop_back();
    return true;
}

base::Result<verbs::Id> QueuePair::look_up(const Address &to, void *asker) {
    rdma_cm_id *raw = nullptr;
    if (provider_.cm.create_id(events_.get(), &raw, asker, RDMA_PS_UDP) != 0) {
        return base::last_failure();
    }
    verbs::Id id{provider_, raw};
    AnyAddress from{};
    std::memcpy(&from, rdma_get_local_addr(id_.get()), sizeof(from));
    (from.any.sa_family == AF_INET ? from.v4.sin_port : from.v6.sin6_port) = 0;
    AnyAddress name = without_port(to);
    if (provider_.cm.resolve_addr(raw, &from.any, &name.any, look_up_ms) != 0) {
        return base::last_failure();
    }
    return id;
}

std::optional<QueuePair::LookedUp> QueuePair::next_looked_up() {
    rdma_cm_event *raw = nullptr;
    while (provider_.cm.get_cm_event(events_.get(), &raw) == 0) {
        verbs::Event event{provider_, raw};
        rdma_cm_id *const id = raw->id;
        const rdma_cm_event_type what = raw->event;
        event.reset();
        if (id == id_.get()) {
            is_broken_ = is_broken_ || what == RDMA_CM_EVENT_DEVICE_REMOVAL;
        } else if (what == RDMA_CM_EVENT_ROUTE_RESOLVED) {
            return LookedUp{.asker = id->context, .handle = handle_towards(*id)};
        } else if (what != RDMA_CM_EVENT_ADDR_RESOLVED || provider_.cm.resolve_route(id, look_up_ms) != 0) {
            return LookedUp{.asker = id->context, .handle = {}};
        }
    }
    return std::nullopt;
}

verbs::AddressHandle QueuePair::handle_towards(const rdma_cm_id &id) const {
    if (id.verbs != id_->verbs || id.route.num_paths < 1) {
        return {};
    }
    const ibv_sa_path_rec &path = id.route.path_rec[0];
    ibv_ah_attr attributes{};
    attributes.port_num = id.port_num;
    attributes.sl = path.sl;
    attributes.dlid = ntohs(path.dlid);
    attributes.static_rate = path.rate;
    attributes.is_global = is_ethernet_ || path.hop_limit > 1 ? 1 : 0;
    attributes.grh.dgid = path.dgid;
    attributes.grh.sgid_index = gid_index_;
    attributes.grh.hop_limit = path.hop_limit > 1 ? path.hop_limit : default_hops;
    attributes.grh.traffic_class = path.traffic_class;
    attributes.grh.flow_label = ntohl(path.flow_label);
    return {provider_, provider_.domain.create_ah(domain_.get(), &attributes)};
}

base::Result<int> QueuePair::begin_wait() {
    int fd = -1;
    int error = 0;
    if (channel_) {
        error = ibv_req_notify_cq(queue_.get(), 0);
        fd = channel_->fd;
    } else {
        error = provider_.beyond.cq_wait_begin(queue_.get(), &fd);
    }
    return error == 0 ? base::Result<int>{fd} : base::failure(error);
}

void QueuePair::end_wait(bool others_wait) {
    if (!channel_) {
        (void)provider_.beyond.cq_wait_end(queue_.get());
        return;
    }
    ibv_cq *queue = nullptr;
    void *context = nullptr;
    while (provider_.completion.get_cq_event(channel_.get(), &queue, &context) == 0) {
        provider_.completion.ack_cq_events(queue, 1);
    }
    if (others_wait) {
        (void)ibv_req_notify_cq(queue_.get(), 0);  // the event that was taken was theirs, too
    }
}

}  // namespace datagram
