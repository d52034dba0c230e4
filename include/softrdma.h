/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * softrdma.h -- an RDMA device in user space: iWARP (RFC 5040, 5041, 5044, 6581) over TCP.
 *
 * softrdma_X has the signature and the meaning of libibverbs' or librdmacm's X, whose man page is the
 * reference. softrdma.h says at the function what differs. A program uses objects of this device with
 * softrdma_ functions only; posting and polling (ibv_post_send, ibv_post_recv, ibv_poll_cq,
 * ibv_req_notify_cq) work as they are, through the context.
 *
 * Threads. Any thread may call any function. One thread destroys an object, after the last use of it.
 *
 * Blocking. softrdma_X blocks where the man page of X says so. A function that is this device's alone does
 * not block.
 *
 * Threads: any number of threads at once.
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
/*
 * Each call gives a context of its own, with asynchronous events of its own. ids have another one, the same
 * for all ids of a device. Closing frees it, unless it still has a protection domain, a completion queue or
 * channel, or a thread that waits for an event; then it stays until the process ends.
 */
SOFTRDMA_LIKE(ibv_open_device);
SOFTRDMA_LIKE(ibv_close_device);
SOFTRDMA_LIKE(ibv_query_device);
SOFTRDMA_LIKE(ibv_query_gid);
/*
 * The table has an entry for each address of the interface as it is now; the type of all is IBV_GID_TYPE_IB.
 *
 * Returns: 0; or an errno value.
 * Errors:
 *   EINVAL  There is no such index, port_num is not 1, or flags is not 0.
 */
extern int softrdma_ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
                                     struct ibv_gid_entry *entry, uint32_t flags);
/* Returns how many entries it wrote: all of them, or -EINVAL and none when there are more than max_entries.
 */
extern ssize_t softrdma_ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                            size_t max_entries, uint32_t flags);
/* iWARP has no partitions: the only key is the default one, 0xffff, at index 0. */
SOFTRDMA_LIKE(ibv_query_pkey);
SOFTRDMA_LIKE(ibv_get_pkey_index);
extern int softrdma_ibv_query_port(struct ibv_context *context, uint8_t port_num,
                                   struct ibv_port_attr *port_attr);
extern int softrdma_ibv_query_device_ex(struct ibv_context *context,
                                        const struct ibv_query_device_ex_input *input,
                                        struct ibv_device_attr_ex *attr);

/**
 * Tells whether a context belongs to this device. No other function takes a context that does not.
 *
 * Returns: true when it does.
 */
extern bool softrdma_owns(const struct ibv_context *context);

/* ---- memory ---- */
SOFTRDMA_LIKE(ibv_alloc_pd);
SOFTRDMA_LIKE(ibv_dealloc_pd);

/* Access flags that Debian 12's verbs.h lacks, with the values of later rdma-core. */
#define SOFTRDMA_ACCESS_FLUSH_GLOBAL (1 << 8)
/* The memory must be such that it can be durable (a file on storage, or DAX); otherwise registering fails
 * with EOPNOTSUPP. When storage has lost bytes of the file in this process's life, registering fails with the
 * error that storage had then (EIO, ENOSPC). */
#define SOFTRDMA_ACCESS_FLUSH_PERSISTENT (1 << 9)

extern struct ibv_mr *softrdma_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
extern struct ibv_mr *softrdma_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                                unsigned int access);
SOFTRDMA_LIKE(ibv_dereg_mr);
/* The keys stay the same. A region of softrdma_reg_mr_for_qp does not change (IBV_REREG_MR_ERR_INPUT,
 * EINVAL). */
SOFTRDMA_LIKE(ibv_rereg_mr);

/**
 * Registers memory that only the peer of one queue pair reaches, as through a memory window of type 2. For
 * every other peer its keys are not valid. The program itself uses lkey with any queue pair or shared receive
 * queue of the protection domain.
 *
 * The region belongs to that queue pair and not to its number: when the queue pair is destroyed no peer
 * reaches the region any more, also if another queue pair has the number then. The program deregisters it
 * with softrdma_ibv_dereg_mr, before or after that.
 *
 *   qp      A queue pair of type IBV_QPT_RC, whose protection domain the region has.
 *   addr    Where the memory begins; it stays the caller's, as with softrdma_ibv_reg_mr.
 *   length  In bytes.
 *   access  As with softrdma_ibv_reg_mr.
 *
 * Returns: the region; or NULL and errno.
 * Errors:
 *   EINVAL  qp is NULL, not of type IBV_QPT_RC, or a parent process made it; or softrdma_ibv_reg_mr would say
 *           so.
 *   EFAULT  access lets the peer write, and the first or the last page may not be written; or
 *           softrdma_ibv_reg_mr would say so.
 * See ibv_reg_mr(3).
 */
extern struct ibv_mr *softrdma_reg_mr_for_qp(struct ibv_qp *qp, void *addr, size_t length, int access);

extern int softrdma_ibv_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                                  struct ibv_sge *sg_list, uint32_t num_sge);

/* ---- completion ---- */
SOFTRDMA_LIKE(ibv_create_comp_channel);
SOFTRDMA_LIKE(ibv_destroy_comp_channel);
SOFTRDMA_LIKE(ibv_create_cq);
/* Time stamps are nanoseconds of CLOCK_MONOTONIC, and of CLOCK_REALTIME (wallclock), when the completion
 * came into the queue. The device has no tags, VLANs or flows: asking for them fails with EOPNOTSUPP. */
extern struct ibv_cq_ex *softrdma_ibv_create_cq_ex(struct ibv_context *context,
                                                   struct ibv_cq_init_attr_ex *cq_attr);
SOFTRDMA_LIKE(ibv_resize_cq);
SOFTRDMA_LIKE(ibv_destroy_cq);
SOFTRDMA_LIKE(ibv_get_cq_event);
SOFTRDMA_LIKE(ibv_ack_cq_events);

/**
 * Begins to wait for a completion queue on a descriptor, together with others. The caller chooses among
 * poll(2), select(2) and epoll(7).
 *
 * The descriptor is readable when the connections of the queue have something to do, which ibv_poll_cq then
 * does, and when another thread's work has completed here. The caller polls once before it sleeps, for what
 * completed before. Until softrdma_cq_wait_end no other thread serves these connections. The caller asks for
 * no notification, and no completion that the caller's own polls find costs a system call to tell of it.
 *
 * Where the sends of a connection complete in another queue, the descriptor tells of the connection's
 * receives only after a thread has served that other queue.
 *
 *   fd  It becomes the descriptor, the same at every call. It stays the queue's: the program does not read,
 *       write or close it.
 *
 * Threads: any number at once; each of them waits, polls, and ends its wait.
 * Returns: 0; or an errno value.
 * Errors:
 *   EMFILE  There is no descriptor left; the first wait of a queue takes one.
 *   EINVAL  The queue belongs to a parent process of this one.
 */
extern int softrdma_cq_wait_begin(struct ibv_cq *cq, int *fd);

/**
 * Ends a wait.
 *
 * Returns: 0; or an errno value.
 * Errors:
 *   EINVAL  No wait has begun.
 */
extern int softrdma_cq_wait_end(struct ibv_cq *cq);

/* ---- queue pairs ---- */
SOFTRDMA_LIKE(ibv_create_qp);
extern struct ibv_qp *softrdma_ibv_create_qp_ex(struct ibv_context *context,
                                                struct ibv_qp_init_attr_ex *attr);
/* Returns NULL unless the queue pair was created with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS. ibv_wr_complete posts
 * the requests since ibv_wr_start as one chain, or none of them. */
SOFTRDMA_LIKE(ibv_qp_to_qp_ex);
SOFTRDMA_LIKE(ibv_destroy_qp);
SOFTRDMA_LIKE(ibv_query_qp);
/*
 * A queue pair of type RC or UC that ibv_create_qp made can be connected by number: the program tells the
 * peer its qp_num and GID, and names the peer's with IBV_QP_AV and IBV_QP_DEST_QPN when it asks for RTR. The
 * states and the attributes are InfiniBand's then (EINVAL otherwise); ibv_query_qp returns what was set, and
 * RESET begins anew. RTR and RTS return at once. Requests wait until the peer is ready, and end with
 * IBV_WC_RETRY_EXC_ERR when it does not answer in time: timeout and retry_cnt say how long, but it is 5
 * seconds at least. The end of the peer changes no state, until a request fails.
 *
 * Otherwise the states up to RTS are the connection manager's: asking for them does nothing, and fails with
 * EOPNOTSUPP when an id's own queue pair is to be connected by number. IBV_QPS_ERR disconnects, and flushes
 * what is posted. A queue pair that an id has connected cannot be reset (EOPNOTSUPP).
 *
 * IBV_QP_ACCESS_FLAGS says which of IBV_ACCESS_REMOTE_WRITE, _READ and _ATOMIC the peer may ask for. The peer
 * may ask for all of them until the program says otherwise, and softrdma_rdma_init_qp_attr gives all of them.
 * ATOMIC WRITE counts as a write; the region alone allows a flush.
 */
SOFTRDMA_LIKE(ibv_modify_qp);

/* ---- datagrams: queue pairs of type IBV_QPT_UD, between soft devices, over UDP ----
 *
 * A message is one UDP datagram of at most the port's MTU (4096 bytes, which IP carries in pieces where it
 * must). A send is complete when the socket has taken it. The device drops a message that finds no posted
 * receive, or one that is too short for it and the 40 bytes of its global route header. In that header IPv4
 * addresses are mapped into IPv6, as in the GID table. Such a queue pair cannot use a shared receive queue.
 */

/* The destination is a GID (is_global): an IP address, or that of a multicast group. Without a GID it is a
 * LID; the only one is the port's own, 0, which is the device itself. A program may make any number of them.
 */
SOFTRDMA_LIKE(ibv_create_ah);
SOFTRDMA_LIKE(ibv_destroy_ah);
SOFTRDMA_LIKE(ibv_create_ah_from_wc);
SOFTRDMA_LIKE(ibv_init_ah_from_wc);
/*
 * The group is an IP multicast group on the device's interface, whose datagrams stay in the local network (a
 * hop limit of 1) and reach this machine too; lid is not used. An IPv6 group needs an interface to which the
 * system routes such groups: the loopback interface is none.
 *
 * Returns: 0; or an errno value.
 * Errors:
 *   EINVAL  gid is no group, qp is not of type UD, or it is not attached.
 *   ENOMEM  16 groups are attached.
 */
SOFTRDMA_LIKE(ibv_attach_mcast);
SOFTRDMA_LIKE(ibv_detach_mcast);

/* ---- shared receive queues: ibv_post_srq_recv works as it is ---- */
SOFTRDMA_LIKE(ibv_create_srq);
/* The only type is IBV_SRQT_BASIC. */
extern struct ibv_srq *softrdma_ibv_create_srq_ex(struct ibv_context *context,
                                                  struct ibv_srq_init_attr_ex *srq_init_attr_ex);
SOFTRDMA_LIKE(ibv_destroy_srq);
SOFTRDMA_LIKE(ibv_query_srq);
/* It sets the limit; resizing fails with EOPNOTSUPP. */
SOFTRDMA_LIKE(ibv_modify_srq);

/* ---- asynchronous events. The device gives IBV_EVENT_SRQ_LIMIT_REACHED; IBV_EVENT_QP_LAST_WQE_REACHED, for
 * queue pairs that use shared receive queues; and IBV_EVENT_CQ_ERR, once, for a completion queue that was
 * overrun. A connection that lost a completion by that ends. ---- */
SOFTRDMA_LIKE(ibv_get_async_event);
SOFTRDMA_LIKE(ibv_ack_async_event);

/* ---- operations beyond RFC 5040 ---- */

/*
 * A program posts them with ibv_post_send, and only towards a peer that agreed (softrdma_peer_operations);
 * otherwise the post fails with EOPNOTSUPP. The values are those of later rdma-core's enum ibv_wr_opcode and
 * ibv_wc_opcode.
 *
 * FLUSH: wr.rdma names the place; sg_list[0].length is the number of bytes (sg_list[0].addr and lkey are not
 * used). imm_data, in host order, is SOFTRDMA_FLUSH_GLOBAL (the earlier writes of this connection are placed)
 * or SOFTRDMA_FLUSH_PERSISTENT (all of them, and the named bytes, are durable). A flush is complete when the
 * target has answered.
 *
 * ATOMIC WRITE (IBV_WR_ATOMIC_WRITE): the target stores 8 bytes at once, at an address that is a multiple
 * of 8.
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
 * Tells which operations beyond RFC 5040 the connected peer of a queue pair agreed to.
 *
 * Returns: a set of SOFTRDMA_OPERATION_FLUSH, SOFTRDMA_OPERATION_ATOMIC_WRITE, SOFTRDMA_OPERATION_IMMEDIATE
 * and SOFTRDMA_OPERATION_ATOMIC; 0 before it is connected.
 */
extern unsigned softrdma_peer_operations(const struct ibv_qp *qp);

/**
 * Tells the way of the bytes of a queue pair's connection. It is chosen when the connection is made, and
 * does not change.
 *
 * Returns: text that is valid as long as the library is loaded:
 *   tcp     a TCP connection
 *   memory  memory that both processes have mapped, because they are on one host; with TLS, they changed to
 *           it after the handshake
 *   tls     TLS over a TCP connection, because RPMA_TLS (softrdma(7)) or softrdma_set_tls asks for it
 *   NULL    the queue pair is not connected yet, or is a datagram queue pair
 */
extern const char *softrdma_link(const struct ibv_qp *qp);

/**
 * Tells how many paths a queue pair's connection has now, when it is one of MPTCP (SOFTRDMA_MPTCP,
 * softrdma(7)). Its bytes go over any of them, and the connection lasts as long as one of them works. A path
 * that is silent counts until TCP gives it up.
 *
 * Returns: their number; -1 when the connection has one path for good, or there is none: it goes through
 * memory or over plain TCP, because this process or the peer does not use MPTCP.
 */
extern int softrdma_paths(const struct ibv_qp *qp);

/**
 * Makes an id of RDMA_PS_TCP use TLS, and nothing else, for the connection that it asks for, or for all that
 * its listener takes. The ids of these requests use it too. It is for a program whose connections do not all
 * have the keys or certificates that RPMA_TLS names (softrdma(7)).
 *
 *   id   An id that neither listens nor has asked for a connection.
 *   tls  psk:FILE or x509:FILE, with the whole path of FILE; the call copies it. NULL stands for RPMA_TLS.
 *        The file is read when the id listens and for each connection;
 *        certificates stay in memory until a file changes.
 *
 * Returns: 0, or -1 and errno.
 *
 * Threads: as rdma_set_option: one thread at a time uses an id that has not begun.
 * Errors:
 *   EINVAL      id is NULL; it has begun, and uses something else; or tls has another form.
 *   EOPNOTSUPP  id is not of RDMA_PS_TCP.
 *   ENOMEM      There is not enough memory.
 */
extern int softrdma_set_tls(struct rdma_cm_id *id, const char *tls);

/**
 * Checks what the environment asks of the device: the values of the variables that it reads, and the files
 * that RPMA_TLS names (softrdma(7)). Opening a device does that too, but the files may change later, and each
 * connection reads them. So a program can say that the files cannot be used before the next client fails. The
 * log says what is wrong.
 *
 * Returns: 0, or -1 and errno. It also fails as open(2) and read(2) of the files do.
 *
 * Blocks: while it reads files.
 * Errors:
 *   EINVAL  The value of a variable, or a line of a file, is not valid.
 *   EACCES  A file is another user's, or others than its owner may use it.
 *   ENOMEM  There is not enough memory.
 */
extern int softrdma_check_settings(void);

/**
 * Tells the identity with which both ends of an id's connection have authenticated each other: that of a key,
 * or of a certificate (RPMA_TLS, softrdma(7)). It is that of the side that asked for the connection. The id
 * of a request knows it before the program accepts or rejects the request.
 *
 * Returns: text that is valid as long as the id; NULL when there is no connection or request yet, or it is
 * not authenticated.
 */
extern const char *softrdma_identity(const struct rdma_cm_id *id);

/**
 * Tells whether the peer of an id's connection or request would be let in now too, with the key or the
 * certificate with which it has authenticated itself. A program that asks this of its connections can end
 * those of the others: the device lets connections go on that are there when their key is taken out of the
 * file, or their certificate is revoked or expires. A key that was replaced by another of the same identity
 * counts as known. The log says why a peer is not.
 *
 * Returns: 1 when it would be let in, 0 when not, or -1 and errno. Then no peer is known to be shut out. It
 * also fails as open(2) and read(2) of the files do.
 *
 * Blocks: while it reads files.
 * Threads: one thread at a time for each id.
 * Errors:
 *   EINVAL  id is NULL, its peer has not authenticated itself, or a line of a file is not valid.
 *   EACCES  A file is another user's, or others than its owner may use it.
 *   ENOMEM  There is not enough memory.
 */
extern int softrdma_peer_is_known(const struct rdma_cm_id *id);

/**
 * Tells the same of the peers of several ids, and reads each file once.
 *
 *   ids    So many ids.
 *   count  The number of ids.
 *   known  As many places; each becomes true when the peer of its id would be let in now too.
 *
 * Returns: 0, or -1 and errno as softrdma_peer_is_known. Then known tells nothing, and no peer is known to be
 * shut out.
 *
 * Blocks: while it reads files.
 * Threads: one thread at a time for each id.
 * Errors:
 *   EINVAL  An id is NULL, its peer has not authenticated itself, or a line of a file is not valid.
 *   EACCES  A file is another user's, or others than its owner may use it.
 *   ENOMEM  There is not enough memory.
 */
extern int softrdma_peers_are_known(const struct rdma_cm_id *const *ids, size_t count, bool *known);

/**
 * Tells why the connection of a queue pair of type IBV_QPT_RC ended.
 *
 * Returns: 0 before its end, and when either side disconnected; or one of these, or another errno value of
 * the socket's:
 *   ECONNRESET    The peer or the network cut the connection.
 *   ETIMEDOUT     The peer did not answer.
 *   EPROTO        One side broke the protocol, or accessed memory without the right to.
 *   ECONNABORTED  A request failed here.
 */
extern int softrdma_end_error(const struct ibv_qp *qp);

/* The most bytes that IBV_SEND_INLINE takes, ibv_qp_cap.max_inline_data. A queue that may have so many takes
 * no more memory: the post gives TCP the program's bytes, and copies those that TCP does not take. When there
 * is no memory for that copy, the post refuses this request alone, with ENOMEM. */
#define SOFTRDMA_MAX_INLINE_SIZE 65536

/* ---- connection manager ----
 *
 * A port of RDMA_PS_TCP is a TCP port. One of RDMA_PS_UDP or RDMA_PS_IPOIB, which are the same here, is a UDP
 * port: rdma_connect asks there for a queue pair, every half second, for ten seconds. The status of
 * RDMA_CM_EVENT_UNREACHABLE is -ETIMEDOUT when no answer came, -ECONNREFUSED when no program listens there,
 * and 2 when the peer rejected the request. The Q_Key is RDMA_UDP_QKEY, which rdma_create_qp sets.
 */
SOFTRDMA_LIKE(rdma_get_devices);
SOFTRDMA_LIKE(rdma_free_devices);
SOFTRDMA_LIKE(rdma_create_event_channel);
/* A thread that sleeps in rdma_get_cm_event of the channel sleeps on, as on hardware, until a signal handler
 * has run (EINTR). A thread that calls rdma_get_cm_event too late does the same. */
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
/* The only type is IBV_SRQT_BASIC. */
extern int softrdma_rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr);
extern void softrdma_rdma_destroy_srq(struct rdma_cm_id *id);
SOFTRDMA_LIKE(rdma_create_ep);
SOFTRDMA_LIKE(rdma_destroy_ep);
/* The new id owns its event, the request: a program may destroy the listener before it. */
SOFTRDMA_LIKE(rdma_get_request);
/*
 * Instead of a queue pair of the id, conn_param.qp_num can name one that ibv_create_qp made. The program does
 * not destroy it while this call, rdma_accept, rdma_establish, rdma_disconnect or rdma_destroy_id uses it. As
 * on InfiniBand, RDMA_CM_EVENT_CONNECT_RESPONSE then comes instead of RDMA_CM_EVENT_ESTABLISHED, and
 * rdma_establish begins to use the connection. In between, the attributes of rdma_init_qp_attr for
 * ibv_modify_qp are not needed, and do no harm.
 */
SOFTRDMA_LIKE(rdma_connect);
SOFTRDMA_LIKE(rdma_establish);
SOFTRDMA_LIKE(rdma_init_qp_attr);
/* It does nothing, and returns 0 when the id listens or has a peer. */
SOFTRDMA_LIKE(rdma_notify);
SOFTRDMA_LIKE(rdma_accept);
SOFTRDMA_LIKE(rdma_reject);
SOFTRDMA_LIKE(rdma_reject_ece);
SOFTRDMA_LIKE(rdma_disconnect);

/**
 * Disconnects as rdma_disconnect does, but only after everything is done that is posted to the queue pair
 * now; the call returns before that. (rdma_disconnect flushes the requests that TCP has not taken.) A request
 * that the program posts later may be done too, or be flushed.
 *
 * When the peer meanwhile asks for an access that it may not have, the device takes nothing more from it. The
 * peer still gets what was posted, unless that has to wait for an answer.
 *
 * Returns: 0; or -1 and errno.
 * Errors:
 *   EINVAL  id is not connected.
 */
extern int softrdma_disconnect_when_sent(struct rdma_cm_id *id);

/* The id is of RDMA_PS_UDP or RDMA_PS_IPOIB and has a device. RDMA_CM_EVENT_MULTICAST_JOIN has the Q_Key
 * RDMA_UDP_QKEY in both port spaces. softrdma_ibv_attach_mcast says which groups there can be. */
SOFTRDMA_LIKE(rdma_join_multicast);
SOFTRDMA_LIKE(rdma_join_multicast_ex);
SOFTRDMA_LIKE(rdma_leave_multicast);
/* A program sets RDMA_OPTION_ID_REUSEADDR and RDMA_OPTION_ID_AFONLY before it binds the address.
 * RDMA_OPTION_ID_ACK_TIMEOUT changes nothing, for TCP acknowledges; RDMA_OPTION_IB_PATH fails with
 * EOPNOTSUPP. */
SOFTRDMA_LIKE(rdma_set_option);
/* Both calls fail with EOPNOTSUPP: enhanced connection establishment is for other hardware. */
SOFTRDMA_LIKE(rdma_set_local_ece);
SOFTRDMA_LIKE(rdma_get_remote_ece);
SOFTRDMA_LIKE(rdma_get_src_port);
SOFTRDMA_LIKE(rdma_get_dst_port);
SOFTRDMA_LIKE(rdma_getaddrinfo);
SOFTRDMA_LIKE(rdma_freeaddrinfo);
SOFTRDMA_LIKE(rdma_event_str);

/**
 * Begins to wait for events on a descriptor, as softrdma_cq_wait_begin does for completions. The caller looks
 * with rdma_get_cm_event, which does what the ids of the channel have to do. That call does not block when
 * the program has made the channel's own fd non-blocking.
 *
 *   fd  It becomes the descriptor, which stays the channel's: the program does not read, write or close it.
 *
 * Returns: 0; or an errno value.
 * Errors:
 *   EMFILE  There is no descriptor left; the first wait of a channel takes one.
 *   EINVAL  The channel belongs to a parent process of this one.
 */
extern int softrdma_events_wait_begin(struct rdma_event_channel *channel, int *fd);

/**
 * Ends a wait.
 *
 * Returns: 0; or an errno value.
 * Errors:
 *   EINVAL  No wait has begun.
 */
extern int softrdma_events_wait_end(struct rdma_event_channel *channel);

/* ---- connections that the program accepts by itself ---- */

/**
 * Makes the id of a peer that the program accepted as a TCP connection. The caller destroys the id with
 * softrdma_rdma_destroy_id.
 *
 * The first event comes within ten seconds. It is RDMA_CM_EVENT_CONNECT_REQUEST of the id itself (listen_id
 * is NULL), which the program accepts or rejects as any request. Or it is RDMA_CM_EVENT_CONNECT_ERROR, after
 * which the program can only destroy the id; its status is -EPROTO when the peer spoke something else,
 * -ECONNRESET when it went away, and -ETIMEDOUT when it was silent.
 *
 *   channel  The id's events go there; it outlives the id.
 *   fd       A connected stream socket, of IPv4 or IPv6, on which the peer is about to speak iWARP's start-up
 *            (RFC 5044), not a byte of it read. On success the call closes fd, and the connection is the
 *            id's; on failure fd stays the caller's.
 *   context  It becomes the id's; NULL is allowed.
 *   id       The call does not write it on failure.
 *
 * Returns: 0; or -1 and errno.
 * Errors:
 *   EINVAL  channel or id is NULL, or fd is no connected TCP socket.
 *   ENOMEM  There is no memory.
 *   EMFILE  There is no descriptor left; for a moment fd is open twice.
 * See RFC 5044.
 */
extern int softrdma_adopt(struct rdma_event_channel *channel, int fd, void *context, struct rdma_cm_id **id);

/* softrdma_adopt_fd: this side asks. */
#define SOFTRDMA_ADOPT_INITIATOR (1 << 0)
/* softrdma_adopt_fd: fd stays the caller's. The caller leaves its bytes alone, and closes it after destroying
 * the id and its queue pair. The connection takes no descriptor of its own. */
#define SOFTRDMA_ADOPT_SHARE_FD (1 << 1)

/**
 * Makes an id of a TCP connection as softrdma_adopt, which is this with flags 0.
 *
 *   flags  A set of SOFTRDMA_ADOPT_ bits. With SOFTRDMA_ADOPT_INITIATOR the peer is about to read a request:
 *          the id is as after rdma_resolve_route, without events for that, and rdma_connect asks on the
 *          connection that there is.
 *
 * Returns: 0; or -1 and errno.
 * Errors:
 *   EINVAL  softrdma_adopt would say so; or flags has an unknown bit.
 *   ENOMEM  There is no memory.
 *   EMFILE  There is no descriptor left.
 *   ENODEV  No device serves fd's address.
 */
extern int softrdma_adopt_fd(struct rdma_event_channel *channel, int fd, int flags, void *context,
                             struct rdma_cm_id **id);

/* ---- log ---- */

/* It takes one log line. level is 0 (fatal) to 5 (debug); message_format is printf's and ends in a newline.
 */
/* NOLINTNEXTLINE(modernize-use-using): C */
typedef void (*softrdma_log_function)(int level, const char *file_name, int line_no,
                                      const char *function_name, const char *message_format, ...);

/**
 * Sets where the device's log lines go, and up to which level.
 *
 *   log_function  Any thread may call it. It must not call this library. With NULL, the default, warnings and
 *                 worse go to standard error.
 *   threshold     The highest level that passes, 0 (fatal) to 5 (debug).
 *
 * Returns: nothing.
 */
extern void softrdma_set_log(softrdma_log_function log_function, int threshold);

#undef SOFTRDMA_LIKE

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
