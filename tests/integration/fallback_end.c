/* SPDX-License-Identifier: BSD-3-Clause */
/* One end of the connections of test_fallback (fallback.h). It is linked with our rsockets, and once more
 * with librdmacm's. */
#include <arpa/inet.h>
#include <rpma/rsocket.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fallback.h"

enum { MANY = 40000, MOST_SECONDS = 100 };

/* The calls of one kind of socket. */
struct calls {
    int (*socket)(int domain, int type, int protocol);
    int (*bind)(int fd, const struct sockaddr *address, socklen_t length);
    int (*listen)(int fd, int backlog);
    int (*accept)(int fd, struct sockaddr *address, socklen_t *length);
    int (*connect)(int fd, const struct sockaddr *address, socklen_t length);
    int (*name)(int fd, struct sockaddr *address, socklen_t *length);
    ssize_t (*receive)(int fd, void *bytes, size_t size, int flags);
    ssize_t (*send)(int fd, const void *bytes, size_t size, int flags);
    int (*shutdown)(int fd, int how);
    int (*close)(int fd);
};

/* glibc's headers give these a parameter of another type. */
static int bind_in_tcp(int fd, const struct sockaddr *address, socklen_t length) {
    return bind(fd, address, length);
}
static int accept_in_tcp(int fd, struct sockaddr *address, socklen_t *length) {
    return accept(fd, address, length);
}
static int connect_in_tcp(int fd, const struct sockaddr *address, socklen_t length) {
    return connect(fd, address, length);
}
static int name_in_tcp(int fd, struct sockaddr *address, socklen_t *length) {
    return getsockname(fd, address, length);
}

static const struct calls over_rsockets = {rsocket,      rbind, rlisten, raccept,   rconnect,
                                           rgetsockname, rrecv, rsend,   rshutdown, rclose};
static const struct calls over_tcp = {socket,      bind_in_tcp, listen, accept_in_tcp, connect_in_tcp,
                                      name_in_tcp, recv,        send,   shutdown,      close};
static const struct calls *calls = &over_tcp;
static int family = AF_INET;

static void need(bool done, const char *what) {
    if (!done) {
        perror(what);
        exit(1);
    }
}

static void tell(const void *bytes, size_t size) {
    need(write(STDOUT_FILENO, bytes, size) == (ssize_t)size, "write");
}

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* ---- what is said ---- */

struct words {
    const char *bytes;
    size_t size;
};

static struct words many(void) {
    static char bytes[MANY];
    for (size_t i = 0; i < MANY; ++i) {
        bytes[i] = (char)(i * 31 / 7);
    }
    return (struct words){bytes, MANY};
}

static struct words opening_of(enum behaviour behaviour) {
    static const char garbage[] = "\x16\x03\x01\x00\xa5\x01\x00\x00\xff\xfe\x00MPA\r\n\r\n";
    switch (behaviour) {
        case ClientGarbage:
        case ServerGarbage:
            return (struct words){garbage, sizeof(garbage) - 1};
        case ClientLikeKey:
            return (struct words){"MPA ID Req Fram", 15};
        case ServerLikeKey:
            return (struct words){"MPA ID Rep Fram", 15};
        default:
            return many();
    }
}

static bool server_speaks_first(enum behaviour behaviour) {
    return behaviour == ServerFirst || behaviour == ServerGarbage || behaviour == ServerLikeKey;
}

static bool says(int fd, struct words words) {
    while (words.size > 0) {
        const ssize_t put = calls->send(fd, words.bytes, words.size, MSG_NOSIGNAL);
        if (put <= 0) {
            return false;
        }
        words.bytes += put;
        words.size -= (size_t)put;
    }
    return true;
}

static bool hears(int fd, struct words words) {
    static char bytes[MANY];
    while (words.size > 0) {
        const ssize_t got = calls->receive(fd, bytes, words.size, 0);
        if (got <= 0 || memcmp(bytes, words.bytes, (size_t)got) != 0) {
            return false;
        }
        words.bytes += got;
        words.size -= (size_t)got;
    }
    return true;
}

static bool hears_the_end(int fd) {
    char byte = 0;
    return calls->receive(fd, &byte, 1, 0) == 0;
}

/* ---- ends ---- */

static struct report report_of(int fd, bool good, double began) {
    struct report report = {.good = good, .mode = -1, .milliseconds = milliseconds() - began};
    socklen_t size = sizeof(int);
    if (calls == &over_rsockets && rgetsockopt(fd, SOL_RDMA, RDMA_MODE, &report.mode, &size) == 0) {
        (void)rgetsockopt(fd, SOL_RDMA, RDMA_MODE_REASON, &report.reason, &size);
    }
    return report;
}

/* A server that does not understand its client closes at once, or keeps waiting, and sends nothing. */
static bool serves(int fd, enum behaviour behaviour) {
    char ignored[1024];
    bool good = true;
    if (behaviour == Silent || behaviour == HalfClosed) {
        good = hears_the_end(fd);
    } else if (server_speaks_first(behaviour)) {
        good = says(fd, opening_of(behaviour)) && hears(fd, many()) && hears_the_end(fd);
    } else {
        good = hears(fd, opening_of(behaviour)) && says(fd, many()) && hears_the_end(fd);
    }
    while (!good && (behaviour == Silent || behaviour == ServerLikeKey) &&
           calls->receive(fd, ignored, sizeof(ignored), 0) > 0) {
    }
    return good;
}

static struct report serve_one(int listener, enum behaviour behaviour) {
    const double began = milliseconds();
    const int fd = calls->accept(listener, NULL, NULL);
    need(fd >= 0, "accept");
    const bool good = serves(fd, behaviour);
    const struct report report = report_of(fd, good, began);
    need(calls->close(fd) == 0, "close");
    return report;
}

static int loopback(struct sockaddr_storage *address, uint16_t port) {
    const struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    memcpy(address, family == AF_INET ? (const void *)&v4 : (const void *)&v6,
           family == AF_INET ? sizeof(v4) : sizeof(v6));
    return family == AF_INET ? sizeof(v4) : sizeof(v6);
}

static int listen_somewhere(uint16_t *port) {
    struct sockaddr_storage address;
    socklen_t length = (socklen_t)loopback(&address, 0);
    const int listener = calls->socket(family, SOCK_STREAM, 0);
    need(listener >= 0, "socket");
    need(calls->bind(listener, (struct sockaddr *)&address, length) == 0, "bind");
    need(calls->listen(listener, 4) == 0, "listen");
    need(calls->name(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    *port = ntohs(((struct sockaddr_in *)&address)->sin_port); /* at the same place in both families */
    return listener;
}

/* Only TCP has a port for each behaviour: our client remembers a port whose server uses TCP, and several of
 * librdmacm's listeners crash. */
static void be_server(void) {
    int listeners[BEHAVIOURS];
    uint16_t ports[BEHAVIOURS];
    const int different = calls == &over_tcp ? BEHAVIOURS : 1;
    for (int i = 0; i < BEHAVIOURS; ++i) {
        listeners[i] = i < different ? listen_somewhere(&ports[i]) : listeners[0];
        ports[i] = i < different ? ports[i] : ports[0];
    }
    tell(ports, sizeof(ports));
    for (int i = 0; i < BEHAVIOURS; ++i) {
        struct report report = serve_one(listeners[i], (enum behaviour)i);
        if (!report.good && calls == &over_tcp) {
            report = serve_one(listeners[i], (enum behaviour)i); /* it was a request for RDMA */
        }
        tell(&report, sizeof(report));
    }
    for (int i = 0; i < different; ++i) {
        need(calls->close(listeners[i]) == 0, "close");
    }
}

static bool asks(int fd, enum behaviour behaviour) {
    switch (behaviour) {
        case Silent:
            return true;
        case HalfClosed:
            return calls->shutdown(fd, SHUT_WR) == 0 && hears_the_end(fd);
        default:
            return server_speaks_first(behaviour) ? hears(fd, opening_of(behaviour)) && says(fd, many())
                                                  : says(fd, opening_of(behaviour)) && hears(fd, many());
    }
}

static void be_client(char **ports) {
    for (int i = 0; i < BEHAVIOURS; ++i) {
        struct sockaddr_storage address;
        const int length = loopback(&address, (uint16_t)atoi(ports[i]));
        const double began = milliseconds();
        const int fd = calls->socket(family, SOCK_STREAM, 0);
        need(fd >= 0, "socket");
        need(calls->connect(fd, (struct sockaddr *)&address, (socklen_t)length) == 0, "connect");
        const bool good = asks(fd, (enum behaviour)i);
        const struct report report = report_of(fd, good, began);
        need(calls->close(fd) == 0, "close");
        tell(&report, sizeof(report));
    }
}

int main(int count, char **arguments) {
    if (count != 3 && count != 3 + BEHAVIOURS) {
        fprintf(stderr, "usage: %s rsockets|tcp 4|6 [PORT...]\n", arguments[0]);
        return 2;
    }
    alarm(MOST_SECONDS);
    calls = strcmp(arguments[1], "tcp") == 0 ? &over_tcp : &over_rsockets;
    family = strcmp(arguments[2], "6") == 0 ? AF_INET6 : AF_INET;
    if (count == 3) {
        be_server();
    } else {
        be_client(arguments + 3);
    }
    return 0;
}
