/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 15-read-after-send, server: receives messages into a mapped file. The client makes each durable itself, by
 * a flush (a read, on most hardware) behind the send: the server's program need not wake up for it.
 *
 *     server ADDR PORT PMEM-PATH
 *
 * PMEM-PATH is a file on persistent memory or, with the soft device, on any disk (not tmpfs). It is created
 * if it does not exist.
 */
#define _GNU_SOURCE /* MAP_SYNC */
#include <errno.h>
#include <fcntl.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAPPED_SIZE 4096
#define OFFER_MAX 48
#define MESSAGES 3
#define MESSAGE_SIZE 64

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

/* Maps the first MAPPED_SIZE bytes of the file, which is created if it does not exist. Returns NULL, and
 * prints a message, on failure. */
static void *map_file(const char *path, bool *is_dax) {
    void *memory = MAP_FAILED;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    /* The space is allocated now, so that a full disk is an error here, and not a signal during a write. */
    const int error = fd < 0 ? errno : posix_fallocate(fd, 0, MAPPED_SIZE);
    if (error == 0) {
        /* On persistent memory with DAX this is the medium itself; elsewhere, the page cache. */
        memory = mmap(NULL, MAPPED_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
        *is_dax = memory != MAP_FAILED;
        if (!*is_dax) {
            memory = mmap(NULL, MAPPED_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        }
    }
    if (memory == MAP_FAILED) {
        fprintf(stderr, "server: %s: %s\n", path, strerror(error != 0 ? error : errno));
    }
    if (fd >= 0) {
        close(fd); /* the mapping keeps the file */
    }
    return memory != MAP_FAILED ? memory : NULL;
}

/*
 * Whether a remote flush to our memory is durable. On persistent memory (DAX) it is. A page of the page cache
 * has to be written to the disk: the soft device (its devices are called soft_...) does that, RDMA hardware
 * cannot.
 */
static bool is_flush_durable(const struct ibv_context *context, bool is_dax) {
    return is_dax || strncmp(context->device->name, "soft_", strlen("soft_")) == 0;
}

/* Whether the memory can be durable. If it cannot, its region offers flush to visibility instead of flush to
 * persistence, and the library's log gives the reason. */
static bool can_be_durable(const struct rpma_mr_local *mr) {
    uint8_t descriptor[OFFER_MAX] = {0};
    size_t size = 0;
    struct rpma_mr_remote *offered = NULL; /* the region, as the client sees it */
    int flush_types = 0;
    bool ok = OK(rpma_mr_get_descriptor_size(mr, &size)) && size <= sizeof(descriptor) &&
              OK(rpma_mr_get_descriptor(mr, descriptor)) &&
              OK(rpma_mr_remote_from_descriptor(descriptor, size, &offered)) &&
              OK(rpma_mr_remote_get_flush_type(offered, &flush_types));
    ok = OK(rpma_mr_remote_delete(&offered)) && ok;
    return ok && (flush_types & RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT) != 0;
}

/* Fills `offer`, OFFER_MAX bytes, with two descriptors: first our configuration, then our memory. */
static bool described(const struct rpma_mr_local *mr, bool durable, uint8_t *offer) {
    struct rpma_peer_cfg *config = NULL;
    size_t config_size = 0;
    size_t mr_size = 0;
    bool ok = OK(rpma_peer_cfg_new(&config)) && OK(rpma_peer_cfg_set_direct_write_to_pmem(config, durable)) &&
              OK(rpma_peer_cfg_get_descriptor_size(config, &config_size)) &&
              OK(rpma_mr_get_descriptor_size(mr, &mr_size));
    if (ok && config_size + mr_size > OFFER_MAX) {
        fprintf(stderr, "server: descriptors of %zu and %zu bytes (expected: at most %d together)\n",
                config_size, mr_size, OFFER_MAX);
        ok = false;
    }
    ok = ok && OK(rpma_peer_cfg_get_descriptor(config, offer)) &&
         OK(rpma_mr_get_descriptor(mr, offer + config_size));
    return OK(rpma_peer_cfg_delete(&config)) && ok;
}

int main(int argc, char *argv[]) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s ADDR PORT PMEM-PATH\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_ep *endpoint = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_cq *cq = NULL;

    bool is_dax = false;
    char *memory = map_file(argv[3], &is_dax);
    if (memory == NULL) {
        return EXIT_FAILURE;
    }
    for (size_t i = 0; i < MESSAGES; i++) {
        printf("found in place %zu: %.*s\n", i, MESSAGE_SIZE, memory + i * MESSAGE_SIZE);
    }

    /* The region is no destination of writes, but of messages and of flushes. */
    const int usage = RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;
    uint8_t offer[OFFER_MAX] = {0};
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) &&
              OK(rpma_peer_new(context, &peer)) && OK(rpma_mr_reg(peer, memory, MAPPED_SIZE, usage, &mr)) &&
              can_be_durable(mr) && described(mr, is_flush_durable(context, is_dax), offer) &&
              OK(rpma_ep_listen(peer, argv[1], argv[2], &endpoint));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    /* Messages take receives in the order in which these were posted, so the client knows where its messages
     * go. */
    ok = ok && OK(rpma_ep_next_conn_req(endpoint, NULL, &request));
    for (size_t i = 0; ok && i < MESSAGES; i++) {
        ok = OK(rpma_conn_req_recv(request, mr, i * MESSAGE_SIZE, MESSAGE_SIZE, NULL));
    }
    const struct rpma_conn_private_data ours = {.ptr = offer, .len = sizeof(offer)};
    ok = ok && OK(rpma_conn_req_connect(&request, &ours, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED) &&
         OK(rpma_conn_get_cq(conn, &cq));
    for (size_t i = 0; ok && i < MESSAGES; i++) {
        struct ibv_wc wc;
        ok = completed(cq, &wc);
        if (ok) {
            printf("received: %.*s\n", (int)wc.byte_len, memory + i * MESSAGE_SIZE);
        }
    }
    ok = ok && happened(conn, RPMA_CONN_CLOSED) && OK(rpma_conn_disconnect(conn));

    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    ok = OK(rpma_ep_shutdown(&endpoint)) && ok;
    ok = OK(rpma_mr_dereg(&mr)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    munmap(memory, MAPPED_SIZE);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
