/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket: tests repoll, with members of every kind, every trigger, several threads, and its cost. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test.h"

/* This comes last, because it asserts. */
#include "rsockets.h"

enum { LONG = 30000, SOON = 50 };

static int epfd = -1;
static int ends[2] = {-1, -1};

static int make_ends(void **state) {
    (void)state;
    make_pair(ends);
    epfd = repoll_create(EPOLL_CLOEXEC);
    assert_true(epfd >= 0);
    return 0;
}

static int close_ends(void **state) {
    (void)state;
    close_pair(ends);
    assert_int_equal(rclose(epfd), 0);
    return 0;
}

static int control(int set, int operation, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    return repoll_ctl(set, operation, fd, &event);
}

static void add(int fd, uint32_t events) {
    assert_int_equal(control(epfd, EPOLL_CTL_ADD, fd, events), 0);
}

static void modify(int fd, uint32_t events) {
    assert_int_equal(control(epfd, EPOLL_CTL_MOD, fd, events), 0);
}

/* Waits for events of one member and returns them, or 0 when none came in time. */
static uint32_t told_by(int set, int fd, int timeout) {
    struct epoll_event events[8];
    const int count = repoll_wait(set, events, 8, timeout);
    assert_in_range(count, 0, 1);
    if (count == 0) {
        return 0;
    }
    assert_int_equal(events[0].data.fd, fd);
    return events[0].events;
}

static uint32_t told(int fd, int timeout) {
    return told_by(epfd, fd, timeout);
}

static void say(const char *bytes) {
    assert_int_equal(rsend(ends[0], bytes, strlen(bytes), 0), (int)strlen(bytes));
}

static void hear(const char *bytes) {
    char got[64];
    assert_int_equal(rrecv(ends[1], got, strlen(bytes), MSG_WAITALL), (int)strlen(bytes));
    assert_memory_equal(got, bytes, strlen(bytes));
}

static void level_trigger_tells_until_all_is_read(void **state) {
    (void)state;
    add(ends[1], EPOLLIN);
    assert_int_equal(told(ends[1], 0), 0);
    say("abcd");
    assert_int_equal(told(ends[1], LONG), EPOLLIN);
    hear("ab");
    assert_int_equal(told(ends[1], LONG), EPOLLIN);
    assert_int_equal(told(ends[1], 0), EPOLLIN);
    hear("cd");
    assert_int_equal(told(ends[1], 0), 0);
    assert_int_equal(told(ends[1], SOON), 0);
    modify(ends[1], EPOLLIN | EPOLLOUT);
    assert_int_equal(told(ends[1], LONG), EPOLLOUT);
    assert_int_equal(told(ends[1], LONG), EPOLLOUT);
}

static void edge_trigger_tells_of_bytes_beside_unread_ones(void **state) {
    (void)state;
    say("a");
    add(ends[1], EPOLLIN | EPOLLET);
    assert_int_equal(told(ends[1], LONG), EPOLLIN);
    assert_int_equal(told(ends[1], 0), 0);
    assert_int_equal(told(ends[1], SOON), 0);
    say("b");
    assert_int_equal(told(ends[1], LONG), EPOLLIN);
    assert_int_equal(told(ends[1], SOON), 0);
    modify(ends[1], EPOLLIN | EPOLLET);
    assert_int_equal(told(ends[1], 0), EPOLLIN);
    hear("ab");
    modify(ends[1], EPOLLIN | EPOLLET);
    assert_int_equal(told(ends[1], 0), 0);
}

static void one_shot_waits_for_a_modification(void **state) {
    (void)state;
    add(ends[1], EPOLLIN | EPOLLONESHOT);
    say("a");
    assert_int_equal(told(ends[1], LONG), EPOLLIN);
    say("b");
    assert_int_equal(told(ends[1], SOON), 0);
    modify(ends[1], EPOLLIN | EPOLLONESHOT);
    assert_int_equal(told(ends[1], LONG), EPOLLIN);
    assert_int_equal(rclose(ends[0]), 0);
    ends[0] = -1;
    assert_int_equal(told(ends[1], SOON), 0); /* the set does not tell of the end either */
    modify(ends[1], EPOLLIN | EPOLLRDHUP | EPOLLONESHOT);
    assert_true((told(ends[1], LONG) & EPOLLIN) != 0);
}

static char block[1 << 20];

/* Sends until the peer takes no more bytes. Returns how many it took. */
static ssize_t fill(int fd) {
    ssize_t sent = 0;
    ssize_t now = 0;
    while ((now = rsend(fd, block, sizeof(block), MSG_DONTWAIT)) > 0) {
        sent += now;
    }
    assert_int_equal(errno, EAGAIN);
    return sent;
}

static void room_to_send_is_told_when_it_comes(void **state) {
    (void)state;
    ssize_t sent = 0;
    ssize_t now = 0;
    add(ends[0], EPOLLOUT | EPOLLET);
    assert_int_equal(told(ends[0], LONG), EPOLLOUT);
    do {
        sent += fill(ends[0]);
    } while (told(ends[0], SOON) != 0); /* an edge may tell of room that was taken since */
    modify(ends[0], EPOLLOUT);
    while (told(ends[0], 0) != 0) { /* the peer's device took bytes late, and there is room */
        now = fill(ends[0]);
        assert_true(now > 0);
        sent += now;
    }
    while (sent > 0) {
        now = rrecv(ends[1], block, sizeof(block), 0);
        assert_true(now > 0);
        sent -= now;
    }
    assert_int_equal(told(ends[0], LONG), EPOLLOUT);
}

static void ends_of_streams(void **state) {
    (void)state;
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    int broken[2];
    make_pair(broken);
    add(ends[1], EPOLLRDHUP);
    assert_int_equal(told(ends[1], SOON), 0);
    assert_int_equal(rshutdown(ends[0], SHUT_WR), 0);
    assert_int_equal(told(ends[1], LONG), EPOLLRDHUP);
    assert_int_equal(rshutdown(ends[1], SHUT_WR), 0);
    modify(ends[1], 0);
    assert_int_equal(told(ends[1], LONG), EPOLLHUP);
    assert_int_equal(control(epfd, EPOLL_CTL_DEL, ends[1], 0), 0);
    add(broken[1], EPOLLIN);
    assert_int_equal(rsetsockopt(broken[0], SOL_SOCKET, SO_LINGER, &none, sizeof(none)), 0);
    assert_int_equal(rclose(broken[0]), 0);
    assert_int_equal(told(broken[1], LONG), EPOLLIN | EPOLLERR | EPOLLHUP);
    assert_int_equal(rclose(broken[1]), 0);
    assert_int_equal(told(-1, 0), 0);
}

/* A shutdown by this end, and a low-water mark, change the readiness although no byte comes or goes. */
static void calls_that_make_a_socket_ready(void **state) {
    (void)state;
    int least = 3;
    assert_int_equal(rsetsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least)), 0);
    add(ends[1], EPOLLIN);
    say("ab");
    assert_int_equal(told(ends[1], SOON), 0);
    least = 1;
    assert_int_equal(rsetsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least)), 0);
    assert_int_equal(told(ends[1], 0), EPOLLIN);
    hear("ab");
    assert_int_equal(told(ends[1], 0), 0);
    assert_int_equal(rshutdown(ends[1], SHUT_RD), 0);
    assert_int_equal(told(ends[1], 0), EPOLLIN);
}

/* Follows a connection from rsocket to its end, with server and client in one thread. */
static void members_become_streams(void **state) {
    (void)state;
    uint16_t port = 0;
    const int listener = listening_rsocket(&port);
    const struct sockaddr_in address = loopback_at(port);
    const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    add(listener, EPOLLIN);
    assert_int_equal(told(listener, 0), 0);
    add(client, EPOLLOUT | EPOLLONESHOT);
    assert_true((told(client, 0) & EPOLLHUP) != 0); /* a socket of TCP tells so too */
    assert_fails(rconnect(client, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    assert_int_equal(told(listener, LONG), EPOLLIN);
    struct pollfd asking = {.fd = client, .events = POLLOUT};
    assert_int_equal(rpoll(&asking, 1, 0), 0); /* the peer has not answered */
    const int accepted = raccept(listener, NULL, NULL);
    assert_true(accepted >= 0);
    assert_int_equal(told(listener, 0), 0);
    modify(client, EPOLLOUT | EPOLLET);
    add(accepted, EPOLLIN);
    assert_int_equal(told(client, LONG), EPOLLOUT);
    assert_int_equal(rsend(client, "x", 1, 0), 1);
    struct epoll_event events[4];
    bool came = false;
    while (!came) {
        const int count = repoll_wait(epfd, events, 4, LONG);
        assert_true(count > 0);
        for (int i = 0; i < count; ++i) {
            came = came || (events[i].data.fd == accepted && events[i].events == EPOLLIN);
        }
    }
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(accepted), 0);
    /* No peer answers this request. */
    assert_int_equal(rclose(listener), 0);
    const int refused = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    errno = 0;
    assert_int_equal(rconnect(refused, (const struct sockaddr *)&address, sizeof(address)), -1);
    const bool was_told = errno == ECONNREFUSED;
    assert_true(was_told || errno == EINPROGRESS);
    add(refused, EPOLLOUT);
    assert_true((told(refused, LONG) & (was_told ? EPOLLHUP : EPOLLERR)) != 0);
    assert_int_equal(rclose(refused), 0);
}

/* The event comes when the peer is there already, and there is no other work. */
static void a_connection_with_an_idle_peer(void **state) {
    (void)state;
    uint16_t port = 0;
    const int listener = listening_rsocket(&port);
    const struct sockaddr_in address = loopback_at(port);
    const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    add(client, EPOLLIN | EPOLLOUT | EPOLLET);
    (void)told(client, 0);
    assert_fails(rconnect(client, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    const int accepted = raccept(listener, NULL, NULL);
    add(accepted, EPOLLIN);
    assert_int_equal(told(client, LONG), EPOLLOUT);
    assert_int_equal(rclose(accepted), 0);
    uint32_t events = EPOLLOUT;
    while (events == EPOLLOUT) { /* an edge may tell of the room once more before the end has come */
        events = told(client, LONG);
    }
    assert_true((events & EPOLLIN) != 0);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(listener), 0);
}

static void datagrams(void **state) {
    (void)state;
    if (getenv("RPMA_TLS") != NULL) {
        skip(); /* with TLS there is none of what it needs: TCP, datagrams, or bytes that the wire shows */
    }
    struct sockaddr_in name = loopback_at(0);
    socklen_t size = sizeof(name);
    char bytes[4];
    const int receiver = rsocket(AF_INET, SOCK_DGRAM, 0);
    const int sender = rsocket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(rbind(receiver, (struct sockaddr *)&name, size), 0);
    assert_int_equal(rgetsockname(receiver, (struct sockaddr *)&name, &size), 0);
    add(receiver, EPOLLIN);
    /* The first message goes over UDP. Later ones go from queue pair to
     * queue pair, when the ends know each other. */
    for (int i = 0; i < 4; ++i) {
        assert_int_equal(told(receiver, 0), 0);
        assert_int_equal(rsendto(sender, "abcd", 4, 0, (struct sockaddr *)&name, sizeof(name)), 4);
        assert_int_equal(told(receiver, LONG), EPOLLIN);
        assert_int_equal(rrecv(receiver, bytes, 4, MSG_DONTWAIT), 4);
        assert_fails(rrecv(sender, bytes, 4, MSG_DONTWAIT), EAGAIN); /* hears the answer */
    }
    modify(receiver, EPOLLIN | EPOLLET);
    for (int i = 0; i < 4; ++i) {
        assert_int_equal(rsendto(sender, "abcd", 4, 0, (struct sockaddr *)&name, sizeof(name)), 4);
        assert_int_equal(told(receiver, LONG), EPOLLIN); /* the messages before are unread */
    }
    add(sender, EPOLLOUT);
    assert_int_equal(control(epfd, EPOLL_CTL_DEL, receiver, 0), 0);
    assert_int_equal(told(sender, LONG), EPOLLOUT);
    assert_int_equal(rclose(sender), 0);
    assert_int_equal(rclose(receiver), 0);
}

static void other_descriptors_and_a_set_in_a_set(void **state) {
    (void)state;
    int fds[2];
    struct epoll_event event;
    const int inner = repoll_create(0);
    assert_int_equal(pipe(fds), 0);
    add(fds[0], EPOLLIN | EPOLLONESHOT);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(told(fds[0], LONG), EPOLLIN);
    assert_int_equal(told(fds[0], 0), 0);
    modify(fds[0], EPOLLIN);
    assert_int_equal(told(fds[0], LONG), EPOLLIN);
    /* No member keeps another from being reported. */
    add(ends[1], EPOLLIN);
    say("x");
    struct pollfd arrived = {.fd = ends[1], .events = POLLIN};
    assert_int_equal(rpoll(&arrived, 1, LONG), 1);
    int seen[2] = {0};
    for (int i = 0; i < 100 && (seen[0] == 0 || seen[1] == 0); ++i) {
        assert_int_equal(repoll_wait(epfd, &event, 1, LONG), 1);
        ++seen[event.data.fd == ends[1]];
    }
    assert_true(seen[0] != 0 && seen[1] != 0);
    assert_int_equal(control(epfd, EPOLL_CTL_DEL, fds[0], 0), 0);
    assert_int_equal(control(epfd, EPOLL_CTL_DEL, ends[1], 0), 0);
    /* A repoll is an epoll descriptor. */
    add(inner, EPOLLIN);
    assert_int_equal(told(inner, 0), 0);
    assert_int_equal(control(inner, EPOLL_CTL_ADD, ends[1], EPOLLIN), 0);
    assert_int_equal(told(inner, LONG), EPOLLIN);
    hear("x");
    assert_int_equal(told_by(inner, ends[1], 0), 0);
    for (uint32_t now = 0; now == 0; now = told_by(inner, ends[1], 0)) {
        say("y"); /* the set may be readable at first only because the device has work */
        assert_int_equal(told(inner, LONG), EPOLLIN);
    }
    assert_int_equal(rclose(inner), 0);
    close(fds[0]);
    close(fds[1]);
}

static short polled(int fd, int timeout) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    assert_true(poll(&entry, 1, timeout) >= 0);
    return entry.revents;
}

/* Returns the events that a poll of the descriptor and a look at the set tell of. The descriptor may be
 * readable only because the device has work to do, and a look at the set does that work. */
static uint32_t told_of_outside(int timeout) {
    while (polled(epfd, timeout) != 0) {
        const uint32_t events = told(ends[1], 0);
        if (events != 0) {
            return events;
        }
    }
    return 0;
}

static void another_loop_waits_for_the_descriptor(void **state) {
    (void)state;
    add(ends[1], EPOLLIN);
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(told_of_outside(SOON), 0);
        say("x");
        assert_int_equal(told_of_outside(LONG), EPOLLIN);
        assert_int_equal(told_of_outside(LONG), EPOLLIN); /* the byte was not read */
        hear("x");
        if (i == 1) { /* a sleep ends this, and the next look begins it anew */
            assert_int_equal(told(ends[1], 1), 0);
            assert_int_equal(told(ends[1], 0), 0);
        }
    }
}

static void a_socket_in_two_sets(void **state) {
    (void)state;
    const int other = repoll_create(0);
    add(ends[1], EPOLLIN);
    assert_int_equal(control(other, EPOLL_CTL_ADD, ends[1], EPOLLIN | EPOLLET), 0);
    say("x");
    assert_int_equal(told(ends[1], LONG), EPOLLIN);
    assert_int_equal(told_by(other, ends[1], LONG), EPOLLIN);
    assert_int_equal(told_by(other, ends[1], 0), 0);
    assert_int_equal(told(ends[1], 0), EPOLLIN);
    assert_int_equal(rclose(ends[1]), 0);
    ends[1] = -1;
    assert_int_equal(told(-1, 0), 0);
    assert_int_equal(told_by(other, -1, 0), 0);
    assert_int_equal(rclose(other), 0);
}

static void what_is_closed_is_no_member(void **state) {
    (void)state;
    struct epoll_event event;
    say("x");
    add(ends[1], EPOLLIN);
    assert_int_equal(told(ends[1], LONG), EPOLLIN);
    const int number = ends[1];
    assert_int_equal(rclose(ends[1]), 0);
    assert_int_equal(repoll_wait(epfd, &event, 1, 0), 0);
    /* A new rsocket with that number is another member. */
    const int lower = rsocket(AF_INET, SOCK_STREAM, 0);
    ends[1] = lower == number ? lower : rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(ends[1], number);
    assert_int_equal(lower == number ? 0 : rclose(lower), 0);
    assert_fails(control(epfd, EPOLL_CTL_MOD, ends[1], EPOLLIN), ENOENT);
    add(ends[1], EPOLLIN);
    /* The repoll is closed with members in it, and they still work. */
    const int other = repoll_create(0);
    assert_int_equal(control(other, EPOLL_CTL_ADD, ends[0], EPOLLOUT), 0);
    assert_int_equal(rclose(other), 0);
    assert_fails(rclose(other), EBADF);
}

static void errors(void **state) {
    (void)state;
    struct epoll_event event = {.events = EPOLLIN};
    const int none[] = {-1, 65000, INT_MAX};
    assert_fails(repoll_create(1), EINVAL);
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); ++i) {
        assert_fails(repoll_ctl(none[i], EPOLL_CTL_ADD, ends[0], &event), EBADF);
        assert_fails(repoll_ctl(epfd, EPOLL_CTL_ADD, none[i], &event), EBADF);
        assert_fails(repoll_wait(none[i], &event, 1, 0), EBADF);
    }
    assert_fails(repoll_ctl(ends[0], EPOLL_CTL_ADD, ends[1], &event), EINVAL);
    assert_fails(repoll_wait(0, &event, 1, 0), EINVAL);
    assert_fails(repoll_ctl(epfd, EPOLL_CTL_ADD, epfd, &event), EINVAL);
    assert_fails(repoll_ctl(epfd, 77, ends[0], &event), EINVAL);
    assert_fails(repoll_ctl(epfd, EPOLL_CTL_ADD, ends[0], NULL), EFAULT);
    assert_fails(repoll_ctl(epfd, EPOLL_CTL_MOD, ends[0], &event), ENOENT);
    assert_fails(repoll_ctl(epfd, EPOLL_CTL_DEL, ends[0], NULL), ENOENT);
    add(ends[0], EPOLLIN | EPOLLEXCLUSIVE);
    assert_fails(control(epfd, EPOLL_CTL_ADD, ends[0], EPOLLIN), EEXIST);
    assert_fails(control(epfd, EPOLL_CTL_MOD, ends[0], EPOLLIN), EINVAL);
    assert_fails(control(epfd, EPOLL_CTL_ADD, ends[1], EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT), EINVAL);
    assert_int_equal(repoll_ctl(epfd, EPOLL_CTL_DEL, ends[0], NULL), 0);
    for (int most = -1; most < 1; ++most) {
        assert_fails(repoll_wait(epfd, &event, most, 0), EINVAL);
    }
    assert_fails(repoll_wait(epfd, NULL, 1, 0), EFAULT);
}

static void time_is_kept(void **state) {
    (void)state;
    add(ends[1], EPOLLIN);
    const double begin = seconds();
    assert_int_equal(told(ends[1], SOON), 0);
    assert_true(seconds() - begin >= (double)SOON / 1e3 - 0.001);
}

/* ---- threads ---- */

struct job {
    pthread_t thread;
    int set;
    int failed;
    int taken;
    atomic_int number; /* the thread's number, when it is about to wait */
};

static void start(struct job *job, void *(*run)(void *), int set) {
    *job = (struct job){.set = set};
    assert_int_equal(pthread_create(&job->thread, NULL, run, job), 0);
}

static void join(struct job *job) {
    assert_int_equal(pthread_join(job->thread, NULL), 0);
    assert_int_equal(job->failed, 0);
}

enum { PAIRS = 8, THREADS = 4, MESSAGES = 200, STOP = 0xff };

static int echoing[PAIRS][2];

/* Echoes messages. Each message goes to one thread, because the members are one-shot. */
static void *echo(void *argument) {
    struct job *const job = argument;
    while (!job->failed) {
        struct epoll_event event;
        unsigned char byte = 0;
        if (repoll_wait(job->set, &event, 1, LONG) != 1) {
            job->failed = 1;
            break;
        }
        if (event.data.fd < 0) {
            break;
        }
        const int pair = event.data.fd;
        job->failed =
            rrecv(echoing[pair][1], &byte, 1, MSG_DONTWAIT) != 1 || rsend(echoing[pair][1], &byte, 1, 0) != 1;
        ++job->taken;
        event.events = EPOLLIN | EPOLLONESHOT;
        job->failed |= repoll_ctl(job->set, EPOLL_CTL_MOD, echoing[pair][1], &event) != 0;
    }
    return NULL;
}

static void threads_share_a_set(void **state) {
    (void)state;
    struct job jobs[THREADS];
    const int stop = eventfd(0, 0);
    for (int i = 0; i < PAIRS; ++i) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = i};
        make_pair(echoing[i]);
        assert_int_equal(repoll_ctl(epfd, EPOLL_CTL_ADD, echoing[i][1], &event), 0);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.fd = -1};
    assert_int_equal(repoll_ctl(epfd, EPOLL_CTL_ADD, stop, &event), 0);
    for (int i = 0; i < THREADS; ++i) {
        start(&jobs[i], echo, epfd);
    }
    for (int message = 0; message < MESSAGES; ++message) {
        for (int i = 0; i < PAIRS; ++i) {
            const unsigned char byte = (unsigned char)(message + i);
            assert_int_equal(rsend(echoing[i][0], &byte, 1, 0), 1);
        }
        for (int i = 0; i < PAIRS; ++i) {
            unsigned char byte = 0;
            assert_int_equal(rrecv(echoing[i][0], &byte, 1, 0), 1);
            assert_int_equal(byte, (unsigned char)(message + i));
        }
    }
    assert_int_equal(eventfd_write(stop, 1), 0);
    int taken = 0;
    for (int i = 0; i < THREADS; ++i) {
        join(&jobs[i]);
        taken += jobs[i].taken;
    }
    assert_int_equal(taken, PAIRS * MESSAGES);
    for (int i = 0; i < PAIRS; ++i) {
        assert_int_equal(rclose(echoing[i][0]), 0);
        assert_int_equal(rclose(echoing[i][1]), 0);
    }
    close(stop);
}

static void *takes_one(void *argument) {
    struct job *const job = argument;
    struct epoll_event event;
    job->failed = repoll_wait(job->set, &event, 1, LONG) != 1;
    job->taken = job->failed ? errno : event.data.fd;
    return NULL;
}

/* The threads of two sets sleep for a member that both want exclusively,
 * and one message comes for each of them. */
static void an_exclusive_member_wakes_one_set_at_least(void **state) {
    (void)state;
    struct job jobs[2];
    int sets[2];
    char byte = 0;
    for (int i = 0; i < 2; ++i) {
        sets[i] = repoll_create(0);
        assert_int_equal(control(sets[i], EPOLL_CTL_ADD, ends[1], EPOLLIN | EPOLLEXCLUSIVE), 0);
        start(&jobs[i], takes_one, sets[i]);
    }
    say("x");
    int left = 0;
    while (pthread_tryjoin_np(jobs[left].thread, NULL) == EBUSY) {
        left = !left;
    }
    assert_int_equal(jobs[left].failed, 0);
    assert_int_equal(rrecv(ends[1], &byte, 1, 0), 1);
    say("y");
    join(&jobs[!left]);
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(jobs[i].taken, ends[1]);
        assert_int_equal(rclose(sets[i]), 0);
    }
}

static void *sleeps_until_it_is_closed(void *argument) {
    struct job *const job = argument;
    struct epoll_event event;
    atomic_store(&job->number, gettid());
    errno = 0;
    job->failed = repoll_wait(job->set, &event, 1, LONG) != -1 || errno != EBADF;
    return NULL;
}

static void closing_ends_the_waits(void **state) {
    (void)state;
    struct job jobs[2];
    const int set = repoll_create(0);
    assert_int_equal(control(set, EPOLL_CTL_ADD, ends[1], EPOLLIN), 0);
    start(&jobs[0], sleeps_until_it_is_closed, set);
    start(&jobs[1], sleeps_until_it_is_closed, set);
    await_sleep(&jobs[0].number);
    await_sleep(&jobs[1].number);
    assert_int_equal(rclose(set), 0);
    join(&jobs[0]);
    join(&jobs[1]);
}

static void *receives_one(void *argument) {
    struct job *const job = argument;
    char byte = 0;
    job->failed = rrecv(job->set, &byte, 1, 0) != 1;
    return NULL;
}

/* The streams are in one thread's shard. A thread that does not sleep in
 * the device is woken by the one that does. */
static void a_sleeper_of_the_same_shard(void **state) {
    (void)state;
    struct job receiver;
    struct job waiter;
    int pair[2];
    make_pair(pair);
    add(ends[1], EPOLLIN);
    for (int i = 0; i < 50; ++i) {
        start(&receiver, receives_one, pair[1]);
        start(&waiter, takes_one, epfd);
        const bool first = i % 2 == 0;
        assert_int_equal(rsend(first ? pair[0] : ends[0], "x", 1, 0), 1);
        join(first ? &receiver : &waiter);
        assert_int_equal(rsend(first ? ends[0] : pair[0], "x", 1, 0), 1);
        join(first ? &waiter : &receiver);
        assert_int_equal(waiter.taken, ends[1]);
        hear("x");
    }
    assert_int_equal(rclose(pair[0]), 0);
    assert_int_equal(rclose(pair[1]), 0);
}

/* A thread sleeps for a member that another thread adds, of a shard that it did not know. */
static void members_come_while_a_thread_sleeps(void **state) {
    (void)state;
    struct job waiter;
    start(&waiter, takes_one, epfd);
    add(ends[1], EPOLLIN);
    usleep(1000); /* the thread may sleep already, or may not yet */
    say("x");
    join(&waiter);
    assert_int_equal(waiter.taken, ends[1]);
}

static void *works_and_goes(void *argument) {
    struct job *const job = argument;
    int pair[2];
    char byte = 0;
    make_pair(pair);
    for (int i = 0; i < 100 && !job->failed; ++i) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET};
        job->failed = repoll_ctl(job->set, EPOLL_CTL_ADD, pair[1], &event) != 0 ||
                      rsend(pair[0], "x", 1, 0) != 1 || repoll_wait(job->set, &event, 1, 0) < 0 ||
                      rrecv(pair[1], &byte, 1, 0) != 1 ||
                      (i % 2 == 0 && repoll_ctl(job->set, EPOLL_CTL_DEL, pair[1], NULL) != 0);
        if (i % 2 != 0) {
            job->failed |= rclose(pair[0]) != 0 || rclose(pair[1]) != 0;
            make_pair(pair);
        }
    }
    job->failed |= rclose(pair[0]) != 0 || rclose(pair[1]) != 0;
    return NULL;
}

static void members_come_and_go_in_several_threads(void **state) {
    (void)state;
    struct job jobs[THREADS];
    for (int i = 0; i < THREADS; ++i) {
        start(&jobs[i], works_and_goes, epfd);
    }
    for (int i = 0; i < THREADS; ++i) {
        join(&jobs[i]);
    }
    struct epoll_event event;
    assert_int_equal(repoll_wait(epfd, &event, 1, 0), 0);
}

static void a_child_cannot_use_it(void **state) {
    (void)state;
    struct epoll_event event = {.events = EPOLLIN};
    add(ends[1], EPOLLIN);
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = repoll_wait(epfd, &event, 1, 0) == -1 && errno == ECONNRESET &&
                             repoll_ctl(epfd, EPOLL_CTL_DEL, ends[1], NULL) == -1 && errno == ECONNRESET;
        _exit(refused && rclose(epfd) == 0 ? 0 : 1);
    }
    assert_int_equal(end_of_peer(child), 0);
    say("x");
    assert_int_equal(told(ends[1], LONG), EPOLLIN);
}

/* ---- cost ---- */

enum { FEW = 10, ECHOES = 2000 };

/* This counts the instructions of this thread if the kernel counts them,
 * and its time in nanoseconds otherwise. */
static int counter = -1;

static long long counted(void) {
    long long count = 0;
    if (counter >= 0 && read(counter, &count, sizeof(count)) == sizeof(count)) {
        return count;
    }
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int in_order(const void *left, const void *right) {
    const long long difference = *(const long long *)left - *(const long long *)right;
    return (difference > 0) - (difference < 0);
}

/* Returns the median, because an echo during which the machine made the thread sleep costs more. */
static long long cost_of_an_echo(void) {
    static long long costs[ECHOES];
    for (int i = 0; i < ECHOES; ++i) {
        const long long before = counted();
        say("x");
        assert_true((told(ends[1], LONG) & EPOLLIN) != 0);
        hear("x");
        costs[i] = counted() - before;
    }
    qsort(costs, ECHOES, sizeof(costs[0]), in_order);
    return costs[ECHOES / 2];
}

static void open_pairs(int (*pairs)[2], int from, int to) {
    uint16_t port = 0;
    const int small = 16;
    const int listener = listening_rsocket(&port);
    for (int i = from; i < to; ++i) {
        pairs[i][0] = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_true(pairs[i][0] >= 0);
        assert_int_equal(rsetsockopt(pairs[i][0], SOL_RDMA, RDMA_RQSIZE, &small, sizeof(small)), 0);
        assert_int_equal(rsetsockopt(pairs[i][0], SOL_RDMA, RDMA_SQSIZE, &small, sizeof(small)), 0);
        connect_rsocket(pairs[i], listener, port);
        add(pairs[i][1], EPOLLIN);
    }
    assert_int_equal(rclose(listener), 0);
}

static void idle_sockets_cost_nothing(void **state) {
    (void)state;
    struct perf_event_attr attributes = {.type = PERF_TYPE_HARDWARE,
                                         .size = sizeof(attributes),
                                         .config = PERF_COUNT_HW_INSTRUCTIONS,
                                         .exclude_kernel = 1,
                                         .exclude_hv = 1};
    counter = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    const int many = files.rlim_cur < 2100 ? (int)(files.rlim_cur - 100) / 2 : 1000;
    int(*const pairs)[2] = calloc((size_t)many, sizeof(*pairs));
    assert_non_null(pairs);
    add(ends[1], EPOLLIN);
    open_pairs(pairs, 0, FEW);
    (void)cost_of_an_echo();
    const long long few = cost_of_an_echo();
    open_pairs(pairs, FEW, many);
    (void)cost_of_an_echo();
    const long long with_many = cost_of_an_echo();
    print_message("an echo: %lld with %d idle rsockets, %lld with %d (%s)\n", few, FEW, with_many, many,
                  counter >= 0 ? "instructions" : "nanoseconds");
    /* Time is noisy, but a look at each of a thousand members would take many times as much. */
    assert_true((double)with_many < (counter >= 0 ? 1.3 : 3.0) * (double)few);
    for (int i = 0; i < many; ++i) {
        assert_int_equal(rclose(pairs[i][0]), 0);
        assert_int_equal(rclose(pairs[i][1]), 0);
    }
    free(pairs);
    close(counter);
}

#define ON_SET(test) cmocka_unit_test_setup_teardown(test, make_ends, close_ends)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_SET(level_trigger_tells_until_all_is_read),
        ON_SET(edge_trigger_tells_of_bytes_beside_unread_ones),
        ON_SET(one_shot_waits_for_a_modification),
        ON_SET(room_to_send_is_told_when_it_comes),
        ON_SET(ends_of_streams),
        ON_SET(calls_that_make_a_socket_ready),
        ON_SET(members_become_streams),
        ON_SET(a_connection_with_an_idle_peer),
        ON_SET(datagrams),
        ON_SET(other_descriptors_and_a_set_in_a_set),
        ON_SET(another_loop_waits_for_the_descriptor),
        ON_SET(a_socket_in_two_sets),
        ON_SET(what_is_closed_is_no_member),
        ON_SET(errors),
        ON_SET(time_is_kept),
        ON_SET(threads_share_a_set),
        ON_SET(an_exclusive_member_wakes_one_set_at_least),
        ON_SET(closing_ends_the_waits),
        ON_SET(a_sleeper_of_the_same_shard),
        ON_SET(members_come_while_a_thread_sleeps),
        ON_SET(members_come_and_go_in_several_threads),
        ON_SET(a_child_cannot_use_it),
        ON_SET(idle_sockets_cost_nothing),
    };
    return cmocka_run_group_tests_name("rsocket_epoll", tests, NULL, NULL);
}
