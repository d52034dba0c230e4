// SPDX-License-Identifier: BSD-3-Clause
// One side of many connections, for many.cpp: one polled completion queue and one event channel for all.
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "verbs/provider.hpp"

namespace many {

inline constexpr const verbs::Provider &device = verbs::soft;

inline constexpr std::uint32_t queue_depth = 16;
inline constexpr std::uint64_t mark = 0x5ca1'ab1e'0000'0000;

[[noreturn]] inline void die(const char *what) {
    std::fprintf(stderr, "many: %s (errno: %s)\n", what, std::strerror(errno));
    std::_Exit(EXIT_FAILURE);
}

inline void expect(bool right, const char *what) {
    if (!right) {
        die(what);
    }
}

// The private data of a connection tells the other side where to write.
struct Slot {
    std::uint64_t address;
    std::uint32_t rkey;
    std::uint32_t index;
};

// One side of many connections. Slot i of its memory is written by the other side of connection i.
struct Side {
    explicit Side(std::size_t most) : slots(most), inbox(most) {
        expect(events != nullptr, "event channel");
        connections.reserve(most);
    }

    void create_objects(ibv_context *verbs) {
        pd = device.domain.alloc_pd(verbs);
        channel = device.completion.create_comp_channel(verbs);
        cq = device.completion.create_cq(verbs, static_cast<int>(3 * slots.size() + 3 * queue_depth), nullptr,
                                         channel, 0);
        constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        slots_mr = device.domain.reg_mr(pd, slots.data(), slots.size() * sizeof(slots[0]), access);
        inbox_mr = device.domain.reg_mr(pd, inbox.data(), inbox.size() * sizeof(inbox[0]), access);
        expect(slots_mr != nullptr && inbox_mr != nullptr && cq != nullptr, "objects");
    }

    // Receives one message of 8 bytes into inbox[index].
    void create_queue_pair(rdma_cm_id *id, std::size_t index) {
        if (pd == nullptr) {
            create_objects(id->verbs);
        }
        ibv_qp_init_attr_ex attributes{};
        attributes.send_cq = attributes.recv_cq = cq;
        attributes.cap = {.max_send_wr = queue_depth,
                          .max_recv_wr = queue_depth,
                          .max_send_sge = 1,
                          .max_recv_sge = 1,
                          .max_inline_data = 8};
        attributes.qp_type = IBV_QPT_RC;
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
        attributes.pd = pd;
        expect(device.cm.create_qp_ex(id, &attributes) == 0, "queue pair");
        ibv_sge into{.addr = reinterpret_cast<std::uintptr_t>(&inbox[index]),
                     .length = sizeof(inbox[index]),
                     .lkey = inbox_mr->lkey};
        ibv_recv_wr receive{};
        ibv_recv_wr *bad = nullptr;
        receive.wr_id = index;
        receive.sg_list = &into;
        receive.num_sge = 1;
        expect(ibv_post_recv(id->qp, &receive, &bad) == 0, "posting a receive");
        id->context = reinterpret_cast<void *>(index);  // NOLINT(performance-no-int-to-ptr)
    }

    // Returns the parameters of a connection, with the private data for the other side. Depth one is enough.
    rdma_conn_param parameters(std::size_t index, Slot &slot) const {
        slot = {.address = reinterpret_cast<std::uintptr_t>(&slots[index]),
                .rkey = slots_mr->rkey,
                .index = static_cast<std::uint32_t>(index)};
        rdma_conn_param given{};
        given.private_data = &slot;
        given.private_data_len = sizeof(slot);
        given.responder_resources = given.initiator_depth = queue_depth;
        return given;
    }

    void post(std::size_t index, ibv_wr_opcode opcode, unsigned flags, std::uint64_t *local) {
        ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(local),
                    .length = sizeof(*local),
                    .lkey = inbox_mr->lkey};
        ibv_send_wr request{};
        ibv_send_wr *bad = nullptr;
        request.opcode = opcode;
        request.send_flags = flags;
        request.sg_list = &sge;
        request.num_sge = 1;
        request.wr.rdma.remote_addr = there[index].address;
        request.wr.rdma.rkey = there[index].rkey;
        expect(ibv_post_send(connections[index]->qp, &request, &bad) == 0, "posting a request");
    }

    // Tells the other side which connection this is, twice: by a write and by a message.
    void greet(std::size_t index) {
        std::uint64_t word = mark + there[index].index;
        post(index, IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, &word);
        post(index, IBV_WR_SEND, IBV_SEND_INLINE | IBV_SEND_SIGNALED, &word);
    }

    // Polls in a loop, or sleeps in between, until as many completions of either kind are seen.
    void take(std::size_t sends, std::size_t receives, bool sleeps) {
        std::array<ibv_wc, 32> completions;
        bool asked = false;
        while (sends != 0 || receives != 0) {
            const int count = ibv_poll_cq(cq, completions.size(), completions.data());
            for (int i = 0; i < count; ++i) {
                const ibv_wc &one = completions[static_cast<std::size_t>(i)];
                expect(one.status == IBV_WC_SUCCESS, ibv_wc_status_str(one.status));
                std::size_t &kind = (one.opcode & IBV_WC_RECV) != 0 ? receives : sends;
                expect(kind-- != 0, "a completion more than was asked for");
            }
            if (count != 0 || !sleeps) {
                continue;
            }
            if (!asked) {
                asked = ibv_req_notify_cq(cq, 0) == 0;
                continue;
            }
            ibv_cq *of = nullptr;
            void *context = nullptr;
            expect(device.completion.get_cq_event(channel, &of, &context) == 0, "waiting for a completion");
            device.completion.ack_cq_events(of, 1);
            asked = false;
        }
    }

    void expect_greeted() const {
        for (std::size_t i = 0; i < connections.size(); ++i) {
            expect(slots[i] == mark + i, "a write went elsewhere");
            expect(inbox[i] == mark + i, "a message went elsewhere");
        }
    }

    void destroy() {
        for (rdma_cm_id *const id : connections) {
            device.cm.destroy_qp(id);
            (void)device.cm.destroy_id(id);
        }
        connections.clear();
        (void)device.domain.dereg_mr(slots_mr);
        (void)device.domain.dereg_mr(inbox_mr);
        expect(device.completion.destroy_cq(cq) == 0, "destroying the completion queue");
        (void)device.completion.destroy_comp_channel(channel);
        expect(device.domain.dealloc_pd(pd) == 0, "destroying the protection domain");
        device.cm.destroy_event_channel(events);
    }

    rdma_event_channel *events = device.cm.create_event_channel();
    ibv_pd *pd = nullptr;
    ibv_comp_channel *channel = nullptr;
    ibv_cq *cq = nullptr;
    ibv_mr *slots_mr = nullptr;
    ibv_mr *inbox_mr = nullptr;
    std::vector<std::uint64_t> slots;
    std::vector<std::uint64_t> inbox;
    std::vector<rdma_cm_id *> connections;
    std::vector<Slot> there = std::vector<Slot>(slots.size());
};

// Waits for the next event of the connection manager, and acknowledges it.
inline rdma_cm_event next_event(const Side &side, Slot *told = nullptr) {
    rdma_cm_event *event = nullptr;
    expect(device.cm.get_cm_event(side.events, &event) == 0, "waiting for an event");
    const rdma_cm_event seen = *event;
    if (told != nullptr && seen.param.conn.private_data != nullptr) {
        std::memcpy(told, seen.param.conn.private_data, sizeof(*told));
    }
    (void)device.cm.ack_cm_event(event);
    return seen;
}

inline void expect_event(const Side &side, rdma_cm_event_type type) {
    const rdma_cm_event seen = next_event(side);
    if (seen.event != type) {
        std::fprintf(stderr, "%s with status %d instead of %s: ", device.cm.event_str(seen.event),
                     seen.status, device.cm.event_str(type));
        die("connection manager");
    }
}

}  // namespace many
