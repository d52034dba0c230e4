// SPDX-License-Identifier: BSD-3-Clause
// soft/api/context_calls: the table of calls in each context, by which verbs.h posts and polls.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "soft/api/device_memory.hpp"
#include "soft/api/domains.hpp"
#include "soft/api/made.hpp"
#include "soft/api/xrc.hpp"
#include "soft/device/device.hpp"
#include "soft/memory/window.hpp"
#include "soft/queues/any_queue_pair.hpp"
#include "soft/queues/completion_queue.hpp"
#include "soft/queues/shared_receive.hpp"
#include "softrdma.h"

namespace soft {

namespace {

int poll_cq(ibv_cq *queue, int entries, ibv_wc *completions) {
    return CompletionQueue::of(queue)->poll(entries, completions);
}
int request_notification(ibv_cq *queue, int solicited_only) {
    return CompletionQueue::of(queue)->request_notification(solicited_only != 0);
}
int post_send(ibv_qp *queue_pair, ibv_send_wr *request, ibv_send_wr **bad) {
    return AnyQueuePair::of(queue_pair)->post_send(request, bad, AnyQueuePair::ChainPart::BeforeTheBad);
}
int post_receive(ibv_qp *queue_pair, ibv_recv_wr *request, ibv_recv_wr **bad) {
    return AnyQueuePair::of(queue_pair)->post_receive(request, bad);
}
ibv_mw *alloc_window(ibv_pd *pd, ibv_mw_type type) {
    return made([&]() -> ibv_mw * { return value_of(MemoryWindow::alloc(*pd, type)); });
}
int dealloc_window(ibv_mw *window) {
    const auto gone = MemoryWindow::dealloc(static_cast<MemoryWindow *>(window));
    return gone ? 0 : gone.error().number;
}
int bind_window(ibv_qp *queue_pair, ibv_mw *window, ibv_mw_bind *bind) {
    ibv_send_wr request{};
    request.wr_id = bind->wr_id;
    request.opcode = IBV_WR_BIND_MW;
    request.send_flags = bind->send_flags;
    request.bind_mw = {.mw = window, .rkey = window->rkey, .bind_info = bind->bind_info};
    ibv_send_wr *bad = nullptr;
    return AnyQueuePair::of(queue_pair)->post_send(&request, &bad, AnyQueuePair::ChainPart::BeforeTheBad);
}
int post_shared_receive(ibv_srq *queue, ibv_recv_wr *request, ibv_recv_wr **bad) {
    return static_cast<SharedReceiveQueue *>(queue)->post(request, bad);
}

// Gives programs that were compiled with smaller structures the members that fit.
int query_port(ibv_context *context, std::uint8_t port, ibv_port_attr *attributes, std::size_t room) {
    ibv_port_attr whole;
    if (const int error = softrdma_ibv_query_port(context, port, &whole)) {
        return error;
    }
    std::memset(attributes, 0, room);
    std::memcpy(attributes, &whole, std::min(room, sizeof(whole)));
    return 0;
}
int query_device(ibv_context *context, const ibv_query_device_ex_input *input, ibv_device_attr_ex *attributes,
                 std::size_t room) {
    if ((input != nullptr && input->comp_mask != 0) || room < sizeof(attributes->orig_attr)) {
        return EINVAL;
    }
    ibv_device_attr_ex whole;
    if (const int error = softrdma_ibv_query_device_ex(context, input, &whole)) {
        return error;
    }
    std::memset(attributes, 0, room);
    std::memcpy(attributes, &whole, std::min(room, sizeof(whole)));
    return 0;
}

int query_rt_values(ibv_context *, ibv_values_ex *values) {
    if ((values->comp_mask & ~std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) {
        return EOPNOTSUPP;
    }
    if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
        clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);  // that of completions
    }
    return 0;
}

}  // namespace

void add_calls(verbs_context &context) {
    context.query_port = query_port;
    context.query_device_ex = query_device;
    context.advise_mr = softrdma_ibv_advise_mr;
    context.alloc_dm = alloc_device_memory;
    context.free_dm = free_device_memory;
    context.reg_dm_mr = register_device_memory;
    context.alloc_td = alloc_td;
    context.dealloc_td = dealloc_td;
    context.alloc_parent_domain = alloc_parent_domain;
    context.query_rt_values = query_rt_values;
    context.create_cq_ex = softrdma_ibv_create_cq_ex;
    context.create_qp_ex = softrdma_ibv_create_qp_ex;
    context.create_srq_ex = softrdma_ibv_create_srq_ex;
    context.get_srq_num = get_srq_num;
    context.open_xrcd = open_xrcd;
    context.close_xrcd = close_xrcd;
    context.open_qp = open_qp;
    ibv_context_ops &calls = context.context.ops;
    calls.alloc_mw = alloc_window;
    calls.dealloc_mw = dealloc_window;
    calls.bind_mw = bind_window;
    calls.poll_cq = poll_cq;
    calls.req_notify_cq = request_notification;
    calls.post_send = post_send;
    calls.post_recv = post_receive;
    calls.post_srq_recv = post_shared_receive;
}

}  // namespace soft

bool softrdma_owns(const ibv_context *context) {
    return context != nullptr && context->ops.poll_cq == soft::poll_cq;
}
