/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket_reach: tests rconnect to servers that speak TCP. The rsocket asks them for RDMA, and each answers
 * as programs do that do not know the question. Then the rsocket is TCP, and every byte arrives once. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "test.h"

/* These come last, because they assert. */
#include "../sockets.h"
#include "rsockets.h"

enum { MANY = 100000 };

static const char greeting[] = "220 ready\r\n";
static const char garbage[] = "\x16\x03\x01\x02";

/* A server does this with a request for RDMA. It sends back all else, as an echo does. */
enum kind {
    Greets,  /* speaks before the client has said anything, whatever that is */
    Echoes,  /* sends back what it does not understand, too */
    Garbles, /* answers with few bytes, and waits */
    Closes,
    Waits, /* waits for more, in silence */
    Hears  /* waits, and never says anything */
};

static enum kind kind;
static int listener = -1;
static pthread_t server;
static atomic_int served; /* connections */
static int asked;         /* connections that were asked for RDMA */
/* This counts the bytes that were as fill() has them, from the first on. They were no request. */
static size_t heard;
static struct sockaddr_storage address;
static socklen_t address_size;
static int fd = -1;

static char byte_at(size_t place) {
    return (char)(place * 31 / 7);
}

static bool send_all(int to, const char *bytes, size_t size) {
    while (size > 0) {
        const ssize_t put = send(to, bytes, size, MSG_NOSIGNAL);
        if (put <= 0) {
            return false;
        }
        bytes += put;
        size -= (size_t)put;
    }
    return true;
}

static void serve(int connection) {
    static char bytes[1 << 16];
    ssize_t got = 0;
    if (kind == Greets) {
        (void)send_all(connection, greeting, strlen(greeting));
    }
    for (bool first = true; (got = recv(connection, bytes, sizeof(bytes), 0)) > 0; first = false) {
        const bool is_request = first && got >= 3 && memcmp(bytes, "MPA", 3) == 0;
        asked += is_request;
        if (is_request && kind == Closes) {
            break;
        }
        if (is_request && (kind == Waits || kind == Hears)) {
            continue;
        }
        for (ssize_t i = 0; kind == Hears && i < got && bytes[i] == byte_at(heard); ++i) {
            ++heard;
        }
        if (kind == Hears) {
            continue;
        }
        if (is_request && kind == Garbles ? !send_all(connection, garbage, strlen(garbage))
                                          : !send_all(connection, bytes, (size_t)got)) {
            break;
        }
    }
    close(connection);
}

static void *accept_and_serve(void *unused) {
    (void)unused;
    int connection = 0;
    while ((connection = accept(listener, NULL, NULL)) >= 0) {
        ++served;
        serve(connection);
    }
    return NULL;
}

static uint16_t port_of(const struct sockaddr_storage *name) {
    return ((const struct sockaddr_in *)name)->sin_port; /* sockaddr_in6 has the port in the same place */
}

/* Returns whether this process had a server there before. librsocket remembers for
 * a minute which servers speak TCP alone. */
static bool is_known_port(uint16_t port) {
    static bool known[UINT16_MAX + 1];
    const bool was_known = known[port];
    known[port] = true;
    return was_known;
}

static void start_server(enum kind of, int family) {
    const struct sockaddr_in v4 = loopback_at(0);
    const struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    kind = of;
    served = 0;
    asked = 0;
    heard = 0;
    address_size = family == AF_INET ? sizeof(v4) : sizeof(v6);
    do {
        close(listener);
        memcpy(&address, family == AF_INET ? (const void *)&v4 : (const void *)&v6, address_size);
        listener = socket(family, SOCK_STREAM, 0);
        assert_int_equal(bind(listener, (struct sockaddr *)&address, address_size), 0);
        assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &address_size), 0);
    } while (is_known_port(port_of(&address)));
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(pthread_create(&server, NULL, accept_and_serve, NULL), 0);
}

static void stop_server(void) {
    shutdown(listener, SHUT_RDWR);
    assert_int_equal(pthread_join(server, NULL), 0);
    close(listener);
    listener = -1;
}

static int close_all(void **state) {
    (void)state;
    if (fd >= 0) {
        assert_int_equal(rclose(fd), 0);
        fd = -1;
    }
    if (listener >= 0) {
        stop_server();
    }
    return 0;
}

static int rdma_option(int of, int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    assert_int_equal(rgetsockopt(of, SOL_RDMA, name, &value, &size), 0);
    return value;
}

static void fill(char *bytes) {
    for (size_t i = 0; i < MANY; ++i) {
        bytes[i] = byte_at(i);
    }
}

static void assert_gets(const char *text) {
    char bytes[64] = "";
    assert_int_equal(rrecv(fd, bytes, strlen(text), MSG_WAITALL), (ssize_t)strlen(text));
    assert_string_equal(bytes, text);
}

static void connect_to_server(int family) {
    fd = rsocket(family, SOCK_STREAM, 0);
    assert_int_equal(rconnect(fd, (const struct sockaddr *)&address, address_size), 0);
}

/* ---- every kind of server ---- */

static const struct {
    enum kind kind;
    int reason;
} kinds[] = {{Greets, RDMA_REASON_PEER_SPEAKS_TCP},
             {Echoes, RDMA_REASON_PEER_SPEAKS_TCP},
             {Garbles, RDMA_REASON_PEER_SPEAKS_TCP},
             {Closes, RDMA_REASON_PEER_SPEAKS_TCP},
             {Waits, RDMA_REASON_PEER_SILENT}};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* The rsocket keeps what is sent at once until the server has answered
 * the request, or has not answered in time. */
static void every_byte_comes_back_once(void **state) {
    static char out[MANY];
    static char in[MANY + 1];
    fill(out);
    for (int i = 0; i < KINDS; ++i) {
        start_server(kinds[i].kind, AF_INET);
        connect_to_server(AF_INET);
        assert_int_equal(rsend(fd, out, MANY, 0), MANY);
        assert_int_equal(rshutdown(fd, SHUT_WR), 0);
        if (kind == Greets) {
            assert_gets(greeting);
        }
        assert_int_equal(rrecv(fd, in, sizeof(in), MSG_WAITALL), MANY);
        assert_memory_equal(in, out, MANY);
        assert_int_equal(rdma_option(fd, RDMA_MODE), RDMA_MODE_TCP);
        assert_int_equal(rdma_option(fd, RDMA_MODE_REASON), kinds[i].reason);
        close_all(state);
        assert_int_equal(served, 2);
        assert_int_equal(asked, kind == Greets ? asked : 1);
    }
}

static void nothing_waits_that_must_not(void **state) {
    static char out[MANY];
    static char in[MANY];
    fill(out);
    for (int i = 0; i < KINDS; ++i) {
        start_server(kinds[i].kind, AF_INET);
        fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        const double before = seconds();
        assert_fails(rconnect(fd, (const struct sockaddr *)&address, address_size), EINPROGRESS);
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        assert_int_equal(rpoll(&entry, 1, 30000), 1);
        assert_int_equal(entry.revents, POLLOUT);
        /* A silent server has a second for its answer, and the rsocket is writable before. */
        assert_true(rdma_option(fd, RDMA_MODE) == RDMA_MODE_OPEN || kind != Waits ||
                    seconds() - before > 0.9);
        int error = -1;
        socklen_t size = sizeof(error);
        assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
        assert_int_equal(error, 0);
        size_t sent = 0;
        size_t got = 0;
        const size_t before_echo = kind == Greets ? strlen(greeting) : 0;
        while (got < before_echo + MANY) {
            entry.events = (short)(POLLIN | (sent < MANY ? POLLOUT : 0));
            assert_int_equal(rpoll(&entry, 1, 30000), 1);
            if ((entry.revents & POLLOUT) != 0) {
                const ssize_t count = rsend(fd, out + sent, MANY - sent, 0);
                assert_true(count > 0 || errno == EAGAIN);
                sent += count > 0 ? (size_t)count : 0;
            }
            if ((entry.revents & POLLIN) != 0) {
                const bool greets = got < before_echo;
                char *const to = greets ? in + got : in + got - before_echo;
                const ssize_t count = rrecv(fd, to, greets ? before_echo - got : MANY + before_echo - got, 0);
                assert_true(count > 0);
                assert_true(!greets || memcmp(to, greeting + got, (size_t)count) == 0);
                got += (size_t)count;
            }
            assert_int_equal(entry.revents & ~(POLLIN | POLLOUT), 0);
        }
        assert_memory_equal(in, out, MANY);
        close_all(state);
    }
}

/* Connects to a server that goes while the set waits for its answer. The
 * set does not look at the rsocket again. */
static void connect_in_vain(int set) {
    struct epoll_event event = {.events = EPOLLOUT};
    const double begin = seconds();
    const double deadline = begin + 30;
    uint16_t port = 0;
    const int silent = listening_socket(&port);
    const struct sockaddr_in there = loopback_at(port);
    (void)is_known_port(there.sin_port);
    assert_fails(rconnect(fd, (const struct sockaddr *)&there, sizeof(there)), EINPROGRESS);
    assert_int_equal(repoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    assert_int_equal(repoll_wait(set, &event, 1, 30000), 1);
    assert_int_equal(event.events, EPOLLOUT); /* the rsocket takes bytes, and has asked */
    close(silent);
    do {
        assert_int_equal(rconnect(fd, (const struct sockaddr *)&there, sizeof(there)), -1);
        assert_true(seconds() < deadline);
    } while (errno == EALREADY);
    /* When this thread did not run for a second, the rsocket has connected in TCP before the server went. */
    const int error = errno;
    assert_true(error == ECONNREFUSED || (error == ECONNRESET && seconds() - begin > 1));
}

/* Only the end of the time that the server has for its answer wakes the thread. */
static void a_repoll_sees_what_becomes_of_it(void **state) {
    for (int i = 0; i < KINDS; ++i) {
        fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct epoll_event event = {.events = EPOLLOUT};
        const int set = repoll_create(0);
        connect_in_vain(set);
        start_server(kinds[i].kind, AF_INET);
        assert_fails(rconnect(fd, (const struct sockaddr *)&address, address_size), EINPROGRESS);
        assert_int_equal(repoll_ctl(set, EPOLL_CTL_MOD, fd, &event), 0);
        assert_int_equal(repoll_wait(set, &event, 1, 30000), 1);
        assert_int_equal(event.events, EPOLLOUT);
        assert_int_equal(rsend(fd, "abc", 3, 0), 3);
        event.events = EPOLLIN;
        assert_int_equal(repoll_ctl(set, EPOLL_CTL_MOD, fd, &event), 0);
        assert_int_equal(repoll_wait(set, &event, 1, 30000), 1);
        assert_int_equal(event.events, EPOLLIN);
        assert_int_equal(rfcntl(fd, F_SETFL, 0), 0);
        if (kind == Greets) {
            assert_gets(greeting);
        }
        assert_gets("abc");
        assert_int_equal(rclose(set), 0);
        close_all(state);
    }
}

/* Waits until the server has accepted so many connections. Those that it
 * has not accepted are lost when it stops. */
static void await_served(int connections) {
    const double deadline = seconds() + 30;
    while (served < connections) {
        assert_int_equal(rpoll(NULL, 0, 1), 0);
        assert_true(seconds() < deadline);
    }
}

static void what_was_sent_goes_out_when_it_is_closed(void **state) {
    static char out[MANY];
    fill(out);
    for (int i = 0; i < KINDS; ++i) {
        start_server(kinds[i].kind, AF_INET);
        connect_to_server(AF_INET);
        assert_int_equal(rsend(fd, out, MANY, 0), MANY);
        assert_int_equal(rclose(fd), 0);
        fd = -1;
        connect_to_server(AF_INET);
        assert_int_equal(rdma_option(fd, RDMA_MODE_REASON), RDMA_REASON_REMEMBERED);
        assert_int_equal(rsend(fd, "after", 5, 0), 5);
        if (kind == Greets) {
            assert_gets(greeting);
        }
        assert_gets("after");
        assert_int_equal(rclose(fd), 0);
        fd = -1;
        /* The first connection may come to the server after the second, which did not ask. */
        await_served(3);
        close_all(state);
        assert_int_equal(served, 3);
    }
}

static const char *program;

/* Leaves with exit(3) while a server that says nothing to a request has not taken the bytes. */
static void be_leaving(int port) {
    static char out[MANY];
    const struct sockaddr_in server_address = loopback_at((uint16_t)port);
    fill(out);
    fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_fails(rconnect(fd, (const struct sockaddr *)&server_address, sizeof(server_address)), EINPROGRESS);
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    assert_int_equal(rpoll(&entry, 1, 30000), 1);
    assert_int_equal(rsend(fd, out, MANY, 0), MANY);
    assert_int_equal(rdma_option(fd, RDMA_MODE), RDMA_MODE_OPEN);
}

static void what_was_sent_goes_out_when_the_process_ends(void **state) {
    (void)state;
    start_server(Hears, AF_INET);
    const pid_t child =
        start_peer(program, "leave", ntohs(((const struct sockaddr_in *)&address)->sin_port), 0);
    assert_int_equal(end_of_peer(child), 0);
    await_served(2); /* one for the request, one for TCP */
    stop_server();
    assert_int_equal(heard, MANY);
}

/* The server has no room for the second connection before it accepts the one in front of it.
 * An end of receiving holds in each state. */
static void what_is_said_while_tcp_connects_again_goes_there(void **state) {
    (void)state;
    char byte = 0;
    uint16_t port = 0;
    const int full = listening_socket(&port);
    const struct sockaddr_in there = loopback_at(port);
    assert_int_equal(listen(full, 0), 0);
    fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_fails(rconnect(fd, (const struct sockaddr *)&there, sizeof(there)), EINPROGRESS);
    int accepted = accept(full, NULL, NULL);
    const int filler = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(filler, (const struct sockaddr *)&there, sizeof(there)), 0);
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    assert_int_equal(rpoll(&entry, 1, 30000), 1);
    assert_fails(rrecv(fd, &byte, 1, 0), EAGAIN);
    assert_int_equal(rshutdown(fd, SHUT_RD), 0);
    assert_int_equal(rrecv(fd, &byte, 1, 0), 0);
    close(accepted);
    entry.events = 0;
    while (rdma_option(fd, RDMA_MODE_REASON) == RDMA_REASON_NONE) {
        assert_int_equal(rpoll(&entry, 1, 1), 0);
    }
    assert_int_equal(rdma_option(fd, RDMA_MODE), RDMA_MODE_OPEN);
    assert_int_equal(rrecv(fd, &byte, 1, 0), 0);
    assert_int_equal(rsend(fd, "x", 1, 0), 1);
    close(accept(full, NULL, NULL));
    entry.events = POLLOUT;
    assert_int_equal(rpoll(&entry, 1, 30000), 1);
    accepted = accept(full, NULL, NULL);
    assert_int_equal(recv(accepted, &byte, 1, 0), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(rdma_option(fd, RDMA_MODE), RDMA_MODE_TCP);
    assert_int_equal(rrecv(fd, &byte, 1, 0), 0);
    close(filler);
    close(accepted);
    close(full);
}

/* ---- the address, and the number ---- */

static void a_port_that_was_bound_stays(void **state) {
    (void)state;
    struct sockaddr_in own = loopback_at(0);
    struct sockaddr_in name;
    socklen_t size = sizeof(own);
    start_server(Closes, AF_INET);
    fd = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rbind(fd, (struct sockaddr *)&own, size), 0);
    assert_int_equal(rgetsockname(fd, (struct sockaddr *)&own, &size), 0);
    assert_int_equal(rconnect(fd, (const struct sockaddr *)&address, address_size), 0);
    assert_int_equal(rsend(fd, "x", 1, 0), 1);
    assert_gets("x");
    assert_int_equal(rdma_option(fd, RDMA_MODE), RDMA_MODE_TCP);
    assert_int_equal(rgetsockname(fd, (struct sockaddr *)&name, &size), 0);
    assert_int_equal(name.sin_port, own.sin_port);
    assert_int_equal(rgetpeername(fd, (struct sockaddr *)&name, &size), 0);
    assert_int_equal(name.sin_port, ((struct sockaddr_in *)&address)->sin_port);
}

static void options_are_those_of_the_program(void **state) {
    (void)state;
    const int second = 1;
    int value = -1;
    socklen_t size = sizeof(value);
    start_server(Closes, AF_INET);
    fd = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &second, sizeof(second)), 0);
    assert_int_equal(rconnect(fd, (const struct sockaddr *)&address, address_size), 0);
    assert_int_equal(rsend(fd, "x", 1, 0), 1);
    assert_gets("x");
    assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &value, &size), 0);
    assert_int_equal(value, 1);
    assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &size), 0);
    assert_int_equal(value, 0); /* the device sets this for itself */
}

/* ---- an rsocket as its own peer ---- */

static void a_thread_connects_to_itself(void **state) {
    (void)state;
    static char out[MANY];
    static char in[MANY];
    uint16_t port = 0;
    const int own = listening_rsocket(&port);
    const struct sockaddr_in self = loopback_at(port);
    fill(out);
    fd = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rconnect(fd, (const struct sockaddr *)&self, sizeof(self)), 0);
    assert_int_equal(rsend(fd, out, MANY, 0), MANY);
    const int accepted = raccept(own, NULL, NULL);
    assert_int_equal(rrecv(accepted, in, MANY, MSG_WAITALL), MANY);
    assert_memory_equal(in, out, MANY);
    assert_int_equal(rsend(accepted, "back", 4, 0), 4);
    assert_gets("back");
    assert_int_equal(rdma_option(fd, RDMA_MODE), RDMA_MODE_RDMA);
    assert_int_equal(rdma_option(accepted, RDMA_MODE), RDMA_MODE_RDMA);
    assert_int_equal(rclose(accepted), 0);
    assert_int_equal(rclose(own), 0);
}

/* The thread sends and closes before it accepts. */
static void a_thread_that_closed_hears_itself(void **state) {
    (void)state;
    uint16_t port = 0;
    const int own = listening_rsocket(&port);
    const struct sockaddr_in self = loopback_at(port);
    const int closed = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rconnect(closed, (const struct sockaddr *)&self, sizeof(self)), 0);
    assert_int_equal(rsend(closed, "bytes", 5, 0), 5);
    assert_int_equal(rclose(closed), 0);
    fd = raccept(own, NULL, NULL);
    assert_gets("bytes");
    char byte = 0;
    assert_int_equal(rrecv(fd, &byte, 1, 0), 0);
    assert_int_equal(rclose(own), 0);
}

/* ---- whom to ask ---- */

/* Runs the tests of a process whose RS_PROBE is `value`. The process reads the variable once. */
static void become(const char *value) {
    assert_int_equal(setenv("RS_PROBE", value, 1), 0);
    const pid_t child = start_peer(program, value, 0, 0);
    assert_int_equal(unsetenv("RS_PROBE"), 0);
    assert_int_equal(end_of_peer(child), 0);
}

static void who_is_asked_is_told_by_a_variable(void **state) {
    (void)state;
    become("never");
    become("known");
    become("only");
}

/* The rsocket does not ask a server of TCP. It asks an rsocket of this machine, when that is known. */
static void asks(bool known) {
    uint16_t port = 0;
    const int own = listening_rsocket(&port);
    const struct sockaddr_in self = loopback_at(port);
    start_server(Echoes, AF_INET);
    connect_to_server(AF_INET);
    assert_int_equal(rdma_option(fd, RDMA_MODE), RDMA_MODE_TCP);
    assert_int_equal(rdma_option(fd, RDMA_MODE_REASON), RDMA_REASON_NOT_ASKED);
    assert_int_equal(rsend(fd, "x", 1, 0), 1);
    assert_gets("x");
    assert_fails(rconnect(fd, (const struct sockaddr *)&self, sizeof(self)), EISCONN);
    assert_int_equal(rclose(fd), 0);
    assert_int_equal(asked, 0);
    fd = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rconnect(fd, (const struct sockaddr *)&self, sizeof(self)), 0);
    assert_int_equal(rsend(fd, "x", 1, 0), 1);
    const int accepted = raccept(own, NULL, NULL);
    char byte = 0;
    assert_int_equal(rrecv(accepted, &byte, 1, 0), 1);
    assert_int_equal(rdma_option(accepted, RDMA_MODE), known ? RDMA_MODE_RDMA : RDMA_MODE_TCP);
    assert_int_equal(rclose(accepted), 0);
    assert_int_equal(rclose(own), 0);
}

static void never_asks(void **state) {
    (void)state;
    asks(false);
    /* No program listens there any more, and then the rsocket may listen. */
    close_all(state);
    fd = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_fails(rconnect(fd, (const struct sockaddr *)&address, address_size), ECONNREFUSED);
    assert_int_equal(rlisten(fd, 1), 0);
}

static void asks_whom_it_knows(void **state) {
    (void)state;
    asks(true);
}

static void takes_nothing_but_rdma(void **state) {
    (void)state;
    start_server(Closes, AF_INET);
    fd = rsocket(AF_INET, SOCK_STREAM, 0);
    /* The answer may come at any moment of the wait for it. */
    for (int i = 0; i < 100; ++i) {
        assert_fails(rconnect(fd, (const struct sockaddr *)&address, address_size), ECONNRESET);
    }
    assert_int_equal(rdma_option(fd, RDMA_FALLBACK), 0);
    assert_int_equal(rdma_option(fd, RDMA_MODE), RDMA_MODE_OPEN);
}

#define CLOSING(test) cmocka_unit_test_teardown(test, close_all)

int main(int count, char **arguments) {
    program = arguments[0];
    if (count == 4 && strcmp(arguments[1], "leave") == 0) {
        be_leaving(atoi(arguments[2]));
        return 0;
    }
    if (count == 4) {
        const char *const value = arguments[1];
        const struct CMUnitTest never[] = {CLOSING(never_asks)};
        const struct CMUnitTest known[] = {CLOSING(asks_whom_it_knows)};
        const struct CMUnitTest only[] = {CLOSING(takes_nothing_but_rdma)};
        return strcmp(value, "never") == 0   ? cmocka_run_group_tests_name(value, never, NULL, NULL)
               : strcmp(value, "known") == 0 ? cmocka_run_group_tests_name(value, known, NULL, NULL)
                                             : cmocka_run_group_tests_name(value, only, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        CLOSING(every_byte_comes_back_once),
        CLOSING(nothing_waits_that_must_not),
        CLOSING(a_repoll_sees_what_becomes_of_it),
        CLOSING(what_was_sent_goes_out_when_it_is_closed),
        CLOSING(what_was_sent_goes_out_when_the_process_ends),
        CLOSING(what_is_said_while_tcp_connects_again_goes_there),
        CLOSING(a_port_that_was_bound_stays),
        CLOSING(options_are_those_of_the_program),
        CLOSING(a_thread_connects_to_itself),
        CLOSING(a_thread_that_closed_hears_itself),
        cmocka_unit_test(who_is_asked_is_told_by_a_variable),
    };
    return cmocka_run_group_tests_name("rsocket_reach", tests, NULL, NULL);
}
