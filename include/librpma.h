/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * librpma.h -- reading, writing and making durable the memory of another machine, by RDMA. The manual (man
 * librpma) is made from these comments.
 *
 * Returns. Every function that returns int gives 0 or a negative RPMA_E_ code, never a positive value.
 * Arguments are checked first, before anything else happens. An output is written only on success, unless its
 * function says otherwise. What a failure was about goes to the log (rpma_log_set_function).
 *
 * Ownership. A "new" gives an object that its "delete" ends. A delete takes the address of the caller's
 * pointer, sets it to NULL, also when it returns an error, and is a no-op that returns 0 when the pointer is
 * NULL already. Nothing is counted: a peer outlives everything made from it, a shared receive queue outlives
 * its connections. Completion queues that a "get" returns belong to the connection or shared receive queue
 * they were got from, unless it was configured with them.
 *
 * Threads. Any function may be called from any thread. Calls that use one object at the same time may run in
 * parallel where a comment says so (Threads:, at the function or at the head of its section), otherwise the
 * caller orders them; one object is deleted by one thread, after its last use.
 *
 * Blocking. Nothing blocks unless its comment says so.
 */
#ifndef LIBRPMA_H
#define LIBRPMA_H 1

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================ errors ==== */

/* An error that has no better name. */
#define RPMA_E_UNKNOWN (-100000)
/* The operation is not supported by the device, the target memory or the connection. */
#define RPMA_E_NOSUPP (-100001)
/* libibverbs, librdmacm or the soft device failed; the log has its errno. */
#define RPMA_E_PROVIDER (-100002)
/* Out of memory. */
#define RPMA_E_NOMEM (-100003)
/* An argument is not valid. */
#define RPMA_E_INVAL (-100004)
/* There is no completion to collect now. */
#define RPMA_E_NO_COMPLETION (-100005)
/* There is no connection event to collect now. */
#define RPMA_E_NO_EVENT (-100006)
/* Temporary; the same call may succeed. */
#define RPMA_E_AGAIN (-100007)
/* The completion channel is shared: wait with rpma_conn_wait. */
#define RPMA_E_SHARED_CHANNEL (-100008)
/* The completion channel is not shared: wait with rpma_cq_wait. */
#define RPMA_E_NOT_SHARED_CHNL (-100009)

/**
 * The English text of a return code: "Success" for 0, "Unknown error" for a value that is none.
 *
 * Threads: safe in any number of threads.
 * Returns: a static string, never NULL.
 */
const char *rpma_err_2str(int ret);

/* ================================================================ devices ==== */

/* Threads: safe in any number of threads. */

struct rpma_peer_cfg;
struct rpma_peer;
struct rpma_mr_local;
struct rpma_mr_remote;
struct rpma_conn_cfg;
struct rpma_srq;
struct rpma_conn;
struct rpma_cq;
struct rpma_conn_req;
struct rpma_ep;
struct rpma_srq_cfg;

/* Whose address rpma_utils_get_ibv_context is given. */
enum rpma_util_ibv_context_type {
    RPMA_UTIL_IBV_CONTEXT_LOCAL = 0, /* an address of this machine */
    RPMA_UTIL_IBV_CONTEXT_REMOTE = 1 /* an address to reach: the device on the way to it */
};

/**
 * Finds the RDMA device that serves an IP address (or host name).
 *
 * The environment variable RPMA_DEVICE says which kinds of device are looked at: "auto" (or unset) takes the
 * kernel's RDMA device that is bound to the address, otherwise the soft device (softrdma.h), which serves
 * every address of the machine; "kernel" and "soft" take only that kind. The choice is logged at NOTICE.
 *
 * The context is not the caller's: never ibv_close_device it. It is used with librpma only, unless it is a
 * kernel device's. A local wildcard address ("0.0.0.0") may give success and a NULL context.
 *
 * Blocks for the name look-up and, for a remote address, up to 1,000 ms a kind of device.
 *
 * Errors:
 *   RPMA_E_INVAL     addr or ibv_ctx_ptr is NULL, unknown type.
 *   RPMA_E_PROVIDER  No device serves the address, the name is unknown, or RPMA_DEVICE has another value.
 * See rdma_bind_addr(3), rdma_resolve_addr(3).
 */
int rpma_utils_get_ibv_context(const char *addr, enum rpma_util_ibv_context_type type,
                               struct ibv_context **ibv_ctx_ptr);

/**
 * Whether a device can register memory that is not pinned (on-demand paging) and read and write it over a
 * reliable connection, which memory of a file system with DAX needs. *is_odp_capable is 1 or 0.
 *
 * Errors:
 *   RPMA_E_INVAL     NULL argument.
 *   RPMA_E_PROVIDER  The device cannot be queried (*is_odp_capable is then 0).
 * See ibv_query_device_ex(3).
 */
int rpma_utils_ibv_context_is_odp_capable(struct ibv_context *ibv_ctx, int *is_odp_capable);

/* What happened to a connection; see rpma_conn_next_event. */
enum rpma_conn_event {
    RPMA_CONN_UNDEFINED = -1,
    RPMA_CONN_ESTABLISHED = 0, /* ready for operations, both ways */
    RPMA_CONN_CLOSED = 1,      /* disconnected by either side; may come twice */
    RPMA_CONN_LOST = 2,        /* broken: connect error, or the device went away */
    RPMA_CONN_REJECTED = 3,    /* the other side said no, or nobody listens there */
    RPMA_CONN_UNREACHABLE = 4  /* the other side did not answer in time */
};

/**
 * The English text of a connection event; "Unsupported connection event" for a value that is none.
 *
 * Returns: a static string, never NULL.
 */
const char *rpma_utils_conn_event_2str(enum rpma_conn_event conn_event);

/* ================================================================ peer configuration ==== */

/* Threads: setters and getters of one configuration may run in parallel. */

/**
 * Makes a description of what a peer can do, to be sent to the other side, with its defaults: writes do not
 * reach persistent memory directly. The caller deletes it.
 *
 * Errors:
 *   RPMA_E_INVAL  pcfg_ptr is NULL.
 *   RPMA_E_NOMEM
 */
int rpma_peer_cfg_new(struct rpma_peer_cfg **pcfg_ptr);

/**
 * Deletes a peer configuration.
 *
 * Errors:
 *   RPMA_E_INVAL  pcfg_ptr is NULL.
 */
int rpma_peer_cfg_delete(struct rpma_peer_cfg **pcfg_ptr);

/**
 * Declares whether what is written to this peer is durable once flushed, so that the other side may use
 * RPMA_FLUSH_TYPE_PERSISTENT. True is right on the soft device, which makes a flush durable itself, and on a
 * kernel device for memory of a file system with DAX where the platform lets devices write to it directly.
 *
 * Errors:
 *   RPMA_E_INVAL  pcfg is NULL.
 */
int rpma_peer_cfg_set_direct_write_to_pmem(struct rpma_peer_cfg *pcfg, bool supported);

/**
 * Whether direct write to persistent memory is declared: what rpma_peer_cfg_set_direct_write_to_pmem said, or
 * the descriptor.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_peer_cfg_get_direct_write_to_pmem(const struct rpma_peer_cfg *pcfg, bool *supported);

/**
 * Writes the configuration's descriptor, the bytes to send, to desc, which has room for
 * rpma_peer_cfg_get_descriptor_size bytes.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_peer_cfg_get_descriptor(const struct rpma_peer_cfg *pcfg, void *desc);

/**
 * The descriptor's size, in bytes: 1.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_peer_cfg_get_descriptor_size(const struct rpma_peer_cfg *pcfg, size_t *desc_size);

/**
 * Makes a peer configuration from a descriptor that was received. desc_size is in bytes, bytes after the
 * descriptor are ignored, the buffer is not kept. The caller deletes the configuration.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument, desc_size too small.
 *   RPMA_E_NOMEM
 */
int rpma_peer_cfg_from_descriptor(const void *desc, size_t desc_size, struct rpma_peer_cfg **pcfg_ptr);

/* ================================================================ peer ==== */

/* Threads: one peer may be used by any number of threads at once. */

/**
 * Makes a peer, the local end: the protection domain on one device that memory and connections are made on.
 * The context comes from rpma_utils_get_ibv_context, or is a kernel device's own. The caller deletes the
 * peer, after everything made from it.
 *
 * Errors:
 *   RPMA_E_INVAL     NULL argument.
 *   RPMA_E_NOMEM
 *   RPMA_E_UNKNOWN   The device failed and named no reason.
 *   RPMA_E_PROVIDER  The device cannot be queried, or gives no protection domain.
 * See ibv_alloc_pd(3).
 */
int rpma_peer_new(struct ibv_context *ibv_ctx, struct rpma_peer **peer_ptr);

/**
 * Deletes a peer.
 *
 * Errors:
 *   RPMA_E_INVAL     peer_ptr is NULL.
 *   RPMA_E_PROVIDER  The protection domain is still in use by memory or connections; the peer is gone, the
 *                    domain leaks.
 * See ibv_dealloc_pd(3).
 */
int rpma_peer_delete(struct rpma_peer **peer_ptr);

/* ================================================================ memory ==== */

/* Threads: one region may be used by any number of threads at once. */

/* What registered memory may be used for: a set of these is a "usage". */
#define RPMA_MR_USAGE_READ_SRC (1 << 0)              /* rpma_read by the other side reads it */
#define RPMA_MR_USAGE_READ_DST (1 << 1)              /* our rpma_read stores into it */
#define RPMA_MR_USAGE_WRITE_SRC (1 << 2)             /* our rpma_write sends it */
#define RPMA_MR_USAGE_WRITE_DST (1 << 3)             /* the other side's rpma_write stores into it */
#define RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY (1 << 4) /* rpma_flush to visibility by the other side */
#define RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT (1 << 5) /* rpma_flush to persistence by the other side */
#define RPMA_MR_USAGE_SEND (1 << 6)                  /* our rpma_send sends it */
#define RPMA_MR_USAGE_RECV (1 << 7)                  /* our rpma_recv stores into it */

/**
 * Registers memory, size bytes at ptr, for a usage. The memory stays the caller's and stays mapped until
 * rpma_mr_dereg. Give the other side access with rpma_mr_get_descriptor.
 *
 * On the soft device RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT is for memory that can be durable: a shared mapping
 * of a file on storage, or DAX. Other memory is registered with RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY in its
 * place, so that its descriptor says what it can do (rpma_mr_remote_get_flush_type); a warning in the log
 * names the memory and what stands against it. On a kernel device, memory of a file system with DAX needs
 * on-demand paging, which is used when the device has it; memory that the device would flush, but not to
 * persistence, is flushed by reading.
 *
 * May block while pages are read and pinned.
 *
 * Errors:
 *   RPMA_E_INVAL     NULL argument, size 0, usage 0 or with unknown bits.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  The device refused (memory that is not mapped, RLIMIT_MEMLOCK, a file that storage has
 *                    lost bytes of, see librpma(7)).
 * See ibv_reg_mr(3).
 */
int rpma_mr_reg(struct rpma_peer *peer, void *ptr, size_t size, int usage, struct rpma_mr_local **mr_ptr);

/**
 * Ends a registration. Remote access to the memory fails from then on; the memory itself is left alone, and
 * must still be mapped. On the soft device, memory that a peer has written and not flushed, and that was
 * registered for flush to persistence, is made durable first: this may block for storage. When storage fails,
 * the peer's next flush does.
 *
 * Errors:
 *   RPMA_E_INVAL     mr_ptr is NULL.
 *   RPMA_E_PROVIDER  See ibv_dereg_mr(3).
 */
int rpma_mr_dereg(struct rpma_mr_local **mr_ptr);

/**
 * Writes the region's descriptor to desc: bytes that give the one who receives them access to the memory, to
 * be handed to rpma_mr_remote_from_descriptor there. desc has room for rpma_mr_get_descriptor_size bytes.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_mr_get_descriptor(const struct rpma_mr_local *mr, void *desc);

/**
 * The descriptor's size, in bytes: 21.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_mr_get_descriptor_size(const struct rpma_mr_local *mr, size_t *desc_size);

/**
 * Where the registered memory begins.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_mr_get_ptr(const struct rpma_mr_local *mr, void **ptr);

/**
 * How many bytes are registered.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_mr_get_size(const struct rpma_mr_local *mr, size_t *size);

/**
 * Advises the device about len bytes at offset of a region: advice and flags are ibv_advise_mr(3)'s
 * (IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH ...). May block when the advice is to be
 * followed at once.
 *
 * Errors:
 *   RPMA_E_INVAL     mr is NULL, or the device finds the range, advice or flags not valid.
 *   RPMA_E_NOSUPP    The device does not take that advice, or none.
 *   RPMA_E_PROVIDER  Any other failure.
 */
int rpma_mr_advise(struct rpma_mr_local *mr, size_t offset, size_t len, int advice, uint32_t flags);

/**
 * Makes a remote region from a descriptor that was received. desc_size is in bytes, bytes after the
 * descriptor are ignored, the buffer is not kept. The caller deletes it, with rpma_mr_remote_delete.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument, desc_size too small, or a region that allows nothing.
 *   RPMA_E_NOMEM
 */
int rpma_mr_remote_from_descriptor(const void *desc, size_t desc_size, struct rpma_mr_remote **mr_ptr);

/**
 * The remote region's size, in bytes.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_mr_remote_get_size(const struct rpma_mr_remote *mr, size_t *size);

/**
 * Which flushes the remote region takes, as a set of RPMA_MR_USAGE_FLUSH_TYPE_ bits, 0 for none.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_mr_remote_get_flush_type(const struct rpma_mr_remote *mr, int *flush_type);

/**
 * Forgets a remote region.
 *
 * Errors:
 *   RPMA_E_INVAL  mr_ptr is NULL.
 */
int rpma_mr_remote_delete(struct rpma_mr_remote **mr_ptr);

/* ================================================================ connection configuration ==== */

/* Threads: setters and getters of one configuration may run in parallel. */

/* The default of rpma_conn_cfg_set_timeout, in milliseconds. */
#define RPMA_DEFAULT_TIMEOUT_MS 1000

/**
 * Makes a description of what a connection is to be like, with its defaults: timeout 1,000 ms, completion
 * queue 10, no receive completion queue, send queue 10, receive queue 10, completion channel not shared, no
 * shared receive queue. Read when a request is made (rpma_conn_req_new, rpma_ep_next_conn_req); may be
 * deleted or changed right after. The caller deletes it.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg_ptr is NULL.
 *   RPMA_E_NOMEM  Out of memory (*cfg_ptr is then NULL).
 */
int rpma_conn_cfg_new(struct rpma_conn_cfg **cfg_ptr);

/**
 * Deletes a connection configuration.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg_ptr is NULL.
 */
int rpma_conn_cfg_delete(struct rpma_conn_cfg **cfg_ptr);

/**
 * Sets how many milliseconds rpma_conn_req_new may take to resolve the address, and again to resolve the
 * route. The default is RPMA_DEFAULT_TIMEOUT_MS; 0 is allowed.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL, timeout_ms is negative.
 */
int rpma_conn_cfg_set_timeout(struct rpma_conn_cfg *cfg, int timeout_ms);

/**
 * The timeout, in milliseconds.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_timeout(const struct rpma_conn_cfg *cfg, int *timeout_ms);

/**
 * Sets how many completions the main completion queue holds; the default is 10. At least one for every
 * operation whose completion is not collected yet. Above INT_MAX it counts as INT_MAX.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_conn_cfg_set_cq_size(struct rpma_conn_cfg *cfg, uint32_t cq_size);

/**
 * The main completion queue's size, in completions.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_cq_size(const struct rpma_conn_cfg *cfg, uint32_t *cq_size);

/**
 * Sets how many completions the receive completion queue holds; 0, the default: there is none, receives
 * complete on the main queue.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_conn_cfg_set_rcq_size(struct rpma_conn_cfg *cfg, uint32_t rcq_size);

/**
 * The receive completion queue's size, in completions.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_rcq_size(const struct rpma_conn_cfg *cfg, uint32_t *rcq_size);

/**
 * Sets how many reads, writes, atomic writes, flushes and sends may be posted and not yet known to be
 * complete; the default is 10. An operation without a completion of its own keeps its place until a later
 * one's completion is collected. A device may give more places than that: most round up, as they do the other
 * queues.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_conn_cfg_set_sq_size(struct rpma_conn_cfg *cfg, uint32_t sq_size);

/**
 * The send queue's size, in operations.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_sq_size(const struct rpma_conn_cfg *cfg, uint32_t *sq_size);

/**
 * Sets how many receives may be posted and not yet matched; the default is 10.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_conn_cfg_set_rq_size(struct rpma_conn_cfg *cfg, uint32_t rq_size);

/**
 * The receive queue's size, in receives.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_rq_size(const struct rpma_conn_cfg *cfg, uint32_t *rq_size);

/**
 * Sets whether both completion queues of the connection share one channel, to be waited on with
 * rpma_conn_wait instead of rpma_cq_wait; the default is false.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_conn_cfg_set_compl_channel(struct rpma_conn_cfg *cfg, bool shared);

/**
 * Whether the completion channel is to be shared.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_compl_channel(const struct rpma_conn_cfg *cfg, bool *shared);

/**
 * Makes the connection take its receives from a shared receive queue, which must outlive it; there is no way
 * to unset it.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_set_srq(struct rpma_conn_cfg *cfg, struct rpma_srq *srq);

/**
 * The shared receive queue, NULL when none was set.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_srq(const struct rpma_conn_cfg *cfg, struct rpma_srq **srq_ptr);

/* ================================================================ endpoint ==== */

/* Threads: any number of threads may take requests from one endpoint at once; each request goes to one. */

/**
 * Listens for connections at an address of the peer's device; port is a number (0 to 65535) or a service
 * name. The caller ends it with rpma_ep_shutdown. Blocks for the name look-up.
 *
 * Errors:
 *   RPMA_E_INVAL     NULL argument.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  Unknown or foreign address, or one of another device, port in use or not permitted.
 * See rdma_listen(3).
 */
int rpma_ep_listen(struct rpma_peer *peer, const char *addr, const char *port, struct rpma_ep **ep_ptr);

/**
 * Stops listening. Requests and connections that came from the endpoint go on.
 *
 * Errors:
 *   RPMA_E_INVAL     ep_ptr is NULL.
 *   RPMA_E_PROVIDER  See rdma_destroy_id(3).
 */
int rpma_ep_shutdown(struct rpma_ep **ep_ptr);

/**
 * The descriptor that is readable when rpma_ep_next_conn_req has something to give: for poll(2) and epoll(7),
 * and for fcntl(2) with O_NONBLOCK. It stays the endpoint's: never close it.
 *
 * Errors:
 *   RPMA_E_INVAL   NULL argument.
 *   RPMA_E_NOSUPP  Events go to an rpma_events (rpma_ep_cfg_set_events).
 */
int rpma_ep_get_fd(const struct rpma_ep *ep, int *fd);

/**
 * The next connection request, with its queues made as cfg says (NULL: the defaults). Accept it with
 * rpma_conn_req_connect or refuse it with rpma_conn_req_delete. Blocks until there is one, unless the
 * endpoint's descriptor is non-blocking.
 *
 * A request that cannot be served (an error below) is rejected, so that the one who asks learns of it.
 *
 * Errors:
 *   RPMA_E_INVAL     ep or req_ptr is NULL; the event was not a request; cfg asks for a shared channel with a
 *                    shared receive queue that has a completion queue of its own.
 *   RPMA_E_NO_EVENT  Non-blocking, and there is none now.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  The queues cannot be made, or the event cannot be read or acknowledged (*req_ptr is NULL
 *                    in the last case).
 * See rdma_get_cm_event(3), rdma_create_qp(3).
 */
int rpma_ep_next_conn_req(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg,
                          struct rpma_conn_req **req_ptr);

/* ================================================================ connection request ==== */

/* Threads: one thread at a time a request; different requests of one peer may be used in parallel. */

/* Bytes that go along with a connection request or its answer. */
struct rpma_conn_private_data {
    void *ptr;   /* the data, NULL when there is none */
    uint8_t len; /* in bytes; a device may take less than 255 (56 to ask, 196 to answer, on InfiniBand) */
};

/**
 * Makes a request for a connection to who listens at addr and port; port is a number (0 to 65535) or a
 * service name. cfg NULL means the defaults. Post receives that must be there from the start
 * (rpma_conn_req_recv), then rpma_conn_req_connect. Blocks for the name look-up, and up to cfg's timeout each
 * to resolve address and route.
 *
 * Errors:
 *   RPMA_E_INVAL     Peer, addr, port or req_ptr is NULL, or cfg as in rpma_ep_next_conn_req.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  No way to the address, or the queues cannot be made.
 * See rdma_resolve_addr(3).
 */
int rpma_conn_req_new(struct rpma_peer *peer, const char *addr, const char *port,
                      const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req_ptr);

/**
 * Gives up a connection request; one that came from an endpoint is rejected, and the one who asked sees
 * RPMA_CONN_REJECTED.
 *
 * Errors:
 *   RPMA_E_INVAL     req_ptr is NULL.
 *   RPMA_E_PROVIDER  See rdma_reject(3), rdma_destroy_id(3).
 */
int rpma_conn_req_delete(struct rpma_conn_req **req_ptr);

/**
 * Connects, or accepts, a request: it becomes a connection. pdata NULL sends no private data; its bytes are
 * copied.
 *
 * The request is consumed in every case but a NULL request, *req_ptr becomes NULL; when this fails the one
 * who asked is rejected. Success means under way: both sides wait for RPMA_CONN_ESTABLISHED with
 * rpma_conn_next_event before they post operations. The caller deletes the connection.
 *
 * Errors:
 *   RPMA_E_INVAL     req_ptr, *req_ptr or conn_ptr is NULL, pdata has no bytes.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  Too much private data, or see rdma_connect(3), rdma_accept(3).
 */
int rpma_conn_req_connect(struct rpma_conn_req **req_ptr, const struct rpma_conn_private_data *pdata,
                          struct rpma_conn **conn_ptr);

/**
 * Posts a receive before the connection exists, so that the first message finds it; otherwise as rpma_recv,
 * but dst is never NULL.
 *
 * Errors:
 *   RPMA_E_INVAL     NULL argument.
 *   RPMA_E_PROVIDER  See ibv_post_recv(3).
 */
int rpma_conn_req_recv(struct rpma_conn_req *req, struct rpma_mr_local *dst, size_t offset, size_t len,
                       const void *op_context);

/**
 * The private data that came with a request. Borrowed: valid until the request is connected or deleted.
 * {NULL, 0} when there is none, and for requests of our own.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_req_get_private_data(const struct rpma_conn_req *req, struct rpma_conn_private_data *pdata);

/* ================================================================ connection ==== */

/*
 * Threads: one connection may be used by any number of threads at once, but one thread at a time waits for
 * its events, and one for its completions.
 */

/**
 * The descriptor that is readable when rpma_conn_next_event has something to give: for poll(2) and epoll(7),
 * and for fcntl(2) with O_NONBLOCK. It stays the connection's: never close it.
 *
 * Errors:
 *   RPMA_E_INVAL   NULL argument.
 *   RPMA_E_NOSUPP  Events go to an rpma_events (rpma_conn_cfg_set_events).
 */
int rpma_conn_get_event_fd(const struct rpma_conn *conn, int *fd);

/**
 * The next event of the connection. Blocks until there is one, unless the event descriptor is non-blocking.
 *
 * With RPMA_CONN_ESTABLISHED the peer's private data can be got, and it is settled how rpma_flush and
 * rpma_atomic_write work here.
 *
 * Threads: one at a time a connection; operations may go on meanwhile.
 * Errors:
 *   RPMA_E_INVAL     NULL argument.
 *   RPMA_E_NO_EVENT  Non-blocking, and there is none now; or a signal came.
 *   RPMA_E_NOSUPP    Events go to an rpma_events (rpma_conn_cfg_set_events).
 *   RPMA_E_NOMEM
 *   RPMA_E_UNKNOWN   An event that has no name in enum rpma_conn_event; it is consumed.
 *   RPMA_E_PROVIDER  See rdma_get_cm_event(3), rdma_ack_cm_event(3).
 */
int rpma_conn_next_event(struct rpma_conn *conn, enum rpma_conn_event *event);

/**
 * The peer's private data: the passive side has it from the start, the active side from RPMA_CONN_ESTABLISHED
 * on. Borrowed: valid until rpma_conn_delete. {NULL, 0} when there is none. Some devices add zeros.
 *
 * Threads: any number at once, but on the active side not while rpma_conn_next_event waits for
 * RPMA_CONN_ESTABLISHED.
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_get_private_data(const struct rpma_conn *conn, struct rpma_conn_private_data *pdata);

/**
 * Tells the connection what its peer can do; pcfg is copied. Any time, again and again; operations posted
 * later go by it.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_apply_remote_peer_cfg(struct rpma_conn *conn, const struct rpma_peer_cfg *pcfg);

/**
 * The queue pair's number, which ibv_wc.qp_num names.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_get_qp_num(const struct rpma_conn *conn, uint32_t *qp_num);

/**
 * The main completion queue, borrowed.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_get_cq(const struct rpma_conn *conn, struct rpma_cq **cq_ptr);

/**
 * The receive completion queue, borrowed; NULL when the connection has none of its own, also when its shared
 * receive queue has one (rpma_srq_get_rcq).
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_get_rcq(const struct rpma_conn *conn, struct rpma_cq **rcq_ptr);

/**
 * The descriptor of the shared completion channel, for poll(2), epoll(7) and fcntl(2) with O_NONBLOCK; never
 * close it.
 *
 * Errors:
 *   RPMA_E_INVAL            NULL argument.
 *   RPMA_E_NOT_SHARED_CHNL  The channel is not shared.
 */
int rpma_conn_get_compl_fd(const struct rpma_conn *conn, int *fd);

/* Not used by any function; kept for programs that name it. */
#define RPMA_W_WAIT_FOR_COMPLETION (1)

/**
 * Waits on the shared completion channel for either completion queue, and arms that queue again. *cq is the
 * queue to collect from with rpma_cq_get_wc, until it has no more; *is_rcq (may be NULL) says whether it is
 * the receive queue. flags is 0 or RPMA_WAIT_NO_REARM. Blocks unless the channel's descriptor is
 * non-blocking.
 *
 * Threads: one at a time a connection.
 * Errors:
 *   RPMA_E_INVAL            conn or cq is NULL.
 *   RPMA_E_NOT_SHARED_CHNL  The channel is not shared.
 *   RPMA_E_NO_COMPLETION    there is none now.
 *   RPMA_E_UNKNOWN          An event of a queue that is not the connection's.
 *   RPMA_E_PROVIDER         The queue cannot be armed again (*cq is then NULL).
 * See ibv_get_cq_event(3).
 */
int rpma_conn_wait(struct rpma_conn *conn, int flags, struct rpma_cq **cq, bool *is_rcq);

/**
 * Begins to disconnect; both sides get RPMA_CONN_CLOSED. Operations still open complete with an error status.
 *
 * Errors:
 *   RPMA_E_INVAL     conn is NULL.
 *   RPMA_E_PROVIDER  See rdma_disconnect(3).
 */
int rpma_conn_disconnect(struct rpma_conn *conn);

/**
 * Deletes a connection in any state, and its completion queues and private data with it.
 *
 * Threads: one thread, after the last use of the connection.
 * Errors:
 *   RPMA_E_INVAL     conn_ptr is NULL.
 *   RPMA_E_PROVIDER  Some part could not be released; all others were.
 */
int rpma_conn_delete(struct rpma_conn **conn_ptr);

/* ================================================================ operations ==== */

/*
 * An operation is posted and goes on by itself; its completion (struct ibv_wc) is collected with
 * rpma_cq_get_wc from the connection's main completion queue, and carries op_context in wr_id. Offsets and
 * lengths are in bytes; what is out of bounds completes with an error status, unless the connection checks
 * them here (rpma_conn_cfg_set_bounds_check). One operation moves less than 4 GiB.
 *
 * Threads: operations of one connection may be posted by any number of threads at once.
 * Errors:
 *   RPMA_E_PROVIDER  The operation cannot be posted: the queue is full, or the connection never was
 *                    established; see ibv_post_send(3). On a connection that is over it is posted, and
 *                    completes with an error status.
 */

/* The "flags" of an operation: one of these. A completion only when the operation fails. */
#define RPMA_F_COMPLETION_ON_ERROR (1 << 0)
/* A completion in any case. */
#define RPMA_F_COMPLETION_ALWAYS (1 << 1 | RPMA_F_COMPLETION_ON_ERROR)

/**
 * Reads remote memory into a local region (RFC 5040, 5.2). With dst and src NULL and both offsets and len 0,
 * a read of nothing. Completes when the data is there.
 *
 * Errors:
 *   RPMA_E_INVAL  conn is NULL, flags is 0, only one of dst and src, or none of them with an offset or
 *                 length.
 */
int rpma_read(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t dst_offset,
              const struct rpma_mr_remote *src, size_t src_offset, size_t len, int flags,
              const void *op_context);

/**
 * Writes a local region into remote memory (RFC 5040, 5.1). With dst and src NULL and both offsets and len 0,
 * a write of nothing. A completion says that src may be used again; that the data is placed, or durable, is
 * what rpma_flush is for.
 *
 * Errors:
 *   RPMA_E_INVAL  conn is NULL, flags is 0, only one of dst and src, or none of them with an offset or
 *                 length.
 */
int rpma_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
               const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
               const void *op_context);

/**
 * Writes as rpma_write and completes a receive of the other side, which gets imm (host order here, network
 * order in its ibv_wc.imm_data; RFC 7306, 6).
 *
 * Errors:
 *   RPMA_E_INVAL     conn is NULL, flags is 0, only one of dst and src, or none of them with an offset or
 *                    length.
 *   RPMA_E_PROVIDER  The connection has no immediates.
 */
int rpma_write_with_imm(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                        const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
                        uint32_t imm, const void *op_context);

/* What the offset of an atomic write is a multiple of, in bytes. */
#define RPMA_ATOMIC_WRITE_ALIGNMENT 8

/**
 * Writes 8 bytes to remote memory at once, after every flush posted before: no reader sees a part of them.
 * src is copied during the call. The remote region's beginning must be a multiple of 8. On a connection
 * without a native atomic write this is a fenced inline write, and its completion says so
 * (IBV_WC_RDMA_WRITE).
 *
 * Errors:
 *   RPMA_E_INVAL  Conn, dst or src is NULL, flags is 0, dst_offset is not a multiple of
 *                 RPMA_ATOMIC_WRITE_ALIGNMENT.
 */
int rpma_atomic_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                      const char src[8], int flags, const void *op_context);

/* What rpma_flush waits for. */
enum rpma_flush_type {
    RPMA_FLUSH_TYPE_PERSISTENT = 0, /* that earlier writes survive a power failure */
    RPMA_FLUSH_TYPE_VISIBILITY = 1  /* that earlier writes are visible to the other machine */
};

/**
 * Flushes earlier writes of this connection to len bytes of remote memory. Complete when they are durable, or
 * visible. Where the connection has no native flush this is a read after write of up to 8 bytes inside the
 * range, and its completion says so (IBV_WC_RDMA_READ); on a kernel device also where the region's descriptor
 * does not say that it takes native flushes.
 *
 * Errors:
 *   RPMA_E_INVAL   conn or dst is NULL, flags is 0, unknown type.
 *   RPMA_E_NOSUPP  The region was not registered for this type of flush, or its memory cannot be durable; or
 *                  it is to persistence, and the peer did not declare direct write to persistent memory
 *                  (rpma_conn_apply_remote_peer_cfg). RPMA_E_NOMEM, RPMA_E_PROVIDER: the first flush of a
 *                  connection that is not native finds no memory to read into, or the device does not
 *                  register it.
 */
int rpma_flush(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset, size_t len,
               enum rpma_flush_type type, int flags, const void *op_context);

/**
 * Sends a message that a receive of the other side takes (RFC 5040, 5.3). src may be NULL with offset and len
 * 0: an empty message.
 *
 * Errors:
 *   RPMA_E_INVAL  conn is NULL, flags is 0, src is NULL with an offset or length.
 */
int rpma_send(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len, int flags,
              const void *op_context);

/**
 * Sends a message as rpma_send, with imm (host order here, network order in the other side's
 * ibv_wc.imm_data).
 *
 * Errors:
 *   RPMA_E_INVAL     conn is NULL, flags is 0, src is NULL with an offset or length.
 *   RPMA_E_PROVIDER  The connection has no immediates.
 */
int rpma_send_with_imm(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len,
                       int flags, uint32_t imm, const void *op_context);

/**
 * Posts a receive: the next message goes into len bytes at offset of dst. dst may be NULL with offset and len
 * 0. It always has a completion, on the receive completion queue if there is one, whose byte_len is the
 * message's size.
 *
 * Errors:
 *   RPMA_E_INVAL  conn is NULL, dst is NULL with an offset or length.
 * See ibv_post_recv(3).
 */
int rpma_recv(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t offset, size_t len,
              const void *op_context);

/* ================================================================ completion queue ==== */

/* Threads: any number of threads may collect from one queue at once. */

/**
 * The descriptor that is readable when the queue has an event, for poll(2), epoll(7) and fcntl(2) with
 * O_NONBLOCK; never close it. With a shared channel it is the channel's.
 *
 * Errors:
 *   RPMA_E_INVAL   NULL argument.
 *   RPMA_E_NOSUPP  The queue is only polled (RPMA_CQ_POLLED).
 */
int rpma_cq_get_fd(const struct rpma_cq *cq, int *fd);

/**
 * Waits for an event of the queue and arms it again. Collect with rpma_cq_get_wc until there is no more; that
 * there is none at once after a wait is normal. Blocks unless the queue's descriptor is non-blocking.
 *
 * Threads: any number at once; an event wakes one of them.
 * Errors:
 *   RPMA_E_INVAL           cq is NULL.
 *   RPMA_E_SHARED_CHANNEL  Use rpma_conn_wait.
 *   RPMA_E_NOSUPP          The queue is only polled (RPMA_CQ_POLLED).
 *   RPMA_E_NO_COMPLETION   there is no event now, or a signal came.
 *   RPMA_E_PROVIDER        The queue cannot be armed again.
 * See ibv_get_cq_event(3), ibv_req_notify_cq(3).
 */
int rpma_cq_wait(struct rpma_cq *cq);

/**
 * Collects up to num_entries completions into wc; *num_entries_got (may be NULL when num_entries is 1) is how
 * many. An operation's failure is in wc.status (ibv_wc_status_str(3)), not in the return.
 *
 * Errors:
 *   RPMA_E_INVAL          cq or wc is NULL, num_entries below 1, or above 1 with num_entries_got NULL.
 *   RPMA_E_NO_COMPLETION  there is none now.
 *   RPMA_E_UNKNOWN        The device gave more than asked for.
 *   RPMA_E_PROVIDER       See ibv_poll_cq(3).
 */
int rpma_cq_get_wc(struct rpma_cq *cq, int num_entries, struct ibv_wc *wc, int *num_entries_got);

/* ================================================================ shared receive queue ==== */

/*
 * Threads: any number of threads may post to one queue at once; setters and getters of one configuration may
 * run in parallel.
 */

/**
 * Makes a description of what a shared receive queue is to be like, with its defaults: queue 20, receive
 * completion queue 20. Read by rpma_srq_new. The caller deletes it.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg_ptr is NULL.
 *   RPMA_E_NOMEM  Out of memory (*cfg_ptr is then NULL).
 */
int rpma_srq_cfg_new(struct rpma_srq_cfg **cfg_ptr);

/**
 * Deletes a shared receive queue's configuration.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg_ptr is NULL.
 */
int rpma_srq_cfg_delete(struct rpma_srq_cfg **cfg_ptr);

/**
 * Sets how many receives may be posted and not yet matched; the default is 20.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_srq_cfg_set_rq_size(struct rpma_srq_cfg *cfg, uint32_t rq_size);

/**
 * The queue's size, in receives.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_srq_cfg_get_rq_size(const struct rpma_srq_cfg *cfg, uint32_t *rq_size);

/**
 * Sets how many completions the queue's own receive completion queue holds, the default is 20; 0: there is
 * none, receives complete where their connection has its receive completions.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_srq_cfg_set_rcq_size(struct rpma_srq_cfg *cfg, uint32_t rcq_size);

/**
 * The receive completion queue's size, in completions.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_srq_cfg_get_rcq_size(const struct rpma_srq_cfg *cfg, uint32_t *rcq_size);

/**
 * Makes a receive queue that many connections take their receives from (rpma_conn_cfg_set_srq); a
 * completion's qp_num says whose message it was (rpma_conn_get_qp_num). cfg NULL means the defaults. Delete
 * it after its connections.
 *
 * Errors:
 *   RPMA_E_INVAL     peer or srq_ptr is NULL.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  The device has none, or not so large a one.
 * See ibv_create_srq(3).
 */
int rpma_srq_new(struct rpma_peer *peer, struct rpma_srq_cfg *cfg, struct rpma_srq **srq_ptr);

/**
 * Deletes a shared receive queue.
 *
 * Errors:
 *   RPMA_E_INVAL     srq_ptr is NULL.
 *   RPMA_E_PROVIDER  Connections still use it; *srq_ptr is NULL all the same, and the device's queue leaks.
 */
int rpma_srq_delete(struct rpma_srq **srq_ptr);

/**
 * Posts a receive to the shared queue, as rpma_recv does to a connection's.
 *
 * Errors:
 *   RPMA_E_INVAL     srq is NULL, dst is NULL with an offset or length.
 *   RPMA_E_PROVIDER  See ibv_post_srq_recv(3).
 */
int rpma_srq_recv(struct rpma_srq *srq, struct rpma_mr_local *dst, size_t offset, size_t len,
                  const void *op_context);

/**
 * The queue's own receive completion queue, borrowed; NULL when it has none.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_srq_get_rcq(const struct rpma_srq *srq, struct rpma_cq **rcq_ptr);

/* ================================================================ log ==== */

/* Threads: safe in any number of threads, at any time; holds for the whole process. */

/* How serious a line is; a threshold lets through its own level and those before it. */
enum rpma_log_level {
    RPMA_LOG_DISABLED = -1, /* as a threshold: nothing */
    RPMA_LOG_LEVEL_FATAL = 0,
    RPMA_LOG_LEVEL_ERROR = 1,   /* the call that logs it fails */
    RPMA_LOG_LEVEL_WARNING = 2, /* something is not as it should be, the call goes on */
    RPMA_LOG_LEVEL_NOTICE = 3,  /* connections made and ended, the device chosen */
    RPMA_LOG_LEVEL_INFO = 4,
    RPMA_LOG_LEVEL_DEBUG = 5
};

enum rpma_log_threshold {
    RPMA_LOG_THRESHOLD = 0, /* which lines reach the log function at all; default RPMA_LOG_LEVEL_WARNING */
    RPMA_LOG_THRESHOLD_AUX =
        1, /* which of these the default function also writes to standard error; default none */
    RPMA_LOG_THRESHOLD_MAX = 2 /* how many there are; not an argument */
};

/**
 * Sets which log lines are let through, to the log function or to standard error.
 *
 * Errors:
 *   RPMA_E_INVAL  Unknown threshold or level.
 */
int rpma_log_set_threshold(enum rpma_log_threshold threshold, enum rpma_log_level level);

/**
 * A log threshold's level.
 *
 * Errors:
 *   RPMA_E_INVAL  Unknown threshold, level is NULL.
 */
int rpma_log_get_threshold(enum rpma_log_threshold threshold, enum rpma_log_level *level);

/*
 * Takes one line: message_format is printf's and ends in a newline. Called from any thread, in several at
 * once; it must not call librpma.
 */
typedef void rpma_log_function(enum rpma_log_level level, const char *file_name, const int line_no,
                               const char *function_name, const char *message_format, ...);

/* The default: where the variable RPMA_LOG said when the library was loaded (librpma(7)), else syslog(3) as
 * "rpma", facility LOG_LOCAL7; and standard error as RPMA_LOG_THRESHOLD_AUX says. */
#define RPMA_LOG_USE_DEFAULT_FUNCTION (NULL)

/**
 * Sets where the log lines of the process go. RPMA_LOG_USE_DEFAULT_FUNCTION goes back to the default.
 *
 * Returns: 0, always.
 */
int rpma_log_set_function(rpma_log_function *log_function);

/* ================================================================ additions ==== */

/*
 * What follows is not in librpma 1.3; its symbols have the version LIBRPMA_1.4. A program that is to be built
 * with either looks for RPMA_ADDITIONS.
 */
#define RPMA_ADDITIONS 1

/* ---------------------------------------------------------------- devices of one kind ---- */

/* The kinds of device that RPMA_DEVICE chooses from. */
enum rpma_device_kind {
    RPMA_DEVICE_KERNEL = 1, /* RDMA devices of the kernel: cards, rxe, siw */
    RPMA_DEVICE_SOFT = 2    /* the device in user space (softrdma.h) */
};

/**
 * Finds the device of one kind that serves an address of this machine, for programs that treat the kinds
 * differently. rpma_utils_get_ibv_context takes the kernel's where there is one, else the soft one. addr is a
 * numeric address. The context is used as that of rpma_utils_get_ibv_context.
 *
 * Threads: any number at once.
 * Errors:
 *   RPMA_E_INVAL     NULL argument, unknown kind.
 *   RPMA_E_NOSUPP    No device of the kind serves the address, or RPMA_DEVICE leaves the kind out; nothing is
 *                    logged.
 *   RPMA_E_PROVIDER  RPMA_DEVICE has another value (errno is EINVAL), or there are no descriptors or memory
 *                    to find out (EMFILE, ENFILE, ENOMEM).
 * See rdma_bind_addr(3).
 */
int rpma_utils_get_local_ibv_context(const char *addr, enum rpma_device_kind kind,
                                     struct ibv_context **ibv_ctx_ptr);

/* ---------------------------------------------------------------- limits ---- */

/* The most that a peer's device has. */
struct rpma_peer_limits {
    uint32_t
        max_cq_size; /* completions of one queue: rpma_conn_cfg_set_cq_size, _set_rcq_size, rpma_cq_new */
    uint32_t max_sq_size;     /* rpma_conn_cfg_set_sq_size */
    uint32_t max_rq_size;     /* rpma_conn_cfg_set_rq_size */
    uint32_t max_srq_size;    /* rpma_srq_cfg_set_rq_size; 0: no shared receive queues */
    uint32_t max_inline_size; /* rpma_conn_cfg_set_inline_size, in bytes; 0: the device does not say */
    uint32_t max_mr;          /* regions */
    uint64_t max_mr_size;     /* bytes of one region */
    uint64_t reserved[4];     /* 0 */
};

/**
 * The limits of a peer's device; what is left of them others may use too.
 *
 * Threads: safe in any number of threads.
 * Errors:
 *   RPMA_E_INVAL     NULL argument.
 *   RPMA_E_PROVIDER  The device cannot be queried.
 * See ibv_query_device(3).
 */
int rpma_peer_get_limits(const struct rpma_peer *peer, struct rpma_peer_limits *limits);

/* ---------------------------------------------------------------- memory ---- */

/* Threads: as of memory above. */

/**
 * Allocates size bytes, zeroed, and registers them for a usage as rpma_mr_reg does: memory that the device
 * prefers, which on today's devices is pages of its own, taken from the system when they are touched first.
 * rpma_mr_get_ptr tells where it is; rpma_mr_dereg gives it back. May block as rpma_mr_reg.
 *
 * Errors:
 *   RPMA_E_INVAL     NULL argument, size 0, usage 0 or with unknown bits.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  As rpma_mr_reg; no allocated memory can be durable.
 */
int rpma_mr_alloc(struct rpma_peer *peer, size_t size, int usage, struct rpma_mr_local **mr_ptr);

/**
 * The key by which a peer names the region, together with an address in it (rpma_mr_get_ptr): for programs
 * that tell their peers so much and no more, and for rpma_op.remote_key.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_mr_get_key(const struct rpma_mr_local *mr, uint32_t *key);

/* ---------------------------------------------------------------- posting several at once ---- */

/* Which operation an element of rpma_post is; each does what the function of its name does. */
enum rpma_op_type {
    RPMA_OP_READ = 1,
    RPMA_OP_WRITE,
    RPMA_OP_WRITE_WITH_IMM,
    RPMA_OP_ATOMIC_WRITE,
    RPMA_OP_FLUSH,
    RPMA_OP_SEND,
    RPMA_OP_SEND_WITH_IMM
};

/* One operation, zeroed before it is filled in; what its type does not use is not looked at. */
struct rpma_op {
    int type;                          /* enum rpma_op_type */
    int flags;                         /* RPMA_F_COMPLETION_ */
    const void *op_context;            /* ibv_wc.wr_id of its completion */
    const struct rpma_mr_local *local; /* where a read puts, all others but ATOMIC_WRITE and FLUSH take */
    size_t local_offset;
    const struct rpma_mr_remote *remote; /* the other end; not of a SEND */
    size_t remote_offset;
    size_t len;
    uint32_t imm;         /* WRITE_WITH_IMM, SEND_WITH_IMM: host order, as in their functions */
    int flush_type;       /* FLUSH: enum rpma_flush_type */
    const char *word;     /* ATOMIC_WRITE: 8 bytes, copied during the call */
    const void *bytes;    /* WRITE, SEND, also _WITH_IMM, instead of local: copied during the call */
    uint64_t remote_addr; /* READ, WRITE, WRITE_WITH_IMM, instead of remote: an address of the peer */
    uint32_t remote_key;  /* and the key that it gave for that (rpma_mr_get_key); not both 0 */
    uint64_t reserved[2]; /* 0, for what is to come */
};

/**
 * Posts operations in order and hands them to the device together: one doorbell for up to 32 of them, and on
 * the soft device one system call for what fits. A write and the flush that makes it durable belong together.
 * A source that is given as bytes needs no registration, and may be changed when this returns; it has at most
 * as many as rpma_conn_cfg_set_inline_size set, or 8. Where a place is given as address and key, only the
 * peer knows the bounds. *num_posted, if not NULL, is always how many were posted, also when it fails: those
 * go on, the one behind them was refused, the others were not looked at.
 *
 * Threads: any number of threads may post to one connection at once.
 * Errors:
 *   RPMA_E_INVAL     conn is NULL, ops is NULL or num_ops is 0, unknown type, reserved is not 0, an end that
 *                    is given twice, too many bytes, or what the operation's own function says.
 *   RPMA_E_NOSUPP    As rpma_flush.
 *   RPMA_E_AGAIN     The send queue is full, or the soft device has no memory to copy a source that is given
 *                    as bytes; collect completions and post the rest.
 *   RPMA_E_PROVIDER  As at each operation.
 */
int rpma_post(struct rpma_conn *conn, const struct rpma_op *ops, size_t num_ops, size_t *num_posted);

/* One receive, zeroed before it is filled in: len bytes at offset of local, or with all three 0 nothing. */
struct rpma_recv_op {
    const void *op_context; /* ibv_wc.wr_id of its completion */
    struct rpma_mr_local *local;
    size_t offset;
    size_t len;
    uint64_t reserved; /* 0, for what is to come */
};

/**
 * Posts receives in order as rpma_recv does each, and hands them to the device together. *num_posted, if not
 * NULL, is always how many were posted, also when it fails.
 *
 * Threads: any number of threads may post to one connection at once.
 * Errors:
 *   RPMA_E_INVAL     conn is NULL, ops is NULL or num_ops is 0, reserved is not 0, or what rpma_recv says.
 *   RPMA_E_AGAIN     The receive queue is full; collect completions and post the rest.
 *   RPMA_E_PROVIDER  See ibv_post_recv(3).
 */
int rpma_recv_many(struct rpma_conn *conn, const struct rpma_recv_op *ops, size_t num_ops,
                   size_t *num_posted);

/**
 * Posts receives before the connection exists, as rpma_recv_many, which also says the errors; here local may
 * be NULL as well.
 *
 * Errors:
 *   RPMA_E_INVAL  The request cannot be connected yet (rpma_conn_req_proceed).
 */
int rpma_conn_req_recv_many(struct rpma_conn_req *req, const struct rpma_recv_op *ops, size_t num_ops,
                            size_t *num_posted);

/* A flag of rpma_send, rpma_send_with_imm and rpma_write_with_imm: wakes a receiver that waits for no more.
 */
#define RPMA_F_SOLICITED (1 << 8)

/* ---------------------------------------------------------------- completion queues ---- */

/* rpma_cq_new: a queue that is only polled. It has no completion channel and takes no file descriptor. */
#define RPMA_CQ_POLLED (1 << 0)
/* rpma_cq_new: a queue that is polled, and waited for with rpma_cq_wait_begin: it is armed only meanwhile, so
 * that where nobody waits no completion costs a system call to tell of it. */
#define RPMA_CQ_UNARMED (1 << 2)

/**
 * Makes a completion queue of its own, for any number of connections of this peer (rpma_conn_cfg_set_cq,
 * rpma_conn_cfg_set_rcq); ibv_wc.qp_num tells whose a completion is (rpma_conn_get_qp_num). It outlives the
 * connections. cq_size: how many completions it holds; it must not overflow. flags: 0, RPMA_CQ_POLLED or
 * RPMA_CQ_UNARMED.
 *
 * Errors:
 *   RPMA_E_INVAL     NULL argument, unknown flag.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  The device cannot have it.
 */
int rpma_cq_new(struct rpma_peer *peer, uint32_t cq_size, int flags, struct rpma_cq **cq_ptr);

/**
 * Gives a queue that rpma_cq_new made room for cq_size completions. Those that wait to be collected stay, and
 * so does what the queue is waited for with. Not every device can.
 *
 * Threads: one; others may post, collect and wait meanwhile.
 * Errors:
 *   RPMA_E_INVAL     cq is NULL.
 *   RPMA_E_PROVIDER  More completions wait than there would be room for, or the device cannot have it (errno
 *                    says why); the queue is as it was.
 * See ibv_resize_cq(3).
 */
int rpma_cq_resize(struct rpma_cq *cq, uint32_t cq_size);

/**
 * Ends a queue that rpma_cq_new made, and sets *cq_ptr to NULL.
 *
 * Errors:
 *   RPMA_E_INVAL     cq_ptr is NULL.
 *   RPMA_E_PROVIDER  Connections still use it; it goes on as before.
 */
int rpma_cq_delete(struct rpma_cq **cq_ptr);

/* rpma_conn_wait, rpma_cq_wait_event: leave the queue unarmed; the caller arms it (rpma_cq_rearm). */
#define RPMA_WAIT_NO_REARM (1 << 30)

/**
 * Waits as rpma_cq_wait, with flags 0 or RPMA_WAIT_NO_REARM. Blocks unless the queue's descriptor is
 * non-blocking. Events are acknowledged to the device together, when many have come.
 *
 * Threads: any number at once; an event wakes one of them.
 * Errors:
 *   RPMA_E_INVAL           cq is NULL, unknown flag.
 *   RPMA_E_SHARED_CHANNEL  Use rpma_conn_wait.
 *   RPMA_E_NO_COMPLETION   there is no event now, or a signal came.
 *   RPMA_E_NOSUPP          The queue is only polled.
 *   RPMA_E_PROVIDER        The queue cannot be armed again.
 */
int rpma_cq_wait_event(struct rpma_cq *cq, int flags);

/**
 * Asks for an event of the next completion; with solicited_only, of the next receive whose sender wants to be
 * heard (RPMA_F_SOLICITED), or that failed. What completed before makes no event: poll once more after it.
 *
 * Threads: safe in any number of threads.
 * Errors:
 *   RPMA_E_INVAL     cq is NULL.
 *   RPMA_E_NOSUPP    The queue is only polled.
 *   RPMA_E_PROVIDER  ibv_req_notify_cq(3).
 */
int rpma_cq_rearm(struct rpma_cq *cq, bool solicited_only);

/**
 * Begins to wait for a queue that was made with RPMA_CQ_UNARMED: *fd is readable when collecting gives
 * completions or takes connections further, which on the soft device is the caller's work until
 * rpma_cq_wait_end. What completed before may not make it readable: collect once more, until there is no
 * more, then sleep in poll(2) or epoll_wait(2). *fd is the same at every call, so that it may stay in an
 * epoll set; it is never read or closed. A connection whose operations and receives complete in two queues is
 * waited for on both.
 *
 * Threads: one at a time is between the two calls; others may post and collect meanwhile.
 * Errors:
 *   RPMA_E_INVAL     NULL argument.
 *   RPMA_E_NOSUPP    The queue was made without RPMA_CQ_UNARMED.
 *   RPMA_E_PROVIDER  No descriptor, which the first wait of a queue takes, or the queue cannot be armed.
 */
int rpma_cq_wait_begin(struct rpma_cq *cq, int *fd);

/**
 * Ends what rpma_cq_wait_begin began.
 *
 * Errors:
 *   RPMA_E_INVAL   cq is NULL, or nobody waits.
 *   RPMA_E_NOSUPP  The queue was made without RPMA_CQ_UNARMED.
 */
int rpma_cq_wait_end(struct rpma_cq *cq);

/* ---------------------------------------------------------------- what a connection is like ---- */

/* Threads: setters and getters of one configuration may run in parallel. */

/**
 * Sets where the operations of connections complete, instead of in a queue of their own; NULL for a queue of
 * their own. Excludes a shared completion channel. The size that rpma_conn_cfg_set_cq_size sets then does not
 * count. Collect what belongs to a connection before deleting it: what is left may be there later or not, and
 * another connection may get its number. A queue of another device makes the request fail (RPMA_E_INVAL).
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_conn_cfg_set_cq(struct rpma_conn_cfg *cfg, struct rpma_cq *cq);

/**
 * The completion queue of connections, NULL when they have one of their own.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_cq(const struct rpma_conn_cfg *cfg, struct rpma_cq **cq_ptr);

/**
 * Sets where the receives of connections complete, as rpma_conn_cfg_set_cq does for the other operations;
 * NULL for what rpma_conn_cfg_set_rcq_size says. Excludes a shared completion channel, and a shared receive
 * queue with a completion queue.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_conn_cfg_set_rcq(struct rpma_conn_cfg *cfg, struct rpma_cq *rcq);

/**
 * The completion queue of receives, NULL when there is none.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_rcq(const struct rpma_conn_cfg *cfg, struct rpma_cq **rcq_ptr);

/**
 * Sets how often a device sends again what was not acknowledged, 0 to 7, default 7. InfiniBand and RoCE;
 * where TCP does that (iWARP, the soft device) it has no effect.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL, above 7.
 */
int rpma_conn_cfg_set_retry_count(struct rpma_conn_cfg *cfg, uint8_t retry_count);

/**
 * How often a device sends again what was not acknowledged.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_retry_count(const struct rpma_conn_cfg *cfg, uint8_t *retry_count);

/**
 * Sets how often a device sends again what found no receive, 0 to 6, or 7, the default, without end. It has
 * an effect where rpma_conn_cfg_set_retry_count has.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL, above 7.
 */
int rpma_conn_cfg_set_rnr_retry_count(struct rpma_conn_cfg *cfg, uint8_t rnr_retry_count);

/**
 * How often a device sends again what found no receive.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_rnr_retry_count(const struct rpma_conn_cfg *cfg, uint8_t *rnr_retry_count);

/**
 * Sets how long a device waits for an acknowledgement, as an exponent: 4.096 us * 2 to the power of
 * ack_timeout, 1 to 31; 0, the default, leaves it to the device. InfiniBand and RoCE only, see
 * rdma_set_option(3).
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL, above 31.
 */
int rpma_conn_cfg_set_ack_timeout(struct rpma_conn_cfg *cfg, uint8_t ack_timeout);

/**
 * How long a device waits for an acknowledgement, as rpma_conn_cfg_set_ack_timeout has it.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_ack_timeout(const struct rpma_conn_cfg *cfg, uint8_t *ack_timeout);

/**
 * Sets up to how many bytes a write or send takes its source during the call (IBV_SEND_INLINE), so that it
 * may be changed at once; default 0, none. The soft device takes up to 65536, and copies only those that the
 * network does not take during the call. Too many for the device (rpma_peer_get_limits): no connection
 * (RPMA_E_PROVIDER, with a log line).
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_conn_cfg_set_inline_size(struct rpma_conn_cfg *cfg, uint32_t inline_size);

/**
 * Up to how many bytes a write or send takes its source during the call.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_inline_size(const struct rpma_conn_cfg *cfg, uint32_t *inline_size);

/**
 * Sets whether operations and receives of the connection check offset and length against their regions, and
 * answer RPMA_E_INVAL before anything is sent; receives of a shared receive queue are not checked. Default
 * false: the device finds out, and the connection is lost.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_conn_cfg_set_bounds_check(struct rpma_conn_cfg *cfg, bool bounds_check);

/**
 * Whether operations check offset and length.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_bounds_check(const struct rpma_conn_cfg *cfg, bool *bounds_check);

/**
 * Sets the address, and the port if it is not 0, that requests are made from: IPv4 or IPv6, copied; NULL for
 * the device's choice, which is the default.
 *
 * Threads: not in parallel with other use of cfg.
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL, another family.
 */
int rpma_conn_cfg_set_source_addr(struct rpma_conn_cfg *cfg, const struct sockaddr *addr);

/**
 * The address that requests are made from; its family is AF_UNSPEC when there is none.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_source_addr(const struct rpma_conn_cfg *cfg, struct sockaddr_storage *addr);

/* ---------------------------------------------------------------- events of many connections ---- */

struct rpma_events;

/**
 * Makes one queue for the events of many connections of this peer (rpma_conn_cfg_set_events), with one file
 * descriptor. It outlives them.
 *
 * Errors:
 *   RPMA_E_INVAL     NULL argument.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  See rdma_create_event_channel(3).
 */
int rpma_events_new(struct rpma_peer *peer, struct rpma_events **events_ptr);

/**
 * Deletes a queue for events, after all of its connections.
 *
 * Errors:
 *   RPMA_E_INVAL  events_ptr is NULL.
 */
int rpma_events_delete(struct rpma_events **events_ptr);

/**
 * The descriptor that is readable when there is an event; made non-blocking with fcntl(2), rpma_events_next
 * does not wait. It stays the queue's: never close it.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_events_get_fd(const struct rpma_events *events, int *fd);

/**
 * The next event of many connections, and whose it is; what rpma_conn_next_event says of events holds.
 * Blocks, unless the descriptor is non-blocking. It may give a connection to which rpma_conn_req_connect has
 * not returned yet in another thread; rpma_conn_get_context tells which of the program's it is. An event of a
 * request or endpoint is taken as rpma_events_take does, and answered with RPMA_E_NO_EVENT.
 *
 * Threads: one at a time a queue; connections of the queue are deleted by that thread, or while none is in
 * this call.
 * Errors:
 *   RPMA_E_INVAL     NULL argument.
 *   RPMA_E_NO_EVENT  Non-blocking, and there is none now; or a signal came.
 *   RPMA_E_NOMEM
 *   RPMA_E_UNKNOWN   An event that has no name in enum rpma_conn_event; it is consumed.
 *   RPMA_E_PROVIDER  See rdma_get_cm_event(3), rdma_ack_cm_event(3).
 */
int rpma_events_next(struct rpma_events *events, struct rpma_conn **conn, enum rpma_conn_event *event);

/**
 * Begins to wait for events as rpma_cq_wait_begin does for completions: *fd is readable when rpma_events_take
 * gives something or takes connections and requests further. It is another descriptor than
 * rpma_events_get_fd's, which still says whether rpma_events_take blocks.
 *
 * Threads: one at a time is between the two calls.
 * Errors:
 *   RPMA_E_INVAL     NULL argument.
 *   RPMA_E_PROVIDER  No descriptor, which the first wait of a queue takes.
 */
int rpma_events_wait_begin(struct rpma_events *events, int *fd);

/**
 * Ends what rpma_events_wait_begin began.
 *
 * Errors:
 *   RPMA_E_INVAL  events is NULL, or nobody waits.
 */
int rpma_events_wait_end(struct rpma_events *events);

/* Which kind of object an event is about, and so which pointer of struct rpma_event is set. */
enum rpma_event_type {
    RPMA_EVENT_CONN = 1, /* a connection: conn, conn_event */
    RPMA_EVENT_CONN_REQ, /* a request that rpma_conn_req_begin or rpma_conn_req_adopt began: req */
    RPMA_EVENT_EP        /* an endpoint: ep */
};

/* One event of a queue for events. */
struct rpma_event {
    int type;                        /* enum rpma_event_type */
    enum rpma_conn_event conn_event; /* what happened to conn */
    struct rpma_conn *conn;
    struct rpma_conn_req *req; /* it can be connected, or has failed: rpma_conn_req_proceed tells which */
    struct rpma_ep *ep;        /* one request came: rpma_ep_next_conn_req or rpma_ep_next_bare_req gives it */
};

/**
 * The next event of connections (rpma_conn_cfg_set_events), of requests that were begun with such a
 * configuration, and of endpoints (rpma_ep_cfg_set_events). On the way it takes requests further. What
 * rpma_events_next says of waiting, threads and errors holds; it may give a request to which
 * rpma_conn_req_begin has not returned yet in another thread, and requests and endpoints are deleted as
 * connections are.
 *
 * Threads: one at a time a queue.
 * Errors:
 *   RPMA_E_INVAL     NULL argument.
 *   RPMA_E_NO_EVENT  Non-blocking, and there is none now; or a signal came.
 *   RPMA_E_NOMEM     Also, a request of a peer was rejected for it. RPMA_E_UNKNOWN, RPMA_E_PROVIDER: as
 *                    rpma_events_next.
 */
int rpma_events_take(struct rpma_events *events, struct rpma_event *event);

/**
 * Sets where the events of connections go, instead of to a descriptor of their own: rpma_conn_get_event_fd
 * and rpma_conn_next_event answer RPMA_E_NOSUPP on them. A request that rpma_conn_req_begin or
 * rpma_conn_req_adopt makes has its events there too, and no descriptor: rpma_events_take tells of it. NULL
 * for one of their own.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 */
int rpma_conn_cfg_set_events(struct rpma_conn_cfg *cfg, struct rpma_events *events);

/**
 * The queue for events of many connections, NULL when there is none.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_cfg_get_events(const struct rpma_conn_cfg *cfg, struct rpma_events **events_ptr);

/**
 * Keeps a pointer of the program with the connection.
 *
 * Errors:
 *   RPMA_E_INVAL  conn is NULL.
 */
int rpma_conn_set_context(struct rpma_conn *conn, void *context);

/**
 * The pointer that rpma_conn_set_context keeps, NULL before.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_get_context(const struct rpma_conn *conn, void **context);

/* ---------------------------------------------------------------- how a connection ends ---- */

/**
 * Begins to disconnect as rpma_conn_disconnect does, but when what is posted now is done; that is flushed
 * otherwise as far as TCP has not taken it. What is posted later may be done too, or be flushed. Memory that
 * only the peer uses may be deregistered now: a peer that still writes there is not heard any more, and gets
 * what was posted, unless that has to wait for an answer. A peer that takes nothing delays the end;
 * rpma_conn_disconnect still ends it at once.
 *
 * Threads: any number at once.
 * Errors:
 *   RPMA_E_INVAL     conn is NULL.
 *   RPMA_E_NOSUPP    A kernel's device: await the last completion, and disconnect then.
 *   RPMA_E_PROVIDER  The connection is not there.
 */
int rpma_conn_drain(struct rpma_conn *conn);

/**
 * Tells why a connection ended, as an errno value, once the event of its end has been given (RPMA_CONN_CLOSED
 * and those behind it): 0, it has not ended, or either side disconnected; ECONNREFUSED, the other side said
 * no, or nobody listens there; ECONNRESET, it went away; ETIMEDOUT, it did not answer; EPROTO, one side broke
 * the protocol or reached for what it may not have; ECONNABORTED, an operation failed here; or another one of
 * connect(2). Kernel devices tell of RPMA_CONN_CLOSED only 0.
 *
 * Threads: any number at once.
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_get_error(const struct rpma_conn *conn, int *error);

/* ---------------------------------------------------------------- requests that do not block ---- */

/* Threads: one thread at a time a request. */

/**
 * Makes a request as rpma_conn_req_new, but returns at once (with a numeric address, otherwise it blocks for
 * the name look-up); rpma_conn_req_proceed takes it further whenever its descriptor is readable.
 *
 * The descriptor becomes the connection's own, blocking, when rpma_conn_req_connect succeeds. With
 * rpma_conn_cfg_set_events there is none: rpma_events_take takes the request further, and tells when it can
 * be connected.
 *
 * Errors:
 *   RPMA_E_INVAL     NULL argument other than cfg.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  No way to the address.
 */
int rpma_conn_req_begin(struct rpma_peer *peer, const char *addr, const char *port,
                        const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req_ptr);

/**
 * Makes the request of a peer that was accepted as a TCP connection: fd is a connected stream socket on which
 * the peer is about to speak iWARP's start-up (RFC 5044), not a byte of it read. On success it belongs to the
 * request. Then as rpma_conn_req_begin; when rpma_conn_req_proceed says so, the private data is there, and
 * rpma_conn_req_connect accepts.
 *
 * Errors:
 *   RPMA_E_INVAL   NULL argument, fd is no connected TCP socket.
 *   RPMA_E_NOSUPP  The peer is not on the soft device.
 */
int rpma_conn_req_adopt(struct rpma_peer *peer, int fd, const struct rpma_conn_cfg *cfg,
                        struct rpma_conn_req **req_ptr);

/* rpma_conn_req_adopt_fd: it is we who ask; the peer is about to read the request. */
#define RPMA_ADOPT_INITIATOR (1 << 0)
/* rpma_conn_req_adopt_fd: fd stays the caller's, who leaves its bytes alone; the device uses a duplicate. */
#define RPMA_ADOPT_KEEP_FD (1 << 1)
/* rpma_conn_req_adopt_fd: the same without a duplicate; the caller closes fd after the request, or the
 * connection that it became, is deleted, and not before. Excludes RPMA_ADOPT_KEEP_FD. */
#define RPMA_ADOPT_SHARE_FD (1 << 2)

/**
 * Makes a request of a TCP connection as rpma_conn_req_adopt, which is this with flags 0. With
 * RPMA_ADOPT_INITIATOR it is the request of this side: it can be connected at once, and rpma_conn_req_connect
 * asks on the TCP connection that there is.
 *
 * Errors:
 *   RPMA_E_INVAL     As rpma_conn_req_adopt; unknown flag, or two that exclude each other.
 *   RPMA_E_NOSUPP    The peer is not on the soft device.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  No descriptor is left, no device serves fd's address, or the queues cannot be made; fd
 *                    stays the caller's, unless only the queues failed.
 */
int rpma_conn_req_adopt_fd(struct rpma_peer *peer, int fd, int flags, const struct rpma_conn_cfg *cfg,
                           struct rpma_conn_req **req_ptr);

/**
 * The descriptor that is readable when the request may go further.
 *
 * Errors:
 *   RPMA_E_INVAL   NULL argument.
 *   RPMA_E_NOSUPP  rpma_conn_req_new made it, it is an endpoint's, or its events go to an rpma_events.
 */
int rpma_conn_req_get_fd(const struct rpma_conn_req *req, int *fd);

/**
 * Takes a request as far as it goes without waiting. 0: it can be connected, and receives can be posted;
 * rpma_conn_req_connect before that uses the request up and gives RPMA_E_INVAL. Each of address and route
 * fails after rpma_conn_cfg_set_timeout.
 *
 * Errors:
 *   RPMA_E_INVAL  req is NULL.
 *   RPMA_E_AGAIN  It waits for its descriptor, for an event (rpma_events_take), or for rpma_conn_req_prepare.
 *                 RPMA_E_PROVIDER, RPMA_E_NOMEM, RPMA_E_INVAL: it failed, delete it; the log says why.
 */
int rpma_conn_req_proceed(struct rpma_conn_req *req);

/**
 * Tells why rpma_conn_req_proceed failed, as an errno value: 0, it has not; ETIMEDOUT, nothing came;
 * ECONNRESET, the other side went away; EPROTO, it does not speak the protocol; ECONNABORTED, something is
 * missing here, such as memory; or another one of connect(2).
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_req_get_error(const struct rpma_conn_req *req, int *error);

/**
 * Keeps a pointer of the program with the request, and with the connection that it becomes
 * (rpma_conn_get_context).
 *
 * Errors:
 *   RPMA_E_INVAL  req is NULL.
 */
int rpma_conn_req_set_context(struct rpma_conn_req *req, void *context);

/**
 * The pointer that rpma_conn_req_set_context keeps, NULL before.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_req_get_context(const struct rpma_conn_req *req, void **context);

/* ---------------------------------------------------------------- requests without queues ---- */

/*
 * An endpoint at a wildcard address is asked by way of every device of its kind. Its requests are taken
 * without queues, and prepared with a peer on the device that each came by.
 *
 * Threads: one thread at a time a request.
 */

/**
 * The next connection request as rpma_ep_next_conn_req, but without queues: its private data, addresses and
 * device can be asked for; rpma_conn_req_prepare makes what rpma_conn_req_connect and receives need.
 *
 * Threads: any number of threads may take requests from one endpoint at once.
 * Errors:
 *   RPMA_E_INVAL     NULL argument; the event was not a request.
 *   RPMA_E_NO_EVENT  there is none now.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  The event cannot be read or acknowledged (*req_ptr is NULL in the last case).
 */
int rpma_ep_next_bare_req(struct rpma_ep *ep, struct rpma_conn_req **req_ptr);

/**
 * The device that a request came or goes by; what rpma_utils_get_ibv_context says of its context holds.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 *   RPMA_E_AGAIN  A request of our own whose address is not resolved yet.
 */
int rpma_conn_req_get_ibv_context(const struct rpma_conn_req *req, struct ibv_context **ibv_ctx_ptr);

/**
 * Makes the queues of a request that rpma_ep_next_bare_req gave, as cfg says (NULL: the defaults), with a
 * peer on its device.
 *
 * Errors:
 *   RPMA_E_INVAL  req or peer is NULL, a peer on another device, a request that has its queues; cfg as in
 *                 rpma_ep_next_conn_req. RPMA_E_NOMEM, RPMA_E_PROVIDER: the queues cannot be made; the
 *                 request can only be deleted then, which rejects it.
 */
int rpma_conn_req_prepare(struct rpma_conn_req *req, struct rpma_peer *peer, const struct rpma_conn_cfg *cfg);

/* ---------------------------------------------------------------- memory for one connection ---- */

/**
 * Registers memory as rpma_mr_reg, but only the other side of the connection that the request becomes reaches
 * it: to others that come to know the descriptor, its key is a key of nothing. rpma_mr_dereg ends it, before
 * or after the connection is deleted, with which the other side loses access. The program here uses the
 * region as any of the peer's, with other connections and for receives of a shared receive queue too. Blocks
 * as rpma_mr_reg does.
 *
 * Threads: one thread at a time a request.
 * Errors:
 *   RPMA_E_INVAL     NULL argument, size 0, usage 0 or with unknown bits; the request cannot be connected yet
 *                    (rpma_conn_req_proceed).
 *   RPMA_E_NOSUPP    The device is a kernel's; its memory windows are not used.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  The device refused, as of rpma_mr_reg.
 */
int rpma_conn_req_mr_reg(struct rpma_conn_req *req, void *ptr, size_t size, int usage,
                         struct rpma_mr_local **mr_ptr);

/**
 * Registers memory for a connection that is there, as rpma_conn_req_mr_reg does for one that is requested.
 * Blocks as rpma_mr_reg does.
 *
 * Threads: any number at a time, not while the connection is deleted.
 * Errors:
 *   RPMA_E_INVAL     NULL argument, size 0, usage 0 or with unknown bits.
 *   RPMA_E_NOSUPP    The device is a kernel's; its memory windows are not used.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  The device refused, as of rpma_mr_reg.
 */
int rpma_conn_mr_reg(struct rpma_conn *conn, void *ptr, size_t size, int usage,
                     struct rpma_mr_local **mr_ptr);

/* ---------------------------------------------------------------- addresses and endpoints ---- */

/* Threads: getters, and setters of one configuration, may run in parallel. */

/**
 * This end's address and port.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_get_local_addr(const struct rpma_conn *conn, struct sockaddr_storage *addr);

/**
 * The other end's address and port.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_get_peer_addr(const struct rpma_conn *conn, struct sockaddr_storage *addr);

/**
 * This end's address and port, before connecting.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_req_get_local_addr(const struct rpma_conn_req *req, struct sockaddr_storage *addr);

/**
 * The other end's address and port, before connecting: who asks, for instance.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_conn_req_get_peer_addr(const struct rpma_conn_req *req, struct sockaddr_storage *addr);

/**
 * The address and port that an endpoint listens at: also the port that "0" chose.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_ep_get_local_addr(const struct rpma_ep *ep, struct sockaddr_storage *addr);

struct rpma_ep_cfg;

/**
 * Makes a description of an endpoint, with the defaults of rpma_ep_listen. The caller deletes it.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg_ptr is NULL.
 *   RPMA_E_NOMEM  Out of memory (*cfg_ptr is then NULL).
 */
int rpma_ep_cfg_new(struct rpma_ep_cfg **cfg_ptr);

/**
 * Deletes an endpoint's configuration; endpoints keep what they took.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg_ptr is NULL.
 */
int rpma_ep_cfg_delete(struct rpma_ep_cfg **cfg_ptr);

/**
 * Sets what listen(2), or rdma_listen(3), is told of how many may wait; 0, the default: the device's own.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL, backlog is negative.
 */
int rpma_ep_cfg_set_backlog(struct rpma_ep_cfg *cfg, int backlog);

/**
 * How many requests may wait to be fetched.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_ep_cfg_get_backlog(const struct rpma_ep_cfg *cfg, int *backlog);

/**
 * Sets whether an endpoint at an IPv6 wildcard address leaves IPv4 to others (IPV6_V6ONLY); the default is
 * false.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 * See ipv6(7).
 */
int rpma_ep_cfg_set_v6only(struct rpma_ep_cfg *cfg, bool v6only);

/**
 * Whether an endpoint at an IPv6 wildcard address leaves IPv4 to others.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_ep_cfg_get_v6only(const struct rpma_ep_cfg *cfg, bool *v6only);

/**
 * Sets whether a port is taken that others share in the same way (SO_REUSEADDR); the default is false.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL.
 * See socket(7).
 */
int rpma_ep_cfg_set_reuseaddr(struct rpma_ep_cfg *cfg, bool reuseaddr);

/**
 * Whether a port is taken that others share in the same way.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_ep_cfg_get_reuseaddr(const struct rpma_ep_cfg *cfg, bool *reuseaddr);

/**
 * Sets where the endpoint's events go, instead of to a descriptor of its own: rpma_events_take tells of each
 * request, which rpma_ep_next_conn_req and rpma_ep_next_bare_req then give without waiting (RPMA_E_NO_EVENT:
 * there is none); rpma_ep_get_fd answers RPMA_E_NOSUPP. NULL, the default, for one of its own. The queue
 * outlives the endpoint.
 *
 * Errors:
 *   RPMA_E_INVAL  cfg is NULL; a queue of the other kind of device makes rpma_ep_listen_cfg fail so.
 */
int rpma_ep_cfg_set_events(struct rpma_ep_cfg *cfg, struct rpma_events *events);

/**
 * Where the endpoint's events go, NULL when it has a descriptor of its own.
 *
 * Errors:
 *   RPMA_E_INVAL  NULL argument.
 */
int rpma_ep_cfg_get_events(const struct rpma_ep_cfg *cfg, struct rpma_events **events_ptr);

/**
 * Listens as rpma_ep_listen, as cfg says; NULL: the defaults. Blocks for the name look-up.
 *
 * Threads: different endpoints of one peer may be used in parallel.
 * Errors:
 *   RPMA_E_INVAL     NULL argument other than cfg.
 *   RPMA_E_NOMEM
 *   RPMA_E_PROVIDER  Unknown or foreign address, or one of another device, port in use or not permitted.
 */
int rpma_ep_listen_cfg(struct rpma_peer *peer, const char *addr, const char *port,
                       const struct rpma_ep_cfg *cfg, struct rpma_ep **ep_ptr);

#ifdef __cplusplus
}
#endif

#endif
