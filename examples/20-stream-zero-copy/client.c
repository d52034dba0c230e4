/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 20-stream-zero-copy, client: writes straight into the memory that the server has mapped for it.
 *
 *     client ADDR PORT
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <rpma/rsocket.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST (1024 * 1024 * 1024)

/* Both ends have the same byte order. */
struct offer {
    uint64_t offset; /* the offset by which riowrite names the first byte */
    uint64_t size;
};

/* The checksum is the same at both ends when the server has all bytes. */
static uint64_t checksum_of(const unsigned char *bytes, size_t size) {
    uint64_t sum = 0;
    for (size_t i = 0; i < size; ++i) {
        sum = sum * 31 + bytes[i];
    }
    return sum;
}

/* True when the call succeeded. Otherwise prints the call and the reason. A descriptor is as good as 0. */
#define OK(call) worked(#call, (call))
static bool worked(const char *call, ssize_t ret) {
    if (ret < 0) {
        fprintf(stderr, "client: %s: %s\n", call, strerror(errno));
    }
    return ret >= 0;
}

/* Returns the address of numeric address and port, which the caller frees with freeaddrinfo. */
static bool understood(const char *address, const char *port, struct addrinfo **found) {
    const struct addrinfo wanted = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    const int ret = getaddrinfo(address, port, &wanted, found);
    if (ret != 0) {
        fprintf(stderr, "client: address %s, port %s: %s\n", address, port, gai_strerror(ret));
    }
    return ret == 0;
}

/* Fills the server's memory, and tells the server. */
static bool wrote(int server, const struct offer *offer) {
    unsigned char *const bytes = malloc(offer->size);
    if (bytes == NULL) {
        fprintf(stderr, "client: no memory for %" PRIu64 " bytes\n", offer->size);
        return false;
    }
    for (size_t i = 0; i < offer->size; ++i) {
        bytes[i] = (unsigned char)(i * 31 + (i >> 8));
    }
    const uint64_t checksum = checksum_of(bytes, offer->size);
    uint64_t answer = 0;
    ssize_t got = 0;
    /* riowrite returns (size_t)-1 on failure. As with rsend, the bytes may be changed when it returns. */
    const ssize_t written = (ssize_t)riowrite(server, bytes, offer->size, (off_t)offer->offset, 0);
    bool ok = worked("riowrite", written);
    free(bytes);
    if (ok && (size_t)written != offer->size) {
        fprintf(stderr, "client: the mapping has %zd bytes (expected: %" PRIu64 ")\n", written, offer->size);
        ok = false;
    }
    /* The server is not told of a write. Bytes that are sent after it arrive after it. */
    ok = ok && OK(rsend(server, &checksum, sizeof(checksum), 0)) &&
         OK(got = rrecv(server, &answer, sizeof(answer), MSG_WAITALL));
    if (ok && (got != sizeof(answer) || answer != checksum)) {
        fprintf(stderr, "client: the server did not find what was written\n");
        ok = false;
    }
    return ok;
}

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct addrinfo *at = NULL;
    struct offer offer = {0};
    int server = -1;
    ssize_t got = 0;
    const int mappings = 1; /* how many the server may have at once */
    bool ok = understood(argv[1], argv[2], &at) && OK(server = rsocket(at->ai_family, at->ai_socktype, 0)) &&
              OK(rsetsockopt(server, SOL_RDMA, RDMA_IOMAPSIZE, &mappings, sizeof(mappings))) &&
              OK(rconnect(server, at->ai_addr, at->ai_addrlen)) &&
              OK(got = rrecv(server, &offer, sizeof(offer), MSG_WAITALL));
    if (ok && (got != sizeof(offer) || offer.size == 0 || offer.size > MOST)) {
        fprintf(stderr, "client: the server offers nothing that is understood (expected: 1 to %d bytes)\n",
                MOST);
        ok = false;
    }
    ok = ok && wrote(server, &offer);
    if (ok) {
        printf("wrote %" PRIu64 " bytes into the server's memory\n", offer.size);
    }

    ok = (server < 0 || OK(rclose(server))) && ok;
    if (at != NULL) {
        freeaddrinfo(at);
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
