/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket_datagrams: tests messages between rsockets of type SOCK_DGRAM of this process, and with plain UDP
 * sockets that use the protocol, or send other bytes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rpma/rsocket.h>

#include "syscalls.h"
#include "test.h"

/* This comes last, because it asserts. */
#include "../forks.h"
#include "rsockets.h"

SET_TSAN_OPTIONS("die_after_fork=0")

/* With the longest header of the protocol, librdmacm has room for no more bytes than these. */
enum { MOST_V4 = 2032, MOST_V6 = 2020, SLOT = 2048 };

struct name {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } of;
    socklen_t size;
};

static struct name loopback(int family, uint16_t port) {
    struct name name = {.of.any.sa_family = (sa_family_t)family};
    if (family == AF_INET) {
        name.of.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        name.of.v4.sin_port = htons(port);
        name.size = sizeof(name.of.v4);
    } else {
        name.of.v6.sin6_addr = in6addr_loopback;
        name.of.v6.sin6_port = htons(port);
        name.size = sizeof(name.of.v6);
    }
    return name;
}

static struct name name_of(int fd) {
    struct name name = {.size = sizeof(name.of)};
    assert_int_equal(getsockname(fd, &name.of.any, &name.size), 0);
    return name;
}

static void assert_same_name(const struct name *a, const struct name *b) {
    assert_int_equal(a->size, b->size);
    assert_memory_equal(&a->of, &b->of, a->size);
}

/* Returns an rsocket that is bound to the loopback address. */
static int bound_rsocket(int family, int flags) {
    const struct name name = loopback(family, 0);
    const int fd = rsocket(family, SOCK_DGRAM | flags, 0);
    assert_true(fd >= 0);
    assert_int_equal(rbind(fd, &name.of.any, name.size), 0);
    return fd;
}

static void connect_to(int fd, int peer) {
    const struct name name = name_of(peer);
    assert_int_equal(rconnect(fd, &name.of.any, name.size), 0);
}

static void wait_for(int fd, short events) {
    struct pollfd entry = {.fd = fd, .events = events};
    assert_int_equal(rpoll(&entry, 1, 30000), 1);
    assert_int_equal(entry.revents, events);
}

/* These are two ends of the family in *state, each connected to the other. */
struct ends {
    int family;
    int most;
    int fds[2];
};

static int make_ends(struct ends *ends, int family) {
    ends->family = family;
    ends->most = family == AF_INET ? MOST_V4 : MOST_V6;
    for (int i = 0; i < 2; ++i) {
        ends->fds[i] = bound_rsocket(family, 0);
    }
    connect_to(ends->fds[0], ends->fds[1]);
    connect_to(ends->fds[1], ends->fds[0]);
    return 0;
}

static struct ends both;

static int make_ends_v4(void **state) {
    *state = &both;
    return make_ends(&both, AF_INET);
}

static int make_ends_v6(void **state) {
    *state = &both;
    return make_ends(&both, AF_INET6);
}

static int close_ends(void **state) {
    const struct ends *const ends = *state;
    assert_int_equal(rclose(ends->fds[0]), 0);
    assert_int_equal(rclose(ends->fds[1]), 0);
    return 0;
}

static void messages_are_whole(void **state) {
    const struct ends *const ends = *state;
    char bytes[SLOT];
    char got[SLOT];
    const int sizes[] = {0, 1, 1000, ends->most - 1, ends->most};
    enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
    /* There are enough rounds that messages take every way. */
    for (int round = 0; round < 10; ++round) {
        for (int end = 0; end < 2; ++end) {
            for (int i = 0; i < COUNT; ++i) {
                memset(bytes, 'a' + i + round, sizeof(bytes));
                assert_int_equal(rsend(ends->fds[end], bytes, (size_t)sizes[i], 0), sizes[i]);
                struct name from = {.size = sizeof(from.of)};
                assert_int_equal(rrecvfrom(ends->fds[!end], got, sizeof(got), 0, &from.of.any, &from.size),
                                 sizes[i]);
                assert_memory_equal(got, bytes, (size_t)sizes[i]);
                const struct name sender = name_of(ends->fds[end]);
                assert_same_name(&from, &sender);
            }
        }
    }
    assert_fails(rsend(ends->fds[0], bytes, (size_t)ends->most + 1, 0), EMSGSIZE);
    assert_fails(rrecv(ends->fds[1], got, sizeof(got), MSG_DONTWAIT), EAGAIN);
}

/* In librdmacm both calls take the socket for a stream. */
static void several_parts_are_one_message(void **state) {
    const struct ends *const ends = *state;
    char one[] = "several ";
    char two[] = "parts";
    struct iovec parts[] = {{.iov_base = one, .iov_len = 8}, {.iov_base = two, .iov_len = 5}};
    struct name to = name_of(ends->fds[1]);
    const struct name here = name_of(ends->fds[0]);
    char head[3];
    char tail[16];
    struct iovec pieces[] = {{.iov_base = head, .iov_len = 3}, {.iov_base = tail, .iov_len = 16}};
    struct msghdr out = {.msg_name = &to.of, .msg_namelen = to.size, .msg_iov = parts, .msg_iovlen = 2};
    assert_int_equal(rsendmsg(ends->fds[0], &out, 0), 13);
    struct name from;
    struct msghdr in = {
        .msg_name = &from.of, .msg_namelen = sizeof(from.of), .msg_iov = pieces, .msg_iovlen = 2};
    assert_int_equal(rrecvmsg(ends->fds[1], &in, 0), 13);
    assert_memory_equal(head, "sev", 3);
    assert_memory_equal(tail, "eral parts", 10);
    assert_int_equal(in.msg_flags, 0);
    from.size = in.msg_namelen;
    assert_same_name(&from, &here);
    assert_int_equal(rwritev(ends->fds[1], parts, 2), 13);
    memset(tail, 0, sizeof(tail));
    assert_int_equal(rreadv(ends->fds[0], pieces, 2), 13);
    assert_memory_equal(tail, "eral parts", 10);
    assert_int_equal(rwrite(ends->fds[1], two, 5), 5);
    assert_int_equal(rread(ends->fds[0], tail, sizeof(tail)), 5);
    out.msg_controllen = 1;
    assert_fails(rsendmsg(ends->fds[0], &out, 0), EOPNOTSUPP);
}

static void a_message_is_looked_at_and_cut_off(void **state) {
    const struct ends *const ends = *state;
    char got[4] = "";
    struct iovec part = {.iov_base = got, .iov_len = sizeof(got)};
    struct msghdr in = {.msg_iov = &part, .msg_iovlen = 1};
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(rsend(ends->fds[0], "123456", 6, MSG_NOSIGNAL), 6);
        assert_int_equal(rrecv(ends->fds[1], got, 4, MSG_PEEK), 4);
        assert_int_equal(rrecv(ends->fds[1], got, 4, MSG_PEEK | MSG_TRUNC), 6);
        assert_int_equal(rrecvmsg(ends->fds[1], &in, i == 0 ? 0 : MSG_TRUNC), i == 0 ? 4 : 6);
        assert_int_equal(in.msg_flags, MSG_TRUNC);
        assert_memory_equal(got, "1234", 4);
        assert_fails(rrecv(ends->fds[1], got, 4, MSG_DONTWAIT), EAGAIN);
    }
    const int refused[] = {MSG_OOB, MSG_MORE, MSG_DONTROUTE};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); ++i) {
        assert_fails(rsend(ends->fds[0], "1", 1, refused[i]), EOPNOTSUPP);
    }
    assert_fails(rrecv(ends->fds[0], got, 4, MSG_ERRQUEUE), EOPNOTSUPP);
}

static void it_waits_as_long_as_it_is_told(void **state) {
    const struct ends *const ends = *state;
    char byte = 0;
    assert_int_equal(rfcntl(ends->fds[0], F_GETFL), O_RDWR);
    assert_int_equal(rfcntl(ends->fds[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(rfcntl(ends->fds[0], F_GETFL), O_RDWR | O_NONBLOCK);
    assert_fails(rread(ends->fds[0], &byte, 1), EAGAIN);
    assert_int_equal(rfcntl(ends->fds[0], F_SETFL, 0), 0);
    const struct timeval limit = {.tv_usec = 2000};
    assert_int_equal(rsetsockopt(ends->fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    assert_fails(rread(ends->fds[0], &byte, 1), EAGAIN);
    struct pollfd entry = {.fd = ends->fds[0], .events = POLLIN};
    assert_int_equal(rpoll(&entry, 1, 2), 0);
    fd_set reads;
    fd_set writes;
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(ends->fds[0], &reads);
    FD_SET(ends->fds[0], &writes);
    assert_int_equal(rselect(ends->fds[0] + 1, &reads, &writes, NULL, NULL), 1);
    assert_true(!FD_ISSET(ends->fds[0], &reads) && FD_ISSET(ends->fds[0], &writes));
    assert_int_equal(rwrite(ends->fds[1], "x", 1), 1);
    wait_for(ends->fds[0], POLLIN);
    wait_for(ends->fds[0], POLLIN | POLLOUT);
    assert_int_equal(rread(ends->fds[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
}

static void *receive_one(void *fd) {
    char byte = 0;
    return rread(*(const int *)fd, &byte, 1) == 1 ? fd : NULL;
}

static void threads_that_wait_get_a_message_each(void **state) {
    struct ends *const ends = *state;
    pthread_t threads[3];
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(pthread_create(&threads[i], NULL, receive_one, &ends->fds[1]), 0);
    }
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(rwrite(ends->fds[0], "x", 1), 1);
    }
    for (int i = 0; i < 3; ++i) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &ends->fds[1]);
    }
}

enum { ECHOES = 500 };

static void *echo(void *server) {
    char byte = 0;
    for (int i = 0; i < ECHOES; ++i) {
        struct name from = {.size = sizeof(from.of)};
        if (rrecvfrom(*(int *)server, &byte, 1, 0, &from.of.any, &from.size) != 1 ||
            rsendto(*(int *)server, &byte, 1, 0, &from.of.any, from.size) != 1) {
            return NULL;
        }
    }
    return server;
}

/* Takes as many answers as it sends. They may be those of another thread. */
static void *ask(void *client) {
    char byte = 0;
    for (int i = 0; i < ECHOES; ++i) {
        if (rwrite(*(int *)client, "x", 1) != 1) {
            return NULL;
        }
        struct pollfd entry = {.fd = *(int *)client, .events = POLLIN};
        while (rrecv(*(int *)client, &byte, 1, MSG_DONTWAIT) != 1) {
            if (errno != EAGAIN || rpoll(&entry, 1, 30000) < 1) {
                return NULL;
            }
        }
    }
    return client;
}

static void threads_share_both_ends(void **state) {
    struct ends *const ends = *state;
    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) {
        assert_int_equal(pthread_create(&threads[i], NULL, i % 2 == 0 ? echo : ask, &ends->fds[i % 2]), 0);
    }
    for (int i = 0; i < 4; ++i) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &ends->fds[i % 2]);
    }
}

static void nothing_comes_after_a_shutdown(void **state) {
    const struct ends *const ends = *state;
    char byte = 0;
    assert_int_equal(rshutdown(ends->fds[0], SHUT_WR), 0);
    assert_fails(rwrite(ends->fds[0], "x", 1), EPIPE);
    assert_int_equal(rwrite(ends->fds[1], "x", 1), 1);
    assert_int_equal(rread(ends->fds[0], &byte, 1), 1);
    assert_int_equal(rshutdown(ends->fds[0], SHUT_RD), 0);
    assert_int_equal(rread(ends->fds[0], &byte, 1), 0);
}

static void only_the_peer_is_heard(void **state) {
    const struct ends *const ends = *state;
    const int stranger = bound_rsocket(ends->family, 0);
    const struct name to = name_of(ends->fds[0]);
    char byte = 0;
    assert_fails(rsend(stranger, "x", 1, 0), EDESTADDRREQ);
    assert_int_equal(rsendto(stranger, "s", 1, 0, &to.of.any, to.size), 1);
    assert_int_equal(rwrite(ends->fds[1], "p", 1), 1);
    assert_int_equal(rread(ends->fds[0], &byte, 1), 1);
    assert_int_equal(byte, 'p');
    struct name peer = {.size = sizeof(peer.of)};
    const struct name expected = name_of(ends->fds[1]);
    assert_int_equal(rgetpeername(ends->fds[0], &peer.of.any, &peer.size), 0);
    assert_same_name(&peer, &expected);
    assert_fails(rgetpeername(stranger, &peer.of.any, &peer.size), ENOTCONN);
    /* Without a peer, every sender is accepted. */
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    assert_int_equal(rconnect(ends->fds[0], &nobody, sizeof(nobody)), 0);
    assert_fails(rwrite(ends->fds[0], "x", 1), EDESTADDRREQ);
    const struct name again = name_of(ends->fds[0]);
    assert_int_equal(rclose(stranger), 0);
    if (ntohs(ends->family == AF_INET ? again.of.v4.sin_port : again.of.v6.sin6_port) != 0) {
        assert_int_equal(rwrite(ends->fds[1], "x", 1), 1);
        wait_for(ends->fds[0], POLLIN);
    }
}

static void nobody_at_the_other_end(void **state) {
    struct ends *const ends = *state;
    char byte = 0;
    const int gone = bound_rsocket(ends->family, 0);
    connect_to(ends->fds[0], gone);
    assert_int_equal(rclose(gone), 0);
    assert_int_equal(rwrite(ends->fds[0], "x", 1), 1);
    assert_fails(rread(ends->fds[0], &byte, 1), ECONNREFUSED);
    assert_int_equal(rwrite(ends->fds[0], "x", 1), 1);
    struct pollfd entry = {.fd = ends->fds[0], .events = POLLIN};
    assert_int_equal(rpoll(&entry, 1, 30000), 1);
    assert_int_equal(entry.revents, POLLIN | POLLERR);
    int error = 0;
    socklen_t size = sizeof(error);
    assert_int_equal(rgetsockopt(ends->fds[0], SOL_SOCKET, SO_ERROR, &error, &size), 0);
    assert_int_equal(error, ECONNREFUSED);
    assert_fails(rrecv(ends->fds[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
}

static int epoll_is_anothers = 0;

static int before_syscall(long number, const long given[6]) {
    (void)given;
    return number == SYS_epoll_create1 && epoll_is_anothers ? EMFILE : 0;
}

/* librdmacm's datagram sockets are made with epoll_create, which its own preload library has too. Here a
 * device that gets no epoll set has no queue pair, and messages go over UDP. */
static void d6_epoll_is_anothers(void **state) {
    (void)state;
    struct ends ends;
    epoll_is_anothers = 1;
    (void)make_ends(&ends, AF_INET);
    void *made = &ends;
    messages_are_whole(&made);
    (void)close_ends(&made);
    epoll_is_anothers = 0;
}

/* The child uses the socket too. The queue pairs are the parent's. */
static void a_child_sends_and_receives(void **state) {
    skip_where(CHILDREN_MAKE_NO_THREADS);
    const struct ends *const ends = *state;
    messages_are_whole(state);
    char got[8];
    const pid_t child = fork();
    if (child == 0) {
        int good = 1;
        for (int i = 0; i < 20; ++i) {
            good = good && rwrite(ends->fds[0], "child", 5) == 5 && rread(ends->fds[1], got, 8) == 5;
        }
        _exit(good && rclose(ends->fds[0]) == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    messages_are_whole(state);
}

/* One socket serves all addresses of this machine, and both families. */
static void a_wildcard_address(void **state) {
    (void)state;
    struct name name = {.of.v6.sin6_family = AF_INET6, .size = sizeof(name.of.v6)};
    const int server = rsocket(AF_INET6, SOCK_DGRAM, IPPROTO_UDP);
    assert_true(server >= 0);
    assert_int_equal(rbind(server, &name.of.any, name.size), 0);
    name = name_of(server);
    const uint16_t port = ntohs(name.of.v6.sin6_port);
    const int families[] = {AF_INET, AF_INET6, AF_INET};
    for (int i = 0; i < 3; ++i) {
        const int client = rsocket(families[i], SOCK_DGRAM, 0);
        struct name to = loopback(families[i], port);
        if (i == 2) {
            to.of.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
        }
        char byte = (char)('a' + i);
        /* There are several messages, because the first ones may take another way. */
        for (int round = 0; round < 5; ++round) {
            assert_int_equal(rsendto(client, &byte, 1, 0, &to.of.any, to.size), 1);
            char got = 0;
            struct name from = {.size = sizeof(from.of)};
            assert_int_equal(rrecvfrom(server, &got, 1, 0, &from.of.any, &from.size), 1);
            assert_int_equal(got, byte);
            assert_int_equal(from.size, sizeof(from.of.v6));
            assert_int_equal(rsendto(server, &got, 1, 0, &from.of.any, from.size), 1);
            got = 0;
            assert_int_equal(rrecv(client, &got, 1, 0), 1);
            assert_int_equal(got, byte);
        }
        assert_int_equal(rclose(client), 0);
    }
    assert_int_equal(rclose(server), 0);
}

static void what_a_datagram_socket_does_not_have(void **state) {
    const struct ends *const ends = *state;
    assert_fails(rlisten(ends->fds[0], 1), EOPNOTSUPP);
    assert_fails(raccept(ends->fds[0], NULL, NULL), EOPNOTSUPP);
    const int on = 1;
    assert_fails(rsetsockopt(ends->fds[0], IPPROTO_UDP, UDP_CORK, &on, sizeof(on)), ENOPROTOOPT);
    assert_fails(rsetsockopt(ends->fds[0], IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)), ENOPROTOOPT);
    assert_fails(rsetsockopt(ends->fds[0], SOL_RDMA, RDMA_IOMAPSIZE, &on, sizeof(on)), ENOPROTOOPT);
    struct sockaddr short_name = {.sa_family = AF_INET};
    assert_fails(rsendto(ends->fds[0], "x", 1, 0, &short_name, 4), EINVAL);
}

static void options(void **state) {
    (void)state;
    const int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
    int value = 8192;
    socklen_t size = sizeof(value);
    assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, size), 0);
    assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &size), 0);
    assert_int_equal(value, 16384);
    const int names[] = {RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE};
    for (int i = 0; i < 3; ++i) {
        value = 16 + i;
        assert_int_equal(rsetsockopt(fd, SOL_RDMA, names[i], &value, size), 0);
        value = 0;
        assert_int_equal(rgetsockopt(fd, SOL_RDMA, names[i], &value, &size), 0);
        assert_int_equal(value, 16 + i);
    }
    assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &size), 0);
    assert_int_equal(value, SOCK_DGRAM);
    /* No message was sent yet. The first call that needs the queues makes them. */
    char byte = 0;
    assert_fails(rrecv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
    assert_fails(rsetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &value, size), EINVAL);
    assert_int_equal(rclose(fd), 0);
}

/* A UDP socket of the kernel sends bytes that are not of the protocol, and they
 * are dropped. Its valid messages arrive. */
static void strangers(void **state) {
    const struct ends *const ends = *state;
    const int fd = bound_rsocket(ends->family, SOCK_NONBLOCK);
    const struct name to = name_of(fd);
    const int plain = socket(ends->family, SOCK_DGRAM, 0);
    assert_int_equal(connect(plain, &to.of.any, to.size), 0);
    const int is_v4 = ends->family == AF_INET;
    const unsigned char bytes = is_v4 ? 16 : 28;
    unsigned char good[29] = {0x55, 0x55, 0x55, 0x55, is_v4 ? 4 : 6, 0, bytes, 0, 0, 0, 0, 0};
    if (is_v4) {
        memcpy(good + 12, "\x7f\0\0\1", 4);
    } else {
        good[27] = 1;
    }
    good[bytes] = '!';
    const struct {
        size_t at;
        unsigned char value;
    } wrong[] = {{0, 0x54}, {3, 0},    {4, 5}, {4, is_v4 ? 6 : 4},
                 {5, 1},    {5, 0xff}, {6, 8}, {6, is_v4 ? 28 : 16}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        const unsigned char was = good[wrong[i].at];
        good[wrong[i].at] = wrong[i].value;
        assert_true(send(plain, good, bytes + 1U, 0) > 0);
        good[wrong[i].at] = was;
    }
    for (size_t size = 0; size < bytes; ++size) {
        assert_int_equal(send(plain, good, size, 0), (ssize_t)size);
    }
    static unsigned char large[4096];
    memcpy(large, good, bytes);
    assert_true(send(plain, large, sizeof(large), 0) > 0);
    char got[SLOT];
    assert_fails(rrecv(fd, got, sizeof(got), 0), EAGAIN);
    /* This is an answer without a request, from an address that no message was sent to. */
    good[5] = 7;
    good[9] = 0xff;
    assert_true(send(plain, good, bytes, 0) > 0);
    good[5] = 0;
    good[9] = 0;
    assert_true(send(plain, good, bytes + 1U, 0) > 0);
    wait_for(fd, POLLIN);
    assert_int_equal(rrecv(fd, got, sizeof(got), 0), 1);
    assert_int_equal(got[0], '!');
    close(plain);
    assert_int_equal(rclose(fd), 0);
}

#define with_ends(test)                                              \
    cmocka_unit_test_setup_teardown(test, make_ends_v4, close_ends), \
        cmocka_unit_test_setup_teardown(test, make_ends_v6, close_ends)

int main(void) {
    const struct CMUnitTest tests[] = {
        with_ends(messages_are_whole),
        with_ends(several_parts_are_one_message),
        with_ends(a_message_is_looked_at_and_cut_off),
        with_ends(it_waits_as_long_as_it_is_told),
        with_ends(threads_that_wait_get_a_message_each),
        with_ends(threads_share_both_ends),
        with_ends(nothing_comes_after_a_shutdown),
        with_ends(only_the_peer_is_heard),
        with_ends(nobody_at_the_other_end),
        with_ends(a_child_sends_and_receives),
        with_ends(what_a_datagram_socket_does_not_have),
        with_ends(strangers),
        cmocka_unit_test(d6_epoll_is_anothers),
        cmocka_unit_test(a_wildcard_address),
        cmocka_unit_test(options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
