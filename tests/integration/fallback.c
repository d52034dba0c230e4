/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Client and server are our rsockets, plain TCP or librdmacm's rsockets, at least one of them ours, with
 * every kind of first byte: every byte arrives, the connection has the best mode that both ends allow, and no
 * call waits long. Each end is a process (fallback_end.c).
 *
 *     test_fallback END [END_OF_LIBRDMACM PRELOAD]      the last two where librdmacm's rsockets can run
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "../api/test.h"
#include "fallback.h"

/* Last: they assert. */
#include "../api/rsockets.h"
#include "../sockets.h"

enum kind { Ours, Tcp, Librdmacm };
static const char *const kinds[] = {"ours", "tcp", "librdmacm"};
static const struct {
    enum kind client;
    enum kind server;
} pairs[] = {{Ours, Ours}, {Ours, Tcp}, {Tcp, Ours}, {Ours, Librdmacm}, {Librdmacm, Ours}};
enum { PAIRS = sizeof(pairs) / sizeof(pairs[0]), FAMILIES = 2 };
static const char *const families[FAMILIES] = {"4", "6"};

static const char *const titles[BEHAVIOURS] = {"client first",   "server first",  "client garbage",
                                               "server garbage", "client MPA...", "server MPA...",
                                               "silent",         "half-closed"};

static char *end_program;
static char *librdmacm_program;
static char *preload;

/* ---- processes ---- */

struct end {
    pid_t process;
    int output;
};

static struct end start(enum kind kind, int family, const uint16_t *ports) {
    char numbers[BEHAVIOURS][8];
    const char *arguments[4 + BEHAVIOURS] = {kind == Librdmacm ? librdmacm_program : end_program,
                                             kind == Tcp ? "tcp" : "rsockets", families[family]};
    for (int i = 0; ports != NULL && i < BEHAVIOURS; ++i) {
        snprintf(numbers[i], sizeof(numbers[i]), "%u", ports[i]);
        arguments[3 + i] = numbers[i];
    }
    int through[2];
    assert_int_equal(pipe2(through, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(through[1], STDOUT_FILENO);
        if (kind == Librdmacm) {
            setenv("LD_PRELOAD", preload, 1);
            setenv("SOFTRDMA_RSOCKETS", "librdmacm", 1);
        }
        execv(arguments[0], (char *const *)arguments);
        _exit(127);
    }
    assert_true(child > 0);
    close(through[1]);
    return (struct end){.process = child, .output = through[0]};
}

static bool hear(struct end end, void *bytes, size_t size) {
    for (size_t got = 0; got < size;) {
        const ssize_t count = read(end.output, (char *)bytes + got, size - got);
        if (count <= 0) {
            return false;
        }
        got += (size_t)count;
    }
    return true;
}

static void finish(struct end end) {
    close(end.output);
    assert_int_equal(end_of_peer(end.process), 0);
}

/* ---- the matrix ---- */

struct expected {
    int mode;
    int reason;
};

/* No connection takes longer. An end waits a second for the rest of a key, and for a server that does not
 * answer a request; the reason tells whether it did. */
#define MOST_MILLISECONDS (10000.0 * RPMA_TEST_SLOWNESS)

static struct expected expected_of(enum kind self, bool is_server, enum kind other,
                                   enum behaviour behaviour) {
    const bool server_is_first =
        behaviour == ServerFirst || behaviour == ServerGarbage || behaviour == ServerLikeKey;
    if (self != Ours) {
        return (struct expected){-1, 0};
    }
    if (other != Tcp) {
        return (struct expected){RDMA_MODE_RDMA, RDMA_REASON_NONE};
    }
    if (is_server) {
        return (struct expected){RDMA_MODE_TCP,
                                 server_is_first ? RDMA_REASON_SPOKE_FIRST : RDMA_REASON_PEER_SPEAKS_TCP};
    }
    return (struct expected){RDMA_MODE_TCP, behaviour == Silent || behaviour == ServerLikeKey
                                                ? RDMA_REASON_PEER_SILENT
                                                : RDMA_REASON_PEER_SPEAKS_TCP};
}

struct row {
    enum kind client;
    enum kind server;
    int family;
    struct end ends[2];
    struct report reports[2][BEHAVIOURS];
};

static const char *mode_text(int mode) {
    return mode == RDMA_MODE_RDMA ? "rdma" : mode == RDMA_MODE_TCP ? "tcp" : mode < 0 ? "-" : "open";
}

static void print_row(const struct row *row) {
    printf("%-10s %-10s IPv%s ", kinds[row->client], kinds[row->server], families[row->family]);
    for (int i = 0; i < BEHAVIOURS; ++i) {
        const struct report *const reports[2] = {&row->reports[0][i], &row->reports[1][i]};
        const int mode = row->client == Ours ? reports[0]->mode : reports[1]->mode;
        char cell[32];
        snprintf(cell, sizeof(cell), "%s %.1f%s", mode_text(mode), reports[0]->milliseconds,
                 reports[0]->good && reports[1]->good ? "" : " BAD");
        printf(" %-14s", cell);
    }
    printf("\n");
}

static void assert_row(const struct row *row) {
    for (int side = 0; side < 2; ++side) {
        for (int i = 0; i < BEHAVIOURS; ++i) {
            const struct report *const report = &row->reports[side][i];
            const struct expected expected =
                expected_of(side == 0 ? row->client : row->server, side == 1,
                            side == 0 ? row->server : row->client, (enum behaviour)i);
            if (!report->good || report->mode != expected.mode || report->reason != expected.reason ||
                report->milliseconds > MOST_MILLISECONDS) {
                fail_msg(
                    "%s to %s, IPv%s, %s, the %s: good %d, mode %d (expected %d), reason %d (expected "
                    "%d), %.1f ms (expected at most %.0f)",
                    kinds[row->client], kinds[row->server], families[row->family], titles[i],
                    side == 0 ? "client" : "server", report->good, report->mode, expected.mode,
                    report->reason, expected.reason, report->milliseconds, MOST_MILLISECONDS);
            }
        }
    }
}

/* The rows run at the same time. */
static void every_byte_arrives_whoever_speaks_first(void **state) {
    (void)state;
    static struct row rows[PAIRS * FAMILIES];
    int count = 0;
    for (int i = 0; i < PAIRS * FAMILIES; ++i) {
        struct row *const row = &rows[count];
        *row = (struct row){.client = pairs[i / FAMILIES].client,
                            .server = pairs[i / FAMILIES].server,
                            .family = i % FAMILIES};
        if ((row->client == Librdmacm || row->server == Librdmacm) && librdmacm_program == NULL) {
            continue;
        }
        uint16_t ports[BEHAVIOURS];
        row->ends[1] = start(row->server, row->family, NULL);
        assert_true(hear(row->ends[1], ports, sizeof(ports)));
        row->ends[0] = start(row->client, row->family, ports);
        ++count;
    }
    for (int i = 0; i < count; ++i) {
        for (int side = 0; side < 2; ++side) {
            (void)hear(rows[i].ends[side], rows[i].reports[side], sizeof(rows[i].reports[side]));
        }
    }
    printf("\nclient     server     family");
    for (int i = 0; i < BEHAVIOURS; ++i) {
        printf(" %-14s", titles[i]);
    }
    printf("\n");
    for (int i = 0; i < count; ++i) {
        print_row(&rows[i]);
    }
    printf(
        "(the way that the bytes took, and the client's milliseconds from its socket to its last byte)\n\n");
    for (int i = 0; i < count; ++i) {
        assert_row(&rows[i]);
        finish(rows[i].ends[0]);
        finish(rows[i].ends[1]);
    }
}

/* ---- a plain client's delay at a server that speaks first ---- */

enum { TIMES = 51 };

static void *greet_with_rsockets(void *listener) {
    for (int i = 0; i < TIMES; ++i) {
        const int fd = raccept(*(int *)listener, NULL, NULL);
        (void)rsend(fd, "220", 3, 0);
        (void)rrecv(fd, &(char){0}, 1, 0);
        (void)rclose(fd);
    }
    return NULL;
}

static void *greet_in_tcp(void *listener) {
    for (int i = 0; i < TIMES; ++i) {
        const int fd = accept(*(int *)listener, NULL, NULL);
        (void)send(fd, "220", 3, MSG_NOSIGNAL);
        (void)recv(fd, &(char){0}, 1, 0);
        (void)close(fd);
    }
    return NULL;
}

static int compare(const void *a, const void *b) {
    const double difference = *(const double *)a - *(const double *)b;
    return difference < 0 ? -1 : difference > 0;
}

struct delays {
    double first;
    double least;
    double median;
};

/* In milliseconds, from connect to the greeting. */
static struct delays measure(void *(*greet)(void *), int listener, uint16_t port) {
    double times[TIMES];
    pthread_t server;
    char greeting[3];
    const struct sockaddr_in address = loopback_at(port);
    assert_int_equal(pthread_create(&server, NULL, greet, &listener), 0);
    for (int i = 0; i < TIMES; ++i) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const double before = seconds();
        assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(recv(fd, greeting, sizeof(greeting), MSG_WAITALL), sizeof(greeting));
        times[i] = (seconds() - before) * 1e3;
        close(fd);
    }
    assert_int_equal(pthread_join(server, NULL), 0);
    struct delays delays = {.first = times[0]};
    qsort(times, TIMES, sizeof(times[0]), compare);
    delays.least = times[0];
    delays.median = times[TIMES / 2];
    return delays;
}

static void a_plain_client_soon_hears_a_server_that_speaks_first(void **state) {
    (void)state;
    uint16_t port = 0;
    int listener = listening_socket(&port);
    const struct delays plain = measure(greet_in_tcp, listener, port);
    close(listener);
    listener = listening_rsocket(&port);
    const struct delays ours = measure(greet_with_rsockets, listener, port);
    assert_int_equal(rclose(listener), 0);
    printf(
        "a plain client hears a server that speaks first after %.3f ms (median of %d; the first time %.3f "
        "ms); where the server speaks plain TCP, after %.3f ms\n",
        ours.median, TIMES, ours.first, plain.median);
    /* The grace is 10 ms. Each connection would wait for it if the server forgot its clients. */
    assert_true(ours.least < plain.least + 10);
}

int main(int count, char **arguments) {
    if (count != 2 && count != 4) {
        fprintf(stderr, "usage: %s END [END_OF_LIBRDMACM PRELOAD]\n", arguments[0]);
        return 2;
    }
    end_program = arguments[1];
    librdmacm_program = count == 4 ? arguments[2] : NULL;
    preload = arguments[count - 1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_arrives_whoever_speaks_first),
        cmocka_unit_test(a_plain_client_soon_hears_a_server_that_speaks_first),
    };
    return cmocka_run_group_tests_name("fallback", tests, NULL, NULL);
}
