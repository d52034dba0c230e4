/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 19-stream-poll, client: sends lines, receives each again and compares, then ends its stream.
 *
 *     client ADDR PORT
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

#define LINES 100
#define LINE 64

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

/* Sends a line and receives the same bytes. */
static bool echoed(int server, unsigned number) {
    char line[LINE];
    char received[LINE];
    const int size = snprintf(line, sizeof(line), "line %u of process %ld\n", number, (long)getpid());
    ssize_t got = 0;
    if (!OK(rsend(server, line, (size_t)size, 0)) ||
        !OK(got = rrecv(server, received, (size_t)size, MSG_WAITALL))) {
        return false;
    }
    if (got != size || memcmp(line, received, (size_t)size) != 0) {
        fprintf(stderr, "client: line %u came back as %zd other bytes (expected: the %d that were sent)\n",
                number, got, size);
        return false;
    }
    return true;
}

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct addrinfo *at = NULL;
    int server = -1;
    bool ok = understood(argv[1], argv[2], &at) && OK(server = rsocket(at->ai_family, at->ai_socktype, 0)) &&
              OK(rconnect(server, at->ai_addr, at->ai_addrlen));
    for (unsigned number = 0; ok && number < LINES; ++number) {
        ok = echoed(server, number);
    }

    /* Ends one direction. The server reads the end after all bytes, and ends the other one. */
    char nothing = 0;
    ssize_t got = 0;
    ok = ok && OK(rshutdown(server, SHUT_WR)) && OK(got = rrecv(server, &nothing, sizeof(nothing), 0));
    if (ok && got != 0) {
        fprintf(stderr, "client: %zd more byte (expected: the end of the stream)\n", got);
        ok = false;
    }
    if (ok) {
        printf("%d lines came back as they were sent\n", LINES);
    }

    ok = (server < 0 || OK(rclose(server))) && ok;
    if (at != NULL) {
        freeaddrinfo(at);
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
