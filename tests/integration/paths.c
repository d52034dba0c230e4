/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a connection whose networks fail, for paths.sh: `paths KIND ADDRESS [PORT]`.
 *
 *     serve   lets clients write and read its memory; prints "port NUMBER", and "lost ERRNO" when the
 * connection ends write   over librpma: an operation writes a block, flushes it and reads it back stream over
 * rsockets: an operation sends a block and receives it again
 *
 * A client does as each line of its standard input says, and prints "done NUMBER PATHS MILLISECONDS": the
 * operations, the paths of the connection, and how long the longest operation took.
 *
 *     more NUMBER   does so many operations
 *     paths NUMBER  does operations until the connection has so many paths
 *     until-lost    does operations until one fails, and prints "lost ERRNO MILLISECONDS": how long that one
 * took
 */
#include <arpa/inet.h>
#include <errno.h>
#include <librpma.h>
#include <rpma/rsocket.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { block_bytes = 4096 };

static char memory[2 * block_bytes] __attribute__((aligned(4096)));
static char *const sent = memory;
static char *const got = memory + block_bytes;

static void need(bool done, const char *what) {
    if (!done) {
        fprintf(stderr, "paths: %s failed\n", what);
        exit(1);
    }
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Each block differs from the one before in every word. */
static void fill(uint64_t number) {
    uint64_t *const words = (uint64_t *)sent;
    for (uint64_t i = 0; i < block_bytes / sizeof(*words); ++i) {
        words[i] = (number + 1) * 0x9e3779b97f4a7c15ULL + i;
    }
}

/* ---- the connection of librpma ---- */

static struct rpma_peer *peer;
static struct rpma_conn *conn;
static struct rpma_mr_local *local;
static struct rpma_mr_remote *remote;

static void open_device(const char *address, enum rpma_util_ibv_context_type type) {
    struct ibv_context *device = NULL;
    need(rpma_utils_get_ibv_context(address, type, &device) == 0, "the device");
    need(rpma_peer_new(device, &peer) == 0, "rpma_peer_new");
}

static void serve(const char *address) {
    struct rpma_ep *ep = NULL;
    char port[8];
    open_device(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
    need(rpma_mr_reg(peer, memory, sizeof(memory),
                     RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
                     &local) == 0,
         "rpma_mr_reg");
    for (int number = 20000 + getpid() % 10000; ep == NULL; ++number) {
        need(number < 32000, "a free port");
        snprintf(port, sizeof(port), "%d", number);
        (void)rpma_ep_listen(peer, "0.0.0.0", port, &ep);
    }
    printf("port %s\n", port);
    fflush(stdout);

    struct rpma_conn_req *request = NULL;
    need(rpma_ep_next_conn_req(ep, NULL, &request) == 0, "rpma_ep_next_conn_req");
    static char descriptor[64];
    size_t size = 0;
    need(rpma_mr_get_descriptor_size(local, &size) == 0 && size <= sizeof(descriptor) &&
             rpma_mr_get_descriptor(local, descriptor) == 0,
         "the descriptor");
    const struct rpma_conn_private_data data = {.ptr = descriptor, .len = (uint8_t)size};
    need(rpma_conn_req_connect(&request, &data, &conn) == 0, "rpma_conn_req_connect");
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    need(rpma_conn_next_event(conn, &event) == 0 && event == RPMA_CONN_ESTABLISHED, "the connection");
    need(rpma_conn_next_event(conn, &event) == 0, "the end");
    int error = 0;
    need(rpma_conn_get_error(conn, &error) == 0, "rpma_conn_get_error");
    printf("lost %d\n", error);
}

static void connect_to(const char *address, const char *port) {
    struct rpma_conn_req *request = NULL;
    struct rpma_conn_private_data data = {NULL, 0};
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    open_device(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
    need(rpma_mr_reg(peer, memory, sizeof(memory), RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST,
                     &local) == 0,
         "rpma_mr_reg");
    need(rpma_conn_req_new(peer, address, port, NULL, &request) == 0 &&
             rpma_conn_req_connect(&request, NULL, &conn) == 0 && rpma_conn_next_event(conn, &event) == 0 &&
             event == RPMA_CONN_ESTABLISHED,
         "the connection");
    need(rpma_conn_get_private_data(conn, &data) == 0 && data.ptr != NULL &&
             rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote) == 0,
         "the server's descriptor");
}

/* Returns false when the connection is lost. */
static bool complete(int operations) {
    struct rpma_cq *cq = NULL;
    need(rpma_conn_get_cq(conn, &cq) == 0, "rpma_conn_get_cq");
    while (operations > 0) {
        struct ibv_wc wc;
        const int result = rpma_cq_get_wc(cq, 1, &wc, NULL);
        if (result == RPMA_E_NO_COMPLETION) {
            need(rpma_cq_wait(cq) == 0 || errno == 0, "rpma_cq_wait");
            continue;
        }
        need(result == 0, "rpma_cq_get_wc");
        if (wc.status != IBV_WC_SUCCESS) {
            return false;
        }
        --operations;
    }
    return true;
}

static bool write_block(void) {
    return rpma_write(conn, remote, 0, local, 0, block_bytes, RPMA_F_COMPLETION_ON_ERROR, NULL) == 0 &&
           rpma_flush(conn, remote, 0, block_bytes, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
                      NULL) == 0 &&
           rpma_read(conn, local, block_bytes, remote, 0, block_bytes, RPMA_F_COMPLETION_ALWAYS, NULL) == 0 &&
           complete(2);
}

static int paths_of_connection(void) {
    int paths = -1;
    need(rpma_conn_get_paths(conn, &paths) == 0, "rpma_conn_get_paths");
    return paths;
}

static int error_of_connection(void) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    int error = 0;
    need(rpma_conn_next_event(conn, &event) == 0 && rpma_conn_get_error(conn, &error) == 0, "the error");
    return error;
}

/* ---- the stream ---- */

static int stream = -1;

static void stream_to(const char *address, const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    need(inet_pton(AF_INET, address, &to.sin_addr) == 1, "the address");
    stream = rsocket(AF_INET, SOCK_STREAM, 0);
    need(stream >= 0 && rconnect(stream, (struct sockaddr *)&to, sizeof(to)) == 0, "rconnect");
}

static bool stream_block(void) {
    size_t count = 0;
    if (rsend(stream, sent, block_bytes, MSG_NOSIGNAL) != block_bytes) {
        return false;
    }
    while (count < block_bytes) {
        const ssize_t part = rrecv(stream, got + count, block_bytes - count, 0);
        if (part <= 0) {
            return false;
        }
        count += (size_t)part;
    }
    return true;
}

/* ---- the commands ---- */

static bool over_stream;
static uint64_t operations;
static long longest_ms;
static long last_ms;

static bool operate(void) {
    fill(operations++);
    memset(got, 0, block_bytes);
    const long begin = now_ms();
    const bool done = over_stream ? stream_block() : write_block();
    last_ms = now_ms() - begin;
    if (done) {
        need(memcmp(sent, got, block_bytes) == 0, "the comparison of what was read");
        longest_ms = last_ms > longest_ms ? last_ms : longest_ms;
    }
    return done;
}

static void obey(const char *command, int number) {
    const uint64_t before = operations;
    longest_ms = 0;
    if (strcmp(command, "until-lost") == 0) {
        while (operate()) {
        }
        printf("lost %d %ld\n", over_stream ? errno : error_of_connection(), last_ms);
        return;
    }
    const bool more = strcmp(command, "more") == 0;
    while (more ? operations - before < (uint64_t)number : paths_of_connection() != number) {
        need(operate(), "an operation");
    }
    printf("done %d %d %ld\n", (int)(operations - before), over_stream ? 0 : paths_of_connection(),
           longest_ms);
}

int main(int argc, char *argv[]) {
    need(argc >= 3, "the use of three arguments");
    if (strcmp(argv[1], "serve") == 0) {
        serve(argv[2]);
        return 0;
    }
    need(argc == 4, "the use of a port");
    over_stream = strcmp(argv[1], "stream") == 0;
    (over_stream ? stream_to : connect_to)(argv[2], argv[3]);
    char command[32];
    int number = 0;
    char line[64];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        need(sscanf(line, "%31s %d", command, &number) >= 1, "the command");
        obey(command, number);
        fflush(stdout);
    }
    return 0;
}
