/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 18-stream-echo, server: accepts one client and sends back the bytes that it receives, until the client ends
 * its stream.
 *
 *     server ADDR PORT
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <netdb.h>
#include <rpma/rsocket.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK (64 * 1024)

static char block[BLOCK];

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

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct addrinfo *at = NULL;
    int listener = -1;
    int client = -1;
    const int yes = 1;

    /* Each call is the one of sockets(7) with an r before its name. */
    bool ok = understood(argv[1], argv[2], &at) &&
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
    ok = ok && OK(client = raccept(listener, NULL, NULL));

    /* A stream has no messages, so the server sends back the bytes that have come. 0 is the end that the
     * client announced; a client that was killed gives ECONNRESET instead. */
    size_t echoed = 0;
    ssize_t got = 0;
    while (ok && (ok = OK(got = rrecv(client, block, sizeof(block), 0))) && got != 0) {
        ok = OK(rsend(client, block, (size_t)got, 0)); /* an rsocket that blocks sends all of them */
        echoed += (size_t)got;
    }
    if (ok) {
        printf("the client has ended; %zu bytes went back\n", echoed);
    }

    ok = (client < 0 || OK(rclose(client))) && ok;
    ok = (listener < 0 || OK(rclose(listener))) && ok;
    if (at != NULL) {
        freeaddrinfo(at);
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
