// SPDX-License-Identifier: BSD-3-Clause
#include "ends.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "suite.hpp"

namespace conformance {

CmEvent next_event(rdma_event_channel *events) {
    rdma_cm_event *event = nullptr;
    assert_int_equal(provider().cm.get_cm_event(events, &event), 0);
    CmEvent seen{.type = event->event,
                 .id = event->id,
                 .listen_id = event->listen_id,
                 .status = event->status,
                 .data = {}};
    if (event->param.conn.private_data != nullptr) {
        seen.data.assign(static_cast<const char *>(event->param.conn.private_data),
                         event->param.conn.private_data_len);
    }
    assert_int_equal(provider().cm.ack_cm_event(event), 0);
    return seen;
}

CmEvent expect_event(rdma_event_channel *events, rdma_cm_event_type type) {
    if (subject.by_number && type == RDMA_CM_EVENT_DISCONNECTED) {
        return {};  // nobody is told
    }
    CmEvent seen = next_event(events);
    if (seen.type != type) {
        std::fprintf(stderr, "expected %s, got %s (status %d)\n", provider().cm.event_str(type),
                     provider().cm.event_str(seen.type), seen.status);
    }
    assert_int_equal(seen.type, type);
    if (type == RDMA_CM_EVENT_DISCONNECTED && !subject.is_soft &&
        seen.id->verbs->device->transport_type == IBV_TRANSPORT_IB) {
        // InfiniBand's connection manager answers when the program disconnects too, and flushes then.
        (void)provider().cm.disconnect(seen.id);
    }
    return seen;
}

bool has_event(int fd) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&ready, 1, 0) == 1;
}

void make_non_blocking(int fd) {
    assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

rdma_conn_param connection_parameters(const std::string &private_data, std::uint8_t depth) {
    rdma_conn_param parameters{};
    parameters.private_data = private_data.data();
    parameters.private_data_len = static_cast<std::uint8_t>(private_data.size());
    parameters.responder_resources = depth;
    parameters.initiator_depth = depth;
    parameters.retry_count = 7;
    parameters.rnr_retry_count = 7;
    return parameters;
}

sockaddr_storage subject_address(std::uint16_t port) {
    return numeric_address(subject.address, port);
}

sockaddr_storage numeric_address(const std::string &text, std::uint16_t port) {
    sockaddr_storage address{};
    auto &v4 = reinterpret_cast<sockaddr_in &>(address);
    auto &v6 = reinterpret_cast<sockaddr_in6 &>(address);
    if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
    } else {
        assert_int_equal(inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr), 1);
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(port);
    }
    return address;
}

void resolve_address(rdma_cm_id *id, std::uint16_t port) {
    auto there = subject_address(port);
    assert_int_equal(
        provider().cm.resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&there), patience_ms), 0);
}

// The port is at the same place for IPv6.
std::uint16_t port_of(const rdma_cm_id &id) {
    return ntohs(id.route.addr.src_sin.sin_port);
}

End::End(const Sizes &wanted, const End *lender) : sizes{wanted}, lender_{lender} {}

void End::resolve(std::uint16_t port) {
    events = provider().cm.create_event_channel();
    assert_non_null(events);
    assert_int_equal(provider().cm.create_id(events, &id, this, RDMA_PS_TCP), 0);
    resolve_address(id, port);
    expect_event(events, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(provider().cm.resolve_route(id, patience_ms), 0);
    expect_event(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
    create_objects();
}

void End::request(const std::string &private_data) {
    auto parameters = connection_parameters(private_data, sizes.depth);
    assert_int_equal(provider().cm.connect(id, &parameters), 0);
}

void End::take(rdma_cm_id *requested) {
    id = requested;
    events = provider().cm.create_event_channel();
    assert_non_null(events);
    assert_int_equal(provider().cm.migrate_id(id, events), 0);
    create_objects();
}

std::uint8_t gid_index(ibv_context *context) {
    const sockaddr_storage here = subject_address(0);
    const bool is_v6 = here.ss_family == AF_INET6;
    const void *const bytes =
        is_v6 ? static_cast<const void *>(&reinterpret_cast<const sockaddr_in6 &>(here).sin6_addr)
              : &reinterpret_cast<const sockaddr_in &>(here).sin_addr;
    const std::size_t size = is_v6 ? sizeof(in6_addr) : sizeof(in_addr);
    ibv_gid gid;
    for (std::uint8_t index = 0; softrdma_ibv_query_gid(context, 1, index, &gid) == 0; ++index) {
        if (std::memcmp(gid.raw + sizeof(gid.raw) - size, bytes, size) == 0) {
            return index;
        }
    }
    fail_msg("no GID is %s", subject.address.c_str());
    return 0;
}

int enter_init(ibv_qp *qp) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = full_access | IBV_ACCESS_REMOTE_ATOMIC;
    return softrdma_ibv_modify_qp(qp, &attributes,
                                  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int enter_rtr(ibv_qp *qp, std::uint32_t peer, std::uint8_t depth) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer;
    attributes.rq_psn = 7;
    attributes.max_dest_rd_atomic = depth;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.sgid_index = gid_index(qp->context);
    attributes.ah_attr.grh.hop_limit = 1;
    assert_int_equal(softrdma_ibv_query_gid(qp->context, 1, attributes.ah_attr.grh.sgid_index,
                                            &attributes.ah_attr.grh.dgid),
                     0);
    const int reliable = qp->qp_type != IBV_QPT_UC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
    return softrdma_ibv_modify_qp(
        qp, &attributes,
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | reliable);
}

int enter_rts(ibv_qp *qp, std::uint8_t depth, std::uint8_t timeout) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = 7;
    attributes.timeout = timeout;
    attributes.retry_cnt = attributes.rnr_retry = 7;
    attributes.max_rd_atomic = depth;
    const int reliable = qp->qp_type != IBV_QPT_UC
                             ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                             : 0;
    return softrdma_ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN | reliable);
}

void End::prepare() {
    events = provider().cm.create_event_channel();
    assert_non_null(events);
    assert_int_equal(provider().cm.create_id(events, &id, this, RDMA_PS_TCP), 0);
    auto here = subject_address(0);
    assert_int_equal(provider().cm.bind_addr(id, reinterpret_cast<sockaddr *>(&here)), 0);
    create_objects();
}

void End::connect_to(std::uint32_t number) {
    assert_int_equal(enter_init(id->qp), 0);
    assert_int_equal(enter_rtr(id->qp, number, sizes.depth), 0);
    assert_int_equal(enter_rts(id->qp, sizes.depth), 0);
}

void End::accept(const std::string &private_data) {
    auto parameters = connection_parameters(private_data, sizes.depth);
    assert_int_equal(provider().cm.accept(id, &parameters), 0);
}

void End::create_objects() {
    assert_non_null(id->verbs);
    if (lender_ != nullptr) {
        pd = lender_->pd;
        cq = lender_->cq;
        receive_cq = lender_->receive_cq;
        srq = lender_->srq;
        channel = lender_->channel;
    } else {
        pd = provider().domain.alloc_pd(id->verbs);
        assert_non_null(pd);
        channel = provider().completion.create_comp_channel(id->verbs);
        assert_non_null(channel);
        cq = sizes.extended_cq ? create_extended_cq()
                               : provider().completion.create_cq(id->verbs, sizes.cqe, this, channel, 0);
        assert_non_null(cq);
        receive_cq =
            sizes.separate_cqs ? provider().completion.create_cq(id->verbs, sizes.cqe, this, channel, 0) : cq;
        assert_non_null(receive_cq);
    }
    if (sizes.shared_receive_wr != 0 && srq == nullptr) {
        create_shared_receive_queue();
    }
    create_queue_pair();
    memory.assign(sizes.memory_bytes, std::byte{0});
    mr = provider().domain.reg_mr(pd, memory.data(), memory.size(),
                                  full_access | verbs::flush_access(provider(), verbs::Flush::Visibility));
    assert_non_null(mr);
}

ibv_cq *End::create_extended_cq() {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = static_cast<std::uint32_t>(sizes.cqe);
    attributes.cq_context = this;
    attributes.channel = channel;
    attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
    ibv_cq_ex *const queue = ibv_create_cq_ex(id->verbs, &attributes);
    assert_non_null(queue);
    return ibv_cq_ex_to_cq(queue);
}

void End::create_shared_receive_queue() {
    ibv_srq_init_attr attributes{};
    attributes.attr = {.max_wr = sizes.shared_receive_wr, .max_sge = sizes.sge, .srq_limit = 0};
    srq = provider().domain.create_srq(pd, &attributes);
    assert_non_null(srq);
    owns_srq_ = true;
}

bool End::can_share_receives() const {
    ibv_device_attr_ex attributes{};
    assert_int_equal(provider().device.query_device_ex(id->verbs, nullptr, &attributes), 0);
    return attributes.orig_attr.max_srq > 0;
}

void End::create_queue_pair() {
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = cq;
    attributes.recv_cq = receive_cq;
    attributes.srq = srq;
    attributes.cap.max_send_wr = sizes.send_wr;
    attributes.cap.max_recv_wr = sizes.receive_wr;
    attributes.cap.max_send_sge = sizes.sge;
    attributes.cap.max_recv_sge = sizes.sge;
    attributes.cap.max_inline_data = sizes.max_inline;
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = sizes.signal_all ? 1 : 0;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (sizes.send_operations != 0) {
        attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attributes.send_ops_flags = sizes.send_operations;
    }
    attributes.pd = pd;
    if (subject.by_number) {
        attributes.qp_type = sizes.type;
        id->qp = softrdma_ibv_create_qp_ex(id->verbs, &attributes);
        assert_non_null(id->qp);
        return;
    }
    assert_int_equal(provider().cm.create_qp_ex(id, &attributes), 0);
}

ibv_mr *End::register_memory(void *address, std::size_t length, int access) {
    ibv_mr *const region = provider().domain.reg_mr(pd, address, length, access);
    if (region != nullptr) {
        more_regions_.push_back(region);
    }
    return region;
}

void End::destroy_queue_pair() {
    if (id != nullptr && id->qp != nullptr && subject.by_number) {
        assert_int_equal(softrdma_ibv_destroy_qp(std::exchange(id->qp, nullptr)), 0);
    }
    if (id != nullptr && id->qp != nullptr) {
        provider().cm.destroy_qp(id);
    }
}

void End::destroy() {
    destroy_queue_pair();
    if (ibv_srq *const queue = std::exchange(srq, nullptr); queue != nullptr && owns_srq_) {
        (void)provider().domain.destroy_srq(queue);
    }
    for (ibv_mr *const region : std::exchange(more_regions_, {})) {
        (void)provider().domain.dereg_mr(region);
    }
    if (ibv_mr *const region = std::exchange(mr, nullptr)) {
        (void)provider().domain.dereg_mr(region);
    }
    if (lender_ == nullptr) {
        if (receive_cq != nullptr && receive_cq != cq) {
            (void)provider().completion.destroy_cq(receive_cq);
        }
        if (cq != nullptr) {
            (void)provider().completion.destroy_cq(cq);
        }
        if (channel != nullptr) {
            (void)provider().completion.destroy_comp_channel(channel);
        }
    }
    receive_cq = cq = nullptr;
    channel = nullptr;
    if (rdma_cm_id *const old = std::exchange(id, nullptr)) {
        (void)provider().cm.destroy_id(old);
    }
    if (ibv_pd *const domain = std::exchange(pd, nullptr); domain != nullptr && lender_ == nullptr) {
        (void)provider().domain.dealloc_pd(domain);
    }
    if (rdma_event_channel *const old = std::exchange(events, nullptr)) {
        provider().cm.destroy_event_channel(old);
    }
}

Listener::Listener(int backlog, const std::string &address) {
    events = provider().cm.create_event_channel();
    assert_non_null(events);
    assert_int_equal(provider().cm.create_id(events, &id, this, RDMA_PS_TCP), 0);
    auto here = numeric_address(address, 0);
    assert_int_equal(provider().cm.bind_addr(id, reinterpret_cast<sockaddr *>(&here)), 0);
    assert_int_equal(provider().cm.listen(id, backlog), 0);
    port = port_of(*id);
}

CmEvent Listener::take_request() {
    return expect_event(events, RDMA_CM_EVENT_CONNECT_REQUEST);
}

void Listener::destroy() {
    if (id != nullptr) {
        (void)provider().cm.destroy_id(std::exchange(id, nullptr));
    }
    if (events != nullptr) {
        provider().cm.destroy_event_channel(std::exchange(events, nullptr));
    }
}

void Ends::request(const std::string &client_data) {
    if (subject.by_number) {
        skip();  // the test is about rdma_cm
    }
    client.resolve(listener.port);
    client.request(client_data);
}

void Ends::take_request() {
    const CmEvent request = listener.take_request();
    client_data_seen = request.data;
    server.take(request.id);
}

void Ends::accept(const std::string &server_data) {
    server.accept(server_data);
}

void Ends::expect_established() {
    server_data_seen = expect_event(client.events, RDMA_CM_EVENT_ESTABLISHED).data;
    expect_event(server.events, RDMA_CM_EVENT_ESTABLISHED);
}

void Ends::connect(const std::string &client_data, const std::string &server_data) {
    if (subject.by_number) {
        client.prepare();
        server.prepare();
        client.connect_to(server.id->qp->qp_num);
        server.connect_to(client.id->qp->qp_num);
        for (const End *const end : {&client, &server}) {
            while (softrdma_link(end->id->qp) == nullptr) {
                std::this_thread::yield();
            }
        }
        return;
    }
    request(client_data);
    take_request();
    accept(server_data);
    expect_established();
}

void Ends::expect_disconnected() {
    if (subject.by_number) {
        return;  // nobody is told
    }
    if (!client.is_iwarp()) {
        // Only programs end InfiniBand's connections; errors do not.
        (void)provider().cm.disconnect(client.id);
    }
    pollfd channels[] = {{.fd = client.events->fd, .events = POLLIN, .revents = 0},
                         {.fd = server.events->fd, .events = POLLIN, .revents = 0}};
    assert_in_range(poll(channels, 2, patience_ms), 1, 2);
    End &told = channels[0].revents != 0 ? client : server;
    End &other = channels[0].revents != 0 ? server : client;
    expect_event(told.events, RDMA_CM_EVENT_DISCONNECTED);
    expect_event(other.events, RDMA_CM_EVENT_DISCONNECTED);
}

void Ends::disconnect() {
    if (!subject.by_number) {
        assert_int_equal(provider().cm.disconnect(client.id), 0);
    }
    expect_disconnected();
}

Ends &connected(const Sizes &sizes) {
    Ends &ends = make<Ends>(sizes);
    ends.connect();
    return ends;
}

}  // namespace conformance
