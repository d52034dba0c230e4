/* SPDX-License-Identifier: BSD-3-Clause */
/* One thread has both ends of each stream: it begins to connect, and then waits in a call for another rsocket
 * only, so that only this wait can continue the connection. Then both ends return the same names. This
 * program runs in the kernel lab's guest: one_thread ADDRESS STREAMS */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rpma/rsocket.h>

/* The streams take turns in these calls to wait for their peer. */
enum { in_raccept, in_rpoll, in_polling, kinds };

static const char *const names[kinds] = {"raccept", "rpoll", "raccept that does not block"};
static const unsigned timeout_s = 30;
static int kind;

static void must(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "one_thread: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static void hangs(int signal) {
    (void)signal;
    static const char said[] = "one_thread: there is no connection after 30 s; the thread waits in ";
    (void)!write(STDERR_FILENO, said, sizeof(said) - 1);
    (void)!write(STDERR_FILENO, names[kind], strlen(names[kind]));
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(1);
}

/* Both ends of a stream have the same names for it, and the server's is the listener's. */
static void must_agree(int client, int server, const struct sockaddr_in *listener) {
    struct sockaddr_in name[2][2];
    const int ends[2] = {client, server};
    for (int end = 0; end < 2; ++end) {
        socklen_t length = sizeof(name[end][0]);
        must(rgetsockname(ends[end], (struct sockaddr *)&name[end][0], &length) == 0, "rgetsockname");
        must(rgetpeername(ends[end], (struct sockaddr *)&name[end][1], &length) == 0, "rgetpeername");
    }
    errno = 0;
    for (int end = 0; end < 2; ++end) {
        must(name[end][0].sin_port == name[!end][1].sin_port &&
                 name[end][0].sin_addr.s_addr == name[!end][1].sin_addr.s_addr,
             "a local name that the peer has otherwise");
    }
    must(name[1][0].sin_port == listener->sin_port && name[1][0].sin_addr.s_addr == listener->sin_addr.s_addr,
         "the server's name, which is not the listener's");
}

static int accepted_by(int listener) {
    struct pollfd one = {.fd = listener, .events = POLLIN};
    int accepted = -1;
    if (kind == in_rpoll) {
        must(rpoll(&one, 1, -1) == 1, "rpoll");
    }
    must(rfcntl(listener, F_SETFL, kind == in_polling ? O_NONBLOCK : 0) == 0, "rfcntl");
    do {
        accepted = raccept(listener, NULL, NULL);
    } while (accepted < 0 && kind == in_polling && errno == EAGAIN);
    must(accepted >= 0, "raccept");
    return accepted;
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof(address);
    const long streams = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (streams <= 0 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
        fprintf(stderr, "usage: one_thread ADDRESS STREAMS\n");
        return 2;
    }
    struct sockaddr *const name = (struct sockaddr *)&address;
    const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    must(listener >= 0 && rbind(listener, name, length) == 0 && rlisten(listener, 1) == 0 &&
             rgetsockname(listener, name, &length) == 0,
         "listening");
    signal(SIGALRM, hangs);
    for (long i = 0; i < streams; ++i) {
        kind = (int)(i % kinds);
        alarm(timeout_s);
        const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        must(client >= 0, "rsocket");
        must(rconnect(client, name, length) == 0 || errno == EINPROGRESS, "rconnect");
        const int server = accepted_by(listener);
        struct pollfd one = {.fd = client, .events = POLLOUT};
        char byte = 'x';
        must(rpoll(&one, 1, -1) == 1, "rpoll");
        if (one.revents != POLLOUT) {
            int error = 0;
            socklen_t size = sizeof(error);
            must(rgetsockopt(client, SOL_SOCKET, SO_ERROR, &error, &size) == 0, "rgetsockopt");
            fprintf(stderr, "one_thread: stream %ld, whose peer was waited for in %s: %#hx, %s\n", i,
                    names[kind], (unsigned short)one.revents, strerror(error));
            return 1;
        }
        must(rsend(client, &byte, 1, 0) == 1 && rrecv(server, &byte, 1, 0) == 1, "a byte");
        must_agree(client, server, &address);
        must(rclose(client) == 0 && rclose(server) == 0, "rclose");
    }
    return rclose(listener);
}
