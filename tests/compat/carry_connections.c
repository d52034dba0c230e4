/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * carry_connections.c: what a connection costs that stays in TCP under libcarry-preload.so, in system calls
 * and in memory; and 10,000 connections of one process that go over. With the argument `memory` it runs with
 * that library and RPMA_CARRY_AFTER=4, which none of the short connections reaches.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "socket_pairs.h"

static void add(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
}

static int next_of(int epoll) {
    struct epoll_event event = {.events = 0};
    assert_int_equal(epoll_wait(epoll, &event, 1, wait_ms), 1);
    return event.data.fd;
}

static void exchange(int from, int to, size_t bytes) {
    char message[1024] = "";
    assert_true(send(from, message, bytes, 0) == (ssize_t)bytes);
    assert_true(recv(to, message, sizeof(message), 0) == (ssize_t)bytes);
}

/* ---- system calls ---- */

/* A request of 200 bytes, an answer of 1 KiB, and the end, with both sides in one thread. */
static void connect_shortly(int listener, const struct sockaddr_in *address, int servers, int clients) {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)address, sizeof(*address)), 0);
    const int server = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    add(servers, server);
    add(clients, client);
    assert_int_equal(send(client, (char[200]){""}, 200, 0), 200);
    assert_int_equal(next_of(servers), server);
    char request[1024];
    assert_int_equal(recv(server, request, sizeof(request), 0), 200);
    exchange(server, client, sizeof(request));
    assert_int_equal(close(client), 0);
    assert_int_equal(next_of(servers), server);
    assert_int_equal(recv(server, request, sizeof(request), 0), 0);
    assert_int_equal(close(server), 0);
}

static void refused(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    char line[64];
    const int size =
        snprintf(line, sizeof(line), "a short connection makes system call %d\n", info->si_syscall);
    (void)!write(STDERR_FILENO, line, (size_t)size);
    _exit(1);
}

/* From here on the process makes only these system calls. */
static void allow(const int *calls, size_t count) {
    struct sock_filter filter[64];
    size_t size = 0;
    filter[size++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; ++i) {
        filter[size++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i], 0, 1);
        filter[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    const struct sock_fprog program = {.len = (unsigned short)size, .filter = filter};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void a_short_connection_makes_its_own_calls_only(void **state) {
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        static const int own[] = {SYS_socket,     SYS_connect,    SYS_accept4,  SYS_epoll_ctl,
                                  SYS_epoll_wait, SYS_sendto,     SYS_recvfrom, SYS_close,
                                  SYS_write,      SYS_exit_group, SYS_exit};
        const struct sigaction trap = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
        struct sockaddr_in address;
        const int listener = listening(&address);
        const int servers = epoll_create1(0);
        const int clients = epoll_create1(0);
        assert_int_equal(sigaction(SIGSYS, &trap, NULL), 0);
        connect_shortly(listener, &address, servers, clients); /* the first one loads what it needs */
        allow(own, sizeof(own) / sizeof(own[0]));
        for (int i = 0; i < 100; ++i) {
            connect_shortly(listener, &address, servers, clients);
        }
        syscall(SYS_exit_group, 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- memory ---- */

enum { most_connections = 10000 };
static int connections[most_connections];

/* Returns as many as the process may have, beside the descriptors of the library. */
static int connections_of_process(void) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlim_t allowed = limit.rlim_cur / 2;
    return allowed < most_connections ? (int)allowed : most_connections;
}

/* Echoes single bytes, until its connections are closed. */
static void serve(int listener, int count) {
    const int epoll = epoll_create1(0);
    add(epoll, listener);
    for (int closed = 0; closed < count;) {
        struct epoll_event events[64];
        const int found = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < found; ++i) {
            const int fd = events[i].data.fd;
            char byte;
            if (fd == listener) {
                add(epoll, accept(listener, NULL, NULL));
            } else if (recv(fd, &byte, 1, 0) == 1) {
                assert_int_equal(send(fd, &byte, 1, 0), 1);
            } else {
                assert_int_equal(close(fd), 0);
                ++closed;
            }
        }
    }
}

/* Returns what the process has in memory. A forked child takes its sockets from the same pages; of those the
 * process has half (Pss). */
static long resident_bytes(void) {
    FILE *const file = fopen("/proc/self/smaps_rollup", "re");
    assert_non_null(file);
    char line[256];
    long kilobytes = -1;
    while (kilobytes < 0 && fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "Pss: %ld", &kilobytes);
    }
    assert_int_equal(fclose(file), 0);
    return kilobytes * 1024;
}

static int mapped_links(void) {
    FILE *const file = fopen("/proc/self/maps", "re");
    assert_non_null(file);
    char line[512];
    int links = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        links += strstr(line, "memfd:rpma-carry") != NULL ? 1 : 0;
    }
    assert_int_equal(fclose(file), 0);
    return links;
}

/* Returns how many names of connections the user's table has. Ends that were killed have left theirs. */
static int names_in_table(void) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/dev/shm/rpma-carry-%u/table", geteuid());
    FILE *const file = fopen(path, "re");
    int names = 0;
    uint64_t slot[2]; /* the name, and where the link is */
    while (file != NULL && fread(slot, sizeof(slot), 1, file) == 1) {
        names += slot[0] != 0 ? 1 : 0;
    }
    if (file != NULL) {
        assert_int_equal(fclose(file), 0);
    }
    return names;
}

static void echo_all(int count, int rounds) {
    for (int i = 0; i < count; ++i) {
        for (int round = 0; round < rounds; ++round) {
            const char sent = (char)(i + round);
            char byte = 0;
            assert_int_equal(send(connections[i], &sent, 1, 0), 1);
            assert_int_equal(recv(connections[i], &byte, 1, 0), 1);
            assert_int_equal(byte, sent);
        }
    }
}

static void many_connections_take_little_memory_and_go_over(void **state) {
    (void)state;
    const int count = connections_of_process();
    struct sockaddr_in address;
    const int listener = listening(&address);
    assert_int_equal(listen(listener, most_connections), 0);
    const pid_t child = fork();
    if (child == 0) {
        serve(listener, count);
        _exit(0);
    }
    memset(connections, -1, sizeof(connections));
    const int epoll = epoll_create1(0);
    const long before = resident_bytes();
    const int names = names_in_table();
    for (int i = 0; i < count; ++i) {
        connections[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(connections[i], (struct sockaddr *)&address, sizeof(address)), 0);
        add(epoll, connections[i]);
    }
    echo_all(count, 1);
    const long each = (resident_bytes() - before) / count;
    print_message("%d connections in TCP: %ld bytes each\n", count, each);
    assert_true(each < 1024);
    assert_int_equal(mapped_links(), 0);
    /* A connection may need some uses more, where an acknowledgement is on its way when the kernel is asked.
     */
    const int links = in_the_memory ? count : 0;
    for (int rounds = 0; rounds < 64 && (rounds < 2 || mapped_links() != links); ++rounds) {
        echo_all(count, 4);
    }
    assert_int_equal(mapped_links(), links);
    assert_true(names_in_table() - names < count / 2);
    for (int i = 0; i < count; ++i) {
        assert_int_equal(close(connections[i]), 0);
    }
    assert_int_equal(mapped_links(), 0);
    assert_int_equal(close(epoll), 0);
    assert_int_equal(close(listener), 0);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv) {
    in_the_memory = argc == 2 && strcmp(argv[1], "memory") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_connection_makes_its_own_calls_only),
        cmocka_unit_test(many_connections_take_little_memory_and_go_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
