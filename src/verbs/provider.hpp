// SPDX-License-Identifier: BSD-3-Clause
// verbs/provider: every control call of libibverbs and librdmacm that the project uses, in tables by subject,
// for each kind of device. Posting and polling are not in them: they are inlines that use the context
// (verbs/post.hpp). Only native operations are posted in two ways.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <softrdma.h>

#include "base/log.hpp"
#include "verbs/native.hpp"
#include "verbs/post.hpp"

namespace verbs {

// The members of the tables have the names and the meaning of the calls; their man pages are the reference.

struct DeviceCalls {
    decltype(&ibv_query_device_ex) query_device_ex;
    int (*query_port)(ibv_context *context, std::uint8_t port_num, ibv_port_attr *attributes);
    int (*query_gid)(ibv_context *context, std::uint32_t port_num, std::uint32_t index, ibv_gid_entry *entry);
};

// Protection domains, and what is made in one.
struct DomainCalls {
    decltype(&ibv_alloc_pd) alloc_pd;
    decltype(&ibv_dealloc_pd) dealloc_pd;
    ibv_mr *(*reg_mr)(ibv_pd *pd, void *addr, size_t length, int access);
    decltype(&ibv_dereg_mr) dereg_mr;
    decltype(&ibv_advise_mr) advise_mr;
    decltype(&ibv_create_srq) create_srq;
    decltype(&ibv_destroy_srq) destroy_srq;
    decltype(&ibv_create_ah) create_ah;
    decltype(&ibv_destroy_ah) destroy_ah;
};

struct CompletionCalls {
    decltype(&ibv_create_comp_channel) create_comp_channel;
    decltype(&ibv_destroy_comp_channel) destroy_comp_channel;
    decltype(&ibv_create_cq) create_cq;
    decltype(&ibv_resize_cq) resize_cq;
    decltype(&ibv_destroy_cq) destroy_cq;
    decltype(&ibv_get_cq_event) get_cq_event;
    decltype(&ibv_ack_cq_events) ack_cq_events;
};

// These are the connection manager's calls.
struct ConnectionCalls {
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
};

// Calls that concern the native_ operations (verbs/native.hpp).
struct NativeCalls {
    // Returns the operations of a device.
    unsigned (*of_device)(const ibv_device_attr_ex &attributes);
    // Returns the flags (IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) with which a queue pair is created that has these;
    // 0 when it needs none.
    std::uint64_t (*creation_flags)(unsigned native_operations);
    // Returns the operations that can be posted to a queue pair; 0 before it is connected. The soft device
    // returns those that the peer supports. InfiniBand's connection manager does not ask the peer, so a
    // kernel's device returns those that the queue pair was created with; an operation that the peer or its
    // region does not support ends the connection. A kernel's queue pair must have been created with some:
    // otherwise the driver may have made less than an ibv_qp_ex (siw's does).
    unsigned (*of_queue_pair)(const ibv_qp *qp);
    // Posts a flush_request or atomic_write_request to a queue pair that supports it. nullptr without
    // posts_native_alone: ibv_post_send takes them.
    int (*post)(ibv_qp *qp, const ibv_send_wr &request);
};

// Verbs has no calls for these.
struct CallsBeyondVerbs {
    // Registers a region that only the peer of one queue pair reaches (softrdma_reg_mr_for_qp).
    ibv_mr *(*reg_mr_for_qp)(ibv_qp *qp, void *addr, size_t length, int access);
    // Makes a request for a connection of an accepted TCP socket, which the request then owns
    // (softrdma_adopt_fd).
    int (*adopt)(rdma_event_channel *channel, int fd, int flags, void *context, rdma_cm_id **id);
    // Begin and end a wait on a descriptor that needs no notification. They return 0 or an errno value
    // (softrdma_cq_wait_begin).
    int (*cq_wait_begin)(ibv_cq *cq, int *fd);
    int (*cq_wait_end)(ibv_cq *cq);
    int (*events_wait_begin)(rdma_event_channel *channel, int *fd);
    int (*events_wait_end)(rdma_event_channel *channel);
    // Disconnects when the posted operations are done. Returns 0, or -1 and errno.
    int (*disconnect_when_sent)(rdma_cm_id *id);
    // Returns the reason why the connection of a queue pair ended, an errno value or 0.
    int (*end_error)(const ibv_qp *qp);
    // Returns the name of the way that the bytes of a queue pair's connection take.
    const char *(*link)(const ibv_qp *qp);
    // Returns how many paths the connection of a queue pair has, or -1 (softrdma_paths).
    int (*paths)(const ibv_qp *qp);
    // Makes an id that has not begun use TLS (softrdma_set_tls). Returns 0, or -1 and errno.
    int (*set_tls)(rdma_cm_id *id, const char *tls);
    // Returns the identity with which the peer of an id has authenticated itself, or nullptr
    // (softrdma_identity).
    const char *(*identity)(const rdma_cm_id *id);
    // Tells whether the peers of so many ids would be let in now too. Returns 0, or -1 and errno
    // (softrdma_peers_are_known).
    int (*peers_are_known)(const rdma_cm_id *const *ids, std::size_t count, bool *known);
};

// A kind of device promises these. A call that a capability names is nullptr without it.
struct Capabilities {
    // Registration pins pages: RLIMIT_MEMLOCK limits them, and the kernel may refuse memory of a file.
    bool pins_memory;
    // Registration for persistent flush fails with EOPNOTSUPP, and a line of log says why, where the memory
    // cannot become durable. Without this capability a device fails with EINVAL where it does not support
    // the access flag.
    bool checks_durability;
    // The target does a write only after the native flushes that were posted before it.
    bool keeps_order;
    // Only native.post posts native operations, to a queue pair that was created with them. Without this
    // capability each queue pair has those of its device, and ibv_post_send takes them.
    bool posts_native_alone;
    // A region can belong to one queue pair: beyond.reg_mr_for_qp.
    bool registers_for_qp;
    // Connections run on TCP sockets: beyond.adopt.
    bool speaks_tcp;
    // A thread waits on a descriptor without a notification: beyond.cq_wait_begin and its like.
    bool waits_unarmed;
    // A connection can end when the posted operations are done: beyond.disconnect_when_sent.
    bool ends_when_sent;
    // A queue pair knows why its connection ended: beyond.end_error. Without this capability only
    // events tell.
    bool tells_end_error;
    // A queue pair knows the way that its bytes take: beyond.link and beyond.paths. Without this capability
    // the device is it.
    bool tells_link;
    // Peers can authenticate themselves: beyond.identity.
    bool authenticates;
    // The most bytes of inline data; 0 when only the creation of a queue pair tells.
    std::uint32_t most_inline_size;
};

struct Provider {
    const char *name;
    Capabilities capabilities;
    DeviceCalls device;
    DomainCalls domain;
    CompletionCalls completion;
    ConnectionCalls cm;
    NativeCalls native;
    CallsBeyondVerbs beyond;
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
    return flush_access(provider.capabilities.posts_native_alone ? 0 : native_flush, flush);
}

// Sets where the soft device's log lines go, and up to which level.
void set_soft_log(base::LogSink sink, int threshold);

}  // namespace verbs
