/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket_fallback: tests rsockets and programs that speak only TCP. The first bytes decide what the socket
 * becomes. Every byte arrives, whichever side speaks first, and no side waits for ever. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "test.h"

/* These come last, because they assert. */
#include "../sockets.h"
#include "rsockets.h"

enum { MANY = 3 << 20, BLOCK = 60000, PATIENCE = 30000, GRACE = 250 };

static const char request_key[] = "MPA ID Req Frame";

static uint16_t port;
static int listener = -1;
static int client = -1; /* a socket of the kernel */
static int fd = -1;     /* the rsocket of raccept */

static int listen_for_plain(void **state) {
    (void)state;
    listener = listening_rsocket(&port);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    if (fd >= 0) {
        assert_int_equal(rclose(fd), 0);
        fd = -1;
    }
    if (client >= 0) {
        close(client);
        client = -1;
    }
    assert_int_equal(rclose(listener), 0);
    return 0;
}

static void connect_plain(void) {
    const struct sockaddr_in address = loopback_at(port);
    client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&address, sizeof(address)), 0);
    fd = raccept(listener, NULL, NULL);
    assert_true(fd >= 0);
}

static int rdma_option(int of, int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    assert_int_equal(rgetsockopt(of, SOL_RDMA, name, &value, &size), 0);
    return value;
}

static void assert_mode(int of, int mode, int reason) {
    assert_int_equal(rdma_option(of, RDMA_MODE), mode);
    assert_int_equal(rdma_option(of, RDMA_MODE_REASON), reason);
}

static void say(const char *text) {
    assert_int_equal(send(client, text, strlen(text), 0), (ssize_t)strlen(text));
}

static void assert_rsocket_gets(const char *text) {
    char bytes[64] = "";
    assert_int_equal(rrecv(fd, bytes, strlen(text), MSG_WAITALL), (ssize_t)strlen(text));
    assert_string_equal(bytes, text);
}

static void assert_client_gets(const char *text) {
    char bytes[64] = "";
    assert_int_equal(recv(client, bytes, strlen(text), MSG_WAITALL), (ssize_t)strlen(text));
    assert_string_equal(bytes, text);
}

/* ---- a plain client ---- */

static void a_client_that_speaks_first_has_tcp(void **state) {
    (void)state;
    connect_plain();
    assert_mode(fd, RDMA_MODE_OPEN, RDMA_REASON_NONE);
    say("GET / HTTP/1.1\r\n");
    assert_rsocket_gets("GET / HTTP/1.1\r\n");
    assert_mode(fd, RDMA_MODE_TCP, RDMA_REASON_PEER_SPEAKS_TCP);
    assert_int_equal(rsend(fd, "200", 3, 0), 3);
    assert_client_gets("200");
    struct sockaddr_in name;
    socklen_t size = sizeof(name);
    assert_int_equal(rgetsockname(fd, (struct sockaddr *)&name, &size), 0);
    assert_int_equal(ntohs(name.sin_port), port);
    assert_fails(rconnect(fd, (const struct sockaddr *)&name, size), EISCONN);
    assert_int_equal(shutdown(client, SHUT_WR), 0);
    char byte = 0;
    assert_int_equal(rrecv(fd, &byte, 1, 0), 0);
    assert_int_equal(rshutdown(fd, SHUT_RDWR), 0);
    assert_int_equal(recv(client, &byte, 1, 0), 0);
    assert_fails(rsend(fd, &byte, 1, 0), EPIPE); /* and no signal */
}

static void a_server_that_speaks_first_has_tcp(void **state) {
    (void)state;
    connect_plain();
    assert_int_equal(rsend(fd, "220 ready\r\n", 11, 0), 11);
    assert_mode(fd, RDMA_MODE_TCP, RDMA_REASON_SPOKE_FIRST);
    assert_client_gets("220 ready\r\n");
    say("HELO");
    assert_rsocket_gets("HELO");
}

/* A server that does not block may speak when the time for a request is over.
 * That time is shorter for later clients. */
static void a_server_that_does_not_block_speaks_first(void **state) {
    (void)state;
    const double before = seconds();
    connect_plain();
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLOUT};
    assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
    while (rsend(fd, "x", 1, 0) != 1) {
        assert_int_equal(errno, EAGAIN);
        assert_int_equal(rpoll(&entry, 1, PATIENCE), 1);
        assert_int_equal(entry.revents, POLLOUT);
    }
    assert_true((seconds() - before) * 1e3 >= (double)GRACE);
    assert_client_gets("x");
    assert_mode(fd, RDMA_MODE_TCP, RDMA_REASON_SPOKE_FIRST);
}

static void an_end_is_something_to_say(void **state) {
    (void)state;
    char byte = 0;
    connect_plain();
    assert_int_equal(rshutdown(fd, SHUT_WR), 0);
    assert_int_equal(recv(client, &byte, 1, 0), 0);
    say("late");
    assert_rsocket_gets("late");
}

static void a_server_cuts_what_nobody_has_used(void **state) {
    (void)state;
    const struct linger cut = {.l_onoff = 1, .l_linger = 0};
    char byte = 0;
    connect_plain();
    assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut)), 0);
    assert_int_equal(rclose(fd), 0);
    fd = -1;
    assert_fails(recv(client, &byte, 1, 0), ECONNRESET);
}

static void a_client_that_says_nothing_and_goes(void **state) {
    (void)state;
    char byte = 0;
    connect_plain();
    close(client);
    client = -1;
    assert_int_equal(rrecv(fd, &byte, 1, 0), 0);
    assert_mode(fd, RDMA_MODE_TCP, RDMA_REASON_PEER_SPEAKS_TCP);
}

/* The kernel's accept gives such a connection too, and gives its bytes before its error. */
static void a_client_that_has_gone_is_accepted(void **state) {
    (void)state;
    const struct sockaddr_in address = loopback_at(port);
    const struct linger cut = {.l_onoff = 1};
    char byte = 0;
    for (int i = 0; i < 4; ++i) {
        const bool sends = i % 2 != 0;
        const bool cuts = i / 2 != 0;
        client = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(client, (const struct sockaddr *)&address, sizeof(address)), 0);
        if (sends) {
            say("bytes");
        }
        if (cuts) {
            assert_int_equal(setsockopt(client, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut)), 0);
        }
        close(client);
        client = -1;
        fd = raccept(listener, NULL, NULL);
        assert_true(fd >= 0);
        if (sends) {
            assert_rsocket_gets("bytes");
        }
        if (cuts) {
            struct pollfd entry = {.fd = fd, .events = POLLIN};
            assert_int_equal(rpoll(&entry, 1, PATIENCE), 1);
            assert_int_equal(entry.revents, POLLIN | POLLERR | POLLHUP);
            assert_fails(rrecv(fd, &byte, 1, 0), ECONNRESET); /* once, as TCP has it */
        }
        assert_int_equal(rrecv(fd, &byte, 1, 0), 0);
        assert_mode(fd, RDMA_MODE_TCP, RDMA_REASON_PEER_SPEAKS_TCP);
        if (cuts) {
            assert_fails(rsend(fd, &byte, 1, 0), EPIPE);
            assert_fails(rconnect(fd, (const struct sockaddr *)&address, sizeof(address)), EISCONN);
        }
        assert_int_equal(rclose(fd), 0);
        fd = -1;
    }
    /* This client is an rsocket, whose request has come. */
    const int asking = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(rsetsockopt(asking, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut)), 0);
    assert_fails(rconnect(asking, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    await_connection(asking, listener);
    assert_int_equal(rclose(asking), 0);
    fd = raccept(listener, NULL, NULL);
    assert_true(fd >= 0);
    assert_fails(rrecv(fd, &byte, 1, 0), ECONNRESET);
}

/* After a part of a request the rsocket decides nothing until other bytes come, or the rest does not come. */
static void the_beginning_of_a_request_may_be_anything(void **state) {
    (void)state;
    char byte = 0;
    connect_plain();
    say("MPA ");
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    assert_int_equal(rpoll(&entry, 1, 0), 0);
    assert_fails(rrecv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
    assert_mode(fd, RDMA_MODE_OPEN, RDMA_REASON_NONE);
    say("rocks");
    assert_rsocket_gets("MPA rocks");
    assert_mode(fd, RDMA_MODE_TCP, RDMA_REASON_PEER_SPEAKS_TCP);
    close_all(state);
    listen_for_plain(state);
    connect_plain();
    say("MPA ID Req Fram"); /* and no more */
    const double before = seconds();
    assert_rsocket_gets("MPA ID Req Fram");
    assert_true(seconds() - before > 0.9);
    close_all(state);
    listen_for_plain(state);
    connect_plain();
    say("MPA");
    assert_int_equal(shutdown(client, SHUT_WR), 0);
    assert_rsocket_gets("MPA");
    assert_int_equal(rrecv(fd, &byte, 1, 0), 0);
}

/* A peer that has sent the key of a request has to go on in its protocol. */
static void a_request_that_makes_no_sense_is_refused(void **state) {
    (void)state;
    char byte = 0;
    connect_plain();
    say(request_key);
    say("\xff\xff\xff\xff");
    assert_fails(rrecv(fd, &byte, 1, 0), EPROTO);
    assert_mode(fd, RDMA_MODE_OPEN, RDMA_REASON_NONE);
}

/* This happens when a client is killed, or gives up, before its server looks at it. */
static void a_client_that_asked_and_was_cut_is_a_reset(void **state) {
    (void)state;
    const struct linger cut = {.l_onoff = 1};
    char byte = 0;
    connect_plain();
    say(request_key);
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut)), 0);
    close(client);
    client = -1;
    assert_fails(rrecv(fd, &byte, 1, 0), ECONNRESET);
}

static void a_program_may_want_nothing_but_rdma(void **state) {
    (void)state;
    const int no = 0;
    char byte = 0;
    assert_int_equal(rsetsockopt(listener, SOL_RDMA, RDMA_FALLBACK, &no, sizeof(no)), 0);
    connect_plain();
    assert_int_equal(rdma_option(fd, RDMA_FALLBACK), 0);
    say("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_fails(rrecv(fd, &byte, 1, 0), EPROTO);
    assert_fails(rsend(fd, &byte, 1, 0), EPROTO);
}

static void direct_placement_needs_rdma(void **state) {
    (void)state;
    static char memory[4096];
    connect_plain();
    say("x");
    assert_fails(riomap(fd, memory, sizeof(memory), PROT_WRITE, 0, 0), EOPNOTSUPP);
    assert_fails(riounmap(fd, memory, sizeof(memory)), EOPNOTSUPP);
    assert_fails((ssize_t)riowrite(fd, memory, 1, 0, 0), EOPNOTSUPP);
    const int one = 1;
    assert_fails(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &one, sizeof(one)), EINVAL);
    assert_rsocket_gets("x");
}

/* ---- waiting, and options ---- */

static void every_way_to_wait_sees_tcp(void **state) {
    (void)state;
    struct pollfd entry;
    struct timeval time = {.tv_sec = 10};
    fd_set reading;
    connect_plain();
    entry = (struct pollfd){.fd = fd, .events = POLLIN};
    assert_int_equal(rpoll(&entry, 1, 10), 0);
    say("a");
    assert_int_equal(rpoll(&entry, 1, PATIENCE), 1);
    assert_int_equal(entry.revents, POLLIN);
    FD_ZERO(&reading);
    FD_SET(fd, &reading);
    assert_int_equal(rselect(fd + 1, &reading, NULL, NULL, &time), 1);
    assert_rsocket_gets("a");
    assert_int_equal(rpoll(&entry, 1, 0), 0);
    entry.events = POLLIN | POLLOUT;
    assert_int_equal(rpoll(&entry, 1, PATIENCE), 1);
    assert_int_equal(entry.revents, POLLOUT);
    shutdown(client, SHUT_RDWR);
    entry.events = POLLIN | POLLRDHUP;
    assert_int_equal(rpoll(&entry, 1, PATIENCE), 1);
    assert_int_equal(entry.revents, POLLIN | POLLRDHUP);
}

static uint32_t told(int set, int timeout) {
    struct epoll_event event = {.events = 0};
    return repoll_wait(set, &event, 1, timeout) == 1 ? event.events : 0;
}

static void a_repoll_sees_tcp(void **state) {
    (void)state;
    connect_plain();
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    const int set = repoll_create(0);
    assert_int_equal(repoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    assert_int_equal(told(set, 10), 0);
    say("MP"); /* not yet */
    assert_int_equal(told(set, 10), 0);
    say("!");
    assert_int_equal(told(set, PATIENCE), EPOLLIN);
    (void)told(set, 0); /* it may tell once more, because the rsocket has become TCP */
    assert_int_equal(told(set, 0), 0);
    say("b");
    assert_int_equal(told(set, PATIENCE), EPOLLIN);
    assert_rsocket_gets("MP!b");
    event.events = EPOLLIN;
    assert_int_equal(repoll_ctl(set, EPOLL_CTL_MOD, fd, &event), 0);
    assert_int_equal(told(set, 0), 0);
    say("c");
    assert_int_equal(told(set, PATIENCE), EPOLLIN);
    assert_int_equal(told(set, 0), EPOLLIN);
    event.events = EPOLLOUT;
    assert_int_equal(repoll_ctl(set, EPOLL_CTL_MOD, fd, &event), 0);
    assert_int_equal(told(set, PATIENCE), EPOLLOUT);
    assert_int_equal(rclose(set), 0);
}

/* This is also true when the time for a request has to pass first, without any other event. */
static void a_repoll_waits_until_the_server_may_speak(void **state) {
    (void)state;
    connect_plain();
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};
    const int set = repoll_create(0);
    assert_int_equal(repoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    assert_int_equal(told(set, PATIENCE), EPOLLOUT);
    assert_int_equal(rsend(fd, "x", 1, MSG_DONTWAIT), 1);
    assert_client_gets("x");
    assert_int_equal(rclose(set), 0);
}

static void options_that_were_set_before_have_effect(void **state) {
    (void)state;
    const struct timeval soon = {.tv_usec = 20000};
    const int bytes = 20000;
    char byte = 0;
    assert_int_equal(rsetsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)), 0);
    assert_int_equal(rsetsockopt(listener, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
    connect_plain();
    assert_fails(rrecv(fd, &byte, 1, 0), EAGAIN);
    say("x");
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    assert_int_equal(rpoll(&entry, 1, PATIENCE), 1);
    assert_rsocket_gets("x");
    assert_fails(rrecv(fd, &byte, 1, 0), EAGAIN);
    int value = 0;
    socklen_t size = sizeof(value);
    assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, &size), 0);
    assert_int_equal(value, 2 * bytes);
    assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(rfcntl(fd, F_GETFL), O_RDWR | O_NONBLOCK);
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    assert_fails(rrecv(fd, &byte, 1, 0), EAGAIN);
    assert_int_equal(rfcntl(fd, F_SETFL, 0), 0);
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
}

/* ---- clients of ours ---- */

/* TCP_DEFER_ACCEPT has an effect that Linux does not promise, and a server that speaks first relies
 * on it. The kernel holds the connection back for a fifth of a second, so an rsocket whose program
 * did not run for so long shows nothing. */
static void the_request_of_an_rsocket_is_there_when_accept_returns(void **state) {
    (void)state;
    enum { TIMES = 50, MOST_LATE = 50 };
    const double held_back = 0.19;
    uint16_t plain_port = 0;
    const int plain = listening_socket(&plain_port);
    const struct sockaddr_in address = loopback_at(plain_port);
    for (int prompt = 0, late = 0; prompt < TIMES;) {
        char bytes[sizeof(request_key)] = "";
        const int asking = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        const double before = seconds();
        assert_fails(rconnect(asking, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
        await_connection(asking, plain);
        const int accepted = accept(plain, NULL, NULL);
        const ssize_t got = recv(accepted, bytes, strlen(request_key), MSG_PEEK | MSG_DONTWAIT);
        if (got < 0 && seconds() - before > held_back) {
            assert_true(++late < MOST_LATE);
        } else {
            assert_int_equal(got, strlen(request_key));
            assert_string_equal(bytes, request_key);
            ++prompt;
        }
        close(accepted);
        assert_int_equal(rclose(asking), 0);
    }
    close(plain);
}

/* The server closes what it has accepted, which drops the connection. Its client
 * connects in TCP, and still asks the next time. */
static void a_server_that_closes_at_once_is_still_asked(void **state) {
    (void)state;
    const struct sockaddr_in address = loopback_at(port);
    for (int i = 0; i < 2; ++i) {
        const int asking = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_fails(rconnect(asking, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
        assert_mode(asking, RDMA_MODE_OPEN, RDMA_REASON_NONE);
        await_connection(asking, listener);
        assert_int_equal(rclose(raccept(listener, NULL, NULL)), 0);
        /* The rsocket is writable before that is decided, and keeps what is sent. */
        struct pollfd entry = {.fd = asking, .events = POLLIN};
        for (int waited = 0; waited < PATIENCE && rdma_option(asking, RDMA_MODE) == RDMA_MODE_OPEN;
             ++waited) {
            assert_true(rpoll(&entry, 1, 1) >= 0);
        }
        assert_mode(asking, RDMA_MODE_TCP, RDMA_REASON_PEER_SPEAKS_TCP);
        assert_int_equal(rclose(asking), 0);
        assert_int_equal(rclose(raccept(listener, NULL, NULL)), 0);
    }
}

static void a_server_that_speaks_first_has_rdma_with_an_rsocket(void **state) {
    (void)state;
    const struct sockaddr_in address = loopback_at(port);
    /* This client has an address at which no client has been silent, so
     * it has the whole time for its request. */
    struct sockaddr_in from = loopback_at(0);
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    struct pollfd both[2] = {{.fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), .events = POLLIN}};
    assert_int_equal(rbind(both[0].fd, (const struct sockaddr *)&from, sizeof(from)), 0);
    assert_fails(rconnect(both[0].fd, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    fd = raccept(listener, NULL, NULL);
    assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
    while (rsend(fd, "banner", 6, 0) < 0) {
        assert_int_equal(errno, EAGAIN);
        both[1] = (struct pollfd){.fd = fd, .events = POLLOUT};
        assert_true(rpoll(both, 2, PATIENCE) > 0);
    }
    char bytes[7] = "";
    assert_int_equal(rfcntl(both[0].fd, F_SETFL, 0), 0);
    assert_int_equal(rrecv(both[0].fd, bytes, 6, MSG_WAITALL), 6);
    assert_string_equal(bytes, "banner");
    assert_mode(fd, RDMA_MODE_RDMA, RDMA_REASON_NONE);
    assert_mode(both[0].fd, RDMA_MODE_RDMA, RDMA_REASON_NONE);
    assert_int_equal(rclose(both[0].fd), 0);
}

/* One call does not wait for many clients. It reports ready ones in between. */
static void a_poll_begins_some_streams_at_a_time(void **state) {
    (void)state;
    enum { CLIENTS = 100, AT_ONCE = 64 };
    const struct sockaddr_in address = loopback_at(port);
    int clients[CLIENTS];
    struct pollfd accepted[CLIENTS];
    for (int i = 0; i < CLIENTS; ++i) {
        clients[i] = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_fails(rconnect(clients[i], (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
        await_connection(clients[i], listener);
        accepted[i] = (struct pollfd){.fd = accept(listener, NULL, NULL), .events = POLLIN};
        await_request(clients[i], accepted[i].fd);
        assert_int_equal(radopt(accepted[i].fd), 0);
    }
    int begun = 0;
    while (begun < CLIENTS) {
        assert_int_equal(rpoll(accepted, CLIENTS, 0), 0);
        const int before = begun;
        begun = 0;
        for (int i = 0; i < CLIENTS; ++i) {
            int mark = 0; /* librsocket(7) */
            socklen_t size = sizeof(mark);
            assert_int_equal(getsockopt(accepted[i].fd, IPPROTO_TCP, TCP_SAVE_SYN, &mark, &size), 0);
            begun += mark == 2;
        }
        assert_in_range(begun - before, 1, AT_ONCE);
    }
    for (int i = 0; i < CLIENTS; ++i) {
        assert_int_equal(rclose(clients[i]), 0);
        assert_int_equal(rclose(accepted[i].fd), 0);
    }
}

/* ---- many bytes ---- */

static void *drain_and_fill(void *unused) {
    (void)unused;
    static char bytes[BLOCK];
    for (size_t done = 0; done < MANY;) {
        const ssize_t got = recv(client, bytes, sizeof(bytes), 0);
        for (ssize_t put = 0; put < got;) {
            const ssize_t count = send(client, bytes + put, (size_t)(got - put), MSG_NOSIGNAL);
            if (count <= 0) {
                return client == -1 ? NULL : &client;
            }
            put += count;
        }
        if (got <= 0) {
            return &client;
        }
        done += (size_t)got;
    }
    return NULL;
}

static char byte_at(size_t place) {
    return (char)(place * 31 / 7);
}

static void every_byte_goes_through_tcp_and_back(void **state) {
    (void)state;
    static char out[BLOCK];
    static char in[BLOCK];
    pthread_t thread;
    void *failed = NULL;
    connect_plain();
    assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(pthread_create(&thread, NULL, drain_and_fill, NULL), 0);
    size_t sent = 0;
    size_t got = 0;
    while (got < MANY) {
        struct pollfd entry = {.fd = fd, .events = (short)(POLLIN | (sent < MANY ? POLLOUT : 0))};
        assert_int_equal(rpoll(&entry, 1, PATIENCE), 1);
        if ((entry.revents & POLLOUT) != 0) {
            const size_t size = MANY - sent < BLOCK ? MANY - sent : BLOCK;
            for (size_t i = 0; i < size; ++i) {
                out[i] = byte_at(sent + i);
            }
            const ssize_t count = rsend(fd, out, size, 0);
            assert_true(count > 0);
            sent += (size_t)count;
        }
        if ((entry.revents & POLLIN) != 0) {
            const ssize_t count = rrecv(fd, in, sizeof(in), 0);
            assert_true(count > 0);
            for (ssize_t i = 0; i < count; ++i) {
                assert_int_equal(in[i], byte_at(got + (size_t)i));
            }
            got += (size_t)count;
        }
    }
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}

#define WITH_LISTENER(test) cmocka_unit_test_setup_teardown(test, listen_for_plain, close_all)

int main(void) {
    char grace[8];
    snprintf(grace, sizeof(grace), "%d", GRACE);
    setenv("RS_GRACE_MS", grace, 1); /* librsocket reads it once */
    const struct CMUnitTest tests[] = {
        WITH_LISTENER(a_server_that_does_not_block_speaks_first), /* before another has waited in vain */
        WITH_LISTENER(a_client_that_speaks_first_has_tcp),
        WITH_LISTENER(a_server_that_speaks_first_has_tcp),
        WITH_LISTENER(an_end_is_something_to_say),
        WITH_LISTENER(a_server_cuts_what_nobody_has_used),
        WITH_LISTENER(a_client_that_says_nothing_and_goes),
        WITH_LISTENER(a_client_that_has_gone_is_accepted),
        WITH_LISTENER(the_beginning_of_a_request_may_be_anything),
        WITH_LISTENER(a_request_that_makes_no_sense_is_refused),
        WITH_LISTENER(a_client_that_asked_and_was_cut_is_a_reset),
        WITH_LISTENER(a_program_may_want_nothing_but_rdma),
        WITH_LISTENER(direct_placement_needs_rdma),
        WITH_LISTENER(every_way_to_wait_sees_tcp),
        WITH_LISTENER(a_repoll_sees_tcp),
        WITH_LISTENER(a_repoll_waits_until_the_server_may_speak),
        WITH_LISTENER(options_that_were_set_before_have_effect),
        WITH_LISTENER(the_request_of_an_rsocket_is_there_when_accept_returns),
        WITH_LISTENER(a_server_that_closes_at_once_is_still_asked),
        WITH_LISTENER(a_server_that_speaks_first_has_rdma_with_an_rsocket),
        WITH_LISTENER(a_poll_begins_some_streams_at_a_time),
        WITH_LISTENER(every_byte_goes_through_tcp_and_back),
    };
    return cmocka_run_group_tests_name("rsocket_fallback", tests, NULL, NULL);
}
