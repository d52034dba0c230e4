/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * native: whether flush and atomic write are the device's own. Two ends in two processes, which may have
 * different libraries: what of librpma is used, librpma 1.2 has.
 *
 *     native serve ADDRESS memory|DEVICE [readable]
 *                            a region of either, for peers to read as well or not; prints its port, ends with
 *                            the client
 *     native push ADDRESS PORT [flush] [atomic_write]
 *                            writes and flushes; demands that these are the device's own, and not the other
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>

#include "../compat/program.h"

/* A devdax device is mapped in pieces of 2 MiB. */
#define SIZE ((size_t)2 << 20)
#define TEXT_PLACE 4096
#define TEXT "durable when its flush is done"
#define WORD "8 bytes."
/* rdma-core 45 defines these constants. */
#define WC_FLUSH 8

static char *map(const char *where) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    int fd = -1;
    if (strcmp(where, "memory") != 0) {
        flags = MAP_SHARED;
        fd = open(where, O_RDWR | O_CLOEXEC);
        REQUIRE(fd >= 0);
    }
    char *const memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);
    REQUIRE(memory != MAP_FAILED);
    memset(memory, 0, TEXT_PLACE * 2);
    return memory;
}

static void serve(const char *address, const char *where, int readable) {
    struct rpma_peer *peer = new_peer(address);
    struct rpma_ep *ep = NULL;
    struct rpma_mr_local *mr = NULL;
    char *const memory = map(where);
    unsigned char descriptor[64];
    size_t size = 0;
    char port[PORT_SIZE];
    CHECK(rpma_mr_reg(peer, memory, SIZE,
                      RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY |
                          RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | (readable ? RPMA_MR_USAGE_READ_SRC : 0),
                      &mr));
    CHECK(rpma_mr_get_descriptor_size(mr, &size));
    REQUIRE(size <= sizeof(descriptor));
    CHECK(rpma_mr_get_descriptor(mr, descriptor));
    find_port(address, port);
    CHECK(rpma_ep_listen(peer, address, port, &ep));
    printf("%s\n", port);
    REQUIRE(fflush(stdout) == 0);
    serve_client(ep, &(struct rpma_conn_private_data){descriptor, (uint8_t)size});
    REQUIRE(strcmp(memory + TEXT_PLACE, TEXT) == 0);
    REQUIRE(memcmp(memory, WORD, 8) == 0);
    CHECK(rpma_ep_shutdown(&ep));
    CHECK(rpma_mr_dereg(&mr));
    CHECK(rpma_peer_delete(&peer));
    munmap(memory, SIZE);
}

/* Requires that the next completion is a success of this kind. */
static void complete_as(struct rpma_conn *conn, const char *what, unsigned opcode) {
    const unsigned found = complete(conn);
    if (found != opcode) {
        fprintf(stderr, "%s: opcode %u (expected: %u)\n", what, found, opcode);
        exit(EXIT_FAILURE);
    }
}

static void push(const char *address, const char *port, bool native_flush, bool native_atomic_write) {
    const unsigned flush = native_flush ? WC_FLUSH : IBV_WC_RDMA_READ;
    struct rpma_peer *peer = new_peer(address);
    struct rpma_mr_local *mr = NULL;
    struct rpma_mr_remote *remote = NULL;
    struct rpma_peer_cfg *peer_cfg = NULL;
    struct rpma_conn_private_data data = {NULL, 0};
    char *const memory = aligned_alloc(4096, 4096);
    REQUIRE(memory != NULL);
    memcpy(memory, TEXT, sizeof(TEXT));
    CHECK(rpma_mr_reg(peer, memory, 4096, RPMA_MR_USAGE_WRITE_SRC, &mr));
    struct rpma_conn *const conn = connect_to(peer, address, port);
    CHECK(rpma_conn_get_private_data(conn, &data));
    CHECK(rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote));
    /* Instead, the server has registered the region for flushes. */
    CHECK(rpma_peer_cfg_new(&peer_cfg));
    CHECK(rpma_peer_cfg_set_direct_write_to_pmem(peer_cfg, true));
    CHECK(rpma_conn_apply_remote_peer_cfg(conn, peer_cfg));
    CHECK(rpma_peer_cfg_delete(&peer_cfg));

    CHECK(rpma_write(conn, remote, TEXT_PLACE, mr, 0, sizeof(TEXT), RPMA_F_COMPLETION_ON_ERROR, NULL));
    CHECK(rpma_flush(conn, remote, TEXT_PLACE, sizeof(TEXT), RPMA_FLUSH_TYPE_PERSISTENT,
                     RPMA_F_COMPLETION_ALWAYS, NULL));
    complete_as(conn, "flush to persistence", flush);
    CHECK(rpma_atomic_write(conn, remote, 0, WORD, RPMA_F_COMPLETION_ALWAYS, NULL));
    complete_as(conn, "atomic write", native_atomic_write ? IBV_WC_ATOMIC_WRITE : IBV_WC_RDMA_WRITE);
    CHECK(rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, NULL));
    complete_as(conn, "flush to visibility", flush);

    disconnect(conn);
    CHECK(rpma_mr_remote_delete(&remote));
    CHECK(rpma_mr_dereg(&mr));
    CHECK(rpma_peer_delete(&peer));
    free(memory);
}

static bool has_word(char *words[], const char *word) {
    while (*words != NULL && strcmp(*words, word) != 0) {
        ++words;
    }
    return *words != NULL;
}

int main(int argc, char *argv[]) {
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "serve") == 0) {
        serve(argv[2], argv[3], argc == 5);
        return EXIT_SUCCESS;
    }
    if (argc >= 4 && strcmp(argv[1], "push") == 0) {
        push(argv[2], argv[3], has_word(argv + 4, "flush"), has_word(argv + 4, "atomic_write"));
        return EXIT_SUCCESS;
    }
    fprintf(stderr,
            "usage: %s serve ADDRESS memory|DEVICE [readable] | push ADDRESS PORT [flush] [atomic_write]\n",
            argv[0]);
    return 2;
}
