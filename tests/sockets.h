/* SPDX-License-Identifier: BSD-3-Clause */
/* sockets: TCP connections of a C test with itself, over 127.0.0.1. Included after cmocka.h: they assert. */
#ifndef SOCKETS_H
#define SOCKETS_H 1

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* A socket that listens on the loopback, and its port. */
static inline int listening_socket(uint16_t *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return listener;
}

/* A connection with both of its ends here: fds[0] connected, fds[1] accepted. */
static inline void connect_sockets(int fds[2]) {
    uint16_t port = 0;
    const int listener = listening_socket(&port);
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fds[0], (const struct sockaddr *)&address, sizeof(address)), 0);
    fds[1] = accept(listener, NULL, NULL);
    assert_true(fds[1] >= 0);
    close(listener);
}

#endif
