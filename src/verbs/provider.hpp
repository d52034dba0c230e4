// SPDX-License-Identifier: BSD-3-Clause
// verbs/provider: every control call of libibverbs and librdmacm that the project uses, as one table for each
// kind of device. Posting and polling are not in it: they are inlines that use the context (verbs/post.hpp).
// Only native operations are posted in two ways.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <softrdma.h>

#include "base/log.hpp"
#include "verbs/native.hpp"
#include "verbs/post.hpp"

namespace verbs {

// The members have the names and the meaning of the calls; their man pages are the reference.
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

    // Verbs has no calls for the next members.

    // Registers a region that only the peer of one queue pair reaches; nullptr where the device does not
    // support that (softrdma_reg_mr_for_qp).
    ibv_mr *(*reg_mr_for_qp)(ibv_qp *qp, void *addr, size_t length, int access);

    // Makes a request for a connection of an accepted TCP socket, which the request then owns; nullptr where
    // the device does not use TCP (softrdma_adopt_fd).
    int (*adopt)(rdma_event_channel *channel, int fd, int flags, void *context, rdma_cm_id **id);

    // Begin and end a wait on a descriptor that needs no notification. They return 0 or an errno value, and
    // are nullptr where there are only notifications (softrdma_cq_wait_begin).
    int (*cq_wait_begin)(ibv_cq *cq, int *fd);
    int (*cq_wait_end)(ibv_cq *cq);
    int (*events_wait_begin)(rdma_event_channel *channel, int *fd);
    int (*events_wait_end)(rdma_event_channel *channel);

    // Disconnects when the posted operations are done. Returns 0, or -1 and errno; nullptr where completions
    // tell that.
    int (*disconnect_when_sent)(rdma_cm_id *id);
    // Returns the reason why the connection of a queue pair ended, an errno value or 0; nullptr where only
    // events tell.
    int (*end_error)(const ibv_qp *qp);
    // The most bytes of inline data; 0 when only the creation of a queue pair tells.
    std::uint32_t most_inline_size;

    // Returns the native_ operations of a device.
    unsigned (*device_operations)(const ibv_device_attr_ex &attributes);
    // Returns the flags (IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) that create a queue pair with these native_
    // operations; 0 when it needs none.
    std::uint64_t (*send_operations)(unsigned native_operations);
    // Returns the native_ operations that can be posted to a queue pair: those that it was created with, and
    // that its peer supports if the provider knows the peer; 0 before it is connected. A kernel's queue pair
    // must have been created with some: otherwise the driver may have made less than an ibv_qp_ex (siw's
    // does).
    unsigned (*native_operations)(const ibv_qp *qp);
    // Whether native_operations() knows the peer's. InfiniBand's connection manager does not ask for them; an
    // operation that the peer or its region does not support ends the connection.
    bool knows_peer;
    // Posts a flush_request or atomic_write_request to a queue pair that supports it natively; nullptr where
    // ibv_post_send takes them.
    int (*post_native)(ibv_qp *qp, const ibv_send_wr &request);
};

extern const Provider rdma_core;
extern const Provider soft;

// Returns the access flags that make memory a target of this kind of flush, for peers that flush natively, if
// the device can, and for peers that flush by a read.
[[nodiscard]] inline int flush_access(unsigned native_operations, Flush flush) {
    const int native =
        flush == Flush::Persistent ? SOFTRDMA_ACCESS_FLUSH_PERSISTENT : SOFTRDMA_ACCESS_FLUSH_GLOBAL;
    return IBV_ACCESS_REMOTE_READ | ((native_operations & native_flush) != 0 ? native : 0);
}
// Returns the same for a queue pair that was created without operations of its own.
[[nodiscard]] inline int flush_access(const Provider &provider, Flush flush) {
    return flush_access(&provider == &soft ? native_flush : 0, flush);
}

// Sets where the soft device's log lines go, and up to which level.
void set_soft_log(base::LogSink sink, int threshold);

}  // namespace verbs
