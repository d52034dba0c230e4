/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages there and back on a stream between two processes. stream_cost.sh runs this under callgrind, which
 * counts in rsend and rrecv only.
 *   stream_cost SIZE MESSAGES [ADDRESS] */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rpma/rsocket.h>

static void must(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "stream_cost: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static char bytes[65536];

/* The two processes take turns over a pair of the kernel's sockets: bytes are there before rrecv looks for
 * them, so that it looks as often in every run. A device of the kernel delivers them in a thread of its own,
 * which gets the time for it. */
static struct timespec time_to_deliver;
static void give_turn(int turns) {
    must(time_to_deliver.tv_nsec == 0 || nanosleep(&time_to_deliver, NULL) == 0, "nanosleep");
    must(write(turns, "", 1) == 1, "write");
}
static void take_turn(int turns) {
    char turn;
    must(read(turns, &turn, 1) == 1, "read");
}

static void exchange(int fd, int turns, bool begins, size_t size, long messages) {
    for (long i = 0; i < messages; ++i) {
        if ((i % 2 == 0) == begins) {
            must(rsend(fd, bytes, size, 0) == (ssize_t)size, "rsend");
            give_turn(turns);
            continue;
        }
        take_turn(turns);
        for (size_t received = 0; received < size;) {
            const ssize_t got = rrecv(fd, bytes + received, size - received, 0);
            must(got > 0, "rrecv");
            received += (size_t)got;
        }
    }
}

static int serve(struct sockaddr_in *address, int turns, size_t size, long messages) {
    socklen_t length = sizeof(*address);
    const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    must(listener >= 0 && rbind(listener, (struct sockaddr *)address, length) == 0 &&
             rlisten(listener, 1) == 0 && rgetsockname(listener, (struct sockaddr *)address, &length) == 0,
         "listening");
    must(write(turns, &address->sin_port, sizeof(address->sin_port)) == sizeof(address->sin_port), "write");
    const int fd = raccept(listener, NULL, NULL);
    must(fd >= 0, "raccept");
    struct pollfd begun = {.fd = fd, .events = POLLOUT}; /* the client waits until this end is used */
    must(rpoll(&begun, 1, 10000) == 1, "rpoll");
    exchange(fd, turns, false, size, messages);
    return rclose(fd) + rclose(listener);
}

static int be_client(struct sockaddr_in *address, int turns, size_t size, long messages) {
    must(read(turns, &address->sin_port, sizeof(address->sin_port)) == sizeof(address->sin_port), "read");
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    must(fd >= 0 && rconnect(fd, (struct sockaddr *)address, sizeof(*address)) == 0, "rconnect");
    exchange(fd, turns, true, size, messages);
    return rclose(fd);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    const size_t size = argc >= 3 ? strtoul(argv[1], NULL, 10) : 0;
    const long messages = argc >= 3 ? strtol(argv[2], NULL, 10) : 0;
    int turns[2];
    int status = 0;
    if (size == 0 || size > sizeof(bytes) || messages <= 0 ||
        inet_pton(AF_INET, argc == 4 ? argv[3] : "127.0.0.1", &address.sin_addr) != 1) {
        fprintf(stderr, "usage: stream_cost SIZE MESSAGES [ADDRESS]\n");
        return 2;
    }
    time_to_deliver.tv_nsec = argc == 4 ? 500000 : 0;
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, turns) == 0, "socketpair");
    const pid_t server = fork();
    must(server >= 0, "fork");
    (void)close(turns[server == 0 ? 0 : 1]); /* an end that fails ends the other's turn */
    if (server == 0) {
        return serve(&address, turns[1], size, messages);
    }
    const int failed = be_client(&address, turns[0], size, messages);
    must(waitpid(server, &status, 0) == server, "waitpid");
    return failed != 0 || status != 0;
}
