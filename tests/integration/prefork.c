/* SPDX-License-Identifier: BSD-3-Clause */
/* Several processes have the same rsockets: by fork, vfork, exec and SCM_RIGHTS. Any of them can use an
 * rsocket that carries no stream yet; a stream stays with the process that began it.
 *
 *     test_prefork [ACCEPTS [FORKS]]    how many connections a worker accepts, how many forks there are
 *     test_prefork ROLE NUMBER NUMBER   what one of the tests starts by exec */
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

enum { WORKERS = 4, MOST_SECONDS = 120, ANY_NUMBER = 100 };

static int accepts = 50;
static int forks = 20;
static const char *self;

/* ThreadSanitizer stops a child that makes threads after a fork with threads; that is what is tested here. A
 * process that ends while it has threads, which each such child is to ThreadSanitizer, sleeps a second
 * before. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "die_after_fork=0:atexit_sleep_ms=0";
}

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
    /* A thread that waited in raccept would answer the client in its next wait. */
    assert_int_equal(rfcntl(listener, F_SETFL, O_NONBLOCK), 0);
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

/* ---- exec: the new program has only the descriptor's number ---- */

static void run_peer_on(int fd, const char *role, int count) {
    must(dup2(fd, ANY_NUMBER) == ANY_NUMBER);
    char numbers[2][16];
    snprintf(numbers[0], sizeof(numbers[0]), "%d", ANY_NUMBER);
    snprintf(numbers[1], sizeof(numbers[1]), "%d", count);
    execl(self, self, role, numbers[0], numbers[1], (char *)NULL);
    _exit(127);
}

/* start_peer and exec run these. */
static void be_server_of_one(int fd) {
    must(rread(fd, &(char){0}, 1) == -1 && errno == EBADF);
    must(radopt(fd) == 0);
    must(radopt(fd) == -1 && errno == EEXIST);
    must(serve(fd));
    must(rclose(fd) == 0);
}

static void be_server(int listener, int count) {
    must(radopt(listener) == 0);
    for (int i = 0; i < count; ++i) {
        const int fd = raccept(listener, NULL, NULL);
        must(fd >= 0);
        must(serve(fd));
        must(rclose(fd) == 0);
    }
    must(rclose(listener) == 0);
}

static void a_program_serves_what_another_accepted(void **state) {
    (void)state;
    pthread_t thread;
    struct clients clients = {.count = 2};
    const int listener = listening_rsocket(&clients.port);
    start(&thread, are_clients, &clients);
    for (int i = 0; i < clients.count; ++i) {
        const int fd = raccept(listener, NULL, NULL);
        assert_true(fd >= 0);
        const pid_t child = fork_child();
        assert_true(child >= 0);
        if (child == 0) {
            run_peer_on(fd, "serve one", 1);
        }
        assert_int_equal(rclose(fd), 0);
        assert_int_equal(end_of_peer(child), 0);
    }
    join(thread);
    assert_all_were_served(&clients);
    assert_int_equal(rclose(listener), 0);
}

static void a_program_listens_where_another_began_to(void **state) {
    (void)state;
    pthread_t thread;
    struct clients clients = {.count = 3};
    const int listener = listening_rsocket(&clients.port);
    const pid_t child = fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        run_peer_on(listener, "serve", clients.count);
    }
    assert_int_equal(rclose(listener), 0);
    start(&thread, are_clients, &clients);
    join(thread);
    assert_all_were_served(&clients);
    assert_int_equal(end_of_peer(child), 0);
}

/* Any program can continue a connection in TCP. */
static void be_heir_of_tcp(int fd, int blocks) {
    int facts[2] = {-1, -1};
    socklen_t size = sizeof(int);
    must(radopt(fd) == 0);
    must(rgetsockopt(fd, SOL_RDMA, RDMA_MODE, &facts[0], &size) == 0 && facts[0] == RDMA_MODE_TCP);
    must(rgetsockopt(fd, SOL_RDMA, RDMA_MODE_REASON, &facts[1], &size) == 0 &&
         facts[1] == RDMA_REASON_ADOPTED);
    must(rfcntl(fd, F_GETFL) == (O_RDWR | (blocks ? 0 : O_NONBLOCK)));
    must(rfcntl(fd, F_SETFL, 0) == 0 && serve(fd) && rclose(fd) == 0);
}

static void a_program_goes_on_in_tcp(void **state) {
    (void)state;
    uint16_t port = 0;
    uint64_t question = 1;
    const int listener = listening_rsocket(&port);
    const struct sockaddr_in address = loopback_at(port);
    for (int blocks = 0; blocks < 2; ++blocks) {
        const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(client, (const struct sockaddr *)&address, sizeof(address)), 0);
        const int fd = raccept(listener, NULL, NULL);
        assert_int_equal(send(client, &question, sizeof(question), 0), sizeof(question));
        assert_int_equal(rrecv(fd, &question, sizeof(question), MSG_WAITALL), sizeof(question));
        assert_int_equal(rfcntl(fd, F_SETFL, blocks ? 0 : O_NONBLOCK), 0);
        const pid_t child = fork_child();
        assert_true(child >= 0);
        if (child == 0) {
            run_peer_on(fd, "go on", blocks);
        }
        assert_int_equal(rclose(fd), 0);
        assert_int_equal(send(client, &question, sizeof(question), 0), sizeof(question));
        assert_int_equal(shutdown(client, SHUT_WR), 0);
        uint64_t answer = 0;
        assert_int_equal(recv(client, &answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
        assert_true(answer == ~question);
        assert_int_equal(recv(client, &answer, 1, 0), 0);
        close(client);
        assert_int_equal(end_of_peer(child), 0);
    }
    assert_int_equal(rclose(listener), 0);
}

/* A duplicate is the same to this program as to another one. The client has requested a stream first, and was
 * refused. */
static void a_client_that_was_refused_is_adopted_as_tcp(void **state) {
    (void)state;
    struct sockaddr_in address = loopback_at(0);
    socklen_t size = sizeof(address);
    char byte = 0;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 2), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    const int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_fails(rconnect(fd, (struct sockaddr *)&address, size), EINPROGRESS);
    close(accept(listener, NULL, NULL));
    const int asking = dup(fd);
    assert_fails(radopt(asking), ECONNRESET);
    close(asking);
    struct pollfd entries[2] = {{.fd = fd, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
    assert_int_equal(rpoll(entries, 2, 30000), 1);
    const int accepted = accept(listener, NULL, NULL);
    assert_int_equal(send(accepted, "ab", 2, 0), 2);
    assert_int_equal(rpoll(entries, 1, 30000), 1);
    assert_int_equal(rrecv(fd, &byte, 1, 0), 1);
    const int adopted = dup(fd);
    assert_int_equal(radopt(adopted), 0);
    assert_int_equal(rrecv(adopted, &byte, 1, 0), 1);
    assert_int_equal(byte, 'b');
    assert_int_equal(rclose(adopted), 0);
    assert_int_equal(rclose(fd), 0);
    close(accepted);
    close(listener);
}

/* No process can use the rest of a stream that another began. */
static void be_heir_of_a_stream(int fd) {
    must(radopt(fd) == -1 && errno == ECONNRESET);
    must(rread(fd, &(char){0}, 1) == -1 && errno == EBADF);
}

static void a_program_does_not_get_a_stream(void **state) {
    (void)state;
    for (int i = 0; i < 2; ++i) {
        const pid_t child = fork_child();
        assert_true(child >= 0);
        if (child == 0) {
            run_peer_on(undisturbed[i], "inherit", 0);
        }
        assert_int_equal(end_of_peer(child), 0);
    }
}

static void what_cannot_become_an_rsocket(void **state) {
    (void)state;
    int ends_of_pipe[2];
    assert_int_equal(pipe(ends_of_pipe), 0);
    const int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    const int local = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_fails(radopt(-1), EBADF);
    assert_fails(radopt(ends_of_pipe[0]), ENOTSOCK);
    assert_fails(radopt(datagrams), ENOTSUP);
    assert_fails(radopt(local), ENOTSUP);
    assert_fails(radopt(undisturbed[0]), EEXIST);
    close(ends_of_pipe[0]);
    close(ends_of_pipe[1]);
    close(datagrams);
    close(local);
}

/* A socket of the kernel that is not connected yet becomes an rsocket like any other, which blocks. */
static void a_socket_becomes_an_rsocket(void **state) {
    (void)state;
    struct sockaddr_in address = loopback_at(0);
    socklen_t size = sizeof(address);
    int fds[2] = {socket(AF_INET, SOCK_STREAM, 0), -1};
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(radopt(fds[0]), 0);
    assert_int_equal(radopt(listener), 0);
    assert_int_equal(rfcntl(fds[0], F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(rfcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(rbind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(rlisten(listener, 1), 0);
    assert_int_equal(rgetsockname(listener, (struct sockaddr *)&address, &size), 0);
    connect_rsocket(fds, listener, ntohs(address.sin_port));
    assert_int_equal(rclose(fds[0]), 0);
    assert_int_equal(rclose(fds[1]), 0);
    assert_int_equal(rclose(listener), 0);
}

/* ---- SCM_RIGHTS ---- */

enum { SENT = 2 };

static void send_descriptors(int through, const int fds[SENT]) {
    char byte = 0;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(SENT * sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    control.header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(SENT * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), fds, SENT * sizeof(int));
    assert_int_equal(sendmsg(through, &message, 0), 1);
}

static void be_receiver(int through, int count) {
    int fds[SENT];
    char byte = 0;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(SENT * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    must(recvmsg(through, &message, 0) == 1);
    must(CMSG_FIRSTHDR(&message) != NULL && control.header.cmsg_type == SCM_RIGHTS);
    memcpy(fds, CMSG_DATA(&control.header), sizeof(fds));
    be_server_of_one(fds[1]);
    be_server(fds[0], count);
}

static void a_process_gets_rsockets_from_another(void **state) {
    (void)state;
    skip_where(CHILDREN_MAKE_NO_THREADS);
    enum { CLIENTS = 3 };
    int through[2];
    pthread_t thread;
    struct clients clients = {.count = CLIENTS};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, through), 0);
    const pid_t child = fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        run_peer_on(through[1], "receive", CLIENTS - 1);
    }
    int fds[SENT] = {listening_rsocket(&clients.port), -1};
    start(&thread, are_clients, &clients);
    fds[1] = raccept(fds[0], NULL, NULL);
    assert_true(fds[1] >= 0);
    send_descriptors(through[0], fds);
    assert_int_equal(rclose(fds[0]), 0);
    assert_int_equal(rclose(fds[1]), 0);
    join(thread);
    assert_all_were_served(&clients);
    assert_int_equal(end_of_peer(child), 0);
    close(through[0]);
    close(through[1]);
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

static int be_peer(const char *role, int fd, int count) {
    alarm(MOST_SECONDS);
    if (strcmp(role, "serve one") == 0) {
        be_server_of_one(fd);
    } else if (strcmp(role, "serve") == 0) {
        be_server(fd, count);
    } else if (strcmp(role, "inherit") == 0) {
        be_heir_of_a_stream(fd);
    } else if (strcmp(role, "go on") == 0) {
        be_heir_of_tcp(fd, count);
    } else {
        be_receiver(fd, count);
    }
    return 0;
}

int main(int argc, char *argv[]) {
    self = argv[0];
    if (argc == 4) {
        return be_peer(argv[1], atoi(argv[2]), atoi(argv[3]));
    }
    accepts = argc > 1 ? atoi(argv[1]) : accepts;
    forks = argc > 2 ? atoi(argv[2]) : forks;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(workers_accept_from_one_listener, begin, end),
        cmocka_unit_test_setup_teardown(a_child_serves_what_its_parent_accepted, begin, end),
        cmocka_unit_test_setup_teardown(a_stream_is_of_the_process_that_began_it, begin, end),
        cmocka_unit_test_setup_teardown(a_child_binds_listens_and_connects, begin, end),
        cmocka_unit_test_setup_teardown(a_lost_stream_is_told_once, begin, end),
        cmocka_unit_test_setup_teardown(a_vforked_child_closes_everything, begin, end),
        cmocka_unit_test_setup_teardown(a_program_serves_what_another_accepted, begin, end),
        cmocka_unit_test_setup_teardown(a_program_listens_where_another_began_to, begin, end),
        cmocka_unit_test_setup_teardown(a_program_goes_on_in_tcp, begin, end),
        cmocka_unit_test_setup_teardown(a_client_that_was_refused_is_adopted_as_tcp, begin, end),
        cmocka_unit_test_setup_teardown(a_program_does_not_get_a_stream, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_become_an_rsocket, begin, end),
        cmocka_unit_test_setup_teardown(a_socket_becomes_an_rsocket, begin, end),
        cmocka_unit_test_setup_teardown(a_process_gets_rsockets_from_another, begin, end),
        cmocka_unit_test_setup_teardown(each_thread_has_a_listener_of_its_own, begin, end),
        cmocka_unit_test_setup_teardown(a_child_is_made_while_threads_are_in_calls, begin, end),
    };
    return cmocka_run_group_tests_name("prefork", tests, NULL, NULL);
}
