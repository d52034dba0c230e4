/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rpma/rsocket.h -- sockets of the types SOCK_STREAM and SOCK_DGRAM whose bytes travel by RDMA. The
 * functions, their names and what they send are those of librdmacm's rsockets (rsocket(7)): a program that
 * was linked with librdmacm runs with this library, and either end of a connection may have either library.
 *
 * Errors. Every function behaves as the function of libc without the r, and has the errors of that function's
 * man page. The comments here list only those that differ or need a word.
 *
 * Descriptors. An rsocket's descriptor is a TCP socket, which the soft device uses, or, of type SOCK_DGRAM, a
 * UDP socket. Where a device of the kernel serves the local address, the TCP socket only holds the number and
 * the port (librsocket(7)). Only functions of this library may read, write, wait for or close the descriptor.
 * The rsocket has the names and the options of that socket. rpoll, rselect and repoll also take descriptors
 * that are no rsockets.
 *
 * Signals. The library sends none: where a socket would raise SIGPIPE, the call fails with EPIPE. The library
 * makes no thread. A signal handler may call its functions. Where the handler has interrupted another of them
 * in the same thread, and not in its sleep, a call fails with EDEADLK and does nothing: it would wait for the
 * call that it has interrupted. The program may make the call again when the handler has returned. The calls
 * may call malloc(3), so that a handler that may have interrupted malloc(3) must not make them
 * (signal-safety(7)).
 *
 * Blocking. As with sockets, a call that may block waits unless O_NONBLOCK (rfcntl), SOCK_NONBLOCK or
 * MSG_DONTWAIT says otherwise. A wait ends with EINTR when a signal was caught.
 *
 * Threads: any thread, and any number of threads at a time may use one rsocket.
 * Returns: 0; or -1 and errno.
 * Errors:
 *   EBADF    socket is no rsocket.
 *   EDEADLK  A signal handler made the call, and had interrupted a call of this library.
 */
#ifndef RSOCKET_H /* librdmacm's header has the same name for this: both declare the same */
#define RSOCKET_H 1

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================ sockets ==== */

/* A level of rsetsockopt and rgetsockopt, whose options are all an int. */
#define SOL_RDMA 0x10000

/* The options. A program sets them before the stream begins: before rconnect, or on the rsocket that
 * listens. */
enum {
    RDMA_SQSIZE, /* messages that may be on their way, 1 to 65534 */
    RDMA_RQSIZE, /* messages of the peer that have a place, 1 to 65534; there are 16 at least */
    RDMA_INLINE, /* bytes of a message that has no copy in the send buffer; the soft device has no such copy
                  */
    RDMA_IOMAPSIZE, /* mappings that the peer may have (riomap), 0 to 32512, above 128 in steps of 256 */
    RDMA_ROUTE      /* a path of InfiniBand, which no stream here takes: ENOPROTOOPT */
};

/**
 * Makes an rsocket.
 *
 *   domain    AF_INET or AF_INET6.
 *   type      SOCK_STREAM or SOCK_DGRAM, with SOCK_NONBLOCK and SOCK_CLOEXEC.
 *   protocol  0; or IPPROTO_TCP or IPPROTO_UDP, as the type has it.
 *
 * Returns: the descriptor, which the caller closes with rclose; or -1 and errno.
 * Errors:
 *   ENOTSUP  domain, type or protocol is another.
 *   EMFILE   The process has no descriptor left.
 *   ENFILE   The system has no descriptor left.
 * See socket(2).
 */
int rsocket(int domain, int type, int protocol);

/**
 * Gives an rsocket a local address. The port stays the kernel's: other sockets of TCP, or UDP, cannot have
 * it.
 *
 * Errors:
 *   EADDRINUSE  Another socket has the port.
 * See bind(2).
 */
int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen);

/**
 * Lets others connect to an rsocket: on the device that serves its address, or at a wildcard address on all
 * of the machine's (librsocket(7)).
 *
 *   backlog  How many connections may wait for raccept.
 *
 * Errors:
 *   EADDRNOTAVAIL  No RDMA device serves the address.
 *   EOPNOTSUPP     socket is of type SOCK_DGRAM.
 *   EINVAL         socket is connected.
 * See listen(2).
 */
int rlisten(int socket, int backlog);

/**
 * Takes the next connection of an rsocket that listens, and answers its peer. The new rsocket has the
 * listener's options, and blocks.
 *
 * On the soft device the call also gives clients of TCP that speak no rsockets: the first use of the new
 * rsocket fails. A peer whose request comes later than its connection is answered in the next call of the
 * library that uses the new rsocket, or in which this thread waits. In a program that asks for support of
 * fork(2) (RDMAV_FORK_SAFE, librsocket(7)), the first use of the new rsocket answers.
 *
 * Blocks: until there is a connection.
 * Returns: the descriptor of the new rsocket, which the caller closes with rclose; or -1 and errno.
 * See accept(2).
 */
int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen);

/**
 * Connects an rsocket. After a failure it may connect again.
 *
 * An rsocket of type SOCK_DGRAM then sends to that address, and receives only from it. The call sends
 * nothing. An address of the family AF_UNSPEC undoes that.
 *
 * A stream is connected when the program of the peer has taken it with raccept.
 *
 * On an rsocket that does not block, the call fails with EINPROGRESS. The rsocket is ready for POLLOUT when
 * it is connected, and has POLLERR when it could not connect; SO_ERROR, the next rconnect or the next receive
 * tells why.
 *
 * Blocks: until the peer answers.
 * Errors:
 *   ECONNREFUSED   No rsocket listens there, or the peer refused.
 *   ETIMEDOUT      The peer did not answer; the soft device waits for 10 seconds.
 *   ECONNRESET     The peer closed the connection and did not answer: it is no rsocket, for instance.
 *   EPROTO         The peer answered in another protocol: it is no rsocket.
 *   ENOTSUP        The peer speaks another version of this protocol.
 *   EADDRNOTAVAIL  No RDMA device serves the local address.
 *   ENOBUFS        The device has no more queues, or no more memory to register.
 *   ENOMEM         There is no memory.
 * See connect(2).
 */
int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen);

/**
 * Ends one direction of a stream, or both. The peer reads the bytes that were sent before, then the end of
 * the stream. The call does not wait for that.
 *
 * See shutdown(2).
 */
int rshutdown(int socket, int how);

/**
 * Closes an rsocket. Bytes that were sent still go to the peer, and the end of the stream after them.
 *
 * With SO_LINGER the call waits until the peer has everything, but no longer than the option says. With 0
 * seconds it cuts the stream off, and the peer gets ECONNRESET. The end of the process (exit(3)) closes the
 * rsockets that are open, and waits up to two seconds until their bytes have left.
 *
 * The memory that the program has mapped (riomap) is its own again when the call succeeds. When it fails with
 * EBUSY the rsocket is shut down in both directions, and stays until a later call succeeds.
 *
 * Blocks: with SO_LINGER, as long as the option says; where memory is mapped, a second or two for the peer's
 * process on this host.
 * Errors:
 *   EBUSY  The peer's process on this host has begun to write into mapped memory, and does not go on
 *          (rpma_mr_dereg(3)). No write begins any more. A later call tries again.
 * See close(2).
 */
int rclose(int socket);

/* ================================================================ bytes ==== */

/*
 * Datagrams (SOCK_DGRAM). A send is one message, and a receive takes one; a receive cuts off what does not
 * fit into its buffers (MSG_TRUNC). A message has at most 2032 bytes over IPv4, 2020 over IPv6; a longer one
 * fails with EMSGSIZE. Messages get lost, and may come in another order, as over UDP. UDP carries those that
 * no queue pair of both ends does (librsocket(7)). A receive takes the flags MSG_DONTWAIT, MSG_PEEK and
 * MSG_TRUNC, a send MSG_DONTWAIT, MSG_NOSIGNAL and MSG_CONFIRM.
 *
 * Streams. A receive takes the flags MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL and MSG_TRUNC (which drops the
 * bytes), a send MSG_DONTWAIT. A receive with MSG_PEEK | MSG_TRUNC copies nothing and tells how many bytes
 * there are, as FIONREAD does; there is no ioctl. MSG_NOSIGNAL and MSG_MORE are allowed and change nothing:
 * there is no signal, and a send goes at once.
 *
 * A stream that broke fails with ECONNRESET when its peer is gone, ETIMEDOUT when the peer is silent, and
 * EPROTO when the peer broke the protocol; a receive first gives the bytes that had come. After an end that
 * the peer has announced, a receive gives 0 bytes. When a send returns, the program may change the bytes; the
 * peer may not have them yet.
 *
 * Errors:
 *   EOPNOTSUPP  flags has MSG_OOB, MSG_ERRQUEUE or MSG_FASTOPEN, or, of datagrams, MSG_MORE or MSG_DONTROUTE;
 *               or there is control data to be sent. A receive gives no control data.
 */

/**
 * Receives bytes, as many as there are; with MSG_WAITALL, all of them. When that wait ends early, by a signal
 * or by SO_RCVTIMEO, the call gives the bytes that have come.
 *
 * Blocks: until the first byte is there; with MSG_WAITALL, until all are.
 * Returns: how many bytes; 0 at the end of the stream; or -1 and errno.
 * Errors:
 *   EAGAIN    There is none now.
 *   ENOTCONN  There was no connection.
 * See recv(2).
 */
ssize_t rrecv(int socket, void *buf, size_t len, int flags);

/**
 * Receives bytes as rrecv does, and stores the address that a message came from.
 *
 *   addrlen  *addrlen becomes 0 for a stream, where no byte comes with an address.
 *
 * Blocks: as rrecv does.
 * Returns: what rrecv returns.
 * See recvfrom(2).
 */
ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
                  socklen_t *addrlen);

/**
 * Receives bytes into several buffers, as rrecvfrom does, with the same errors.
 *
 *   msg  msg_control receives nothing.
 *
 * Blocks: as rrecv does.
 * Returns: what rrecv returns.
 * See recvmsg(2).
 */
ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags);

/**
 * Sends bytes. An rsocket that blocks sends all of them. The program may change them when the call returns.
 *
 * Blocks: until the peer has made room for all bytes.
 * Returns: how many bytes; or -1 and errno.
 * Errors:
 *   EPIPE  The stream has ended in this direction.
 * See send(2).
 */
ssize_t rsend(int socket, const void *buf, size_t len, int flags);

/**
 * Sends bytes as rsend does, and a message to the address that is given; a stream ignores the address.
 *
 * Blocks: as rsend does.
 * Returns: what rsend returns.
 * Errors:
 *   EDESTADDRREQ  The message has no address.
 * See sendto(2).
 */
ssize_t rsendto(int socket, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr,
                socklen_t addrlen);

/**
 * Sends the bytes of several buffers, as rsendto does.
 *
 * Blocks: as rsend does.
 * Returns: what rsend returns.
 * See sendmsg(2).
 */
ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags);

/**
 * Receives bytes as rrecv does without flags.
 *
 * Blocks: as rrecv does.
 * Returns: what rrecv returns.
 * See read(2).
 */
ssize_t rread(int socket, void *buf, size_t count);

/**
 * Receives bytes into several buffers, as rrecv does without flags.
 *
 * Blocks: as rrecv does.
 * Returns: what rrecv returns.
 * Errors:
 *   EINVAL  iovcnt is negative, or more than IOV_MAX.
 * See readv(2).
 */
ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt);

/**
 * Sends bytes as rsend does without flags.
 *
 * Blocks: as rsend does.
 * Returns: what rsend returns.
 * See write(2).
 */
ssize_t rwrite(int socket, const void *buf, size_t count);

/**
 * Sends the bytes of several buffers, as rsend does without flags.
 *
 * Blocks: as rsend does.
 * Returns: what rsend returns.
 * Errors:
 *   EINVAL  iovcnt is negative, or more than IOV_MAX.
 * See writev(2).
 */
ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt);

/* ================================================================ direct placement ==== */

/*
 * A program gives its peer the right to write into memory of its own, and the peer does so without any call
 * of the program. Each direction of a stream does this by itself, or both do.
 *
 * Before the stream begins, the peer says with RDMA_IOMAPSIZE how many mappings it may know. The peer knows a
 * mapping when it has received anything that was sent after riomap. The owner has the bytes of riowrite when
 * it has received anything that was sent after riowrite.
 *
 * The memory stays the program's, which may read it at any time, and keeps it until riounmap or rclose. A
 * stream that broke gives the errors of rsend.
 */

/**
 * Maps memory for the other end of a stream. The peer writes there with riowrite. On the soft device no other
 * peer can write there; a device of the kernel lets every peer write that knows address and key.
 *
 * The program may map memory several times; where mappings overlap, the peer writes to the youngest.
 *
 *   buf     Where the memory begins. It stays the caller's until riounmap or rclose.
 *   len     In bytes, above 0; with PROT_WRITE at most 4 GiB - 1.
 *   prot    PROT_WRITE; or PROT_NONE, which registers the memory with the device and tells the peer nothing.
 *   flags   Not used.
 *   offset  The number by which the peer knows the first byte; -1 stands for the address.
 *
 * Blocks: on an rsocket that has just been accepted, until the connection is complete; for a second at most
 * where the rsocket does not block.
 * Returns: the offset; or -1 and errno.
 * Errors:
 *   ENOMEM      The peer has no place for another mapping (RDMA_IOMAPSIZE), or there is no memory.
 *   EINVAL      prot is another, buf is NULL, len is out of range, or offset is less than -1 or too large for
 *               the last byte to have one.
 *   EFAULT      The device cannot register the memory, for instance because this process may only read it;
 *               the log says why.
 *   EAGAIN      The rsocket does not block, and the peer has said nothing for a second.
 *   ENOTCONN    There is no connection.
 *   EPIPE       The stream has ended in the direction of sending.
 *   EOPNOTSUPP  socket is of type SOCK_DGRAM.
 */
off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset);

/**
 * Ends the oldest mapping of exactly these bytes. No byte of the peer comes there after this call, unless it
 * fails with EBUSY.
 *
 * The library tells the peer, whose riowrite there then fails with ENXIO; the call does not wait for the
 * peer. When the peer writes before it knows, its bytes are dropped and the stream breaks, with ECONNRESET at
 * both ends. librdmacm's rsockets learn of the end of a mapping only by that.
 *
 *   len  In bytes.
 *
 * Errors:
 *   EBUSY       The peer's process on this host has begun to write, and does not go on (rpma_mr_dereg(3)). No
 *               write begins any more. A later call tries again.
 *   EINVAL      There is no such mapping.
 *   EOPNOTSUPP  socket is of type SOCK_DGRAM.
 */
int riounmap(int socket, void *buf, size_t len);

/**
 * Writes to memory that the peer has mapped (riomap). Nothing tells the peer; it has the bytes in its memory
 * before it receives any byte that is sent later. When the call returns, the program may change the bytes at
 * buf.
 *
 * The call goes on where another mapping follows on the first, and ends early where nothing is mapped. On an
 * rsocket that blocks, it writes all other bytes.
 *
 *   count   In bytes.
 *   offset  The number by which the peer knows the first byte.
 *   flags   Those of rsend.
 *
 * Blocks: until the device has taken the bytes, and, when the peer is to be told of mappings first, until it
 * is. It waits neither for the peer's program nor for room in the stream otherwise.
 * Returns: how many bytes; or (size_t)-1 and errno.
 * Errors:
 *   ENXIO       Nothing is mapped at offset.
 *   EINVAL      offset is negative.
 *   EAGAIN      The rsocket does not block, and there is no room now.
 *   EPIPE       The stream has ended in the direction of sending.
 *   ENOTCONN    There is no connection.
 *   EOPNOTSUPP  flags has what rsend refuses, or socket is of type SOCK_DGRAM.
 */
size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags);

/* ================================================================ waiting ==== */

/**
 * Waits for rsockets and other descriptors together.
 *
 *   timeout  In milliseconds. A negative number stands for no limit.
 *
 * Blocks: until a descriptor has something, or the time is over.
 * Returns: how many entries have something; 0 when the time is over; or -1 and errno.
 * See poll(2).
 */
int rpoll(struct pollfd *fds, nfds_t nfds, int timeout);

/**
 * Waits as rpoll does, with sets of descriptors.
 *
 *   nfds     It may be more than FD_SETSIZE where the sets have so many numbers.
 *   timeout  *timeout becomes the time that is left of it. NULL stands for no limit.
 *
 * Blocks: until a descriptor has something, or the time is over.
 * Returns: how many descriptors are in the sets; 0 when the time is over; or -1 and errno.
 * Errors:
 *   EBADF  A set has a descriptor that is not open.
 * See select(2).
 */
int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout);

/* ---------------------------------------------------------------- repoll ---- */

/*
 * A repoll is a set of rsockets of any type and other descriptors, for which a program waits together, as
 * with epoll(7). A wait costs what is ready, not what is in the set. Level and edge trigger, EPOLLONESHOT,
 * EPOLLEXCLUSIVE and EPOLLRDHUP are each member's own. With edge trigger an event may come more often than a
 * socket becomes ready, as with epoll; it comes again when more bytes arrive. rclose takes an rsocket out.
 *
 * Another loop may wait for the descriptor of a repoll, by poll(2), epoll(7) or rpoll. The descriptor is
 * readable when repoll_wait with a timeout of 0 gives something, or has to take the device further and may
 * give 0. That holds until a repoll_wait sleeps, and again after the next with a timeout of 0.
 *
 * Errors:
 *   EINVAL      epfd is open and not from repoll_create.
 *   ECONNRESET  epfd is from the process that forked this one.
 *   EBADF       epfd is not open.
 */

/**
 * Makes an empty repoll, which takes three descriptors.
 *
 * The caller closes it with rclose, with or without members; threads that wait for it then fail with EBADF.
 *
 *   flags  0 or EPOLL_CLOEXEC.
 *
 * Returns: its descriptor; or -1 and errno.
 * Errors:
 *   EINVAL  flags is something else.
 *   EMFILE  The process has no descriptors left.
 *   ENFILE  The system has no descriptors left.
 * See epoll_create(2).
 */
int repoll_create(int flags);

/**
 * Puts a descriptor into a repoll (EPOLL_CTL_ADD), changes its events, which also arms a one-shot anew
 * (EPOLL_CTL_MOD), or takes it out (EPOLL_CTL_DEL).
 *
 *   fd     An rsocket, or what epoll takes.
 *   event  EPOLL_CTL_DEL does not read it.
 *
 * Errors:
 *   EBADF   fd is not open.
 *   EEXIST  fd is a member already.
 *   ENOENT  fd is no member.
 *   EINVAL  fd is epfd, there is no such op, or EPOLLEXCLUSIVE is with EPOLL_CTL_MOD or with what it
 *           excludes.
 *   EFAULT  event is NULL.
 *   EPERM   epoll does not take fd.
 *   ELOOP   fd is an epoll descriptor in a circle.
 *   ENOMEM  There is no memory.
 *   ENOSPC  The user has too many descriptors in epoll sets.
 *   EMFILE  The process has no descriptor left.
 * See epoll_ctl(2).
 */
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);

/**
 * Waits for members of a repoll. Any number of threads wait at once.
 *
 *   maxevents  How many entries events has, at least 1.
 *   timeout    In milliseconds. A negative number stands for no limit.
 *
 * Blocks: until a member has something, or the time is over.
 * Returns: how many events there are, at most maxevents; 0 when the time is over; or -1 and errno.
 * Errors:
 *   EINVAL  maxevents is not positive.
 *   EFAULT  events is NULL.
 *   EBADF   The repoll was closed meanwhile.
 *   EINTR   A signal was caught.
 *   EMFILE  The process has no descriptor for the first sleep of the thread.
 *   ENFILE  The system has no descriptor for the first sleep of the thread.
 * See epoll_wait(2).
 */
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* ================================================================ names and options ==== */

/**
 * Gets the other end's address and port.
 *
 * Errors:
 *   ENOTCONN  There is no other end.
 * See getpeername(2).
 */
int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen);

/**
 * Gets this end's address and port.
 *
 * See getsockname(2).
 */
int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen);

/**
 * Sets an option. Those of level SOL_RDMA are RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE and RDMA_IOMAPSIZE, each
 * an int.
 *
 * SO_RCVBUF and SO_SNDBUF are the stream's buffers, which are fixed when the stream begins: later they change
 * what is reported and nothing else. SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVLOWAT and SO_LINGER are the stream's.
 * All others are the TCP socket's (socket(7), tcp(7), ip(7), ipv6(7)) and have their effect there:
 * keep-alive, TCP_USER_TIMEOUT, TCP_CORK, SO_REUSEADDR, IPV6_V6ONLY. The soft device sets TCP_NODELAY unless
 * the program sets it.
 *
 * Errors:
 *   EINVAL       An option of SOL_RDMA is set, and the stream has begun, or the value is negative or too
 *                short.
 *   ENOPROTOOPT  There is no such option.
 * See setsockopt(2).
 */
int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen);

/**
 * Gets an option's value. The options are those of rsetsockopt. SO_ERROR tells once why rconnect failed, and
 * always why the stream is broken.
 *
 * Errors:
 *   ENOPROTOOPT  There is no such option.
 * See getsockopt(2).
 */
int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen);

/**
 * Gets and sets O_NONBLOCK (F_GETFL, F_SETFL), and the descriptor's flags (F_GETFD, F_SETFD).
 *
 * Returns: as fcntl; or -1 and errno.
 * Errors:
 *   EINVAL  cmd is another command.
 * See fcntl(2).
 */
int rfcntl(int socket, int cmd, ...);

#ifdef __cplusplus
}
#endif

#endif
