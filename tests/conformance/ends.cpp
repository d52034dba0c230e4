// SPDX-License-Identifier: BSD-3-Clause
// conformance: see the header.
#include "ends.hpp"

#include <cstdio>
#include <cstring>

// cmocka.h wants these before it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

extern "C" {
#include <cmocka.h>
}

namespace conformance {

Subject subject;

namespace {

constexpr int everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

const verbs::Provider &provider() { return *subject.provider; }

rdma_addrinfo *resolved(const char *port, int flags) {
    rdma_addrinfo hints{};
    hints.ai_flags = flags;
    hints.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo *found = nullptr;
    assert_int_equal(provider().getaddrinfo(subject.address.c_str(), port, &hints, &found), 0);
    return found;
}

}  // namespace

std::string expect_event(rdma_event_channel *events, rdma_cm_event_type type, rdma_cm_id **id, int *status) {
    rdma_cm_event *event = nullptr;
    assert_int_equal(provider().get_cm_event(events, &event), 0);
    if (event->event != type) {
        std::fprintf(stderr, "expected %s, got %s (status %d)\n", provider().event_str(type), provider().event_str(event->event), event->status);
    }
    assert_int_equal(event->event, type);
    if (id != nullptr) {
        *id = event->id;
    }
    if (status != nullptr) {
        *status = event->status;
    }
    std::string data;
    if (event->param.conn.private_data != nullptr) {
        data.assign(static_cast<const char *>(event->param.conn.private_data), event->param.conn.private_data_len);
    }
    assert_int_equal(provider().ack_cm_event(event), 0);
    return data;
}

Ends::Ends(const Sizes &sizes) : sizes_{sizes} {
    listen_events_ = provider().create_event_channel();
    assert_non_null(listen_events_);
    assert_int_equal(provider().create_id(listen_events_, &listener_, nullptr, RDMA_PS_TCP), 0);
    rdma_addrinfo *const here = resolved("0", RAI_PASSIVE);
    assert_int_equal(provider().bind_addr(listener_, here->ai_src_addr), 0);
    provider().freeaddrinfo(here);
    assert_int_equal(provider().listen(listener_, 4), 0);

    client.events = provider().create_event_channel();
    assert_non_null(client.events);
    assert_int_equal(provider().create_id(client.events, &client.id, nullptr, RDMA_PS_TCP), 0);
    const auto port = std::to_string(ntohs(reinterpret_cast<sockaddr_in *>(&listener_->route.addr.src_addr)->sin_port));
    rdma_addrinfo *const there = resolved(port.c_str(), 0);
    assert_int_equal(provider().resolve_addr(client.id, nullptr, there->ai_dst_addr, 2000), 0);
    provider().freeaddrinfo(there);
    expect_event(client.events, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(provider().resolve_route(client.id, 2000), 0);
    expect_event(client.events, RDMA_CM_EVENT_ROUTE_RESOLVED);
    create_objects(client);
}

Ends::~Ends() {
    destroy(client);
    destroy(server);
    (void)provider().destroy_id(listener_);
    provider().destroy_event_channel(listen_events_);
}

void Ends::create_objects(End &end) {
    assert_non_null(end.id->verbs);
    end.pd = provider().alloc_pd(end.id->verbs);
    assert_non_null(end.pd);
    end.channel = provider().create_comp_channel(end.id->verbs);
    assert_non_null(end.channel);
    end.cq = provider().create_cq(end.id->verbs, sizes_.cqe, &end, end.channel, 0);
    assert_non_null(end.cq);
    end.receive_cq = end.cq;
    if (sizes_.separate_cqs) {
        end.receive_cq = provider().create_cq(end.id->verbs, sizes_.cqe, &end, end.channel, 0);
        assert_non_null(end.receive_cq);
    }
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = end.cq;
    attributes.recv_cq = end.receive_cq;
    attributes.cap.max_send_wr = sizes_.send_wr;
    attributes.cap.max_recv_wr = sizes_.receive_wr;
    attributes.cap.max_send_sge = sizes_.sge;
    attributes.cap.max_recv_sge = sizes_.sge;
    attributes.cap.max_inline_data = sizes_.max_inline;
    attributes.qp_type = IBV_QPT_RC;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.pd = end.pd;
    assert_int_equal(provider().create_qp_ex(end.id, &attributes), 0);
    register_memory(end);
}

void Ends::register_memory(End &end) {
    end.memory.assign(memory_bytes, std::byte{0});
    end.mr = provider().reg_mr(end.pd, end.memory.data(), memory_bytes, everything | provider().flush_visibility_access);
    assert_non_null(end.mr);
}

void Ends::destroy(End &end) {
    if (end.id != nullptr && end.id->qp != nullptr) {
        provider().destroy_qp(end.id);
    }
    if (end.mr != nullptr) {
        (void)provider().dereg_mr(end.mr);
    }
    if (end.receive_cq != nullptr && end.receive_cq != end.cq) {
        (void)provider().destroy_cq(end.receive_cq);
    }
    if (end.cq != nullptr) {
        (void)provider().destroy_cq(end.cq);
    }
    if (end.channel != nullptr) {
        (void)provider().destroy_comp_channel(end.channel);
    }
    if (end.id != nullptr) {
        (void)provider().destroy_id(end.id);
    }
    if (end.pd != nullptr) {
        (void)provider().dealloc_pd(end.pd);
    }
    if (end.events != nullptr) {
        provider().destroy_event_channel(end.events);
    }
    end = End{};
}

void Ends::request(const std::string &client_data) {
    rdma_conn_param parameters{};
    parameters.private_data = client_data.data();
    parameters.private_data_len = static_cast<std::uint8_t>(client_data.size());
    parameters.responder_resources = sizes_.depth;
    parameters.initiator_depth = sizes_.depth;
    parameters.retry_count = 7;
    parameters.rnr_retry_count = 7;
    assert_int_equal(provider().connect(client.id, &parameters), 0);
}

void Ends::take_request() {
    client_data_seen = expect_event(listen_events_, RDMA_CM_EVENT_CONNECT_REQUEST, &server.id);
    server.events = provider().create_event_channel();
    assert_non_null(server.events);
    assert_int_equal(provider().migrate_id(server.id, server.events), 0);
    create_objects(server);
}

void Ends::accept(const std::string &server_data) {
    rdma_conn_param parameters{};
    parameters.private_data = server_data.data();
    parameters.private_data_len = static_cast<std::uint8_t>(server_data.size());
    parameters.responder_resources = sizes_.depth;
    parameters.initiator_depth = sizes_.depth;
    parameters.rnr_retry_count = 7;
    assert_int_equal(provider().accept(server.id, &parameters), 0);
}

void Ends::connect(const std::string &client_data, const std::string &server_data) {
    request(client_data);
    take_request();
    accept(server_data);
    server_data_seen = expect_event(client.events, RDMA_CM_EVENT_ESTABLISHED);
    expect_event(server.events, RDMA_CM_EVENT_ESTABLISHED);
}

int post(const End &end, const std::vector<Request> &requests) {
    std::vector<ibv_send_wr> chain(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const Request &request = requests[i];
        chain[i] = {};
        chain[i].wr_id = request.wr_id;
        chain[i].next = i + 1 < requests.size() ? &chain[i + 1] : nullptr;
        chain[i].sg_list = const_cast<ibv_sge *>(request.sges.data());
        chain[i].num_sge = static_cast<int>(request.sges.size());
        chain[i].opcode = request.opcode;
        chain[i].send_flags = request.flags;
        chain[i].imm_data = request.immediate;
        chain[i].wr.rdma.remote_addr = request.remote_address;
        chain[i].wr.rdma.rkey = request.rkey;
    }
    ibv_send_wr *bad = nullptr;
    return ibv_post_send(end.id->qp, chain.data(), &bad);
}

int post_receive(const End &end, std::uint64_t wr_id, const std::vector<ibv_sge> &sges) {
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = const_cast<ibv_sge *>(sges.data());
    request.num_sge = static_cast<int>(sges.size());
    ibv_recv_wr *bad = nullptr;
    return ibv_post_recv(end.id->qp, &request, &bad);
}

ibv_sge sge(const End &end, std::size_t offset, std::size_t length) {
    return {.addr = end.address(offset), .length = static_cast<std::uint32_t>(length), .lkey = end.mr->lkey};
}

ibv_wc next_completion(ibv_cq *cq) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
    ibv_wc completion{};
    int polled = 0;
    while ((polled = ibv_poll_cq(cq, 1, &completion)) == 0) {
        assert_true(std::chrono::steady_clock::now() < deadline);
    }
    assert_int_equal(polled, 1);
    return completion;
}

void expect_completion(ibv_cq *cq, std::uint64_t wr_id, ibv_wc_status status) {
    const ibv_wc completion = next_completion(cq);
    assert_int_equal(completion.status, status);
    assert_int_equal(completion.wr_id, wr_id);
}

Request write_request(const End &from, const End &to, std::size_t offset, std::size_t length, std::uint64_t wr_id) {
    return {.opcode = IBV_WR_RDMA_WRITE,
            .wr_id = wr_id,
            .sges = {sge(from, offset, length)},
            .remote_address = to.address(offset),
            .rkey = to.mr->rkey};
}

Request read_request(const End &from, const End &to, std::size_t offset, std::size_t length, std::uint64_t wr_id) {
    Request request = write_request(from, to, offset, length, wr_id);
    request.opcode = IBV_WR_RDMA_READ;
    return request;
}

Request flush_request(const End &to, std::size_t offset, std::size_t length, std::uint32_t level, std::uint64_t wr_id) {
    return {.opcode = static_cast<ibv_wr_opcode>(SOFTRDMA_WR_FLUSH),
            .wr_id = wr_id,
            .sges = {{.addr = 0, .length = static_cast<std::uint32_t>(length), .lkey = 0}},
            .remote_address = to.address(offset),
            .rkey = to.mr->rkey,
            .immediate = level};
}

Request send_request(const End &from, std::size_t offset, std::size_t length, std::uint64_t wr_id) {
    return {.opcode = IBV_WR_SEND, .wr_id = wr_id, .sges = {sge(from, offset, length)}};
}

}  // namespace conformance
