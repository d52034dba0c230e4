/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 21-stream-repoll, server: one thread that serves any number of clients with repoll, the epoll of rsockets,
 * edge-triggered. It sends back each client's bytes, and ends when this many clients (3) have left, or at
 * SIGTERM or SIGINT.
 *
 *     server ADDR PORT [CLIENTS]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <rpma/rsocket.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define EVENTS 64
#define BUFFER (16 * 1024)
#define BACKLOG 128

/* A descriptor in the repoll. A client's also has the bytes that were not sent back yet: `size` bytes from
 * `from` on. */
struct member {
    enum { LISTENER, SIGNALS, CLIENT } is;
    int fd;
    bool ended; /* it sends no more */
    size_t from;
    size_t size;
    struct member *next;
    struct member *before;
    char *bytes; /* BUFFER of them, behind this */
};

struct server {
    int repoll;
    unsigned left;
    bool stops;
    struct member listener;
    struct member signals;
    struct member *clients; /* a list, so that they can be closed at the end */
};

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

static bool watched(const struct server *server, struct member *member, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = member};
    return OK(repoll_ctl(server->repoll, EPOLL_CTL_ADD, member->fd, &event));
}

/* A failure at one client ends only that client. rclose takes its rsocket out of the repoll. */
static void lose(struct server *server, struct member *client, const char *why) {
    printf("client %d: %s\n", client->fd, why);
    (void)rclose(client->fd);
    *(client->before != NULL ? &client->before->next : &server->clients) = client->next;
    if (client->next != NULL) {
        client->next->before = client->before;
    }
    free(client);
    ++server->left;
}

/* Accepts all clients that wait. The repoll reports the listener again while some wait, so that a client that
 * cannot be accepted now is tried again. */
static void on_clients(struct server *server) {
    int fd = -1;
    while ((fd = raccept(server->listener.fd, NULL, NULL)) >= 0) {
        struct member *const client = calloc(1, sizeof(*client) + BUFFER);
        if (client == NULL || !OK(rfcntl(fd, F_SETFL, O_NONBLOCK))) {
            (void)rclose(fd);
            free(client);
            continue;
        }
        client->bytes = (char *)(client + 1);
        client->is = CLIENT;
        client->fd = fd;
        client->next = server->clients;
        if (client->next != NULL) {
            client->next->before = client;
        }
        server->clients = client;
        if (!watched(server, client, EPOLLIN | EPOLLOUT | EPOLLET)) {
            lose(server, client, "it cannot be watched");
        }
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
        fprintf(stderr, "server: raccept: %s\n", strerror(errno));
    }
}

/* A call that would have to wait gives EAGAIN; the repoll tells when to try again. */
static bool would_wait(ssize_t ret) {
    return ret < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* The repoll is edge-triggered and reports a change once, so this continues until a call would have to wait.
 * While bytes wait for room at the client, no more are received from it. */
static void on_bytes(struct server *server, struct member *client) {
    while (true) {
        if (client->size == 0) {
            const ssize_t got = rrecv(client->fd, client->bytes, BUFFER, 0);
            if (would_wait(got)) {
                return;
            }
            if (got <= 0) {
                lose(server, client, got == 0 ? "it has ended" : strerror(errno));
                return;
            }
            client->from = 0;
            client->size = (size_t)got;
        }
        const ssize_t put = rsend(client->fd, client->bytes + client->from, client->size, MSG_NOSIGNAL);
        if (would_wait(put)) {
            return;
        }
        if (put < 0) {
            lose(server, client, strerror(errno));
            return;
        }
        client->from += (size_t)put;
        client->size -= (size_t)put;
    }
}

/* SIGTERM and SIGINT are read from a descriptor, which is no rsocket and is in the repoll as any other. */
static bool signals_as_descriptor(int *fd) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    return OK(sigprocmask(SIG_BLOCK, &signals, NULL)) &&
           OK(*fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
}

static bool listens(struct server *server, const struct addrinfo *at, char *argv[]) {
    const int yes = 1;
    if (!OK(server->listener.fd = rsocket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK, 0)) ||
        !OK(rsetsockopt(server->listener.fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)))) {
        return false;
    }
    if (rbind(server->listener.fd, at->ai_addr, at->ai_addrlen) != 0) {
        fprintf(stderr, "server: rbind to %s, port %s: %s\n", argv[1], argv[2], strerror(errno));
        return false;
    }
    return OK(rlisten(server->listener.fd, BACKLOG));
}

static bool serves(struct server *server) {
    struct epoll_event events[EVENTS];
    const int count = repoll_wait(server->repoll, events, EVENTS, -1);
    if (count < 0) {
        return errno == EINTR || OK(count);
    }
    for (int i = 0; i < count; ++i) {
        struct member *const member = events[i].data.ptr;
        if (member->is == CLIENT) {
            on_bytes(server, member);
        } else if (member->is == LISTENER) {
            on_clients(server);
        } else {
            server->stops = true;
        }
    }
    return true;
}

int main(int argc, char *argv[]) {
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: %s ADDR PORT [CLIENTS]\n", argv[0]);
        return EXIT_FAILURE;
    }
    const unsigned expected = argc == 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 3;
    struct server server = {
        .repoll = -1, .listener = {.is = LISTENER, .fd = -1}, .signals = {.is = SIGNALS, .fd = -1}};
    struct addrinfo *at = NULL;

    bool ok = understood(argv[1], argv[2], &at) && listens(&server, at, argv) &&
              signals_as_descriptor(&server.signals.fd) && OK(server.repoll = repoll_create(EPOLL_CLOEXEC)) &&
              watched(&server, &server.listener, EPOLLIN) && watched(&server, &server.signals, EPOLLIN);
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }

    while (ok && !server.stops && server.left < expected) {
        ok = serves(&server);
    }
    if (ok) {
        printf("%u clients have left\n", server.left);
    }

    while (server.clients != NULL) {
        lose(&server, server.clients, "the server ends");
    }
    ok = (server.repoll < 0 || OK(rclose(server.repoll))) && ok;
    ok = (server.signals.fd < 0 || OK(close(server.signals.fd))) && ok;
    ok = (server.listener.fd < 0 || OK(rclose(server.listener.fd))) && ok;
    if (at != NULL) {
        freeaddrinfo(at);
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
