/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket_strangers: tests rsockets and programs that speak only TCP. No byte of a stranger is read as a
 * stream's, nothing is sent to it in TCP instead, and each call says why there is no stream. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>

#include "test.h"

/* These come last, because they assert. */
#include "../sockets.h"
#include "rsockets.h"

enum { PATIENCE = 30000 };

static const char request_key[] = "MPA ID Req Frame";
static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

static uint16_t port;
static int listener = -1;
static int client = -1; /* a socket of the kernel */
static int fd = -1;     /* an rsocket */

static int listen_for_all(void **state) {
    (void)state;
    listener = listening_rsocket(&port);
    assert_int_equal(rfcntl(listener, F_SETFL, O_NONBLOCK), 0);
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

static void connect_client(void) {
    const struct sockaddr_in address = loopback_at(port);
    client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&address, sizeof(address)), 0);
}

static void accept_client(void) {
    struct pollfd entry = {.fd = listener, .events = POLLIN};
    assert_int_equal(rpoll(&entry, 1, PATIENCE), 1);
    fd = raccept(listener, NULL, NULL);
    assert_true(fd >= 0);
}

static void say(const char *text) {
    assert_int_equal(send(client, text, strlen(text), 0), (ssize_t)strlen(text));
}

static void cut_client(void) {
    const struct linger cut = {.l_onoff = 1};
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut)), 0);
    close(client);
    client = -1;
}

static void assert_every_call_fails(int error) {
    char byte = 0;
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    assert_int_equal(rpoll(&entry, 1, PATIENCE), 1);
    assert_int_equal(entry.revents, POLLIN | POLLERR | POLLHUP);
    for (int i = 0; i < 2; ++i) {
        assert_fails(rrecv(fd, &byte, 1, 0), error);
        assert_fails(rsend(fd, &byte, 1, 0), error);
    }
}

/* ---- clients ---- */

static void a_client_that_speaks_another_protocol_is_refused(void **state) {
    for (int is_early = 0; is_early < 2; ++is_early) {
        connect_client();
        if (is_early) {
            say(http);
        }
        accept_client();
        if (!is_early) {
            say(http);
        }
        assert_every_call_fails(EPROTO);
        close_all(state);
        listen_for_all(state);
    }
}

/* The client may have gone when TCP has accepted it, and then raccept need not give it. */
static void a_client_that_has_gone_is_a_reset(void **state) {
    for (int asks = 0; asks < 2; ++asks) {
        connect_client();
        if (asks) {
            say(request_key);
        }
        cut_client();
        struct pollfd entry = {.fd = listener, .events = POLLIN};
        assert_int_equal(rpoll(&entry, 1, PATIENCE), 1);
        fd = raccept(listener, NULL, NULL);
        if (fd < 0) {
            assert_int_equal(errno, EAGAIN);
        } else {
            assert_fails(rrecv(fd, &(char){0}, 1, 0), ECONNRESET);
        }
        close_all(state);
        listen_for_all(state);
    }
}

static void a_request_that_makes_no_sense_is_refused(void **state) {
    (void)state;
    connect_client();
    accept_client();
    say(request_key);
    say("\xff\xff\xff\xff");
    assert_every_call_fails(EPROTO);
}

/* This happens when a client is killed, or gives up, before its request is complete. */
static void a_client_that_asks_and_is_cut_is_a_reset(void **state) {
    (void)state;
    connect_client();
    accept_client();
    say(request_key);
    cut_client();
    assert_every_call_fails(ECONNRESET);
}

static void a_client_that_says_nothing_and_goes_is_a_reset(void **state) {
    (void)state;
    connect_client();
    accept_client();
    close(client);
    client = -1;
    assert_every_call_fails(ECONNRESET);
}

static void a_silent_client_is_waited_for(void **state) {
    (void)state;
    char byte = 0;
    static char memory[4096];
    connect_client();
    accept_client();
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLOUT};
    assert_int_equal(rpoll(&entry, 1, 0), 0);
    assert_fails(rrecv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
    assert_fails(rsend(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
    assert_fails((ssize_t)riowrite(fd, memory, 1, 0, MSG_DONTWAIT), EAGAIN);
}

/* ---- a client that guesses keys ---- */

/* A request with the Hello of a peer whose memory nobody uses, and what such a peer then writes. */
static const char asking_bytes[] =
    "MPA ID Req Frame\x14\x02\0\x2c\x80\x40\x80\x40"
    "\x01\x06\x01\x78\0\0\0\0"
    "\0\0\0\x7f\x7d\xb7\x8f\xe0\0\0\0\x01\0\0\0\x02"
    "\0\0\0\x7f\x7d\xb8\x8f\xe0\0\0\0\x01\0\x08\0\0";
static const char nothing[] = "\0\x0e\xc1\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
static const char guess[] = "\0\x16\xc1\x40\xde\xad\xbe\xef\0\0\0\0\0\0\x10\0guesses!\0\0\0\0";

static void send_bytes(const char *bytes, size_t size) {
    assert_int_equal(send(client, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

static void ask_as_guesser(void) {
    const struct sockaddr_in address = loopback_at(port);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(client, (const struct sockaddr *)&own, sizeof(own)), 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&address, sizeof(address)), 0);
    send_bytes(asking_bytes, sizeof(asking_bytes) - 1);
    send_bytes(nothing, sizeof(nothing) - 1);
    accept_client();
}

static void guess_a_key(void) {
    char byte = 0;
    send_bytes(guess, sizeof(guess) - 1);
    assert_true(rrecv(fd, &byte, 1, 0) < 0);
    assert_int_equal(rclose(fd), 0);
    close(client);
}

/* The device lets the requests of such an address wait, one behind the other (softrdma(7)). raccept does not
 * wait for them. Guesses on connections that were there before are not delayed. */
static void nobody_waits_for_one_who_guesses_keys(void **state) {
    (void)state;
    enum { FREE = 256, BEFORE = 80, WAITING = 5 };
    int clients[BEFORE];
    int fds[BEFORE];
    char byte = 0;
    for (int i = 0; i < BEFORE; ++i) {
        ask_as_guesser();
        clients[i] = client;
        fds[i] = fd;
    }
    for (int i = 0; i < FREE; ++i) {
        ask_as_guesser();
        guess_a_key();
    }
    for (int i = 0; i < BEFORE; ++i) {
        client = clients[i];
        fd = fds[i];
        guess_a_key();
    }
    for (int i = 0; i < WAITING; ++i) {
        ask_as_guesser();
        clients[i] = client;
        fds[i] = fd;
    }
    assert_fails(recv(client, &byte, 1, MSG_DONTWAIT), EAGAIN); /* it waits for those before it */
    for (int i = 0; i < WAITING; ++i) {
        close(clients[i]);
        assert_int_equal(rclose(fds[i]), 0);
    }
    client = fd = -1;
}

/* ---- clients of ours ---- */

static void *connects(void *result) {
    const struct sockaddr_in address = loopback_at(port);
    *(int *)result = rconnect(fd, (const struct sockaddr *)&address, sizeof(address));
    return NULL;
}

/* The program does nothing with what raccept gave. On a busy machine the client's request may come later than
 * raccept waits for it, so there are further tries. */
static void raccept_answers_its_client(void **state) {
    (void)state;
    int result = -1;
    assert_int_equal(rfcntl(listener, F_SETFL, 0), 0);
    for (int tries = 0; result != 0 && tries < 20; ++tries) {
        pthread_t thread;
        if (fd >= 0) {
            assert_int_equal(rclose(fd), 0);
        }
        fd = rsocket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(pthread_create(&thread, NULL, connects, &result), 0);
        const int accepted = raccept(listener, NULL, NULL);
        assert_true(accepted >= 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(rclose(accepted), 0);
    }
    assert_int_equal(result, 0);
}

/* TCP_DEFER_ACCEPT has an effect that Linux does not promise, and raccept relies on it, so that it can answer
 * at once. The kernel holds the connection back for a fifth of a second, so an rsocket whose program did not
 * run for so long shows nothing. */
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

static void a_server_speaks_first(void **state) {
    (void)state;
    const struct sockaddr_in address = loopback_at(port);
    const int asking = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_fails(rconnect(asking, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    await_connection(asking, listener);
    accept_client();
    assert_int_equal(rsend(fd, "banner", 6, 0), 6);
    char bytes[7] = "";
    struct pollfd entry = {.fd = asking, .events = POLLOUT};
    assert_int_equal(rpoll(&entry, 1, PATIENCE), 1);
    assert_int_equal(entry.revents, POLLOUT);
    assert_int_equal(rfcntl(asking, F_SETFL, 0), 0);
    assert_int_equal(rrecv(asking, bytes, 6, MSG_WAITALL), 6);
    assert_string_equal(bytes, "banner");
    assert_int_equal(rclose(asking), 0);
}

/* ---- servers ---- */

struct stranger {
    int listener;
    const char *greeting; /* before the client has said anything */
    const char *answer;   /* to a request; NULL: it closes */
};

static void *is_stranger(void *argument) {
    const struct stranger *const one = argument;
    char request[60];
    const int connection = accept(one->listener, NULL, NULL);
    (void)send(connection, one->greeting, strlen(one->greeting), MSG_NOSIGNAL);
    (void)recv(connection, request, sizeof(request), MSG_WAITALL);
    if (one->answer != NULL) {
        (void)send(connection, one->answer, strlen(one->answer), MSG_NOSIGNAL);
        while (recv(connection, request, sizeof(request), 0) > 0) {
        }
    }
    close(connection);
    return NULL;
}

/* The rsocket keeps its port and its options, connects once, and may connect elsewhere afterwards. */
static void a_server_that_speaks_another_protocol_fails_rconnect(void **state) {
    const struct {
        const char *greeting;
        const char *answer;
        int error;
    } kinds[] = {{"220 ready, and this is another protocol\r\n", "", EPROTO},
                 {"", "HTTP/1.1 400 Bad Request\r\n\r\n", EPROTO},
                 {"", "?", EPROTO},
                 {"", NULL, ECONNRESET}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
        uint16_t strange = 0;
        pthread_t thread;
        struct stranger stranger = {listening_socket(&strange), kinds[i].greeting, kinds[i].answer};
        struct sockaddr_in address = loopback_at(strange);
        struct sockaddr_in own = loopback_at(0);
        struct sockaddr_in name;
        socklen_t size = sizeof(own);
        const int one = 1;
        int value = -1;
        fd = rsocket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(rbind(fd, (const struct sockaddr *)&own, size), 0);
        assert_int_equal(rgetsockname(fd, (struct sockaddr *)&own, &size), 0);
        assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one)), 0);
        assert_int_equal(pthread_create(&thread, NULL, is_stranger, &stranger), 0);
        assert_fails(rconnect(fd, (const struct sockaddr *)&address, sizeof(address)), kinds[i].error);
        assert_int_equal(pthread_join(thread, NULL), 0);
        struct pollfd again = {.fd = stranger.listener, .events = POLLIN};
        assert_int_equal(poll(&again, 1, 0), 0);
        close(stranger.listener);
        assert_int_equal(rgetsockname(fd, (struct sockaddr *)&name, &size), 0);
        assert_int_equal(name.sin_port, own.sin_port);
        size = sizeof(value);
        assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &value, &size), 0);
        assert_int_equal(value, 1);
        assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &size), 0);
        assert_int_equal(value, 0); /* the device sets this for itself */
        assert_fails(rsend(fd, "x", 1, 0), ENOTCONN);
        int fds[2] = {fd, -1};
        assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
        connect_rsocket(fds, listener, port);
        assert_int_equal(rclose(fds[1]), 0);
        close_all(state);
        listen_for_all(state);
    }
}

/* Nothing else wakes the thread. */
static void a_repoll_sees_that_there_is_no_stream(void **state) {
    (void)state;
    uint16_t strange = 0;
    const int stranger = listening_socket(&strange);
    const struct sockaddr_in address = loopback_at(strange);
    struct epoll_event event = {.events = EPOLLOUT};
    int error = 0;
    socklen_t size = sizeof(error);
    const int set = repoll_create(0);
    fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_fails(rconnect(fd, (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
    assert_int_equal(repoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    client = accept(stranger, NULL, NULL);
    assert_int_equal(repoll_wait(set, &event, 1, 0), 0);
    say("-ERR");
    assert_int_equal(repoll_wait(set, &event, 1, PATIENCE), 1);
    assert_true((event.events & EPOLLERR) != 0);
    assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
    assert_int_equal(error, EPROTO);
    assert_int_equal(rclose(set), 0);
    close(stranger);
}

#define WITH_LISTENER(test) cmocka_unit_test_setup_teardown(test, listen_for_all, close_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_LISTENER(a_client_that_speaks_another_protocol_is_refused),
        WITH_LISTENER(a_client_that_has_gone_is_a_reset),
        WITH_LISTENER(a_request_that_makes_no_sense_is_refused),
        WITH_LISTENER(a_client_that_asks_and_is_cut_is_a_reset),
        WITH_LISTENER(a_client_that_says_nothing_and_goes_is_a_reset),
        WITH_LISTENER(a_silent_client_is_waited_for),
        WITH_LISTENER(raccept_answers_its_client),
        WITH_LISTENER(nobody_waits_for_one_who_guesses_keys),
        WITH_LISTENER(the_request_of_an_rsocket_is_there_when_accept_returns),
        WITH_LISTENER(a_server_speaks_first),
        WITH_LISTENER(a_server_that_speaks_another_protocol_fails_rconnect),
        WITH_LISTENER(a_repoll_sees_that_there_is_no_stream),
    };
    return cmocka_run_group_tests_name("rsocket_strangers", tests, NULL, NULL);
}
