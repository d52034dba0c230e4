/* SPDX-License-Identifier: BSD-3-Clause */
/* Several processes have the same rsockets, by fork and vfork, in a program that asks for support of that
 * (RDMAV_FORK_SAFE). Any of them can use an rsocket that carries no stream yet; a stream stays with the
 * process that began it.
 *
 *     test_prefork [ACCEPTS [FORKS]]    how many connections a worker accepts, how many forks there are */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "../api/test.h"

/* This is included last, because it asserts. */
#include "../api/rsockets.h"
#include "../forks.h"

enum { WORKERS = 4, MOST_SECONDS = 120 };

static int accepts = 50;
static int forks = 20;

SET_TSAN_OPTIONS("die_after_fork=0:atexit_sleep_ms=0")

/* Asserts in a child: cmocka would jump back into the child's copy of its runner. */
#define must(condition)                                                         \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%d: %s, errno %d\n", __LINE__, #condition, errno); \
            _exit(1);                                                           \
        }                                                                       \
    } while (0)

/* The child ends with its parent, or when it hangs. */
static pid_t fork_child(void) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(MOST_SECONDS);
    }
    return child;
}

/* Ends with the library's own work at the end of a process. LeakSanitizer would take what the parent's
 * threads hold for leaks of the child, which does not have these threads. */
static _Noreturn void leave(void) {
#ifdef __SANITIZE_ADDRESS__
    _exit(0);
#else
    exit(0);
#endif
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument) {
    assert_int_equal(pthread_create(thread, NULL, run, argument), 0);
}

static void join(pthread_t thread) {
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ---- a service: the bytes of a question, inverted ---- */

static bool ask(int fd, uint64_t question) {
    uint64_t answer = 0;
    return rsend(fd, &question, sizeof(question), 0) == sizeof(question) &&
           rrecv(fd, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer) && answer == ~question;
}

/* Answers until the client has ended the stream. */
static bool serve(int fd) {
    uint64_t question = 0;
    ssize_t got = rrecv(fd, &question, sizeof(question), MSG_WAITALL);
    while (got == sizeof(question)) {
        question = ~question;
        if (rsend(fd, &question, sizeof(question), 0) != sizeof(question)) {
            return false;
        }
        got = rrecv(fd, &question, sizeof(question), MSG_WAITALL);
    }
    return got == 0;
}

struct clients {
    uint16_t port;
    int count;
    int failed; /* the first that did */
    int error;
};

static bool be_client(uint16_t port, uint64_t question) {
    const struct sockaddr_in address = loopback_at(port);
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    const bool served = fd >= 0 && rconnect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
                        ask(fd, question) && ask(fd, question + 1);
    const int error = errno;
    const bool closed = fd >= 0 && rclose(fd) == 0;
    errno = error;
    return served && closed;
}

static void *are_clients(void *argument) {
    struct clients *const clients = argument;
    for (int i = 0; i < clients->count && clients->failed == 0; ++i) {
        if (!be_client(clients->port, (uint64_t)i * 1000003)) {
            clients->error = errno;
            clients->failed = i + 1;
        }
    }
    return NULL;
}

static void assert_all_were_served(const struct clients *clients) {
    if (clients->failed != 0) {
        print_error("client %d of %d: errno %d\n", clients->failed, clients->count, clients->error);
    }
    assert_int_equal(clients->failed, 0);
}

/* ---- streams of this process, which must not be disturbed; it has its device before the first fork ---- */

static int undisturbed[2];

static int begin(void **state) {
    (void)state;
    alarm(MOST_SECONDS);
    make_pair(undisturbed);
    return 0;
}

static int end(void **state) {
    (void)state;
    char byte = 0;
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(rsend(undisturbed[i], "x", 1, 0), 1);
        assert_int_equal(rrecv(undisturbed[1 - i], &byte, 1, 0), 1);
        assert_int_equal(byte, 'x');
    }
    assert_int_equal(rclose(undisturbed[0]), 0);
    assert_int_equal(rrecv(undisturbed[1], &byte, 1, 0), 0);
    assert_int_equal(rclose(undisturbed[1]), 0);
    return 0;
}

/* ---- fork ---- */

static void workers_accept_from_one_listener(void **state) {
    (void)state;
    skip_where(CHILDREN_MAKE_NO_THREADS);
    pid_t workers[WORKERS];
    pthread_t threads[WORKERS];
    struct clients clients[WORKERS];
    uint16_t port = 0;
    const int listener = listening_rsocket(&port);
    for (int i = 0; i < WORKERS; ++i) {
        workers[i] = fork_child();
        assert_true(workers[i] >= 0);
        if (workers[i] == 0) {
            for (int accepted = 0; accepted < accepts; ++accepted) {
                const int fd = raccept(listener, NULL, NULL);
                must(fd >= 0);
                must(serve(fd));
                must(rclose(fd) == 0);
            }
            must(rclose(listener) == 0);
            leave();
        }
    }
    for (int i = 0; i < WORKERS; ++i) {
        clients[i] = (struct clients){.port = port, .count = accepts};
        start(&threads[i], are_clients, &clients[i]);
    }
    for (int i = 0; i < WORKERS; ++i) {
        join(threads[i]);
        assert_all_were_served(&clients[i]);
        assert_int_equal(end_of_peer(workers[i]), 0);
    }
    assert_int_equal(rclose(listener), 0);
}

/* Each time a thread of the parent, which is the client, is in a call. */
static void a_child_serves_what_its_parent_accepted(void **state) {
    (void)state;
    skip_where(CHILDREN_MAKE_NO_THREADS);
    pthread_t thread;
    struct clients clients = {.count = forks};
    const int listener = listening_rsocket(&clients.port);
    start(&thread, are_clients, &clients);
    for (int i = 0; i < forks; ++i) {
        const int fd = raccept(listener, NULL, NULL);
        assert_true(fd >= 0);
        const pid_t child = fork_child();
        assert_true(child >= 0);
        if (child == 0) {
            must(rclose(listener) == 0);
            must(serve(fd));
            must(rclose(fd) == 0);
            leave();
        }
        assert_int_equal(rclose(fd), 0);
        assert_int_equal(end_of_peer(child), 0);
    }
    join(thread);
    assert_all_were_served(&clients);
    assert_int_equal(rclose(listener), 0);
}

enum use { RECEIVES, SENDS, ENDS_SENDING, USES };

static ssize_t use_as(enum use use, int fd) {
    char byte = 'x';
    return use == RECEIVES ? rrecv(fd, &byte, 1, 0)
           : use == SENDS  ? rsend(fd, &byte, 1, 0)
                           : rshutdown(fd, SHUT_WR);
}

/* Two processes have what raccept gave. The child begins the stream, and stops, so that its parent finds the
 * bytes of the device that the child would take. */
static void a_stream_is_of_the_process_that_began_it(void **state) {
    (void)state;
    skip_where(CHILDREN_MAKE_NO_THREADS);
    const uint64_t question = 77;
    uint64_t answer = 0;
    char byte = 'x';
    uint16_t port = 0;
    const int listener = listening_rsocket(&port);
    const struct sockaddr_in address = loopback_at(port);
    for (enum use use = RECEIVES; use < USES; ++use) {
        const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_fails(rconnect(client, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
        await_connection(client, listener);
        const int accepted = raccept(listener, NULL, NULL);
        assert_true(accepted >= 0);
        assert_int_equal(rfcntl(client, F_SETFL, 0), 0);
        const pid_t child = fork_child();
        assert_true(child >= 0);
        if (child == 0) {
            must(rsend(accepted, &byte, 1, 0) == 1 && rrecv(accepted, &byte, 1, 0) == 1);
            must(raise(SIGSTOP) == 0);
            must(serve(accepted) && rclose(accepted) == 0);
            leave();
        }
        assert_int_equal(rrecv(client, &byte, 1, 0), 1);
        assert_int_equal(rsend(client, &byte, 1, 0), 1);
        int status = 0;
        assert_int_equal(waitpid(child, &status, WUNTRACED), child);
        assert_true(WIFSTOPPED(status));
        assert_int_equal(rsend(client, &question, sizeof(question), 0), sizeof(question));
        assert_fails(use_as(use, accepted), ECONNRESET);
        assert_fails(rrecv(accepted, &byte, 1, 0), ECONNRESET); /* and again, without end */
        assert_int_equal(rclose(accepted), 0);
        assert_int_equal(kill(child, SIGCONT), 0);
        assert_int_equal(rrecv(client, &answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
        assert_true(answer == ~question);
        assert_int_equal(rclose(client), 0);
        assert_int_equal(end_of_peer(child), 0);
    }
    assert_int_equal(rclose(listener), 0);
}

static void a_child_binds_listens_and_connects(void **state) {
    (void)state;
    skip_where(CHILDREN_MAKE_NO_THREADS);
    struct sockaddr_in address = loopback_at(0);
    socklen_t size = sizeof(address);
    const int fresh = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const int bound = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_true(fresh >= 0 && bound >= 0);
    assert_int_equal(rbind(bound, (struct sockaddr *)&address, size), 0);
    const pid_t child = fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        int fds[2] = {fresh, -1};
        must(rlisten(bound, 8) == 0);
        must(rgetsockname(bound, (struct sockaddr *)&address, &size) == 0);
        connect_rsocket(fds, bound, ntohs(address.sin_port));
        must(rsend(fds[0], "x", 1, 0) == 1 && rclose(fds[0]) == 0 && serve(fds[1]) == false);
        must(rclose(fds[1]) == 0 && rclose(bound) == 0);
        leave();
    }
    assert_int_equal(end_of_peer(child), 0);
    assert_int_equal(rclose(fresh), 0);
    assert_int_equal(rclose(bound), 0);
}

/* The child of a server that forks for each connection has another descriptor of the same socket. Here a
 * duplicate stands for that descriptor. */
static void a_close_takes_nothing_from_who_inherited(void **state) {
    (void)state;
    char key[16];
    uint16_t port = 0;
    const int listener = listening_rsocket(&port);
    const struct sockaddr_in address = loopback_at(port);
    const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_fails(rconnect(client, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    await_connection(client, listener);
    const int accepted = raccept(listener, NULL, NULL);
    assert_true(accepted >= 0);
    const int inherited = dup(accepted);
    assert_int_equal(rclose(accepted), 0);
    struct pollfd entries[2] = {{.fd = inherited, .events = POLLIN}, {.fd = client, .events = POLLIN}};
    while (entries[0].revents == 0) {
        assert_true(rpoll(entries, 2, 30000) > 0);
    }
    assert_int_equal(recv(inherited, key, sizeof(key), 0), sizeof(key));
    assert_memory_equal(key, "MPA ID Req Frame", sizeof(key));
    close(inherited);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(listener), 0);
}

/* Counts the lines that a child writes to standard error. */
static int lines_of(int descriptor) {
    char text[4096];
    int lines = 0;
    ssize_t got = read(descriptor, text, sizeof(text));
    for (; got > 0; got = read(descriptor, text, sizeof(text))) {
        for (ssize_t i = 0; i < got; ++i) {
            lines += text[i] == '\n';
        }
    }
    return lines;
}

static void a_lost_stream_is_told_once(void **state) {
    (void)state;
    int text[2];
    assert_int_equal(pipe(text), 0);
    const pid_t child = fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        char byte = 0;
        must(dup2(text[1], STDERR_FILENO) == STDERR_FILENO);
        for (int i = 0; i < 3; ++i) {
            must(rsend(undisturbed[0], "x", 1, 0) == -1 && errno == ECONNRESET);
            must(rrecv(undisturbed[0], &byte, 1, 0) == -1 && errno == ECONNRESET);
        }
        must(rclose(undisturbed[0]) == 0 && rclose(undisturbed[1]) == 0);
        leave();
    }
    close(text[1]);
    assert_int_equal(lines_of(text[0]), 1);
    close(text[0]);
    assert_int_equal(end_of_peer(child), 0);
}

/* ---- vfork: the child has descriptors of its own, and its parent's memory ---- */

static void a_vforked_child_closes_everything(void **state) {
    (void)state;
    uint16_t port = 0;
    struct clients clients = {.count = 1};
    int fds[2];
    pthread_t thread;
    const int listener = listening_rsocket(&port);
    connect_ends(fds, listener, port);
    const int epfd = repoll_create(0);
    struct epoll_event event = {.events = EPOLLIN};
    assert_int_equal(repoll_ctl(epfd, EPOLL_CTL_ADD, fds[1], &event), 0);
    for (int way = 0; way < 3; ++way) {
        const pid_t child = vfork();
        if (child == 0) {
            if (way == 0) {
                const int all[] = {fds[0], fds[1], listener, epfd, undisturbed[0], undisturbed[1]};
                for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
                    if (rclose(all[i]) != 0 || fcntl(all[i], F_GETFD) != -1) {
                        _exit(1);
                    }
                }
            } else if (way == 1) {
                dup2(STDERR_FILENO, fds[0]);
                dup2(STDERR_FILENO, listener);
                dup2(STDERR_FILENO, undisturbed[0]);
            } else if (close_range(3, ~0U, 0) != 0) {
                _exit(1);
            }
            _exit(0);
        }
        assert_true(child > 0);
        assert_int_equal(end_of_peer(child), 0);
        assert_int_equal(rsend(fds[0], "x", 1, 0), 1);
        assert_int_equal(repoll_wait(epfd, &event, 1, 30000), 1);
        char byte = 0;
        assert_int_equal(rrecv(fds[1], &byte, 1, 0), 1);
        assert_int_equal(byte, 'x');
    }
    clients.port = port;
    start(&thread, are_clients, &clients);
    const int accepted = raccept(listener, NULL, NULL);
    assert_true(accepted >= 0);
    assert_true(serve(accepted));
    join(thread);
    assert_all_were_served(&clients);
    assert_int_equal(rclose(accepted), 0);
    assert_int_equal(rclose(epfd), 0);
    assert_int_equal(rclose(fds[0]), 0);
    assert_int_equal(rclose(fds[1]), 0);
    assert_int_equal(rclose(listener), 0);
}

/* ---- threads ---- */

struct server {
    int listener;
    int served;
    int failed;
    pthread_t thread;
};

static void *is_server(void *argument) {
    struct server *const server = argument;
    int fd = raccept(server->listener, NULL, NULL);
    for (; fd >= 0; fd = raccept(server->listener, NULL, NULL)) {
        server->failed += !serve(fd);
        server->failed += rclose(fd) != 0;
        ++server->served;
    }
    server->failed += errno != EBADF; /* as soon as it is closed */
    return NULL;
}

static void each_thread_has_a_listener_of_its_own(void **state) {
    (void)state;
    const int on = 1;
    struct server servers[WORKERS] = {0};
    pthread_t thread;
    struct sockaddr_in address = loopback_at(0);
    socklen_t size = sizeof(address);
    struct clients clients = {.count = WORKERS * 5};
    for (int i = 0; i < WORKERS; ++i) {
        const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(rsetsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)), 0);
        assert_int_equal(rbind(listener, (struct sockaddr *)&address, size), 0);
        assert_int_equal(rgetsockname(listener, (struct sockaddr *)&address, &size), 0);
        assert_int_equal(rlisten(listener, 8), 0);
        servers[i].listener = listener;
        start(&servers[i].thread, is_server, &servers[i]);
    }
    clients.port = ntohs(address.sin_port);
    start(&thread, are_clients, &clients);
    join(thread);
    assert_all_were_served(&clients);
    int served = 0;
    for (int i = 0; i < WORKERS; ++i) {
        assert_int_equal(rclose(servers[i].listener), 0);
        join(servers[i].thread);
        assert_int_equal(servers[i].failed, 0);
        served += servers[i].served;
    }
    assert_int_equal(served, clients.count);
}

static atomic_bool stop;

static void *are_clients_until_the_stop(void *argument) {
    struct clients *const clients = argument;
    while (!atomic_load(&stop) && clients->failed == 0) {
        (void)are_clients(clients);
    }
    return NULL;
}

/* The threads of the parent may begin streams, close them, or sleep: the child closes what it inherited, and
 * has rsockets of its own. */
static void a_child_is_made_while_threads_are_in_calls(void **state) {
    (void)state;
    skip_where(CHILDREN_MAKE_NO_THREADS);
    skip_where(CHILDREN_HANG_IN_MALLOC);
    enum { PAIRS = 2, MOST_DESCRIPTORS = 200 };
    struct server servers[PAIRS] = {0};
    struct clients clients[PAIRS];
    pthread_t threads[PAIRS];
    uint16_t port = 0;
    const int listener = listening_rsocket(&port);
    atomic_store(&stop, false);
    for (int i = 0; i < PAIRS; ++i) {
        servers[i].listener = listener;
        start(&servers[i].thread, is_server, &servers[i]);
        clients[i] = (struct clients){.port = port, .count = 10};
        start(&threads[i], are_clients_until_the_stop, &clients[i]);
    }
    for (int i = 0; i < forks; ++i) {
        const pid_t child = fork_child();
        assert_true(child >= 0);
        if (child == 0) {
            int fds[2];
            for (int fd = STDERR_FILENO + 1; fd < MOST_DESCRIPTORS; ++fd) {
                must(rclose(fd) == 0 ? fcntl(fd, F_GETFD) == -1 : errno == EBADF);
            }
            make_pair(fds);
            must(rsend(fds[0], "x", 1, 0) == 1 && rclose(fds[0]) == 0);
            must(rrecv(fds[1], &(char){0}, 1, 0) == 1 && rclose(fds[1]) == 0);
            leave();
        }
        assert_int_equal(end_of_peer(child), 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < PAIRS; ++i) {
        join(threads[i]);
        assert_all_were_served(&clients[i]);
    }
    assert_int_equal(rclose(listener), 0);
    for (int i = 0; i < PAIRS; ++i) {
        join(servers[i].thread);
        assert_int_equal(servers[i].failed, 0);
    }
}

int main(int argc, char *argv[]) {
    accepts = argc > 1 ? atoi(argv[1]) : accepts;
    forks = argc > 2 ? atoi(argv[2]) : forks;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(workers_accept_from_one_listener, begin, end),
        cmocka_unit_test_setup_teardown(a_child_serves_what_its_parent_accepted, begin, end),
        cmocka_unit_test_setup_teardown(a_stream_is_of_the_process_that_began_it, begin, end),
        cmocka_unit_test_setup_teardown(a_child_binds_listens_and_connects, begin, end),
        cmocka_unit_test_setup_teardown(a_close_takes_nothing_from_who_inherited, begin, end),
        cmocka_unit_test_setup_teardown(a_lost_stream_is_told_once, begin, end),
        cmocka_unit_test_setup_teardown(a_vforked_child_closes_everything, begin, end),
        cmocka_unit_test_setup_teardown(each_thread_has_a_listener_of_its_own, begin, end),
        cmocka_unit_test_setup_teardown(a_child_is_made_while_threads_are_in_calls, begin, end),
    };
    return cmocka_run_group_tests_name("prefork", tests, NULL, NULL);
}
