/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages on a stream whose two ends are in one thread: stream_cost.sh runs this under callgrind, which
 * counts in rsend and rrecv only.
 *   stream_cost SIZE MESSAGES */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rpma/rsocket.h>

static void must(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "stream_cost: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static void send_all(int fd, const char *bytes, size_t size) {
    must(rsend(fd, bytes, size, 0) == (ssize_t)size, "rsend");
}

static void receive_all(int fd, char *bytes, size_t size) {
    for (size_t received = 0; received < size;) {
        const ssize_t got = rrecv(fd, bytes + received, size - received, 0);
        must(got > 0, "rrecv");
        received += (size_t)got;
    }
}

static void wait_for(int a, int b, short events) {
    struct pollfd both[] = {{.fd = a, .events = events}, {.fd = b, .events = events}};
    while (both[0].revents == 0) {
        must(rpoll(both, 2, 10000) > 0, "rpoll");
    }
}

int main(int argc, char **argv) {
    static char bytes[65536];
    const size_t size = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
    const long messages = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (size == 0 || size > sizeof(bytes) || messages <= 0) {
        fprintf(stderr, "usage: stream_cost SIZE MESSAGES\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    must(listener >= 0 && rbind(listener, (struct sockaddr *)&address, length) == 0 &&
             rlisten(listener, 1) == 0 && rgetsockname(listener, (struct sockaddr *)&address, &length) == 0,
         "listening");
    const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    must(client >= 0, "rsocket");
    must(rconnect(client, (struct sockaddr *)&address, length) == 0 || errno == EINPROGRESS, "rconnect");
    const int server = raccept(listener, NULL, NULL);
    must(server >= 0, "raccept");
    wait_for(client, server, POLLOUT);
    must(rfcntl(client, F_SETFL, 0) == 0, "rfcntl");
    for (long i = 0; i < messages; i += 2) {
        send_all(client, bytes, size);
        receive_all(server, bytes, size);
        send_all(server, bytes, size);
        receive_all(client, bytes, size);
    }
    return rclose(client) + rclose(server) + rclose(listener);
}
