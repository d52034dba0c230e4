// SPDX-License-Identifier: BSD-3-Clause
// verbs/provider: every control call of libibverbs and librdmacm that the project uses, as one table a kind
// of device. Posting and polling need none: they are inlines through the context (verbs/post.hpp); only
// native operations are posted in two ways.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <softrdma.h>

#include "base/log.hpp"
#include "verbs/native.hpp"
#include "verbs/post.hpp"

namespace verbs {

// The members have the names and the meaning of the calls: their man pages are the reference.
struct Provider {
    const char *name;

    decltype(&ibv_query_device_ex) query_device_ex;
    int (*query_port)(ibv_context *context, std::uint8_t port_num, ibv_port_attr *attributes);
    int (*query_gid)(ibv_context *context, std::uint32_t port_num, std::uint32_t index, ibv_gid_entry *entry);
    decltype(&ibv_alloc_pd) alloc_pd;
    decltype(&ibv_dealloc_pd) dealloc_pd;
    ibv_mr *(*reg_mr)(ibv_pd *pd, void *addr, size_t length, int access);
    decltype(&ibv_dereg_mr) dereg_mr;
    decltype(&ibv_advise_mr) advise_mr;

    decltype(&ibv_create_comp_channel) create_comp_channel;
    decltype(&ibv_destroy_comp_channel) destroy_comp_channel;
    decltype(&ibv_create_cq) create_cq;
    decltype(&ibv_resize_cq) resize_cq;
    decltype(&ibv_destroy_cq) destroy_cq;
    decltype(&ibv_get_cq_event) get_cq_event;
    decltype(&ibv_ack_cq_events) ack_cq_events;
    decltype(&ibv_create_srq) create_srq;
    decltype(&ibv_destroy_srq) destroy_srq;

    decltype(&ibv_create_ah) create_ah;
    decltype(&ibv_destroy_ah) destroy_ah;

    decltype(&rdma_getaddrinfo) getaddrinfo;
    decltype(&rdma_freeaddrinfo) freeaddrinfo;
    decltype(&rdma_create_event_channel) create_event_channel;
    decltype(&rdma_destroy_event_channel) destroy_event_channel;
    decltype(&rdma_get_cm_event) get_cm_event;
    decltype(&rdma_ack_cm_event) ack_cm_event;
    decltype(&rdma_event_str) event_str;
    decltype(&rdma_create_id) create_id;
    decltype(&rdma_destroy_id) destroy_id;
    decltype(&rdma_migrate_id) migrate_id;
    decltype(&rdma_bind_addr) bind_addr;
    decltype(&rdma_listen) listen;
    decltype(&rdma_set_option) set_option;
    decltype(&rdma_resolve_addr) resolve_addr;
    decltype(&rdma_resolve_route) resolve_route;
    decltype(&rdma_create_qp_ex) create_qp_ex;
    decltype(&rdma_destroy_qp) destroy_qp;
    decltype(&rdma_connect) connect;
    decltype(&rdma_accept) accept;
    decltype(&rdma_reject) reject;
    decltype(&rdma_disconnect) disconnect;

    // Verbs has no calls for these.

    // A region that only the peer of one queue pair reaches; nullptr where the device has none
    // (softrdma_reg_mr_for_qp).
    ibv_mr *(*reg_mr_for_qp)(ibv_qp *qp, void *addr, size_t length, int access);

    // A request for a connection from an accepted TCP socket, which it then owns; nullptr where the device
    // does not speak over TCP (softrdma_adopt_fd).
    int (*adopt)(rdma_event_channel *channel, int fd, int flags, void *context, rdma_cm_id **id);

    // Waiting on a descriptor that needs no notification, 0 or an errno value; nullptr where notifications
    // are what there is (softrdma_cq_wait_begin).
    int (*cq_wait_begin)(ibv_cq *cq, int *fd);
    int (*cq_wait_end)(ibv_cq *cq);
    int (*events_wait_begin)(rdma_event_channel *channel, int *fd);
    int (*events_wait_end)(rdma_event_channel *channel);

    // Disconnects when what is posted is done, 0 or -1 and errno; nullptr where completions say that it is.
    int (*disconnect_when_sent)(rdma_cm_id *id);
    // Why the connection of a queue pair ended, an errno value or 0; nullptr where events alone tell.
    int (*end_error)(const ibv_qp *qp);
    // The most bytes of inline data; 0 when only creating a queue pair tells.
    std::uint32_t most_inline_size;

    // Which native_ operations a device has.
    unsigned (*device_operations)(const ibv_device_attr_ex &attributes);
    // Returns the flags (IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) with which a queue pair is created that has these
    // native_ operations; 0 when it needs none.
    std::uint64_t (*send_operations)(unsigned native_operations);
    // Which native_ operations can be posted to a queue pair: those it was created with and, if the provider
    // knows its peer, that has. 0 before it is connected. A kernel's device must have been asked for some
    // when the queue pair was made: if not, its driver may have made less than an ibv_qp_ex (siw's does).
    unsigned (*native_operations)(const ibv_qp *qp);
    // Whether that says what the peer has. InfiniBand's connection manager does not ask; posting what the
    // peer or its region does not take ends the connection.
    bool knows_peer;
    // Posts a flush_request or atomic_write_request to a queue pair that has it natively; nullptr where
    // ibv_post_send takes them like any other.
    int (*post_native)(ibv_qp *qp, const ibv_send_wr &request);
};

extern const Provider rdma_core;
extern const Provider soft;

// The access flags that make memory a target of this kind of flush: for peers that flush natively, if the
// device can, and for those that flush by reading.
[[nodiscard]] inline int flush_access(unsigned native_operations, Flush flush) {
    const int native =
        flush == Flush::Persistent ? SOFTRDMA_ACCESS_FLUSH_PERSISTENT : SOFTRDMA_ACCESS_FLUSH_GLOBAL;
    return IBV_ACCESS_REMOTE_READ | ((native_operations & native_flush) != 0 ? native : 0);
}
// The same of a queue pair that was created without operations of its own.
[[nodiscard]] inline int flush_access(const Provider &provider, Flush flush) {
    return flush_access(&provider == &soft ? native_flush : 0, flush);
}

// Where the soft device's log lines go, and up to which level.
void set_soft_log(base::LogSink sink, int threshold);

}  // namespace verbs
