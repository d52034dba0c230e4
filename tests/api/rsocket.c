/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket: tests streams between two rsockets of this process, with a process that is
 * killed, and with peers that are no rsockets. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <librpma.h>
#include <rpma/rsocket.h>

#include "test.h"

/* These come last, because they assert. */
#include "../sockets.h"
#include "rsockets.h"

static int make_ends(void **state) {
    static int fds[2];
    make_pair(fds);
    *state = fds;
    return 0;
}

static int close_ends(void **state) {
    const int *const fds = *state;
    for (int i = 0; i < 2; ++i) {
        if (fds[i] >= 0) {
            assert_int_equal(rclose(fds[i]), 0);
        }
    }
    return 0;
}

static void what_is_no_rsocket(void **state) {
    (void)state;
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct sockaddr_in address = loopback_at(1);
    socklen_t size = sizeof(address);
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    const int none[] = {fds[0], -1, 1 << 20};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); ++i) {
        const int fd = none[i];
        assert_fails(rclose(fd), EBADF);
        assert_fails(rbind(fd, (struct sockaddr *)&address, size), EBADF);
        assert_fails(rlisten(fd, 1), EBADF);
        assert_fails(raccept(fd, NULL, NULL), EBADF);
        assert_fails(rconnect(fd, (struct sockaddr *)&address, size), EBADF);
        assert_fails(rshutdown(fd, SHUT_WR), EBADF);
        assert_fails(rrecv(fd, &byte, 1, 0), EBADF);
        assert_fails(rread(fd, &byte, 1), EBADF);
        assert_fails(rreadv(fd, &part, 1), EBADF);
        assert_fails(rrecvfrom(fd, &byte, 1, 0, NULL, NULL), EBADF);
        assert_fails(rrecvmsg(fd, &message, 0), EBADF);
        assert_fails(rsend(fd, &byte, 1, 0), EBADF);
        assert_fails(rwrite(fd, &byte, 1), EBADF);
        assert_fails(rwritev(fd, &part, 1), EBADF);
        assert_fails(rsendto(fd, &byte, 1, 0, NULL, 0), EBADF);
        assert_fails(rsendmsg(fd, &message, 0), EBADF);
        assert_fails(rgetpeername(fd, (struct sockaddr *)&address, &size), EBADF);
        assert_fails(rgetsockname(fd, (struct sockaddr *)&address, &size), EBADF);
        assert_fails(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &byte, &size), EBADF);
        assert_fails(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &byte, 1), EBADF);
        assert_fails(rfcntl(fd, F_GETFL), EBADF);
    }
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
    assert_fails(rsocket(AF_UNIX, SOCK_STREAM, 0), ENOTSUP);
    assert_fails(rsocket(AF_INET, SOCK_RAW, 0), ENOTSUP);
    assert_fails(rsocket(AF_INET, SOCK_DGRAM, IPPROTO_TCP), ENOTSUP);
    assert_fails(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), ENOTSUP);
}

/* Returns the value of byte number i. */
static unsigned char at(size_t i) {
    return (unsigned char)(i * 7 + (i >> 8) + (i >> 16));
}

/* There are many times more bytes than the buffers hold, and the two sides use pieces of different sizes. */
static void a_megabyte_each_way(void **state) {
    const int *const fds = *state;
    enum { TOTAL = 1 << 20, MOST = 200000 };
    unsigned char *const bytes = malloc(MOST);
    size_t sent[2] = {0, 0};
    size_t received[2] = {0, 0};
    unsigned pace = 1;
    while (received[0] < TOTAL || received[1] < TOTAL) {
        for (int i = 0; i < 2; ++i) {
            pace = pace * 1103515245 + 12345;
            size_t size = pace % 3 == 0 ? pace % 100 : pace % MOST;
            size = size < TOTAL - sent[i] ? size : TOTAL - sent[i];
            for (size_t k = 0; k < size; ++k) {
                bytes[k] = at(sent[i] + k);
            }
            const ssize_t put = rsend(fds[i], bytes, size, MSG_DONTWAIT);
            assert_true(put >= 0 || errno == EAGAIN);
            sent[i] += put > 0 ? (size_t)put : 0;
            const ssize_t got = rrecv(fds[1 - i], bytes, 1 + (pace >> 8) % MOST, MSG_DONTWAIT);
            assert_true(got > 0 || errno == EAGAIN);
            for (ssize_t k = 0; k < got; ++k) {
                assert_int_equal(bytes[k], at(received[i] + (size_t)k));
            }
            received[i] += got > 0 ? (size_t)got : 0;
        }
    }
    free(bytes);
}

static void each_direction_ends_by_itself(void **state) {
    int *const fds = *state;
    char bytes[8];
    assert_int_equal(rsend(fds[0], "ask", 3, 0), 3);
    assert_int_equal(rshutdown(fds[0], SHUT_WR), 0);
    assert_fails(rsend(fds[0], "more", 4, 0), EPIPE);
    assert_int_equal(rrecv(fds[1], bytes, sizeof(bytes), MSG_WAITALL), 3);
    assert_int_equal(rrecv(fds[1], bytes, sizeof(bytes), 0), 0);
    assert_int_equal(rsend(fds[1], "answer", 6, 0), 6);
    assert_int_equal(rclose(fds[1]), 0);
    fds[1] = -1;
    assert_int_equal(rrecv(fds[0], bytes, 6, MSG_WAITALL), 6);
    assert_memory_equal(bytes, "answer", 6);
    assert_int_equal(rrecv(fds[0], bytes, sizeof(bytes), 0), 0);
}

/* librdmacm's rrecvmsg loses the flags, and its rreadv fills the first part only. */
static void parts_and_flags_of_a_message(void **state) {
    const int *const fds = *state;
    char first[2];
    char second[8];
    struct iovec parts[2] = {{first, sizeof(first)}, {second, sizeof(second)}};
    struct sockaddr_in from;
    struct msghdr message = {
        .msg_iov = parts, .msg_iovlen = 2, .msg_name = &from, .msg_namelen = sizeof(from)};
    assert_fails(rrecvmsg(fds[1], &message, MSG_DONTWAIT), EAGAIN);
    struct iovec out[2] = {{"ab", 2}, {"cdef", 4}};
    const struct msghdr sent = {.msg_iov = out, .msg_iovlen = 2};
    assert_int_equal(rsendmsg(fds[0], &sent, MSG_NOSIGNAL), 6);
    assert_int_equal(rrecv(fds[1], second, 6, MSG_PEEK | MSG_WAITALL), 6);
    assert_int_equal(rrecvmsg(fds[1], &message, MSG_PEEK), 6);
    assert_int_equal(message.msg_namelen, 0);
    assert_int_equal(rreadv(fds[1], parts, 2), 6);
    assert_memory_equal(first, "ab", 2);
    assert_memory_equal(second, "cdef", 4);
    assert_int_equal(rwritev(fds[0], out, 2), 6);
    assert_int_equal(rrecv(fds[1], NULL, 4, MSG_TRUNC | MSG_WAITALL), 4);
    assert_int_equal(rread(fds[1], second, sizeof(second)), 2);
    assert_memory_equal(second, "ef", 2);
    assert_fails(rsend(fds[0], "x", 1, MSG_OOB), EOPNOTSUPP);
    assert_fails(rrecv(fds[0], second, 1, MSG_OOB), EOPNOTSUPP);
    assert_fails(rreadv(fds[0], parts, -1), EINVAL);
}

/* A message of any size takes a credit, so the peer may have no more credits long before the buffer is full.
 * A call that waits for more bytes then gets those that there are. */
static void credits_are_used_up_before_the_buffer_is_full(void **state) {
    const int *const fds = *state;
    enum { MORE = 1000, MOST = 20000 };
    char bytes[MOST + MORE];
    int sent = 0;
    while (sent < MOST && rsend(fds[0], "x", 1, MSG_DONTWAIT) == 1) {
        ++sent;
    }
    assert_true(sent < MOST);
    const struct timeval time = {.tv_sec = 10};
    const int more = sent + MORE;
    assert_int_equal(rsetsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)), 0);
    assert_int_equal(rrecv(fds[1], bytes, (size_t)more, MSG_PEEK | MSG_WAITALL), sent);
    assert_int_equal(rsetsockopt(fds[1], SOL_SOCKET, SO_RCVLOWAT, &more, sizeof(more)), 0);
    struct pollfd entry = {.fd = fds[1], .events = POLLIN};
    assert_int_equal(rpoll(&entry, 1, 30000), 1);
    assert_int_equal(rrecv(fds[1], bytes, (size_t)more, MSG_DONTWAIT), sent);
    assert_int_equal(rpoll(&entry, 1, 0), 0);
}

static void a_call_waits_as_long_as_it_is_told(void **state) {
    const int *const fds = *state;
    char byte;
    const struct timeval time = {.tv_usec = 50000};
    assert_int_equal(rsetsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)), 0);
    const double before = seconds();
    assert_fails(rrecv(fds[0], &byte, 1, 0), EAGAIN);
    assert_true(seconds() - before >= 0.049);
    struct pollfd entry = {.fd = fds[0], .events = POLLIN};
    assert_int_equal(rpoll(&entry, 1, 1), 0);
    /* The call gives the bytes that have come by then. */
    char bytes[4];
    assert_int_equal(rsend(fds[1], "123", 3, 0), 3);
    assert_int_equal(rrecv(fds[0], bytes, 4, MSG_WAITALL | MSG_PEEK), 3);
    assert_int_equal(rrecv(fds[0], bytes, 4, MSG_WAITALL), 3);
    assert_fails(rrecv(fds[0], bytes, 4, MSG_WAITALL), EAGAIN);
}

static void rsockets_and_a_pipe_together(void **state) {
    const int *const fds = *state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct pollfd entries[3] = {
        {.fd = fds[0], .events = POLLIN}, {.fd = ends[0], .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    assert_int_equal(rpoll(entries, 3, 0), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(rpoll(entries, 3, -1), 1);
    assert_int_equal(entries[1].revents, POLLIN);
    assert_int_equal(rsend(fds[1], "y", 1, 0), 1);
    entries[1].fd = -1;
    assert_int_equal(rpoll(entries, 3, -1), 1);
    assert_int_equal(entries[0].revents, POLLIN);
    fd_set reading;
    fd_set writing;
    FD_ZERO(&reading);
    FD_ZERO(&writing);
    FD_SET(fds[0], &reading);
    FD_SET(fds[1], &reading);
    FD_SET(ends[0], &reading);
    FD_SET(fds[1], &writing);
    struct timeval time = {.tv_sec = 10};
    const int highest = fds[0] > fds[1] ? fds[0] : fds[1];
    assert_int_equal(rselect((highest > ends[0] ? highest : ends[0]) + 1, &reading, &writing, NULL, &time),
                     3);
    assert_true(FD_ISSET(fds[0], &reading) && FD_ISSET(ends[0], &reading) && FD_ISSET(fds[1], &writing));
    assert_false(FD_ISSET(fds[1], &reading));
    assert_true(time.tv_sec < 10);
    close(ends[0]);
    close(ends[1]);
}

static void options_of_the_stream_and_of_tcp(void **state) {
    (void)state;
    const int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    socklen_t size = sizeof(int);
    int value = 70000;
    assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, size), 0);
    assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &size), 0);
    assert_int_equal(value, 140000);
    value = 32;
    assert_int_equal(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, size), 0);
    value = 0;
    assert_int_equal(rgetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, &size), 0);
    assert_int_equal(value, 32);
    assert_fails(rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, &value, size), ENOPROTOOPT);
    assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &size), 0);
    assert_int_equal(value, SOCK_STREAM);
    value = 1;
    assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, size), 0);
    assert_int_equal(rsetsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, size), 0);
    assert_int_equal(rfcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(rfcntl(fd, F_GETFL), O_RDWR);
    assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(rfcntl(fd, F_GETFL), O_RDWR | O_NONBLOCK);
    assert_fails(rfcntl(fd, F_DUPFD, 0), EINVAL);
    char byte;
    assert_fails(rrecv(fd, &byte, 1, 0), ENOTCONN);
    assert_fails(rshutdown(fd, SHUT_WR), ENOTCONN);
    assert_int_equal(rclose(fd), 0);
    assert_fails(rclose(fd), EBADF);
}

/* The peer is a process that is killed during the stream. */
static void a_peer_that_is_killed(void **state) {
    (void)state;
    int go[2];
    int ports[2];
    uint16_t port = 0;
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(ports), 0);
    const pid_t child = fork(); /* this comes before this process has a device */
    if (child == 0) {
        if (read(ports[0], &port, sizeof(port)) != sizeof(port)) {
            _exit(1);
        }
        const struct sockaddr_in address = loopback_at(port);
        const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
        if (rconnect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
            rsend(fd, "last words", 10, 0) != 10) {
            _exit(2);
        }
        char byte;
        (void)!read(go[0], &byte, 1); /* until it is killed */
        _exit(3);
    }
    const int listener = listening_rsocket(&port);
    assert_int_equal(write(ports[1], &port, sizeof(port)), sizeof(port));
    const int fd = raccept(listener, NULL, NULL);
    char bytes[16];
    assert_int_equal(rrecv(fd, bytes, 10, MSG_WAITALL), 10);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_fails(rrecv(fd, bytes, sizeof(bytes), 0), ECONNRESET);
    assert_fails(rrecv(fd, bytes, sizeof(bytes), 0), ECONNRESET); /* never an end of the stream */
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(rclose(fd), 0);
    assert_int_equal(rclose(listener), 0);
    for (int i = 0; i < 2; ++i) {
        close(go[i]);
        close(ports[i]);
    }
}

/* A client connects and speaks HTTP. No byte of it is read as a stream's, and other clients are served. */
static void a_client_that_is_no_rsocket(void **state) {
    (void)state;
    uint16_t port = 0;
    const int listener = listening_rsocket(&port);
    const struct sockaddr_in address = loopback_at(port);
    const int stranger = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(stranger, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(write(stranger, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27), 27);
    const int fd = raccept(listener, NULL, NULL);
    char bytes[32];
    assert_fails(rrecv(fd, bytes, sizeof(bytes), 0), EPROTO);
    assert_int_equal(rclose(fd), 0);
    close(stranger);
    int fds[2];
    connect_ends(fds, listener, port);
    assert_int_equal(rclose(fds[0]), 0);
    assert_int_equal(rclose(fds[1]), 0);
    assert_int_equal(rclose(listener), 0);
}

/* The first number is how many further words a peer sends, each as soon as the one before was taken. The
 * second one names the connection that took the last word. */
static int flood;
static uint32_t flooded;

#define EVERYWHERE __attribute__((visibility("default")))

/* A thread stays in the library, with the lock of its streams, until shortly after exit has begun. */
enum { Nobody, Comes, IsIn, Goes };
static atomic_int lingering;

static void linger(void) {
    const struct timespec moment = {.tv_nsec = 20000000};
    atomic_store(&lingering, IsIn);
    while (atomic_load(&lingering) != Goes) {
        sched_yield();
    }
    nanosleep(
        &moment,
        NULL); /* the thread is here when the library ends its streams; otherwise the test shows nothing */
}

/* Replaces librpma's function for librsocket. During the flood there is always one more
 * word that says that the peer is alive. */
EVERYWHERE int rpma_cq_get_wc(struct rpma_cq *queue, int most, struct ibv_wc *completions, int *count) {
    if (atomic_load(&lingering) == Comes) {
        linger();
    }
    if (flood > 0) {
        --flood;
        completions[0] = (struct ibv_wc){.status = IBV_WC_SUCCESS,
                                         .opcode = IBV_WC_RECV,
                                         .wc_flags = IBV_WC_WITH_IMM,
                                         .qp_num = flooded,
                                         .imm_data = htonl(UINT32_C(7) << 29 | 1)};
        *count = 1;
        return 0;
    }
    int (*next)(struct rpma_cq *, int, struct ibv_wc *, int *) = NULL;
    void *const found = dlsym(RTLD_NEXT, "rpma_cq_get_wc");
    memcpy(&next, &found, sizeof(next));
    const int result = next(queue, most, completions, count);
    for (int i = 0; result == 0 && i < *count; ++i) {
        if ((completions[i].opcode & IBV_WC_RECV) != 0) {
            flooded = completions[i].qp_num;
        }
    }
    return result;
}

/* Replaces librpma's function too. The receives of the flood were never
 * taken, so they are not posted again. */
EVERYWHERE int rpma_recv_many(struct rpma_conn *conn, const struct rpma_recv_op *ops, size_t count,
                              size_t *posted) {
    if (flood > 0) {
        return 0;
    }
    int (*next)(struct rpma_conn *, const struct rpma_recv_op *, size_t, size_t *) = NULL;
    void *const found = dlsym(RTLD_NEXT, "rpma_recv_many");
    memcpy(&next, &found, sizeof(next));
    return next(conn, ops, count, posted);
}

static void let_go(void) {
    atomic_store(&lingering, Goes);
}

static void *polls(void *fd) {
    struct pollfd entry = {.fd = *(const int *)fd, .events = POLLIN};
    return rpoll(&entry, 1, 0) >= 0 ? NULL : "failed";
}

/* Sends, and ends while a thread is in a call. */
static void be_a_process_that_exits(int ports) {
    static char bytes[1 << 16];
    static int fd;
    uint16_t port = 0;
    pthread_t thread;
    if (read(ports, &port, sizeof(port)) != sizeof(port)) {
        _exit(1);
    }
    const struct sockaddr_in address = loopback_at(port);
    fd = rsocket(AF_INET, SOCK_STREAM, 0);
    if (rconnect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        rsend(fd, bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        _exit(2);
    }
    atomic_store(&lingering, Comes);
    if (atexit(let_go) != 0 || pthread_create(&thread, NULL, polls, &fd) != 0 ||
        pthread_detach(thread) != 0) {
        _exit(3);
    }
    while (atomic_load(&lingering) != IsIn) {
        sched_yield();
    }
    exit(0);
}

static pid_t exiting;
static int port_of_exiting;

/* Forks the process that exits before this process has a device. */
static int fork_process_that_exits(void **state) {
    (void)state;
    int ports[2];
    if (pipe(ports) != 0) {
        return -1;
    }
    exiting = fork();
    if (exiting == 0) {
        close(ports[1]);
        be_a_process_that_exits(ports[0]);
    }
    close(ports[0]);
    port_of_exiting = ports[1];
    return exiting > 0 ? 0 : -1;
}

static void a_process_exits_while_a_thread_is_in_a_call(void **state) {
    (void)state;
    static char bytes[1 << 16];
    uint16_t port = 0;
    const int listener = listening_rsocket(&port);
    assert_int_equal(write(port_of_exiting, &port, sizeof(port)), sizeof(port));
    const int fd = raccept(listener, NULL, NULL);
    assert_int_equal(rrecv(fd, bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
    assert_int_equal(rrecv(fd, bytes, 1, 0), 0);
    assert_int_equal(end_of_peer(exiting), 0);
    assert_int_equal(rclose(fd), 0);
    assert_int_equal(rclose(listener), 0);
    close(port_of_exiting);
}

static void lengths_that_cannot_be(void **state) {
    if (getenv("RPMA_TLS") != NULL) {
        skip(); /* with TLS there is none of what it needs: TCP, datagrams, or bytes that the wire shows */
    }
    const int *const fds = *state;
    char byte = 0;
    struct iovec parts[2] = {{.iov_base = &byte, .iov_len = SIZE_MAX}, {.iov_base = &byte, .iov_len = 2}};
    assert_fails(rwritev(fds[0], parts, 2), EINVAL);
    assert_fails(rreadv(fds[0], parts, 2), EINVAL);
    const int datagrams = rsocket(AF_INET, SOCK_DGRAM, 0);
    const struct sockaddr_in address = loopback_at(9);
    assert_int_equal(rconnect(datagrams, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_fails(rwritev(datagrams, parts, 2), EINVAL);
    assert_int_equal(rclose(datagrams), 0);
    assert_fails(rpoll(NULL, (nfds_t)-1, 0), EINVAL);
}

/* The receive waits for bytes, as recv(2) does, and takes none. */
static void a_receive_of_no_bytes(void **state) {
    const int *const fds = *state;
    char byte = 0;
    assert_fails(rrecv(fds[1], &byte, 0, MSG_DONTWAIT), EAGAIN);
    assert_int_equal(rsend(fds[0], NULL, 0, 0), 0);
    assert_int_equal(rsend(fds[0], "x", 1, 0), 1);
    assert_int_equal(rrecv(fds[1], &byte, 0, 0), 0);
    assert_int_equal(rrecv(fds[1], &byte, 1, 0), 1);
    /* read(2) does not wait for bytes in this case, unlike recv(2). */
    assert_int_equal(rread(fds[1], &byte, 0), 0);
    assert_int_equal(rreadv(fds[1], &(struct iovec){.iov_base = &byte}, 1), 0);
    assert_fails(rread(-1, &byte, 0), EBADF);
}

static void a_peer_that_never_pauses_delays_no_call(void **state) {
    const int *const fds = *state;
    const int endless = 1000000;
    char byte = 0;
    assert_int_equal(rsend(fds[1], "w", 1, 0), 1);
    assert_int_equal(rrecv(fds[0], &byte, 1, 0), 1);
    flood = endless;
    assert_fails(rrecv(fds[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    assert_true(flood > endless / 2);
    struct pollfd entry = {.fd = fds[0], .events = POLLIN};
    flood = endless;
    assert_int_equal(rpoll(&entry, 1, 0), 0);
    assert_true(flood > endless / 2);
    flood = 0;
    assert_int_equal(rsend(fds[1], "x", 1, 0), 1);
    assert_int_equal(rrecv(fds[0], &byte, 1, 0), 1);
}

static void nobody_listens(void **state) {
    (void)state;
    uint16_t port = 0;
    close(listening_socket(&port));
    const struct sockaddr_in address = loopback_at(port);
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_fails(rconnect(fd, (const struct sockaddr *)&address, sizeof(address)), ECONNREFUSED);
    assert_int_equal(rclose(fd), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_is_killed), /* first: it forks */
        cmocka_unit_test(a_process_exits_while_a_thread_is_in_a_call),
        cmocka_unit_test(what_is_no_rsocket),
        cmocka_unit_test(options_of_the_stream_and_of_tcp),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(a_client_that_is_no_rsocket),
        cmocka_unit_test_setup_teardown(a_megabyte_each_way, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(each_direction_ends_by_itself, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(parts_and_flags_of_a_message, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(credits_are_used_up_before_the_buffer_is_full, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(lengths_that_cannot_be, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(a_receive_of_no_bytes, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(a_call_waits_as_long_as_it_is_told, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(rsockets_and_a_pipe_together, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(a_peer_that_never_pauses_delays_no_call, make_ends, close_ends),
    };
    return cmocka_run_group_tests_name("rsocket", tests, fork_process_that_exits, NULL);
}
