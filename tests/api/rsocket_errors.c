/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket_errors: tests the end of a stream after a failure, the errors at each end, and the errors of a
 * process that has used up its resources. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "test.h"

/* These come last, because they assert. */
#include "../sockets.h"
#include "rsockets.h"

enum { MANY = 8 << 20 };

static const char *program;
static uint16_t port;
static int listener = -1;
static pid_t child;
static int fd = -1;

static int listen_for_peers(void **state) {
    (void)state;
    listener = listening_rsocket(&port);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    if (child != 0) {
        kill(child, SIGKILL);
        (void)end_of_peer(child);
        child = 0;
    }
    if (fd >= 0) {
        assert_int_equal(rclose(fd), 0);
        fd = -1;
    }
    assert_int_equal(rclose(listener), 0);
    return 0;
}

/* ---- the peer is another process ---- */

/* Connects with a buffer that is larger than TCP's, and sends a byte to report that. */
static int connected_peer(int to, int bytes) {
    const struct sockaddr_in address = loopback_at((uint16_t)to);
    const int socket = rsocket(AF_INET, SOCK_STREAM, 0);
    if (rsetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) != 0 ||
        rconnect(socket, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        rsend(socket, "x", 1, 0) != 1) {
        _exit(1);
    }
    return socket;
}

/* Stops itself, and when it continues, reads up to the end. Returns 0 when the end comes after this many
 * bytes and the close, which waits for the other end, takes no time. */
static int stopping_peer(int to, int expected) {
    static char bytes[1 << 16];
    const struct linger long_time = {.l_onoff = 1, .l_linger = 60};
    const int socket = connected_peer(to, MANY);
    raise(SIGSTOP);
    ssize_t got = 0;
    int total = 0;
    while ((got = rrecv(socket, bytes, sizeof(bytes), 0)) > 0) {
        total += (int)got;
    }
    if (got != 0 || total != expected) {
        return 2;
    }
    const double before = seconds();
    return rsetsockopt(socket, SOL_SOCKET, SO_LINGER, &long_time, sizeof(long_time)) == 0 &&
                   rclose(socket) == 0 && seconds() - before < 30
               ? 0
               : 3;
}

/* Sends and ends without a close. The end is in order when `orderly` is set. */
static int leaving_peer(int to, int orderly) {
    static char bytes[1 << 16];
    const int socket = connected_peer(to, MANY);
    if (rsend(socket, bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        return 3;
    }
    if (!orderly) {
        _exit(0);
    }
    return 0;
}

static void accept_peer(const char *role, int argument) {
    char byte = 0;
    child = start_peer(program, role, port, argument);
    fd = raccept(listener, NULL, NULL);
    assert_true(fd >= 0);
    assert_int_equal(rrecv(fd, &byte, 1, 0), 1);
}

/* Sends until the peer takes no more bytes. Returns how many it took. */
static int jam(void) {
    static const char bytes[1 << 16];
    ssize_t put = 0;
    int total = 0;
    while ((put = rsend(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
        total += (int)put;
    }
    assert_int_equal(errno, EAGAIN);
    return total;
}

static void assert_broken(int expected) {
    char byte = 0;
    int error = 0;
    socklen_t size = sizeof(error);
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLOUT};
    for (int i = 0; i < 2; ++i) {
        assert_fails(rrecv(fd, &byte, 1, 0), expected);
        assert_fails(rsend(fd, &byte, 1, 0), expected);
        assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
        assert_int_equal(error, expected);
        assert_int_equal(rpoll(&entry, 1, 30000), 1);
        assert_int_equal(entry.revents, POLLIN | POLLOUT | POLLERR | POLLHUP);
    }
}

/* Has a child kill the peer, which has stopped, while a call waits until the peer takes more. */
static int kill_soon(pid_t victim) {
    const pid_t killer = fork();
    if (killer == 0) {
        const struct timespec moment = {.tv_nsec = 50000000};
        nanosleep(&moment, NULL);
        _exit(kill(victim, SIGKILL));
    }
    return killer;
}

static void a_killed_peer_is_a_reset_for_who_sends(void **state) {
    (void)state;
    static char bytes[2 * MANY];
    accept_peer("stopping", 0);
    await_stop(child);
    const pid_t killer = kill_soon(child);
    const ssize_t sent = rsend(fd, bytes, sizeof(bytes), 0);
    assert_true(sent < (ssize_t)sizeof(bytes));
    assert_broken(ECONNRESET);
    assert_int_equal(end_of_peer(killer), 0);
}

static void a_killed_peer_is_a_reset_for_who_polls(void **state) {
    (void)state;
    struct pollfd entry = {.events = POLLIN};
    accept_peer("stopping", 0);
    await_stop(child);
    const pid_t killer = kill_soon(child);
    entry.fd = fd;
    assert_int_equal(rpoll(&entry, 1, 30000), 1);
    assert_int_equal(entry.revents, POLLIN | POLLERR | POLLHUP);
    assert_broken(ECONNRESET);
    assert_int_equal(end_of_peer(killer), 0);
}

/* The peer's kernel answers, but the peer takes no bytes. */
static void a_silent_peer_is_a_time_out(void **state) {
    (void)state;
    const unsigned milliseconds = 300;
    accept_peer("stopping", 0);
    await_stop(child);
    assert_int_equal(rsetsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds)), 0);
    (void)jam();
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    assert_int_equal(rpoll(&entry, 1, 30000), 1);
    assert_broken(ETIMEDOUT);
}

static void a_silent_peer_delays_no_end(void **state) {
    (void)state;
    accept_peer("stopping", 0);
    await_stop(child);
    (void)jam();
    assert_int_equal(rshutdown(fd, SHUT_WR), 0);
    assert_int_equal(rshutdown(fd, SHUT_RDWR), 0);
    assert_int_equal(rclose(fd), 0);
    fd = -1;
}

static void a_silent_peer_delays_an_end_as_long_as_it_may(void **state) {
    (void)state;
    const struct linger second = {.l_onoff = 1, .l_linger = 1};
    accept_peer("stopping", 0);
    await_stop(child);
    assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &second, sizeof(second)), 0);
    (void)jam();
    const double before = seconds();
    assert_int_equal(rclose(fd), 0);
    fd = -1;
    assert_true(seconds() - before >= 0.99);
}

static void what_was_sent_arrives_behind_the_close(void **state) {
    (void)state;
    /* These bytes fit into the peer's buffer, so that all of them are sent, and are more than TCP holds. */
    static char bytes[MANY / 2];
    accept_peer("stopping", sizeof(bytes));
    await_stop(child);
    assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){MANY}, sizeof(int)), 0);
    for (size_t sent = 0; sent < sizeof(bytes);) {
        const ssize_t put = rsend(fd, bytes + sent, sizeof(bytes) - sent, MSG_DONTWAIT);
        sent += put > 0 ? (size_t)put : 0;
        if (put < 0) {
            /* The rest needs a peer that runs. */
            assert_int_equal(kill(child, SIGCONT), 0);
            struct pollfd entry = {.fd = fd, .events = POLLOUT};
            assert_int_equal(rpoll(&entry, 1, 30000), 1);
        }
    }
    assert_int_equal(rclose(fd), 0);
    fd = -1;
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_int_equal(end_of_peer(child), 0);
    child = 0;
}

static void a_close_that_lingers_waits_for_the_peer(void **state) {
    (void)state;
    const struct linger long_time = {.l_onoff = 1, .l_linger = 60};
    accept_peer("stopping", 5);
    await_stop(child);
    assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &long_time, sizeof(long_time)), 0);
    assert_int_equal(rsend(fd, "bytes", 5, 0), 5);
    assert_int_equal(kill(child, SIGCONT), 0);
    const double before = seconds();
    assert_int_equal(rclose(fd), 0);
    fd = -1;
    assert_true(seconds() - before < 30.0);
    assert_int_equal(end_of_peer(child), 0);
    child = 0;
}

/* The device gives a peer two seconds to see its end. This process looked at its streams without waiting, and
 * then does something else: it waits for the peer. */
static void a_peer_need_not_wait_for_who_polls_no_more(void **state) {
    (void)state;
    struct epoll_event event = {.events = EPOLLIN};
    const int set = repoll_create(0);
    accept_peer("stopping", 0);
    await_stop(child);
    assert_int_equal(rshutdown(fd, SHUT_WR), 0);
    assert_int_equal(repoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    assert_int_equal(repoll_wait(set, &event, 1, 0), 0);
    assert_int_equal(kill(child, SIGCONT), 0);
    const int result = end_of_peer(child);
    child = 0;
    assert_int_equal(result, 0);
    assert_int_equal(rclose(set), 0);
}

static void a_process_that_exits_ends_its_streams(void **state) {
    (void)state;
    static char bytes[1 << 16];
    for (int orderly = 0; orderly < 2; ++orderly) {
        accept_peer("leaving", orderly);
        if (orderly) {
            assert_int_equal(rrecv(fd, bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
            assert_int_equal(rrecv(fd, bytes, 1, 0), 0);
        } else { /* bytes that TCP had not taken end with the process */
            ssize_t got = 0;
            while ((got = rrecv(fd, bytes, sizeof(bytes), 0)) > 0) {
            }
            assert_int_equal(got, -1);
            assert_int_equal(errno, ECONNRESET);
        }
        assert_int_equal(end_of_peer(child), 0);
        child = 0;
        assert_int_equal(rclose(fd), 0);
        fd = -1;
    }
}

static void a_close_that_does_not_linger_cuts_off(void **state) {
    (void)state;
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    int fds[2];
    char byte = 0;
    connect_ends(fds, listener, port);
    assert_int_equal(rsetsockopt(fds[0], SOL_SOCKET, SO_LINGER, &none, sizeof(none)), 0);
    assert_int_equal(rsend(fds[0], "x", 1, 0), 1);
    assert_int_equal(rrecv(fds[1], &byte, 1, 0), 1);
    assert_int_equal(rclose(fds[0]), 0);
    assert_fails(rrecv(fds[1], &byte, 1, 0), ECONNRESET);
    assert_int_equal(rclose(fds[1]), 0);
}

/* ---- the peer is no rsocket ---- */

/* Connects to a listener of ours, which answers with bytes and waits for more, or answers with none and
 * ends. The rsocket may connect again then. */
static void connect_to_stranger(const char *bytes, size_t size, int expected) {
    uint16_t strange = 0;
    const int stranger = listening_socket(&strange);
    const struct sockaddr_in address = loopback_at(strange);
    struct pollfd entry = {.fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), .events = POLLOUT};
    assert_fails(rconnect(entry.fd, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    const int accepted = accept(stranger, NULL, NULL);
    assert_int_equal(rpoll(&entry, 1, 0), 0); /* the request is on its way */
    assert_fails(rconnect(entry.fd, (const struct sockaddr *)&address, sizeof(address)), EALREADY);
    char request[60];
    assert_int_equal(recv(accepted, request, sizeof(request), MSG_WAITALL), sizeof(request));
    assert_int_equal(send(accepted, bytes, size, 0), (ssize_t)size);
    if (size == 0) {
        assert_int_equal(shutdown(accepted, SHUT_RDWR), 0);
    }
    assert_int_equal(rpoll(&entry, 1, 30000), 1);
    close(accepted);
    assert_true((entry.revents & POLLERR) != 0);
    assert_fails(rconnect(entry.fd, (const struct sockaddr *)&address, sizeof(address)), expected);
    char byte = 0;
    assert_fails(rrecv(entry.fd, &byte, 1, 0), ENOTCONN);
    assert_fails(rconnect(entry.fd, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    assert_int_equal(rclose(entry.fd), 0);
    close(stranger);
}

static void each_way_not_to_connect_has_a_name(void **state) {
    (void)state;
    if (getenv("RPMA_TLS") != NULL) {
        skip(); /* with TLS there is none of what it needs: TCP, datagrams, or bytes that the wire shows */
    }
    static const char banner[] = "SSH-2.0-this is another protocol\r\n";
    static const char refusal[20] = "MPA ID Rep Frame\x20\x01";
    connect_to_stranger(banner, sizeof(banner), EPROTO);
    connect_to_stranger(refusal, sizeof(refusal), ECONNREFUSED);
    connect_to_stranger("-ERR", 4, EPROTO); /* this is less than an answer has */
    connect_to_stranger("", 0, ECONNRESET);
}

static void a_failed_rconnect_can_be_tried_again(void **state) {
    (void)state;
    uint16_t free_port = 0;
    close(listening_socket(&free_port));
    struct sockaddr_in address = loopback_at(free_port);
    struct pollfd both[2] = {{.fd = rsocket(AF_INET, SOCK_STREAM, 0), .events = POLLOUT}, {.events = POLLIN}};
    char byte = 0;
    assert_fails(rconnect(both[0].fd, (const struct sockaddr *)&address, sizeof(address)), ECONNREFUSED);
    assert_fails(rrecv(both[0].fd, &byte, 1, 0), ENOTCONN);
    assert_int_equal(rfcntl(both[0].fd, F_SETFL, O_NONBLOCK), 0);
    address = loopback_at(port);
    assert_fails(rconnect(both[0].fd, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    both[1].fd = raccept(listener, NULL, NULL);
    while (both[0].revents == 0) {
        assert_true(rpoll(both, 2, 30000) > 0);
    }
    assert_fails(rconnect(both[0].fd, (const struct sockaddr *)&address, sizeof(address)), EISCONN);
    assert_int_equal(rclose(both[0].fd), 0);
    assert_int_equal(rclose(both[1].fd), 0);
}

/* ---- a process without resources ---- */

#define expect(condition)           \
    do {                            \
        if (!(condition)) {         \
            return __LINE__ & 0xff; \
        }                           \
    } while (0)

static int carries_bytes(const int ends[2]) {
    char bytes[5] = "";
    return rsend(ends[0], "bytes", 5, 0) == 5 && rrecv(ends[1], bytes, 5, MSG_WAITALL) == 5 &&
           memcmp(bytes, "bytes", 5) == 0;
}

/* Returns 0, or an errno value. With an errno value no object of the pair is left. */
static int connect_pair(int ends[2], int from) {
    struct sockaddr_in address;
    socklen_t size = sizeof(address);
    int error = 0;
    ends[1] = -1;
    ends[0] = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (ends[0] < 0) {
        return errno;
    }
    if (rgetsockname(from, (struct sockaddr *)&address, &size) != 0 ||
        (rconnect(ends[0], (struct sockaddr *)&address, size) != 0 && errno != EINPROGRESS)) {
        error = errno;
    }
    /* The listener accepts also when the connection failed, because TCP may have connected. */
    struct pollfd both[2] = {{.fd = from, .events = POLLIN}};
    if (rpoll(both, 1, error == 0 ? -1 : 0) > 0 && (ends[1] = raccept(from, NULL, NULL)) < 0) {
        error = error != 0 ? error : errno;
    }
    both[0] = (struct pollfd){.fd = ends[0], .events = POLLOUT};
    both[1] = (struct pollfd){.fd = ends[1], .events = POLLIN};
    while (error == 0 && both[0].revents == 0) {
        const int ready = rpoll(both, 2, 30000);
        error = ready > 0 ? 0 : ready < 0 ? errno : ETIMEDOUT;
        both[1].fd = both[1].revents == 0 ? both[1].fd : -1;
    }
    size = sizeof(error);
    if (error == 0 && rgetsockopt(ends[0], SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    char byte = 0;
    if (error == 0 && (rfcntl(ends[0], F_SETFL, 0) != 0 ||
                       (rrecv(ends[1], &byte, 1, MSG_DONTWAIT) < 0 && errno != EAGAIN))) {
        error = errno;
    }
    for (int i = 0; error != 0 && i < 2; ++i) {
        if (ends[i] >= 0) {
            (void)rclose(ends[i]);
        }
    }
    return error;
}

/* Connects with itself until a resource is used up. Then the first stream still works, and a new one works
 * when some were closed. Returns 0, or the line that failed. */
static int exhausting_peer(int resource, int most) {
    enum { PAIRS = 64, FREED = 4 };
    int pairs[PAIRS][2];
    uint16_t ignored = 0;
    const int own = listening_rsocket(&ignored);
    expect(own >= 0 && connect_pair(pairs[0], own) == 0);
    if (resource >= 0) {
        struct rlimit limit = {0};
        expect(getrlimit((enum __rlimit_resource)resource, &limit) == 0);
        limit.rlim_cur = (rlim_t)most;
        expect(setrlimit((enum __rlimit_resource)resource, &limit) == 0);
    }
    int count = 1;
    int error = 0;
    while (count < PAIRS && (error = connect_pair(pairs[count], own)) == 0) {
        ++count;
    }
    expect(count > 1 && count < PAIRS);
    expect(error == EMFILE || error == ENOBUFS || error == ENOMEM || error == ECONNRESET);
    for (int i = 0; i < count; ++i) {
        expect(carries_bytes(pairs[i]));
    }
    if (resource >= 0) {
        /* There is more than one stream, because a queue that was opened for the pair that failed stays for
         * the next, and keeps its descriptors. */
        expect(count > FREED);
        for (int i = 0; i < FREED; ++i) {
            --count;
            expect(rclose(pairs[count][0]) == 0 && rclose(pairs[count][1]) == 0);
        }
        /* The device closes its descriptors a moment later, when the peer has all bytes. */
        const double before = seconds();
        while ((error = connect_pair(pairs[count], own)) != 0 && seconds() - before < 10.0) {
        }
        expect(error == 0 && carries_bytes(pairs[count]));
        ++count;
    }
    for (int i = 0; i < count; ++i) {
        expect(rclose(pairs[i][0]) == 0 && rclose(pairs[i][1]) == 0);
    }
    return rclose(own);
}

static void out_of_descriptors(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    /* Without a descriptor UBSan cannot look at memory, and takes sound objects for broken ones. */
    skip();
#endif
    child = start_peer(program, "exhausting", RLIMIT_NOFILE, 64);
    const int result = end_of_peer(child);
    child = 0;
    assert_int_equal(result, 0);
}

static void out_of_registered_memory(void **state) {
    (void)state;
    assert_int_equal(setenv("SOFTRDMA_FAULTS", "register=20", 1), 0);
    child = start_peer(program, "exhausting", -1, 0);
    assert_int_equal(unsetenv("SOFTRDMA_FAULTS"), 0);
    const int result = end_of_peer(child);
    child = 0;
    assert_int_equal(result, 0);
}

#define WITH_LISTENER(test) cmocka_unit_test_setup_teardown(test, listen_for_peers, close_all)

int main(int count, char **arguments) {
    program = arguments[0];
    if (count == 4) {
        const int first = atoi(arguments[2]);
        const int second = atoi(arguments[3]);
        return strcmp(arguments[1], "stopping") == 0  ? stopping_peer(first, second)
               : strcmp(arguments[1], "leaving") == 0 ? leaving_peer(first, second)
                                                      : exhausting_peer(first, second);
    }
    const struct CMUnitTest tests[] = {
        WITH_LISTENER(a_killed_peer_is_a_reset_for_who_sends),
        WITH_LISTENER(a_killed_peer_is_a_reset_for_who_polls),
        WITH_LISTENER(a_silent_peer_is_a_time_out),
        WITH_LISTENER(a_silent_peer_delays_no_end),
        WITH_LISTENER(a_silent_peer_delays_an_end_as_long_as_it_may),
        WITH_LISTENER(what_was_sent_arrives_behind_the_close),
        WITH_LISTENER(a_close_that_lingers_waits_for_the_peer),
        WITH_LISTENER(a_peer_need_not_wait_for_who_polls_no_more),
        WITH_LISTENER(a_process_that_exits_ends_its_streams),
        WITH_LISTENER(a_close_that_does_not_linger_cuts_off),
        WITH_LISTENER(each_way_not_to_connect_has_a_name),
        WITH_LISTENER(a_failed_rconnect_can_be_tried_again),
        WITH_LISTENER(out_of_descriptors),
        WITH_LISTENER(out_of_registered_memory),
    };
    return cmocka_run_group_tests_name("rsocket_errors", tests, NULL, NULL);
}
