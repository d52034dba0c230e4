/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests how streams end whose peers do not end them: the process is killed in the middle of its work, or the
 * network path is cut. (tests/api/rsocket_errors.c tests peers that stop, or are killed while they are idle.)
 *
 *     test_ends [KILLS [SEED]] */
#define _GNU_SOURCE
#include <dirent.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#include "../api/test.h"

/* This is included last, because it asserts. */
#include "../api/rsockets.h"
#include "../forks.h"

enum { CLIENTS = 4, MOST_BYTES = 4096, MOST_SECONDS = 240 };

static int kills = 25;
static uint64_t seed = 1;

SET_TSAN_OPTIONS("die_after_fork=0")

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

static unsigned char byte_at(uint64_t stream, uint64_t place) {
    return (unsigned char)((stream * 131 + place) * 2654435761U >> 16);
}

static pid_t fork_child(void) {
    fflush(NULL);
    const pid_t made = fork();
    assert_true(made >= 0);
    if (made == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(MOST_SECONDS);
    }
    return made;
}

/* ---- kills under load ---- */

struct client {
    pid_t process;
    int fd;
    uint64_t number;
    uint64_t place; /* in what it sends */
    bool is_killed;
    double killed; /* when, by the clock */
};

static uint16_t port;
static int listener;
static struct client clients[CLIENTS];
static uint64_t made;
static pid_t *dead;
static int deaths;

/* Sends, and compares the bytes that come back, until it is killed. */
static _Noreturn void be_client(uint64_t number) {
    static unsigned char sent[MOST_BYTES];
    static unsigned char back[MOST_BYTES];
    uint64_t state = number;
    uint64_t place = 0;
    const struct sockaddr_in address = loopback_at(port);
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    if (rconnect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        _exit(1);
    }
    while (true) {
        const size_t count = next_random(&state) % MOST_BYTES + 1;
        for (size_t i = 0; i < count; ++i) {
            sent[i] = byte_at(number, place++);
        }
        if (rsend(fd, sent, count, 0) != (ssize_t)count ||
            rrecv(fd, back, count, MSG_WAITALL) != (ssize_t)count || memcmp(sent, back, count) != 0) {
            _exit(2);
        }
    }
}

static void start_client(struct client *client) {
    *client = (struct client){.number = ++made};
    client->process = fork_child();
    if (client->process == 0) {
        be_client(client->number);
    }
    client->fd = raccept(listener, NULL, NULL);
    assert_true(client->fd >= 0);
}

/* The only error may be ECONNRESET, and it has to come. */
static void bury(struct client *client, int error) {
    assert_true(client->is_killed);
    assert_int_equal(error, ECONNRESET);
    assert_true(seconds() - client->killed < 30);
    assert_int_equal(rclose(client->fd), 0);
    assert_int_equal(end_of_peer(client->process), -SIGKILL);
    dead[deaths++] = client->process;
}

/* Returns false when the client is gone. */
static bool echo(struct client *client) {
    static unsigned char bytes[MOST_BYTES];
    const ssize_t got = rrecv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) {
        return true;
    }
    assert_int_not_equal(got, 0);
    for (ssize_t i = 0; i < got; ++i) {
        assert_int_equal(bytes[i], byte_at(client->number, client->place++));
    }
    if (got < 0 || rsend(client->fd, bytes, (size_t)got, 0) != got) {
        bury(client, errno);
        return false;
    }
    return true;
}

/* The files of ended processes are removed when another process begins. A running process may have the number
 * of an ended one. */
static void assert_registry_is_clean(void) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/dev/shm/rsockets-%u", geteuid());
    DIR *const folder = opendir(path);
    if (folder == NULL) {
        return;
    }
    int files = 0;
    for (const struct dirent *file = readdir(folder); file != NULL; file = readdir(folder)) {
        unsigned long long numbers[4]; /* user, namespace, process, inode */
        if (sscanf(file->d_name, "rsocket-%llu-%llu-%llu-%llu", &numbers[0], &numbers[1], &numbers[2],
                   &numbers[3]) == 4) {
            ++files;
            for (int i = 0; i < deaths; ++i) {
                assert_true(dead[i] != (pid_t)numbers[2] || kill(dead[i], 0) == 0);
            }
        }
    }
    assert_true(files >= 1 + CLIENTS); /* it knows its own file and its clients' by their names */
    closedir(folder);
}

static void clients_that_are_killed_at_any_moment(void **state) {
    (void)state;
    skip_where(CHILDREN_MAKE_NO_THREADS);
    uint64_t random = seed;
    print_message("%d kills, seed %llu\n", kills, (unsigned long long)seed);
    dead = calloc((size_t)kills + CLIENTS, sizeof(*dead));
    assert_non_null(dead);
    listener = listening_rsocket(&port);
    for (int i = 0; i < CLIENTS; ++i) {
        start_client(&clients[i]);
    }
    int left = kills;
    while (deaths < kills) {
        struct pollfd entries[CLIENTS];
        if (left != 0 && next_random(&random) % 8 == 0) {
            struct client *const victim = &clients[next_random(&random) % CLIENTS];
            if (!victim->is_killed) {
                victim->is_killed = true;
                victim->killed = seconds();
                assert_int_equal(kill(victim->process, SIGKILL), 0);
                --left;
            }
        }
        for (int i = 0; i < CLIENTS; ++i) {
            entries[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
        }
        assert_true(rpoll(entries, CLIENTS, 30000) > 0);
        for (int i = 0; i < CLIENTS; ++i) {
            if (entries[i].revents != 0 && !echo(&clients[i])) {
                start_client(&clients[i]);
            }
        }
    }
    assert_registry_is_clean();
    for (int i = 0; i < CLIENTS; ++i) {
        assert_int_equal(kill(clients[i].process, SIGKILL), 0);
        assert_int_equal(rclose(clients[i].fd), 0);
        assert_int_equal(end_of_peer(clients[i].process), -SIGKILL);
    }
    assert_int_equal(rclose(listener), 0);
    free(dead);
}

/* ---- a network path that is cut ---- */

static bool run(const char *format, int number) {
    char command[256];
    snprintf(command, sizeof(command), format, number);
    return system(command) == 0;
}

/* In a network of its own it connects as often as it is told to, sends a byte on each connection, and then
 * waits. */
static _Noreturn void be_neighbour(int from, int to, int streams) {
    char byte = 0;
    int fds[8];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = 0};
    if (unshare(CLONE_NEWNET) != 0 || write(to, "x", 1) != 1 ||
        read(from, &port, sizeof(port)) != sizeof(port) ||
        !run("ip address add 192.0.2.%d/24 dev veth1 && ip link set veth1 up", 2)) {
        _exit(1);
    }
    address.sin_port = htons(port);
    inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
    for (int i = 0; i < streams; ++i) {
        fds[i] = rsocket(AF_INET, SOCK_STREAM, 0);
        if (rconnect(fds[i], (const struct sockaddr *)&address, sizeof(address)) != 0 ||
            rsend(fds[i], "x", 1, 0) != 1) {
            _exit(2);
        }
    }
    /* From here on it receives nothing, and its kernel reports nothing to the peer. */
    if (read(from, &byte, 1) != 1 || !run("ip address del 192.0.2.%d/24 dev veth1", 2) ||
        write(to, "x", 1) != 1) {
        _exit(3);
    }
    (void)!read(from, &byte, 1); /* until it is killed */
    _exit(4);
}

/* While bytes are not acknowledged there is no keep-alive, only a user timeout. */
static void await_acknowledgement(int fd) {
    const double deadline = seconds() + 40;
    int left = 1;
    while (left != 0) {
        assert_int_equal(ioctl(fd, SIOCOUTQ, &left), 0);
        assert_true(seconds() < deadline);
        assert_int_equal(rpoll(NULL, 0, left != 0), 0);
    }
}

static void assert_ends_with(int fd, int error) {
    char byte = 0;
    assert_fails(rrecv(fd, &byte, 1, 0), error);
    assert_int_equal(rclose(fd), 0);
}

/* Runs in a child, whose network the other tests of this program do not see. */
static void be_end_of_a_way(void) {
    enum { KEPT_ALIVE, USER_TIMEOUT, LINGERS, STREAMS };
    const int one = 1;
    const unsigned milliseconds = 500;
    const struct linger second = {.l_onoff = 1, .l_linger = 1};
    int to[2];
    int from[2];
    int fds[STREAMS];
    char byte = 0;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    const pid_t neighbour = fork_child();
    if (neighbour == 0) {
        be_neighbour(to[0], from[1], STREAMS);
    }
    assert_int_equal(read(from[0], &byte, 1), 1);
    if (!run("ip link add veth0 type veth peer name veth1 address 02:00:00:00:00:02 netns %d", neighbour)) {
        print_message("SKIPPED, nothing was tested: this kernel makes no veth pair\n");
        kill(neighbour, SIGKILL);
        exit(77);
    }
    /* With an entry that stays the kernel does not look for the neighbour, whose absence would be another
     * error, as for a TCP socket. */
    assert_true(
        run("ip address add 192.0.2.1/24 dev veth0 && ip link set veth0 up && "
            "ip neighbour replace 192.0.2.%d lladdr 02:00:00:00:00:02 dev veth0 nud permanent",
            2));
    inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
    listener = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rbind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(rlisten(listener, 8), 0);
    assert_int_equal(rgetsockname(listener, (struct sockaddr *)&address, &size), 0);
    port = ntohs(address.sin_port);
    assert_int_equal(write(to[1], &port, sizeof(port)), sizeof(port));
    for (int i = 0; i < STREAMS; ++i) {
        fds[i] = raccept(listener, NULL, NULL);
        assert_true(fds[i] >= 0);
        assert_int_equal(rrecv(fds[i], &byte, 1, 0), 1);
        await_acknowledgement(fds[i]);
    }
    assert_int_equal(rsetsockopt(fds[KEPT_ALIVE], SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)), 0);
    assert_int_equal(rsetsockopt(fds[KEPT_ALIVE], IPPROTO_TCP, TCP_USER_TIMEOUT, &(int){0}, sizeof(int)), 0);
    assert_int_equal(rsetsockopt(fds[KEPT_ALIVE], IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one)), 0);
    assert_int_equal(rsetsockopt(fds[KEPT_ALIVE], IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one)), 0);
    assert_int_equal(rsetsockopt(fds[KEPT_ALIVE], IPPROTO_TCP, TCP_KEEPCNT, &one, sizeof(one)), 0);
    assert_int_equal(
        rsetsockopt(fds[USER_TIMEOUT], IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds)),
        0);
    assert_int_equal(rsetsockopt(fds[LINGERS], SOL_SOCKET, SO_LINGER, &second, sizeof(second)), 0);
    assert_int_equal(write(to[1], "x", 1), 1);
    assert_int_equal(read(from[0], &byte, 1), 1);
    /* The peer does not answer any more. */
    assert_int_equal(rsend(fds[USER_TIMEOUT], "y", 1, 0), 1);
    assert_int_equal(rsend(fds[LINGERS], "y", 1, 0), 1);
    assert_int_equal(rclose(fds[LINGERS]), 0);
    assert_ends_with(fds[USER_TIMEOUT], ETIMEDOUT);
    assert_ends_with(fds[KEPT_ALIVE], ETIMEDOUT);
    assert_int_equal(rclose(listener), 0);
    kill(neighbour, SIGKILL);
    assert_int_equal(end_of_peer(neighbour), -SIGKILL);
}

static void a_way_that_is_cut_is_a_time_out(void **state) {
    (void)state;
    const pid_t child = fork_child();
    if (child == 0) {
        setenv("CMOCKA_TEST_ABORT", "1", 1);
        if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
            print_message("SKIPPED, nothing was tested: no network of its own for a link: %s\n",
                          strerror(errno));
            exit(77);
        }
        be_end_of_a_way();
        exit(0); /* and not _exit(2), which does not join the device's thread */
    }
    const int end = end_of_peer(child);
    if (end == 77) {
        skip();
    }
    assert_int_equal(end, 0);
}

int main(int argc, char *argv[]) {
    alarm(MOST_SECONDS);
    kills = argc > 1 ? atoi(argv[1]) : kills;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_way_that_is_cut_is_a_time_out),
        cmocka_unit_test(clients_that_are_killed_at_any_moment),
    };
    return cmocka_run_group_tests_name("ends", tests, NULL, NULL);
}
