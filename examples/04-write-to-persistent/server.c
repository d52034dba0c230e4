/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 04-write-to-persistent, server: lets a client write into a mapped file, and makes the bytes durable itself
 * when the client has left.
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

#define MAPPED_SIZE 4096
#define DESCRIPTOR_MAX 32

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

    char *memory = map_file(argv[3]);
    if (memory == NULL) {
        return EXIT_FAILURE;
    }
    printf("found in the file: %.*s\n", MAPPED_SIZE, memory);

    /* A client may write, may make sure that its writes have arrived, and may read back what it wrote. */
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_READ_SRC;
    uint8_t descriptor[DESCRIPTOR_MAX] = {0};
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) &&
              OK(rpma_peer_new(context, &peer)) && OK(rpma_mr_reg(peer, memory, MAPPED_SIZE, usage, &mr)) &&
              described(mr, descriptor) && OK(rpma_ep_listen(peer, argv[1], argv[2], &endpoint));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    const struct rpma_conn_private_data ours = {.ptr = descriptor, .len = sizeof(descriptor)};
    ok = ok && OK(rpma_ep_next_conn_req(endpoint, NULL, &request)) &&
         OK(rpma_conn_req_connect(&request, &ours, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED);
    if (ok) {
        printf("connected; the client may write now\n");
    }
    ok = ok && happened(conn, RPMA_CONN_CLOSED) && OK(rpma_conn_disconnect(conn));

    /*
     * The client's flush made sure that all its bytes were in our memory before it disconnected. This program
     * makes them durable: msync is right for every file, and writes caches back if the file is persistent
     * memory.
     */
    if (ok && msync(memory, MAPPED_SIZE, MS_SYNC) != 0) {
        fprintf(stderr, "server: msync of %s: %s\n", argv[3], strerror(errno));
        ok = false;
    }
    if (ok) {
        printf("the client has left; durable now: %.*s\n", MAPPED_SIZE, memory);
    }

    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    ok = OK(rpma_ep_shutdown(&endpoint)) && ok;
    ok = OK(rpma_mr_dereg(&mr)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    munmap(memory, MAPPED_SIZE);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
