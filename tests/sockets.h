/* SPDX-License-Identifier: BSD-3-Clause */
/* sockets: makes TCP connections of a C test with itself, over 127.0.0.1, and asserts that it succeeds.
 * Include it after cmocka.h. */
#ifndef SOCKETS_H
#define SOCKETS_H 1

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* Returns a socket that listens on the loopback interface, and stores its port. */
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

/* Makes a connection with both of its ends in this process: fds[0] connects and fds[1] is accepted. */
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
