/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures a stream between two processes, over rsockets or over the kernel's TCP, and prints one number.
 *   stream rsocket|tcp round-trip|round-trip-spinning|round-trip-set|write SIZE COUNT BUFFER
 * round-trip: microseconds, of COUNT messages of SIZE bytes there and back; spinning: no call waits; set:
 * waits in a repoll, or an epoll set, which has an eventfd too. write: GB/s, of COUNT writes of SIZE bytes,
 * in one direction. BUFFER: SO_SNDBUF and SO_RCVBUF; 0: as they are. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "stream_ends.h"

#include <rpma/rsocket.h>

static struct calls {
    int (*socket)(int, int, int);
    int (*bind)(int, const struct sockaddr *, socklen_t);
    int (*listen)(int, int);
    int (*accept)(int, struct sockaddr *, socklen_t *);
    int (*connect)(int, const struct sockaddr *, socklen_t);
    int (*getsockname)(int, struct sockaddr *, socklen_t *);
    int (*setsockopt)(int, int, int, const void *, socklen_t);
    ssize_t (*recv)(int, void *, size_t, int);
    ssize_t (*send)(int, const void *, size_t, int);
    int (*close)(int);
    int (*create)(int);
    int (*control)(int, int, int, struct epoll_event *);
    int (*wait)(int, struct epoll_event *, int, int);
} calls = {socket, bind, listen, accept,        connect,   getsockname, setsockopt,
           recv,   send, close,  epoll_create1, epoll_ctl, epoll_wait};

static int buffer;
static bool has_set;
static int set;

static size_t send_some(void *fd, char *from, size_t most) {
    const ssize_t put = calls.send(*(int *)fd, from, most, spins ? MSG_DONTWAIT : 0);
    must(put > 0 || (put < 0 && errno == EAGAIN && spins), "send");
    return put > 0 ? (size_t)put : 0;
}

static size_t receive_some(void *fd, char *to, size_t most) {
    struct epoll_event event;
    must(!has_set || (calls.wait(set, &event, 1, -1) == 1 && event.data.fd == *(int *)fd), "wait");
    const ssize_t got = calls.recv(*(int *)fd, to, most, spins ? MSG_DONTWAIT : 0);
    must(got > 0 || (got < 0 && errno == EAGAIN && spins), "recv");
    return got > 0 ? (size_t)got : 0;
}

static void make_set(int fd) {
    const int quiet = eventfd(0, EFD_CLOEXEC);
    set = calls.create(0);
    must(quiet >= 0 && set >= 0, "set");
    for (int i = 0; i < 2; ++i) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = i == 0 ? fd : quiet};
        must(calls.control(set, EPOLL_CTL_ADD, event.data.fd, &event) == 0, "control");
    }
}

static int fresh(void) {
    const int fd = calls.socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    must(fd >= 0, "socket");
    if (buffer != 0) {
        must(calls.setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer)) == 0 &&
                 calls.setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)) == 0,
             "setsockopt");
    }
    must(calls.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "setsockopt");
    return fd;
}

static void serve(int port_to) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    const int listener = fresh();
    must(calls.bind(listener, (struct sockaddr *)&address, length) == 0, "bind");
    must(calls.listen(listener, 1) == 0, "listen");
    must(calls.getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    tell_port(port_to, address.sin_port);
    int fd = calls.accept(listener, NULL, NULL);
    must(fd >= 0, "accept");
    if (has_set) {
        make_set(fd);
    }
    for (long i = 0; i < count; ++i) {
        move_all(&fd, size, receive_some);
        if (returns) {
            move_all(&fd, size, send_some);
        }
    }
    move_all(&fd, 1, send_some);
    move_all(&fd, 1, receive_some);
    calls.close(fd);
    calls.close(listener);
}

static void ask(int port_from) {
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = told_port(port_from), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = fresh();
    must(calls.connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
    if (has_set) {
        make_set(fd);
    }
    const double begin = seconds();
    for (long i = 0; i < count; ++i) {
        move_all(&fd, size, send_some);
        if (returns) {
            move_all(&fd, size, receive_some);
        }
    }
    move_all(&fd, 1, receive_some);
    const double time = seconds() - begin;
    move_all(&fd, 1, send_some);
    calls.close(fd);
    print_result(time);
}

int main(int argc, char **argv) {
    if (argc != 6 || (strcmp(argv[1], "rsocket") != 0 && strcmp(argv[1], "tcp") != 0)) {
        fprintf(stderr,
                "usage: stream rsocket|tcp round-trip|round-trip-spinning|round-trip-set|write SIZE COUNT "
                "BUFFER\n");
        return 2;
    }
    if (strcmp(argv[1], "rsocket") == 0) {
        calls = (struct calls){rsocket, rbind, rlisten, raccept,       rconnect,   rgetsockname, rsetsockopt,
                               rrecv,   rsend, rclose,  repoll_create, repoll_ctl, repoll_wait};
    }
    read_arguments("stream", argv[2], argv[3], argv[4]);
    has_set = strcmp(argv[2], "round-trip-set") == 0;
    buffer = (int)strtol(argv[5], NULL, 10);
    return run_both(serve, ask);
}
