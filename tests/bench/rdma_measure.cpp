// SPDX-License-Identifier: BSD-3-Clause
// bench: the soft device, by verbs.
#include <fcntl.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../loopback.hpp"
#include "bench.hpp"
#include "verbs/provider.hpp"

namespace bench {

namespace {

constexpr const verbs::Provider &device = verbs::soft;

// The target tells this to the initiator when it accepts.
struct Area {
    std::uint64_t address;
    std::uint32_t rkey;
};

rdma_cm_event *next_event(rdma_event_channel *events, rdma_cm_event_type type) {
    rdma_cm_event *event = nullptr;
    if (device.cm.get_cm_event(events, &event) != 0 || event->event != type) {
        die("connection manager");
    }
    return event;
}

// One connected end.
struct End {
    rdma_event_channel *events = device.cm.create_event_channel();
    rdma_cm_id *id = nullptr;
    ibv_pd *pd = nullptr;
    ibv_cq *cq = nullptr;
    ibv_mr *mr = nullptr;
    std::vector<std::byte> memory = std::vector<std::byte>(area_bytes, std::byte{'x'});
    Area remote{};

    void create() {
        pd = device.domain.alloc_pd(id->verbs);
        cq = device.completion.create_cq(id->verbs, 2 * depth, nullptr, nullptr, 0);
        ibv_qp_init_attr_ex attributes{};
        attributes.send_cq = attributes.recv_cq = cq;
        attributes.cap = {.max_send_wr = 2 * depth,
                          .max_recv_wr = 1,
                          .max_send_sge = 1,
                          .max_recv_sge = 1,
                          .max_inline_data = 8};
        attributes.qp_type = IBV_QPT_RC;
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
        attributes.pd = pd;
        mr = device.domain.reg_mr(pd, memory.data(), memory.size(),
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                      verbs::flush_access(device, verbs::Flush::Visibility));
        if (mr == nullptr || device.cm.create_qp_ex(id, &attributes) != 0) {
            die("queue pair");
        }
    }

    void destroy() {
        device.cm.destroy_qp(id);
        (void)device.domain.dereg_mr(mr);
        (void)device.completion.destroy_cq(cq);
        (void)device.cm.destroy_id(id);
        (void)device.domain.dealloc_pd(pd);
        device.cm.destroy_event_channel(events);
    }
};

void serve(Target target, const std::function<void(std::uint16_t)> &listening) {
    End end;
    rdma_cm_id *listener = nullptr;
    sockaddr_in here = test::loopback(0);
    if (device.cm.create_id(end.events, &listener, nullptr, RDMA_PS_TCP) != 0 ||
        device.cm.bind_addr(listener, reinterpret_cast<sockaddr *>(&here)) != 0 ||
        device.cm.listen(listener, 1) != 0) {
        die("listen");
    }
    listening(ntohs(listener->route.addr.src_sin.sin_port));
    rdma_cm_event *const request = next_event(end.events, RDMA_CM_EVENT_CONNECT_REQUEST);
    end.id = request->id;
    (void)device.cm.ack_cm_event(request);
    end.create();
    const Area area{.address = reinterpret_cast<std::uintptr_t>(end.memory.data()), .rkey = end.mr->rkey};
    rdma_conn_param parameters{};
    parameters.private_data = &area;
    parameters.private_data_len = sizeof(area);
    parameters.responder_resources = parameters.initiator_depth = depth;
    if (device.cm.accept(end.id, &parameters) != 0) {
        die("accept");
    }
    (void)device.cm.ack_cm_event(next_event(end.events, RDMA_CM_EVENT_ESTABLISHED));
    if (target == Target::Polls) {
        pollfd events{.fd = end.events->fd, .events = POLLIN, .revents = 0};
        ibv_wc completion;
        for (unsigned polls = 1; polls % 4096 != 0 || poll(&events, 1, 0) == 0; ++polls) {
            (void)ibv_poll_cq(end.cq, 1, &completion);
        }
    } else {
        pollfd events{.fd = end.events->fd, .events = POLLIN, .revents = 0};
        (void)poll(&events, 1, -1);  // outside the library: only its thread can serve
    }
    (void)device.cm.destroy_id(listener);
    end.destroy();
}

void connect(End &end, std::uint16_t port) {
    sockaddr_in there = test::loopback(port);
    rdma_conn_param parameters{};
    parameters.responder_resources = parameters.initiator_depth = depth;
    if (device.cm.create_id(end.events, &end.id, nullptr, RDMA_PS_TCP) != 0 ||
        device.cm.resolve_addr(end.id, nullptr, reinterpret_cast<sockaddr *>(&there), 1000) != 0) {
        die("resolve");
    }
    (void)device.cm.ack_cm_event(next_event(end.events, RDMA_CM_EVENT_ADDR_RESOLVED));
    (void)device.cm.resolve_route(end.id, 1000);
    (void)device.cm.ack_cm_event(next_event(end.events, RDMA_CM_EVENT_ROUTE_RESOLVED));
    end.create();
    if (device.cm.connect(end.id, &parameters) != 0) {
        die("connect");
    }
    rdma_cm_event *const established = next_event(end.events, RDMA_CM_EVENT_ESTABLISHED);
    std::memcpy(&end.remote, established->param.conn.private_data, sizeof(end.remote));
    (void)device.cm.ack_cm_event(established);
}

void disconnect(End &end) {
    (void)device.cm.disconnect(end.id);
    (void)device.cm.ack_cm_event(next_event(end.events, RDMA_CM_EVENT_DISCONNECTED));
    end.destroy();
}

void wait_one(ibv_cq *cq) {
    ibv_wc completion;
    while (ibv_poll_cq(cq, 1, &completion) == 0) {
    }
    if (completion.status != IBV_WC_SUCCESS) {
        die(ibv_wc_status_str(completion.status));
    }
}

struct WriteAndFlush {
    std::array<ibv_sge, 2> sges{};
    std::array<ibv_send_wr, 2> requests{};

    WriteAndFlush(const End &end, std::uint32_t bytes) {
        sges[0] = {.addr = reinterpret_cast<std::uintptr_t>(end.memory.data()),
                   .length = bytes,
                   .lkey = end.mr->lkey};
        sges[1] = {.addr = 0, .length = bytes, .lkey = 0};
        for (std::size_t i = 0; i < requests.size(); ++i) {
            requests[i].sg_list = &sges[i];
            requests[i].num_sge = 1;
            requests[i].wr.rdma.remote_addr = end.remote.address;
            requests[i].wr.rdma.rkey = end.remote.rkey;
        }
        requests[0].opcode = IBV_WR_RDMA_WRITE;
        requests[0].next = &requests[1];
        requests[1].opcode = static_cast<ibv_wr_opcode>(SOFTRDMA_WR_FLUSH);
        requests[1].imm_data = SOFTRDMA_FLUSH_GLOBAL;
        requests[1].send_flags = IBV_SEND_SIGNALED;
    }
};

}  // namespace

double write_bandwidth(Target target, std::size_t total) {
    const PeerProcess peer{[&](const auto &listening) { serve(target, listening); }};
    End end;
    connect(end, peer.port());
    WriteAndFlush work{end, message_bytes};
    ibv_send_wr &write = work.requests[0];
    write.next = nullptr;
    write.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr *bad = nullptr;
    const std::size_t messages = total / message_bytes;
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t posted = 0, done = 0; done < messages; ++done) {
        for (; posted < messages && posted - done < depth; ++posted) {
            const std::size_t offset = posted % depth * message_bytes;
            work.sges[0].addr = reinterpret_cast<std::uintptr_t>(end.memory.data()) + offset;
            write.wr.rdma.remote_addr = end.remote.address + offset;
            if (ibv_post_send(end.id->qp, &write, &bad) != 0) {
                die("post");
            }
        }
        wait_one(end.cq);
    }
    // All of it is placed when a flush behind it is answered.
    if (ibv_post_send(end.id->qp, &work.requests[1], &bad) != 0) {
        die("post");
    }
    wait_one(end.cq);
    const double seconds = seconds_since(start);
    disconnect(end);
    return static_cast<double>(total) / seconds;
}

double write_flush(Target target, unsigned rounds) {
    const PeerProcess peer{[&](const auto &listening) { serve(target, listening); }};
    End end;
    connect(end, peer.port());
    WriteAndFlush work{end, 8};
    ibv_send_wr *bad = nullptr;
    std::chrono::steady_clock::time_point start;
    for (unsigned round = 0; round < rounds + rounds / 10; ++round) {
        if (round == rounds / 10) {
            start = std::chrono::steady_clock::now();  // warm
        }
        if (ibv_post_send(end.id->qp, work.requests.data(), &bad) != 0) {
            die("post");
        }
        wait_one(end.cq);
    }
    const double seconds = seconds_since(start);
    disconnect(end);
    return seconds / rounds;
}

}  // namespace bench
