/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 04-write-to-persistent, server: lets a client write into a mapped file, and makes durable itself what was
 * written, once the client has left.
 *
 *     server ADDR PORT PMEM-PATH
 *
 * PMEM-PATH is a file on persistent memory, or on any disk. It is created when it is not there.
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

#define PAGE_SIZE 4096

/* What the server tells a client in its private data. Bytes only, so that it is the same on every machine. */
struct offer {
    uint8_t descriptor_size;
    uint8_t descriptor[31];
};

/* Says on standard error what failed and why. True when it did. */
static bool failed(const char *what, int ret) {
    if (ret != 0) {
        fprintf(stderr, "server: %s: %s\n", what, rpma_err_2str(ret));
    }
    return ret != 0;
}

/* Blocks until the next event of the connection. True when it is not the expected one. */
static bool other_event(struct rpma_conn *conn, enum rpma_conn_event expected) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    if (failed("rpma_conn_next_event", rpma_conn_next_event(conn, &event))) {
        return true;
    }
    if (event != expected) {
        fprintf(stderr, "server: %s (expected: %s)\n", rpma_utils_conn_event_2str(event),
                rpma_utils_conn_event_2str(expected));
    }
    return event != expected;
}

/* Opens or creates the file and maps its first page. NULL, and a message, when that does not work. */
static char *map_file(const char *path, bool *is_dax) {
    char *memory = MAP_FAILED;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    /* The space is allocated now: a full disk is an error here, instead of a signal in the middle of a write.
     */
    const int error = fd < 0 ? errno : posix_fallocate(fd, 0, PAGE_SIZE);
    if (error == 0) {
        /* On persistent memory with DAX the page is the medium itself. Elsewhere it is one of the page cache.
         */
        memory = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
        *is_dax = memory != MAP_FAILED;
        if (!*is_dax) {
            memory = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        }
    }
    if (memory == MAP_FAILED) {
        fprintf(stderr, "server: %s: %s\n", path, strerror(error != 0 ? error : errno));
    }
    /* The mapping keeps the file. */
    if (fd >= 0) {
        close(fd);
    }
    return memory != MAP_FAILED ? memory : NULL;
}

/* Fills in where the memory is and with which key a peer may use it. */
static bool cannot_offer(struct rpma_mr_local *mr, struct offer *offer) {
    size_t size = 0;
    if (failed("rpma_mr_get_descriptor_size", rpma_mr_get_descriptor_size(mr, &size))) {
        return true;
    }
    if (size > sizeof(offer->descriptor)) {
        fprintf(stderr, "server: a descriptor of %zu bytes (expected: at most %zu)\n", size,
                sizeof(offer->descriptor));
        return true;
    }
    offer->descriptor_size = (uint8_t)size;
    return failed("rpma_mr_get_descriptor", rpma_mr_get_descriptor(mr, offer->descriptor));
}

int main(int argc, char *argv[]) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s ADDR PORT PMEM-PATH\n", argv[0]);
        return EXIT_FAILURE;
    }
    const char *addr = argv[1];
    const char *port = argv[2];
    const char *path = argv[3];
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_ep *endpoint = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    bool ok = false;

    bool is_dax = false;
    char *memory = map_file(path, &is_dax);
    if (memory == NULL) {
        return EXIT_FAILURE;
    }
    printf("%s is %s and holds: %.*s\n", path, is_dax ? "persistent memory" : "in the page cache", PAGE_SIZE,
           memory);

    /* A client may write, may make sure that its writes have arrived, and may read back what it wrote. */
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_READ_SRC;
    struct offer offer = {0};
    if (failed("rpma_utils_get_ibv_context",
               rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) ||
        failed("rpma_peer_new", rpma_peer_new(context, &peer)) ||
        failed("rpma_mr_reg", rpma_mr_reg(peer, memory, PAGE_SIZE, usage, &mr)) || cannot_offer(mr, &offer) ||
        failed("rpma_ep_listen", rpma_ep_listen(peer, addr, port, &endpoint))) {
        goto out;
    }
    printf("listening on %s, port %s\n", addr, port);
    fflush(stdout);

    struct rpma_conn_private_data ours = {.ptr = &offer, .len = sizeof(offer)};
    if (failed("rpma_ep_next_conn_req", rpma_ep_next_conn_req(endpoint, NULL, &request)) ||
        failed("rpma_conn_req_connect", rpma_conn_req_connect(&request, &ours, &conn)) ||
        other_event(conn, RPMA_CONN_ESTABLISHED)) {
        goto out;
    }
    printf("connected; the client may write now\n");
    if (other_event(conn, RPMA_CONN_CLOSED) || failed("rpma_conn_disconnect", rpma_conn_disconnect(conn))) {
        goto out;
    }

    /*
     * The client's flush made sure that all it wrote is in our memory, before it disconnected. Making it
     * durable is left to us: msync is right for every file, and writes caches back where the file is
     * persistent memory.
     */
    if (msync(memory, PAGE_SIZE, MS_SYNC) != 0) {
        fprintf(stderr, "server: msync of %s: %s\n", path, strerror(errno));
        goto out;
    }
    printf("the client has left; durable now: %.*s\n", PAGE_SIZE, memory);
    ok = true;

out:
    /* In the order opposite to making them. Deleting what was never made does nothing. */
    ok = !failed("rpma_conn_delete", rpma_conn_delete(&conn)) && ok;
    ok = !failed("rpma_conn_req_delete", rpma_conn_req_delete(&request)) && ok;
    ok = !failed("rpma_ep_shutdown", rpma_ep_shutdown(&endpoint)) && ok;
    ok = !failed("rpma_mr_dereg", rpma_mr_dereg(&mr)) && ok;
    ok = !failed("rpma_peer_delete", rpma_peer_delete(&peer)) && ok;
    munmap(memory, PAGE_SIZE);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
