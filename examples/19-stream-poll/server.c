/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 19-stream-poll, server: one thread that serves many clients with rpoll. It sends back each client's bytes,
 * and ends when this many clients (3) have left.
 *
 *     server ADDR PORT [CLIENTS]
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <rpma/rsocket.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLACES 64
#define BUFFER (16 * 1024)

/* The bytes of a client that were not sent back yet: `size` bytes from `from` on. */
struct client {
    size_t from;
    size_t size;
    bool ended; /* it sends no more */
    char bytes[BUFFER];
};

/* Entry 0 is the listener's, entry i + 1 that of clients[i]. rpoll passes over an entry whose fd is -1. */
static struct pollfd entries[PLACES + 1];
static struct client clients[PLACES];
static unsigned connected;
static unsigned left;

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

/* Accepts a client that waits. Calls on its rsocket do not block from here on. */
static void on_client(void) {
    for (size_t i = 0; i < PLACES; ++i) {
        if (entries[i + 1].fd < 0) {
            const int fd = raccept(entries[0].fd, NULL, NULL);
            if (fd < 0) {
                return; /* the client has left already, or there is no descriptor: it waits */
            }
            if (!OK(rfcntl(fd, F_SETFL, O_NONBLOCK))) {
                (void)rclose(fd);
                return;
            }
            clients[i] = (struct client){0};
            entries[i + 1] = (struct pollfd){.fd = fd, .events = POLLIN};
            ++connected;
            return;
        }
    }
}

/* A failure at one client ends only that client. */
static void lose(size_t i, const char *why) {
    printf("place %zu: %s\n", i, why);
    (void)rclose(entries[i + 1].fd);
    entries[i + 1].fd = -1;
    --connected;
    ++left;
}

/* A call that would have to wait gives EAGAIN; rpoll tells when to try again. */
static bool would_wait(ssize_t ret) {
    return ret < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

static void on_bytes(size_t i) {
    struct client *const client = &clients[i];
    const int fd = entries[i + 1].fd;
    if (client->size == 0 && !client->ended) {
        const ssize_t got = rrecv(fd, client->bytes, sizeof(client->bytes), 0);
        if (got < 0 && !would_wait(got)) {
            lose(i, strerror(errno));
            return;
        }
        client->from = 0;
        client->size = got > 0 ? (size_t)got : 0;
        client->ended = got == 0;
    }
    while (client->size != 0) {
        const ssize_t put = rsend(fd, client->bytes + client->from, client->size, 0);
        if (would_wait(put)) {
            break;
        }
        if (put < 0) {
            lose(i, strerror(errno));
            return;
        }
        client->from += (size_t)put;
        client->size -= (size_t)put;
    }
    if (client->ended && client->size == 0) {
        lose(i, "the client has ended");
        return;
    }
    /* The server waits for one of the two: while bytes wait for room at the client, it receives no more from
     * it. */
    entries[i + 1].events = client->size != 0 ? POLLOUT : POLLIN;
}

int main(int argc, char *argv[]) {
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: %s ADDR PORT [CLIENTS]\n", argv[0]);
        return EXIT_FAILURE;
    }
    const unsigned expected = argc == 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 3;
    struct addrinfo *at = NULL;
    int listener = -1;
    const int yes = 1;

    bool ok = understood(argv[1], argv[2], &at) &&
              OK(listener = rsocket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK, 0)) &&
              OK(rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)));
    if (ok && rbind(listener, at->ai_addr, at->ai_addrlen) != 0) {
        fprintf(stderr, "server: rbind to %s, port %s: %s\n", argv[1], argv[2], strerror(errno));
        ok = false;
    }
    ok = ok && OK(rlisten(listener, PLACES));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    entries[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (size_t i = 0; i < PLACES; ++i) {
        entries[i + 1].fd = -1;
    }

    /* Descriptors that are no rsockets (timers, pipes, sockets of the kernel) may be among the entries. */
    while (ok && left < expected && (ok = OK(rpoll(entries, PLACES + 1, -1)))) {
        for (size_t i = 0; i < PLACES; ++i) {
            if (entries[i + 1].fd >= 0 && entries[i + 1].revents != 0) {
                on_bytes(i);
            }
        }
        if (entries[0].revents != 0) {
            on_client();
        }
        entries[0].events = connected < PLACES ? POLLIN : 0; /* without a place the next client waits */
    }
    if (ok) {
        printf("%u clients have left\n", left);
    }

    for (size_t i = 0; i < PLACES; ++i) {
        ok = (entries[i + 1].fd < 0 || OK(rclose(entries[i + 1].fd))) && ok;
    }
    ok = (listener < 0 || OK(rclose(listener))) && ok;
    if (at != NULL) {
        freeaddrinfo(at);
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
