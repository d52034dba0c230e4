/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket: tests calls from the handler of a signal that has interrupted a call of the same thread. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <rpma/rsocket.h>

#include "test.h"

/* This comes last, because it asserts. */
#include "rsockets.h"

enum { INTERRUPTIONS = 50, AT_ONCE = 10, SPREAD_US = 100 };

static const int give_up_s = 30;

/* The interrupted thread sends requests, and its handler sends farewells. */
static const char request[] = "a request that is sent whole";
static const char farewell[] = "a farewell, of another length, that is sent whole too";

static int ends[2] = {-1, -1};
static volatile sig_atomic_t refused;
static volatile sig_atomic_t farewells;
static volatile sig_atomic_t unexpected;
static void (*volatile handle)(void);

static void on_signal(int signal) {
    const int before = errno;
    (void)signal;
    handle();
    errno = before;
}

static void say_farewell(void) {
    const ssize_t sent = rsend(ends[0], farewell, sizeof(farewell), 0);
    if (sent == sizeof(farewell)) {
        ++farewells;
    } else if (sent == -1 && errno == EDEADLK) {
        ++refused;
    } else {
        ++unexpected;
    }
}

/* Makes the other calls, which all have to wait for the interrupted call too. */
static void call_all(void) {
    char byte = 0;
    struct pollfd entry = {.fd = ends[0], .events = POLLIN};
    if (rsocket(AF_UNIX, SOCK_STREAM, 0) != -1 || errno != EDEADLK) {
        return; /* nothing was interrupted */
    }
    ++refused;
    unexpected += !(rpoll(&entry, 1, 0) == -1 && errno == EDEADLK);
    unexpected += !(rrecv(ends[0], &byte, 1, 0) == -1 && errno == EDEADLK);
    unexpected += !(rshutdown(ends[0], SHUT_RDWR) == -1 && errno == EDEADLK);
    unexpected += !(rsocket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EDEADLK);
    unexpected += !(repoll_create(0) == -1 && errno == EDEADLK);
    unexpected += !(rclose(ends[0]) == -1 && errno == EDEADLK);
}

static void handle_signal(int signal, void (*what)(void)) {
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    refused = farewells = unexpected = 0;
    handle = what;
    assert_int_equal(sigaction(signal, &action, NULL), 0);
}

/* One signal comes soon, at another moment of the calls each time. */
static void interrupt_soon(void) {
    static int times = 0;
    const struct itimerval soon = {.it_value = {.tv_usec = 1 + times++ % SPREAD_US}};
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
}

static void end_interruptions(void) {
    const struct itimerval never = {0};
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
}

struct texts {
    char bytes[8192];
    size_t kept;
    int requests;
    int goodbyes;
};

/* Receives until this many texts have come. Only whole texts come. */
static void receive_texts(struct texts *texts, int fd, int requests, int goodbyes) {
    while (texts->requests < requests || texts->goodbyes < goodbyes) {
        const ssize_t got = rrecv(fd, texts->bytes + texts->kept, sizeof(texts->bytes) - texts->kept, 0);
        if (got < 0) {
            assert_int_equal(errno, EINTR);
            continue;
        }
        assert_true(got > 0);
        texts->kept += (size_t)got;
        for (;;) {
            const int is_request =
                texts->kept < sizeof(request) || memcmp(texts->bytes, request, sizeof(request)) == 0;
            const char *const text = is_request ? request : farewell;
            const size_t size = is_request ? sizeof(request) : sizeof(farewell);
            if (texts->kept < size) {
                break;
            }
            assert_memory_equal(texts->bytes, text, size);
            *(is_request ? &texts->requests : &texts->goodbyes) += 1;
            texts->kept -= size;
            memmove(texts->bytes, texts->bytes + size, texts->kept);
        }
    }
}

/* This thread has both ends, so the handler finds locks of either taken. */
static void a_handler_sends_whole_or_not_at_all(void **state) {
    (void)state;
    int sent = 0;
    struct texts texts = {.kept = 0};
    const double deadline = seconds() + give_up_s;
    make_pair(ends);
    handle_signal(SIGALRM, say_farewell);
    while (refused < INTERRUPTIONS && seconds() < deadline) {
        assert_int_equal(raise(SIGALRM), 0); /* this signal interrupts no call */
        interrupt_soon();
        for (int i = 0; i < AT_ONCE; ++i) {
            assert_int_equal(rsend(ends[0], request, sizeof(request), 0), sizeof(request));
            ++sent;
        }
        receive_texts(&texts, ends[1], sent, 0);
    }
    end_interruptions();
    receive_texts(&texts, ends[1], sent, farewells);
    assert_int_equal(unexpected, 0);
    assert_true(refused >= INTERRUPTIONS && farewells > 0);
    assert_int_equal(texts.requests, sent);
    assert_int_equal(texts.goodbyes, farewells);
    assert_int_equal(texts.kept, 0);
    close_pair(ends);
}

static void receive_byte(int fd) {
    char byte = 0;
    ssize_t got = 0;
    do {
        got = rrecv(fd, &byte, 1, 0);
    } while (got < 0 && errno == EINTR);
    assert_int_equal(got, 1);
}

static void every_call_that_would_wait_is_refused(void **state) {
    (void)state;
    char byte = 'x';
    const double deadline = seconds() + give_up_s;
    make_pair(ends);
    handle_signal(SIGALRM, call_all);
    while (refused < INTERRUPTIONS && seconds() < deadline) {
        interrupt_soon();
        assert_int_equal(rsend(ends[0], &byte, 1, 0), 1);
        receive_byte(ends[1]);
    }
    end_interruptions();
    assert_int_equal(unexpected, 0);
    assert_true(refused >= INTERRUPTIONS);
    close_pair(ends);
}

/* Waits for the byte that the handler sends. */
static void *receives_a_byte(void *argument) {
    atomic_int *const thread = argument;
    char byte = 0;
    ssize_t got = 0;
    atomic_store(thread, gettid());
    do {
        got = rrecv(ends[1], &byte, 1, 0);
    } while (got < 0 && errno == EINTR);
    return got == 1 && byte == 'h' ? NULL : "no byte";
}

static void send_a_byte(void) {
    unexpected += rsend(ends[0], "h", 1, 0) != 1;
}

/* No other call has to wait for a thread that sleeps, so a handler may use
 * the rsocket for which the thread sleeps. */
static void a_sleep_stands_in_no_ones_way(void **state) {
    (void)state;
    atomic_int number = 0;
    pthread_t thread;
    void *failed = NULL;
    make_pair(ends);
    handle_signal(SIGUSR1, send_a_byte);
    assert_int_equal(pthread_create(&thread, NULL, receives_a_byte, &number), 0);
    await_sleep(&number);
    assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(unexpected, 0);
    close_pair(ends);
}

/* poll() calls this on the library's way to sleep, where a signal may come too. */
static void (*volatile before_sleep)(void);

__attribute__((visibility("default"))) int poll(struct pollfd *fds, nfds_t count, int timeout) {
    const struct timespec time = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
    void (*const act)(void) = timeout != 0 ? before_sleep : NULL;
    if (act != NULL) {
        before_sleep = NULL;
        act();
    }
    return ppoll(fds, count, timeout < 0 ? NULL : &time, NULL);
}

/* The byte of the other end comes, and the device tells it to the handler. */
static void send_and_look(void) {
    struct pollfd entry = {.fd = ends[1], .events = POLLIN};
    unexpected += rsend(ends[0], "h", 1, 0) != 1;
    unexpected += rpoll(&entry, 1, give_up_s * 1000) != 1;
}

static void interrupt_the_way_to_sleep(void) {
    (void)raise(SIGUSR1);
}

static void a_handler_takes_what_a_sleep_was_to_end_by(void **state) {
    (void)state;
    char byte = 0;
    const struct timeval limit = {.tv_sec = give_up_s};
    make_pair(ends);
    handle_signal(SIGUSR1, send_and_look);
    assert_int_equal(rsetsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    const double begin = seconds(); /* a call looks once more when its time is over */
    before_sleep = interrupt_the_way_to_sleep;
    assert_int_equal(rrecv(ends[1], &byte, 1, 0), 1);
    assert_int_equal(byte, 'h');
    assert_null(before_sleep);
    assert_true(seconds() - begin < give_up_s);
    /* Edge-triggered sets behave the same. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    const int set = repoll_create(0);
    assert_int_equal(repoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event), 0);
    before_sleep = interrupt_the_way_to_sleep;
    assert_int_equal(repoll_wait(set, &event, 1, give_up_s * 1000), 1);
    assert_null(before_sleep);
    assert_true(seconds() - begin < give_up_s);
    assert_int_equal(unexpected, 0);
    assert_int_equal(rclose(set), 0);
    close_pair(ends);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handler_sends_whole_or_not_at_all),
        cmocka_unit_test(every_call_that_would_wait_is_refused),
        cmocka_unit_test(a_sleep_stands_in_no_ones_way),
        cmocka_unit_test(a_handler_takes_what_a_sleep_was_to_end_by),
    };
    return cmocka_run_group_tests_name("rsocket_signals", tests, NULL, NULL);
}
