/* SPDX-License-Identifier: BSD-3-Clause */
/* socket_pairs: connected sockets, passed descriptors and counted signals, for tests of libc's calls. Include
 * it after cmocka.h.
 */
#ifndef SOCKET_PAIRS_H
#define SOCKET_PAIRS_H 1

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { wait_ms = 20000 };
static bool in_the_memory; /* the program runs with libcarry-preload.so, and a connection goes over at once */

static inline int listening(struct sockaddr_in *address) {
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(*address);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)address, size), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)address, &size), 0);
    return listener;
}

struct connecting {
    int fd;
    struct sockaddr_in address;
};

static inline void *connect_only(void *argument) {
    const struct connecting *one = argument;
    const int result = connect(one->fd, (const struct sockaddr *)&one->address, sizeof(one->address));
    return (void *)(intptr_t)(result == 0 ? 0 : errno);
}

static inline void *connect_it(void *argument) {
    const struct connecting *one = argument;
    void *const failed = connect_only(argument);
    if (failed != NULL) {
        return failed;
    }
    char greeting = 0;
    return (void *)(intptr_t)(read(one->fd, &greeting, 1) == 1 ? 0 : errno);
}

static inline void await(int fd, short events) {
    struct pollfd one = {.fd = fd, .events = events};
    assert_int_equal(poll(&one, 1, wait_ms), 1);
    assert_int_equal(one.revents, events);
}

/* Uses a connection so often that its bytes go through memory, where they can. */
static inline void use(const int ends[2]) {
    enum { uses_to_go_over = 8 };
    char byte = '!';
    for (int i = 0; in_the_memory && i < 2 * uses_to_go_over; ++i) {
        assert_int_equal(send(ends[i % 2], &byte, 1, 0), 1);
        assert_int_equal(recv(ends[1 - i % 2], &byte, 1, 0), 1);
    }
}

/* Connects ends[0], a socket of the given type, to ends[1], which was accepted with these flags. */
static inline void connect_ends(int ends[2], int type, int flags) {
    struct connecting one;
    const int listener = listening(&one.address);
    one.fd = socket(AF_INET, type, 0);
    assert_true(one.fd >= 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, connect_it, &one), 0);
    struct sockaddr_in peer;
    socklen_t size = sizeof(peer);
    ends[0] = one.fd;
    ends[1] = accept4(listener, (struct sockaddr *)&peer, &size, flags);
    assert_true(ends[1] >= 0);
    assert_int_equal(size, sizeof(peer));
    await(ends[1], POLLOUT);
    assert_int_equal(send(ends[1], "!", 1, 0), 1);
    void *result = NULL;
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    assert_int_equal(close(listener), 0);
    use(ends);
}

static inline void make_pair(int ends[2]) {
    connect_ends(ends, SOCK_STREAM, 0);
}

/* Returns whether a thread, of this process or another one, sleeps in this system call. */
static inline bool is_in(pid_t thread, long call) {
    char name[64];
    char text[32] = "";
    snprintf(name, sizeof(name), "/proc/%d/syscall", thread);
    FILE *const status = fopen(name, "re");
    const bool is_there = status != NULL && fgets(text, sizeof(text), status) != NULL;
    if (status != NULL) {
        assert_int_equal(fclose(status), 0);
    }
    char *end = text;
    return is_there && strtol(text, &end, 10) == call && end != text;
}

static inline void close_pair(const int ends[2]) {
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(close(ends[1]), 0);
}

union rights {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
};

static inline struct msghdr message_with(union rights *rights, struct iovec *part) {
    return (struct msghdr){.msg_iov = part,
                           .msg_iovlen = 1,
                           .msg_control = rights->room,
                           .msg_controllen = sizeof(rights->room)};
}

static inline void send_descriptor(int to, int fd) {
    union rights rights = {
        .head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    const struct msghdr message = message_with(&rights, &part);
    memcpy(CMSG_DATA(&rights.head), &fd, sizeof(fd));
    assert_int_equal(sendmsg(to, &message, 0), 1);
}

static inline int receive_descriptor(int from) {
    union rights rights;
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = message_with(&rights, &part);
    int fd = -1;
    assert_int_equal(recvmsg(from, &message, MSG_CMSG_CLOEXEC), 1);
    assert_non_null(CMSG_FIRSTHDR(&message));
    memcpy(&fd, CMSG_DATA(&rights.head), sizeof(fd));
    return fd;
}

static volatile sig_atomic_t signals;

static inline void count_signal(int number) {
    (void)number;
    ++signals;
}

static inline void handle(int number, int flags) {
    const struct sigaction action = {.sa_handler = count_signal, .sa_flags = flags};
    assert_int_equal(sigaction(number, &action, NULL), 0);
    signals = 0;
}

#endif
