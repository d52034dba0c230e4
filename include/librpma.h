/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * librpma.h -- reads, writes and makes durable the memory of another machine, by RDMA. The manual (man
 * librpma) is made from these comments.
 *
 * Returns. A function that returns int gives 0 or a negative RPMA_E_ code, never a positive value. It checks
 * its arguments before it does anything else. It writes an output only on success, unless its text says
 * otherwise. The log tells what a failure was about (rpma_log_set_function).
 *
 * Arguments. No pointer may be NULL (RPMA_E_INVAL), unless the text says what NULL means there. An
 * op_context may be NULL: the library only hands it back. Sizes, lengths and offsets of memory are in bytes.
 * The library does not keep what a pointer leads to, unless the text says so.
 *
 * Ownership. A "new" gives an object that its "delete" ends. A delete takes the address of the caller's
 * pointer and sets it to NULL, also when it returns an error. It is a no-op that returns 0 when the pointer
 * is NULL already. The library counts no references: a peer outlives everything that was made from it, and a
 * shared receive queue outlives its connections. A completion queue that a "get" returns belongs to the
 * connection or shared receive queue that gave it, unless it was configured with that queue.
 *
 * Threads. Any thread may call any function. Calls that use one object at the same time may run in parallel
 * where the text of the function, or of its section, says so; otherwise the caller orders them. One thread
 * deletes an object, after the last use of it.
 *
 * Blocking. A call does not block, unless its text says when it does.
 *
 * Errors:
 *   RPMA_E_INVAL  A pointer is NULL that may not be.
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

/* The error has no better name. */
#define RPMA_E_UNKNOWN (-100000)
/* The device, the target memory or the connection does not support the operation. */
#define RPMA_E_NOSUPP (-100001)
/* libibverbs, librdmacm or the soft device failed; the log has its errno. */
#define RPMA_E_PROVIDER (-100002)
/* There is no memory. */
#define RPMA_E_NOMEM (-100003)
/* An argument is not valid. */
#define RPMA_E_INVAL (-100004)
/* There is no completion to collect now. */
#define RPMA_E_NO_COMPLETION (-100005)
/* There is no connection event to collect now. */
#define RPMA_E_NO_EVENT (-100006)
/* The failure is temporary; the same call may succeed later. */
#define RPMA_E_AGAIN (-100007)
/* The completion channel is shared: rpma_conn_wait waits on it. */
#define RPMA_E_SHARED_CHANNEL (-100008)
/* The completion channel is not shared: rpma_cq_wait waits on it. */
#define RPMA_E_NOT_SHARED_CHNL (-100009)

/**
 * Gives the English text of a return code: "Success" for 0, "Unknown error" for a value that is no code.
 *
 * Threads: any number at once.
 * Returns: a static string, never NULL.
 */
const char *rpma_err_2str(int ret);

/* ================================================================ devices ==== */

/* Threads: any number of threads at once. */

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

/* The address that rpma_utils_get_ibv_context takes is one of these. */
enum rpma_util_ibv_context_type {
    RPMA_UTIL_IBV_CONTEXT_LOCAL = 0, /* an address of this machine */
    RPMA_UTIL_IBV_CONTEXT_REMOTE = 1 /* another machine's: the device is the one on the way to it */
};

/**
 * Finds the RDMA device that serves an IP address or a host name.
 *
 * The environment variable RPMA_DEVICE names the kinds of device that the call looks at. "auto" (or unset)
 * takes the kernel's RDMA device that is bound to the address, otherwise the soft device (softrdma.h), which
 * serves every address of the machine. "kernel" and "soft" take only that kind. The log tells the choice at
 * level NOTICE.
 *
 * The context belongs to the library: the program never gives it to ibv_close_device. Only librpma uses the
 * context of a soft device; that of a kernel device also works with libibverbs.
 *
 *   ibv_ctx_ptr  It may become NULL, with success, for a local wildcard address ("0.0.0.0").
 *
 * Blocks: for the name look-up and, for a remote address, up to 1,000 ms for each kind of device.
 * Errors:
 *   RPMA_E_INVAL     type is unknown.
 *   RPMA_E_PROVIDER  No device serves the address, the name is unknown, or RPMA_DEVICE has another value; or
 *                    there are no descriptors or memory to find out (errno is EMFILE, ENFILE, ENOMEM).
 * See rdma_bind_addr(3), rdma_resolve_addr(3).
 */
int rpma_utils_get_ibv_context(const char *addr, enum rpma_util_ibv_context_type type,
                               struct ibv_context **ibv_ctx_ptr);

/**
 * Tells whether a device reads and writes memory that is not pinned (on-demand paging) over a reliable
 * connection. Memory of a file system with DAX needs that.
 *
 *   is_odp_capable  It becomes 1 or 0; 1 on the device in user space, which pins no memory; 0 also when the
 *                   device cannot be queried.
 *
 * Errors:
 *   RPMA_E_PROVIDER  The device cannot be queried.
 * See ibv_query_device_ex(3).
 */
int rpma_utils_ibv_context_is_odp_capable(struct ibv_context *ibv_ctx, int *is_odp_capable);

/* The events of a connection (rpma_conn_next_event). */
enum rpma_conn_event {
    RPMA_CONN_UNDEFINED = -1,
    RPMA_CONN_ESTABLISHED = 0, /* it is ready for operations, both ways */
    RPMA_CONN_CLOSED = 1,      /* either side disconnected; the event may come twice */
    RPMA_CONN_LOST = 2,        /* connecting failed, or the device went away */
    RPMA_CONN_REJECTED = 3,    /* the other side refused, or no program listens there */
    RPMA_CONN_UNREACHABLE = 4  /* the other side did not answer in time */
};

/**
 * Gives the English text of a connection event: "Unsupported connection event" for a value that is none.
 *
 * Returns: a static string, never NULL.
 */
const char *rpma_utils_conn_event_2str(enum rpma_conn_event conn_event);

/* ================================================================ peer configuration ==== */

/* Threads: setters and getters of one configuration may run in parallel. */

/**
 * Makes a peer configuration, which tells the other side what this peer can do. At first it declares that
 * writes do not reach persistent memory directly. The caller deletes it.
 *
 * Errors:
 *   RPMA_E_NOMEM  There is no memory.
 */
int rpma_peer_cfg_new(struct rpma_peer_cfg **pcfg_ptr);

/** Deletes a peer configuration. */
int rpma_peer_cfg_delete(struct rpma_peer_cfg **pcfg_ptr);

/**
 * Declares whether a flush makes durable what the other side wrote to this peer, so that the other side may
 * use RPMA_FLUSH_TYPE_PERSISTENT.
 *
 * true is right on the soft device, which makes the bytes durable itself when it is asked to flush. On a
 * kernel device true is right for memory of a file system with DAX, where the platform lets devices write to
 * that memory directly.
 */
int rpma_peer_cfg_set_direct_write_to_pmem(struct rpma_peer_cfg *pcfg, bool supported);

/**
 * Gets whether direct write to persistent memory is declared, by rpma_peer_cfg_set_direct_write_to_pmem or by
 * the descriptor.
 */
int rpma_peer_cfg_get_direct_write_to_pmem(const struct rpma_peer_cfg *pcfg, bool *supported);

/**
 * Writes the configuration's descriptor: the bytes that the program sends to the other side.
 *
 *   desc  It has room for as many bytes as rpma_peer_cfg_get_descriptor_size says.
 */
int rpma_peer_cfg_get_descriptor(const struct rpma_peer_cfg *pcfg, void *desc);

/** Gets the descriptor's size, in bytes: 1. */
int rpma_peer_cfg_get_descriptor_size(const struct rpma_peer_cfg *pcfg, size_t *desc_size);

/**
 * Makes a peer configuration from a descriptor that the other side sent. The caller deletes it.
 *
 *   desc_size  In bytes; the call ignores bytes behind the descriptor.
 *
 * Errors:
 *   RPMA_E_INVAL  desc_size is less than rpma_peer_cfg_get_descriptor_size says.
 *   RPMA_E_NOMEM  There is no memory.
 */
int rpma_peer_cfg_from_descriptor(const void *desc, size_t desc_size, struct rpma_peer_cfg **pcfg_ptr);

/* ================================================================ peer ==== */

/* Threads: any number of threads may use one peer at once. */

/**
 * Makes a peer, the local end: the protection domain on one device, on which the program registers memory and
 * makes connections. The caller deletes it, after everything that was made from it.
 *
 *   ibv_ctx  The context that rpma_utils_get_ibv_context gave, or a kernel device's context that the program
 *            opened.
 *
 * Errors:
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_UNKNOWN   The device failed and named no reason.
 *   RPMA_E_PROVIDER  The device cannot be queried, or gives no protection domain.
 * See ibv_alloc_pd(3).
 */
int rpma_peer_new(struct ibv_context *ibv_ctx, struct rpma_peer **peer_ptr);

/**
 * Deletes a peer.
 *
 * Errors:
 *   RPMA_E_PROVIDER  Memory or connections still use the protection domain. The peer is gone, and the domain
 *                    leaks.
 * See ibv_dealloc_pd(3).
 */
int rpma_peer_delete(struct rpma_peer **peer_ptr);

/* ================================================================ memory ==== */

/* Threads: any number of threads may use one region at once. */

/* A set of these is a "usage": it says what is done with registered memory. */
#define RPMA_MR_USAGE_READ_SRC (1 << 0)              /* the other side's rpma_read reads it */
#define RPMA_MR_USAGE_READ_DST (1 << 1)              /* our rpma_read stores into it */
#define RPMA_MR_USAGE_WRITE_SRC (1 << 2)             /* our rpma_write sends it */
#define RPMA_MR_USAGE_WRITE_DST (1 << 3)             /* the other side's rpma_write stores into it */
#define RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY (1 << 4) /* the other side's rpma_flush makes it visible */
#define RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT (1 << 5) /* the other side's rpma_flush makes it durable */
#define RPMA_MR_USAGE_SEND (1 << 6)                  /* our rpma_send sends it */
#define RPMA_MR_USAGE_RECV (1 << 7)                  /* our rpma_recv stores into it */

/**
 * Registers memory for a usage. The program gives the other side access to it with rpma_mr_get_descriptor.
 *
 * On the soft device RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT is for memory that can be durable: a shared mapping
 * of a file on storage, or DAX. The call registers other memory with RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY in
 * its place, so that the descriptor says what the memory can do (rpma_mr_remote_get_flush_type). A warning in
 * the log names the memory and the obstacle.
 *
 * On a kernel device, memory of a file system with DAX needs on-demand paging, which the call uses when the
 * device has it. A kernel device may flush memory, but not to persistence; peers then read after they write.
 *
 *   ptr    Where the memory begins. It stays the caller's, and stays mapped until rpma_mr_dereg.
 *   size   In bytes, above 0.
 *   usage  A set of RPMA_MR_USAGE_ bits, at least one.
 *
 * Blocks: while the kernel reads and pins pages that are not in memory yet.
 * Errors:
 *   RPMA_E_INVAL     size or usage is 0, or usage has an unknown bit.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The device refuses: the memory is not mapped, RLIMIT_MEMLOCK is too low, or storage has
 *                    lost bytes of the file (librpma(7)).
 * See ibv_reg_mr(3).
 */
int rpma_mr_reg(struct rpma_peer *peer, void *ptr, size_t size, int usage, struct rpma_mr_local **mr_ptr);

/**
 * Ends a registration. Remote access to the memory fails from then on.
 *
 * A peer's process on this host accesses memory on the soft device itself. The call waits until it has ended
 * such an access, or has been interrupted in it, for a second at most. When the peer's process is in a system
 * call of which the kernel does not tell the end, the call fails, and *mr_ptr stays. The registration then
 * allows nothing more, but the peer may still access the memory, so the program must not use it for anything
 * else, nor free it. It calls again later.
 *
 * The call leaves the memory itself alone, which must still be mapped. A peer may have written to memory on
 * the soft device that is registered for flush to persistence, and not flushed it: the call makes it durable
 * first. When storage fails in that, the peer's next flush fails.
 *
 * Blocks: for storage, where the soft device has bytes to make durable, and for a peer on this host.
 * Errors:
 *   RPMA_E_PROVIDER  The device refuses; see ibv_dereg_mr(3). *mr_ptr is not NULL when a peer may still
 *                    access the memory.
 */
int rpma_mr_dereg(struct rpma_mr_local **mr_ptr);

/**
 * Writes the region's descriptor: bytes that give their receiver access to the memory. The other side hands
 * them to rpma_mr_remote_from_descriptor.
 *
 *   desc  It has room for as many bytes as rpma_mr_get_descriptor_size says.
 */
int rpma_mr_get_descriptor(const struct rpma_mr_local *mr, void *desc);

/** Gets the descriptor's size, in bytes: 21. */
int rpma_mr_get_descriptor_size(const struct rpma_mr_local *mr, size_t *desc_size);

/** Gets the address at which the registered memory begins. */
int rpma_mr_get_ptr(const struct rpma_mr_local *mr, void **ptr);

/** Gets how many bytes are registered. */
int rpma_mr_get_size(const struct rpma_mr_local *mr, size_t *size);

/**
 * Advises the device about a part of a region.
 *
 *   offset  In bytes, from the region's beginning.
 *   len     In bytes.
 *   advice  One of ibv_advise_mr(3), such as IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE.
 *   flags   Those of ibv_advise_mr(3): IBV_ADVISE_MR_FLAG_FLUSH has the advice followed during the call.
 *
 * Blocks: while the device follows the advice, with IBV_ADVISE_MR_FLAG_FLUSH.
 * Errors:
 *   RPMA_E_INVAL     The device finds the range, advice or flags not valid.
 *   RPMA_E_NOSUPP    The device does not take that advice, or takes none.
 *   RPMA_E_PROVIDER  The device fails in another way.
 */
int rpma_mr_advise(struct rpma_mr_local *mr, size_t offset, size_t len, int advice, uint32_t flags);

/**
 * Makes a remote region from a descriptor that the other side sent. The caller deletes it with
 * rpma_mr_remote_delete.
 *
 *   desc_size  In bytes; the call ignores bytes behind the descriptor.
 *
 * Errors:
 *   RPMA_E_INVAL  desc_size is less than rpma_mr_get_descriptor_size says, or the region allows nothing.
 *   RPMA_E_NOMEM  There is no memory.
 */
int rpma_mr_remote_from_descriptor(const void *desc, size_t desc_size, struct rpma_mr_remote **mr_ptr);

/** Gets the remote region's size, in bytes. */
int rpma_mr_remote_get_size(const struct rpma_mr_remote *mr, size_t *size);

/**
 * Gets which flushes the remote region takes.
 *
 *   flush_type  It becomes a set of RPMA_MR_USAGE_FLUSH_TYPE_ bits, 0 for none.
 */
int rpma_mr_remote_get_flush_type(const struct rpma_mr_remote *mr, int *flush_type);

/** Forgets a remote region. Operations that were posted before do not need it any more. */
int rpma_mr_remote_delete(struct rpma_mr_remote **mr_ptr);

/* ================================================================ connection configuration ==== */

/* Threads: setters and getters of one configuration may run in parallel. */

/* The default of rpma_conn_cfg_set_timeout, in milliseconds. */
#define RPMA_DEFAULT_TIMEOUT_MS 1000

/**
 * Makes a connection configuration, which says what a connection is to be like. Its defaults: timeout 1,000
 * ms, completion queue 10, no receive completion queue, send queue 10, receive queue 10, completion channel
 * not shared, no shared receive queue. The caller deletes it.
 *
 * The library reads it when a request is made (rpma_conn_req_new, rpma_ep_next_conn_req); the caller may
 * change or delete it right after.
 *
 * Errors:
 *   RPMA_E_NOMEM  There is no memory; *cfg_ptr is then NULL.
 */
int rpma_conn_cfg_new(struct rpma_conn_cfg **cfg_ptr);

/** Deletes a connection configuration. */
int rpma_conn_cfg_delete(struct rpma_conn_cfg **cfg_ptr);

/**
 * Sets how long rpma_conn_req_new may take to resolve the address, and as long again for the route.
 *
 *   timeout_ms  In milliseconds, 0 or more; the default is RPMA_DEFAULT_TIMEOUT_MS.
 *
 * Errors:
 *   RPMA_E_INVAL  timeout_ms is negative.
 */
int rpma_conn_cfg_set_timeout(struct rpma_conn_cfg *cfg, int timeout_ms);

/** Gets the timeout, in milliseconds. */
int rpma_conn_cfg_get_timeout(const struct rpma_conn_cfg *cfg, int *timeout_ms);

/**
 * Sets how many completions the main completion queue holds. It needs a place for every operation whose
 * completion the program has not collected yet.
 *
 *   cq_size  In completions; the default is 10, and more than INT_MAX counts as INT_MAX.
 */
int rpma_conn_cfg_set_cq_size(struct rpma_conn_cfg *cfg, uint32_t cq_size);

/** Gets the main completion queue's size, in completions. */
int rpma_conn_cfg_get_cq_size(const struct rpma_conn_cfg *cfg, uint32_t *cq_size);

/**
 * Sets how many completions the receive completion queue holds.
 *
 *   rcq_size  In completions. With 0, the default, there is no such queue, and receives complete on the main
 *             queue.
 */
int rpma_conn_cfg_set_rcq_size(struct rpma_conn_cfg *cfg, uint32_t rcq_size);

/** Gets the receive completion queue's size, in completions. */
int rpma_conn_cfg_get_rcq_size(const struct rpma_conn_cfg *cfg, uint32_t *rcq_size);

/**
 * Sets how many reads, writes, atomic writes, flushes and sends may be posted and not yet known to be
 * complete. An operation without a completion of its own keeps its place until the program collects the
 * completion of a later one.
 *
 *   sq_size  In operations; the default is 10. Most devices round it up, and the sizes of other queues too.
 */
int rpma_conn_cfg_set_sq_size(struct rpma_conn_cfg *cfg, uint32_t sq_size);

/** Gets the send queue's size, in operations. */
int rpma_conn_cfg_get_sq_size(const struct rpma_conn_cfg *cfg, uint32_t *sq_size);

/**
 * Sets how many receives may be posted that no message has taken yet.
 *
 *   rq_size  In receives; the default is 10.
 */
int rpma_conn_cfg_set_rq_size(struct rpma_conn_cfg *cfg, uint32_t rq_size);

/** Gets the receive queue's size, in receives. */
int rpma_conn_cfg_get_rq_size(const struct rpma_conn_cfg *cfg, uint32_t *rq_size);

/**
 * Sets whether both completion queues of the connection share one channel. The program waits on it with
 * rpma_conn_wait instead of rpma_cq_wait. The default is false.
 *
 * A shared channel excludes a completion queue of many connections (rpma_conn_cfg_set_cq, _set_rcq), and a
 * shared receive queue that has a completion queue of its own. A request with both fails with RPMA_E_INVAL.
 */
int rpma_conn_cfg_set_compl_channel(struct rpma_conn_cfg *cfg, bool shared);

/** Gets whether the completion channel is to be shared. */
int rpma_conn_cfg_get_compl_channel(const struct rpma_conn_cfg *cfg, bool *shared);

/**
 * Makes the connection take its receives from a shared receive queue. Nothing unsets it.
 *
 *   srq  It stays the caller's, and outlives the connection.
 */
int rpma_conn_cfg_set_srq(struct rpma_conn_cfg *cfg, struct rpma_srq *srq);

/** Gets the shared receive queue: NULL when none was set. */
int rpma_conn_cfg_get_srq(const struct rpma_conn_cfg *cfg, struct rpma_srq **srq_ptr);

/* ================================================================ endpoint ==== */

/*
 * Threads: any number of threads may take requests from one endpoint at once; each request goes to one of
 * them.
 */

/**
 * Listens for connections at an address of the peer's device. The caller ends it with rpma_ep_shutdown.
 *
 *   port  A number (0 to 65535) or a service name.
 *
 * Blocks: for the name look-up.
 * Errors:
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The address is unknown, or not one of the peer's device; the port is in use, or the
 *                    process may not have it.
 * See rdma_listen(3).
 */
int rpma_ep_listen(struct rpma_peer *peer, const char *addr, const char *port, struct rpma_ep **ep_ptr);

/**
 * Stops listening. Requests and connections that came from the endpoint go on.
 *
 * Errors:
 *   RPMA_E_PROVIDER  The device fails; see rdma_destroy_id(3).
 */
int rpma_ep_shutdown(struct rpma_ep **ep_ptr);

/**
 * Gets the descriptor that is readable when rpma_ep_next_conn_req has something to give. It is for poll(2)
 * and epoll(7), and for fcntl(2) with O_NONBLOCK.
 *
 *   fd  It becomes the descriptor, which stays the endpoint's: the program never closes it.
 *
 * Errors:
 *   RPMA_E_NOSUPP  The endpoint's events go to an rpma_events (rpma_ep_cfg_set_events).
 */
int rpma_ep_get_fd(const struct rpma_ep *ep, int *fd);

/**
 * Takes the next connection request and makes its queues. The program accepts it with rpma_conn_req_connect
 * or refuses it with rpma_conn_req_delete.
 *
 * When the call cannot serve a request it rejects it, so that the other side learns of it.
 *
 *   cfg      Says what the queues are like. NULL stands for the defaults.
 *   req_ptr  It becomes NULL when a request cannot be acknowledged (RPMA_E_PROVIDER).
 *
 * Blocks: until there is a request, unless the endpoint's descriptor is non-blocking.
 * Errors:
 *   RPMA_E_INVAL     The event was not a request; or cfg asks for TLS, and the request came with
 *                    another or none; or cfg names a queue of another device, or queues and a channel that
 *                    exclude each other (rpma_conn_cfg_set_compl_channel).
 *   RPMA_E_NO_EVENT  There is no request now and the descriptor is non-blocking, or a signal came.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The device does not make the queues, or the event cannot be read or acknowledged.
 * See rdma_get_cm_event(3), rdma_create_qp(3).
 */
int rpma_ep_next_conn_req(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg,
                          struct rpma_conn_req **req_ptr);

/* ================================================================ connection request ==== */

/* Threads: one thread at a time uses a request; different requests of one peer may be used in parallel. */

/* Bytes that go along with a connection request or its answer. */
struct rpma_conn_private_data {
    void *ptr;   /* the data, NULL when there is none */
    uint8_t len; /* in bytes; a device may take less than 255 (56 to ask, 196 to answer, on InfiniBand) */
};

/**
 * Makes a request for a connection to the program that listens at an address and port. The program posts the
 * receives that must be there from the start (rpma_conn_req_recv), then calls rpma_conn_req_connect.
 *
 *   port  A number (0 to 65535) or a service name.
 *   cfg   NULL stands for the defaults.
 *
 * Blocks: for the name look-up, and up to cfg's timeout each to resolve the address and the route.
 * Errors:
 *   RPMA_E_INVAL     cfg is not valid, as with rpma_ep_next_conn_req.
 *   RPMA_E_NOSUPP    cfg asks for TLS, and the device is a kernel's.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  There is no way to the address, or the device does not make the queues.
 * See rdma_resolve_addr(3).
 */
int rpma_conn_req_new(struct rpma_peer *peer, const char *addr, const char *port,
                      const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req_ptr);

/**
 * Gives up a connection request. One that came from an endpoint is rejected, and the other side gets
 * RPMA_CONN_REJECTED.
 *
 * Errors:
 *   RPMA_E_PROVIDER  The device fails; see rdma_reject(3), rdma_destroy_id(3).
 */
int rpma_conn_req_delete(struct rpma_conn_req **req_ptr);

/**
 * Connects, or accepts, a request, which becomes a connection. The caller deletes the connection.
 *
 * Success means that connecting is under way. Both sides wait for RPMA_CONN_ESTABLISHED with
 * rpma_conn_next_event before they post operations.
 *
 *   req_ptr  *req_ptr becomes NULL: the call uses the request up, also when it fails. The other side is then
 *            rejected.
 *   pdata    The private data to send, at least 1 byte, which the call copies. NULL stands for none.
 *
 * Errors:
 *   RPMA_E_INVAL     *req_ptr is NULL, pdata has no bytes, or the request cannot be connected yet
 *                    (rpma_conn_req_proceed).
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  There is more private data than the device takes, or the device fails; see
 *                    rdma_connect(3), rdma_accept(3).
 */
int rpma_conn_req_connect(struct rpma_conn_req **req_ptr, const struct rpma_conn_private_data *pdata,
                          struct rpma_conn **conn_ptr);

/**
 * Posts a receive before the connection exists, so that the first message finds it. The rest is as with
 * rpma_recv, but dst is never NULL.
 *
 *   offset  In bytes, from the region's beginning.
 *   len     In bytes, less than 4 GiB.
 *
 * Errors:
 *   RPMA_E_INVAL     len is 4 GiB or more, the range is out of bounds and the connection checks them
 *                    (rpma_conn_cfg_set_bounds_check), or the request cannot be connected yet
 *                    (rpma_conn_req_proceed).
 *   RPMA_E_PROVIDER  The device refuses the receive; see ibv_post_recv(3).
 */
int rpma_conn_req_recv(struct rpma_conn_req *req, struct rpma_mr_local *dst, size_t offset, size_t len,
                       const void *op_context);

/**
 * Gets the private data that came with a request.
 *
 *   pdata  It becomes {NULL, 0} when there is none, and for a request of our own. Its bytes belong to the
 *          request, and are valid until that is connected or deleted.
 */
int rpma_conn_req_get_private_data(const struct rpma_conn_req *req, struct rpma_conn_private_data *pdata);

/* ================================================================ connection ==== */

/*
 * Threads: any number of threads may use one connection at once, but one thread at a time waits for its
 * events, and one for its completions.
 */

/**
 * Gets the descriptor that is readable when rpma_conn_next_event has something to give. It is for poll(2) and
 * epoll(7), and for fcntl(2) with O_NONBLOCK.
 *
 *   fd  It becomes the descriptor, which stays the connection's: the program never closes it.
 *
 * Errors:
 *   RPMA_E_NOSUPP  The connection's events go to an rpma_events (rpma_conn_cfg_set_events).
 */
int rpma_conn_get_event_fd(const struct rpma_conn *conn, int *fd);

/**
 * Takes the next event of the connection.
 *
 * From RPMA_CONN_ESTABLISHED on the program can get the peer's private data, and it is settled how rpma_flush
 * and rpma_atomic_write work on this connection.
 *
 * Blocks: until there is an event, unless the event descriptor is non-blocking.
 * Threads: one thread at a time for each connection; operations may go on meanwhile.
 * Errors:
 *   RPMA_E_NO_EVENT  There is no event now and the descriptor is non-blocking, or a signal came.
 *   RPMA_E_NOSUPP    The connection's events go to an rpma_events (rpma_conn_cfg_set_events).
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_UNKNOWN   The event has no name in enum rpma_conn_event; it is consumed.
 *   RPMA_E_PROVIDER  The device fails; see rdma_get_cm_event(3), rdma_ack_cm_event(3).
 */
int rpma_conn_next_event(struct rpma_conn *conn, enum rpma_conn_event *event);

/**
 * Gets the peer's private data. The passive side has it from the start, the active side from
 * RPMA_CONN_ESTABLISHED on, or from RPMA_CONN_REJECTED on: then it is what the peer gave to
 * rpma_conn_req_reject.
 *
 *   pdata  It becomes {NULL, 0} when there is none. Its bytes belong to the connection and are valid until
 *          rpma_conn_delete. Some devices add zeros.
 *
 * Threads: any number at once; on the active side not while rpma_conn_next_event waits for
 * RPMA_CONN_ESTABLISHED.
 */
int rpma_conn_get_private_data(const struct rpma_conn *conn, struct rpma_conn_private_data *pdata);

/**
 * Tells the connection what its peer can do. The program may call it at any time and repeatedly; operations
 * that it posts later go by it.
 */
int rpma_conn_apply_remote_peer_cfg(struct rpma_conn *conn, const struct rpma_peer_cfg *pcfg);

/** Gets the queue pair's number, which ibv_wc.qp_num names. */
int rpma_conn_get_qp_num(const struct rpma_conn *conn, uint32_t *qp_num);

/** Gets the main completion queue, which stays its owner's. */
int rpma_conn_get_cq(const struct rpma_conn *conn, struct rpma_cq **cq_ptr);

/**
 * Gets the receive completion queue, which stays its owner's.
 *
 *   rcq_ptr  It becomes NULL when the connection has none of its own, also when its shared receive queue has
 *            one (rpma_srq_get_rcq).
 */
int rpma_conn_get_rcq(const struct rpma_conn *conn, struct rpma_cq **rcq_ptr);

/**
 * Gets the descriptor of the shared completion channel, for poll(2), epoll(7) and fcntl(2) with O_NONBLOCK.
 *
 *   fd  It becomes the descriptor, which stays the connection's: the program never closes it.
 *
 * Errors:
 *   RPMA_E_NOT_SHARED_CHNL  The channel is not shared.
 */
int rpma_conn_get_compl_fd(const struct rpma_conn *conn, int *fd);

/* No function uses it; it is here for programs that name it. */
#define RPMA_W_WAIT_FOR_COMPLETION (1)

/**
 * Waits on the shared completion channel for either completion queue, and arms that queue again. The program
 * then collects from the queue with rpma_cq_get_wc until it has no more.
 *
 *   flags   0 or RPMA_WAIT_NO_REARM.
 *   cq      It becomes the queue, which stays its owner's; NULL when the queue cannot be armed again.
 *   is_rcq  It becomes true when that is the receive queue, otherwise false. It may be NULL.
 *
 * Blocks: until a completion comes, unless the channel's descriptor is non-blocking.
 * Threads: one thread at a time for each connection.
 * Errors:
 *   RPMA_E_NOT_SHARED_CHNL  The channel is not shared.
 *   RPMA_E_NO_COMPLETION    There is no event now and the descriptor is non-blocking, or a signal came.
 *   RPMA_E_UNKNOWN          The event is of a queue that is not the connection's.
 *   RPMA_E_PROVIDER         The queue cannot be armed again.
 * See ibv_get_cq_event(3).
 */
int rpma_conn_wait(struct rpma_conn *conn, int flags, struct rpma_cq **cq, bool *is_rcq);

/**
 * Begins to disconnect. Both sides get RPMA_CONN_CLOSED, and operations that are still open complete with an
 * error status.
 *
 * Errors:
 *   RPMA_E_PROVIDER  The connection was never established, or the device fails; see rdma_disconnect(3).
 */
int rpma_conn_disconnect(struct rpma_conn *conn);

/**
 * Deletes a connection in any state, and with it its completion queues and private data.
 *
 * Threads: one thread, after the last use of the connection.
 * Errors:
 *   RPMA_E_PROVIDER  The device did not release some part; the call released all others.
 */
int rpma_conn_delete(struct rpma_conn **conn_ptr);

/* ================================================================ operations ==== */

/*
 * A program posts an operation, which goes on by itself. Its completion (struct ibv_wc) carries op_context in
 * wr_id; the program collects it with rpma_cq_get_wc from the connection's main completion queue. Offsets
 * count from the beginning of the region; offsets and lengths are in bytes. One operation moves less than 4
 * GiB.
 *
 * An operation that is out of bounds completes with an error status, unless the connection checks the bounds
 * here (rpma_conn_cfg_set_bounds_check): then it fails with RPMA_E_INVAL. On a connection that is over, an
 * operation is posted and completes with an error status.
 *
 * Threads: any number of threads may post operations of one connection at once.
 * Errors:
 *   RPMA_E_PROVIDER  The operation cannot be posted: the queue is full, or the connection never was
 *                    established; see ibv_post_send(3).
 */

/* The "flags" of an operation are one of these. With this one it has a completion only when it fails. */
#define RPMA_F_COMPLETION_ON_ERROR (1 << 0)
/* With this one it has a completion in any case. */
#define RPMA_F_COMPLETION_ALWAYS (1 << 1 | RPMA_F_COMPLETION_ON_ERROR)

/**
 * Reads remote memory into a local region. It is complete when the data is there.
 *
 *   dst  The region that the data goes to. With dst and src NULL, and both offsets and len 0, nothing is
 *        read.
 *   len  In bytes, less than 4 GiB.
 *
 * Errors:
 *   RPMA_E_INVAL  flags is 0, len is 4 GiB or more, or only one of dst and src is NULL, or both are with an
 *                 offset or a length.
 * See ibv_post_send(3), RFC 5040 (5.2).
 */
int rpma_read(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t dst_offset,
              const struct rpma_mr_remote *src, size_t src_offset, size_t len, int flags,
              const void *op_context);

/**
 * Writes a local region into remote memory. Its completion says that the program may change src again. It
 * does not say that the data is placed, or durable: rpma_flush tells that.
 *
 *   dst  The region that the data goes to. With dst and src NULL, and both offsets and len 0, nothing is
 *        written.
 *   len  In bytes, less than 4 GiB.
 *
 * Errors:
 *   RPMA_E_INVAL  flags is 0, len is 4 GiB or more, or only one of dst and src is NULL, or both are with an
 *                 offset or a length.
 * See ibv_post_send(3), RFC 5040 (5.1).
 */
int rpma_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
               const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
               const void *op_context);

/**
 * Writes as rpma_write, and completes a receive of the other side, which gets a number with it.
 *
 *   dst  The region that the data goes to. With dst and src NULL, and both offsets and len 0, nothing is
 *        written.
 *   len  In bytes, less than 4 GiB.
 *   imm  The number, in host order; the other side finds it in ibv_wc.imm_data, in network order.
 *
 * Errors:
 *   RPMA_E_INVAL     flags is 0, len is 4 GiB or more, or only one of dst and src is NULL, or both are with
 *                    an offset or a length.
 *   RPMA_E_PROVIDER  The connection has no immediate data.
 * See ibv_post_send(3), RFC 7306 (6).
 */
int rpma_write_with_imm(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                        const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
                        uint32_t imm, const void *op_context);

/* The offset of an atomic write is a multiple of this, in bytes. */
#define RPMA_ATOMIC_WRITE_ALIGNMENT 8

/**
 * Writes 8 bytes to remote memory at once, after every flush that was posted before. No reader sees a part of
 * them.
 *
 * Where the connection has no atomic write of its own, this is a fenced inline write; its completion then has
 * the opcode IBV_WC_RDMA_WRITE.
 *
 *   dst         A region whose beginning is at a multiple of 8.
 *   dst_offset  In bytes, a multiple of RPMA_ATOMIC_WRITE_ALIGNMENT.
 *   src         8 bytes, which the call copies.
 *
 * Errors:
 *   RPMA_E_INVAL  flags is 0, or dst_offset is not a multiple of RPMA_ATOMIC_WRITE_ALIGNMENT.
 * See ibv_post_send(3).
 */
int rpma_atomic_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                      const char src[8], int flags, const void *op_context);

/* A flush is complete when the earlier writes have got so far. */
enum rpma_flush_type {
    RPMA_FLUSH_TYPE_PERSISTENT = 0, /* they survive a power failure */
    RPMA_FLUSH_TYPE_VISIBILITY = 1  /* they are visible to the other machine */
};

/**
 * Flushes the earlier writes of this connection to a range of remote memory. The flush is complete when they
 * are durable, or visible.
 *
 * The soft device flushes more than the range: it makes all earlier writes of the connection durable, or
 * visible. A program that runs on every device names each range that it wrote.
 *
 * Where the connection has no flush of its own, this is a read after write of up to 8 bytes inside the range;
 * its completion then has the opcode IBV_WC_RDMA_READ. On a kernel device that is also so where the region's
 * descriptor does not say that the region takes flushes.
 *
 *   len  In bytes; it may be 4 GiB or more.
 *
 * Errors:
 *   RPMA_E_INVAL     flags is 0, or type is unknown.
 *   RPMA_E_NOSUPP    The region was not registered for this type of flush, or its memory cannot be durable;
 *                    or type is RPMA_FLUSH_TYPE_PERSISTENT, and the peer did not declare direct write to
 *                    persistent memory (rpma_conn_apply_remote_peer_cfg).
 *   RPMA_E_NOMEM     The first flush that is a read after write finds no memory to read into.
 *   RPMA_E_PROVIDER  The device does not register the memory that such a read needs.
 */
int rpma_flush(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset, size_t len,
               enum rpma_flush_type type, int flags, const void *op_context);

/**
 * Sends a message, which a receive of the other side takes.
 *
 *   src  With NULL, and offset and len 0, the message is empty.
 *   len  In bytes, less than 4 GiB.
 *
 * Errors:
 *   RPMA_E_INVAL  flags is 0, len is 4 GiB or more, or src is NULL with an offset or a length.
 * See ibv_post_send(3), RFC 5040 (5.3).
 */
int rpma_send(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len, int flags,
              const void *op_context);

/**
 * Sends a message as rpma_send, with a number.
 *
 *   src  With NULL, and offset and len 0, the message is empty.
 *   len  In bytes, less than 4 GiB.
 *   imm  The number, in host order; the other side finds it in ibv_wc.imm_data, in network order.
 *
 * Errors:
 *   RPMA_E_INVAL     flags is 0, len is 4 GiB or more, or src is NULL with an offset or a length.
 *   RPMA_E_PROVIDER  The connection has no immediate data.
 * See ibv_post_send(3).
 */
int rpma_send_with_imm(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len,
                       int flags, uint32_t imm, const void *op_context);

/**
 * Posts a receive, which the next message fills. It always has a completion, on the receive completion queue
 * if there is one; the completion's byte_len is the message's size.
 *
 *   dst  With NULL, and offset and len 0, the receive takes empty messages.
 *   len  In bytes, less than 4 GiB; a longer message ends the connection.
 *
 * Errors:
 *   RPMA_E_INVAL  len is 4 GiB or more, or dst is NULL with an offset or a length.
 * See ibv_post_recv(3).
 */
int rpma_recv(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t offset, size_t len,
              const void *op_context);

/* ================================================================ completion queue ==== */

/* Threads: any number of threads may collect from one queue at once. */

/**
 * Gets the descriptor that is readable when the queue has an event, for poll(2), epoll(7) and fcntl(2) with
 * O_NONBLOCK.
 *
 *   fd  It becomes the descriptor, or that of the shared channel. It stays the queue's: the program never
 *       closes it.
 *
 * Errors:
 *   RPMA_E_NOSUPP  The queue is only polled (RPMA_CQ_POLLED).
 */
int rpma_cq_get_fd(const struct rpma_cq *cq, int *fd);

/**
 * Waits for an event of the queue, and arms it again. The program then collects with rpma_cq_get_wc until
 * there is no more. The program may find none at once after a wait.
 *
 * Blocks: until an event comes, unless the queue's descriptor is non-blocking.
 * Threads: any number at once; an event wakes one of them.
 * Errors:
 *   RPMA_E_SHARED_CHANNEL  The channel is shared: rpma_conn_wait waits on it.
 *   RPMA_E_NOSUPP          The queue is only polled (RPMA_CQ_POLLED).
 *   RPMA_E_NO_COMPLETION   There is no event now and the descriptor is non-blocking, or a signal came.
 *   RPMA_E_PROVIDER        The queue cannot be armed again.
 * See ibv_get_cq_event(3), ibv_req_notify_cq(3).
 */
int rpma_cq_wait(struct rpma_cq *cq);

/**
 * Collects completions. The failure of an operation is in wc.status (ibv_wc_status_str(3)), and not in the
 * code that the call returns.
 *
 *   num_entries      How many completions wc has room for, at least 1.
 *   num_entries_got  It becomes the number of completions in wc. It may be NULL when num_entries is 1.
 *
 * Errors:
 *   RPMA_E_INVAL          num_entries is below 1, or above 1 with num_entries_got NULL.
 *   RPMA_E_NO_COMPLETION  There is no completion now.
 *   RPMA_E_UNKNOWN        The device gave more than the call asked for.
 *   RPMA_E_PROVIDER       The device fails; see ibv_poll_cq(3).
 */
int rpma_cq_get_wc(struct rpma_cq *cq, int num_entries, struct ibv_wc *wc, int *num_entries_got);

/* ================================================================ shared receive queue ==== */

/*
 * Threads: any number of threads may post to one queue at once; setters and getters of one configuration may
 * run in parallel.
 */

/**
 * Makes a configuration, which says what a shared receive queue is to be like. Its defaults: queue 20,
 * receive completion queue 20. The caller deletes it; rpma_srq_new reads it and does not keep it.
 *
 * Errors:
 *   RPMA_E_NOMEM  There is no memory; *cfg_ptr is then NULL.
 */
int rpma_srq_cfg_new(struct rpma_srq_cfg **cfg_ptr);

/** Deletes a shared receive queue's configuration. */
int rpma_srq_cfg_delete(struct rpma_srq_cfg **cfg_ptr);

/**
 * Sets how many receives may be posted that no message has taken yet.
 *
 *   rq_size  In receives; the default is 20.
 */
int rpma_srq_cfg_set_rq_size(struct rpma_srq_cfg *cfg, uint32_t rq_size);

/** Gets the queue's size, in receives. */
int rpma_srq_cfg_get_rq_size(const struct rpma_srq_cfg *cfg, uint32_t *rq_size);

/**
 * Sets how many completions the queue's own receive completion queue holds.
 *
 *   rcq_size  In completions; the default is 20. With 0 there is no such queue, and a receive completes where
 *             its connection has its receive completions.
 */
int rpma_srq_cfg_set_rcq_size(struct rpma_srq_cfg *cfg, uint32_t rcq_size);

/** Gets the receive completion queue's size, in completions. */
int rpma_srq_cfg_get_rcq_size(const struct rpma_srq_cfg *cfg, uint32_t *rcq_size);

/**
 * Makes a receive queue from which many connections take their receives (rpma_conn_cfg_set_srq). A
 * completion's qp_num names the connection that the message came by (rpma_conn_get_qp_num). The caller
 * deletes the queue, after its connections.
 *
 *   cfg  NULL stands for the defaults.
 *
 * Errors:
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The device has no such queue, or not so large a one.
 * See ibv_create_srq(3).
 */
int rpma_srq_new(struct rpma_peer *peer, struct rpma_srq_cfg *cfg, struct rpma_srq **srq_ptr);

/**
 * Deletes a shared receive queue.
 *
 * Errors:
 *   RPMA_E_PROVIDER  Connections still use it. *srq_ptr is NULL all the same, and the device's queue leaks.
 */
int rpma_srq_delete(struct rpma_srq **srq_ptr);

/**
 * Posts a receive to the shared queue, as rpma_recv does to a connection's.
 *
 *   dst     With NULL, and offset and len 0, the receive takes empty messages.
 *   offset  In bytes, from the region's beginning.
 *   len     In bytes, less than 4 GiB.
 *
 * Errors:
 *   RPMA_E_INVAL     len is 4 GiB or more, or dst is NULL with an offset or a length.
 *   RPMA_E_PROVIDER  The device refuses the receive; see ibv_post_srq_recv(3).
 */
int rpma_srq_recv(struct rpma_srq *srq, struct rpma_mr_local *dst, size_t offset, size_t len,
                  const void *op_context);

/**
 * Gets the queue's own receive completion queue, which stays the queue's.
 *
 *   rcq_ptr  It becomes NULL when the queue has none.
 */
int rpma_srq_get_rcq(const struct rpma_srq *srq, struct rpma_cq **rcq_ptr);

/* ================================================================ log ==== */

/*
 * The log is the process's: what one thread sets holds for all.
 *
 * Threads: any number at once, at any time.
 */

/* The level of a log line. A threshold lets lines of its own level pass, and of those before it. */
enum rpma_log_level {
    RPMA_LOG_DISABLED = -1, /* as a threshold: no line passes */
    RPMA_LOG_LEVEL_FATAL = 0,
    RPMA_LOG_LEVEL_ERROR = 1,   /* the call that logs it fails */
    RPMA_LOG_LEVEL_WARNING = 2, /* something is not as it should be, and the call goes on */
    RPMA_LOG_LEVEL_NOTICE = 3,  /* a connection begins or ends, a device is chosen */
    RPMA_LOG_LEVEL_INFO = 4,
    RPMA_LOG_LEVEL_DEBUG = 5
};

enum rpma_log_threshold {
    RPMA_LOG_THRESHOLD = 0, /* lines that reach the log function at all; default RPMA_LOG_LEVEL_WARNING */
    RPMA_LOG_THRESHOLD_AUX =
        1, /* lines of these that the default function also writes to standard error; default none */
    RPMA_LOG_THRESHOLD_MAX = 2 /* how many thresholds there are; no argument */
};

/**
 * Sets which log lines pass, to the log function or to standard error.
 *
 * Errors:
 *   RPMA_E_INVAL  threshold or level is unknown.
 */
int rpma_log_set_threshold(enum rpma_log_threshold threshold, enum rpma_log_level level);

/**
 * Gets a log threshold's level.
 *
 * Errors:
 *   RPMA_E_INVAL  threshold is unknown.
 */
int rpma_log_get_threshold(enum rpma_log_threshold threshold, enum rpma_log_level *level);

/*
 * Takes one log line. message_format is printf's and ends in a newline. Any thread may call it, and several
 * at once. It must not call librpma.
 */
typedef void rpma_log_function(enum rpma_log_level level, const char *file_name, const int line_no,
                               const char *function_name, const char *message_format, ...);

/* The default function writes where the environment variable RPMA_LOG said when the library was loaded
 * (librpma(7)), otherwise to syslog(3) as "rpma", facility LOG_LOCAL7; and to standard error as
 * RPMA_LOG_THRESHOLD_AUX says. */
#define RPMA_LOG_USE_DEFAULT_FUNCTION (NULL)

/**
 * Sets where the log lines of the process go.
 *
 *   log_function  RPMA_LOG_USE_DEFAULT_FUNCTION goes back to the default.
 *
 * Returns: 0, always.
 */
int rpma_log_set_function(rpma_log_function *log_function);

/* ================================================================ additions ==== */

/*
 * librpma 1.3 lacks everything from here on; the symbols have the version LIBRPMA_1.4. A program that is to
 * be built with either library looks for RPMA_ADDITIONS.
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
 * differently. (rpma_utils_get_ibv_context takes the kernel's device where there is one, otherwise the soft
 * one.) The program uses the context as that of rpma_utils_get_ibv_context.
 *
 *   addr  A numeric address.
 *
 * Threads: any number at once.
 * Errors:
 *   RPMA_E_INVAL     kind is unknown.
 *   RPMA_E_NOSUPP    No device of the kind serves the address, or RPMA_DEVICE leaves the kind out; nothing is
 *                    logged.
 *   RPMA_E_PROVIDER  RPMA_DEVICE has another value (errno is EINVAL), or there are no descriptors or memory
 *                    to find out (EMFILE, ENFILE, ENOMEM).
 * See rdma_bind_addr(3).
 */
int rpma_utils_get_local_ibv_context(const char *addr, enum rpma_device_kind kind,
                                     struct ibv_context **ibv_ctx_ptr);

/* ---------------------------------------------------------------- limits ---- */

/* The most that a peer's device has of each. */
struct rpma_peer_limits {
    uint32_t
        max_cq_size; /* completions of one queue: rpma_conn_cfg_set_cq_size, _set_rcq_size, rpma_cq_new */
    uint32_t max_sq_size;     /* rpma_conn_cfg_set_sq_size */
    uint32_t max_rq_size;     /* rpma_conn_cfg_set_rq_size */
    uint32_t max_srq_size;    /* rpma_srq_cfg_set_rq_size; 0: it has no shared receive queues */
    uint32_t max_inline_size; /* rpma_conn_cfg_set_inline_size, in bytes; 0: the device does not say */
    uint32_t max_mr;          /* regions */
    uint64_t max_mr_size;     /* bytes of one region */
    uint64_t reserved[4];     /* 0 */
};

/**
 * Gets the limits of a peer's device. Other programs may have taken a part of what they allow.
 *
 * Threads: any number at once.
 * Errors:
 *   RPMA_E_PROVIDER  The device cannot be queried.
 * See ibv_query_device(3).
 */
int rpma_peer_get_limits(const struct rpma_peer *peer, struct rpma_peer_limits *limits);

/* ---------------------------------------------------------------- memory ---- */

/* Threads: any number of threads may use one region at once. */

/**
 * Allocates zeroed memory and registers it for a usage, as rpma_mr_reg does. It is memory that the device
 * prefers: on today's devices, pages of its own, which the system gives when they are touched first.
 * rpma_mr_get_ptr tells where it is; rpma_mr_dereg gives it back.
 *
 *   size   In bytes, above 0.
 *   usage  A set of RPMA_MR_USAGE_ bits, at least one. No allocated memory can be durable.
 *
 * Blocks: as rpma_mr_reg does.
 * Errors:
 *   RPMA_E_INVAL     size or usage is 0, or usage has an unknown bit.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The device refuses, as with rpma_mr_reg.
 */
int rpma_mr_alloc(struct rpma_peer *peer, size_t size, int usage, struct rpma_mr_local **mr_ptr);

/**
 * Gets the key by which a peer names the region, together with an address in it (rpma_mr_get_ptr). It is for
 * programs that tell their peers no more than that, and for rpma_op.remote_key.
 */
int rpma_mr_get_key(const struct rpma_mr_local *mr, uint32_t *key);

/* ---------------------------------------------------------------- posting several at once ---- */

/* The operation that an element of rpma_post is; it does what the function of its name does. */
enum rpma_op_type {
    RPMA_OP_READ = 1,
    RPMA_OP_WRITE,
    RPMA_OP_WRITE_WITH_IMM,
    RPMA_OP_ATOMIC_WRITE,
    RPMA_OP_FLUSH,
    RPMA_OP_SEND,
    RPMA_OP_SEND_WITH_IMM
};

/* One operation. The program zeroes it first; rpma_post ignores what its type does not use. */
struct rpma_op {
    int type;                          /* enum rpma_op_type */
    int flags;                         /* RPMA_F_COMPLETION_ */
    const void *op_context;            /* ibv_wc.wr_id of its completion */
    const struct rpma_mr_local *local; /* destination of READ, source of others but ATOMIC_WRITE and FLUSH */
    size_t local_offset;
    const struct rpma_mr_remote *remote; /* the other end; SEND has none */
    size_t remote_offset;
    size_t len;
    uint32_t imm;         /* WRITE_WITH_IMM, SEND_WITH_IMM: host order, as in their functions */
    int flush_type;       /* FLUSH: enum rpma_flush_type */
    const char *word;     /* ATOMIC_WRITE: 8 bytes, copied during the call */
    const void *bytes;    /* WRITE, SEND, also _WITH_IMM, instead of local: copied during the call */
    uint64_t remote_addr; /* READ, WRITE, WRITE_WITH_IMM, instead of remote: an address of the peer */
    uint32_t remote_key;  /* and the key that the peer gave for it (rpma_mr_get_key); not both 0 */
    uint64_t reserved[2]; /* 0, for what is to come */
};

/**
 * Posts operations in order and hands them to the device together, up to 32 at once. On the soft device one
 * system call sends what fits into it. A write and the flush that makes it durable belong together.
 *
 * A source that is given as bytes needs no registration, and the program may change it when the call returns.
 * Where a place is given as address and key, only the peer knows the bounds.
 *
 *   num_ops     How many elements ops has, at least 1.
 *   num_posted  It becomes the number of operations that were posted, also when the call fails. Those go on;
 *               the call refused the next one and did not look at the others. It may be NULL.
 *
 * Threads: any number of threads may post to one connection at once.
 * Errors:
 *   RPMA_E_INVAL     num_ops is 0, a type is unknown, reserved is not 0, an end is given twice, a source has
 *                    more bytes than rpma_conn_cfg_set_inline_size allows (or 8, where that is less), or the
 *                    operation's own function would say so.
 *   RPMA_E_NOSUPP    rpma_flush would say so.
 *   RPMA_E_NOMEM     rpma_flush would say so.
 *   RPMA_E_AGAIN     The send queue is full, or the soft device has no memory to copy a source that is given
 *                    as bytes. The program collects completions and posts the rest.
 *   RPMA_E_PROVIDER  The operation's own function would say so.
 */
int rpma_post(struct rpma_conn *conn, const struct rpma_op *ops, size_t num_ops, size_t *num_posted);

/* One receive: len bytes at offset of local, or nothing with all three 0. The program zeroes it first. */
struct rpma_recv_op {
    const void *op_context; /* ibv_wc.wr_id of its completion */
    struct rpma_mr_local *local;
    size_t offset;
    size_t len;
    uint64_t reserved; /* 0, for what is to come */
};

/**
 * Posts receives in order, each as rpma_recv does, and hands them to the device together.
 *
 *   num_ops     How many elements ops has, at least 1.
 *   num_posted  It becomes the number of receives that were posted, also when the call fails. It may be NULL.
 *
 * Threads: any number of threads may post to one connection at once.
 * Errors:
 *   RPMA_E_INVAL     num_ops is 0, reserved is not 0, or rpma_recv would say so.
 *   RPMA_E_AGAIN     The receive queue is full. The program collects completions and posts the rest.
 *   RPMA_E_PROVIDER  The device refuses a receive; see ibv_post_recv(3).
 */
int rpma_recv_many(struct rpma_conn *conn, const struct rpma_recv_op *ops, size_t num_ops,
                   size_t *num_posted);

/**
 * Posts receives before the connection exists, as rpma_recv_many does after; an element's local may be NULL
 * here too.
 *
 *   num_ops     How many elements ops has, at least 1.
 *   num_posted  It becomes the number of receives that were posted, also when the call fails. It may be NULL.
 *
 * Threads: one thread at a time uses a request.
 * Errors:
 *   RPMA_E_INVAL     num_ops is 0, reserved is not 0, rpma_recv would say so, or the request cannot be
 *                    connected yet (rpma_conn_req_proceed).
 *   RPMA_E_AGAIN     The receive queue is full.
 *   RPMA_E_PROVIDER  The device refuses a receive; see ibv_post_recv(3).
 */
int rpma_conn_req_recv_many(struct rpma_conn_req *req, const struct rpma_recv_op *ops, size_t num_ops,
                            size_t *num_posted);

/* A flag of rpma_send, rpma_send_with_imm and rpma_write_with_imm. It wakes a receiver that waits for such
 * messages alone (rpma_cq_rearm). */
#define RPMA_F_SOLICITED (1 << 8)

/* ---------------------------------------------------------------- completion queues ---- */

/* rpma_cq_new: the queue is only polled. It has no completion channel and takes no file descriptor. */
#define RPMA_CQ_POLLED (1 << 0)
/* rpma_cq_new: the program polls the queue, and waits for it with rpma_cq_wait_begin. The queue is armed only
 * during such a wait. At other times no completion costs a system call to tell of it. */
#define RPMA_CQ_UNARMED (1 << 2)

/**
 * Makes a completion queue that any number of connections of the peer use (rpma_conn_cfg_set_cq,
 * rpma_conn_cfg_set_rcq). A completion's ibv_wc.qp_num names its connection (rpma_conn_get_qp_num). The
 * caller deletes the queue, after the connections.
 *
 *   cq_size  In completions. The program keeps it from overflowing.
 *   flags    0, RPMA_CQ_POLLED or RPMA_CQ_UNARMED.
 *
 * Threads: any number of threads may make queues with one peer at once.
 * Errors:
 *   RPMA_E_INVAL     flags is something else.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The device does not make such a queue.
 */
int rpma_cq_new(struct rpma_peer *peer, uint32_t cq_size, int flags, struct rpma_cq **cq_ptr);

/**
 * Changes how many completions a queue holds that rpma_cq_new made. The completions in it stay, and so does
 * the descriptor that the program waits for. Not every device can do that.
 *
 *   cq_size  In completions.
 *
 * Threads: one thread at a time; others may post, collect and wait meanwhile.
 * Errors:
 *   RPMA_E_PROVIDER  More completions wait than the new size allows, or the device does not make such a queue
 *                    (errno tells why). The queue is as it was.
 * See ibv_resize_cq(3).
 */
int rpma_cq_resize(struct rpma_cq *cq, uint32_t cq_size);

/**
 * Deletes a queue that rpma_cq_new made.
 *
 *   cq_ptr  *cq_ptr becomes NULL, except when connections still use the queue.
 *
 * Errors:
 *   RPMA_E_PROVIDER  Connections still use the queue, which goes on as before.
 */
int rpma_cq_delete(struct rpma_cq **cq_ptr);

/* rpma_conn_wait, rpma_cq_wait_event: the queue stays unarmed; the caller arms it (rpma_cq_rearm). */
#define RPMA_WAIT_NO_REARM (1 << 30)

/**
 * Waits as rpma_cq_wait does, and need not arm the queue again. The library acknowledges events to the device
 * together, when many have come.
 *
 *   flags  0 or RPMA_WAIT_NO_REARM.
 *
 * Blocks: until an event comes, unless the queue's descriptor is non-blocking.
 * Threads: any number at once; an event wakes one of them.
 * Errors:
 *   RPMA_E_INVAL           flags has an unknown bit.
 *   RPMA_E_SHARED_CHANNEL  The channel is shared: rpma_conn_wait waits on it.
 *   RPMA_E_NO_COMPLETION   There is no event now and the descriptor is non-blocking, or a signal came.
 *   RPMA_E_NOSUPP          The queue is only polled (RPMA_CQ_POLLED).
 *   RPMA_E_PROVIDER        The queue cannot be armed again.
 */
int rpma_cq_wait_event(struct rpma_cq *cq, int flags);

/**
 * Asks for an event of the next completion. A completion from before makes no event: the program polls once
 * more after the call.
 *
 *   solicited_only  Asks instead for an event of the next receive that the sender marked with
 *                   RPMA_F_SOLICITED, or that fails.
 *
 * Threads: any number at once.
 * Errors:
 *   RPMA_E_NOSUPP    The queue is only polled (RPMA_CQ_POLLED).
 *   RPMA_E_PROVIDER  The device refuses; see ibv_req_notify_cq(3).
 */
int rpma_cq_rearm(struct rpma_cq *cq, bool solicited_only);

/**
 * Begins to wait for a queue that was made with RPMA_CQ_UNARMED. On the soft device the caller does the work
 * of the connections from then on, by collecting, until rpma_cq_wait_end.
 *
 * The descriptor is readable when collecting gives completions or takes connections further. Completions
 * from before may not make it readable. The program therefore collects once more, until there is no more, and
 * then sleeps in poll(2) or epoll_wait(2). A program waits on both queues of a connection whose operations
 * and receives complete in two.
 *
 *   fd  It becomes the descriptor, the same at every call, so that it may stay in an epoll set. It stays the
 *       queue's: the program never reads or closes it.
 *
 * Threads: one thread at a time is between the two calls; others may post and collect meanwhile.
 * Errors:
 *   RPMA_E_NOSUPP    The queue was made without RPMA_CQ_UNARMED.
 *   RPMA_E_PROVIDER  There is no descriptor, which the first wait of a queue takes, or the queue cannot be
 *                    armed.
 */
int rpma_cq_wait_begin(struct rpma_cq *cq, int *fd);

/**
 * Ends what rpma_cq_wait_begin began.
 *
 * Threads: one thread at a time is between the two calls.
 * Errors:
 *   RPMA_E_INVAL   No wait has begun.
 *   RPMA_E_NOSUPP  The queue was made without RPMA_CQ_UNARMED.
 */
int rpma_cq_wait_end(struct rpma_cq *cq);

/* ---------------------------------------------------------------- what a connection is like ---- */

/* Threads: setters and getters of one configuration may run in parallel. */

/**
 * Sets the queue in which the operations of connections complete, instead of one of their own. It excludes a
 * shared completion channel. The size that rpma_conn_cfg_set_cq_size sets then does not count.
 *
 * The program collects what belongs to a connection before it deletes the connection. The rest may stay
 * in the queue or not, and another connection may get the same number.
 *
 *   cq  It stays the caller's, and outlives the connections. With NULL each has one of its own. A queue of
 *       another device makes the request fail (RPMA_E_INVAL).
 */
int rpma_conn_cfg_set_cq(struct rpma_conn_cfg *cfg, struct rpma_cq *cq);

/** Gets the completion queue of connections: NULL when each has one of its own. */
int rpma_conn_cfg_get_cq(const struct rpma_conn_cfg *cfg, struct rpma_cq **cq_ptr);

/**
 * Sets the queue in which the receives of connections complete, as rpma_conn_cfg_set_cq does for the other
 * operations. It excludes a shared completion channel, and a shared receive queue that has a completion
 * queue.
 *
 *   rcq  It stays the caller's, and outlives the connections. With NULL rpma_conn_cfg_set_rcq_size says where
 *        they complete.
 */
int rpma_conn_cfg_set_rcq(struct rpma_conn_cfg *cfg, struct rpma_cq *rcq);

/** Gets the completion queue of receives: NULL when none was set. */
int rpma_conn_cfg_get_rcq(const struct rpma_conn_cfg *cfg, struct rpma_cq **rcq_ptr);

/**
 * Sets how often a device sends again what the peer did not acknowledge. That is for InfiniBand and RoCE; it
 * has no effect where TCP sends again (iWARP, the soft device).
 *
 *   retry_count  0 to 7; the default is 7.
 *
 * Errors:
 *   RPMA_E_INVAL  retry_count is above 7.
 */
int rpma_conn_cfg_set_retry_count(struct rpma_conn_cfg *cfg, uint8_t retry_count);

/** Gets how often a device sends again what the peer did not acknowledge. */
int rpma_conn_cfg_get_retry_count(const struct rpma_conn_cfg *cfg, uint8_t *retry_count);

/**
 * Sets how often a device sends a message again that found no receive. It has an effect where
 * rpma_conn_cfg_set_retry_count has one.
 *
 *   rnr_retry_count  0 to 6; or 7, the default, which stands for no limit.
 *
 * Errors:
 *   RPMA_E_INVAL  rnr_retry_count is above 7.
 */
int rpma_conn_cfg_set_rnr_retry_count(struct rpma_conn_cfg *cfg, uint8_t rnr_retry_count);

/** Gets how often a device sends a message again that found no receive. */
int rpma_conn_cfg_get_rnr_retry_count(const struct rpma_conn_cfg *cfg, uint8_t *rnr_retry_count);

/**
 * Sets how long a device waits for an acknowledgement. That is for InfiniBand and RoCE only; see
 * rdma_set_option(3).
 *
 *   ack_timeout  1 to 31: 4.096 microseconds, times 2 to the power of ack_timeout. 0, the default, leaves it
 *                to the device.
 *
 * Errors:
 *   RPMA_E_INVAL  ack_timeout is above 31.
 */
int rpma_conn_cfg_set_ack_timeout(struct rpma_conn_cfg *cfg, uint8_t ack_timeout);

/**
 * Gets how long a device waits for an acknowledgement, as the exponent that rpma_conn_cfg_set_ack_timeout
 * takes.
 */
int rpma_conn_cfg_get_ack_timeout(const struct rpma_conn_cfg *cfg, uint8_t *ack_timeout);

/**
 * Sets up to how many bytes a write or send takes its source during the call (IBV_SEND_INLINE), so that the
 * program may change it at once.
 *
 * The soft device takes up to 65536, and copies only the bytes that the network does not take during the
 * call. When the size is too much for the device (rpma_peer_get_limits), a request for a connection fails
 * with RPMA_E_PROVIDER and a log line.
 *
 *   inline_size  In bytes; the default is 0: none.
 */
int rpma_conn_cfg_set_inline_size(struct rpma_conn_cfg *cfg, uint32_t inline_size);

/** Gets up to how many bytes a write or send takes its source during the call. */
int rpma_conn_cfg_get_inline_size(const struct rpma_conn_cfg *cfg, uint32_t *inline_size);

/**
 * Sets whether operations and receives of the connection check offset and length against their regions, and
 * fail with RPMA_E_INVAL before anything is sent. Receives of a shared receive queue are not checked. The
 * default is false: the device finds out, and the connection is lost.
 */
int rpma_conn_cfg_set_bounds_check(struct rpma_conn_cfg *cfg, bool bounds_check);

/** Gets whether operations check offset and length. */
int rpma_conn_cfg_get_bounds_check(const struct rpma_conn_cfg *cfg, bool *bounds_check);

/**
 * Sets the address, and the port if it is not 0, from which requests are made.
 *
 *   addr  IPv4 or IPv6; the call copies it. With NULL, the default, the device chooses.
 *
 * Threads: the call does not run in parallel with any other use of cfg.
 * Errors:
 *   RPMA_E_INVAL  addr is of another family.
 */
int rpma_conn_cfg_set_source_addr(struct rpma_conn_cfg *cfg, const struct sockaddr *addr);

/**
 * Gets the address from which requests are made. Its family is AF_UNSPEC when none was set.
 *
 * Threads: any number at once, but not beside rpma_conn_cfg_set_source_addr.
 */
int rpma_conn_cfg_get_source_addr(const struct rpma_conn_cfg *cfg, struct sockaddr_storage *addr);

/**
 * Makes requests use TLS 1.3 and nothing else, with these keys or certificates instead of those that RPMA_TLS
 * names (softrdma(7)).
 *
 * A peer's request uses what its endpoint says (rpma_ep_cfg_set_tls), or RPMA_TLS. With a configuration that
 * has tls, a peer's request that came with anything else fails with RPMA_E_INVAL, and the peer is rejected. A
 * peer's request on a TCP connection (rpma_conn_req_adopt) has the TLS of RPMA_TLS alone: with tls it fails
 * with RPMA_E_NOSUPP, as each request on a kernel's device does.
 *
 *   tls  psk:FILE or x509:FILE, with the whole path of FILE; the call copies it. FILE is read for each
 *        connection; certificates stay in memory until a file changes. With NULL, the default, RPMA_TLS
 *        decides.
 *
 * Threads: the call does not run in parallel with any other use of cfg.
 * Errors:
 *   RPMA_E_INVAL  tls has another form.
 *   RPMA_E_NOMEM  There is no memory.
 */
int rpma_conn_cfg_set_tls(struct rpma_conn_cfg *cfg, const char *tls);

/**
 * Gets the keys or certificates of requests.
 *
 *   tls  It becomes text that is valid until rpma_conn_cfg_set_tls or rpma_conn_cfg_delete; NULL when none
 *        was set.
 *
 * Threads: any number at once, but not beside rpma_conn_cfg_set_tls.
 */
int rpma_conn_cfg_get_tls(const struct rpma_conn_cfg *cfg, const char **tls);

/* ---------------------------------------------------------------- events of many connections ---- */

struct rpma_events;

/**
 * Makes one queue, with one file descriptor, for the events of many connections of this peer
 * (rpma_conn_cfg_set_events). The caller deletes it, after them.
 *
 * Threads: any number of threads may make queues with one peer at once.
 * Errors:
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The device fails; see rdma_create_event_channel(3).
 */
int rpma_events_new(struct rpma_peer *peer, struct rpma_events **events_ptr);

/** Deletes a queue for events, after all of its connections. */
int rpma_events_delete(struct rpma_events **events_ptr);

/**
 * Gets the descriptor that is readable when there is an event. When fcntl(2) has made it non-blocking,
 * rpma_events_next and rpma_events_take do not wait.
 *
 *   fd  It becomes the descriptor, which stays the queue's: the program never closes it.
 *
 * Threads: any number at once.
 */
int rpma_events_get_fd(const struct rpma_events *events, int *fd);

/**
 * Takes the next event of many connections. Its meaning is that of rpma_conn_next_event.
 *
 * The call takes an event of a request or endpoint as rpma_events_take does, and then fails with
 * RPMA_E_NO_EVENT.
 *
 *   conn  It becomes the connection whose event it is. rpma_conn_req_connect may not have returned that
 *         connection yet in another thread; rpma_conn_get_context tells which of the program's it is.
 *
 * Blocks: until there is an event, unless the queue's descriptor is non-blocking.
 * Threads: one thread at a time for each queue. That thread deletes connections of the queue, or another one
 * while none is in this call.
 * Errors:
 *   RPMA_E_NO_EVENT  There is no event now and the descriptor is non-blocking, a signal came, or it was not a
 *                    connection's event.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_UNKNOWN   The event has no name in enum rpma_conn_event; it is consumed.
 *   RPMA_E_PROVIDER  The device fails; see rdma_get_cm_event(3), rdma_ack_cm_event(3).
 */
int rpma_events_next(struct rpma_events *events, struct rpma_conn **conn, enum rpma_conn_event *event);

/**
 * Begins to wait for events, as rpma_cq_wait_begin does for completions. The descriptor is readable when
 * rpma_events_take gives something, or takes connections and requests further.
 *
 *   fd  It becomes the descriptor, which stays the queue's: the program never reads or closes it. On the soft
 *       device it is another one than rpma_events_get_fd gives; that still says whether rpma_events_take
 *       blocks.
 *
 * Threads: one thread at a time is between the two calls.
 * Errors:
 *   RPMA_E_PROVIDER  There is no descriptor, which the first wait of a queue takes.
 */
int rpma_events_wait_begin(struct rpma_events *events, int *fd);

/**
 * Ends what rpma_events_wait_begin began.
 *
 * Threads: one thread at a time is between the two calls.
 * Errors:
 *   RPMA_E_INVAL  No wait has begun.
 */
int rpma_events_wait_end(struct rpma_events *events);

/* The kind of object that an event is about. The pointer to that object in struct rpma_event is set. */
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
 * Takes the next event of connections (rpma_conn_cfg_set_events), of requests that were begun with such a
 * configuration, and of endpoints (rpma_ep_cfg_set_events). On the way the call takes requests further.
 *
 *   event  It may name a connection that rpma_conn_req_connect, or a request that rpma_conn_req_begin, has
 *          not returned yet in another thread.
 *
 * Blocks: until there is an event, unless the queue's descriptor is non-blocking.
 * Threads: one thread at a time for each queue. That thread deletes connections, requests and endpoints of
 * the queue, or another one while none is in this call.
 * Errors:
 *   RPMA_E_NO_EVENT  There is no event now and the descriptor is non-blocking, or a signal came.
 *   RPMA_E_NOMEM     There is no memory; when the event was a peer's request, the call rejected it.
 *   RPMA_E_UNKNOWN   The event has no name in enum rpma_conn_event; it is consumed.
 *   RPMA_E_PROVIDER  The device fails; see rdma_get_cm_event(3), rdma_ack_cm_event(3).
 */
int rpma_events_take(struct rpma_events *events, struct rpma_event *event);

/**
 * Sets the queue to which the events of connections go, instead of a descriptor of their own.
 * rpma_conn_get_event_fd and rpma_conn_next_event fail with RPMA_E_NOSUPP on such connections.
 *
 * A request that rpma_conn_req_begin or rpma_conn_req_adopt makes has its events there too, and no
 * descriptor: rpma_events_take tells of it.
 *
 *   events  It stays the caller's, and outlives the connections. With NULL, the default, each connection has
 *           a descriptor of its own.
 *
 * Threads: setters and getters of one configuration may run in parallel.
 */
int rpma_conn_cfg_set_events(struct rpma_conn_cfg *cfg, struct rpma_events *events);

/**
 * Gets the queue to which the events of connections go: NULL when there is none.
 *
 * Threads: setters and getters of one configuration may run in parallel.
 */
int rpma_conn_cfg_get_events(const struct rpma_conn_cfg *cfg, struct rpma_events **events_ptr);

/**
 * Keeps a pointer of the program with the connection.
 *
 *   context  The library only hands it back (rpma_conn_get_context); it may be NULL.
 *
 * Threads: any number at once.
 */
int rpma_conn_set_context(struct rpma_conn *conn, void *context);

/**
 * Gets the pointer that rpma_conn_set_context keeps, NULL before.
 *
 * Threads: any number at once.
 */
int rpma_conn_get_context(const struct rpma_conn *conn, void **context);

/* ---------------------------------------------------------------- how a connection ends ---- */

/**
 * Begins to disconnect as rpma_conn_disconnect does, but only after everything is done that is posted now.
 * (rpma_conn_disconnect flushes the operations that TCP has not taken yet.) An operation that the program
 * posts later may be done too, or be flushed.
 *
 * The program may now deregister memory that only the peer uses. When the peer still writes there, the device
 * takes nothing more from it. The peer gets what was posted, unless that has to wait for an answer. A peer
 * that receives nothing delays the end; rpma_conn_disconnect then still ends the connection at once.
 *
 * Threads: any number at once.
 * Errors:
 *   RPMA_E_NOSUPP    The device is a kernel's. There the program awaits the last completion, and disconnects
 *                    then.
 *   RPMA_E_PROVIDER  The connection is not established.
 */
int rpma_conn_drain(struct rpma_conn *conn);

/**
 * Tells why a connection ended, as an errno value, once the event of its end has been given (RPMA_CONN_CLOSED
 * and the values behind it). Kernel devices tell only 0 for RPMA_CONN_CLOSED. The value is one of these, or
 * another error of connect(2):
 *   0             The connection has not ended, or either side disconnected.
 *   ECONNREFUSED  The other side refused, or no program listens there.
 *   ECONNRESET    The other side went away.
 *   ETIMEDOUT     The other side did not answer.
 *   EPROTO        One side broke the protocol, or accessed memory without the right to.
 *   ECONNABORTED  An operation failed here.
 *
 * Threads: any number at once.
 */
int rpma_conn_get_error(const struct rpma_conn *conn, int *error);

/**
 * Tells the way that a connection's bytes take. It is chosen when the connection is made.
 *
 *   link  It becomes text that is valid as long as the library is loaded:
 *           device  the network of a device of the kernel
 *           tcp     a TCP connection of the soft device
 *           memory  memory that two processes on one host have mapped, with the soft device; with TLS, after
 *                   its handshake
 *           tls     TLS over a TCP connection of the soft device (RPMA_TLS, rpma_conn_cfg_set_tls)
 *
 * Threads: any number at once.
 * Errors:
 *   RPMA_E_AGAIN  The connection is not established yet.
 */
int rpma_conn_get_link(const struct rpma_conn *conn, const char **link);

/**
 * Tells how many paths a connection has now. A connection of MPTCP (SOFTRDMA_MPTCP, softrdma(7)) may have
 * several, and lasts as long as one of them works.
 *
 *   paths  It becomes their number. A path that is silent counts until TCP gives it up. It becomes -1 when
 *          the connection is not one of MPTCP, because this process or the peer does not use it: the
 *          connection has one path for good, or goes through memory.
 *
 * Threads: any number at once.
 * Errors:
 *   RPMA_E_AGAIN  The connection is not established yet.
 */
int rpma_conn_get_paths(const struct rpma_conn *conn, int *paths);

/**
 * Tells which peer asks for a connection: the identity of the key or certificate with which the peer has
 * authenticated itself (RPMA_TLS, softrdma(7)). A program decides with it whether it accepts, and what the
 * peer may do.
 *
 *   identity  It becomes text that is valid as long as the request and the connection that it becomes; NULL
 *             when the peer is not authenticated, or the request is this side's own.
 */
int rpma_conn_req_get_identity(const struct rpma_conn_req *req, const char **identity);

/**
 * Tells whether the peer of a request would be let in now too, as rpma_conn_check_identity does.
 *
 * Blocks: while it reads files.
 * Errors:
 *   RPMA_E_NOSUPP    The peer is not authenticated.
 *   RPMA_E_PROVIDER  The files cannot be read; the log says why.
 */
int rpma_conn_req_check_identity(const struct rpma_conn_req *req, bool *known);

/**
 * Tells the identity with which both ends of a connection have authenticated each other: that of a key, or
 * of a certificate (RPMA_TLS, softrdma(7)). It is that of the side that asked for the connection.
 *
 *   identity  It becomes text that is valid as long as the connection; NULL when the connection is not
 *             authenticated.
 *
 * Threads: any number at once.
 * Errors:
 *   RPMA_E_AGAIN  The connection is not established yet.
 */
int rpma_conn_get_identity(const struct rpma_conn *conn, const char **identity);

/**
 * Tells whether the peer of a connection would be let in now too, with the key or the certificate with which
 * it has authenticated itself. The library lets connections go on that are there when a key is taken out of
 * the file, or a certificate is revoked or expires; a program ends those that it does not want any more.
 *
 *   known  It becomes false when the file has no key of that identity, or when a new handshake would refuse
 *          the certificate. The log says why.
 *
 * Blocks: while it reads files.
 * Threads: one thread at a time for each connection.
 * Errors:
 *   RPMA_E_NOSUPP    The connection is not authenticated.
 *   RPMA_E_PROVIDER  The files cannot be read; the log says why.
 */
int rpma_conn_check_identity(const struct rpma_conn *conn, bool *known);

/**
 * Tells the same of several connections, and reads each file once.
 *
 *   conns      So many connections.
 *   num_conns  The number of connections, at least 1.
 *   known      As many places, one for each connection.
 *
 * Blocks: while it reads files.
 * Threads: one thread at a time for each connection.
 * Errors:
 *   RPMA_E_NOSUPP    A connection is not authenticated.
 *   RPMA_E_PROVIDER  The files cannot be read; the log says why. Then known tells nothing.
 */
int rpma_conn_check_identities(const struct rpma_conn *const *conns, size_t num_conns, bool *known);

/* ---------------------------------------------------------------- requests that do not block ---- */

/* Threads: one thread at a time uses a request. */

/**
 * Makes a request as rpma_conn_req_new does, but returns at once. rpma_conn_req_proceed takes it further
 * whenever its descriptor is readable.
 *
 * The descriptor becomes the connection's own, and blocking, when rpma_conn_req_connect succeeds. With
 * rpma_conn_cfg_set_events there is no descriptor: rpma_events_take takes the request further, and tells when
 * it can be connected.
 *
 *   addr  A numeric address, or a host name.
 *   port  A number (0 to 65535) or a service name.
 *   cfg   NULL stands for the defaults.
 *
 * Blocks: for the name look-up, when addr is not numeric.
 * Threads: any number of threads may make requests with one peer at once.
 * Errors:
 *   RPMA_E_INVAL     cfg names an rpma_events of the other kind of device.
 *   RPMA_E_NOSUPP    cfg asks for TLS, and the device is a kernel's.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  There is no way to the address.
 */
int rpma_conn_req_begin(struct rpma_peer *peer, const char *addr, const char *port,
                        const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req_ptr);

/**
 * Makes the request of a peer that the program accepted as a TCP connection. It goes on as with
 * rpma_conn_req_begin: when rpma_conn_req_proceed returns 0 the private data is there, and
 * rpma_conn_req_connect accepts.
 *
 *   fd   A connected stream socket on which the peer is about to speak iWARP's start-up (RFC 5044), not a
 *        byte of it read. On success it belongs to the request.
 *   cfg  NULL stands for the defaults.
 *
 * Threads: any number of threads may make requests with one peer at once.
 * Errors:
 *   RPMA_E_INVAL     fd is no connected TCP socket, or cfg names an rpma_events of the other kind of device.
 *   RPMA_E_NOSUPP    The peer is not on the soft device, or cfg asks for TLS and this side does not ask for
 *                    the connection.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  No descriptor is left, or no device serves fd's address.
 * See RFC 5044.
 */
int rpma_conn_req_adopt(struct rpma_peer *peer, int fd, const struct rpma_conn_cfg *cfg,
                        struct rpma_conn_req **req_ptr);

/* rpma_conn_req_adopt_fd: this side asks; the peer is about to read the request. */
#define RPMA_ADOPT_INITIATOR (1 << 0)
/* rpma_conn_req_adopt_fd: fd stays the caller's, and the caller leaves its bytes alone. The device uses a
 * duplicate. */
#define RPMA_ADOPT_KEEP_FD (1 << 1)
/* rpma_conn_req_adopt_fd: fd stays the caller's, and the device makes no duplicate. The caller closes fd
 * after the request, or the connection that it became, is deleted, and not before. Excludes
 * RPMA_ADOPT_KEEP_FD. */
#define RPMA_ADOPT_SHARE_FD (1 << 2)

/**
 * Makes a request of a TCP connection, as rpma_conn_req_adopt, which is this with flags 0.
 *
 *   fd     A socket as rpma_conn_req_adopt takes it. When the call fails fd stays the caller's, unless it
 *          failed after the device had taken the socket: there was no memory, or the queues failed.
 *   flags  A set of RPMA_ADOPT_ bits. With RPMA_ADOPT_INITIATOR this side asks: the request can be connected
 *          at once, and rpma_conn_req_connect asks on the TCP connection that is there.
 *   cfg    NULL stands for the defaults.
 *
 * Threads: any number of threads may make requests with one peer at once.
 * Errors:
 *   RPMA_E_INVAL     rpma_conn_req_adopt would say so; or flags has an unknown bit, or two that exclude each
 *                    other.
 *   RPMA_E_NOSUPP    The peer is not on the soft device, or cfg asks for TLS and this side does not ask for
 *                    the connection.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  No descriptor is left, no device serves fd's address, or the device does not make the
 *                    queues.
 */
int rpma_conn_req_adopt_fd(struct rpma_peer *peer, int fd, int flags, const struct rpma_conn_cfg *cfg,
                           struct rpma_conn_req **req_ptr);

/**
 * Gets the descriptor that is readable when the request may go further.
 *
 *   fd  It becomes the descriptor, which stays the request's: the program never closes it.
 *
 * Errors:
 *   RPMA_E_NOSUPP  rpma_conn_req_new made the request, it is an endpoint's, or its events go to an
 *                  rpma_events.
 */
int rpma_conn_req_get_fd(const struct rpma_conn_req *req, int *fd);

/**
 * Takes a request as far as it goes without waiting. 0 says that it can be connected, and that receives can
 * be posted. rpma_conn_req_connect before that uses the request up and fails with RPMA_E_INVAL.
 *
 * The request fails when resolving the address, or the route, takes longer than rpma_conn_cfg_set_timeout
 * says. After a failure the program can only delete it; the log says why.
 *
 * Errors:
 *   RPMA_E_INVAL     The request failed: its configuration is not valid for its device.
 *   RPMA_E_AGAIN     The request waits: for its descriptor, for an event (rpma_events_take), or for
 *                    rpma_conn_req_prepare.
 *   RPMA_E_NOMEM     The request failed: there is no memory.
 *   RPMA_E_PROVIDER  The request failed: there is no way, the other side went away, or the device does not
 *                    make the queues.
 */
int rpma_conn_req_proceed(struct rpma_conn_req *req);

/**
 * Tells why rpma_conn_req_proceed failed, as an errno value. The value is one of these, or another error of
 * connect(2):
 *   0             It has not failed.
 *   ETIMEDOUT     Nothing came.
 *   ECONNRESET    The other side went away.
 *   EPROTO        The other side does not speak the protocol.
 *   ECONNABORTED  Something is missing here, such as memory.
 */
int rpma_conn_req_get_error(const struct rpma_conn_req *req, int *error);

/**
 * Keeps a pointer of the program with the request, and with the connection that it becomes
 * (rpma_conn_get_context).
 *
 *   context  The library only hands it back (rpma_conn_req_get_context); it may be NULL.
 */
int rpma_conn_req_set_context(struct rpma_conn_req *req, void *context);

/** Gets the pointer that rpma_conn_req_set_context keeps, NULL before. */
int rpma_conn_req_get_context(const struct rpma_conn_req *req, void **context);

/* ---------------------------------------------------------------- requests without queues ---- */

/*
 * A peer reaches an endpoint at a wildcard address by way of every device of its kind. The program takes such
 * an endpoint's requests without queues, and prepares each with a peer on the device that it came by.
 *
 * Threads: one thread at a time uses a request.
 */

/**
 * Takes the next connection request as rpma_ep_next_conn_req does, but makes no queues. The program can ask
 * for its private data, addresses and device. rpma_conn_req_prepare then makes what rpma_conn_req_connect and
 * receives need.
 *
 *   req_ptr  It becomes NULL when a request cannot be acknowledged (RPMA_E_PROVIDER).
 *
 * Blocks: until there is a request, unless the endpoint's descriptor is non-blocking.
 * Threads: any number of threads may take requests from one endpoint at once.
 * Errors:
 *   RPMA_E_INVAL     The event was not a request.
 *   RPMA_E_NO_EVENT  There is no request now and the descriptor is non-blocking, or a signal came.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The event cannot be read or acknowledged.
 */
int rpma_ep_next_bare_req(struct rpma_ep *ep, struct rpma_conn_req **req_ptr);

/**
 * Gets the device that a request came or goes by.
 *
 *   ibv_ctx_ptr  It becomes the device's context, which belongs to the library, as that of
 *                rpma_utils_get_ibv_context.
 *
 * Errors:
 *   RPMA_E_AGAIN  The request is our own, and its address is not resolved yet.
 */
int rpma_conn_req_get_ibv_context(const struct rpma_conn_req *req, struct ibv_context **ibv_ctx_ptr);

/**
 * Makes the queues of a request that rpma_ep_next_bare_req gave. When that fails, the program can only delete
 * the request, which rejects it.
 *
 *   peer  A peer on the request's device; it outlives the connection.
 *   cfg   Says what the queues are like. NULL stands for the defaults.
 *
 * Errors:
 *   RPMA_E_INVAL     peer is on another device, the request has its queues, or cfg is not valid, as with
 *                    rpma_ep_next_conn_req.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The device does not make the queues.
 */
int rpma_conn_req_prepare(struct rpma_conn_req *req, struct rpma_peer *peer, const struct rpma_conn_cfg *cfg);

/* ---------------------------------------------------------------- refusing with a reason ---- */

/**
 * Rejects a connection request as rpma_conn_req_delete does, and tells the other side why. That side gets the
 * private data with RPMA_CONN_REJECTED (rpma_conn_get_private_data).
 *
 *   req_ptr  A request of a peer that is there (rpma_conn_req_proceed). *req_ptr becomes NULL: the call uses
 *            the request up, also when it fails. The other side is then rejected without private data.
 *   pdata    The private data to send, at least 1 byte. NULL stands for none.
 *
 * Threads: one thread at a time uses a request.
 * Errors:
 *   RPMA_E_INVAL     *req_ptr is NULL, or no request of a peer, or pdata has no bytes.
 *   RPMA_E_PROVIDER  There is more private data than the device takes (148 bytes on a device of the kernel,
 *                    at most), or the device fails; see rdma_reject(3).
 */
int rpma_conn_req_reject(struct rpma_conn_req **req_ptr, const struct rpma_conn_private_data *pdata);

/* ---------------------------------------------------------------- memory for one connection ---- */

/**
 * Registers memory as rpma_mr_reg does, but only the other side of the connection that the request becomes
 * reaches it. For every other peer that has the descriptor, the key is not valid.
 *
 * The other side loses access when rpma_mr_dereg ends the registration or when the connection is deleted, in
 * either order. The program here uses the region as any of the peer's: with other connections too, and for
 * receives of a shared receive queue.
 *
 *   ptr    Where the memory begins. It stays the caller's, and stays mapped until rpma_mr_dereg.
 *   size   In bytes, above 0.
 *   usage  A set of RPMA_MR_USAGE_ bits, at least one.
 *
 * Blocks: as rpma_mr_reg does.
 * Threads: one thread at a time uses a request.
 * Errors:
 *   RPMA_E_INVAL     size or usage is 0, usage has an unknown bit, or the request cannot be connected yet
 *                    (rpma_conn_req_proceed).
 *   RPMA_E_NOSUPP    The device is a kernel's; librpma does not use its memory windows.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The device refuses, as with rpma_mr_reg.
 */
int rpma_conn_req_mr_reg(struct rpma_conn_req *req, void *ptr, size_t size, int usage,
                         struct rpma_mr_local **mr_ptr);

/**
 * Registers memory for a connection that is there, as rpma_conn_req_mr_reg does for one that is requested.
 *
 *   ptr    Where the memory begins. It stays the caller's, and stays mapped until rpma_mr_dereg.
 *   size   In bytes, above 0.
 *   usage  A set of RPMA_MR_USAGE_ bits, at least one.
 *
 * Blocks: as rpma_mr_reg does.
 * Threads: any number at once, but not while the connection is deleted.
 * Errors:
 *   RPMA_E_INVAL     size or usage is 0, or usage has an unknown bit.
 *   RPMA_E_NOSUPP    The device is a kernel's; librpma does not use its memory windows.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The device refuses, as with rpma_mr_reg.
 */
int rpma_conn_mr_reg(struct rpma_conn *conn, void *ptr, size_t size, int usage,
                     struct rpma_mr_local **mr_ptr);

/* ---------------------------------------------------------------- addresses and endpoints ---- */

/* Threads: getters, and setters of one configuration, may run in parallel. */

/** Gets this end's address and port. */
int rpma_conn_get_local_addr(const struct rpma_conn *conn, struct sockaddr_storage *addr);

/** Gets the other end's address and port. */
int rpma_conn_get_peer_addr(const struct rpma_conn *conn, struct sockaddr_storage *addr);

/** Gets this end's address and port, before connecting. */
int rpma_conn_req_get_local_addr(const struct rpma_conn_req *req, struct sockaddr_storage *addr);

/** Gets the other end's address and port, before connecting; for instance those of the side that asks. */
int rpma_conn_req_get_peer_addr(const struct rpma_conn_req *req, struct sockaddr_storage *addr);

/** Gets the address and port at which an endpoint listens; also the port that the system chose for "0". */
int rpma_ep_get_local_addr(const struct rpma_ep *ep, struct sockaddr_storage *addr);

struct rpma_ep_cfg;

/**
 * Makes an endpoint's configuration, with the defaults of rpma_ep_listen. The caller deletes it.
 *
 * Errors:
 *   RPMA_E_NOMEM  There is no memory; *cfg_ptr is then NULL.
 */
int rpma_ep_cfg_new(struct rpma_ep_cfg **cfg_ptr);

/** Deletes an endpoint's configuration. Endpoints keep what they took from it. */
int rpma_ep_cfg_delete(struct rpma_ep_cfg **cfg_ptr);

/**
 * Sets how many requests may wait, as listen(2) and rdma_listen(3) take it.
 *
 *   backlog  In requests, 0 or more. 0, the default, leaves it to the device.
 *
 * Errors:
 *   RPMA_E_INVAL  backlog is negative.
 */
int rpma_ep_cfg_set_backlog(struct rpma_ep_cfg *cfg, int backlog);

/** Gets how many requests may wait. */
int rpma_ep_cfg_get_backlog(const struct rpma_ep_cfg *cfg, int *backlog);

/**
 * Sets whether an endpoint at an IPv6 wildcard address leaves IPv4 to others (IPV6_V6ONLY). The default is
 * false.
 *
 * See ipv6(7).
 */
int rpma_ep_cfg_set_v6only(struct rpma_ep_cfg *cfg, bool v6only);

/** Gets whether an endpoint at an IPv6 wildcard address leaves IPv4 to others. */
int rpma_ep_cfg_get_v6only(const struct rpma_ep_cfg *cfg, bool *v6only);

/**
 * Sets whether an endpoint takes a port that others share in the same way (SO_REUSEADDR). The default is
 * false.
 *
 * See socket(7).
 */
int rpma_ep_cfg_set_reuseaddr(struct rpma_ep_cfg *cfg, bool reuseaddr);

/** Gets whether an endpoint takes a port that others share in the same way. */
int rpma_ep_cfg_get_reuseaddr(const struct rpma_ep_cfg *cfg, bool *reuseaddr);

/**
 * Sets the queue to which the endpoint's events go, instead of a descriptor of its own. rpma_events_take
 * tells of each request; rpma_ep_next_conn_req or rpma_ep_next_bare_req then gives it without waiting, or
 * fails with RPMA_E_NO_EVENT when there is none. rpma_ep_get_fd fails with RPMA_E_NOSUPP.
 *
 *   events  It stays the caller's, and outlives the endpoint. With NULL, the default, the endpoint has a
 *           descriptor of its own. A queue of the other kind of device makes rpma_ep_listen_cfg fail with
 *           RPMA_E_INVAL.
 */
int rpma_ep_cfg_set_events(struct rpma_ep_cfg *cfg, struct rpma_events *events);

/** Gets the queue to which the endpoint's events go: NULL when it has a descriptor of its own. */
int rpma_ep_cfg_get_events(const struct rpma_ep_cfg *cfg, struct rpma_events **events_ptr);

/**
 * Makes the endpoint take connections with TLS 1.3 and nothing else, with these keys or certificates instead
 * of those that RPMA_TLS names (softrdma(7)). rpma_conn_req_get_identity tells who asks. On a kernel's device
 * rpma_ep_listen_cfg fails with RPMA_E_NOSUPP.
 *
 *   tls  psk:FILE or x509:FILE, with the whole path of FILE; the call copies it. FILE is read for each
 *        connection; certificates stay in memory until a file changes. With NULL, the default, RPMA_TLS
 *        decides.
 *
 * Threads: the call does not run in parallel with any other use of cfg.
 * Errors:
 *   RPMA_E_INVAL  tls has another form.
 *   RPMA_E_NOMEM  There is no memory.
 */
int rpma_ep_cfg_set_tls(struct rpma_ep_cfg *cfg, const char *tls);

/**
 * Gets the keys or certificates of the endpoint.
 *
 *   tls  It becomes text that is valid until rpma_ep_cfg_set_tls or rpma_ep_cfg_delete; NULL when none was
 *        set.
 *
 * Threads: any number at once, but not beside rpma_ep_cfg_set_tls.
 */
int rpma_ep_cfg_get_tls(const struct rpma_ep_cfg *cfg, const char **tls);

/**
 * Listens as rpma_ep_listen does, in the way that a configuration says. The caller ends it with
 * rpma_ep_shutdown.
 *
 *   port  A number (0 to 65535) or a service name. With "0" the system chooses a number
 *         (rpma_ep_get_local_addr).
 *   cfg   NULL stands for the defaults.
 *
 * Blocks: for the name look-up.
 * Threads: any number of threads may listen with one peer at once.
 * Errors:
 *   RPMA_E_INVAL     cfg names an rpma_events of the other kind of device.
 *   RPMA_E_NOSUPP    cfg asks for TLS, and the device is a kernel's.
 *   RPMA_E_NOMEM     There is no memory.
 *   RPMA_E_PROVIDER  The address is unknown, or not one of the peer's device; the port is in use, or the
 *                    process may not have it.
 */
int rpma_ep_listen_cfg(struct rpma_peer *peer, const char *addr, const char *port,
                       const struct rpma_ep_cfg *cfg, struct rpma_ep **ep_ptr);

#ifdef __cplusplus
}
#endif

#endif
