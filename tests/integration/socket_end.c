/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a connection, for the scripts here: `socket_end KIND ADDRESS [PORT BYTES]`. A server prints
 * "port NUMBER" when it listens, takes one client after the other, and prints how each ended: "ended BYTES"
 * or "broke BYTES". The client prints "connected" when the server has taken its bytes; it ends when its
 * standard input does.
 *
 *     echo      over rsockets: sends back the bytes that come
 *     client    over rsockets: sends so many bytes and receives them
 *     repeats   over TCP: sends back the bytes that come
 *     banner    over TCP: speaks first
 *     silent    over TCP: sends nothing
 *     answers   over TCP: sends some bytes when bytes have come
 *     closes    over TCP: closes when bytes have come
 *     markers   over TCP: answers a request of MPA (RFC 5044), and wants markers
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <rpma/rsocket.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The calls of one kind of socket. */
struct calls {
    int (*socket)(int domain, int type, int protocol);
    int (*bind)(int fd, const struct sockaddr *address, socklen_t length);
    int (*listen)(int fd, int backlog);
    int (*accept)(int fd, struct sockaddr *address, socklen_t *length);
    int (*name)(int fd, struct sockaddr *address, socklen_t *length);
    ssize_t (*receive)(int fd, void *bytes, size_t size, int flags);
    ssize_t (*send)(int fd, const void *bytes, size_t size, int flags);
    int (*close)(int fd);
};

static int bind_in_tcp(int fd, const struct sockaddr *address, socklen_t length) {
    return bind(fd, address, length);
}
static int accept_in_tcp(int fd, struct sockaddr *address, socklen_t *length) {
    return accept(fd, address, length);
}
static int name_in_tcp(int fd, struct sockaddr *address, socklen_t *length) {
    return getsockname(fd, address, length);
}

static const struct calls over_rsockets = {rsocket,      rbind, rlisten, raccept,
                                           rgetsockname, rrecv, rsend,   rclose};
static const struct calls over_tcp = {socket,      bind_in_tcp, listen, accept_in_tcp,
                                      name_in_tcp, recv,        send,   close};

static const char banner[] = "SSH-2.0-OpenSSH_9.2\r\n";
static const char reply_with_markers[] = "MPA ID Rep Frame\x80\x01\0"; /* and a last 0: no private data */
static char block[4096];

static void need(bool done, const char *what) {
    if (!done) {
        perror(what);
        exit(1);
    }
}

static void serve(const struct calls *calls, int client, const char *kind) {
    size_t bytes = 0;
    ssize_t got = 0;
    if (strcmp(kind, "banner") == 0) {
        need(calls->send(client, banner, sizeof(banner) - 1, MSG_NOSIGNAL) > 0, "send");
    }
    while ((got = calls->receive(client, block, sizeof(block), 0)) > 0) {
        bytes += (size_t)got;
        if (strcmp(kind, "echo") == 0 || strcmp(kind, "repeats") == 0) {
            need(calls->send(client, block, (size_t)got, MSG_NOSIGNAL) == got, "send");
        } else if (strcmp(kind, "answers") == 0) {
            need(calls->send(client, "-ERR\r\n", 6, MSG_NOSIGNAL) == 6, "send");
        } else if (strcmp(kind, "markers") == 0) {
            need(calls->send(client, reply_with_markers, sizeof(reply_with_markers), MSG_NOSIGNAL) == 20,
                 "send");
        } else if (strcmp(kind, "closes") == 0) {
            break;
        }
    }
    printf("%s %zu\n", got < 0 ? "broke" : "ended", bytes);
    fflush(stdout);
    need(calls->close(client) == 0, "close");
}

static void run_server(const char *kind, const struct addrinfo *at) {
    const struct calls *const calls = strcmp(kind, "echo") == 0 ? &over_rsockets : &over_tcp;
    struct sockaddr_storage name;
    socklen_t length = sizeof(name);
    const int listener = calls->socket(at->ai_family, SOCK_STREAM, 0);
    need(listener >= 0, "socket");
    need(calls->bind(listener, at->ai_addr, at->ai_addrlen) == 0, "bind");
    need(calls->listen(listener, 8) == 0, "listen");
    need(calls->name(listener, (struct sockaddr *)&name, &length) == 0, "getsockname");
    /* At the same place in both families' addresses. */
    printf("port %d\n", ntohs(((struct sockaddr_in *)&name)->sin_port));
    fflush(stdout);
    for (;;) {
        const int client = calls->accept(listener, NULL, NULL);
        need(client >= 0, "accept");
        serve(calls, client, kind);
    }
}

static void run_client(const struct addrinfo *at, size_t bytes) {
    const int fd = rsocket(at->ai_family, SOCK_STREAM, 0);
    need(fd >= 0 && rconnect(fd, at->ai_addr, at->ai_addrlen) == 0, "rconnect");
    for (size_t done = 0; done < bytes;) {
        const size_t size = bytes - done < sizeof(block) ? bytes - done : sizeof(block);
        need(rsend(fd, block, size, 0) == (ssize_t)size, "rsend");
        need(rrecv(fd, block, size, MSG_WAITALL) == (ssize_t)size, "rrecv");
        done += size;
    }
    printf("connected\n");
    fflush(stdout);
    while (read(STDIN_FILENO, block, sizeof(block)) > 0) {
    }
    need(rclose(fd) == 0, "rclose");
}

int main(int argc, char **argv) {
    const bool is_client = argc == 5 && strcmp(argv[1], "client") == 0;
    const struct addrinfo wanted = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *at = NULL;
    if ((!is_client && argc != 3) || getaddrinfo(argv[2], is_client ? argv[3] : "0", &wanted, &at) != 0) {
        fprintf(stderr, "usage: %s KIND ADDRESS [PORT BYTES]\n", argv[0]);
        return 2;
    }
    if (is_client) {
        run_client(at, strtoul(argv[4], NULL, 10));
    } else {
        run_server(argv[1], at);
    }
    freeaddrinfo(at);
    return 0;
}
