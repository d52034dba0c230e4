/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket_options: tests every option and flag of a stream. An option holds before the stream, in it, and on
 * the rsockets that a listener with it accepts. Options that change calls have their effects. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>

#include "test.h"

/* These come last, because they assert. */
#include "../sockets.h"
#include "rsockets.h"

static uint16_t port;
static int listener = -1;
static int ends[2] = {-1, -1};

static int close_ends(void **state) {
    (void)state;
    close_pair(ends);
    if (listener >= 0) {
        assert_int_equal(rclose(listener), 0);
        listener = -1;
    }
    return 0;
}

static int make_listener(void **state) {
    (void)state;
    listener = listening_rsocket(&port);
    return 0;
}

static int make_ends(void **state) {
    make_listener(state);
    connect_ends(ends, listener, port);
    return 0;
}

static void set(int fd, int level, int name, int value) {
    assert_int_equal(rsetsockopt(fd, level, name, &value, sizeof(value)), 0);
}

static int get(int fd, int level, int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    assert_int_equal(rgetsockopt(fd, level, name, &value, &size), 0);
    assert_int_equal(size, sizeof(value));
    return value;
}

/* ---- options that are numbers ---- */

static const struct number {
    const char *text;
    int level;
    int name;
    int set;
    int got;
    int is_of_the_kernel;
} numbers[] = {
    {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1, 1, 1},
    {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 77, 77, 1},
    {"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, 7, 7, 1},
    {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 9, 9, 1},
    {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1, 1, 1},
    {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 70000, 140000, 0},
    {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 30000, 60000, 0},
    {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1, 1, 1},
    {"SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, 1, 1, 1},
    {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 5, 5, 0},
    {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 0, 0, 1},
    {"TCP_CORK", IPPROTO_TCP, TCP_CORK, 1, 1, 1},
    {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 12345, 12345, 1},
    {"RDMA_SQSIZE", SOL_RDMA, RDMA_SQSIZE, 100, 100, 0},
    {"RDMA_RQSIZE", SOL_RDMA, RDMA_RQSIZE, 200, 200, 0},
    {"RDMA_INLINE", SOL_RDMA, RDMA_INLINE, 300, 300, 0},
};

static void assert_number(const struct number *option, int fd, const char *where) {
    const int value = get(fd, option->level, option->name);
    int real = option->got;
    socklen_t size = sizeof(real);
    if (option->is_of_the_kernel) {
        assert_int_equal(getsockopt(fd, option->level, option->name, &real, &size), 0);
    }
    if (value != option->got || real != option->got) {
        fail_msg("%s %s is %d (the kernel's: %d), expected %d", option->text, where, value, real,
                 option->got);
    }
}

/* The test sets each option before the stream, one at a time, on the
 * end that connects and on the listener. */
static void numbers_hold_where_they_are_set(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); ++i) {
        const struct number *const option = &numbers[i];
        uint16_t own = 0;
        const int with_option = listening_rsocket(&own);
        set(with_option, option->level, option->name, option->set);
        assert_number(option, with_option, "of a listener");
        const struct sockaddr_in to = loopback_at(own);
        struct pollfd both[2] = {{.fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), .events = POLLOUT},
                                 {.events = POLLIN}};
        set(both[0].fd, option->level, option->name, option->set);
        assert_number(option, both[0].fd, "of a new rsocket");
        assert_fails(rconnect(both[0].fd, (const struct sockaddr *)&to, sizeof(to)), EINPROGRESS);
        both[1].fd = raccept(with_option, NULL, NULL);
        assert_number(option, both[1].fd, "of what raccept gave");
        while (both[0].revents == 0) {
            assert_true(rpoll(both, 2, 30000) > 0);
        }
        assert_number(option, both[0].fd, "of the stream that connected");
        assert_number(option, both[1].fd, "of the stream that was accepted");
        assert_int_equal(rclose(both[0].fd), 0);
        assert_int_equal(rclose(both[1].fd), 0);
        assert_int_equal(rclose(with_option), 0);
    }
}

static void what_a_socket_is(void **state) {
    (void)state;
    assert_int_equal(get(ends[0], SOL_SOCKET, SO_TYPE), SOCK_STREAM);
    assert_int_equal(get(ends[0], SOL_SOCKET, SO_DOMAIN), AF_INET);
    assert_int_equal(get(ends[0], SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
    assert_int_equal(get(ends[0], SOL_SOCKET, SO_ACCEPTCONN), 0);
    assert_int_equal(get(listener, SOL_SOCKET, SO_ACCEPTCONN), 1);
    assert_int_equal(get(ends[0], SOL_SOCKET, SO_ERROR), 0);
    struct tcp_info info;
    socklen_t size = sizeof(info);
    assert_int_equal(rgetsockopt(ends[1], IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    assert_int_equal(info.tcpi_state, TCP_ESTABLISHED);
    assert_true(get(ends[1], IPPROTO_TCP, TCP_MAXSEG) > 0);
    set(ends[1], IPPROTO_TCP, TCP_QUICKACK, 1);
    assert_int_equal(get(ends[1], IPPROTO_TCP, TCP_QUICKACK), 1);
}

static void what_is_no_option(void **state) {
    (void)state;
    int value = 1;
    socklen_t size = sizeof(value);
    const int fresh = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_fails(rsetsockopt(fresh, SOL_RDMA, RDMA_ROUTE, &value, size), ENOPROTOOPT);
    assert_fails(rgetsockopt(fresh, SOL_RDMA, RDMA_ROUTE, &value, &size), ENOPROTOOPT);
    assert_fails(rsetsockopt(fresh, SOL_RDMA, 99, &value, size), ENOPROTOOPT);
    assert_int_equal(rclose(fresh), 0);
    assert_fails(rgetsockopt(ends[0], SOL_SOCKET, 9999, &value, &size), ENOPROTOOPT);
    assert_fails(rsetsockopt(ends[0], SOL_SOCKET, SO_RCVBUF, &value, 1), EINVAL);
    assert_fails(rsetsockopt(ends[0], SOL_SOCKET, SO_LINGER, &value, size), EINVAL);
    const socklen_t negative = (socklen_t)-1;
    const int levels[][2] = {{SOL_SOCKET, SO_LINGER}, {SOL_SOCKET, SO_TYPE}, {SOL_RDMA, RDMA_SQSIZE}};
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); ++i) {
        socklen_t length = negative;
        assert_fails(rgetsockopt(ends[0], levels[i][0], levels[i][1], &value, &length), EINVAL);
        assert_true(length == negative);
        assert_fails(rsetsockopt(ends[0], levels[i][0], levels[i][1], &value, negative), EINVAL);
    }
    const int mark_of_streams = 2;
    assert_fails(rsetsockopt(listener, IPPROTO_TCP, TCP_SAVE_SYN, &mark_of_streams, size), EINVAL);
    /* The peer knows how many messages have a place. */
    assert_fails(rsetsockopt(ends[0], SOL_RDMA, RDMA_RQSIZE, &value, size), EINVAL);
    assert_int_equal(value, 1);
}

/* ---- options that change the effects of calls ---- */

static void maxseg_and_defer_accept_of_a_listener(void **state) {
    (void)state;
    set(listener, IPPROTO_TCP, TCP_MAXSEG, 1000);
    assert_int_equal(get(listener, IPPROTO_TCP, TCP_MAXSEG), 1000);
    set(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, 5);
    assert_true(get(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT) >= 5);
    /* A silent client has not come yet, but a client of ours asks at once. */
    const struct sockaddr_in address = loopback_at(port);
    const int silent = socket(AF_INET, SOCK_STREAM, 0);
    struct pollfd entry = {.fd = listener, .events = POLLIN};
    assert_int_equal(connect(silent, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(rpoll(&entry, 1, 0), 0);
    connect_ends(ends, listener, port);
    assert_true(get(ends[1], IPPROTO_TCP, TCP_MAXSEG) <= 1000);
    close(silent);
}

/* Sends as many bytes as the other end has room for. Returns their number. */
static int fill(int fd) {
    static const char bytes[1 << 16];
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    int total = 0;
    do {
        ssize_t put = 0;
        while ((put = rsend(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
            total += (int)put;
        }
        assert_int_equal(errno, EAGAIN);
    } while (rpoll(&entry, 1, 50) > 0); /* there is no room until the device has taken something */
    return total;
}

static void rcvbuf_bounds_what_is_sent_unread(void **state) {
    (void)state;
    set(listener, SOL_SOCKET, SO_RCVBUF, 10000);
    connect_ends(ends, listener, port);
    assert_int_equal(fill(ends[0]), 20000);
    assert_int_equal(fill(ends[1]), 1048576);
    assert_int_equal(get(ends[0], SOL_SOCKET, SO_RCVBUF), 1048576);
}

static void sndtimeo_ends_a_send(void **state) {
    (void)state;
    const struct timeval time = {.tv_usec = 50000};
    struct timeval got = {0};
    socklen_t size = sizeof(got);
    assert_int_equal(rsetsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time)), 0);
    assert_int_equal(rgetsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &got, &size), 0);
    assert_int_equal(got.tv_usec, time.tv_usec);
    (void)fill(ends[0]);
    const double before = seconds();
    assert_fails(rsend(ends[0], "x", 1, 0), EAGAIN);
    assert_true(seconds() - before >= 0.049);
}

/* A listener's time-out applies to its own calls, and to those of the rsockets that it accepts. */
static void rcvtimeo_ends_an_accept_and_is_inherited(void **state) {
    (void)state;
    const struct timeval time = {.tv_usec = 50000};
    char byte = 0;
    assert_int_equal(rsetsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)), 0);
    double before = seconds();
    assert_fails(raccept(listener, NULL, NULL), EAGAIN);
    assert_true(seconds() - before >= 0.049);
    connect_ends(ends, listener, port);
    before = seconds();
    assert_fails(rrecv(ends[1], &byte, 1, 0), EAGAIN);
    assert_true(seconds() - before >= 0.049);
}

static void sndtimeo_ends_a_connect(void **state) {
    (void)state;
    const struct timeval time = {.tv_usec = 50000};
    const struct sockaddr_in address = loopback_at(port);
    ends[0] = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rsetsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time)), 0);
    /* No program takes the connection that the kernel has accepted. */
    assert_fails(rconnect(ends[0], (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
}

static void rcvlowat_is_what_makes_readable(void **state) {
    (void)state;
    struct pollfd entry = {.fd = ends[1], .events = POLLIN};
    char bytes[8];
    set(ends[1], SOL_SOCKET, SO_RCVLOWAT, 5);
    assert_int_equal(rsend(ends[0], "abcd", 4, 0), 4);
    assert_int_equal(rpoll(&entry, 1, 20), 0);
    assert_int_equal(rsend(ends[0], "e", 1, 0), 1);
    assert_int_equal(rpoll(&entry, 1, 30000), 1);
    assert_int_equal(rrecv(ends[1], bytes, sizeof(bytes), 0), 5);
}

static void linger_is_told_as_it_was_set(void **state) {
    (void)state;
    const struct linger wanted = {.l_onoff = 1, .l_linger = 3};
    struct linger got = {0};
    socklen_t size = sizeof(got);
    assert_int_equal(rsetsockopt(listener, SOL_SOCKET, SO_LINGER, &wanted, sizeof(wanted)), 0);
    connect_ends(ends, listener, port);
    assert_int_equal(rgetsockopt(ends[1], SOL_SOCKET, SO_LINGER, &got, &size), 0);
    assert_int_equal(got.l_onoff, 1);
    assert_int_equal(got.l_linger, 3);
}

static void v6only_and_mapped_addresses(void **state) {
    (void)state;
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in6 from;
    socklen_t size = sizeof(any);
    listener = rsocket(AF_INET6, SOCK_STREAM, 0);
    if (listener < 0) {
        skip(); /* a machine without IPv6 */
    }
    set(listener, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    assert_int_equal(get(listener, IPPROTO_IPV6, IPV6_V6ONLY), 1);
    assert_int_equal(rbind(listener, (struct sockaddr *)&any, size), 0);
    assert_int_equal(rlisten(listener, 1), 0);
    assert_int_equal(rgetsockname(listener, (struct sockaddr *)&any, &size), 0);
    const struct sockaddr_in address = loopback_at(ntohs(any.sin6_port));
    const int refused = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_fails(rconnect(refused, (const struct sockaddr *)&address, sizeof(address)), ECONNREFUSED);
    assert_int_equal(rclose(refused), 0);
    assert_int_equal(rclose(listener), 0);
    listener = rsocket(AF_INET6, SOCK_STREAM, 0);
    set(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    any.sin6_port = 0;
    assert_int_equal(rbind(listener, (struct sockaddr *)&any, sizeof(any)), 0);
    assert_int_equal(rlisten(listener, 1), 0);
    assert_int_equal(rgetsockname(listener, (struct sockaddr *)&any, &size), 0);
    connect_ends(ends, listener, ntohs(any.sin6_port));
    size = sizeof(from);
    assert_int_equal(rgetpeername(ends[1], (struct sockaddr *)&from, &size), 0);
    assert_true(IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
    char byte = 0;
    assert_int_equal(rsend(ends[0], "x", 1, 0), 1);
    assert_int_equal(rrecv(ends[1], &byte, 1, 0), 1);
}

/* ---- flags ---- */

static void flags_of_a_socket(void **state) {
    (void)state;
    const int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(rfcntl(fd, F_GETFL), O_RDWR | O_NONBLOCK);
    assert_int_equal(rfcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(rclose(fd), 0);
    const int plain = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rfcntl(plain, F_GETFL), O_RDWR);
    assert_int_equal(rfcntl(plain, F_GETFD), 0);
    assert_int_equal(rclose(plain), 0);
    /* Neither flag is inherited, as with accept(2). */
    assert_int_equal(rfcntl(listener, F_SETFL, O_NONBLOCK), 0);
    assert_fails(raccept(listener, NULL, NULL), EAGAIN);
    connect_ends(ends, listener, port);
    assert_int_equal(rfcntl(ends[1], F_GETFL), O_RDWR);
    assert_int_equal(rfcntl(ends[1], F_GETFD), 0);
}

static void flags_of_a_receive(void **state) {
    (void)state;
    char bytes[8] = "";
    assert_fails(rrecv(ends[1], bytes, 4, MSG_DONTWAIT), EAGAIN);
    assert_int_equal(rsend(ends[0], "abcdef", 6, 0), 6);
    assert_int_equal(rrecv(ends[1], bytes, 6, MSG_PEEK | MSG_WAITALL), 6);
    assert_memory_equal(bytes, "abcdef", 6);
    /* This call tells how many bytes there are, as FIONREAD does for other sockets. */
    assert_int_equal(rrecv(ends[1], NULL, 1 << 20, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT), 6);
    assert_int_equal(rrecv(ends[1], NULL, 2, MSG_TRUNC), 2);
    assert_int_equal(rrecv(ends[1], bytes, sizeof(bytes), 0), 4);
    assert_memory_equal(bytes, "cdef", 4);
    assert_fails(rrecv(ends[1], bytes, 1, MSG_OOB), EOPNOTSUPP);
    assert_fails(rrecv(ends[1], bytes, 1, MSG_ERRQUEUE), EOPNOTSUPP);
}

static void *send_the_rest(void *unused) {
    (void)unused;
    const struct timespec moment = {.tv_nsec = 20000000};
    nanosleep(&moment, NULL);
    return rsend(ends[0], "cd", 2, 0) == 2 ? NULL : ends;
}

static void waitall_waits_for_all(void **state) {
    (void)state;
    pthread_t thread;
    void *failed = NULL;
    char bytes[4];
    assert_int_equal(rsend(ends[0], "ab", 2, 0), 2);
    assert_int_equal(pthread_create(&thread, NULL, send_the_rest, NULL), 0);
    assert_int_equal(rrecv(ends[1], bytes, 4, MSG_WAITALL), 4);
    assert_memory_equal(bytes, "abcd", 4);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}

static void flags_of_a_send(void **state) {
    (void)state;
    char bytes[4];
    assert_int_equal(rsend(ends[0], "ab", 2, MSG_MORE), 2); /* it goes at once */
    assert_int_equal(rrecv(ends[1], bytes, 2, 0), 2);
    assert_fails(rsend(ends[0], "x", 1, MSG_OOB), EOPNOTSUPP);
    (void)fill(ends[0]);
    assert_fails(rsend(ends[0], "x", 1, MSG_DONTWAIT), EAGAIN);
    /* There is no signal, with and without the flag. A signal would end this program. */
    assert_int_equal(rshutdown(ends[1], SHUT_WR), 0);
    assert_fails(rsend(ends[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    assert_fails(rsend(ends[1], "x", 1, 0), EPIPE);
}

/* ---- a server that accepts, and does not use the connection yet ---- */

static void *connect_twice(void *unused) {
    (void)unused;
    const struct sockaddr_in address = loopback_at(port);
    for (int i = 0; i < 2; ++i) {
        ends[i] = rsocket(AF_INET, SOCK_STREAM, 0);
        if (rconnect(ends[i], (const struct sockaddr *)&address, sizeof(address)) != 0 ||
            rsend(ends[i], "x", 1, 0) != 1) {
            return ends;
        }
    }
    return NULL;
}

static void a_server_that_accepts_one_after_the_other(void **state) {
    (void)state;
    pthread_t thread;
    void *failed = NULL;
    int accepted[2];
    char byte = 0;
    assert_int_equal(pthread_create(&thread, NULL, connect_twice, NULL), 0);
    for (int i = 0; i < 2; ++i) {
        accepted[i] = raccept(listener, NULL, NULL);
        assert_true(accepted[i] >= 0);
    }
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(rrecv(accepted[i], &byte, 1, 0), 1);
        assert_int_equal(rclose(accepted[i]), 0);
    }
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}

#define ON_STREAM(test) cmocka_unit_test_setup_teardown(test, make_ends, close_ends)
#define ON_LISTENER(test) cmocka_unit_test_setup_teardown(test, make_listener, close_ends)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_hold_where_they_are_set),
        ON_STREAM(what_a_socket_is),
        ON_STREAM(what_is_no_option),
        ON_LISTENER(maxseg_and_defer_accept_of_a_listener),
        ON_LISTENER(rcvbuf_bounds_what_is_sent_unread),
        ON_STREAM(sndtimeo_ends_a_send),
        ON_LISTENER(rcvtimeo_ends_an_accept_and_is_inherited),
        ON_LISTENER(sndtimeo_ends_a_connect),
        ON_STREAM(rcvlowat_is_what_makes_readable),
        ON_LISTENER(linger_is_told_as_it_was_set),
        cmocka_unit_test_teardown(v6only_and_mapped_addresses, close_ends),
        ON_LISTENER(flags_of_a_socket),
        ON_STREAM(flags_of_a_receive),
        ON_STREAM(waitall_waits_for_all),
        ON_STREAM(flags_of_a_send),
        ON_LISTENER(a_server_that_accepts_one_after_the_other),
    };
    return cmocka_run_group_tests_name("rsocket_options", tests, NULL, NULL);
}
