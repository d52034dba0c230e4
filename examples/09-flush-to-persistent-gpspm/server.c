/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 09-flush-to-persistent-gpspm, server: lets a client write into a mapped file, and makes the ranges durable
 * that messages name (the General Purpose Server Persistency Method).
 *
 *     server ADDR PORT PMEM-PATH
 *
 * PMEM-PATH is a file on persistent memory, or on any disk. It is created if it does not exist.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "flush.pb-c.h"

#define MAPPED_SIZE 8192
#define DESCRIPTOR_MAX 32
#define MESSAGE_MAX 64 /* bytes of a request or a response */

/* A request comes into the first, a response leaves from the second. */
static uint8_t messages[2][MESSAGE_MAX];

/* True when the call succeeded. Otherwise prints the call and the reason. */
#define OK(call) worked(#call, call)
static bool worked(const char *call, int ret) {
    if (ret != 0) {
        fprintf(stderr, "server: %s: %s\n", call, rpma_err_2str(ret));
    }
    return ret == 0;
}

/* Waits for the next event of the connection. True when it is the expected one. */
static bool happened(struct rpma_conn *conn, enum rpma_conn_event expected) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    if (!OK(rpma_conn_next_event(conn, &event))) {
        return false;
    }
    if (event != expected) {
        fprintf(stderr, "server: %s (expected: %s)\n", rpma_utils_conn_event_2str(event),
                rpma_utils_conn_event_2str(expected));
    }
    return event == expected;
}

/* Waits for the next completion of the queue. True when it came and its operation succeeded. */
static bool completed(struct rpma_cq *cq, struct ibv_wc *wc) {
    int ret = rpma_cq_get_wc(cq, 1, wc, NULL);
    /* A wait may end without a completion, so this is a loop. */
    while (ret == RPMA_E_NO_COMPLETION) {
        if (!OK(rpma_cq_wait(cq))) {
            return false;
        }
        ret = rpma_cq_get_wc(cq, 1, wc, NULL);
    }
    if (!worked("rpma_cq_get_wc", ret)) {
        return false;
    }
    if (wc->status != IBV_WC_SUCCESS) {
        fprintf(stderr, "server: an operation failed: status %d of enum ibv_wc_status\n", (int)wc->status);
    }
    return wc->status == IBV_WC_SUCCESS;
}

/* Writes the region's descriptor, which gives a peer access to it, to room for DESCRIPTOR_MAX bytes. */
static bool described(const struct rpma_mr_local *mr, uint8_t *descriptor) {
    size_t size = 0;
    if (!OK(rpma_mr_get_descriptor_size(mr, &size))) {
        return false;
    }
    if (size > DESCRIPTOR_MAX) {
        fprintf(stderr, "server: a descriptor of %zu bytes (expected: at most %d)\n", size, DESCRIPTOR_MAX);
        return false;
    }
    return OK(rpma_mr_get_descriptor(mr, descriptor));
}

/* Maps the first MAPPED_SIZE bytes of the file, which is created if it does not exist. Returns NULL, and
 * prints a message, on failure. */
static void *map_file(const char *path) {
    void *memory = MAP_FAILED;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    /* The space is allocated now, so that a full disk is an error here, and not a signal during a write. */
    const int error = fd < 0 ? errno : posix_fallocate(fd, 0, MAPPED_SIZE);
    if (error == 0) {
        memory = mmap(NULL, MAPPED_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (memory == MAP_FAILED) {
        fprintf(stderr, "server: %s: %s\n", path, strerror(error != 0 ? error : errno));
    }
    if (fd >= 0) {
        close(fd); /* the mapping keeps the file */
    }
    return memory != MAP_FAILED ? memory : NULL;
}

/* Makes a range durable. Returns 0 or an errno value. The client chose the range, so it is checked; msync
 * takes whole pages. */
static int made_durable(char *memory, uint64_t offset, uint64_t length) {
    if (offset > MAPPED_SIZE || length > MAPPED_SIZE - offset) {
        fprintf(stderr, "server: asked to flush %llu bytes at %llu (expected: inside %d)\n",
                (unsigned long long)length, (unsigned long long)offset, MAPPED_SIZE);
        return EINVAL;
    }
    const uint64_t begin = offset - offset % (uint64_t)sysconf(_SC_PAGESIZE);
    return msync(memory + begin, offset + length - begin, MS_SYNC) == 0 ? 0 : errno;
}

/* Serves one request. The response is sent when the range is durable, and not before. */
static bool served(struct rpma_conn *conn, struct rpma_cq *cq, struct rpma_mr_local *mr, char *memory,
                   bool *is_leaving, bool *is_last) {
    /* The client may ask again before this side is told that the last response has left, so the two
     * completions come in any order. */
    struct ibv_wc wc = {0};
    uint32_t size = 0;
    for (bool has_come = false; !has_come || *is_leaving;) {
        if (!completed(cq, &wc)) {
            return false;
        }
        if (wc.opcode == IBV_WC_RECV) {
            has_come = true;
            size = wc.byte_len;
        } else {
            *is_leaving = false;
        }
    }
    FlushRequest *request = flush_request__unpack(NULL, size, messages[0]);
    if (request == NULL) {
        fprintf(stderr, "server: a message of %u bytes (expected: a FlushRequest)\n", size);
        return false;
    }
    FlushResponse response = FLUSH_RESPONSE__INIT;
    response.error = (uint32_t)made_durable(memory, request->offset, request->length);
    printf("%llu bytes at %llu: %s\n", (unsigned long long)request->length,
           (unsigned long long)request->offset,
           response.error == 0 ? "durable" : strerror((int)response.error));
    *is_last = request->is_last;
    flush_request__free_unpacked(request, NULL);

    const size_t response_size = flush_response__pack(&response, messages[1]); /* one number: it fits */
    *is_leaving = true;
    /* The next receive is posted before the response that lets the client ask again. */
    return OK(rpma_recv(conn, mr, 0, MESSAGE_MAX, NULL)) &&
           OK(rpma_send(conn, mr, MESSAGE_MAX, response_size, RPMA_F_COMPLETION_ALWAYS, NULL));
}

int main(int argc, char *argv[]) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s ADDR PORT PMEM-PATH\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_mr_local *messages_mr = NULL;
    struct rpma_ep *endpoint = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_cq *cq = NULL;

    char *memory = map_file(argv[3]);
    if (memory == NULL) {
        return EXIT_FAILURE;
    }

    /* The client needs no flush of the device, so any memory works, on every kind of RDMA hardware. */
    const int messages_usage = RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND;
    uint8_t descriptor[DESCRIPTOR_MAX] = {0};
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, memory, MAPPED_SIZE, RPMA_MR_USAGE_WRITE_DST, &mr)) &&
              OK(rpma_mr_reg(peer, messages, sizeof(messages), messages_usage, &messages_mr)) &&
              described(mr, descriptor) && OK(rpma_ep_listen(peer, argv[1], argv[2], &endpoint));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    const struct rpma_conn_private_data ours = {.ptr = descriptor, .len = sizeof(descriptor)};
    bool is_leaving = false; /* a response */
    bool is_last = false;
    ok = ok && OK(rpma_ep_next_conn_req(endpoint, NULL, &request)) &&
         OK(rpma_conn_req_recv(request, messages_mr, 0, MESSAGE_MAX, NULL)) &&
         OK(rpma_conn_req_connect(&request, &ours, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED) &&
         OK(rpma_conn_get_cq(conn, &cq));
    while (ok && !is_last) {
        ok = served(conn, cq, messages_mr, memory, &is_leaving, &is_last);
    }
    ok = ok && happened(conn, RPMA_CONN_CLOSED) && OK(rpma_conn_disconnect(conn));

    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    ok = OK(rpma_ep_shutdown(&endpoint)) && ok;
    ok = OK(rpma_mr_dereg(&messages_mr)) && ok;
    ok = OK(rpma_mr_dereg(&mr)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    munmap(memory, MAPPED_SIZE);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
