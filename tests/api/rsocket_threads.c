/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket: tests streams that several threads use, begun in any of them, and a process that forks. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rpma/rsocket.h>

#include "test.h"

/* This comes last, because it asserts. */
#include "rsockets.h"

enum { PAIRS = 4, ROUNDS = 500, BYTES = 4 << 20 };

struct job {
    int fd;
    int failed;
};

static void start(pthread_t *thread, void *(*run)(void *), void *argument) {
    assert_int_equal(pthread_create(thread, NULL, run, argument), 0);
}

static void join(pthread_t thread) {
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *asks(void *argument) {
    struct job *const job = argument;
    for (uint32_t i = 0; i < ROUNDS && !job->failed; ++i) {
        uint32_t answer = 0;
        job->failed = rsend(job->fd, &i, sizeof(i), 0) != sizeof(i) ||
                      rrecv(job->fd, &answer, sizeof(answer), MSG_WAITALL) != sizeof(answer) || answer != ~i;
    }
    return NULL;
}

static void *answers(void *argument) {
    struct job *const job = argument;
    for (uint32_t i = 0; i < ROUNDS && !job->failed; ++i) {
        uint32_t question = 0;
        job->failed =
            rrecv(job->fd, &question, sizeof(question), MSG_WAITALL) != sizeof(question) || question != i;
        question = ~question;
        job->failed |= rsend(job->fd, &question, sizeof(question), 0) != sizeof(question);
    }
    return NULL;
}

/* This thread began all streams and then sleeps. One of the threads that use them serves the others. */
static void threads_on_the_streams_of_another(void **state) {
    (void)state;
    int fds[PAIRS][2];
    struct job jobs[PAIRS][2] = {0};
    pthread_t threads[PAIRS][2];
    for (int i = 0; i < PAIRS; ++i) {
        make_pair(fds[i]);
    }
    for (int i = 0; i < PAIRS; ++i) {
        jobs[i][0].fd = fds[i][0];
        jobs[i][1].fd = fds[i][1];
        start(&threads[i][0], asks, &jobs[i][0]);
        start(&threads[i][1], answers, &jobs[i][1]);
    }
    for (int i = 0; i < PAIRS; ++i) {
        for (int end = 0; end < 2; ++end) {
            join(threads[i][end]);
            assert_false(jobs[i][end].failed);
            assert_int_equal(rclose(fds[i][end]), 0);
        }
    }
}

/* Returns the value of byte number i. */
static unsigned char at(size_t i) {
    return (unsigned char)(i * 7 + (i >> 8) + (i >> 16));
}

static void *writes(void *argument) {
    struct job *const job = argument;
    unsigned char *const bytes = malloc(BYTES);
    for (size_t i = 0; i < BYTES; ++i) {
        bytes[i] = at(i);
    }
    job->failed = rsend(job->fd, bytes, BYTES, 0) != BYTES;
    free(bytes);
    return NULL;
}

static void *reads(void *argument) {
    struct job *const job = argument;
    unsigned char bytes[10000];
    for (size_t received = 0; received < BYTES && !job->failed;) {
        const ssize_t got = rrecv(job->fd, bytes, sizeof(bytes), 0);
        job->failed = got <= 0;
        for (ssize_t i = 0; i < got; ++i) {
            job->failed |= bytes[i] != at(received + (size_t)i);
        }
        received += got > 0 ? (size_t)got : 0;
    }
    return NULL;
}

static void a_reader_and_a_writer_at_each_end(void **state) {
    (void)state;
    int fds[2];
    struct job jobs[2][2] = {0};
    pthread_t threads[2][2];
    make_pair(fds);
    for (int end = 0; end < 2; ++end) {
        jobs[end][0].fd = jobs[end][1].fd = fds[end];
        start(&threads[end][0], writes, &jobs[end][0]);
        start(&threads[end][1], reads, &jobs[end][1]);
    }
    for (int end = 0; end < 2; ++end) {
        for (int i = 0; i < 2; ++i) {
            join(threads[end][i]);
            assert_false(jobs[end][i].failed);
        }
    }
    assert_int_equal(rclose(fds[0]), 0);
    assert_int_equal(rclose(fds[1]), 0);
}

static void *makes_a_pair(void *fds) {
    make_pair(fds);
    return NULL;
}

static void *sends_to_each(void *argument) {
    int(*const fds)[2] = argument;
    for (int i = 0; i < PAIRS; ++i) {
        char byte = (char)i;
        /* The stream before this one has been answered, so the thread that
         * polls sleeps again, or is about to. */
        if (rsend(fds[i][0], &byte, 1, 0) != 1 || rrecv(fds[i][0], &byte, 1, 0) != 1) {
            return "failed";
        }
    }
    return NULL;
}

/* The threads that began the streams have ended. */
static void one_thread_waits_for_the_streams_of_many(void **state) {
    (void)state;
    int fds[PAIRS][2];
    struct pollfd entries[PAIRS];
    pthread_t thread;
    for (int i = 0; i < PAIRS; ++i) {
        start(&thread, makes_a_pair, fds[i]);
        join(thread);
        entries[i] = (struct pollfd){.fd = fds[i][1], .events = POLLIN};
    }
    start(&thread, sends_to_each, fds);
    for (int i = 0; i < PAIRS; ++i) {
        char byte = -1;
        assert_int_equal(rpoll(entries, PAIRS, -1), 1);
        assert_int_equal(entries[i].revents, POLLIN);
        assert_int_equal(rrecv(fds[i][1], &byte, 1, 0), 1);
        assert_int_equal(byte, i);
        assert_int_equal(rsend(fds[i][1], &byte, 1, 0), 1);
    }
    void *result = NULL;
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    for (int i = 0; i < PAIRS; ++i) {
        assert_int_equal(rclose(fds[i][0]), 0);
        assert_int_equal(rclose(fds[i][1]), 0);
    }
}

static void *reads_one(void *argument) {
    struct job *const job = argument;
    char byte;
    job->failed = rrecv(job->fd, &byte, 1, 0) != 1;
    return NULL;
}

/* The first thread sleeps for all of them. When it leaves, another has to take its place. */
static void a_thread_that_leaves_is_replaced(void **state) {
    (void)state;
    int fds[PAIRS][2];
    struct job jobs[PAIRS] = {0};
    pthread_t threads[PAIRS];
    for (int i = 0; i < PAIRS; ++i) {
        make_pair(fds[i]);
        jobs[i].fd = fds[i][1];
        start(&threads[i], reads_one, &jobs[i]);
    }
    for (int i = 0; i < PAIRS; ++i) {
        assert_int_equal(rsend(fds[i][0], "x", 1, 0), 1);
        join(threads[i]);
        assert_false(jobs[i].failed);
    }
    for (int i = 0; i < PAIRS; ++i) {
        assert_int_equal(rclose(fds[i][0]), 0);
        assert_int_equal(rclose(fds[i][1]), 0);
    }
}

/* Exits with 0 when all checks succeed. */
static void be_a_child(const int fds[2]) {
    char byte = 0;
    struct pollfd entry = {.fd = fds[1], .events = POLLIN};
    int failures = 0;
    failures += !(rsend(fds[0], "x", 1, 0) == -1 && errno == ECONNRESET);
    failures += !(rrecv(fds[1], &byte, 1, 0) == -1 && errno == ECONNRESET);
    failures += !(rpoll(&entry, 1, -1) == 1 && (entry.revents & POLLERR) != 0);
    failures += !(rshutdown(fds[1], SHUT_RDWR) == -1 && errno == ECONNRESET);
    failures += !(rclose(fds[0]) == 0 && rclose(fds[1]) == 0);
    _exit(failures);
}

static void a_child_has_lost_its_parents_streams(void **state) {
    (void)state;
    int fds[2];
    int status = -1;
    char byte = 0;
    make_pair(fds);
    const pid_t child = fork();
    if (child == 0) {
        be_a_child(fds);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(rsend(fds[0], "y", 1, 0), 1);
    assert_int_equal(rrecv(fds[1], &byte, 1, 0), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(rclose(fds[0]), 0);
    assert_int_equal(rclose(fds[1]), 0);
}

struct acceptor {
    int listener;
    atomic_int thread; /* the thread's number, when it is about to wait */
    int error;
};

static void *accepts(void *argument) {
    struct acceptor *const acceptor = argument;
    atomic_store(&acceptor->thread, gettid());
    errno = 0;
    acceptor->error = raccept(acceptor->listener, NULL, NULL) == -1 ? errno : 0;
    return NULL;
}

/* The thread has also accepted a client that is silent. */
static void a_listener_that_is_closed_ends_raccept(void **state) {
    (void)state;
    struct acceptor acceptor = {0};
    uint16_t port = 0;
    pthread_t thread;
    acceptor.listener = listening_rsocket(&port);
    const struct sockaddr_in address = loopback_at(port);
    const int silent = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(silent, (const struct sockaddr *)&address, sizeof(address)), 0);
    const int accepted = raccept(acceptor.listener, NULL, NULL);
    assert_true(accepted >= 0);
    start(&thread, accepts, &acceptor);
    await_sleep(&acceptor.thread);
    assert_int_equal(rclose(acceptor.listener), 0);
    join(thread);
    assert_int_equal(acceptor.error, EBADF);
    assert_int_equal(rclose(accepted), 0);
    close(silent);
}

struct client {
    uint16_t port;
    int fd;
    int failed;
};

static void *connects(void *argument) {
    struct client *const client = argument;
    const struct sockaddr_in address = loopback_at(client->port);
    const int result = rconnect(client->fd, (const struct sockaddr *)&address, sizeof(address));
    client->failed = (result != 0 && errno != ECONNRESET && errno != ECONNREFUSED) || rclose(client->fd) != 0;
    return NULL;
}

/* The answer and the end may come to the client together. */
static void a_peer_that_closes_at_once_ends_rconnect(void **state) {
    (void)state;
    struct client client = {0};
    const int listener = listening_rsocket(&client.port);
    for (int i = 0; i < 50; ++i) {
        pthread_t thread;
        client.fd = rsocket(AF_INET, SOCK_STREAM, 0);
        start(&thread, connects, &client);
        const int accepted = raccept(listener, NULL, NULL);
        assert_true(accepted >= 0);
        assert_int_equal(rclose(accepted), 0);
        join(thread);
        assert_false(client.failed);
    }
    assert_int_equal(rclose(listener), 0);
}

/* A thread waits for another rsocket in one of these calls. */
enum wait { in_rrecv, in_rpoll, in_repoll_wait, in_raccept, waits };

struct newcomer {
    uint16_t port;
    int result; /* the result of rconnect */
    int fd;
    /* When the connection is made, a byte goes to this rsocket. When port_to_tell is not 0, a
     * connection of TCP goes to that port instead. */
    int to_tell;
    uint16_t port_to_tell;
};

static void *connects_and_tells(void *argument) {
    struct newcomer *const one = argument;
    const struct sockaddr_in address = loopback_at(one->port);
    const struct sockaddr_in other = loopback_at(one->port_to_tell);
    one->result = rconnect(one->fd, (const struct sockaddr *)&address, sizeof(address));
    if (one->port_to_tell == 0) {
        (void)rsend(one->to_tell, "x", 1, 0);
        return NULL;
    }
    const int teller = socket(AF_INET, SOCK_STREAM, 0);
    (void)connect(teller, (const struct sockaddr *)&other, sizeof(other));
    close(teller);
    return NULL;
}

static void wait_in(enum wait kind, int fd) {
    char byte = 0;
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN};
    const int set = kind == in_repoll_wait ? repoll_create(0) : -1;
    switch (kind) {
        case in_rpoll:
            assert_int_equal(rpoll(&entry, 1, 30000), 1);
            break;
        case in_repoll_wait:
            assert_int_equal(repoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
            assert_int_equal(repoll_wait(set, &event, 1, 30000), 1);
            assert_int_equal(rclose(set), 0);
            break;
        case in_raccept:
            fd = raccept(fd, NULL, NULL);
            assert_true(fd >= 0);
            assert_int_equal(rclose(fd), 0);
            return;
        default:
            break;
    }
    assert_int_equal(rrecv(fd, &byte, 1, 0), 1);
}

/* qperf closes its listener when it has accepted, and hears from the client on another connection that this
 * one is there. */
static void a_client_is_answered_while_the_thread_that_accepted_it_waits(void **state) {
    (void)state;
    for (int i = in_rrecv; i < waits; ++i) {
        const enum wait kind = (enum wait)i;
        int other[2];
        pthread_t thread;
        struct newcomer newcomer = {.result = -1};
        const int listener = listening_rsocket(&newcomer.port);
        const int other_listener = kind == in_raccept ? listening_rsocket(&newcomer.port_to_tell) : -1;
        make_pair(other);
        newcomer.to_tell = other[0];
        newcomer.fd = rsocket(AF_INET, SOCK_STREAM, 0);
        start(&thread, connects_and_tells, &newcomer);
        const int accepted = raccept(listener, NULL, NULL);
        assert_true(accepted >= 0);
        assert_int_equal(rclose(listener), 0);
        wait_in(kind, kind == in_raccept ? other_listener : other[1]);
        join(thread);
        assert_int_equal(newcomer.result, 0);
        assert_int_equal(rclose(newcomer.fd), 0);
        assert_int_equal(rclose(accepted), 0);
        if (other_listener >= 0) {
            assert_int_equal(rclose(other_listener), 0);
        }
        assert_int_equal(rclose(other[0]), 0);
        assert_int_equal(rclose(other[1]), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_on_the_streams_of_another),
        cmocka_unit_test(a_reader_and_a_writer_at_each_end),
        cmocka_unit_test(one_thread_waits_for_the_streams_of_many),
        cmocka_unit_test(a_thread_that_leaves_is_replaced),
        cmocka_unit_test(a_child_has_lost_its_parents_streams),
        cmocka_unit_test(a_listener_that_is_closed_ends_raccept),
        cmocka_unit_test(a_peer_that_closes_at_once_ends_rconnect),
        cmocka_unit_test(a_client_is_answered_while_the_thread_that_accepted_it_waits),
    };
    return cmocka_run_group_tests_name("rsocket_threads", tests, NULL, NULL);
}
