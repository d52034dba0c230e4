/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket_defects: tests that what is known to go wrong with librdmacm's rsockets (rdma-core 65) does not go
 * wrong here. There are fourteen defects. These have no test here:
 *   6  A datagram rsocket uses epoll through its own preload library. d6_epoll_is_anothers in
 *      rsocket_datagrams.c tests this.
 *   11 rshutdown and rclose wait for ever for a peer that is gone. a_silent_peer_delays_no_end in
 *      rsocket_errors.c tests this.
 *   13 sendfile to an rsocket always fails. The test waits for the preload library, because there is no
 *      rsendfile.
 * Defect 14 has a test of one part only, because it is about accept4 of the preload library, too. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "test.h"

/* These come last, because they assert. */
#include "../entries.h"
#include "../sockets.h"
#include "rsockets.h"

static uint16_t port;
static int listener = -1;
static int ends[2] = {-1, -1};

static int make_ends(void **state) {
    (void)state;
    listener = listening_rsocket(&port);
    connect_ends(ends, listener, port);
    return 0;
}

static int close_ends(void **state) {
    (void)state;
    close_pair(ends);
    assert_int_equal(rclose(listener), 0);
    return 0;
}

static void d1_rrecvmsg_loses_its_flags(void **state) {
    (void)state;
    char bytes[8];
    struct sockaddr_in from;
    struct iovec part = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr message = {
        .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &part, .msg_iovlen = 1};
    assert_fails(rrecvmsg(ends[1], &message, MSG_DONTWAIT), EAGAIN);
    assert_int_equal(rsend(ends[0], "abcd", 4, 0), 4);
    assert_int_equal(rrecvmsg(ends[1], &message, MSG_PEEK), 4);
    message.msg_flags = MSG_PEEK; /* the call fills this in, and does not read it */
    assert_int_equal(rrecvmsg(ends[1], &message, 0), 4);
    assert_int_equal(message.msg_flags, 0);
    assert_int_equal(message.msg_namelen, 0);
    assert_fails(rrecvmsg(ends[1], &message, MSG_DONTWAIT), EAGAIN);
}

static void d2_parts_of_a_datagram_are_taken_for_a_stream(void **state) {
    (void)state;
    if (getenv("RPMA_TLS") != NULL) {
        skip(); /* with TLS there is none of what it needs: TCP, datagrams, or bytes that the wire shows */
    }
    struct sockaddr_in name = loopback_at(0);
    struct sockaddr_in from = {0};
    socklen_t size = sizeof(name);
    char bytes[8];
    struct iovec out[2] = {{"ab", 2}, {"cd", 2}};
    struct iovec in = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    const int receiver = rsocket(AF_INET, SOCK_DGRAM, 0);
    const int sender = rsocket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(rbind(receiver, (struct sockaddr *)&name, size), 0);
    assert_int_equal(rgetsockname(receiver, (struct sockaddr *)&name, &size), 0);
    const struct msghdr sent = {
        .msg_name = &name, .msg_namelen = sizeof(name), .msg_iov = out, .msg_iovlen = 2};
    struct msghdr got = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &in, .msg_iovlen = 1};
    assert_int_equal(rsendmsg(sender, &sent, 0), 4);
    assert_int_equal(rrecvmsg(receiver, &got, 0), 4);
    assert_memory_equal(bytes, "abcd", 4);
    assert_int_equal(got.msg_namelen, sizeof(from));
    assert_int_equal(rconnect(sender, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(rwritev(sender, out, 2), 4);
    assert_int_equal(rrecv(receiver, bytes, sizeof(bytes), 0), 4);
    assert_int_equal(rclose(sender), 0);
    assert_int_equal(rclose(receiver), 0);
}

static void d3_a_broken_stream_reads_as_its_end(void **state) {
    (void)state;
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    char byte = 0;
    assert_int_equal(rsetsockopt(ends[0], SOL_SOCKET, SO_LINGER, &none, sizeof(none)), 0);
    assert_int_equal(rclose(ends[0]), 0);
    ends[0] = -1;
    for (int i = 0; i < 3; ++i) {
        assert_fails(rrecv(ends[1], &byte, 1, 0), ECONNRESET);
    }
}

static void d4_rclose_returns_a_positive_number(void **state) {
    (void)state;
    const int closed = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rclose(closed), 0);
    assert_fails(rclose(closed), EBADF);
    assert_fails(rclose(-1), EBADF);
    assert_fails(rclose(INT_MAX), EBADF);
}

/* librdmacm's repoll returns positive error numbers, which look like 22 events, for instance. A repoll that
 * has members could not be closed either. */
static void d4_repoll_returns_positive_numbers(void **state) {
    (void)state;
    struct epoll_event event = {.events = EPOLLIN};
    const int set = repoll_create(0);
    assert_true(set >= 0);
    assert_fails(repoll_create(INT_MAX), EINVAL);
    assert_fails(repoll_ctl(set, INT_MAX, ends[1], &event), EINVAL);
    assert_fails(repoll_ctl(set, EPOLL_CTL_MOD, ends[1], &event), ENOENT);
    assert_fails(repoll_ctl(ends[0], EPOLL_CTL_ADD, ends[1], &event), EINVAL);
    assert_fails(repoll_ctl(-1, EPOLL_CTL_ADD, ends[1], &event), EBADF);
    assert_fails(repoll_wait(set, &event, 0, 0), EINVAL);
    assert_fails(repoll_wait(ends[0], &event, 1, 0), EINVAL);
    assert_fails(repoll_wait(-1, &event, 1, 0), EBADF);
    assert_int_equal(repoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event), 0);
    assert_fails(repoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event), EEXIST);
    assert_int_equal(rclose(set), 0);
    assert_fails(repoll_wait(set, &event, 1, 0), EBADF);
}

static void d5_rpoll_takes_an_epoll_descriptor_for_something_else(void **state) {
    (void)state;
    int fds[2];
    struct epoll_event event = {.events = EPOLLIN};
    struct pollfd entries[2] = {{.fd = ends[1], .events = POLLIN},
                                {.fd = epoll_create1(0), .events = POLLIN}};
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(epoll_ctl(entries[1].fd, EPOLL_CTL_ADD, fds[0], &event), 0);
    assert_int_equal(rpoll(entries, 2, 0), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(rpoll(entries, 2, 30000), 1);
    assert_int_equal(entries[1].revents, POLLIN);
    close(entries[1].fd);
    close(fds[0]);
    close(fds[1]);
}

static uint32_t told(int set, uint32_t events, int operation) {
    struct epoll_event event = {.events = events};
    assert_int_equal(repoll_ctl(set, operation, ends[1], &event), 0);
    return repoll_wait(set, &event, 1, 30000) == 1 ? event.events : 0;
}

static void d5_repoll_knows_level_trigger_only_and_makes_a_thread(void **state) {
    (void)state;
    struct epoll_event event;
    const int threads = entries_of("/proc/self/task");
    const int set = repoll_create(0);
    const int outer = repoll_create(0);
    assert_int_equal(rsend(ends[0], "abcd", 4, 0), 4);
    assert_int_equal(told(set, EPOLLIN | EPOLLET, EPOLL_CTL_ADD), EPOLLIN);
    assert_int_equal(repoll_wait(set, &event, 1, 0), 0);
    assert_int_equal(told(set, EPOLLIN | EPOLLONESHOT, EPOLL_CTL_MOD), EPOLLIN);
    assert_int_equal(repoll_wait(set, &event, 1, 0), 0);
    assert_int_equal(rshutdown(ends[0], SHUT_WR), 0);
    assert_int_equal(told(set, EPOLLRDHUP, EPOLL_CTL_MOD), EPOLLRDHUP);
    assert_int_equal(repoll_ctl(set, EPOLL_CTL_DEL, ends[1], NULL), 0);
    assert_int_equal(told(set, EPOLLIN | EPOLLEXCLUSIVE, EPOLL_CTL_ADD), EPOLLIN);
    event = (struct epoll_event){.events = EPOLLIN, .data.fd = set};
    assert_int_equal(repoll_ctl(outer, EPOLL_CTL_ADD, set, &event), 0);
    assert_int_equal(entries_of("/proc/self/task"), threads);
    assert_int_equal(rclose(outer), 0);
    assert_int_equal(rclose(set), 0);
}

/* Makes fd the descriptor 0, and returns a duplicate of the old descriptor 0. */
static int put_at_zero(int fd) {
    const int kept = dup(0);
    assert_int_equal(dup2(fd, 0), 0);
    return kept;
}

static void d7_rselect_loses_descriptor_0_and_keeps_its_time(void **state) {
    (void)state;
    int fds[2];
    fd_set reading;
    fd_set broken;
    struct timeval time = {.tv_sec = 10};
    assert_int_equal(pipe(fds), 0);
    const int kept = put_at_zero(fds[0]);
    assert_int_equal(write(fds[1], "x", 1), 1);
    FD_ZERO(&reading);
    FD_ZERO(&broken);
    FD_SET(0, &reading);
    FD_SET(0, &broken);
    FD_SET(ends[0], &reading);
    FD_SET(ends[0], &broken);
    assert_int_equal(rselect(ends[0] + 1, &reading, NULL, &broken, &time), 1);
    assert_true(FD_ISSET(0, &reading));
    assert_false(FD_ISSET(ends[0], &reading) || FD_ISSET(0, &broken) || FD_ISSET(ends[0], &broken));
    assert_true(time.tv_sec < 10);
    time = (struct timeval){.tv_usec = 1000};
    FD_ZERO(&reading);
    FD_SET(ends[0], &reading);
    assert_int_equal(rselect(ends[0] + 1, &reading, NULL, NULL, &time), 0);
    assert_true(time.tv_sec == 0 && time.tv_usec == 0);
    /* This rsocket is the descriptor 0. */
    close(0);
    assert_int_equal(rsocket(AF_INET, SOCK_STREAM, 0), 0);
    FD_SET(0, &reading);
    time = (struct timeval){.tv_sec = 10};
    assert_int_equal(rselect(1, &reading, NULL, NULL, &time), 1); /* a TCP socket that is not connected */
    assert_true(FD_ISSET(0, &reading));
    assert_int_equal(rclose(0), 0);
    if (kept >= 0) {
        dup2(kept, 0);
        close(kept);
    }
    close(fds[0]);
    close(fds[1]);
}

static void d8_rgetsockopt_of_a_route_writes_nowhere(void **state) {
    (void)state;
    unsigned char before[256];
    unsigned char route[256];
    socklen_t size = sizeof(route);
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    memset(route, 0x5a, sizeof(route));
    memcpy(before, route, sizeof(route));
    assert_fails(rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, route, sizeof(route)), ENOPROTOOPT);
    assert_fails(rgetsockopt(fd, SOL_RDMA, RDMA_ROUTE, route, &size), ENOPROTOOPT);
    assert_memory_equal(route, before, sizeof(route));
    assert_int_equal(size, sizeof(route));
    assert_int_equal(rclose(fd), 0);
}

static void d9_a_descriptor_that_never_was_is_followed(void **state) {
    (void)state;
    const int none[] = {INT_MIN, -1, 3000, 65535, 65536, INT_MAX};
    char byte = 0;
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); ++i) {
        assert_fails(rsend(none[i], &byte, 1, 0), EBADF);
        assert_fails(rrecv(none[i], &byte, 1, 0), EBADF);
        struct pollfd entry = {.fd = none[i], .events = POLLIN};
        assert_int_equal(rpoll(&entry, 1, 0), none[i] < 0 ? 0 : 1);
        assert_int_equal(entry.revents, none[i] < 0 ? 0 : POLLNVAL);
    }
}

static long sleeps_of_this_thread(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

/* Makes streams of its own, and sends a thousand messages on them. */
static void *be_busy(void *unused) {
    (void)unused;
    enum { MESSAGES = 1000 };
    int own[2];
    char byte = 0;
    uint16_t own_port = 0;
    const int own_listener = listening_rsocket(&own_port);
    connect_ends(own, own_listener, own_port);
    int count = 0;
    while (count < MESSAGES && rsend(own[0], "x", 1, 0) == 1 && rrecv(own[1], &byte, 1, 0) == 1) {
        ++count;
    }
    const int failures = rclose(own[0]) + rclose(own[1]) + rclose(own_listener);
    return count == MESSAGES && failures == 0 ? NULL : ends;
}

/* Returns how often this thread sleeps while it waits beside a busy one. */
static long sleeps_beside_a_busy_thread(void) {
    pthread_t thread;
    void *failed = NULL;
    struct pollfd entry = {.fd = ends[1], .events = POLLIN};
    assert_int_equal(pthread_create(&thread, NULL, be_busy, NULL), 0);
    const long before = sleeps_of_this_thread();
    assert_int_equal(rpoll(&entry, 1, 1200), 0); /* librdmacm wakes up twice a second */
    const long sleeps = sleeps_of_this_thread() - before;
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    return sleeps;
}

/* A thread also sleeps for a lock of the kernel's or the library's, on a busy machine more than once. The
 * clock and the events of others would wake it in every round. */
static void d10_every_event_wakes_every_thread_and_so_does_the_clock(void **state) {
    (void)state;
    enum { MOST_SLEEPS = 2, ROUNDS = 5 };
    long sleeps = sleeps_beside_a_busy_thread();
    for (int round = 1; round < ROUNDS && sleeps > MOST_SLEEPS; ++round) {
        sleeps = sleeps_beside_a_busy_thread();
    }
    /* Under Valgrind a thread also sleeps until it is its turn. */
    assert_true(sleeps <= MOST_SLEEPS || getenv("RPMA_VALGRIND") != NULL);
}

static void d12_raccept_makes_threads_and_queues(void **state) {
    (void)state;
    const struct sockaddr_in address = loopback_at(port);
    const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_fails(rconnect(client, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    const int threads = entries_of("/proc/self/task");
    const int descriptors = entries_of("/proc/self/fd");
    const int accepted = raccept(listener, NULL, NULL);
    assert_true(accepted >= 0);
    assert_int_equal(entries_of("/proc/self/task"), threads);
    assert_in_range(entries_of("/proc/self/fd"), 0, descriptors + 1);
    assert_int_equal(rclose(accepted), 0);
    assert_int_equal(rclose(client), 0);
}

static void d14_kinds_of_flags_are_mixed_up(void **state) {
    (void)state;
    const int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(rfcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(rfcntl(fd, F_SETFD, 0), 0);
    assert_int_equal(rfcntl(fd, F_GETFD), 0);
    assert_int_equal(rfcntl(fd, F_GETFL), O_RDWR | O_NONBLOCK);
    assert_int_equal(rclose(fd), 0);
    assert_int_equal(rfcntl(ends[1], F_GETFL), O_RDWR);
    assert_int_equal(rfcntl(ends[1], F_GETFD), 0);
}

#define ON_STREAM(test) cmocka_unit_test_setup_teardown(test, make_ends, close_ends)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_STREAM(d1_rrecvmsg_loses_its_flags),
        cmocka_unit_test(d2_parts_of_a_datagram_are_taken_for_a_stream),
        ON_STREAM(d3_a_broken_stream_reads_as_its_end),
        cmocka_unit_test(d4_rclose_returns_a_positive_number),
        ON_STREAM(d4_repoll_returns_positive_numbers),
        ON_STREAM(d5_repoll_knows_level_trigger_only_and_makes_a_thread),
        ON_STREAM(d5_rpoll_takes_an_epoll_descriptor_for_something_else),
        ON_STREAM(d7_rselect_loses_descriptor_0_and_keeps_its_time),
        cmocka_unit_test(d8_rgetsockopt_of_a_route_writes_nowhere),
        cmocka_unit_test(d9_a_descriptor_that_never_was_is_followed),
        ON_STREAM(d10_every_event_wakes_every_thread_and_so_does_the_clock),
        ON_STREAM(d12_raccept_makes_threads_and_queues),
        ON_STREAM(d14_kinds_of_flags_are_mixed_up),
    };
    return cmocka_run_group_tests_name("rsocket_defects", tests, NULL, NULL);
}
