/* SPDX-License-Identifier: BSD-3-Clause */
/* rsockets: makes streams of a C test with itself, and with another process of the same program, and asserts
 * that it succeeds. Include it after cmocka.h. */
#ifndef RSOCKETS_H
#define RSOCKETS_H 1

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rpma/rsocket.h>

#include "../fails.h"

static inline struct sockaddr_in loopback_at(uint16_t port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
}

static inline int listening_rsocket(uint16_t *port) {
    struct sockaddr_in address = loopback_at(0);
    socklen_t size = sizeof(address);
    const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_true(listener >= 0);
    assert_int_equal(rbind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(rlisten(listener, 8), 0);
    assert_int_equal(rgetsockname(listener, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return listener;
}

/* Waits until a connection of an rsocket that does not block is there to be accepted. Such an rsocket goes
 * on, and sends its request, while its program is in a call. */
static inline void await_connection(int asking, int listener) {
    struct pollfd both[2] = {{.fd = asking, .events = POLLOUT}, {.fd = listener, .events = POLLIN}};
    while (both[1].revents == 0) {
        assert_true(rpoll(both, 2, 30000) > 0);
    }
}

/* Connects fds[0], which does not block, because one thread is both ends. fds[1] has accepted.
 * The stream is established when this returns. */
static inline void connect_rsocket(int fds[2], int listener, uint16_t port) {
    const struct sockaddr_in address = loopback_at(port);
    assert_fails(rconnect(fds[0], (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    struct pollfd asked = {.fd = listener, .events = POLLIN};
    assert_int_equal(rpoll(&asked, 1, 30000), 1); /* the listener may not block */
    fds[1] = raccept(listener, NULL, NULL);
    assert_true(fds[1] >= 0);
    struct pollfd both[2] = {{.fd = fds[0], .events = POLLOUT}, {.fd = fds[1], .events = POLLIN}};
    while (both[0].revents == 0) {
        assert_true(rpoll(both, 2, 30000) > 0);
    }
    assert_int_equal(both[0].revents, POLLOUT);
    int error = -1;
    socklen_t size = sizeof(error);
    assert_int_equal(rgetsockopt(fds[0], SOL_SOCKET, SO_ERROR, &error, &size), 0);
    assert_int_equal(error, 0);
    assert_int_equal(rfcntl(fds[0], F_SETFL, 0), 0);
}

/* Connects in the same way with a new rsocket. */
static inline void connect_ends(int fds[2], int listener, uint16_t port) {
    fds[0] = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(fds[0] >= 0);
    connect_rsocket(fds, listener, port);
}

static inline void make_pair(int fds[2]) {
    uint16_t port = 0;
    const int listener = listening_rsocket(&port);
    connect_ends(fds, listener, port);
    assert_int_equal(rclose(listener), 0);
}

/* Closes the ends that the test has not closed. */
static inline void close_pair(int fds[2]) {
    for (int i = 0; i < 2; ++i) {
        if (fds[i] >= 0) {
            assert_int_equal(rclose(fds[i]), 0);
            fds[i] = -1;
        }
    }
}

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Waits until a thread sleeps in poll() or a call like it. The thread stores its number when it is about to
 * make its call. The state "sleeps" alone is not enough: a thread that waits for a lock, Valgrind's own among
 * them, has it too. */
static inline void await_sleep(const atomic_int *thread) {
    const double deadline = seconds() + 30;
    char path[64];
    long call = -1;
    while (atomic_load(thread) == 0) {
        sched_yield();
    }
    snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", atomic_load(thread));
    while (call != SYS_poll && call != SYS_ppoll && call != SYS_epoll_wait && call != SYS_epoll_pwait) {
        FILE *const file = fopen(path, "r");
        assert_non_null(file);
        call = -1; /* a thread that runs has no number here */
        assert_true(fscanf(file, "%ld", &call) != EOF);
        fclose(file);
        assert_true(seconds() < deadline);
    }
}

/* Runs this program once more, with three arguments: its role, and two numbers. The peer is a process of its
 * own, because a child that was forked cannot use a device that its parent has opened. */
static inline pid_t start_peer(const char *program, const char *role, int first, int second) {
    char numbers[2][16];
    snprintf(numbers[0], sizeof(numbers[0]), "%d", first);
    snprintf(numbers[1], sizeof(numbers[1]), "%d", second);
    const pid_t child = fork();
    if (child == 0) {
        execl(program, program, role, numbers[0], numbers[1], (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    return child;
}

/* Waits for the end of a peer. Returns its exit code, or minus the number of the signal that killed it. */
static inline int end_of_peer(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Waits until the child has stopped itself. */
static inline void await_stop(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
}

#endif
