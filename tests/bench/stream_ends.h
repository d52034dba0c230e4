/* SPDX-License-Identifier: BSD-3-Clause */
/* Both ends of a stream that is measured, in two processes: what stream.c and rstream.c have in common. */
#pragma once

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *program;
static bool returns; /* round trips, not writes */
static bool spins;
static size_t size;
static long count;
static char *bytes;

static void must(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s: %s: %s\n", program, what, strerror(errno));
        exit(1);
    }
}

static void read_arguments(const char *name, const char *kind, const char *size_text,
                           const char *count_text) {
    program = name;
    returns = strcmp(kind, "write") != 0;
    spins = strcmp(kind, "round-trip-spinning") == 0;
    size = strtoul(size_text, NULL, 10);
    count = strtol(count_text, NULL, 10);
    bytes = malloc(size > 0 ? size : 1);
    must(bytes != NULL && size > 0 && count > 0, "SIZE and COUNT");
    memset(bytes, 'x', size);
}

static void tell_port(int port_to, in_port_t port) {
    must(write(port_to, &port, sizeof(port)) == sizeof(port), "write");
}

static in_port_t told_port(int port_from) {
    in_port_t port = 0;
    must(read(port_from, &port, sizeof(port)) == sizeof(port), "read");
    return port;
}

/* Moves `wanted` bytes. move() returns how many bytes of the rest it has moved; 0: none now. */
static void move_all(void *end, size_t wanted, size_t (*move)(void *end, char *from, size_t most)) {
    for (size_t moved = 0; moved < wanted;) {
        moved += move(end, bytes + moved, wanted - moved);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Prints microseconds of a round trip, or GB/s of the writes. */
static void print_result(double time) {
    printf("%.4g\n", returns ? time / (double)count * 1e6 : (double)size * (double)count / time / 1e9);
}

/* The server is a child, and tells the client its port. */
static int run_both(void (*serve)(int port_to), void (*ask)(int port_from)) {
    int port[2];
    must(pipe(port) == 0, "pipe");
    const pid_t server = fork();
    if (server == 0) {
        serve(port[1]);
        exit(0);
    }
    ask(port[0]);
    int status = 0;
    must(waitpid(server, &status, 0) == server && status == 0, "the server");
    return 0;
}
