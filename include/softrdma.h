/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * softrdma.h -- an RDMA device in user space: iWARP (RFC 5040, 5041, 5044, 6581) over TCP.
 *
 * softrdma_X has the signature and the meaning of libibverbs' or librdmacm's X: its man page is the
 * reference. What differs is said at the function. Objects of this device are used with softrdma_ functions
 * only; posting and polling (ibv_post_send, ibv_post_recv, ibv_poll_cq, ibv_req_notify_cq) work as they are,
 * through the context.
 *
 * Every function may be called from any thread. One object is destroyed by one thread, after the last use of
 * it.
 */
#ifndef SOFTRDMA_H
#define SOFTRDMA_H 1

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* Declares softrdma_X like X. */
#define SOFTRDMA_LIKE(name) extern __typeof__(name) softrdma_##name

/* ---- devices: one an interface that is up, named soft_INTERFACE (soft_lo, soft_eth0) ---- */
SOFTRDMA_LIKE(ibv_get_device_list);
SOFTRDMA_LIKE(ibv_free_device_list);
SOFTRDMA_LIKE(ibv_get_device_name);
SOFTRDMA_LIKE(ibv_get_device_guid);
/* One context a device and process: opening again gives the same; closing keeps it. */
SOFTRDMA_LIKE(ibv_open_device);
SOFTRDMA_LIKE(ibv_close_device);
SOFTRDMA_LIKE(ibv_query_device);
SOFTRDMA_LIKE(ibv_query_gid);
/* One entry an address of the interface as it is now; the type of all is IBV_GID_TYPE_IB. 0, or EINVAL: no
 * such index, a port_num other than 1, flags other than 0. */
extern int softrdma_ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
                                     struct ibv_gid_entry *entry, uint32_t flags);
/* The number of entries that were written: all, or -EINVAL and none when there are more than max_entries. */
extern ssize_t softrdma_ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                            size_t max_entries, uint32_t flags);
/* iWARP has no partitions: there is the default key, 0xffff, at index 0. */
SOFTRDMA_LIKE(ibv_query_pkey);
SOFTRDMA_LIKE(ibv_get_pkey_index);
extern int softrdma_ibv_query_port(struct ibv_context *context, uint8_t port_num,
                                   struct ibv_port_attr *port_attr);
extern int softrdma_ibv_query_device_ex(struct ibv_context *context,
                                        const struct ibv_query_device_ex_input *input,
                                        struct ibv_device_attr_ex *attr);

/**
 * Whether a context belongs to this device. No other function takes a context that does not.
 *
 * Threads: safe in any number of threads.
 * Returns: true when it does.
 */
extern bool softrdma_owns(const struct ibv_context *context);

/* ---- memory ---- */
SOFTRDMA_LIKE(ibv_alloc_pd);
SOFTRDMA_LIKE(ibv_dealloc_pd);

/* Access flags that Debian 12's verbs.h lacks; values of later rdma-core. */
#define SOFTRDMA_ACCESS_FLUSH_GLOBAL (1 << 8)
/* The memory must be able to be durable (a file on storage, or DAX); otherwise registering fails with
 * EOPNOTSUPP, or, when storage has lost bytes of the file in this process's life, with the error it had then
 * (EIO, ENOSPC). */
#define SOFTRDMA_ACCESS_FLUSH_PERSISTENT (1 << 9)

extern struct ibv_mr *softrdma_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
extern struct ibv_mr *softrdma_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                                unsigned int access);
SOFTRDMA_LIKE(ibv_dereg_mr);

/**
 * Registers memory that only the peer of one queue pair reaches, as through a memory window of type 2 (which
 * this device does not have): to every other peer its keys are keys of nothing. The protection domain is the
 * queue pair's; addr, length and access are softrdma_ibv_reg_mr's. The program itself uses lkey with any
 * queue pair or shared receive queue of the protection domain.
 *
 * The region belongs to that queue pair and not to its number: when the queue pair is destroyed no peer
 * reaches the region any more, also if another queue pair has the number then. It is deregistered with
 * softrdma_ibv_dereg_mr, before or after that.
 *
 * Threads: safe in any number of threads.
 * Returns: the region; or NULL and errno: EINVAL, qp is NULL, not of type IBV_QPT_RC, or was made by a parent
 * process; EFAULT, access lets the peer write, and the first or the last page may not be written; else
 * softrdma_ibv_reg_mr's.
 */
extern struct ibv_mr *softrdma_reg_mr_for_qp(struct ibv_qp *qp, void *addr, size_t length, int access);

extern int softrdma_ibv_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                                  struct ibv_sge *sg_list, uint32_t num_sge);

/* ---- completion ---- */
SOFTRDMA_LIKE(ibv_create_comp_channel);
SOFTRDMA_LIKE(ibv_destroy_comp_channel);
SOFTRDMA_LIKE(ibv_create_cq);
/* Time stamps and tags are not there: asking for them fails with EOPNOTSUPP. */
extern struct ibv_cq_ex *softrdma_ibv_create_cq_ex(struct ibv_context *context,
                                                   struct ibv_cq_init_attr_ex *cq_attr);
SOFTRDMA_LIKE(ibv_resize_cq);
SOFTRDMA_LIKE(ibv_destroy_cq);
SOFTRDMA_LIKE(ibv_get_cq_event);
SOFTRDMA_LIKE(ibv_ack_cq_events);

/**
 * Begins to wait for a completion queue on a descriptor of the caller's choice of poll(2), select(2) or
 * epoll(7), together with others: *fd is readable when the connections of the queue have something to do,
 * which ibv_poll_cq then does, and when another thread's work has completed here; the caller polls once
 * before it sleeps, for what completed before. Until softrdma_cq_wait_end nobody else serves them. No
 * notification is asked for, and no completion that the caller's own polls find costs a system call to tell
 * of it. *fd is the same at every call, and the queue's: it is not read, written or closed. It does not tell
 * of receives on connections whose sends complete in another queue before somebody has served that one.
 *
 * Threads: safe in any number of threads; each of them waits, polls, and ends its wait.
 * Returns: 0; EMFILE, the first wait of a queue takes a descriptor; EINVAL, in a child of the process whose
 * queue it is.
 */
extern int softrdma_cq_wait_begin(struct ibv_cq *cq, int *fd);

/**
 * Ends a wait.
 *
 * Threads: safe in any number of threads.
 * Returns: 0; EINVAL, there is none.
 */
extern int softrdma_cq_wait_end(struct ibv_cq *cq);

/* ---- queue pairs ---- */
SOFTRDMA_LIKE(ibv_create_qp);
extern struct ibv_qp *softrdma_ibv_create_qp_ex(struct ibv_context *context,
                                                struct ibv_qp_init_attr_ex *attr);
/* NULL unless the queue pair was created with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS. What is prepared between
 * ibv_wr_start and ibv_wr_complete is posted as one chain, or not at all. */
SOFTRDMA_LIKE(ibv_qp_to_qp_ex);
SOFTRDMA_LIKE(ibv_destroy_qp);
SOFTRDMA_LIKE(ibv_query_qp);
/* The states up to RTS are the connection manager's: asking for them does nothing, and fails with EOPNOTSUPP
 * when the attributes name a queue pair to connect to. IBV_QPS_ERR disconnects, and flushes what is posted.
 * A queue pair that was connected cannot be reset (EOPNOTSUPP). IBV_QP_ACCESS_FLAGS says which of
 * IBV_ACCESS_REMOTE_WRITE, _READ and _ATOMIC the peer may ask for; it may ask for all of them until a program
 * says otherwise, and softrdma_rdma_init_qp_attr gives all of them. ATOMIC WRITE is a write, and a flush is
 * allowed by the region alone. Other attributes mean nothing on iWARP. */
SOFTRDMA_LIKE(ibv_modify_qp);

/* ---- datagrams: queue pairs of type IBV_QPT_UD, between soft devices, over UDP ----
 *
 * A message is one UDP datagram of at most the port's MTU (4096 bytes, which IP carries in pieces where it
 * must). A send is complete when the socket has taken it. A message that finds no posted receive, or one too
 * short for it and the 40 bytes of its global route header, is dropped. In that header IPv4 addresses are
 * mapped into IPv6, as in the GID table. Shared receive queues cannot be used.
 */

/* The destination is a GID (is_global): an IP address, or that of a multicast group; without one it is a LID,
 * of which there is the port's own, 0: the device itself. Any number, each at once. */
SOFTRDMA_LIKE(ibv_create_ah);
SOFTRDMA_LIKE(ibv_destroy_ah);
SOFTRDMA_LIKE(ibv_create_ah_from_wc);
SOFTRDMA_LIKE(ibv_init_ah_from_wc);
/* The group is an IP multicast group on the device's interface, whose datagrams stay in the local network (a
 * hop limit of 1) and reach this machine too; lid is not used. An IPv6 group needs an interface to which the
 * system routes such groups: the loopback interface is none. 0, or an errno value: EINVAL, no group, no queue
 * pair of type UD, or not attached; ENOMEM, 16 groups are attached. */
SOFTRDMA_LIKE(ibv_attach_mcast);
SOFTRDMA_LIKE(ibv_detach_mcast);

/* ---- shared receive queues: ibv_post_srq_recv works as it is ---- */
SOFTRDMA_LIKE(ibv_create_srq);
/* Of type IBV_SRQT_BASIC. */
extern struct ibv_srq *softrdma_ibv_create_srq_ex(struct ibv_context *context,
                                                  struct ibv_srq_init_attr_ex *srq_init_attr_ex);
SOFTRDMA_LIKE(ibv_destroy_srq);
SOFTRDMA_LIKE(ibv_query_srq);
/* The limit; resizing fails with EOPNOTSUPP. */
SOFTRDMA_LIKE(ibv_modify_srq);

/* ---- asynchronous events. There are IBV_EVENT_SRQ_LIMIT_REACHED; IBV_EVENT_QP_LAST_WQE_REACHED, of the
 * queue pairs that use shared receive queues; and IBV_EVENT_CQ_ERR, once, of a completion queue that was
 * overrun. A connection that lost a completion by that ends. ---- */
SOFTRDMA_LIKE(ibv_get_async_event);
SOFTRDMA_LIKE(ibv_ack_async_event);

/* ---- operations beyond RFC 5040 ---- */

/*
 * They are posted with ibv_post_send; only towards a peer that agreed
 * (softrdma_peer_operations), otherwise the post fails with EOPNOTSUPP. Values of later rdma-core's enum
 * ibv_wr_opcode and ibv_wc_opcode.
 *
 * FLUSH: wr.rdma names the place; sg_list[0].length is the number of bytes (sg_list[0].addr and lkey are not
 * used); imm_data is SOFTRDMA_FLUSH_GLOBAL (the earlier writes of this connection are placed) or
 * SOFTRDMA_FLUSH_PERSISTENT (they are durable), in host order. Complete when the target has answered. ATOMIC
 * WRITE (IBV_WR_ATOMIC_WRITE): 8 bytes to an address that is a multiple of 8, stored at once.
 */
#define SOFTRDMA_WR_FLUSH 14
#define SOFTRDMA_WC_FLUSH 8
#define SOFTRDMA_FLUSH_GLOBAL 1
#define SOFTRDMA_FLUSH_PERSISTENT 2

#define SOFTRDMA_OPERATION_FLUSH (1 << 0)
#define SOFTRDMA_OPERATION_ATOMIC_WRITE (1 << 1)
/* IBV_WR_SEND_WITH_IMM and IBV_WR_RDMA_WRITE_WITH_IMM. */
#define SOFTRDMA_OPERATION_IMMEDIATE (1 << 2)
/* IBV_WR_ATOMIC_CMP_AND_SWP and IBV_WR_ATOMIC_FETCH_AND_ADD, of 8 bytes at an address that is a multiple of
 * 8, in memory registered with IBV_ACCESS_REMOTE_ATOMIC. The target's processor executes them: they are
 * atomic with its own atomic instructions (IBV_ATOMIC_GLOB). */
#define SOFTRDMA_OPERATION_ATOMIC (1 << 3)

/**
 * Which operations beyond RFC 5040 the connected peer of a queue pair agreed to.
 *
 * Threads: safe in any number of threads.
 * Returns: a set of SOFTRDMA_OPERATION_FLUSH, SOFTRDMA_OPERATION_ATOMIC_WRITE, SOFTRDMA_OPERATION_IMMEDIATE
 * and SOFTRDMA_OPERATION_ATOMIC; 0 before it is connected.
 */
extern unsigned softrdma_peer_operations(const struct ibv_qp *qp);

/**
 * Tells why the connection of a queue pair of type IBV_QPT_RC ended.
 *
 * Threads: safe in any number of threads.
 * Returns: 0 before its end, and when either side disconnected; or an errno value: ECONNRESET, the peer or
 * the network cut it short; ETIMEDOUT, the peer did not answer; EPROTO, one side broke the protocol or
 * reached for what it may not have; ECONNABORTED, a request failed here; another one of the socket's.
 */
extern int softrdma_end_error(const struct ibv_qp *qp);

/* The most bytes that IBV_SEND_INLINE takes, ibv_qp_cap.max_inline_data. A queue that may have so many takes
 * no more memory: the post gives TCP the program's bytes, and copies those that TCP does not take. A request
 * for whose bytes there is no memory then is refused with ENOMEM, and nothing else is. */
#define SOFTRDMA_MAX_INLINE_SIZE 65536

/* ---- connection manager ----
 *
 * A port of RDMA_PS_TCP is a TCP port; one of RDMA_PS_UDP or RDMA_PS_IPOIB, which are the same here, a UDP
 * port: rdma_connect asks there for a queue pair, every half second, ten seconds long.
 * RDMA_CM_EVENT_UNREACHABLE has -ETIMEDOUT as its status when nobody answered, -ECONNREFUSED when nobody
 * listens, and 2 when the request was rejected. Its Q_Key is RDMA_UDP_QKEY, which rdma_create_qp sets.
 */
SOFTRDMA_LIKE(rdma_get_devices);
SOFTRDMA_LIKE(rdma_free_devices);
SOFTRDMA_LIKE(rdma_create_event_channel);
/* A thread that sleeps in rdma_get_cm_event of the channel sleeps on, until a signal handler has run (EINTR),
 * as on hardware. A thread that calls it too late does the same. */
SOFTRDMA_LIKE(rdma_destroy_event_channel);
SOFTRDMA_LIKE(rdma_get_cm_event);
SOFTRDMA_LIKE(rdma_ack_cm_event);
SOFTRDMA_LIKE(rdma_create_id);
SOFTRDMA_LIKE(rdma_destroy_id);
SOFTRDMA_LIKE(rdma_migrate_id);
SOFTRDMA_LIKE(rdma_bind_addr);
SOFTRDMA_LIKE(rdma_listen);
SOFTRDMA_LIKE(rdma_resolve_addr);
SOFTRDMA_LIKE(rdma_resolve_route);
SOFTRDMA_LIKE(rdma_create_qp);
SOFTRDMA_LIKE(rdma_create_qp_ex);
SOFTRDMA_LIKE(rdma_destroy_qp);
extern int softrdma_rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
/* Of type IBV_SRQT_BASIC. */
extern int softrdma_rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr);
extern void softrdma_rdma_destroy_srq(struct rdma_cm_id *id);
SOFTRDMA_LIKE(rdma_create_ep);
SOFTRDMA_LIKE(rdma_destroy_ep);
/* The new id's event, the request, is its own: the listener may be destroyed before it. */
SOFTRDMA_LIKE(rdma_get_request);
/*
 * Instead of a queue pair of the id, conn_param.qp_num can name one that ibv_create_qp made, which is then
 * not destroyed while this call, rdma_accept, rdma_establish, rdma_disconnect or rdma_destroy_id is at it: as
 * on InfiniBand, RDMA_CM_EVENT_CONNECT_RESPONSE comes instead of RDMA_CM_EVENT_ESTABLISHED, and
 * rdma_establish begins to use the connection. What rdma_init_qp_attr gives for ibv_modify_qp in between is
 * not needed, and does no harm.
 */
SOFTRDMA_LIKE(rdma_connect);
SOFTRDMA_LIKE(rdma_establish);
SOFTRDMA_LIKE(rdma_init_qp_attr);
/* Nothing to do: 0 when the id listens or has a peer. */
SOFTRDMA_LIKE(rdma_notify);
SOFTRDMA_LIKE(rdma_accept);
SOFTRDMA_LIKE(rdma_reject);
SOFTRDMA_LIKE(rdma_reject_ece);
SOFTRDMA_LIKE(rdma_disconnect);

/**
 * Disconnects as rdma_disconnect, but when what is posted now to the queue pair is done, where
 * rdma_disconnect flushes what TCP has not taken; returns before that. What is posted later may be done too,
 * or be flushed. A peer that asks meanwhile for what it may not have is not heard any more, and gets what was
 * posted all the same, unless that has to wait for an answer.
 *
 * Threads: safe in any number of threads.
 * Returns: 0; or -1 and errno: EINVAL, id is not connected.
 */
extern int softrdma_disconnect_when_sent(struct rdma_cm_id *id);

/* On an id of RDMA_PS_UDP or RDMA_PS_IPOIB that has a device. RDMA_CM_EVENT_MULTICAST_JOIN has the Q_Key
 * RDMA_UDP_QKEY in both port spaces. Which groups there can be: softrdma_ibv_attach_mcast. */
SOFTRDMA_LIKE(rdma_join_multicast);
SOFTRDMA_LIKE(rdma_join_multicast_ex);
SOFTRDMA_LIKE(rdma_leave_multicast);
/* RDMA_OPTION_ID_REUSEADDR and RDMA_OPTION_ID_AFONLY: before the address is bound. RDMA_OPTION_ID_ACK_TIMEOUT
 * changes nothing, for TCP acknowledges; RDMA_OPTION_IB_PATH fails with EOPNOTSUPP. */
SOFTRDMA_LIKE(rdma_set_option);
/* Enhanced connection establishment is other hardware's: EOPNOTSUPP. */
SOFTRDMA_LIKE(rdma_set_local_ece);
SOFTRDMA_LIKE(rdma_get_remote_ece);
SOFTRDMA_LIKE(rdma_get_src_port);
SOFTRDMA_LIKE(rdma_get_dst_port);
SOFTRDMA_LIKE(rdma_getaddrinfo);
SOFTRDMA_LIKE(rdma_freeaddrinfo);
SOFTRDMA_LIKE(rdma_event_str);

/**
 * Begins to wait for events on a descriptor, as softrdma_cq_wait_begin for completions: the caller looks with
 * rdma_get_cm_event, which does what the ids of the channel have to do; where it is not to block, the
 * channel's own fd is made non-blocking.
 *
 * Threads: safe in any number of threads.
 * Returns: 0; EMFILE, the first wait of a channel takes a descriptor; EINVAL, in a child of the process whose
 * channel it is.
 */
extern int softrdma_events_wait_begin(struct rdma_event_channel *channel, int *fd);

/**
 * Ends a wait.
 *
 * Threads: safe in any number of threads.
 * Returns: 0; EINVAL, there is none.
 */
extern int softrdma_events_wait_end(struct rdma_event_channel *channel);

/* ---- connections that the program accepts by itself ---- */

/**
 * Makes the id of a peer that was accepted as a TCP connection: fd is a connected stream socket, of IPv4 or
 * IPv6, on which the peer is about to speak iWARP's start-up (RFC 5044), not a byte of it read. context
 * becomes the id's; channel is where its events go, and outlives it.
 *
 * On success fd is closed and the connection is the id's, which the caller destroys with
 * softrdma_rdma_destroy_id; on failure fd stays the caller's, and *id is not written. The first event comes
 * within ten seconds: RDMA_CM_EVENT_CONNECT_REQUEST of the id itself (listen_id is NULL), which is accepted
 * or rejected as any request; or RDMA_CM_EVENT_CONNECT_ERROR, after which the id can only be destroyed, with
 * -EPROTO as its status when the peer spoke something else, -ECONNRESET when it went away, -ETIMEDOUT when it
 * was silent.
 *
 * Threads: safe in any number of threads.
 * Returns: 0; or -1 and errno: EINVAL, channel or id is NULL, or fd is no connected TCP socket; ENOMEM;
 * EMFILE, for a moment fd is open twice.
 */
extern int softrdma_adopt(struct rdma_event_channel *channel, int fd, void *context, struct rdma_cm_id **id);

/* softrdma_adopt_fd: it is our side that asks. */
#define SOFTRDMA_ADOPT_INITIATOR (1 << 0)
/* softrdma_adopt_fd: fd stays the caller's, who leaves its bytes alone and closes it after the id and its
 * queue pair are destroyed; the connection takes no descriptor of its own. */
#define SOFTRDMA_ADOPT_SHARE_FD (1 << 1)

/**
 * Makes an id of a TCP connection as softrdma_adopt, which is this with flags 0. With
 * SOFTRDMA_ADOPT_INITIATOR the peer is the one who is about to read a request: the id is as after
 * rdma_resolve_route, without events for that, and rdma_connect asks on the connection that there is.
 *
 * Threads: safe in any number of threads.
 * Returns: 0; or -1 and errno, as softrdma_adopt;
 * Errors:
 *   EINVAL  Unknown flag;
 *   ENODEV  No device serves fd's address.
 */
extern int softrdma_adopt_fd(struct rdma_event_channel *channel, int fd, int flags, void *context,
                             struct rdma_cm_id **id);

/* ---- log ---- */

/* Takes one line: level is 0 (fatal) to 5 (debug), message_format is printf's and ends in a newline. */
/* NOLINTNEXTLINE(modernize-use-using): C */
typedef void (*softrdma_log_function)(int level, const char *file_name, int line_no,
                                      const char *function_name, const char *message_format, ...);

/**
 * Sets where the device's log lines go, and up to which level (threshold). NULL is the default: warnings and
 * worse to standard error. log_function is called from any thread; it must not call this library.
 *
 * Threads: safe in any number of threads.
 * Returns: nothing.
 */
extern void softrdma_set_log(softrdma_log_function log_function, int threshold);

#undef SOFTRDMA_LIKE

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
