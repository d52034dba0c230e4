/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sockets.c: tests what libc's calls do with TCP sockets. Run alone, it shows that libc does what is asserted
 * here; with libcarry-preload.so, and the argument `memory`, it shows that the same calls do the same.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../fails.h"
#include "socket_pairs.h"

enum { of_inherited_set = 77 };
static const char comes[] = "comes";

static void every_pair_of_calls_moves_bytes(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    char bytes[8] = "";
    volatile size_t five = 5; /* so that the compiler calls __read_chk and its like */
    assert_int_equal(write(ends[0], "read.", 5), 5);
    assert_int_equal(read(ends[1], bytes, five), 5);
    assert_memory_equal(bytes, "read.", 5);
    assert_int_equal(send(ends[0], "recv.", 5, MSG_NOSIGNAL), 5);
    assert_int_equal(recv(ends[1], bytes, five, MSG_PEEK), 5);
    assert_int_equal(recv(ends[1], bytes, five, MSG_WAITALL), 5);
    assert_memory_equal(bytes, "recv.", 5);
    assert_int_equal(sendto(ends[0], "from.", 5, 0, NULL, 0), 5);
    assert_int_equal(recvfrom(ends[1], bytes, five, 0, NULL, NULL), 5);
    assert_memory_equal(bytes, "from.", 5);

    struct iovec two[2] = {{.iov_base = (char[]){'v', 'e'}, .iov_len = 2},
                           {.iov_base = (char[]){'c'}, .iov_len = 1}};
    struct iovec into[2] = {{.iov_base = bytes, .iov_len = 1}, {.iov_base = bytes + 4, .iov_len = 2}};
    assert_int_equal(writev(ends[0], two, 2), 3);
    assert_int_equal(readv(ends[1], into, 2), 3);
    assert_int_equal(bytes[0], 'v');
    assert_memory_equal(bytes + 4, "ec", 2);

    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = two, .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = two + 1, .msg_iovlen = 1}}};
    assert_int_equal(sendmsg(ends[0], &messages[0].msg_hdr, 0), 2);
    assert_int_equal(recvmsg(ends[1], &(struct msghdr){.msg_iov = &into[1], .msg_iovlen = 1}, 0), 2);
    assert_memory_equal(bytes + 4, "ve", 2);
    assert_int_equal(sendmmsg(ends[0], messages, 2, 0), 2);
    assert_int_equal(messages[0].msg_len, 2);
    assert_int_equal(messages[1].msg_len, 1);
    struct mmsghdr received[2] = {{.msg_hdr = {.msg_iov = into, .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = into + 1, .msg_iovlen = 1}}};
    assert_int_equal(recvmmsg(ends[1], received, 2, MSG_WAITALL, NULL), 2);
    assert_int_equal(bytes[0], 'v');
    assert_memory_equal(bytes + 4, "ec", 2);
    close_pair(ends);
}

static void blocks_as_it_is_told(void **state) {
    (void)state;
    int ends[2];
    connect_ends(ends, SOCK_STREAM | SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC);
    char byte = 0;
    assert_fails(read(ends[1], &byte, 1), EAGAIN);
    assert_int_equal(fcntl(ends[1], F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_NONBLOCK | O_RDWR);
    assert_int_equal(fcntl(ends[0], F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(ends[1], F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(ends[1], F_SETFD, 0), 0);
    assert_int_equal(fcntl(ends[1], F_GETFD), 0);
    assert_int_equal(ioctl(ends[0], FIONBIO, &(int){1}), 0);
    assert_fails(recv(ends[0], &byte, 1, 0), EAGAIN);
    assert_int_equal(ioctl(ends[0], FIONBIO, &(int){0}), 0);
    assert_int_equal(fcntl(ends[0], F_GETFL) & O_NONBLOCK, 0);
    assert_fails(recv(ends[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    close_pair(ends);
}

static void tells_what_is_unread(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    int unread = -1;
    assert_int_equal(ioctl(ends[1], FIONREAD, &unread), 0);
    assert_int_equal(unread, 0);
    assert_int_equal(write(ends[0], "12345", 5), 5);
    await(ends[1], POLLIN);
    assert_int_equal(ioctl(ends[1], FIONREAD, &unread), 0);
    assert_int_equal(unread, 5);
    struct stat status;
    assert_int_equal(fstat(ends[1], &status), 0);
    assert_true(S_ISSOCK(status.st_mode));
    close_pair(ends);
}

static void every_wait_finds_what_is_ready(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    const struct timespec no_time = {.tv_sec = 0};
    const struct timespec time = {.tv_sec = wait_ms / 1000};
    struct pollfd entry = {.fd = ends[1], .events = POLLIN};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[1], &set);
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    assert_true(epoll >= 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event), 0);

    assert_int_equal(poll(&entry, 1, 0), 0);
    assert_int_equal(ppoll(&entry, 1, &no_time, NULL), 0);
    assert_int_equal(select(ends[1] + 1, &set, NULL, NULL, &(struct timeval){0}), 0);
    assert_false(FD_ISSET(ends[1], &set));
    assert_int_equal(epoll_wait(epoll, &event, 1, 0), 0);

    assert_int_equal(write(ends[0], "!", 1), 1);
    assert_int_equal(poll(&entry, 1, wait_ms), 1);
    assert_int_equal(entry.revents, POLLIN);
    assert_int_equal(ppoll(&entry, 1, &time, NULL), 1);
    FD_SET(ends[1], &set);
    assert_int_equal(select(ends[1] + 1, &set, NULL, NULL, NULL), 1);
    assert_int_equal(pselect(ends[1] + 1, &set, NULL, NULL, &time, NULL), 1);
    assert_true(FD_ISSET(ends[1], &set));
    assert_int_equal(epoll_wait(epoll, &event, 1, wait_ms), 1);
    assert_int_equal(event.events, EPOLLIN);
    assert_int_equal(event.data.u64, 77);
    assert_int_equal(epoll_pwait(epoll, &event, 1, wait_ms, NULL), 1);
    assert_int_equal(epoll_pwait2(epoll, &event, 1, &time, NULL), 1);
    assert_int_equal(close(epoll), 0);
    close_pair(ends);
}

static void several_messages_have_one_time(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    char bytes[3];
    struct iovec parts[3];
    struct mmsghdr messages[3];
    memset(messages, 0, sizeof(messages));
    for (int i = 0; i < 3; ++i) {
        parts[i] = (struct iovec){.iov_base = &bytes[i], .iov_len = 1};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    struct timespec time = {.tv_nsec = 1000000000};
    assert_fails(recvmmsg(ends[1], messages, 3, 0, &time), EINVAL);
    time = (struct timespec){.tv_sec = -1};
    assert_fails(recvmmsg(ends[1], messages, 3, 0, &time), EINVAL);
    time = (struct timespec){.tv_sec = 0};
    assert_fails(recvmmsg(ends[1], messages, 3, MSG_DONTWAIT, &time), EAGAIN);
    assert_int_equal(recvmmsg(ends[1], messages, 0, 0, NULL), 0);

    assert_int_equal(write(ends[0], "12", 2), 2);
    await(ends[1], POLLIN);
    assert_int_equal(recvmmsg(ends[1], messages, 3, 0, &time), 1); /* the time is over behind the first */
    time = (struct timespec){.tv_sec = 1000};
    assert_int_equal(recvmmsg(ends[1], messages, 3, MSG_WAITFORONE, &time), 1);
    assert_true(time.tv_sec < 1000 && time.tv_sec > 900); /* what is left of it */
    assert_int_equal(bytes[0], '2');
    /* The next call returns the error that follows a message. */
    parts[1].iov_len = 0;
    messages[2].msg_hdr.msg_iovlen = 1025;
    assert_int_equal(sendmmsg(ends[0], messages, 3, 0), 2);
    assert_int_equal(messages[0].msg_len, 1);
    assert_int_equal(messages[1].msg_len, 0);
    assert_fails(sendmmsg(ends[0], &messages[2], 1, 0), EMSGSIZE);
    messages[2].msg_hdr.msg_iovlen = 1;
    parts[1].iov_len = 1;
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    assert_int_equal(recvmmsg(ends[1], messages, 3, 0, NULL), 3);
    assert_int_equal(messages[0].msg_len, 1);
    assert_int_equal(messages[1].msg_len, 0);
    assert_int_equal(messages[2].msg_len, 0); /* each finds the end */
    close_pair(ends);
}

static void a_send_after_the_end_raises_sigpipe(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    handle(SIGPIPE, SA_RESTART);
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    assert_fails(write(ends[0], "!", 1), EPIPE);
    assert_int_equal(signals, 1);
    assert_fails(send(ends[0], "!", 1, MSG_NOSIGNAL), EPIPE);
    assert_int_equal(signals, 1);
    char byte = 0;
    assert_int_equal(read(ends[1], &byte, 1), 0);
    close_pair(ends);
}

static void *send_until_it_fails(void *argument) {
    const int fd = *(const int *)argument;
    static char bytes[100000];
    ssize_t sent = 1;
    while (sent > 0) {
        sent = send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
    }
    return NULL;
}

static void *receive_all(void *argument) {
    const int fd = *(const int *)argument;
    char bytes[100000];
    ssize_t received = 1;
    while (received > 0) {
        received = recv(fd, bytes, sizeof(bytes), 0);
    }
    return (void *)(intptr_t)received;
}

static void *send_without_end(void *argument) {
    const int fd = *(const int *)argument;
    const char bytes[1000] = "";
    while (write(fd, bytes, sizeof(bytes)) >= 0) {
    }
    return NULL;
}

static void *receive_much(void *argument) {
    const int fd = *(const int *)argument;
    char bytes[100000];
    ssize_t received = 1;
    for (int i = 0; i < 20 && received > 0; ++i) {
        received = recv(fd, bytes, sizeof(bytes), MSG_WAITALL);
    }
    return (void *)(intptr_t)(received > 0 ? 0 : errno);
}

/* No bytes are sent, so the call does not check whether the peer reads; it checks only its own end. */
static void a_send_of_nothing_raises_no_sigpipe(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    handle(SIGPIPE, SA_RESTART);
    assert_int_equal(write(ends[0], "", 0), 0);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(read(ends[0], &(char){0}, 1), 0);
    assert_int_equal(write(ends[0], "", 0), 0);
    assert_int_equal(writev(ends[0], (struct iovec[2]){{.iov_len = 0}}, 2), 0);
    assert_int_equal(signals, 0);
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    assert_fails(send(ends[0], "", 0, MSG_NOSIGNAL), EPIPE);
    assert_int_equal(signals, 0);
    assert_int_equal(close(ends[0]), 0);
}

static atomic_bool flows;

static void *receive_on(void *argument) {
    receive_much(argument);
    flows = true;
    return receive_all(argument);
}

/* Its threads and its sockets end together: none of them sees the end of the others. */
static void a_process_ends_while_a_thread_sends(void **state) {
    (void)state;
    for (int i = 0; i < 4; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            int ends[2];
            pthread_t threads[2];
            signal(SIGPIPE, SIG_DFL);
            make_pair(ends);
            pthread_create(&threads[0], NULL, send_without_end, &ends[1]);
            pthread_create(&threads[1], NULL, receive_on, &ends[0]);
            while (!flows) {
                sched_yield();
            }
            exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

static void *find_nothing(void *argument) {
    struct pollfd one = {.fd = *(const int *)argument, .events = POLLIN};
    return (void *)(intptr_t)(poll(&one, 1, 20) == 0 ? 0 : errno);
}

/* A thread that has not waited before waits where the process can open nothing more. */
static void a_wait_needs_no_descriptor(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_fails(dup(0), EMFILE);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, find_nothing, &ends[1]), 0);
    void *failed = NULL;
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_null(failed);
    close_pair(ends);
}

static void sends_files(void **state) {
    (void)state;
    enum { size = 300000 };
    int ends[2];
    make_pair(ends);
    FILE *const file = tmpfile();
    assert_non_null(file);
    unsigned char *const content = malloc(size);
    unsigned char *const copy = malloc(size);
    for (int i = 0; i < size; ++i) {
        content[i] = (unsigned char)(i * 7 + i / 251);
    }
    const int fd = fileno(file);
    assert_int_equal(write(fd, content, size), size);
    /* The file is sent in parts that fit into the buffers: the peer does not read meanwhile. */
    off_t offset = 100;
    enum { part = 20000 };
    assert_int_equal(sendfile(ends[0], fd, &offset, part), part);
    assert_int_equal(offset, 100 + part);
    assert_int_equal(recv(ends[1], copy, part, MSG_WAITALL), part);
    assert_memory_equal(copy, content + 100, part);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), size);
    assert_int_equal(lseek(fd, size - 300, SEEK_SET), size - 300);
    assert_int_equal(sendfile(ends[0], fd, NULL, part), 300);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), size);
    assert_int_equal(sendfile(ends[0], fd, NULL, part), 0);
    assert_fails(sendfile(ends[0], ends[1], NULL, part), EINVAL);
    offset = -1;
    assert_fails(sendfile(ends[0], fd, &offset, part), EINVAL);
    assert_fails(sendfile(ends[0], -1, NULL, part), EBADF);
    offset = size + 10;
    assert_int_equal(sendfile(ends[0], fd, &offset, part), 0);
    assert_int_equal(offset, size + 10);
    assert_int_equal(sendfile(ends[0], fd, NULL, 0), 0);
    assert_int_equal(recv(ends[1], copy, 300, MSG_WAITALL), 300);
    assert_memory_equal(copy, content + size - 300, 300);
    free(content);
    free(copy);
    assert_int_equal(fclose(file), 0);
    close_pair(ends);
}

static void splices_between_pipes_and_sockets(void **state) {
    (void)state;
    int ends[2];
    int pipes[2];
    char bytes[64];
    make_pair(ends);
    assert_int_equal(pipe(pipes), 0);
    assert_fails(splice(pipes[0], NULL, ends[0], NULL, 100, SPLICE_F_NONBLOCK), EAGAIN);
    assert_int_equal(write(pipes[1], "to the socket", 13), 13);
    assert_int_equal(splice(pipes[0], NULL, ends[0], NULL, 6, 0), 6);
    assert_int_equal(splice(pipes[0], NULL, ends[0], NULL, 100, 0), 7);
    assert_int_equal(recv(ends[1], bytes, 13, MSG_WAITALL), 13);
    assert_memory_equal(bytes, "to the socket", 13);

    assert_int_equal(send(ends[0], "to the pipe", 11, 0), 11);
    await(ends[1], POLLIN);
    assert_int_equal(splice(ends[1], NULL, pipes[1], NULL, 4, 0), 4);
    assert_int_equal(splice(ends[1], NULL, pipes[1], NULL, 100, SPLICE_F_MOVE | SPLICE_F_MORE), 7);
    assert_int_equal(read(pipes[0], bytes, sizeof(bytes)), 11);
    assert_memory_equal(bytes, "to the pipe", 11);
    int broken[2];
    handle(SIGPIPE, SA_RESTART);
    assert_int_equal(pipe(broken), 0);
    assert_int_equal(close(broken[0]), 0);
    assert_int_equal(send(ends[0], "kept", 4, 0), 4);
    await(ends[1], POLLIN);
    assert_fails(splice(ends[1], NULL, broken[1], NULL, 100, 0), EPIPE);
    assert_int_equal(signals, 1);
    assert_int_equal(close(broken[1]), 0);
    assert_int_equal(recv(ends[1], bytes, sizeof(bytes), 0), 4);
    assert_memory_equal(bytes, "kept", 4);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    assert_fails(splice(ends[1], NULL, pipes[1], NULL, 100, 0), EAGAIN);
    assert_fails(splice(ends[1], &(off64_t){0}, pipes[1], NULL, 100, 0), EINVAL);
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    await(ends[1], POLLIN);
    assert_int_equal(splice(ends[1], NULL, pipes[1], NULL, 100, 0), 0);
    assert_int_equal(splice(ends[1], NULL, pipes[1], NULL, 0, 0), 0);
    assert_fails(splice(ends[1], NULL, ends[0], NULL, 100, 0), EINVAL);
    assert_fails(splice(ends[1], NULL, pipes[0], NULL, 100, 0), EBADF);
    assert_fails(splice(ends[1], NULL, pipes[1], NULL, 100, 1U << 20), EINVAL);
    handle(SIGPIPE, SA_RESTART);
    assert_int_equal(write(pipes[1], "!", 1), 1);
    assert_fails(splice(pipes[0], NULL, ends[0], NULL, 1, 0), EPIPE);
    assert_int_equal(signals, 1);
    close_pair(pipes);
    close_pair(ends);
}

struct dripping {
    int fd;
    atomic_bool is_over;
};

static void *drip(void *argument) {
    struct dripping *const one = argument;
    const struct timespec between = {.tv_nsec = 2000000};
    while (!one->is_over && send(one->fd, "!", 1, 0) == 1) {
        nanosleep(&between, NULL);
    }
    return NULL;
}

/* A call that waits for all has one time-out, which does not begin anew with each byte. */
static void a_receive_of_all_has_one_time(void **state) {
    (void)state;
    static char bytes[1 << 20];
    int ends[2];
    make_pair(ends);
    const struct timeval limit = {.tv_usec = 50000};
    assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    struct dripping one = {.fd = ends[0]};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drip, &one), 0);
    const ssize_t got = recv(ends[1], bytes, sizeof(bytes), MSG_WAITALL);
    one.is_over = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(got > 0 && got < (ssize_t)sizeof(bytes));
    close_pair(ends);
}

struct splicing {
    int fd;
    uint64_t bytes;
    uint64_t sum;
};

static void *splice_to_the_end(void *argument) {
    struct splicing *const one = argument;
    int pipes[2];
    unsigned char bytes[4096];
    ssize_t more = pipe(pipes);
    while (more >= 0 && (more = splice(one->fd, NULL, pipes[1], NULL, sizeof(bytes), 0)) > 0) {
        const ssize_t got = read(pipes[0], bytes, (size_t)more);
        more = got == more ? got : -1;
        for (ssize_t i = 0; i < got; ++i) {
            one->sum += bytes[i];
        }
        one->bytes += (uint64_t)got;
    }
    close_pair(pipes);
    return (void *)(intptr_t)more;
}

static void threads_splice_from_one_socket(void **state) {
    (void)state;
    enum { rounds = 5000 };
    int ends[2];
    make_pair(ends);
    struct splicing all[2] = {{.fd = ends[1]}, {.fd = ends[1]}};
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(pthread_create(&threads[i], NULL, splice_to_the_end, &all[i]), 0);
    }
    unsigned char bytes[1000];
    uint64_t sum = 0;
    for (size_t round = 0; round < rounds; ++round) {
        for (size_t i = 0; i < sizeof(bytes); ++i) {
            bytes[i] = (unsigned char)((round * 31 + i * i) >> 3);
            sum += bytes[i];
        }
        assert_int_equal(send(ends[0], bytes, sizeof(bytes), 0), sizeof(bytes));
    }
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    for (int i = 0; i < 2; ++i) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    assert_int_equal(all[0].bytes + all[1].bytes, rounds * sizeof(bytes));
    assert_int_equal(all[0].sum + all[1].sum, sum);
    close_pair(ends);
}

struct receiving {
    int fd;
    atomic_int thread;
    atomic_bool is_over;
    ssize_t got;
    int error;
};

static void *receive_once(void *argument) {
    struct receiving *const one = argument;
    char bytes[8];
    one->thread = gettid();
    one->got = recv(one->fd, bytes, sizeof(bytes), 0);
    one->error = errno;
    one->is_over = true;
    return NULL;
}

enum wake { ShutDown, PeerEnds, PeerSends };
static enum wake wakes[] = {ShutDown, PeerEnds, PeerSends};

/* The thread that was in a call for the number before does not take the next connection's bytes, and its call
 * ends.
 */
static void a_number_is_another_connections_during_a_receive(void **state) {
    const enum wake how = *(const enum wake *)*state;
    enum { rounds = 100 };
    for (int round = 0; round < rounds; ++round) {
        int ends[2];
        int others[2];
        char bytes[8];
        make_pair(ends);
        make_pair(others);
        struct receiving one = {.fd = ends[1]};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, receive_once, &one), 0);
        while (!is_in(one.thread, SYS_recvfrom)) {
            assert_false(one.is_over);
        }
        if (how == ShutDown) {
            assert_int_equal(shutdown(ends[1], SHUT_RDWR), 0);
        }
        assert_int_equal(dup2(others[1], ends[1]), ends[1]);
        assert_int_equal(send(others[0], "new", 3, 0), 3);
        if (how == PeerSends) {
            assert_int_equal(send(ends[0], "late", 4, 0), 4);
        } else if (how == PeerEnds) {
            assert_int_equal(close(ends[0]), 0);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (how != PeerSends) {
            assert_int_equal(one.got, 0);
        } else if (one.got != 4) { /* as rpma-run(1) says */
            assert_true(in_the_memory);
            assert_int_equal(one.got, -1);
            assert_int_equal(one.error, EBADF);
        }
        assert_int_equal(recv(ends[1], bytes, sizeof(bytes), 0), 3);
        assert_memory_equal(bytes, "new", 3);
        if (how != PeerEnds) {
            assert_int_equal(close(ends[0]), 0);
        }
        assert_int_equal(close(ends[1]), 0);
        close_pair(others);
    }
}

static void make_unused_pair(int ends[2]) {
    const bool goes_over = in_the_memory;
    in_the_memory = false;
    make_pair(ends);
    in_the_memory = goes_over;
}

/* Returns whether bytes of the connection pass the kernel by. */
static bool is_in_memory(const int ends[2]) {
    enum { messages = 64 };
    bool is_over = false;
    use(ends);
    for (int i = 0; i < messages; ++i) {
        char bytes[8];
        int in_tcp = -1;
        assert_int_equal(send(ends[0], "carried", sizeof(bytes), 0), sizeof(bytes));
        await(ends[1], POLLIN);
        assert_int_equal(syscall(SYS_ioctl, ends[1], FIONREAD, &in_tcp), 0);
        is_over = is_over || in_tcp < (int)sizeof(bytes) / 2; /* there may be a doorbell */
        assert_int_equal(recv(ends[1], bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
        assert_string_equal(bytes, "carried");
    }
    return is_over;
}

/* A thread is in recv(2) of a connection that has no link, when another one closes the number. It comes back,
 * with bytes or the end, when the next connection has begun.
 */
static void a_late_receive_is_none_of_the_next_connection(void **state) {
    const bool has_bytes = *(const bool *)*state;
    int ends[2];
    int others[2];
    make_unused_pair(ends);
    const int for_listener = socket(AF_INET, SOCK_STREAM, 0); /* what is closed last is another's first */
    assert_true(for_listener >= 0);
    struct receiving one = {.fd = ends[1]};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, receive_once, &one), 0);
    while (!is_in(one.thread, SYS_recvfrom)) {
        assert_false(one.is_over);
    }
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(close(for_listener), 0);
    make_unused_pair(others);
    if (has_bytes) {
        assert_int_equal(send(ends[0], "late", 4, 0), 4);
    } else {
        assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(one.got, has_bytes ? 4 : 0);
    assert_true(is_in_memory(others) || !in_the_memory);
    close_pair(others);
    assert_int_equal(close(ends[0]), 0);
}

/* Calls act(first byte, bytes, argument) for each area of memory that is shared, whose file has such a name.
 */
static void for_shared(const char *name, void (*act)(char *begin, size_t bytes, void *argument),
                       void *argument) {
    FILE *const areas = fopen("/proc/self/maps", "re");
    assert_non_null(areas);
    char line[512];
    while (fgets(line, sizeof(line), areas) != NULL) {
        char *end = line;
        const uintptr_t begin = strtoul(line, &end, 16);
        const uintptr_t behind = strtoul(end + 1, &end, 16);
        if (strncmp(end, " rw-s", 5) == 0 && strstr(end, name) != NULL) {
            act((char *)begin, behind - begin, argument);
        }
    }
    assert_int_equal(fclose(areas), 0);
}

static void count_one(char *begin, size_t bytes, void *argument) {
    (void)begin;
    (void)bytes;
    ++*(int *)argument;
}

static int links(void) {
    int count = 0;
    for_shared("/memfd:rpma-carry", count_one, &count);
    return count;
}

static struct timespec monotonic(void) {
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return now;
}

enum { most_areas = 64 };
struct areas {
    int count;
    char *begins[most_areas];
    size_t bytes[most_areas];
};

static void add_area(char *begin, size_t bytes, void *argument) {
    struct areas *const areas = argument;
    if (areas->count < most_areas) {
        areas->begins[areas->count] = begin;
        areas->bytes[areas->count++] = bytes;
    }
}

static void scribble(const struct areas *areas) {
    enum { most = 1 << 20 };
    for (int i = 0; i < areas->count; ++i) {
        unsigned char is_there = 0;
        const size_t bytes = areas->bytes[i] < most ? areas->bytes[i] : most;
        if (mincore(areas->begins[i], 1, &is_there) == 0) {
            memset(areas->begins[i], 0x41, bytes);
        }
    }
}

static void *read_one(void *argument) {
    char byte = 0;
    return (void *)(intptr_t)read(*(int *)argument, &byte, 1);
}

enum has { Nothing, Ends, EndsAndNoProc, EndsAndNoRoom };
static enum has inherited[] = {Nothing, Ends, EndsAndNoProc, EndsAndNoRoom};

/* No more memory can be mapped than there is. */
static bool has_no_room(void) {
    unsigned long pages = 0;
    FILE *const sizes = fopen("/proc/self/statm", "re");
    const bool is_known = sizes != NULL && fscanf(sizes, "%lu", &pages) == 1 && fclose(sizes) == 0;
    const rlim_t all = pages * (rlim_t)sysconf(_SC_PAGESIZE);
    return is_known && setrlimit(RLIMIT_AS, &(struct rlimit){.rlim_cur = all, .rlim_max = all}) == 0;
}

/* A child that has given up its user for good has nothing in common with what its parent's connections use.
 * Its parent has another thread. */
static void a_child_of_another_user_changes_nothing(void **state) {
    const enum has has = *(const enum has *)*state;
    if (geteuid() != 0) {
        skip();
    }
    int ends[2];
    int ending[2];
    char folder[] = "/tmp/rpma-empty-XXXXXX";
    pthread_t other;
    make_pair(ends);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(pipe(ending), 0);
    assert_int_equal(pthread_create(&other, NULL, read_one, &ending[0]), 0);
    struct areas areas = {.count = 0};
    for_shared("rpma-carry", add_area, &areas);
    for_shared("/dev/zero", add_area, &areas);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        enum { nobody = 65534 };
        if (has == Nothing) {
            close_pair(ends);
        }
        const bool is_ready = has == EndsAndNoProc   ? chroot(folder) == 0
                              : has == EndsAndNoRoom ? has_no_room()
                                                     : true;
        if (is_ready && setuid(nobody) == 0) { /* a container may have no such user */
            scribble(&areas);
        }
        syscall(SYS_exit_group, 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    use(ends);
    close_pair(ends);
    make_pair(ends);
    close_pair(ends);
    assert_int_equal(write(ending[1], "!", 1), 1);
    assert_int_equal(pthread_join(other, NULL), 0);
    close_pair(ending);
    assert_int_equal(rmdir(folder), 0);
}

static int sealed_files(void) {
    struct rlimit limit;
    int count = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int fd = 0; (rlim_t)fd < limit.rlim_cur && fd < 1 << 20; ++fd) {
        count += fcntl(fd, F_GET_SEALS) > 0 ? 1 : 0;
    }
    return count;
}

/* A server leaves its root after it has had a connection. Later ones leave no descriptor of a link. */
static void a_server_without_proc_keeps_no_descriptor(void **state) {
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    int ends[2];
    char folder[] = "/tmp/rpma-empty-XXXXXX";
    make_pair(ends);
    close_pair(ends);
    assert_non_null(mkdtemp(folder));
    const int before = sealed_files();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (chroot(folder) == 0) {
            make_pair(ends);
            use(ends);
        }
        _exit(sealed_files() == before ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(rmdir(folder), 0);
}

/* The parent alone has again what a killed child had, also what the parent has closed before. That goes with
 * a later socket. */
static void a_killed_child_leaves_nothing(void **state) {
    const bool closes_first = *(const bool *)*state;
    const int before = links();
    int ends[2];
    make_pair(ends);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (;;) {
            pause();
        }
    }
    if (closes_first) {
        close_pair(ends);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    const struct timespec began = monotonic();
    do {
        if (closes_first) {
            make_pair(ends);
        }
        close_pair(ends);
    } while (closes_first && links() != before && monotonic().tv_sec - began.tv_sec < 20);
    assert_int_equal(links(), before);
}

/* Connects two sockets, without another thread, and uses neither. */
static void connect_unused(int ends[2]) {
    struct sockaddr_in address;
    const int listener = listening(&address);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(ends[0], (struct sockaddr *)&address, sizeof(address)), 0);
    ends[1] = accept(listener, NULL, NULL);
    assert_true(ends[1] >= 0);
    assert_int_equal(close(listener), 0);
}

static void kill_child_in_receive(int fd) {
    char byte = 0;
    const pid_t child = fork();
    if (child == 0) {
        (void)recv(fd, &byte, 1, 0);
        _exit(1);
    }
    while (!is_in(child, SYS_recvfrom)) {
        sched_yield();
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* A child of a server is killed while it waits for bytes; then the server closes the connection. What the
 * child had inside the call goes with a later socket of the server. */
static void a_child_killed_in_a_call_leaves_nothing(void **state) {
    (void)state;
    const pid_t server = fork();
    assert_true(server >= 0);
    if (server == 0) {
        const int before = links();
        int ends[2];
        connect_unused(ends);
        use(ends);
        kill_child_in_receive(ends[1]);
        close_pair(ends);
        const struct timespec began = monotonic();
        while (links() != before && monotonic().tv_sec - began.tv_sec < 20) {
            connect_unused(ends);
            use(ends);
            close_pair(ends);
        }
        _exit(links() == before ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_int_equal(status, 0);
}

/* A child was killed in a receive of the kernel's; then the connection goes over. The splices of its parent
 * wait for that call once at most, and for a second. */
static void splices_do_not_wait_for_a_killed_child(void **state) {
    (void)state;
    enum { splices = 4 };
    int ends[2];
    int others[2];
    int pipes[2];
    char byte = '!';
    make_pair(others);
    connect_unused(ends);
    kill_child_in_receive(ends[1]);
    close_pair(others); /* the library learns of the child's end */
    use(ends);
    assert_int_equal(pipe(pipes), 0);
    const struct timespec began = monotonic();
    for (int i = 0; i < splices; ++i) {
        assert_int_equal(send(ends[0], &byte, 1, 0), 1);
        assert_int_equal(splice(ends[1], NULL, pipes[1], NULL, 1, 0), 1);
    }
    assert_true(monotonic().tv_sec - began.tv_sec < splices - 1);
    close_pair(ends);
    close_pair(pipes);
}

/* A transparent proxy has both ends of a pair of addresses, and they are not one connection. */
static void a_transparent_socket_stays_in_tcp(void **state) {
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    const int before = links();
    const int yes = 1;
    struct connecting one;
    const int listener = listening(&one.address);
    one.fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(one.fd >= 0);
    for (int i = 0; i < 2; ++i) {
        if (setsockopt(i == 0 ? listener : one.fd, IPPROTO_IP, IP_TRANSPARENT, &yes, sizeof(yes)) != 0) {
            assert_int_equal(errno, EPERM); /* the root of a container */
            skip();
        }
    }
    assert_null(connect_only(&one));
    const int ends[2] = {one.fd, accept(listener, NULL, NULL)};
    assert_true(ends[1] >= 0);
    use(ends);
    assert_int_equal(links(), before);
    close_pair(ends);
    assert_int_equal(close(listener), 0);
}

static void *send_much(void *argument) {
    enum { much = 64 << 20 };
    struct receiving *const one = argument;
    char *const bytes = calloc(1, much);
    one->thread = gettid();
    one->got = bytes != NULL ? send(one->fd, bytes, much, MSG_NOSIGNAL) : 0;
    free(bytes);
    return NULL;
}

/* A send that is under way ends, and the next connection gets none of its bytes. */
static void a_number_is_another_connections_during_a_send(void **state) {
    (void)state;
    enum { rounds = 20, first = 4 << 20 };
    static char bytes[first];
    for (int round = 0; round < rounds; ++round) {
        int ends[2];
        int others[2];
        make_pair(ends);
        make_pair(others);
        struct receiving one = {.fd = ends[1]};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, send_much, &one), 0);
        assert_int_equal(recv(ends[0], bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
        assert_int_equal(dup2(others[1], ends[1]), ends[1]);
        assert_int_equal(close(ends[0]), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(one.got >= first || one.got < 0);
        assert_fails(recv(others[0], bytes, sizeof(bytes), MSG_DONTWAIT), EAGAIN);
        assert_int_equal(send(ends[1], "new", 3, 0), 3);
        assert_int_equal(recv(others[0], bytes, sizeof(bytes), 0), 3);
        assert_int_equal(close(ends[1]), 0);
        close_pair(others);
    }
}

struct into_one_pipe {
    int fd;
    int pipe;
    intptr_t end;
};

static void *splice_into_one_pipe(void *argument) {
    struct into_one_pipe *const one = argument;
    ssize_t more = 1;
    while (more > 0) {
        more = splice(one->fd, NULL, one->pipe, NULL, 4096, 0);
    }
    one->end = more;
    return NULL;
}

/* Reads all, and returns the first place where the numbers are in another order; NULL without one. */
static void *check_order(void *argument) {
    const int *const pipes = argument;
    uint32_t numbers[256];
    intptr_t count = 0;
    intptr_t wrong = 0;
    ssize_t got = 0;
    size_t have = 0;
    while ((got = read(pipes[0], (char *)numbers + have, sizeof(numbers) - have)) > 0) {
        have += (size_t)got;
        for (size_t i = 0; i < have / sizeof(numbers[0]); ++i) {
            wrong = numbers[i] != (uint32_t)count++ && wrong == 0 ? count : wrong;
        }
        const size_t used = have / sizeof(numbers[0]) * sizeof(numbers[0]);
        memmove(numbers, (char *)numbers + used, have - used);
        have -= used;
    }
    return (void *)wrong;
}

static void threads_splice_into_one_pipe_in_order(void **state) {
    (void)state;
    enum { rounds = 3000, in_a_round = 250 };
    int ends[2];
    int pipes[2];
    make_pair(ends);
    assert_int_equal(pipe(pipes), 0);
    struct into_one_pipe all[2] = {{.fd = ends[1], .pipe = pipes[1]}, {.fd = ends[1], .pipe = pipes[1]}};
    pthread_t threads[3];
    assert_int_equal(pthread_create(&threads[2], NULL, check_order, pipes), 0);
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(pthread_create(&threads[i], NULL, splice_into_one_pipe, &all[i]), 0);
    }
    uint32_t numbers[in_a_round];
    for (uint32_t round = 0; round < rounds; ++round) {
        for (uint32_t i = 0; i < in_a_round; ++i) {
            numbers[i] = round * in_a_round + i;
        }
        assert_int_equal(send(ends[0], numbers, sizeof(numbers), 0), sizeof(numbers));
    }
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    void *wrong = NULL;
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(all[i].end, 0);
    }
    assert_int_equal(close(pipes[1]), 0);
    assert_int_equal(pthread_join(threads[2], &wrong), 0);
    assert_null(wrong);
    assert_int_equal(close(pipes[0]), 0);
    close_pair(ends);
}

static void streams_of_stdio_use_sockets(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    char line[64] = "";
    FILE *const out = fdopen(ends[0], "w");
    FILE *const in = fdopen(dup(ends[1]), "r");
    assert_non_null(out);
    assert_non_null(in);
    assert_int_equal(fileno(out), ends[0]);
    assert_int_equal(fprintf(out, "%d lines\n", 2), 8);
    assert_int_equal(fputs("the second", out) >= 0, 1);
    assert_int_equal(fflush(out), 0);
    assert_int_equal(dprintf(ends[0], "%c", '\n'), 1);
    assert_non_null(fgets(line, sizeof(line), in));
    assert_string_equal(line, "2 lines\n");
    assert_non_null(fgets(line, sizeof(line), in));
    assert_string_equal(line, "the second\n");
    assert_int_equal(fclose(out), 0);
    assert_null(fgets(line, sizeof(line), in));
    assert_true(feof(in));
    assert_int_equal(fclose(in), 0);
    assert_int_equal(close(ends[1]), 0);
}

static void a_file_has_the_number_of_a_stream(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    assert_int_equal(send(ends[1], "unread", 6, 0), 6);
    const int lower = dup(ends[1]); /* the listener's, which is lower */
    FILE *const out = fdopen(ends[0], "w");
    assert_non_null(out);
    assert_int_equal(fputs("goes out", out) >= 0, 1);
    assert_int_equal(fclose(out), 0);
    char path[] = "/tmp/sockets.XXXXXX";
    char bytes[8];
    const int file = mkstemp(path);
    assert_int_equal(file, ends[0]);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(read(file, bytes, sizeof(bytes)), 0);
    assert_int_equal(recv(ends[1], bytes, sizeof(bytes), MSG_WAITALL), 8);
    assert_memory_equal(bytes, "goes out", 8);
    assert_int_equal(close(lower), 0);
    close_pair(ends);
}

/* When the process has no descriptor behind FD_SETSIZE, select() does not touch that part of a set. */
static void select_looks_as_far_as_the_last_descriptor(void **state) {
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit limit = {.rlim_cur = 4 * FD_SETSIZE, .rlim_max = before.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        skip();
    }
    int ends[2];
    make_pair(ends);
    struct {
        fd_set set;
        unsigned char behind[4 * FD_SETSIZE / 8];
    } memory;
    memset(&memory, 0xff, sizeof(memory));
    FD_ZERO(&memory.set);
    FD_SET(ends[1], &memory.set);
    assert_int_equal(write(ends[0], "1", 1), 1);
    assert_int_equal(select(getdtablesize(), &memory.set, NULL, NULL, NULL), 1);
    assert_true(FD_ISSET(ends[1], &memory.set));
    for (size_t i = 0; i < sizeof(memory.behind); ++i) {
        assert_int_equal(memory.behind[i], 0xff);
    }
    /* A program may have longer sets, and descriptors in them. */
    const int distant = FD_SETSIZE + 100;
    unsigned char *const place = &memory.behind[(distant - FD_SETSIZE) / 8];
    const unsigned char bit = 1U << distant % 8;
    assert_int_equal(dup2(ends[1], distant), distant);
    memset(&memory, 0, sizeof(memory));
    *place = bit;
    assert_int_equal(select(distant + 1, &memory.set, NULL, NULL, NULL), 1);
    assert_int_equal(*place, bit);
    assert_int_equal(read(distant, &(char){0}, 1), 1);
    assert_int_equal(select(distant + 1, &memory.set, NULL, NULL, &(struct timeval){0}), 0);
    assert_int_equal(*place, 0);
    assert_int_equal(close(distant), 0);
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* The descriptor that was to become the duplicate is unchanged. */
static void a_duplicate_that_cannot_be_made_closes_nothing(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    const int closed = dup(ends[1]);
    assert_int_equal(close(closed), 0);
    assert_fails(dup2(closed, ends[0]), EBADF);
    assert_fails(dup2(-1, ends[0]), EBADF);
    assert_fails(dup3(ends[1], ends[0], O_NONBLOCK), EINVAL);
    assert_int_equal(write(ends[0], "1", 1), 1);
    char byte = 0;
    assert_int_equal(read(ends[1], &byte, 0), 0);
    assert_int_equal(read(ends[1], &byte, 1), 1);
    assert_int_equal(read(ends[1], &byte, 0), 0); /* and waits for nothing */
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(close(ends[0]), 0);
}

/* The number is another's at once: when what was sent is unread, and while a thread sends. */
static void a_duplicate_takes_the_number_of_a_socket(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    char byte = 0;
    assert_int_equal(write(ends[0], "1", 1), 1);
    assert_int_equal(dup2(STDERR_FILENO, ends[0]), ends[0]);
    assert_int_equal(read(ends[1], &byte, 1), 1);
    assert_int_equal(byte, '1');
    assert_int_equal(read(ends[1], &byte, 1), 0);
    close_pair(ends);

    make_pair(ends);
    const int zero = open("/dev/full", O_WRONLY);
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[1], NULL, send_until_it_fails, &ends[0]), 0);
    assert_null(receive_much(&ends[1]));
    assert_int_equal(pthread_create(&threads[0], NULL, receive_all, &ends[1]), 0);
    assert_int_equal(dup3(zero, ends[0], O_CLOEXEC), ends[0]);
    assert_int_equal(pthread_join(threads[1], NULL), 0);
    assert_fails(write(ends[0], "x", 1), ENOSPC);
    void *received = NULL;
    assert_int_equal(pthread_join(threads[0], &received), 0);
    assert_null(received);
    assert_int_equal(close(zero), 0);
    close_pair(ends);
}

static void a_number_that_is_closed_is_none(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    const int again = dup(ends[1]);
    const int epoll = epoll_create1(0);
    assert_int_equal(close(ends[1]), 0);
    char byte = 0;
    assert_fails(write(ends[1], "x", 1), EBADF);
    assert_fails(read(ends[1], &byte, 1), EBADF);
    assert_fails(shutdown(ends[1], SHUT_RDWR), EBADF);
    assert_fails(fcntl(ends[1], F_GETFD), EBADF);
    assert_fails(dup(ends[1]), EBADF);
    assert_fails(close(ends[1]), EBADF);
    struct pollfd entries[] = {{.fd = ends[1], .events = POLLIN}, {.fd = again, .events = POLLIN}};
    assert_int_equal(poll(entries, 2, wait_ms), 1);
    assert_int_equal(entries[0].revents, POLLNVAL);
    assert_int_equal(poll(entries, 1, wait_ms), 1);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[1], &set);
    assert_fails(select(ends[1] + 1, &set, NULL, NULL, NULL), EBADF);
    struct epoll_event event = {.events = EPOLLIN};
    assert_fails(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event), EBADF);
    assert_int_equal(close(epoll), 0);
    assert_int_equal(write(again, "1", 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, '1');
    assert_int_equal(close(again), 0);
    assert_int_equal(close(ends[0]), 0);
}

/* The device's own descriptors are elsewhere, whatever it does while the program accepts. Files that the
 * other thread's connect reads have low numbers, and are closed soon. */
static void an_accepted_socket_has_the_next_number(void **state) {
    (void)state;
    struct connecting one;
    const int listener = listening(&one.address);
    int ends[4];
    for (int i = 0; i < 2; ++i) {
        pthread_t thread;
        one.fd = ends[2 * i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(pthread_create(&thread, NULL, connect_only, &one), 0);
        ends[2 * i + 1] = accept(listener, NULL, NULL);
        void *result = NULL;
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_null(result);
        assert_in_range(ends[2 * i + 1], ends[2 * i] + 1, ends[2 * i] + 4);
        assert_int_equal(fcntl(ends[2 * i + 1], F_GETFD), 0);
    }
    close_pair(ends);
    close_pair(ends + 2);
    assert_int_equal(close(listener), 0);
}

static void duplicates_are_one_socket(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    const int first = dup(ends[1]);
    const int second = fcntl(ends[1], F_DUPFD_CLOEXEC, 100);
    const int third = dup(0);
    assert_true(first >= 0 && second >= 100 && third >= 0);
    assert_int_equal(dup2(first, third), third);
    assert_int_equal(dup3(ends[1], third, O_CLOEXEC), third);
    assert_int_equal(fcntl(second, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(first, F_GETFD), 0);
    assert_int_equal(fcntl(first, F_SETFL, O_NONBLOCK), 0);
    assert_true((fcntl(third, F_GETFL) & O_NONBLOCK) != 0);
    assert_fails(read(ends[1], &(char){0}, 1), EAGAIN);
    const int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = second};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, second, &event), 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(third, &set);
    FD_SET(0, &set);

    assert_int_equal(write(ends[0], "123", 3), 3);
    await(first, POLLIN);
    FD_CLR(0, &set);
    assert_int_equal(select(FD_SETSIZE, &set, NULL, NULL, NULL), 1);
    assert_true(FD_ISSET(third, &set));
    assert_false(FD_ISSET(ends[1], &set));
    FD_SET(ends[1], &set);
    FD_SET(first, &set);
    assert_int_equal(select(FD_SETSIZE, &set, NULL, NULL, NULL), 3);
    assert_true(FD_ISSET(third, &set) && FD_ISSET(first, &set) && FD_ISSET(ends[1], &set));
    assert_int_equal(epoll_wait(epoll, &event, 1, wait_ms), 1);
    assert_int_equal(event.data.fd, second);
    assert_int_equal(close(epoll), 0);

    char byte = 0;
    assert_int_equal(read(ends[1], &byte, 1), 1);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(recv(third, &byte, 1, 0), 1);
    assert_int_equal(byte, '2');
    assert_int_equal(close(first), 0);
    assert_int_equal(close(third), 0);
    assert_int_equal(read(second, &byte, 1), 1);
    assert_int_equal(byte, '3');
    assert_fails(recv(ends[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    assert_int_equal(close(second), 0);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    assert_int_equal(close(ends[0]), 0);
}

/* Daemons do this when they start. The library's own descriptors stay open. */
static void closing_all_leaves_sockets_usable(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    close_pair(ends);
    for (int fd = 3; fd < 1024; ++fd) {
        close(fd);
    }
    const int next = dup(0);
    assert_int_equal(next, 3);
    assert_int_equal(close(next), 0);
    make_pair(ends);
    assert_in_range(ends[0], 3, 20);
    assert_in_range(ends[1], 3, 20);
    assert_int_equal(close_range(3, ~0U, 0), 0);
    assert_fails(read(ends[0], &(char){0}, 1), EBADF);
    make_pair(ends);
    closefrom(3);
    make_pair(ends);
    close_pair(ends);
}

/* The descriptor's number becomes that of a file, of a duplicate, and of another socket. */
static void numbers_that_were_closed_unseen_are_others(void **state) {
    (void)state;
    for (int other = 0; other < 3; ++other) {
        int ends[2];
        make_pair(ends);
        int fillers[64]; /* below it no number is free */
        int filled = 0;
        while ((fillers[filled] = dup(0)) < ends[1]) {
            assert_true(++filled < 64);
        }
        assert_int_equal(syscall(SYS_close_range, ends[1], ends[1], 0), 0);
        const int fd = other == 0   ? open("/dev/zero", O_RDWR)
                       : other == 1 ? dup(0)
                                    : socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_int_equal(fd, ends[1]);
        char byte = 1;
        if (other == 0) {
            assert_int_equal(read(fd, &byte, 1), 1);
            assert_int_equal(byte, 0);
        } else if (other == 2) {
            assert_fails(read(fd, &byte, 1), ENOTCONN);
        }
        assert_true(recv(ends[0], &byte, 1, 0) <= 0);
        close_pair(ends);
        for (int i = 0; i <= filled; ++i) {
            assert_int_equal(close(fillers[i]), 0);
        }
    }
    int ends[2];
    make_pair(ends);
    close_pair(ends);
}

static void calls_that_cannot_be_fail(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    char byte = 0;
    static struct iovec parts[1025];
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
        parts[i] = (struct iovec){.iov_base = &byte, .iov_len = 1};
    }
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = sizeof(parts) / sizeof(parts[0])};
    assert_fails(sendmsg(ends[0], &message, 0), EMSGSIZE);
    assert_fails(recvmsg(ends[1], &message, 0), EMSGSIZE);
    assert_fails(writev(ends[0], parts, 1025), EINVAL);
    assert_fails(readv(ends[1], parts, 1025), EINVAL);
    void *volatile nowhere = NULL; /* so that the compiler does not know of it */
    void *volatile one = (void *)(uintptr_t)1;
    assert_fails(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, nowhere, sizeof(int)), EFAULT);
    assert_fails(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, parts, (socklen_t)-1), EINVAL);
    assert_fails(recvmmsg(ends[1], nowhere, 1, MSG_DONTWAIT, NULL), EFAULT);
    assert_fails(poll(one, 1, 0), EFAULT);
    assert_fails(ppoll(one, 1, &(struct timespec){.tv_sec = 0}, NULL), EFAULT);
    assert_fails(select(ends[1] + 1, one, NULL, NULL, &(struct timeval){.tv_sec = 0}), EFAULT);
    assert_fails(connect(ends[0], one, sizeof(struct sockaddr_in)), EFAULT);
    close_pair(ends);

    struct sockaddr_in address;
    const int listener = listening(&address);
    assert_fails(connect(listener, (struct sockaddr *)&address, sizeof(address)), EISCONN);
    assert_fails(ioctl(listener, FIONREAD, &(int){0}), EINVAL);
    assert_int_equal(close(listener), 0);
}

static void ends_and_names_are_those_of_tcp(void **state) {
    (void)state;
    int ends[2];
    char bytes[4] = "";
    make_pair(ends);
    assert_int_equal(shutdown(ends[1], SHUT_RD), 0);
    assert_int_equal(write(ends[0], "123", 3), 3);
    assert_int_equal(write(ends[1], "!", 1), 1);
    assert_int_equal(read(ends[0], bytes, 1), 1);
    assert_int_equal(read(ends[1], bytes, 3), 3);
    close_pair(ends);

    make_pair(ends);
    assert_int_equal(write(ends[0], "unread", 6), 6);
    await(ends[1], POLLIN);
    assert_int_equal(close(ends[1]), 0);
    assert_fails(read(ends[0], bytes, 1), ECONNRESET);
    assert_int_equal(close(ends[0]), 0);

    make_pair(ends);
    const int again = dup(ends[1]);
    const int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event), 0);
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    const int file = open("/dev/null", O_RDONLY);
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, again, &event), 0);
    assert_int_equal(connect(ends[1], &nobody, sizeof(nobody)), 0);
    assert_int_equal(dup2(file, ends[1]), ends[1]);
    assert_int_equal(close(file), 0);
    assert_int_equal(close(epoll), 0);
    assert_int_equal(close(again), 0);
    close_pair(ends);
}

/* As libuv does: the peer sees the end of the stream. */
static void a_system_call_closes_a_socket(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    char byte = 0;
    assert_int_equal(write(ends[0], "!", 1), 1);
    assert_int_equal(syscall(SYS_close, ends[0]), 0);
    assert_fails(syscall(SYS_close, ends[0]), EBADF);
    assert_int_equal(read(ends[1], &byte, 1), 1);
    assert_int_equal(read(ends[1], &byte, 1), 0);
    assert_int_equal(close(ends[1]), 0);
}

/* The server uses the accepted connection after its client has continued and the listener is closed. */
static void a_connection_that_nobody_uses_yet_is_there(void **state) {
    (void)state;
    struct connecting one;
    const int listener = listening(&one.address);
    one.fd = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, connect_only, &one), 0);
    const int accepted = accept(listener, NULL, NULL);
    assert_true(accepted >= 0);
    assert_int_equal(close(listener), 0);
    void *result = NULL;
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    char byte = 0;
    assert_int_equal(write(one.fd, "!", 1), 1);
    struct pollfd both[] = {{.fd = accepted, .events = POLLIN}, {.fd = one.fd}};
    assert_int_equal(poll(both, 2, wait_ms), 1);
    assert_int_equal(read(accepted, &byte, 1), 1);
    close_pair((int[]){one.fd, accepted});
}

static void a_vfork_child_closes_for_itself(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    const pid_t child = vfork();
    if (child == 0) {
        close(ends[0]);
        close_range(3, ~0U, 0);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    char byte = 0;
    assert_int_equal(write(ends[0], "!", 1), 1);
    assert_int_equal(read(ends[1], &byte, 1), 1);
    close_pair(ends);
}

/* Puts a descriptor into a set, that into the next, and so on. Returns how many sets the kernel allows. */
static int deepest(int fd, int *sets, int most) {
    int depth = 0;
    for (; depth < most; ++depth) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)depth};
        sets[depth] = epoll_create1(0);
        assert_true(sets[depth] >= 0);
        if (epoll_ctl(sets[depth], EPOLL_CTL_ADD, depth == 0 ? fd : sets[depth - 1], &event) != 0) {
            assert_int_equal(errno, ELOOP);
            assert_int_equal(close(sets[depth]), 0);
            break;
        }
    }
    return depth;
}

static void close_sets(const int *sets, int depth) {
    while (depth > 0) {
        assert_int_equal(close(sets[--depth]), 0);
    }
}

static void sets_are_in_one_another(void **state) {
    enum { kernels = 5, of_sockets = 3 };
    (void)state;
    int sets[kernels + 1];
    struct epoll_event event;
    const int number = eventfd(0, 0);
    assert_int_equal(deepest(number, sets, kernels + 1), kernels);
    assert_int_equal(epoll_wait(sets[kernels - 1], &event, 1, 0), 0);
    assert_int_equal(eventfd_write(number, 1), 0);
    assert_int_equal(epoll_wait(sets[kernels - 1], &event, 1, wait_ms), 1);
    assert_int_equal(event.data.u64, kernels - 1);
    assert_int_equal(epoll_wait(sets[0], &event, 1, 0), 1);
    close_sets(sets, kernels);
    assert_int_equal(close(number), 0);

    int ends[2];
    make_pair(ends);
    assert_int_equal(deepest(ends[1], sets, of_sockets), of_sockets);
    assert_int_equal(epoll_wait(sets[0], &event, 1, 0), 0);
    assert_int_equal(write(ends[0], "!", 1), 1);
    assert_int_equal(epoll_wait(sets[of_sockets - 1], &event, 1, wait_ms), 1);
    assert_int_equal(event.data.u64, of_sockets - 1);
    assert_int_equal(epoll_wait(sets[0], &event, 1, wait_ms), 1);
    close_sets(sets, of_sockets);
    close_pair(ends);
}

static long clone_by_system_call(void) {
    return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static long clone3_by_system_call(void) {
    const struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } arguments = {.exit_signal = SIGCHLD};
    return syscall(SYS_clone3, &arguments, sizeof(arguments));
}

#ifdef SYS_fork
static long fork_by_system_call(void) {
    return syscall(SYS_fork);
}
#endif

/* vsftpd makes its processes so: the child has its own descriptors, and their numbers become others. */
static void a_process_made_by_a_system_call_is_one(void **state) {
    (void)state;
    long (*const calls[])(void) = {clone_by_system_call, clone3_by_system_call,
#ifdef SYS_fork
                                   fork_by_system_call,
#endif
                                   NULL};
    for (size_t i = 0; calls[i] != NULL; ++i) {
        struct sockaddr_in address;
        const int listener = listening(&address);
        const long child = calls[i]();
        assert_true(child >= 0);
        if (child == 0) {
            int others[2]; /* one of them has the listener's number */
            char byte = 0;
            const bool is_right = close(listener) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, others) == 0 &&
                                  write(others[1], "!", 1) == 1 && read(others[0], &byte, 1) == 1;
            _exit(is_right ? 0 : errno);
        }
        int status = -1;
        assert_int_equal(waitpid((pid_t)child, &status, 0), child);
        assert_int_equal(status, 0);
        /* The parent's is what it was. */
        int ends[2];
        make_pair(ends);
        close_pair(ends);
        assert_int_equal(close(listener), 0);
    }
}

struct sharing {
    int fd;
    int begins;
};

/* Answers when the parent has closed its descriptor. */
static int answer(void *argument) {
    const struct sharing *const sharing = argument;
    char bytes[8] = "";
    const bool is_right = read(sharing->begins, bytes, 1) == 1 && read(sharing->fd, bytes, 4) == 4 &&
                          memcmp(bytes, "ask!", 4) == 0 && write(sharing->fd, "told", 4) == 4;
    syscall(SYS_exit_group, is_right ? 0 : 1);
    return 1;
}

static pid_t answer_by_one_process_call(struct sharing *sharing) {
    const pid_t child = _Fork();
    if (child == 0) {
        answer(sharing);
    }
    return child;
}

static pid_t answer_by_clone(struct sharing *sharing) {
    static char stack[1 << 20];
    return clone(answer, stack + sizeof(stack), SIGCHLD, sharing);
}

static pid_t (*sharers[])(struct sharing *) = {answer_by_one_process_call, answer_by_clone};

/* The child keeps what its parent closes, and the parent's next connection has nothing of it. */
static void a_child_keeps_its_parents_connection(void **state) {
    pid_t (*const make)(struct sharing *) = *(pid_t(*const *)(struct sharing *))*state;
    const struct timeval time = {.tv_sec = wait_ms / 1000};
    int ends[2];
    int others[2];
    int begins[2];
    char bytes[8] = "";
    make_pair(ends);
    const int for_listener = socket(AF_INET, SOCK_STREAM, 0); /* what is closed last is another's first */
    assert_true(for_listener >= 0);
    assert_int_equal(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)), 0);
    assert_int_equal(pipe2(begins, O_CLOEXEC), 0);
    struct sharing sharing = {.fd = ends[1], .begins = begins[0]};
    const pid_t child = make(&sharing);
    assert_true(child > 0);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(close(for_listener), 0);
    make_pair(others);
    assert_int_equal(write(begins[1], "!", 1), 1);
    assert_int_equal(write(ends[0], "ask!", 4), 4);
    assert_int_equal(recv(ends[0], bytes, 4, MSG_WAITALL), 4);
    assert_memory_equal(bytes, "told", 4);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    use(others);
    close_pair(others);
    close_pair(begins);
    assert_int_equal(close(ends[0]), 0);
}

/* Its bytes come through TCP from there on, and the set tells of each. */
static void a_set_has_a_socket_exclusively(void **state) {
    (void)state;
    enum { messages = 40 };
    int ends[2];
    make_pair(ends);
    const int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.u32 = 9};
    assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), 0);
    for (int i = 0; i < messages; ++i) {
        char byte = (char)i;
        assert_int_equal(send(ends[1], &byte, 1, 0), 1);
        assert_int_equal(epoll_wait(set, &event, 1, wait_ms), 1);
        assert_int_equal(event.events, EPOLLIN);
        assert_int_equal(event.data.u32, 9);
        byte = -1;
        assert_int_equal(recv(ends[0], &byte, 1, 0), 1);
        assert_int_equal(byte, i);
        assert_int_equal(epoll_wait(set, &event, 1, 0), 0);
        assert_int_equal(send(ends[0], &byte, 1, 0), 1);
        assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
    }
    assert_int_equal(close(set), 0);
    close_pair(ends);
}

static void a_socket_is_peeked_at_from_an_offset(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    if (setsockopt(ends[1], SOL_SOCKET, SO_PEEK_OFF, &(int){0}, sizeof(int)) == 0) { /* from Linux 6.9 on */
        char bytes[4];
        assert_int_equal(send(ends[0], "123456", 6, 0), 6);
        await(ends[1], POLLIN);
        assert_int_equal(recv(ends[1], bytes, 3, MSG_PEEK), 3);
        assert_memory_equal(bytes, "123", 3);
        assert_int_equal(recv(ends[1], bytes, 3, MSG_PEEK), 3);
        assert_memory_equal(bytes, "456", 3);
    }
    close_pair(ends);
}

/* From here on a system call that is not one of four ends the process. */
static void a_filter_lets_read_and_write(void **state) {
    (void)state;
    int ends[2];
    int filtered[2];
    char byte = 0;
    make_pair(ends);
    assert_int_equal(pipe(filtered), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (close(ends[0]) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0) {
            bool answers = write(filtered[1], &byte, 1) == 1;
            while (answers && read(ends[1], &byte, 1) == 1 && write(ends[1], &byte, 1) == 1) {
            }
        }
        (void)syscall(SYS_exit, 0);
    }
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(close(filtered[1]), 0);
    assert_int_equal(read(filtered[0], &byte, 1), 1);
    assert_int_equal(close(filtered[0]), 0);
    for (int i = 0; i < 100; ++i) {
        assert_int_equal(send(ends[0], "!", 1, 0), 1);
        assert_int_equal(recv(ends[0], &byte, 1, 0), 1);
    }
    assert_int_equal(close(ends[0]), 0);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static bool change_user(void) {
    enum { nobody = 65534 };
    return setuid(nobody) == 0 || errno == EINVAL; /* a container may have none */
}

static bool filter_nothing(void) {
    struct sock_filter let = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog filter = {.len = 1, .filter = &let};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

static bool (*leaving[])(void) = {change_user, filter_nothing};

/* A child leaves the connections that it has from its parent. What the parent has asked a set since the fork
 * stays. */
static void a_child_changes_no_set_of_its_parent(void **state) {
    bool (*const leave)(void) = *(bool (**)(void))*state;
    if (leave == change_user && geteuid() != 0) {
        skip();
    }
    int ends[2];
    int begun[2];
    int left[2];
    char bytes[4096] = "";
    make_pair(ends);
    assert_int_equal(pipe(begun), 0);
    assert_int_equal(pipe(left), 0);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    const int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 5};
    assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(60);
        const bool has_left = read(begun[0], bytes, 1) == 1 && leave() && write(left[1], "!", 1) == 1;
        for (; has_left;) {
            pause();
        }
        _exit(1);
    }
    size_t sent = 0;
    for (ssize_t more = 0; more >= 0; sent += more > 0 ? (size_t)more : 0) {
        more = send(ends[1], bytes, sizeof(bytes), 0);
    }
    assert_int_equal(errno, EAGAIN);
    event = (struct epoll_event){.events = EPOLLIN | EPOLLOUT, .data.u32 = 6};
    assert_int_equal(epoll_ctl(set, EPOLL_CTL_MOD, ends[1], &event), 0);
    assert_int_equal(write(begun[1], "!", 1), 1);
    assert_int_equal(read(left[0], bytes, 1), 1);
    while (sent != 0) {
        const ssize_t more = recv(ends[0], bytes, sizeof(bytes), 0);
        assert_true(more > 0);
        sent -= (size_t)more;
    }
    assert_int_equal(epoll_wait(set, &event, 1, wait_ms), 1);
    assert_int_equal(event.events, EPOLLOUT);
    assert_int_equal(event.data.u32, 6);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(close(set), 0);
    close_pair(ends);
    close_pair(begun);
    close_pair(left);
}

/* A child filters its system calls. It closes what it has from its parent, and makes a process, without those
 * that only this library would make. */
static void a_filter_lets_no_process_be_looked_for(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct sock_filter calls[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 1, 0),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 0, 1),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        const struct sock_fprog filter = {.len = sizeof(calls) / sizeof(calls[0]), .filter = calls};
        bool is_right = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0 && close(ends[0]) == 0;
        const pid_t grandchild = is_right ? fork() : -1;
        if (grandchild == 0) {
            _exit(close(ends[1]) == 0 ? 0 : 1);
        }
        int status = -1;
        is_right = is_right && waitpid(grandchild, &status, 0) == grandchild && status == 0;
        _exit(is_right && close(ends[1]) == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    use(ends);
    close_pair(ends);
}

/* A child with a connection of its own filters its system calls, and ends by exit(3). It makes no call for
 * the record that `rpma sockets` reads. */
static void a_filter_lets_no_file_be_removed(void **state) {
    (void)state;
    assert_int_equal(fflush(NULL), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int ends[2];
        struct sock_filter calls[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unlink, 2, 0),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unlinkat, 1, 0),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 0, 1),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        const struct sock_fprog filter = {.len = sizeof(calls) / sizeof(calls[0]), .filter = calls};
        make_pair(ends);
        use(ends);
        const bool is_right = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                              prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0 &&
                              send(ends[0], "a", 1, 0) == 1 && close(ends[0]) == 0 && close(ends[1]) == 0;
        exit(is_right ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Returns one end of a connection whose other end only the kernel knows. */
static int half_pair(int *other) {
    struct sockaddr_in address;
    char byte = '!';
    const int listener = listening(&address);
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
    *other = (int)syscall(SYS_accept4, listener, NULL, NULL, 0);
    for (int i = 0; i < 8; ++i) {
        assert_int_equal(send(client, &byte, 1, 0), 1);
        assert_int_equal(syscall(SYS_read, *other, &byte, 1), 1);
    }
    assert_int_equal(close(listener), 0);
    return client;
}

/* A child filters its system calls. It has a connection that looks for its other end, one that has a link,
 * and one with unread bytes in the memory of its link. It makes none of the calls that only this library
 * would make. */
static void a_filter_lets_connections_go_on_and_end(void **state) {
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int own[] = {SYS_munmap, SYS_geteuid,     SYS_mkdir,       SYS_newfstatat,
                           SYS_fcntl,  SYS_sched_yield, SYS_epoll_pwait2};
        enum { calls_count = sizeof(own) / sizeof(own[0]) };
        struct sock_filter calls[calls_count + 3] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
        for (unsigned char i = 0; i < calls_count; ++i) {
            calls[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)own[i],
                                                        (unsigned char)(calls_count - i), 0);
        }
        calls[calls_count + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        calls[calls_count + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
        const struct sock_fprog filter = {.len = calls_count + 3, .filter = calls};
        int linked[2];
        int unread[2];
        int kernels = -1;
        char bytes[8] = "";
        const int waiting = half_pair(&kernels);
        make_pair(linked);
        make_pair(unread);
        const int set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = 1};
        bool is_right = epoll_ctl(set, EPOLL_CTL_ADD, unread[1], &event) == 0 &&
                        send(unread[0], "abcd", 4, 0) == 4 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
        is_right = is_right && epoll_wait(set, &event, 1, wait_ms) == 1 && event.data.u32 == 1;
        is_right = is_right && recv(unread[1], bytes, 4, 0) == 4 && memcmp(bytes, "abcd", 4) == 0;
        for (int i = 0; is_right && i < 2; ++i) {
            const int *const ends = i == 0 ? linked : unread;
            is_right = recv(ends[1], bytes, 4, MSG_DONTWAIT) == -1 && send(ends[0], "efgh", 4, 0) == 4 &&
                       recv(ends[1], bytes, 4, 0) == 4 && memcmp(bytes, "efgh", 4) == 0 &&
                       send(ends[1], "i", 1, 0) == 1 && recv(ends[0], bytes, 1, 0) == 1 &&
                       close(ends[0]) == 0 && close(ends[1]) == 0;
        }
        syscall(SYS_exit_group, is_right && send(waiting, "j", 1, 0) == 1 && close(waiting) == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void *close_own_copy(void *argument) {
    const int *const ends = argument;
    const bool has_closed = unshare(CLONE_FILES) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0;
    return (void *)(intptr_t)(has_closed ? 0 : errno);
}

static void *close_own_range(void *argument) {
    const int *const ends = argument;
    const unsigned first = (unsigned)ends[0];
    const bool has_closed = close_range(first, first, CLOSE_RANGE_UNSHARE) == 0 && close(ends[1]) == 0;
    return (void *)(intptr_t)(has_closed ? 0 : errno);
}

static void *(*closing_own[])(void *) = {close_own_copy, close_own_range};

/* It is in a process of its own, whose later connections stay in TCP. */
static void a_thread_closes_its_own_descriptors(void **state) {
    void *(*const *const how)(void *) = *state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int ends[2];
        char bytes[] = "????";
        pthread_t thread;
        void *failed = NULL;
        make_pair(ends);
        assert_int_equal(send(ends[0], "abcd", 4, 0), 4);
        assert_int_equal(pthread_create(&thread, NULL, *how, ends), 0);
        assert_int_equal(pthread_join(thread, &failed), 0);
        assert_null(failed);
        assert_int_equal(recv(ends[1], bytes, 4, MSG_DONTWAIT), 4);
        assert_string_equal(bytes, "abcd");
        assert_int_equal(send(ends[1], "e", 1, 0), 1);
        assert_int_equal(recv(ends[0], bytes, 4, 0), 1);
        close_pair(ends);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* These are the kernel's alone. The kernel may not have the module of the first one. */
static void options_of_tcp_bring_a_connection_back(void **state) {
    (void)state;
    enum { bytes = 100 };
    const int many = 1 << 20;
    const int one = 1;
    const struct {
        int level, option;
        const void *value;
        socklen_t size;
    } options[] = {{IPPROTO_TCP, TCP_ULP, "tls", 3},
                   {IPPROTO_TCP, TCP_NOTSENT_LOWAT, &many, sizeof(many)},
                   {IPPROTO_TCP, TCP_INQ, &one, sizeof(one)},
                   {SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)},
                   {SOL_SOCKET, SO_TIMESTAMP, &one, sizeof(one)}};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); ++i) {
        int ends[2];
        make_pair(ends);
        if (setsockopt(ends[0], options[i].level, options[i].option, options[i].value, options[i].size) !=
            0) {
            assert_int_equal(errno, ENOENT);
            assert_int_equal(options[i].option, TCP_ULP);
        }
        for (int sender = 0; sender < 2; ++sender) {
            char sent[bytes];
            char received[bytes];
            int unread = 0;
            memset(sent, '0' + sender, sizeof(sent));
            assert_int_equal(send(ends[sender], sent, sizeof(sent), 0), sizeof(sent));
            await(ends[1 - sender], POLLIN);
            assert_int_equal(syscall(SYS_ioctl, ends[1 - sender], FIONREAD, &unread), 0);
            assert_int_equal(unread, bytes);
            assert_int_equal(recv(ends[1 - sender], received, sizeof(received), 0), sizeof(received));
            assert_memory_equal(received, sent, sizeof(sent));
        }
        close_pair(ends);
    }
}

/* A program that inherits a set is told by the data that its predecessor gave, and not of a socket that was
 * taken out. */
static void a_program_inherits_a_set(void **state) {
    (void)state;
    char number[16];
    int kept[2];
    int taken_out[2];
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        make_pair(kept);
        make_pair(taken_out);
        const int set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = of_inherited_set};
        assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, kept[0], &event), 0);
        assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, taken_out[0], &event), 0);
        assert_int_equal(epoll_wait(set, &event, 1, 0), 0);
        assert_int_equal(epoll_ctl(set, EPOLL_CTL_DEL, taken_out[0], NULL), 0);
        (void)execl("/no/such/program", "", (char *)NULL);
        assert_int_equal(write(taken_out[1], "!", 1), 1);
        assert_int_equal(read(taken_out[0], number, 1), 1); /* or it would not go with the program */
        assert_int_equal(syscall(SYS_write, taken_out[1], "!", 1), 1);
        assert_int_equal(syscall(SYS_write, kept[1], "!", 1), 1);
        (void)snprintf(number, sizeof(number), "%d", set);
        (void)execl("/proc/self/exe", "sockets", "inherits", number, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Returns the exit code of the program that has the set. */
static int look_at_inherited(const char *number) {
    struct epoll_event events[3];
    const int set = (int)strtol(number, NULL, 10);
    const int count = epoll_wait(set, events, 3, wait_ms);
    return count == 1 && events[0].events == EPOLLIN && events[0].data.u64 == of_inherited_set ? 0 : 1;
}

/* As in the kernel, the set keeps a socket that a message has, and tells of an edge once. */
static void a_set_tells_of_a_passed_socket_once(void **state) {
    (void)state;
    int ends[2];
    int pipe_ends[2];
    make_pair(ends);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pipe_ends), 0);
    const int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = 7};
    assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), 0);
    assert_int_equal(shutdown(ends[1], SHUT_WR), 0);
    assert_int_equal(epoll_wait(set, &event, 1, wait_ms), 1);
    assert_int_equal(event.data.u32, 7);
    assert_int_equal(epoll_wait(set, &event, 1, 0), 0);
    send_descriptor(pipe_ends[0], ends[0]);
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(epoll_wait(set, &event, 1, 0), 0);
    ends[0] = receive_descriptor(pipe_ends[1]);
    assert_int_equal(epoll_wait(set, &event, 1, 0), 0);
    /* The set still tells of what happens then. */
    assert_int_equal(send(ends[0], "!", 1, 0), 1);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(epoll_wait(set, &event, 1, wait_ms), 1);
    assert_int_equal(event.data.u32, 7);
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(epoll_wait(set, &event, 1, 0), 0);
    assert_int_equal(close(set), 0);
    close_pair(pipe_ends);
}

enum { half_bytes = 100 };

/* The first half of these bytes is there to be read when it returns: in the ring, or the first in TCP. */
static void send_first_half(int ends[2], char bytes[2 * half_bytes], bool begins_in_tcp) {
    char byte = 0;
    for (int i = 0; i < 2 * half_bytes; ++i) {
        bytes[i] = (char)(i + 1);
    }
    make_pair(ends);
    use(ends);
    if (begins_in_tcp) { /* the ring does not carry the flag, and is tried again some sends later */
        assert_int_equal(send(ends[0], "!", 1, MSG_DONTROUTE), 1);
        assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
    }
    for (int i = 0; i < half_bytes; ++i) {
        assert_int_equal(send(ends[0], bytes + i, 1, 0), 1);
    }
    await(ends[1], POLLIN);
}

/* A process that gets a socket gets its unread bytes before those behind them, or both ends fail. */
static void no_bytes_are_missing_in_a_passed_socket(void **state) {
    int ends[2];
    int passing[2];
    char sent[2 * half_bytes];
    char got[2 * half_bytes + 1];
    send_first_half(ends, sent, *(const bool *)*state);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, passing), 0);
    send_descriptor(passing[0], ends[1]);
    assert_int_equal(close(ends[1]), 0);
    const int passed = receive_descriptor(passing[1]);
    const ssize_t more = send(ends[0], sent + half_bytes, half_bytes, MSG_NOSIGNAL);
    const int error = errno;
    (void)shutdown(ends[0], SHUT_WR);
    size_t size = 0;
    ssize_t read_here = 1;
    for (; read_here > 0; size += read_here > 0 ? (size_t)read_here : 0) {
        read_here = recv(passed, got + size, sizeof(got) - size, 0);
    }
    if (read_here < 0) {
        assert_int_equal(errno, ECONNRESET);
        assert_int_equal(more < 0 ? -1 : recv(ends[0], &(char){0}, 1, 0), -1);
        assert_int_equal(more < 0 ? error : errno, ECONNRESET);
    }
    assert_true(read_here < 0 || size == sizeof(sent));
    assert_memory_equal(got, sent, size);
    assert_int_equal(close(passed), 0);
    assert_int_equal(close(ends[0]), 0);
    close_pair(passing);
}

/* Both give ends[1] and out[1] as standard streams to cat, which has no other descriptor of the sockets. */
static pid_t fork_cat(const int ends[2], const int out[2]) {
    const pid_t child = fork();
    if (child == 0) {
        if (close(ends[0]) == 0 && dup2(ends[1], STDIN_FILENO) == 0 && dup2(out[1], STDOUT_FILENO) == 1) {
            (void)execlp("cat", "cat", (char *)NULL);
        }
        _exit(127);
    }
    return child;
}

static pid_t spawn_cat(const int ends[2], const int out[2]) {
    pid_t child = -1;
    char cat[] = "cat";
    char *const words[] = {cat, NULL};
    posix_spawn_file_actions_t actions;
    assert_int_equal(fcntl(ends[0], F_SETFD, FD_CLOEXEC), 0);
    assert_int_equal(fcntl(ends[1], F_SETFD, FD_CLOEXEC), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO), 0);
    assert_int_equal(posix_spawnp(&child, cat, &actions, NULL, words, environ), 0);
    assert_int_equal(posix_spawn_file_actions_destroy(&actions), 0);
    return child;
}

struct inheriting {
    pid_t (*begin_cat)(const int ends[2], const int out[2]);
    bool begins_in_tcp;
};

/* A program that fails has got the first bytes, or none. */
static void no_bytes_are_missing_in_an_inherited_socket(void **state) {
    const struct inheriting *const how = *state;
    int ends[2];
    int out[2];
    char sent[2 * half_bytes];
    char got[2 * half_bytes + 1];
    send_first_half(ends, sent, how->begins_in_tcp);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    const pid_t child = how->begin_cat(ends, out);
    assert_true(child > 0);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(close(out[1]), 0);
    (void)send(ends[0], sent + half_bytes, half_bytes, MSG_NOSIGNAL);
    (void)shutdown(ends[0], SHUT_WR);
    size_t size = 0;
    for (ssize_t more = 1; more > 0; size += (size_t)more) {
        more = read(out[0], got + size, sizeof(got) - size);
        assert_true(more >= 0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
    assert_true(size == sizeof(sent) || (size < sizeof(sent) && status != 0));
    assert_memory_equal(got, sent, size);
    assert_int_equal(close(out[0]), 0);
    assert_int_equal(close(ends[0]), 0);
}

/* The program is the file of a descriptor. */
static void a_program_of_a_descriptor_gets_what_comes(void **state) {
    (void)state;
    char byte = 0;
    char number[16];
    char program[] = "sockets";
    char reads[] = "reads";
    char *const words[] = {program, reads, number, NULL};
    int ends[2];
    int begins[2];
    int status = -1;
    make_pair(ends);
    assert_int_equal(pipe2(begins, O_CLOEXEC), 0);
    (void)snprintf(number, sizeof(number), "%d", ends[1]);
    const pid_t child = fork();
    if (child == 0) {
        const int file = open("/proc/self/exe", O_PATH | O_CLOEXEC);
        (void)close(ends[0]);
        (void)execveat(file, "", words, environ, AT_EMPTY_PATH);
        _exit(127);
    }
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(close(begins[1]), 0);
    assert_int_equal(read(begins[0], &byte, 1), 0); /* the program has begun */
    assert_int_equal(send(ends[0], comes, sizeof(comes), 0), sizeof(comes));
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(close(begins[0]), 0);
}

/* Returns the exit code of the program that has the socket. */
static int read_what_comes(const char *number) {
    char got[sizeof(comes) + 1];
    const ssize_t size = recv((int)strtol(number, NULL, 10), got, sizeof(got), MSG_WAITALL);
    return size == sizeof(comes) && memcmp(got, comes, sizeof(comes)) == 0 ? 0 : 1;
}

enum reader { ChildReads, ChildOfKilledReads, ParentReads, ParentPeeks, ChildOfGoneReads };
struct giving_up {
    enum reader who;
    bool begins_in_tcp;
};

/* Returns whether all is read that was sent. */
static bool reads_all(int fd, const char sent[2 * half_bytes]) {
    char got[2 * half_bytes];
    size_t size = 0;
    for (ssize_t more = 1; more > 0 && size < sizeof(got); size += more > 0 ? (size_t)more : 0) {
        more = recv(fd, got + size, sizeof(got) - size, 0);
    }
    return size == sizeof(got) && memcmp(got, sent, size) == 0;
}

static void be_killed(void) {
    const pid_t child = fork();
    if (child == 0) {
        for (;;) {
            pause();
        }
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
}

/* A child gives up its user for good. It, or its own child, reads what has come before, and its parent does
 * when nobody else reads anything. */
static void no_bytes_are_missing_behind_a_change_of_user(void **state) {
    const struct giving_up *const how = *state;
    if (geteuid() != 0) {
        skip();
    }
    int ends[2];
    int changed[2];
    int looked[2];
    char sent[2 * half_bytes];
    char byte = 0;
    send_first_half(ends, sent, how->begins_in_tcp);
    assert_int_equal(pipe(changed), 0);
    assert_int_equal(pipe(looked), 0);
    const bool is_closed = how->who == ChildOfKilledReads || how->who == ChildOfGoneReads;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (how->who == ChildOfKilledReads) {
            be_killed();
        }
        (void)alarm(10);
        bool is_right = change_user() && close(ends[0]) == 0 && write(changed[1], "!", 1) == 1;
        if (how->who == ChildOfGoneReads && fork() != 0) {
            _exit(is_right ? 0 : 1);
        }
        is_right = is_right && read(looked[0], &byte, 1) == 1;
        is_right = is_right && (how->who == ParentReads || reads_all(ends[1], sent));
        is_right = is_right && (how->who != ChildOfGoneReads || write(changed[1], "!", 1) == 1);
        _exit(is_right ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(close(changed[1]), 0);
    assert_int_equal(read(changed[0], &byte, 1), 1);
    if (how->who == ChildOfGoneReads) {
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    if (is_closed) {
        assert_int_equal(close(ends[1]), 0);
    }
    if (how->who == ParentPeeks) {
        assert_int_equal(recv(ends[1], &byte, 0, MSG_PEEK | MSG_DONTWAIT), 0);
        assert_int_equal(recv(ends[1], &byte, 1, MSG_PEEK | MSG_DONTWAIT), 1);
        assert_int_equal(byte, sent[0]);
    }
    assert_int_equal(write(looked[1], "!", 1), 1);
    assert_int_equal(send(ends[0], sent + half_bytes, half_bytes, 0), half_bytes);
    if (how->who == ChildOfGoneReads) {
        assert_int_equal(read(changed[0], &byte, 1), 1);
    } else {
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    assert_int_equal(status, 0);
    if (!is_closed) {
        if (how->who != ParentReads) {
            assert_int_equal(poll(&(struct pollfd){.fd = ends[1], .events = POLLIN}, 1, 0), 0);
        }
        assert_true(how->who != ParentReads || reads_all(ends[1], sent));
        assert_int_equal(send(ends[0], "!", 1, 0), 1);
        await(ends[1], POLLIN);
        assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
        assert_int_equal(byte, '!');
        assert_int_equal(close(ends[1]), 0);
    }
    assert_int_equal(close(changed[0]), 0);
    close_pair(looked);
    assert_int_equal(close(ends[0]), 0);
}

enum ending { Resets, ReadsSome, ReadsNothing };
static enum ending endings[] = {Resets, ReadsSome, ReadsNothing};

/* A child gives up its user for good, and has the connection alone. It resets it, or has not read all when it
 * closes it: the peer finds a reset behind what was sent. */
static void a_connection_of_another_user_is_reset_as_in_tcp(void **state) {
    const enum ending how = *(const enum ending *)*state;
    if (geteuid() != 0) {
        skip();
    }
    int ends[2];
    int changed[2];
    int closed[2];
    char sent[2 * half_bytes];
    char bytes[2 * half_bytes];
    send_first_half(ends, sent, false);
    assert_int_equal(pipe(changed), 0);
    assert_int_equal(pipe(closed), 0);
    if (how == Resets) {
        assert_int_equal(recv(ends[1], bytes, half_bytes, MSG_WAITALL), half_bytes);
    }
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(10);
        bool is_right = change_user() && close(ends[0]) == 0 && write(changed[1], "!", 1) == 1 &&
                        read(closed[0], bytes, 1) == 1;
        is_right = is_right && (how != ReadsSome || recv(ends[1], bytes, 2, 0) > 0);
        is_right = is_right && send(ends[1], "end", 3, 0) == 3;
        const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
        is_right = is_right && (how != Resets ||
                                setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
        _exit(is_right && close(ends[1]) == 0 ? 0 : 1);
    }
    assert_int_equal(read(changed[0], bytes, 1), 1);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(write(closed[1], "!", 1), 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ssize_t got = 1;
    for (size_t size = 0; got > 0; size += (size_t)got) {
        got = recv(ends[0], bytes, sizeof(bytes), 0);
        assert_true(got < 0 || (got == 3 && size == 0 && memcmp(bytes, "end", 3) == 0));
    }
    assert_int_equal(errno, ECONNRESET);
    close_pair(changed);
    close_pair(closed);
    assert_int_equal(close(ends[0]), 0);
}

/* A process that has the connection alone, because a child has been killed, executes a program. That reads
 * all of it, or nothing. */
static void a_program_reads_all_of_a_connection_or_nothing(void **state) {
    (void)state;
    int ends[2];
    int out[2];
    int changed[2];
    int closed[2];
    char sent[2 * half_bytes];
    char got[2 * half_bytes];
    send_first_half(ends, sent, false);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(changed, O_CLOEXEC), 0);
    assert_int_equal(pipe2(closed, O_CLOEXEC), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(10);
        bool is_right = close(ends[0]) == 0 && dup2(out[1], STDOUT_FILENO) == 1;
        be_killed();
        is_right = is_right && write(changed[1], "!", 1) == 1 && read(closed[0], got, 1) == 1;
        if (is_right && dup2(ends[1], 9) == 9 && (ends[1] == 9 || close(ends[1]) == 0)) {
            (void)execlp("sh", "sh", "-c", "exec cat <&9", (char *)NULL);
        }
        _exit(127);
    }
    assert_int_equal(read(changed[0], got, 1), 1);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(close(out[1]), 0);
    assert_int_equal(write(closed[1], "!", 1), 1);
    if (send(ends[0], sent + half_bytes, half_bytes, MSG_NOSIGNAL) == half_bytes) {
        (void)shutdown(ends[0], SHUT_WR);
    }
    size_t size = 0;
    for (ssize_t more = 1; more > 0 && size < sizeof(got); size += (size_t)more) {
        more = read(out[0], got + size, sizeof(got) - size);
        assert_true(more >= 0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 127);
    assert_true(size == 0 || (size == sizeof(sent) && memcmp(got, sent, size) == 0));
    assert_true(size != 0 || status != 0);
    close_pair(changed);
    close_pair(closed);
    assert_int_equal(close(out[0]), 0);
    assert_int_equal(close(ends[0]), 0);
}

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "inherits") == 0) {
        return look_at_inherited(words[2]);
    }
    if (count == 3 && strcmp(words[1], "reads") == 0) {
        return read_what_comes(words[2]);
    }
    in_the_memory = count > 1 && strcmp(words[1], "memory") == 0;
    static bool either[] = {false, true};
    static struct inheriting inheriting[] = {
        {fork_cat, false}, {fork_cat, true}, {spawn_cat, false}, {spawn_cat, true}};
    static struct giving_up giving_up[] = {{ChildReads, false},         {ChildReads, true},
                                           {ChildOfKilledReads, false}, {ChildOfKilledReads, true},
                                           {ParentReads, false},        {ParentReads, true},
                                           {ParentPeeks, false},        {ParentPeeks, true},
                                           {ChildOfGoneReads, false},   {ChildOfGoneReads, true}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_calls_moves_bytes),
        cmocka_unit_test(blocks_as_it_is_told),
        cmocka_unit_test(tells_what_is_unread),
        cmocka_unit_test(every_wait_finds_what_is_ready),
        cmocka_unit_test(several_messages_have_one_time),
        cmocka_unit_test(a_send_after_the_end_raises_sigpipe),
        cmocka_unit_test(a_send_of_nothing_raises_no_sigpipe),
        cmocka_unit_test(a_process_ends_while_a_thread_sends),
        cmocka_unit_test(a_wait_needs_no_descriptor),
        cmocka_unit_test(sends_files),
        cmocka_unit_test(splices_between_pipes_and_sockets),
        cmocka_unit_test(threads_splice_from_one_socket),
        cmocka_unit_test_prestate(a_number_is_another_connections_during_a_receive, &wakes[ShutDown]),
        cmocka_unit_test_prestate(a_number_is_another_connections_during_a_receive, &wakes[PeerEnds]),
        cmocka_unit_test_prestate(a_number_is_another_connections_during_a_receive, &wakes[PeerSends]),
        cmocka_unit_test_prestate(a_late_receive_is_none_of_the_next_connection, &either[0]),
        cmocka_unit_test_prestate(a_late_receive_is_none_of_the_next_connection, &either[1]),
        cmocka_unit_test_prestate(a_child_of_another_user_changes_nothing, &inherited[0]),
        cmocka_unit_test_prestate(a_child_of_another_user_changes_nothing, &inherited[1]),
        cmocka_unit_test_prestate(a_child_of_another_user_changes_nothing, &inherited[2]),
        cmocka_unit_test_prestate(a_child_of_another_user_changes_nothing, &inherited[3]),
        cmocka_unit_test(a_server_without_proc_keeps_no_descriptor),
        cmocka_unit_test_prestate(a_killed_child_leaves_nothing, &either[0]),
        cmocka_unit_test_prestate(a_killed_child_leaves_nothing, &either[1]),
        cmocka_unit_test(a_child_killed_in_a_call_leaves_nothing),
        cmocka_unit_test(splices_do_not_wait_for_a_killed_child),
        cmocka_unit_test(a_transparent_socket_stays_in_tcp),
        cmocka_unit_test(a_receive_of_all_has_one_time),
        cmocka_unit_test(a_number_is_another_connections_during_a_send),
        cmocka_unit_test(threads_splice_into_one_pipe_in_order),
        cmocka_unit_test(streams_of_stdio_use_sockets),
        cmocka_unit_test(a_file_has_the_number_of_a_stream),
        cmocka_unit_test(select_looks_as_far_as_the_last_descriptor),
        cmocka_unit_test(a_duplicate_that_cannot_be_made_closes_nothing),
        cmocka_unit_test(a_duplicate_takes_the_number_of_a_socket),
        cmocka_unit_test(a_number_that_is_closed_is_none),
        cmocka_unit_test(an_accepted_socket_has_the_next_number),
        cmocka_unit_test(duplicates_are_one_socket),
        cmocka_unit_test(closing_all_leaves_sockets_usable),
        cmocka_unit_test(numbers_that_were_closed_unseen_are_others),
        cmocka_unit_test(calls_that_cannot_be_fail),
        cmocka_unit_test(ends_and_names_are_those_of_tcp),
        cmocka_unit_test(a_system_call_closes_a_socket),
        cmocka_unit_test(a_connection_that_nobody_uses_yet_is_there),
        cmocka_unit_test(a_vfork_child_closes_for_itself),
        cmocka_unit_test(a_process_made_by_a_system_call_is_one),
        cmocka_unit_test_prestate(a_child_keeps_its_parents_connection, &sharers[0]),
        cmocka_unit_test_prestate(a_child_keeps_its_parents_connection, &sharers[1]),
        cmocka_unit_test(sets_are_in_one_another),
        cmocka_unit_test(a_set_tells_of_a_passed_socket_once),
        cmocka_unit_test(a_program_inherits_a_set),
        cmocka_unit_test(options_of_tcp_bring_a_connection_back),
        cmocka_unit_test(a_socket_is_peeked_at_from_an_offset),
        cmocka_unit_test(a_filter_lets_read_and_write),
        cmocka_unit_test(a_filter_lets_no_process_be_looked_for),
        cmocka_unit_test(a_filter_lets_no_file_be_removed),
        cmocka_unit_test(a_filter_lets_connections_go_on_and_end),
        cmocka_unit_test_prestate(a_child_changes_no_set_of_its_parent, &leaving[0]),
        cmocka_unit_test_prestate(a_child_changes_no_set_of_its_parent, &leaving[1]),
        cmocka_unit_test_prestate(a_thread_closes_its_own_descriptors, &closing_own[0]),
        cmocka_unit_test_prestate(a_thread_closes_its_own_descriptors, &closing_own[1]),
        cmocka_unit_test_prestate(no_bytes_are_missing_in_a_passed_socket, &either[0]),
        cmocka_unit_test_prestate(no_bytes_are_missing_in_a_passed_socket, &either[1]),
        cmocka_unit_test_prestate(no_bytes_are_missing_in_an_inherited_socket, &inheriting[0]),
        cmocka_unit_test_prestate(no_bytes_are_missing_in_an_inherited_socket, &inheriting[1]),
        cmocka_unit_test_prestate(no_bytes_are_missing_in_an_inherited_socket, &inheriting[2]),
        cmocka_unit_test_prestate(no_bytes_are_missing_in_an_inherited_socket, &inheriting[3]),
        cmocka_unit_test(a_program_of_a_descriptor_gets_what_comes),
        cmocka_unit_test_prestate(no_bytes_are_missing_behind_a_change_of_user, &giving_up[0]),
        cmocka_unit_test_prestate(no_bytes_are_missing_behind_a_change_of_user, &giving_up[1]),
        cmocka_unit_test_prestate(no_bytes_are_missing_behind_a_change_of_user, &giving_up[2]),
        cmocka_unit_test_prestate(no_bytes_are_missing_behind_a_change_of_user, &giving_up[3]),
        cmocka_unit_test_prestate(no_bytes_are_missing_behind_a_change_of_user, &giving_up[4]),
        cmocka_unit_test_prestate(no_bytes_are_missing_behind_a_change_of_user, &giving_up[5]),
        cmocka_unit_test_prestate(no_bytes_are_missing_behind_a_change_of_user, &giving_up[6]),
        cmocka_unit_test_prestate(no_bytes_are_missing_behind_a_change_of_user, &giving_up[7]),
        cmocka_unit_test_prestate(no_bytes_are_missing_behind_a_change_of_user, &giving_up[8]),
        cmocka_unit_test_prestate(no_bytes_are_missing_behind_a_change_of_user, &giving_up[9]),
        cmocka_unit_test_prestate(a_connection_of_another_user_is_reset_as_in_tcp, &endings[0]),
        cmocka_unit_test_prestate(a_connection_of_another_user_is_reset_as_in_tcp, &endings[1]),
        cmocka_unit_test_prestate(a_connection_of_another_user_is_reset_as_in_tcp, &endings[2]),
        cmocka_unit_test(a_program_reads_all_of_a_connection_or_nothing),
        cmocka_unit_test(a_set_has_a_socket_exclusively),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
