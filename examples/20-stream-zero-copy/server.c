/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 20-stream-zero-copy, server: lets one client write into its memory, and checks the bytes there.
 *
 *     server ADDR PORT
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

#define SIZE (16 * 1024 * 1024)

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
        fprintf(stderr, "server: %s: %s\n", call, strerror(errno));
    }
    return ret >= 0;
}

/* Returns the address of numeric address and port, which the caller frees with freeaddrinfo. */
static bool understood(const char *address, const char *port, struct addrinfo **found) {
    const struct addrinfo wanted = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    const int ret = getaddrinfo(address, port, &wanted, found);
    if (ret != 0) {
        fprintf(stderr, "server: address %s, port %s: %s\n", address, port, gai_strerror(ret));
    }
    return ret == 0;
}

/* Lets the client write into the memory, and waits until the client says that it is done. */
static bool filled(int client, unsigned char *memory, size_t size, uint64_t *checksum) {
    struct offer offer = {.offset = 0, .size = size};
    off_t offset = 0;
    ssize_t got = 0;
    /* -1: the offset is the address. The client knows the mapping before it receives the next bytes. */
    if (!OK(offset = riomap(client, memory, size, PROT_WRITE, 0, -1))) {
        return false;
    }
    offer.offset = (uint64_t)offset;
    /* No byte of the memory is received by a call; all are there when the checksum comes. */
    bool ok = OK(rsend(client, &offer, sizeof(offer), 0)) &&
              OK(got = rrecv(client, checksum, sizeof(*checksum), MSG_WAITALL));
    if (ok && got != sizeof(*checksum)) {
        fprintf(stderr, "server: the client ended before it had written everything\n");
        ok = false;
    }
    /* No peer can write there any more. */
    return OK(riounmap(client, memory, size)) && ok;
}

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct addrinfo *at = NULL;
    int listener = -1;
    int client = -1;
    const int yes = 1;
    unsigned char *const memory = calloc(1, SIZE);

    bool ok = memory != NULL && understood(argv[1], argv[2], &at) &&
              OK(listener = rsocket(at->ai_family, at->ai_socktype, 0)) &&
              OK(rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)));
    if (ok && rbind(listener, at->ai_addr, at->ai_addrlen) != 0) {
        fprintf(stderr, "server: rbind to %s, port %s: %s\n", argv[1], argv[2], strerror(errno));
        ok = false;
    }
    ok = ok && OK(rlisten(listener, 1));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    uint64_t checksum = 0;
    ok = ok && OK(client = raccept(listener, NULL, NULL)) && filled(client, memory, SIZE, &checksum);
    if (ok && checksum_of(memory, SIZE) != checksum) {
        fprintf(stderr, "server: the memory has other bytes than the client wrote\n");
        ok = false;
    }
    /* The answer tells the client that it may end. */
    ok = ok && OK(rsend(client, &checksum, sizeof(checksum), 0));
    if (ok) {
        printf("the client wrote %d bytes, checksum %016" PRIx64 "\n", SIZE, checksum);
    }

    ok = (client < 0 || OK(rclose(client))) && ok;
    ok = (listener < 0 || OK(rclose(listener))) && ok;
    free(memory); /* after riounmap or rclose */
    if (at != NULL) {
        freeaddrinfo(at);
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
