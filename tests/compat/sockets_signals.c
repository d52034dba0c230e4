/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sockets_signals.c: tests signals and cancellation in libc's calls on TCP sockets. Run alone, it shows that
 * libc does what is asserted here; with libcarry-preload.so, and the argument `memory`, it shows that the
 * same calls do the same.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "../entries.h"
#include "../fails.h"
#include "socket_pairs.h"

/* The signal is pending and blocked before the wait: only a wait that unblocks it as it begins ends. */
static void a_wait_lets_signals_through(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    handle(SIGUSR1, SA_RESTART);
    sigset_t blocked;
    sigset_t before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
    const struct timespec no_time = {.tv_sec = 0};
    struct pollfd entry = {.fd = ends[1], .events = POLLIN};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[1], &set);
    const int epoll = epoll_create(1);
    struct epoll_event event = {.events = EPOLLIN};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event), 0);

    assert_int_equal(raise(SIGUSR1), 0);
    assert_fails(ppoll(&entry, 1, NULL, &before), EINTR);
    assert_int_equal(signals, 1);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_fails(pselect(ends[1] + 1, &set, NULL, NULL, NULL, &before), EINTR);
    assert_int_equal(signals, 2);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_fails(epoll_pwait(epoll, &event, 1, -1, &before), EINTR);
    assert_int_equal(signals, 3);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_fails(ppoll(&entry, 1, &no_time, &before), EINTR);
    assert_int_equal(signals, 4);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(ppoll(&entry, 1, &no_time, NULL), 0);
    assert_int_equal(signals, 4);
    /* A wait that finds something lets none through. */
    assert_int_equal(send(ends[0], "!", 1, 0), 1);
    await(ends[1], POLLIN);
    assert_int_equal(ppoll(&entry, 1, NULL, &before), 1);
    FD_SET(ends[1], &set);
    assert_int_equal(pselect(ends[1] + 1, &set, NULL, NULL, NULL, &before), 1);
    assert_int_equal(epoll_pwait(epoll, &event, 1, -1, &before), 1);
    assert_int_equal(signals, 4);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(signals, 5);
    assert_int_equal(close(epoll), 0);
    close_pair(ends);
}

static void *kept[32];
static volatile sig_atomic_t useless_children;
static volatile int last_useless; /* the status of the last of them; -1: it could not be waited for */

/* Does what is not safe in the handler of any signal, but is where the signal is blocked except in a wait. */
static void allocate_and_fork(int number) {
    (void)number;
    const int error = errno;
    ++signals;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); ++i) {
        free(kept[i]);
        kept[i] = malloc(16 + (size_t)signals * 13 % 600 + i * 8);
    }
    const pid_t child = signals % 8 == 0 ? fork() : -1;
    if (child == 0) {
        _exit(epoll_create1(0) < 0 || socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0);
    }
    int status = 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0)) {
        ++useless_children;
        last_useless = status != 0 ? status : -1;
    }
    errno = error;
}

/* Waits at most briefly, or until a signal comes. */
static int wait_for(int how, int listener, int epoll) {
    struct pollfd entry = {.fd = listener, .events = POLLIN};
    struct epoll_event event;
    struct timeval soon = {.tv_usec = 50};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(listener, &set);
    return how == 0   ? select(listener + 1, &set, NULL, NULL, &soon)
           : how == 1 ? poll(&entry, 1, 1)
           : how == 2 ? epoll_wait(epoll, &event, 1, 1)
                      : accept(listener, NULL, NULL);
}

/* As PostgreSQL 15 does, which restarts its processes in the handler of SIGCHLD: a wait of libc's is one
 * system call, so that a handler that interrupts nothing else may do anything. */
static void a_handler_that_interrupts_a_wait_does_anything(void **state) {
    enum { rounds = 1500, spread_us = 60 };
    (void)state;
    struct sockaddr_in address;
    const int listener = listening(&address);
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event), 0);
    signals = 0;
    struct sigaction action = {.sa_handler = allocate_and_fork};
    sigfillset(&action.sa_mask);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    sigset_t blocked;
    sigset_t before;
    sigfillset(&blocked);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &blocked, &before), 0);
    for (int i = 0; i < 4 * rounds; ++i) {
        const struct itimerval soon = {.it_value = {.tv_usec = 1 + i % spread_us},
                                       .it_interval = {.tv_usec = 500}};
        assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
        assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
        const int found = wait_for(i / rounds, listener, epoll);
        const int error = errno;
        assert_int_equal(pthread_sigmask(SIG_SETMASK, &blocked, NULL), 0);
        assert_true(found == 0 || (found == -1 && error == EINTR));
    }
    assert_int_equal(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    action.sa_handler = SIG_DFL;
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_true(signals > rounds);
    if (useless_children != 0) {
        fail_msg("%d children could not make a descriptor; wait status of the last: 0x%x",
                 (int)useless_children, (unsigned)last_useless);
    }
    assert_int_equal(close(epoll), 0);
    assert_int_equal(close(listener), 0);
}

struct interruption {
    pthread_t thread;
    int fd; /* written to in the end; -1: signals are sent until stopped */
    atomic_bool stopped;
};

static void *interrupt(void *argument) {
    struct interruption *one = argument;
    const int times = one->fd >= 0 ? 20 : wait_ms;
    for (int i = 0; i < times && !one->stopped; ++i) {
        pthread_kill(one->thread, SIGUSR1);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return (void *)(intptr_t)(one->fd >= 0 ? write(one->fd, "!", 1) : 0);
}

static void signals_interrupt_or_restart_a_read(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    char byte = 0;
    pthread_t thread;
    handle(SIGUSR1, SA_RESTART);
    struct interruption one = {.thread = pthread_self(), .fd = ends[0]};
    assert_int_equal(pthread_create(&thread, NULL, interrupt, &one), 0);
    assert_int_equal(read(ends[1], &byte, 1), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(signals > 0);

    handle(SIGUSR1, 0);
    one.fd = -1;
    assert_int_equal(pthread_create(&thread, NULL, interrupt, &one), 0);
    assert_fails(read(ends[1], &byte, 1), EINTR);
    one.stopped = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    close_pair(ends);
}

/* These calls do not restart, even when the handler requests it (SA_RESTART). */
static void signals_interrupt_what_never_restarts(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    const int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event), 0);
    struct pollfd entry = {.fd = ends[1], .events = POLLIN};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[1], &set);
    const struct timeval time = {.tv_sec = wait_ms / 1000};
    assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)), 0);
    char byte = 0;
    pthread_t thread;
    handle(SIGUSR1, SA_RESTART);
    struct interruption one = {.thread = pthread_self(), .fd = -1};
    assert_int_equal(pthread_create(&thread, NULL, interrupt, &one), 0);
    assert_fails(poll(&entry, 1, wait_ms), EINTR);
    assert_fails(select(ends[1] + 1, &set, NULL, NULL, NULL), EINTR);
    assert_fails(epoll_wait(epoll, &event, 1, wait_ms), EINTR);
    assert_fails(recv(ends[1], &byte, 1, 0), EINTR);

    /* A handler without SA_RESTART ends these too; the call returns the bytes that were sent until then. */
    struct sockaddr_in address;
    const int listener = listening(&address);
    static char bytes[8 << 20];
    handle(SIGUSR1, 0);
    assert_fails(accept(listener, NULL, NULL), EINTR);
    const ssize_t sent = send(ends[0], bytes, sizeof(bytes), 0);
    assert_true(sent > 0 && sent < (ssize_t)sizeof(bytes));
    one.stopped = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(recv(ends[1], bytes, (size_t)sent, MSG_WAITALL), sent);
    assert_int_equal(close(listener), 0);
    assert_int_equal(close(epoll), 0);
    close_pair(ends);
}

/* The handler's own sleep has the signals blocked that the handler has, and not those of the wait. */
static int in_handler[2];
static volatile sig_atomic_t depth;
static volatile sig_atomic_t deepest;

static void receive_nothing(int number) {
    const int error = errno;
    deepest = ++depth > deepest ? depth : deepest;
    char byte = 0;
    if (++signals == 1 && raise(number) == 0 && (recv(in_handler[1], &byte, 1, 0) != -1 || errno != EAGAIN)) {
        signals = 100;
    }
    --depth;
    errno = error;
}

static void a_handler_of_a_wait_sleeps_with_its_own_mask(void **state) {
    (void)state;
    int ends[2];
    make_pair(ends);
    make_pair(in_handler);
    const struct timeval soon = {.tv_usec = 50000};
    assert_int_equal(setsockopt(in_handler[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)), 0);
    signals = 0;
    const struct sigaction action = {.sa_handler = receive_nothing};
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    sigset_t blocked;
    sigset_t before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    struct pollfd entry = {.fd = ends[1], .events = POLLIN};
    assert_fails(ppoll(&entry, 1, NULL, &before), EINTR);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(signals, 2);
    assert_int_equal(deepest, 1);
    close_pair(in_handler);
    close_pair(ends);
}

/* The thread accepts when the signal has come. */
static void *accept_late(void *argument) {
    while (signals == 0) {
        sched_yield();
    }
    return (void *)(intptr_t)accept(*(int *)argument, NULL, NULL);
}

static void a_connect_goes_on_after_a_signal(void **state) {
    (void)state;
    handle(SIGUSR1, SA_RESTART); /* one that does not ask for that would be enough to end the call */
    for (int i = 0; i < 3; ++i) {
        struct sockaddr_in address;
        int listener = listening(&address);
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        handle(SIGALRM, SA_RESTART);
        sigset_t blocked;
        sigset_t before;
        sigfillset(&blocked);
        pthread_t thread;
        assert_int_equal(pthread_sigmask(SIG_SETMASK, &blocked, &before), 0);
        assert_int_equal(pthread_create(&thread, NULL, accept_late, &listener), 0);
        assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
        const struct itimerval soon = {.it_value = {.tv_usec = 2000}};
        assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
        assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
        void *accepted = NULL;
        assert_int_equal(pthread_join(thread, &accepted), 0);
        assert_int_equal(signals, 1);
        assert_int_equal(send(fd, "!", 1, 0), 1);
        char byte = 0;
        assert_int_equal(recv((int)(intptr_t)accepted, &byte, 1, 0), 1);
        close_pair((int[]){fd, (int)(intptr_t)accepted});
        assert_int_equal(close(listener), 0);
    }
}

/* A server that is no rsocket, because system calls make it, has no room for another client. */
static void a_signal_ends_a_connect_over_tcp(void **state) {
    enum { most_clients = 64 };
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    const int listener = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(syscall(SYS_bind, listener, &address, size), 0);
    assert_int_equal(syscall(SYS_listen, listener, 0), 0);
    assert_int_equal(syscall(SYS_getsockname, listener, &address, &size), 0);
    int clients[most_clients];
    struct pollfd entry = {.events = POLLOUT, .revents = POLLOUT};
    int count = 0;
    while (count < most_clients && entry.revents != 0) {
        entry.fd = clients[count++] = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        entry.revents = 0;
        (void)syscall(SYS_connect, entry.fd, &address, size);
        assert_true(poll(&entry, 1, 100) >= 0);
    }
    assert_int_equal(entry.revents, 0);
    handle(SIGALRM, 0);
    const struct itimerval soon = {.it_value = {.tv_usec = 20000}, .it_interval = {.tv_usec = 20000}};
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_fails(connect(fd, (const struct sockaddr *)&address, size), EINTR);
    assert_int_equal(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), 0);
    assert_int_equal(close(fd), 0);
    while (count > 0) {
        assert_int_equal(close(clients[--count]), 0);
    }
    assert_int_equal(close(listener), 0);
}

/* A thread that is its own peer does not accept before its connect returns, however often a signal comes. */
static void a_connect_to_oneself_ends_in_spite_of_signals(void **state) {
    (void)state;
    struct sockaddr_in address;
    const int listener = listening(&address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    handle(SIGUSR1, SA_RESTART);
    handle(SIGALRM, SA_RESTART);
    const struct itimerval often = {.it_value = {.tv_usec = 1000}, .it_interval = {.tv_usec = 1000}};
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), 0);
    const int accepted = accept(listener, NULL, NULL);
    char byte = 0;
    assert_int_equal(send(fd, "!", 1, 0), 1);
    assert_int_equal(recv(accepted, &byte, 1, 0), 1);
    close_pair((int[]){fd, accepted});
    assert_int_equal(close(listener), 0);
}

static void *wait_without_end(void *argument) {
    struct pollfd entry = {.fd = *(int *)argument, .events = POLLIN};
    for (;;) {
        (void)poll(&entry, 1, -1);
    }
    return NULL;
}

/* Also in the first call of a thread, and while there is always something. The threads leave nothing behind.
 */
static void a_wait_is_cancelled(void **state) {
    enum { rounds = 200 };
    (void)state;
    int ends[2];
    make_pair(ends);
    int descriptors = 0;
    for (int i = 0; i < rounds; ++i) {
        if (i == 1) {
            descriptors = entries_of("/proc/self/fd");
        }
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wait_without_end, &ends[1]), 0);
        if (i == rounds / 2) {
            assert_int_equal(send(ends[0], "!", 1, 0), 1);
        }
        const struct timespec soon = {.tv_nsec = i * 7919 % 400000};
        assert_int_equal(clock_nanosleep(CLOCK_MONOTONIC, 0, &soon, NULL), 0);
        assert_int_equal(pthread_cancel(thread), 0);
        void *result = NULL;
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, PTHREAD_CANCELED);
    }
    assert_in_range(entries_of("/proc/self/fd"), 0, descriptors);
    char byte = 0;
    assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
    close_pair(ends);
}

struct calls {
    int ends[2];
    int epoll;
    pid_t child;
    int failed;
};

/* None of them may end the thread, whose cancellation is pending. */
static void *make_calls(void *argument) {
    struct calls *const calls = argument;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int value = 0;
    socklen_t length = sizeof(value);
    (void)pthread_cancel(pthread_self());
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    calls->failed += bind(listener, (const struct sockaddr *)&address, size) != 0;
    calls->failed += listen(listener, 8) != 0;
    for (int i = 0; i < 2; ++i) {
        struct epoll_event event = {.events = EPOLLIN};
        calls->failed += epoll_ctl(calls->epoll, EPOLL_CTL_ADD, calls->ends[i], &event) != 0;
        calls->failed += getsockopt(calls->ends[i], SOL_SOCKET, SO_ERROR, &value, &length) != 0;
        calls->failed += getpeername(calls->ends[i], (struct sockaddr *)&address, &size) != 0;
        calls->failed += ioctl(calls->ends[i], FIONREAD, &value) != 0;
        calls->failed += shutdown(calls->ends[i], SHUT_WR) != 0;
    }
    calls->failed += dup2(calls->ends[0], listener) != listener;
    calls->child = fork();
    if (calls->child == 0) {
        _exit(0);
    }
    pthread_testcancel();
    return NULL;
}

static void other_calls_cancel_nothing(void **state) {
    (void)state;
    struct calls calls = {.epoll = epoll_create1(0)};
    make_pair(calls.ends);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, make_calls, &calls), 0);
    void *result = NULL;
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_int_equal(calls.failed, 0);
    int status = -1;
    assert_int_equal(waitpid(calls.child, &status, 0), calls.child);
    assert_int_equal(status, 0);
    assert_int_equal(close(calls.epoll), 0);
    close_pair(calls.ends);
}

struct busy {
    int ends[2];
    atomic_int calls;
};

static void *call_without_end(void *argument) {
    struct busy *const busy = argument;
    int before = 0;
    (void)pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    for (;;) {
        struct sockaddr_in address;
        socklen_t size = sizeof(address);
        int value = 0;
        socklen_t length = sizeof(value);
        char byte = 0;
        struct pollfd entry = {.fd = busy->ends[1], .events = POLLIN};
        (void)getsockopt(busy->ends[0], SOL_SOCKET, SO_ERROR, &value, &length);
        (void)getsockname(busy->ends[0], (struct sockaddr *)&address, &size);
        (void)ioctl(busy->ends[1], FIONREAD, &value);
        (void)fcntl(busy->ends[1], F_GETFL);
        (void)recv(busy->ends[1], &byte, 1, MSG_DONTWAIT);
        (void)poll(&entry, 1, 0);
        (void)syscall(SYS_getppid);
        atomic_fetch_add(&busy->calls, 1);
    }
    return NULL;
}

/* At any instruction of a call. The process goes on, and so do the sockets. */
static void a_thread_is_cancelled_asynchronously(void **state) {
    enum { rounds = 300 };
    (void)state;
    struct busy busy = {.calls = 0};
    make_pair(busy.ends);
    for (int i = 0; i < rounds; ++i) {
        pthread_t thread;
        atomic_store(&busy.calls, 0);
        assert_int_equal(pthread_create(&thread, NULL, call_without_end, &busy), 0);
        while (atomic_load(&busy.calls) <= i % 8) {
            sched_yield();
        }
        assert_int_equal(pthread_cancel(thread), 0);
        void *result = NULL;
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, PTHREAD_CANCELED);
    }
    char byte = 0;
    assert_int_equal(send(busy.ends[0], "!", 1, 0), 1);
    assert_int_equal(recv(busy.ends[1], &byte, 1, 0), 1);
    close_pair(busy.ends);
}

/* sigaction(2) and its relatives tell of the handlers that the program has set, with their flags. */
static void handlers_are_those_of_the_program(void **state) {
    (void)state;
    struct sigaction before;
    handle(SIGUSR2, SA_RESTART | SA_NODEFER);
    assert_int_equal(sigaction(SIGUSR2, NULL, &before), 0);
    assert_ptr_equal(before.sa_handler, count_signal);
    assert_int_equal(before.sa_flags & (SA_RESTART | SA_NODEFER | SA_SIGINFO), SA_RESTART | SA_NODEFER);
    assert_ptr_equal(signal(SIGUSR2, SIG_IGN), count_signal);
    assert_ptr_equal(signal(SIGUSR2, count_signal), SIG_IGN);
    assert_int_equal(raise(SIGUSR2), 0);
    assert_int_equal(signals, 1);
    assert_ptr_equal(signal(SIGUSR2, SIG_DFL), count_signal);

    handle(SIGUSR2, (int)SA_RESETHAND);
    assert_int_equal(sigaction(SIGUSR2, NULL, &before), 0);
    assert_true((before.sa_flags & (int)SA_RESETHAND) != 0);
    assert_int_equal(raise(SIGUSR2), 0);
    assert_int_equal(signals, 1);
    assert_int_equal(sigaction(SIGUSR2, NULL, &before), 0);
    assert_ptr_equal(before.sa_handler, SIG_DFL);

    assert_fails(sigaction(SIGKILL, &before, NULL), EINVAL);
    assert_fails(sigaction(100, NULL, &before), EINVAL);
}

static int interrupted_end;
static atomic_int sent_by_handler;
static atomic_int sum_of_values;

static void send_in_handler(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    const int error = errno;
    if (send(interrupted_end, "h", 1, MSG_DONTWAIT) == 1) {
        atomic_fetch_add(&sent_by_handler, 1);
    }
    atomic_fetch_add(&sum_of_values, info->si_value.sival_int);
    errno = error;
}

struct counted {
    int fd;
    int letters[2]; /* of the handler, and of the thread */
};

static void *count_letters(void *argument) {
    struct counted *counted = argument;
    char bytes[512];
    ssize_t got = 0;
    while ((got = recv(counted->fd, bytes, sizeof(bytes), 0)) > 0) {
        for (ssize_t i = 0; i < got; ++i) {
            ++counted->letters[bytes[i] == 'h' ? 0 : 1];
        }
    }
    return NULL;
}

struct queued {
    pid_t process;
    int count;
};

static void *queue_signals(void *argument) {
    const struct queued *queued = argument;
    for (int i = 1; i <= queued->count; ++i) {
        while (sigqueue(queued->process, SIGRTMIN, (union sigval){.sival_int = i}) != 0) {
            sched_yield(); /* the queue is full */
        }
    }
    return NULL;
}

/* At any instruction of a call the handler makes the same call. Each signal comes, with its value. */
static void a_handler_uses_the_socket_that_it_interrupts(void **state) {
    enum { messages = 100000, values = 20000 };
    (void)state;
    int ends[2];
    make_pair(ends);
    interrupted_end = ends[0];
    const struct sigaction action = {.sa_sigaction = send_in_handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t blocked;
    sigset_t before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN);
    assert_int_equal(sigaction(SIGRTMIN, &action, NULL), 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
    struct counted counted = {.fd = ends[1]};
    struct queued queued = {.process = getpid(), .count = values};
    pthread_t reader;
    pthread_t sender;
    assert_int_equal(pthread_create(&reader, NULL, count_letters, &counted), 0);
    assert_int_equal(pthread_create(&sender, NULL, queue_signals, &queued), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    for (int i = 0; i < messages; ++i) {
        assert_int_equal(send(ends[0], "m", 1, 0), 1);
    }
    assert_int_equal(pthread_join(sender, NULL), 0);
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    assert_int_equal(pthread_join(reader, NULL), 0);
    assert_int_equal(atomic_load(&sum_of_values), values * (values + 1) / 2);
    assert_int_equal(counted.letters[0], atomic_load(&sent_by_handler));
    assert_int_equal(counted.letters[1], messages);
    close_pair(ends);
}

/* A thread allocates and frees memory until it is told to end. */
static atomic_bool ends_allocating;
static void *allocate_all_the_time(void *argument) {
    enum { pieces = 64 };
    void *all[pieces] = {NULL};
    unsigned seed = 1;
    (void)argument;
    while (!ends_allocating) {
        const int one = rand_r(&seed) % pieces;
        free(all[one]);
        all[one] = malloc(2000 + (size_t)rand_r(&seed) % 60000);
    }
    for (int i = 0; i < pieces; ++i) {
        free(all[i]);
    }
    return NULL;
}

static void end_allocating(pthread_t thread) {
    ends_allocating = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    ends_allocating = false;
}

/* These calls are safe in a handler, whatever it has interrupted. */
enum { of_handler = 40, hangs_after_s = 20 };
static int pairs_of_handler[of_handler][2];
static int set_of_handler;
static atomic_int used_by_handler;

static void use_a_pair(int number) {
    const int error = errno;
    const int one = used_by_handler;
    (void)number;
    if (one < of_handler) {
        const int *const ends = pairs_of_handler[one];
        struct epoll_event event = {.events = EPOLLIN};
        char byte = 'h';
        (void)!(epoll_ctl(set_of_handler, EPOLL_CTL_ADD, ends[1], &event) +
                epoll_ctl(set_of_handler, EPOLL_CTL_DEL, ends[1], NULL));
        (void)!(send(ends[0], &byte, 1, 0) + recv(ends[1], &byte, 1, 0));
        (void)!(dup2(STDERR_FILENO, ends[0]) + close(ends[0]) + close(ends[1]));
        used_by_handler = one + 1;
    }
    errno = error;
}

static void a_handler_that_interrupts_malloc_uses_sockets(void **state) {
    (void)state;
    pthread_t thread;
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(hangs_after_s);
    set_of_handler = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < of_handler; ++i) {
        struct epoll_event event = {.events = EPOLLIN};
        make_pair(pairs_of_handler[i]);
        assert_int_equal(epoll_ctl(set_of_handler, EPOLL_CTL_ADD, pairs_of_handler[i][0], &event), 0);
    }
    const struct sigaction action = {.sa_handler = use_a_pair, .sa_flags = SA_RESTART};
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, allocate_all_the_time, NULL), 0);
    for (int one = 0; one < of_handler; ++one) {
        assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
        while (used_by_handler == one) {
            sched_yield();
        }
    }
    end_allocating(thread);
    assert_int_equal(close(set_of_handler), 0);
    (void)alarm(0);
}

/* A system call copies the process, also while its other thread is inside malloc(3). */
static void a_copied_process_closes_its_sockets(void **state) {
    (void)state;
    enum { copies = 20, pairs = 8 };
    int ends[pairs][2];
    pthread_t thread;
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(hangs_after_s);
    const int set = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < pairs; ++i) {
        struct epoll_event event = {.events = EPOLLIN};
        make_pair(ends[i]);
        assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, ends[i][0], &event), 0);
    }
    assert_int_equal(pthread_create(&thread, NULL, allocate_all_the_time, NULL), 0);
    for (int i = 0; i < copies; ++i) {
        const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
        if (child == 0) {
            (void)syscall(SYS_alarm, hangs_after_s / 4);
            int failed = dup2(ends[1][0], ends[0][0]) == ends[0][0] ? 0 : 1;
            for (int one = 0; one < pairs; ++one) {
                failed += close(ends[one][0]) != 0 || close(ends[one][1]) != 0 ? 1 : 0;
            }
            syscall(SYS_exit_group, failed);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    end_allocating(thread);
    for (int i = 0; i < pairs; ++i) {
        close_pair(ends[i]);
    }
    assert_int_equal(close(set), 0);
    (void)alarm(0);
}

static int used_in_handler[2];

static void use_in_handler(int signal) {
    (void)signal;
    const int error = errno;
    char byte = '!';
    (void)close(socket(AF_INET, SOCK_STREAM, 0));
    (void)send(used_in_handler[0], &byte, 1, MSG_DONTWAIT);
    (void)recv(used_in_handler[1], &byte, 1, MSG_DONTWAIT);
    errno = error;
}

/* The kernel runs the handlers of pending signals before it forks. */
static void a_handler_that_interrupts_a_fork_uses_sockets(void **state) {
    (void)state;
    enum { forks = 300 };
    const struct itimerval often = {.it_value.tv_usec = 200, .it_interval.tv_usec = 200};
    struct sigaction before;
    make_pair(used_in_handler);
    assert_int_equal(
        sigaction(SIGALRM, &(struct sigaction){.sa_handler = use_in_handler, .sa_flags = SA_RESTART},
                  &before),
        0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (int i = 0; i < forks; ++i) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            _exit(0);
        }
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    assert_int_equal(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    close_pair(used_in_handler);
}

int main(int count, char **words) {
    in_the_memory = count > 1 && strcmp(words[1], "memory") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_lets_signals_through),
        cmocka_unit_test(a_handler_that_interrupts_a_wait_does_anything),
        cmocka_unit_test(signals_interrupt_or_restart_a_read),
        cmocka_unit_test(signals_interrupt_what_never_restarts),
        cmocka_unit_test(a_handler_of_a_wait_sleeps_with_its_own_mask),
        cmocka_unit_test(a_connect_goes_on_after_a_signal),
        cmocka_unit_test(a_signal_ends_a_connect_over_tcp),
        cmocka_unit_test(a_connect_to_oneself_ends_in_spite_of_signals),
        cmocka_unit_test(a_wait_is_cancelled),
        cmocka_unit_test(other_calls_cancel_nothing),
        cmocka_unit_test(a_thread_is_cancelled_asynchronously),
        cmocka_unit_test(handlers_are_those_of_the_program),
        cmocka_unit_test(a_handler_uses_the_socket_that_it_interrupts),
        cmocka_unit_test(a_handler_that_interrupts_malloc_uses_sockets),
        cmocka_unit_test(a_copied_process_closes_its_sockets),
        cmocka_unit_test(a_handler_that_interrupts_a_fork_uses_sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
