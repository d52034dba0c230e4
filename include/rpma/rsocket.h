/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rpma/rsocket.h -- sockets of the types SOCK_STREAM and SOCK_DGRAM whose bytes travel by RDMA. The
 * functions, their names and what they send are those of librdmacm's rsockets (rsocket(7)): a program that
 * was linked with librdmacm runs with this library, and either end of a connection may have either library.
 *
 * Errors. Every function behaves as the function of libc without the r. The errors in the man page of that
 * function are not repeated here.
 *
 * Descriptors. An rsocket's descriptor is a TCP socket, which the soft device uses, or, of type SOCK_DGRAM, a
 * UDP socket. Where a device of the kernel serves the local address, the TCP socket holds the number and the
 * port only (librsocket(7)). Only functions of this library may read, write, wait for or close it; names and
 * options are those of that socket, too. A descriptor of something else may be in rpoll, rselect and repoll,
 * beside rsockets.
 *
 * Signals. None is sent: what would raise SIGPIPE is EPIPE. No thread is made. The functions take locks, as
 * send(2) does not: a signal handler may call them where it has interrupted none of them, or one that sleeps;
 * otherwise it may wait without end for the call that it has interrupted.
 *
 * Blocking. As with sockets: a call waits unless O_NONBLOCK (rfcntl), SOCK_NONBLOCK or MSG_DONTWAIT says
 * otherwise. Waiting ends with EINTR when a signal was caught.
 *
 * Threads: any thread, and any number of threads at a time may use one rsocket.
 * Returns: 0; or -1 and errno.
 * Errors:
 *   EBADF  socket is no rsocket.
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

/* A level of rsetsockopt and rgetsockopt. All its options are an int. */
#define SOL_RDMA 0x10000

/* A program sets these before the stream begins: before rconnect, or before the first use of what raccept
 * gave. */
enum {
    RDMA_SQSIZE, /* messages that may be on their way, 1 to 65534 */
    RDMA_RQSIZE, /* messages of the peer that have a place, 1 to 65534; 16 are there at least */
    RDMA_INLINE, /* bytes of a message that has no copy in the send buffer, which the soft device has not */
    RDMA_IOMAPSIZE, /* mappings that the peer may have (riomap), 0 to 32512, above 128 in steps of 256 */
    RDMA_ROUTE,     /* a path of InfiniBand, which no stream here takes: ENOPROTOOPT */
    /* These are of this library alone. */
    RDMA_FALLBACK = 0x1000, /* 1, the default: a peer that does not speak RDMA has TCP; 0: it has an error */
    RDMA_MODE,              /* read only: one of RDMA_MODE_ */
    RDMA_MODE_REASON        /* read only: why it is TCP, one of RDMA_REASON_ */
};

/* The mode says by what way the bytes of an rsocket go. */
enum {
    RDMA_MODE_OPEN, /* it is not known yet, or there is no connection */
    RDMA_MODE_RDMA, /* a stream over an RDMA device */
    RDMA_MODE_TCP   /* TCP: every function works but riomap, riounmap and riowrite, which give EOPNOTSUPP */
};

/* Why an rsocket is TCP. */
enum {
    RDMA_REASON_NONE,            /* it is not */
    RDMA_REASON_PEER_SPEAKS_TCP, /* the peer sent, or answered, something else than a request, or closed */
    RDMA_REASON_SPOKE_FIRST,     /* our program sent, and the client had not asked for RDMA */
    RDMA_REASON_PEER_REFUSED,    /* the server refused our request */
    RDMA_REASON_PEER_SILENT,     /* the server did not answer our request for a second */
    RDMA_REASON_NOT_ASKED,       /* RS_PROBE says that the server is not asked */
    RDMA_REASON_REMEMBERED,      /* it is not asked, because it spoke TCP less than a minute ago */
    RDMA_REASON_ADOPTED          /* radopt: TCP had carried bytes of the program before */
};

/**
 * Makes an rsocket. domain: AF_INET or AF_INET6. type: SOCK_STREAM or SOCK_DGRAM, with SOCK_NONBLOCK and
 * SOCK_CLOEXEC. protocol: 0, or IPPROTO_TCP or IPPROTO_UDP as the type has it.
 *
 * Returns: the descriptor, which the caller closes with rclose; or -1 and errno.
 * Errors:
 *   ENOTSUP  Another domain, type or protocol. EMFILE, ENFILE: there is no descriptor left.
 * See socket(2).
 */
int rsocket(int domain, int type, int protocol);

/**
 * Gives an rsocket a local address. The port stays the kernel's: other sockets of TCP, or UDP, cannot have
 * it.
 *
 * Errors:
 *   EADDRINUSE  Somebody has the port.
 * See bind(2).
 */
int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen);

/**
 * Lets others connect to an rsocket: on the device that serves its address, or at a wildcard address on all
 * of the machine's (librsocket(7)). As many connections as backlog says wait for raccept.
 *
 * Errors:
 *   EADDRNOTAVAIL  No RDMA device serves the address.
 *   EOPNOTSUPP     socket is of type SOCK_DGRAM.
 *   EINVAL         socket is connected.
 * See listen(2).
 */
int rlisten(int socket, int backlog);

/**
 * Takes the next connection of an rsocket that listens. The peer is answered when the new rsocket is first
 * read, written or waited for, so that options can be set before; or when a later raccept of the same
 * listener waits. What the peer has sent first decides then whether the rsocket is a stream over RDMA or
 * stays TCP (RDMA_FALLBACK, librsocket(7)). On a device of the kernel it is answered at once. The new rsocket
 * has the listener's options, and blocks.
 *
 * Returns: its descriptor; or -1 and errno.
 * See accept(2).
 */
int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen);

/**
 * Connects an rsocket. One of type SOCK_DGRAM sends to that address from here on, and hears it alone; nothing
 * is sent, and AF_UNSPEC takes the address back. A stream asks the peer for RDMA, and waits for the answer;
 * over the soft device the peer answers when its program uses what it accepted. A peer that does not answer
 * within a second is waited for no longer: what the program sends is kept, up to SO_SNDBUF, until it is known
 * whether the peer takes it by RDMA or by TCP (RDMA_FALLBACK, RS_PROBE, librsocket(7)). With RDMA_FALLBACK 0
 * the call waits for the answer. An rsocket that does not block gives EINPROGRESS, and is ready for POLLOUT
 * when it is connected, or with POLLERR when it is not; SO_ERROR, the next rconnect or the next receive tells
 * why. After a failure it may connect again.
 *
 * Errors:
 *   ECONNREFUSED   Nobody listens there, or the peer said no.
 *   ETIMEDOUT      There was no answer, which the soft device awaits for 10 seconds.
 *   ECONNRESET     The peer closed instead.
 *   EPROTO         It answered in another protocol.
 *   ENOTSUP        It speaks another version of this one.
 *   EADDRNOTAVAIL  No RDMA device serves the local address.
 *   ENOBUFS        The device has no more queues or memory to register.
 *   ENOMEM         there is no memory.
 * See connect(2).
 */
int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen);

/**
 * Makes an rsocket of a TCP socket that this process got by exec, by SCM_RIGHTS or from socket(2), and that
 * is no rsocket here. A socket that listens, also one of rlisten in another process, then gives connections
 * by raccept. A connected one is what raccept gives, whose peer is answered at its first use; but one that
 * has been read or written carries TCP, and does so further (RDMA_REASON_ADOPTED), with its own O_NONBLOCK.
 * An rsocket of another process waits in its calls, or does not, as it did there (rfcntl); another socket
 * does as O_NONBLOCK says. They have the settings of a new rsocket. O_NONBLOCK of the kernel's socket becomes
 * set, also for other processes that have it. The caller closes it with rclose from then on. Where a device
 * of the kernel serves the address, only the soft device serves it.
 *
 * Returns: 0; or -1 and errno.
 * Errors:
 *   EEXIST      fd is an rsocket already. ENOTSOCK, ENOTSUP: it is no socket, or none of TCP.
 *   ECONNRESET  It carries, or has asked for, a stream, which is another process's.
 */
int radopt(int fd);

/**
 * Ends one direction of a stream, or both. The peer reads what was sent before, then the end of the stream.
 * The call does not wait.
 *
 * See shutdown(2).
 */
int rshutdown(int socket, int how);

/**
 * Closes an rsocket, and waits for nothing: what was sent goes on to the peer, and the end of the stream
 * behind it. Only what was sent to a peer that has not answered is waited for, two seconds at most. With
 * SO_LINGER the call waits until the peer has all of it, but no longer than the option says; with 0 seconds
 * it cuts the stream off, and the peer gets ECONNRESET. The end of the process (exit(3)) closes what is open,
 * and waits up to two seconds for what was sent.
 *
 * See close(2).
 */
int rclose(int socket);

/* ================================================================ bytes ==== */

/*
 * Datagrams (SOCK_DGRAM). A send is one message, and a receive takes one: what does not fit into the buffers
 * is cut off (MSG_TRUNC). A message has at most 2032 bytes over IPv4, 2020 over IPv6; a longer one is
 * EMSGSIZE. Messages get lost, and may come in another order, as over UDP, which carries those that no queue
 * pair of both ends does (librsocket(7)). Flags: MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC of receives, MSG_DONTWAIT,
 * MSG_NOSIGNAL, MSG_CONFIRM of sends.
 *
 * A stream that broke is ECONNRESET when its peer is gone, ETIMEDOUT when it is silent, EPROTO when it sent
 * what the protocol does not allow; a receive first gives what had come. An end that the peer has announced
 * is 0 bytes. When a send returns, the program may change the bytes; the peer may not have them yet.
 *
 * Flags of a stream: MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, MSG_TRUNC (the bytes are dropped) of receives,
 * MSG_DONTWAIT of sends. A receive with MSG_PEEK | MSG_TRUNC copies nothing and tells how many bytes there
 * are, as FIONREAD does; there is no ioctl. MSG_NOSIGNAL and MSG_MORE are allowed and change nothing: there
 * is no signal, and what is sent goes at once. EOPNOTSUPP: MSG_OOB, MSG_ERRQUEUE, MSG_FASTOPEN, of datagrams
 * MSG_MORE and MSG_DONTROUTE too, and control data to be sent; none is received.
 */

/**
 * Receives bytes, as many as there are; it waits for the first, and with MSG_WAITALL for all. When that wait
 * ends early, by a signal or by SO_RCVTIMEO, the bytes that have come are given.
 *
 * Returns: how many; 0 at the end of the stream; or -1 and errno.
 * Errors:
 *   EAGAIN    there is none now.
 *   ENOTCONN  There was no connection.
 * See recv(2).
 */
ssize_t rrecv(int socket, void *buf, size_t len, int flags);

/**
 * Receives bytes as rrecv, and stores the address that a message came from. A stream does not say from whom
 * each byte is: *addrlen becomes 0.
 *
 * Returns: as rrecv.
 * See recvfrom(2).
 */
ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
                  socklen_t *addrlen);

/**
 * Receives bytes into several buffers, as rrecvfrom: it waits as that does, and errors are the same.
 * msg_control receives nothing.
 *
 * Returns: as rrecv.
 * See recvmsg(2).
 */
ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags);

/**
 * Sends bytes; an rsocket that blocks sends all of them, and waits for the peer to make room. They may be
 * changed when it returns.
 *
 * Returns: how many; or -1 and errno, EPIPE after the end of the stream in this direction.
 * See send(2).
 */
ssize_t rsend(int socket, const void *buf, size_t len, int flags);

/**
 * Sends bytes as rsend, and a message to the address that is given; a stream ignores the address.
 *
 * Returns: as rsend; or -1 and errno, EDESTADDRREQ: a message to no address.
 * See sendto(2).
 */
ssize_t rsendto(int socket, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr,
                socklen_t addrlen);

/**
 * Sends the bytes of several buffers, as rsendto, and waits as that does.
 *
 * Returns: as rsend.
 * See sendmsg(2).
 */
ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags);

/**
 * Receives bytes as rrecv without flags, and waits as that does.
 *
 * Returns: as rrecv.
 * See read(2).
 */
ssize_t rread(int socket, void *buf, size_t count);

/**
 * Receives bytes into several buffers, as rrecv without flags, and waits as that does.
 *
 * Returns: as rrecv.
 * Errors:
 *   EINVAL  iovcnt is negative, or more than IOV_MAX.
 * See readv(2).
 */
ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt);

/**
 * Sends bytes as rsend without flags, and waits as that does.
 *
 * Returns: as rsend.
 * See write(2).
 */
ssize_t rwrite(int socket, const void *buf, size_t count);

/**
 * Sends the bytes of several buffers, as rsend without flags, and waits as that does.
 *
 * Returns: as rsend.
 * Errors:
 *   EINVAL  iovcnt is negative, or more than IOV_MAX.
 * See writev(2).
 */
ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt);

/* ================================================================ direct placement ==== */

/*
 * A program gives its peer the right to write into memory of its own, and the peer does so without any call
 * of the program. Each direction of a stream does this by itself, or both do. First the peer says with
 * RDMA_IOMAPSIZE how many mappings it may know, before the stream begins. What was mapped is known to the
 * peer when it has received anything that was sent later. What was written is in the memory when its owner
 * has received anything that was sent later. The memory stays the program's, which may read it at any time,
 * and keeps it until riounmap or rclose. A stream that broke gives the errors of rsend.
 */

/**
 * Maps memory for the other end of a stream: len bytes at buf. The peer writes there with riowrite and knows
 * the first byte as offset; -1 stands for the address. prot: PROT_WRITE; or PROT_NONE, which registers the
 * memory with the device and does nothing else: the peer is told nothing. flags is not used. Nobody but the
 * peer of this stream can write there, where the device is the soft one; a device of the kernel lets every
 * peer write that knows address and key. Memory may be mapped several times, and where mappings overlap the
 * peer writes to the youngest. On an rsocket that has just been accepted it waits for the peer's request to
 * connect, as the first send does.
 *
 * Returns: the offset; or -1 and errno.
 * Errors:
 *   ENOMEM      The peer has no place for another mapping (RDMA_IOMAPSIZE), or there is no memory.
 *   EINVAL      Another prot, buf is NULL, len is 0 or, with PROT_WRITE, more than 4 GiB - 1; offset is less
 *               than -1, or too large for the last byte to have one.
 *   EFAULT      The device cannot register the memory, for instance because this process may only read it,
 *               and the log says why.
 *   EAGAIN      The rsocket does not block, and the peer has said nothing for a second.
 *   ENOTCONN    there is no connection.
 *   EPIPE       The stream has ended in the direction of sending.
 *   EOPNOTSUPP  socket is of type SOCK_DGRAM, or its connection is TCP.
 */
off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset);

/**
 * Ends the oldest mapping of exactly the len bytes at buf. No byte of the peer comes there after this call.
 * The peer is told: its riowrite there fails with ENXIO. If it writes before it knows, its bytes go nowhere
 * and the stream breaks; librdmacm's rsockets do not know until then. It does not wait for the peer.
 *
 * Returns: 0; or -1 and errno.
 * Errors:
 *   EINVAL      there is no such mapping.
 *   EOPNOTSUPP  socket is of type SOCK_DGRAM, or its connection is TCP.
 */
int riounmap(int socket, void *buf, size_t len);

/**
 * Writes count bytes at buf to what the peer has mapped (riomap), from the byte that it calls offset on. The
 * peer is not told; it has the bytes in its memory before it receives what is sent later. It goes on where
 * another mapping follows on the first, and ends early where nothing is mapped. An rsocket that blocks writes
 * all else; it waits for the device, and neither for the peer's program nor for room in the stream, unless
 * the peer is to be told of mappings first. That it is done says that the bytes at buf may be changed. flags:
 * as of rsend.
 *
 * Returns: how many bytes; or (size_t)-1 and errno.
 * Errors:
 *   ENXIO       nothing is mapped at offset.
 *   EINVAL      offset is negative.
 *   EAGAIN      It does not block, and there is no room now.
 *   EPIPE       The stream has ended in the direction of sending.
 *   ENOTCONN    there is no connection.
 *   EOPNOTSUPP  Flags has what rsend refuses, socket is of type SOCK_DGRAM, or its connection is TCP.
 */
size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags);

/* ================================================================ waiting ==== */

/**
 * Waits for rsockets and other descriptors together; timeout is in milliseconds, negative: without end.
 *
 * Returns: how many entries have something; 0 when the time is over; or -1 and errno.
 * See poll(2).
 */
int rpoll(struct pollfd *fds, nfds_t nfds, int timeout);

/**
 * Waits as rpoll, with sets of descriptors; *timeout becomes what is left of it. nfds may be more than
 * FD_SETSIZE where the sets have so many numbers.
 *
 * Returns: how many descriptors are in the sets; 0 when the time is over; or -1 and errno, EBADF for a
 * descriptor that is not open.
 * See select(2).
 */
int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout);

/*
 * repoll: a set of rsockets of any type and other descriptors that a program waits for together, as epoll(7).
 * A wait costs what is ready, not what is in the set. Level and edge trigger, EPOLLONESHOT, EPOLLEXCLUSIVE
 * and EPOLLRDHUP are each member's own. With edge trigger an event may come more often than a socket becomes
 * ready, as with epoll; it comes again when more bytes arrive. rclose takes an rsocket out. What raccept gave
 * answers its peer when it is put in.
 *
 * Another loop may wait for the descriptor of a repoll, by poll(2), epoll(7) or rpoll: it is readable when
 * repoll_wait(epfd, events, n, 0) gives something, or has to take the device further and may give 0. That
 * holds until a repoll_wait sleeps, and again after the next with a timeout of 0.
 *
 * Errors of these: EINVAL: epfd is open and not from repoll_create. ECONNRESET: epfd is from the process that
 * forked this one. EBADF: epfd is not open.
 */

/**
 * Makes an empty repoll. flags: 0 or EPOLL_CLOEXEC. It takes three descriptors.
 *
 * Returns: its descriptor, which the caller closes with rclose, with or without members; threads that wait
 * for it fail with EBADF then. Or -1 and errno: EINVAL: other flags. EMFILE, ENFILE: there are no descriptors
 * left.
 * See epoll_create(2).
 */
int repoll_create(int flags);

/**
 * Puts fd into a repoll (EPOLL_CTL_ADD), changes what it is asked for, which also arms a one-shot anew
 * (EPOLL_CTL_MOD), or takes it out (EPOLL_CTL_DEL; event is not read). fd: an rsocket, or what epoll takes.
 * It does not wait.
 *
 * Errors:
 *   EBADF   fd is not open.
 *   EEXIST  it is a member.
 *   ENOENT  it is none.
 *   EINVAL  fd is epfd, there is no such op, or EPOLLEXCLUSIVE is with EPOLL_CTL_MOD or with what it
 *           excludes.
 *   EFAULT  event is NULL.
 *   EPERM   Epoll does not take fd.
 *   ELOOP   fd is an epoll descriptor in a circle. ENOMEM, ENOSPC, EMFILE.
 * See epoll_ctl(2).
 */
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);

/**
 * Waits for members of a repoll; timeout is in milliseconds, negative: without end. Any number of threads
 * wait at once.
 *
 * Returns: how many events there are, at most maxevents; 0 when the time is over; or -1 and errno.
 * Errors:
 *   EINVAL  maxevents is not positive.
 *   EFAULT  events is NULL.
 *   EBADF   The repoll was closed meanwhile.
 *   EINTR   A signal was caught. EMFILE, ENFILE: no descriptor for the first sleep of the thread.
 * See epoll_wait(2).
 */
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* ================================================================ names and options ==== */

/**
 * Gives the other end's address and port.
 *
 * Errors:
 *   ENOTCONN  there is no other end.
 * See getpeername(2).
 */
int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen);

/**
 * Gives this end's address and port.
 *
 * See getsockname(2).
 */
int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen);

/**
 * Sets an option. Those of level SOL_RDMA are RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE, RDMA_IOMAPSIZE and
 * RDMA_FALLBACK, each an int. SO_RCVBUF and SO_SNDBUF are the stream's buffers, fixed when the stream begins:
 * later they change what is reported and nothing else. SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVLOWAT and SO_LINGER
 * are the stream's. All others are the TCP socket's (socket(7), tcp(7), ip(7), ipv6(7)), and do there what
 * they do: keep-alive, TCP_USER_TIMEOUT, TCP_CORK, SO_REUSEADDR, IPV6_V6ONLY. The soft device sets
 * TCP_NODELAY unless the program sets it. Where an rsocket is TCP, all are the TCP socket's.
 *
 * Errors:
 *   EINVAL       An option of SOL_RDMA, and the stream has begun or the rsocket is TCP, or the value is
 *                negative or too short.
 *   ENOPROTOOPT  there is no such option.
 * See setsockopt(2).
 */
int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen);

/**
 * Gives an option's value, as rsetsockopt has them, and RDMA_MODE and RDMA_MODE_REASON: what carries the
 * bytes, and why. SO_ERROR tells why rconnect failed, once, or why the stream is broken, always.
 *
 * Errors:
 *   ENOPROTOOPT  there is no such option.
 * See getsockopt(2).
 */
int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen);

/**
 * Gets and sets O_NONBLOCK (F_GETFL, F_SETFL), and the descriptor's flags (F_GETFD, F_SETFD).
 *
 * Returns: as fcntl; or -1 and errno, EINVAL for other commands.
 * See fcntl(2).
 */
int rfcntl(int socket, int cmd, ...);

#ifdef __cplusplus
}
#endif

#endif
