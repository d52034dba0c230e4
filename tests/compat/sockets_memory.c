/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sockets_memory.c: calls whose result over memory is easily another one than over TCP. Run alone, it shows
 * that libc does what is asserted here; with libcarry-preload.so, and the argument `memory`, that the same
 * calls do the same where the bytes go through memory.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "../fails.h"
#include "socket_pairs.h"

static int watching(int fd, uint32_t events) {
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = events, .data.fd = fd};
    assert_true(epoll >= 0);
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    return epoll;
}

static void assert_told(int epoll, int fd) {
    struct epoll_event event = {.events = 0};
    assert_int_equal(epoll_wait(epoll, &event, 1, wait_ms), 1);
    assert_int_equal(event.data.fd, fd);
}

static void assert_not_told(int epoll) {
    struct epoll_event event;
    assert_int_equal(epoll_wait(epoll, &event, 1, 0), 0);
}

/* The bytes of a raw system call come behind those that were sent before. */
static void bytes_come_past_the_library(void **state) {
    (void)state;
    int ends[2];
    char bytes[16];
    make_pair(ends);
    assert_int_equal(send(ends[0], "first", 5, 0), 5);
    assert_int_equal(syscall(SYS_sendto, ends[0], "second", 6, 0, NULL, 0), 6);
    assert_int_equal(recv(ends[1], bytes, 5, MSG_WAITALL), 5);
    assert_memory_equal(bytes, "first", 5);
    await(ends[1], POLLIN);
    assert_int_equal(recv(ends[1], bytes, 6, MSG_WAITALL), 6);
    assert_memory_equal(bytes, "second", 6);
    assert_int_equal(send(ends[0], "third", 5, 0), 5);
    assert_int_equal(recv(ends[1], bytes, 5, MSG_WAITALL), 5);
    assert_memory_equal(bytes, "third", 5);
    close_pair(ends);
}

static void pointers_that_are_none_are_refused(void **state) {
    (void)state;
    int ends[2];
    char byte = 0;
    void *volatile none = NULL;
    void *volatile high = (void *)(UINTPTR_MAX - 4095);
    make_pair(ends);
    assert_fails(send(ends[0], none, 1, 0), EFAULT);
    assert_fails(send(ends[0], high, 1, 0), EFAULT);
    assert_fails(recv(ends[1], none, 1, MSG_DONTWAIT), EAGAIN);
    assert_int_equal(send(ends[0], "x", 1, 0), 1);
    await(ends[1], POLLIN);
    assert_fails(recv(ends[1], none, 1, 0), EFAULT);
    assert_fails(read(ends[1], high, 1), EFAULT);
    assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
    assert_int_equal(byte, 'x');
    close_pair(ends);
}

/* recv(2) of nothing waits for something. */
static void nothing_is_received_when_something_is_there(void **state) {
    (void)state;
    int ends[2];
    char byte = 0;
    make_pair(ends);
    assert_fails(recv(ends[1], &byte, 0, MSG_DONTWAIT), EAGAIN);
    assert_int_equal(read(ends[1], &byte, 0), 0);
    assert_int_equal(send(ends[0], "x", 1, 0), 1);
    assert_int_equal(recv(ends[1], &byte, 0, 0), 0);
    assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
    close_pair(ends);
}

/* The kernel knows a member by its number and its file, also when the number was closed in between. */
static void a_member_comes_back_with_its_number(void **state) {
    (void)state;
    int ends[2];
    char byte = 0;
    make_pair(ends);
    const int epoll = watching(ends[1], EPOLLIN);
    const int other = dup(ends[1]);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(send(ends[0], "x", 1, 0), 1);
    assert_told(epoll, ends[1]);
    assert_int_equal(dup2(other, ends[1]), ends[1]);
    assert_int_equal(close(other), 0);
    assert_told(epoll, ends[1]);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = ends[1]};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[1], &event), 0);
    assert_told(epoll, ends[1]);
    assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
    assert_not_told(epoll);
    assert_int_equal(close(epoll), 0);
    close_pair(ends);
}

static void an_edge_is_told_of_once(void **state) {
    (void)state;
    int ends[2];
    char byte = 0;
    make_pair(ends);
    const int epoll = watching(ends[1], EPOLLIN | EPOLLET);
    for (int i = 0; i < 100; ++i) {
        assert_int_equal(send(ends[0], "xy", 2, 0), 2);
        assert_told(epoll, ends[1]);
        assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
        assert_not_told(epoll);
        use(ends);
        assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
    }
    assert_int_equal(close(epoll), 0);
    close_pair(ends);
}

/* The member is disarmed before the connection goes over, and stays so. */
static void one_shot_is_one(void **state) {
    (void)state;
    const bool goes_over = in_the_memory;
    int ends[2];
    in_the_memory = false;
    make_pair(ends);
    const int epoll = watching(ends[1], EPOLLIN | EPOLLONESHOT);
    assert_int_equal(send(ends[0], "x", 1, 0), 1);
    assert_told(epoll, ends[1]);
    in_the_memory = goes_over;
    use(ends);
    assert_int_equal(send(ends[0], "y", 1, 0), 1);
    assert_not_told(epoll);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = ends[1]};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[1], &event), 0);
    assert_told(epoll, ends[1]);
    assert_not_told(epoll);
    assert_int_equal(close(epoll), 0);
    close_pair(ends);
}

/* The outer set tells of the inner one, from before the connection goes over and after it. */
/* A set tells of its members in the order in which their bytes came, by memory or by TCP; not when both ways
 * are in use. */
static void members_are_told_of_in_order(void **state) {
    (void)state;
    if (getenv("RPMA_CARRY_SHAKE") != NULL) {
        skip();
    }
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    int pairs[3][2];
    for (int i = 0; i < 3; ++i) {
        make_pair(pairs[i]);
    }
    const int epoll = watching(pairs[0][1], EPOLLIN);
    for (int i = 1; i < 3; ++i) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = pairs[i][1]};
        assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, pairs[i][1], &event), 0);
    }
    for (size_t order = 0; order < sizeof(orders) / sizeof(orders[0]); ++order) {
        struct epoll_event events[3];
        char byte = 0;
        assert_not_told(
            epoll); /* the kernel moves a member to the end only when it was told that there is nothing */
        for (int i = 0; i < 3; ++i) {
            assert_int_equal(send(pairs[orders[order][i]][0], "x", 1, 0), 1);
            await(pairs[orders[order][i]][1], POLLIN);
        }
        assert_int_equal(epoll_wait(epoll, events, 3, wait_ms), 3);
        for (int i = 0; i < 3; ++i) {
            assert_int_equal(events[i].data.fd, pairs[orders[order][i]][1]);
            assert_int_equal(recv(events[i].data.fd, &byte, 1, 0), 1);
        }
    }
    assert_int_equal(close(epoll), 0);
    for (int i = 0; i < 3; ++i) {
        close_pair(pairs[i]);
    }
}

static void sets_tell_of_sets(void **state) {
    (void)state;
    int ends[2];
    char byte = 0;
    make_pair(ends);
    const int inner = watching(ends[1], EPOLLIN);
    assert_int_equal(send(ends[0], "x", 1, 0), 1);
    const int outer = watching(inner, EPOLLIN);
    for (int i = 0; i < 100; ++i) {
        assert_told(outer, inner);
        assert_told(inner, ends[1]);
        assert_told(outer, inner);
        assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
        assert_not_told(inner);
        assert_not_told(outer);
        assert_int_equal(send(ends[0], "x", 1, 0), 1);
    }
    assert_int_equal(close(outer), 0);
    assert_int_equal(close(inner), 0);
    close_pair(ends);
}

static void exits(int fd) {
    (void)fd;
}

static void executes(int fd) {
    (void)dup2(fd, STDIN_FILENO);
    (void)execl("/bin/true", "true", (char *)NULL);
}

/* A child that ends, in any way, leaves the connection to its parent: which ends it orderly. */
static void a_child_ends(void **state) {
    (void)state;
    static void (*const ways[])(int) = {exits, executes};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); ++i) {
        int ends[2];
        char byte = 0;
        int status = -1;
        make_pair(ends);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            ways[i](ends[1]);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        use(ends);
        assert_int_equal(send(ends[0], "x", 1, 0), 1);
        await(ends[1], POLLIN);
        assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
        assert_int_equal(close(ends[1]), 0);
        await(ends[0], POLLIN);
        assert_int_equal(recv(ends[0], &byte, 1, 0), 0);
        assert_int_equal(close(ends[0]), 0);
    }
}

/* The kernel resets a connection of whose bytes an end has not read all. */
static void a_killed_process_resets(void **state) {
    (void)state;
    for (int unread = 0; unread < 2; ++unread) {
        int ends[2];
        char byte = 0;
        int ready[2];
        make_pair(ends);
        assert_int_equal(pipe(ready), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)close(ends[0]);
            (void)!recv(ends[1], &byte, 1, 0);
            (void)!write(ready[1], &byte, 1);
            (void)pause();
            _exit(1);
        }
        assert_int_equal(close(ends[1]), 0);
        assert_int_equal(send(ends[0], "xy", 1 + (size_t)unread, 0), 1 + unread);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        if (unread != 0) {
            assert_fails(recv(ends[0], &byte, 1, 0), ECONNRESET);
        }
        assert_int_equal(recv(ends[0], &byte, 1, 0), 0);
        assert_int_equal(close(ready[0]), 0);
        assert_int_equal(close(ready[1]), 0);
        assert_int_equal(close(ends[0]), 0);
    }
}

/* ---- AF_SMC ---- */

enum { smc_over_inet, smc_over_inet6 };

static int value_of(int fd, int option) {
    int value = -1;
    socklen_t size = sizeof(value);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, option, &value, &size), 0);
    assert_int_equal(size, sizeof(value));
    return value;
}

static void assert_is_smc(int fd, int protocol, sa_family_t family) {
    struct sockaddr_storage address;
    socklen_t size = sizeof(address);
    assert_int_equal(value_of(fd, SO_DOMAIN), AF_SMC);
    assert_int_equal(value_of(fd, SO_PROTOCOL), protocol);
    assert_int_equal(value_of(fd, SO_TYPE), SOCK_STREAM);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(address.ss_family, family);
}

static void talk_over_smc(int protocol, struct sockaddr *address, socklen_t size) {
    const sa_family_t family = address->sa_family;
    int ends[2];
    const int listener = socket(AF_SMC, SOCK_STREAM, protocol);
    assert_true(listener >= 0);
    assert_int_equal(fcntl(listener, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(listener, F_GETFD), 0);
    assert_int_equal(bind(listener, address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, address, &size), 0);
    ends[0] = socket(AF_SMC, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
    assert_true(ends[0] >= 0);
    assert_int_equal(fcntl(ends[0], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    assert_int_equal(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
    assert_true(connect(ends[0], address, size) == 0 || errno == EINPROGRESS);
    ends[1] = accept(listener, NULL, NULL);
    assert_true(ends[1] >= 0);
    await(ends[0], POLLOUT);
    assert_is_smc(listener, protocol, family);
    assert_is_smc(ends[0], protocol, family);
    assert_is_smc(ends[1], protocol, family);
    for (int i = 0; i < 32; ++i) {
        const char sent = (char)i;
        char byte = 0;
        assert_int_equal(send(ends[i % 2], &sent, 1, 0), 1);
        await(ends[1 - i % 2], POLLIN);
        assert_int_equal(recv(ends[1 - i % 2], &byte, 1, 0), 1);
        assert_int_equal(byte, sent);
    }
    assert_is_smc(ends[1], protocol, family);
    close_pair(ends);
    assert_int_equal(close(listener), 0);
}

static void a_socket_of_smc_is_one_of_tcp(void **state) {
    (void)state;
    if (!in_the_memory) {
        skip(); /* the kernel may have no AF_SMC */
    }
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    talk_over_smc(smc_over_inet, (struct sockaddr *)&four, sizeof(four));
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    talk_over_smc(smc_over_inet6, (struct sockaddr *)&six, sizeof(six));
}

/* ---- children that libc's fork(2) does not make ---- */

static int close_all(void *argument) {
    const int *const ends = argument;
    close(ends[0]);
    close(ends[1]);
    close_range(3, ~0U, 0);
    return 0;
}

static void assert_child_closes_for_itself(int flags) {
    static _Alignas(16) char stack[65536];
    int ends[2];
    char byte = 0;
    make_pair(ends);
    use(ends);
    const pid_t child = clone(close_all, stack + sizeof(stack), flags | SIGCHLD, ends);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < 4; ++i) {
        assert_int_equal(send(ends[i % 2], "!", 1, 0), 1);
        assert_int_equal(recv(ends[1 - i % 2], &byte, 1, 0), 1);
    }
    close_pair(ends);
}

static void a_cloned_child_closes_for_itself(void **state) {
    (void)state;
    assert_child_closes_for_itself(CLONE_VM | CLONE_VFORK);
    assert_child_closes_for_itself(0);
    assert_child_closes_for_itself(CLONE_VM | CLONE_VFORK);
}

/* A child of vfork(2) may call vfork(2). */
static void a_vforked_child_of_one_closes_for_itself(void **state) {
    (void)state;
    int ends[2];
    char byte = 0;
    make_pair(ends);
    use(ends);
    const pid_t child = vfork();
    if (child == 0) {
        const pid_t grandchild = vfork();
        if (grandchild == 0) {
            close(ends[0]);
            _exit(0);
        }
        close(ends[0]);
        close_range(3, ~0U, 0);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(send(ends[0], "!", 1, 0), 1);
    assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
    close_pair(ends);
}

/* ---- members of sets, before and after the socket goes over ---- */

/* A socket that is in two sets, under two numbers, and of which one number is closed. */
static void members_go_over_with_their_socket(void **state) {
    (void)state;
    int ends[2];
    char byte = 0;
    make_pair(ends);
    const int first = watching(ends[1], EPOLLIN);
    const int second = watching(ends[1], EPOLLIN | EPOLLET);
    const int number = dup(ends[1]);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = number};
    assert_int_equal(epoll_ctl(first, EPOLL_CTL_ADD, number, &event), 0);
    use(ends);
    assert_int_equal(send(ends[0], "!", 1, 0), 1);
    assert_told(second, ends[1]);
    assert_not_told(second);
    struct epoll_event events[4];
    assert_int_equal(epoll_wait(first, events, 4, wait_ms), 2);
    assert_int_equal(epoll_ctl(first, EPOLL_CTL_DEL, ends[1], NULL), 0);
    assert_told(first, number);
    assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
    assert_not_told(first);
    assert_int_equal(close(number), 0);
    close_pair(ends);
    assert_int_equal(close(first), 0);
    assert_int_equal(close(second), 0);
}

/* The number of a socket that was in a set is another socket's, which is in none until it is added. */
static void a_number_is_of_one_socket_after_another(void **state) {
    (void)state;
    const int epoll = epoll_create1(0);
    for (int i = 0; i < 4; ++i) {
        int ends[2];
        char byte = 0;
        make_pair(ends);
        struct epoll_event event = {.events = EPOLLIN | (i % 2 != 0 ? EPOLLONESHOT : 0), .data.fd = ends[1]};
        assert_fails(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[1], &event), ENOENT);
        assert_fails(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[1], NULL), ENOENT);
        assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event), 0);
        assert_fails(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event), EEXIST);
        if (i > 1) {
            use(ends);
            assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[1], &event), 0);
        }
        assert_int_equal(send(ends[0], "!", 1, 0), 1);
        assert_told(epoll, ends[1]);
        assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
        assert_not_told(epoll);
        close_pair(ends);
        assert_not_told(epoll);
    }
    assert_int_equal(close(epoll), 0);
}

/* A set that is closed, and another one under its number. */
static void a_set_is_made_again(void **state) {
    (void)state;
    int ends[2];
    char byte = 0;
    make_pair(ends);
    const int first = watching(ends[1], EPOLLIN);
    assert_int_equal(close(first), 0);
    const int second = watching(ends[1], EPOLLIN);
    assert_int_equal(second, first);
    use(ends);
    assert_int_equal(send(ends[0], "!", 1, 0), 1);
    assert_told(second, ends[1]);
    assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
    assert_not_told(second);
    close_pair(ends);
    assert_int_equal(close(second), 0);
}

/* ---- what only some programs do ---- */

static void a_socket_connects_to_another_peer(void **state) {
    (void)state;
    int ends[2];
    char bytes[4];
    struct sockaddr_in address;
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    make_pair(ends);
    const int epoll = watching(ends[0], EPOLLIN);
    const int listener = listening(&address);
    assert_int_equal(connect(ends[0], &nobody, sizeof(nobody)), 0);
    assert_fails(recv(ends[1], bytes, 1, 0), ECONNRESET);
    assert_fails(send(ends[0], "x", 1, MSG_NOSIGNAL), ECONNRESET);
    assert_int_equal(connect(ends[0], (struct sockaddr *)&address, sizeof(address)), 0);
    const int other[2] = {ends[0], accept(listener, NULL, NULL)};
    assert_true(other[1] >= 0);
    use(other);
    assert_int_equal(send(other[0], "new", 3, 0), 3);
    assert_int_equal(recv(other[1], bytes, sizeof(bytes), 0), 3);
    assert_memory_equal(bytes, "new", 3);
    assert_int_equal(send(other[1], "!", 1, 0), 1);
    assert_told(epoll, other[0]);
    assert_int_equal(recv(other[0], bytes, sizeof(bytes), 0), 1);
    assert_int_equal(close(other[1]), 0);
    assert_int_equal(close(listener), 0);
    assert_int_equal(close(epoll), 0);
    close_pair(ends);
}

/* Bytes of the first connection that were not read, and one with the same addresses as it. */
static void a_connection_has_the_addresses_of_one_that_was_reset(void **state) {
    (void)state;
    struct sockaddr_in address;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(own);
    const int listener = listening(&address);
    const int clients[2] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_STREAM, 0)};
    int servers[2];
    char bytes[64];
    for (int i = 0; i < 2; ++i) {
        const int on = 1;
        const struct linger at_once = {.l_onoff = 1};
        assert_int_equal(setsockopt(clients[i], SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
        assert_int_equal(setsockopt(clients[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
        assert_int_equal(bind(clients[i], (struct sockaddr *)&own, sizeof(own)), 0);
        assert_int_equal(getsockname(clients[i], (struct sockaddr *)&own, &size), 0);
        assert_int_equal(connect(clients[i], (struct sockaddr *)&address, sizeof(address)), 0);
        servers[i] = accept(listener, NULL, NULL);
        assert_true(servers[i] >= 0);
        if (i == 0) {
            /* The client's end does not look for the other one. */
            assert_int_equal(syscall(SYS_sendto, clients[0], "of the first", 12, 0, NULL, 0), 12);
            assert_int_equal(recv(servers[0], bytes, 1, MSG_WAITALL), 1);
            assert_int_equal(close(clients[0]), 0);
        }
    }
    for (int i = 0; i < 8; ++i) {
        assert_int_equal(send(clients[1], "second", 6, 0), 6);
        (void)recv(servers[0], bytes, 1, MSG_DONTWAIT);
        if (i % 2 == 1) {
            assert_int_equal(recv(servers[1], bytes, 12, MSG_WAITALL), 12);
            assert_memory_equal(bytes, "secondsecond", 12);
            assert_int_equal(send(servers[1], "!", 1, 0), 1);
            assert_int_equal(recv(clients[1], bytes, 1, 0), 1);
        }
    }
    while (recv(servers[0], bytes, 1, MSG_DONTWAIT) > 0) {
        assert_true(strchr("of the first", bytes[0]) != NULL);
    }
    assert_int_equal(close(clients[1]), 0);
    assert_int_equal(close(servers[0]), 0);
    assert_int_equal(close(servers[1]), 0);
    assert_int_equal(close(listener), 0);
}

static void what_is_dropped_needs_no_place(void **state) {
    (void)state;
    int ends[2];
    char byte = 0;
    make_pair(ends);
    assert_int_equal(send(ends[0], "dropped.", 8, 0), 8);
    await(ends[1], POLLIN);
    assert_int_equal(recv(ends[1], NULL, 3, MSG_TRUNC | MSG_PEEK), 3);
    assert_int_equal(recv(ends[1], NULL, 7, MSG_TRUNC), 7);
    assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
    assert_int_equal(byte, '.');
    close_pair(ends);
}

static void reads_and_writes_without_an_offset_are_those_of_the_socket(void **state) {
    (void)state;
    int ends[2];
    char bytes[8];
    struct iovec out = {.iov_base = (char[]){"order"}, .iov_len = 5};
    struct iovec in = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    make_pair(ends);
    assert_fails(preadv2(ends[1], &in, 1, -1, RWF_NOWAIT), EAGAIN);
    assert_int_equal(send(ends[0], "in ", 3, 0), 3);
    assert_int_equal(pwritev2(ends[0], &out, 1, -1, 0), 5);
    await(ends[1], POLLIN);
    in.iov_len = 4;
    assert_int_equal(preadv2(ends[1], &in, 1, -1, RWF_NOWAIT), 4);
    assert_memory_equal(bytes, "in o", 4);
    assert_int_equal(preadv2(ends[1], &in, 1, -1, 0), 4);
    assert_memory_equal(bytes, "rder", 4);
    assert_fails(preadv2(ends[1], &in, 1, 0, 0), ESPIPE);
    assert_fails(pwritev2(ends[0], &out, 1, -1, 1 << 30), EOPNOTSUPP);
    close_pair(ends);
}

static void an_option_is_inherited_from_the_listener(void **state) {
    (void)state;
    struct sockaddr_in address;
    char bytes[16];
    const int least = 8;
    const int listener = listening(&address);
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least)), 0);
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
    const int ends[2] = {client, accept(listener, NULL, NULL)};
    for (int i = 0; i < 16; ++i) {
        assert_int_equal(send(ends[0], "12345678", 8, 0), 8);
        await(ends[1], POLLIN);
        assert_int_equal(recv(ends[1], bytes, sizeof(bytes), MSG_DONTWAIT), 8);
        assert_int_equal(send(ends[1], "!", 1, 0), 1);
        assert_int_equal(recv(ends[0], bytes, 1, 0), 1);
    }
    assert_int_equal(send(ends[0], "1234567", 7, 0), 7);
    struct pollfd one = {.fd = ends[1], .events = POLLIN};
    assert_int_equal(poll(&one, 1, 0), 0);
    close_pair(ends);
    assert_int_equal(close(listener), 0);
}

static void an_option_at_an_address_that_is_none(void **state) {
    (void)state;
    int ends[2];
    const int none = 0;
    int value = -1;
    socklen_t size = sizeof(value);
    void *volatile nowhere = NULL;
    make_pair(ends);
    assert_fails(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, nowhere, sizeof(int)), EFAULT);
    assert_fails(setsockopt(ends[0], IPPROTO_TCP, TCP_CORK, nowhere, sizeof(int)), EFAULT);
    assert_fails(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &none, 1), EINVAL);
    assert_int_equal(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &(int){5}, sizeof(int)), 0);
    assert_int_equal(getsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
    assert_int_equal(value, 1);
    assert_int_equal(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &none, sizeof(none)), 0);
    assert_int_equal(getsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
    assert_int_equal(value, 0);
    close_pair(ends);
}

/* A child, because the limit ends the process that makes a larger file. */
static void a_process_that_may_not_make_files(void **state) {
    (void)state;
    int ends[2];
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {.rlim_cur = 0};
        if (setrlimit(RLIMIT_FSIZE, &none) != 0) {
            _exit(1);
        }
        make_pair(ends);
        char byte = 0;
        const bool works = send(ends[0], "!", 1, 0) == 1 && recv(ends[1], &byte, 1, 0) == 1;
        _exit(works ? 0 : 2);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- files ---- */

static uint64_t received_by_tcp(int fd) {
    struct tcp_info info = {.tcpi_state = 0};
    socklen_t size = sizeof(info);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info.tcpi_bytes_received;
}

/* The bytes of a file that is short go where those of send(2) go. */
static void a_short_file_does_not_leave_memory(void **state) {
    (void)state;
    enum { size = 5000, most_doorbells = 100 };
    int ends[2];
    static char content[size];
    static char copy[size];
    make_pair(ends);
    use(ends);
    FILE *const file = tmpfile();
    assert_non_null(file);
    for (int i = 0; i < size; ++i) {
        content[i] = (char)(i * 3 + i / 256);
    }
    assert_int_equal(fwrite(content, 1, size, file), size);
    assert_int_equal(fflush(file), 0);
    const uint64_t before = received_by_tcp(ends[1]);
    for (off_t from = 0; from < size; from += 1) {
        const off_t begin = from;
        const ssize_t sent = sendfile(ends[0], fileno(file), &from, 1024);
        assert_int_equal(sent, begin + 1024 <= size ? 1024 : size - begin);
        assert_int_equal(from, begin + sent);
        assert_int_equal(send(ends[0], "|", 1, 0), 1);
        assert_int_equal(recv(ends[1], copy, (size_t)sent + 1, MSG_WAITALL), sent + 1);
        assert_memory_equal(copy, content + begin, (size_t)sent);
        assert_int_equal(copy[sent], '|');
    }
    if (in_the_memory && getenv("RPMA_CARRY_SHAKE") == NULL) {
        assert_true(received_by_tcp(ends[1]) - before < most_doorbells);
    }
    assert_int_equal(fclose(file), 0);
    close_pair(ends);
}

static in_port_t port_of(int fd) {
    struct sockaddr_in own;
    socklen_t size = sizeof(own);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &size), 0);
    return ntohs(own.sin_port);
}

/* Returns the memory that the two ends share (carry/link.hpp); NULL when there is none. */
static char *link_of(const int ends[2]) {
    enum { of_first_port = 28, of_second_port = 52 };
    const uint32_t one = port_of(ends[0]);
    const uint32_t other = port_of(ends[1]);
    FILE *const maps = fopen("/proc/self/maps", "r");
    char line[4096];
    char *found = NULL;
    assert_non_null(maps);
    while (found == NULL && fgets(line, sizeof(line), maps) != NULL) {
        if (strstr(line, "/memfd:rpma-carry") != NULL) {
            char *const link = (char *)(uintptr_t)strtoull(line, NULL, 16);
            uint32_t ports[2];
            memcpy(&ports[0], link + of_first_port, sizeof(ports[0]));
            memcpy(&ports[1], link + of_second_port, sizeof(ports[1]));
            const bool is_theirs =
                (ports[0] == one && ports[1] == other) || (ports[0] == other && ports[1] == one);
            found = is_theirs ? link : NULL;
        }
    }
    assert_int_equal(fclose(maps), 0);
    return found;
}

/* A peer that counts fewer doorbells than it has rung for ends its own connection, and no call for ever. */
static void a_peer_counts_wrongly(void **state) {
    (void)state;
    enum { of_direction = 4096, size_of_direction = 4096 + (256 << 10), doorbells = 24 };
    int ends[2];
    char byte = 0;
    make_pair(ends);
    if (in_the_memory && getenv("RPMA_CARRY_SHAKE") == NULL) {
        char *const link = link_of(ends);
        assert_non_null(link);
        for (int side = 0; side < 2; ++side) {
            _Atomic uint64_t *const count =
                (_Atomic uint64_t *)(void *)(link + of_direction + side * size_of_direction + doorbells);
            assert_true(*count > 0 && *count < 100);
            *count = 0;
        }
        assert_int_equal(syscall(SYS_sendto, ends[0], "!", 1, 0, NULL, 0), 1);
        assert_fails(recv(ends[1], &byte, 1, MSG_DONTWAIT), ECONNRESET);
        assert_int_equal(recv(ends[1], &byte, 1, MSG_DONTWAIT), 0);
    }
    close_pair(ends);
}

int main(int count, char **words) {
    in_the_memory = count > 1 && strcmp(words[1], "memory") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_past_the_library),
        cmocka_unit_test(pointers_that_are_none_are_refused),
        cmocka_unit_test(nothing_is_received_when_something_is_there),
        cmocka_unit_test(a_member_comes_back_with_its_number),
        cmocka_unit_test(an_edge_is_told_of_once),
        cmocka_unit_test(one_shot_is_one),
        cmocka_unit_test(members_are_told_of_in_order),
        cmocka_unit_test(sets_tell_of_sets),
        cmocka_unit_test(members_go_over_with_their_socket),
        cmocka_unit_test(a_number_is_of_one_socket_after_another),
        cmocka_unit_test(a_set_is_made_again),
        cmocka_unit_test(a_short_file_does_not_leave_memory),
        cmocka_unit_test(a_socket_connects_to_another_peer),
        cmocka_unit_test(a_connection_has_the_addresses_of_one_that_was_reset),
        cmocka_unit_test(what_is_dropped_needs_no_place),
        cmocka_unit_test(reads_and_writes_without_an_offset_are_those_of_the_socket),
        cmocka_unit_test(an_option_is_inherited_from_the_listener),
        cmocka_unit_test(an_option_at_an_address_that_is_none),
        cmocka_unit_test(a_process_that_may_not_make_files),
        cmocka_unit_test(a_socket_of_smc_is_one_of_tcp),
        cmocka_unit_test(a_cloned_child_closes_for_itself),
        cmocka_unit_test(a_vforked_child_of_one_closes_for_itself),
        cmocka_unit_test(a_child_ends),
        cmocka_unit_test(a_killed_process_resets),
        cmocka_unit_test(a_peer_counts_wrongly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
