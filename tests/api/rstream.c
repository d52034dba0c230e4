/* SPDX-License-Identifier: BSD-3-Clause */
/* Libfabric's endpoints of the type FI_EP_SOCK_STREAM: streams, their events and their descriptors. */
#include "rstream.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;

static void pairs_of(struct ends *ends, struct pair *pair, const char *host) {
    *pair = (struct pair){NULL, NULL};
    open_ends(ends, host);
    connect_pair(ends, pair);
}

static void an_echo(const char *host, int family) {
    struct ends ends;
    struct pair pair;
    pairs_of(&ends, &pair, host);
    char got[16] = "";
    assert_int_equal(fi_recv(pair.server, got, sizeof(got), NULL, 0, NULL), -FI_EAGAIN);
    send_all(pair.client, "x", 1);
    assert_int_equal(receive_some(pair.server, got, sizeof(got)), 1);
    assert_int_equal(got[0], 'x');
    struct iovec parts[2] = {{.iov_base = "he", .iov_len = 2}, {.iov_base = "llo", .iov_len = 3}};
    assert_int_equal(fi_sendv(pair.server, parts, NULL, 2, 0, NULL), 5);
    char first[3], second[5];
    struct iovec to[2] = {{.iov_base = first, .iov_len = 3}, {.iov_base = second, .iov_len = 5}};
    const struct fi_msg message = {.msg_iov = to, .iov_count = 2};
    ssize_t received = -FI_EAGAIN;
    while (received == -FI_EAGAIN) {
        received = fi_recvmsg(pair.client, &message, 0);
    }
    assert_int_equal(received, 5);
    assert_memory_equal(first, "hel", 3);
    assert_memory_equal(second, "lo", 2);

    struct sockaddr_storage names[4];
    size_t size = sizeof(names[0]);
    assert_int_equal(fi_getname(&pair.client->fid, &names[0], &size), 0);
    assert_int_equal(names[0].ss_family, family);
    size = sizeof(names[1]);
    assert_int_equal(fi_getpeer(pair.server, &names[1], &size), 0);
    assert_memory_equal(&names[0], &names[1], size);
    size = sizeof(names[2]);
    assert_int_equal(fi_getpeer(pair.client, &names[2], &size), 0);
    assert_memory_equal(&names[2], &ends.address, size);
    const size_t whole = size;
    size = 4;
    assert_int_equal(fi_getpeer(pair.client, &names[3], &size), -FI_ETOOSMALL);
    assert_int_equal(size, whole);
    close_pair(&pair);
    close_ends(&ends);
}

static void bytes_go_both_ways(void **state) {
    (void)state;
    an_echo("127.0.0.1", AF_INET);
    an_echo("::1", AF_INET6);
}

/* An end that has shut still receives. */
static void a_shutdown_ends_one_direction(void **state) {
    (void)state;
    struct ends ends;
    struct pair pair;
    pairs_of(&ends, &pair, "127.0.0.1");
    send_all(pair.client, "last", 4);
    assert_int_equal(fi_shutdown(pair.client, 0), 0);
    assert_int_equal(fi_send(pair.client, "x", 1, NULL, 0, NULL), -FI_ESHUTDOWN);
    struct fi_eq_cm_entry entry;
    assert_int_equal(next_event(&ends, &entry), FI_SHUTDOWN);
    assert_ptr_equal(entry.fid, &pair.server->fid);
    char got[8];
    receive_all(pair.server, got, 4);
    assert_memory_equal(got, "last", 4);
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(fi_recvmsg(pair.server, NULL, FI_PEEK), 0);
        assert_int_equal(fi_recv(pair.server, got, sizeof(got), NULL, 0, NULL), 0);
    }
    assert_true(is_readable(descriptor_of(&pair.server->fid)));
    send_all(pair.server, "answer", 6);
    receive_all(pair.client, got, 6);
    assert_memory_equal(got, "answer", 6);
    assert_int_equal(fi_close(&pair.server->fid), 0);
    assert_int_equal(next_event(&ends, &entry), FI_SHUTDOWN);
    assert_ptr_equal(entry.fid, &pair.client->fid);
    assert_int_equal(fi_recv(pair.client, got, sizeof(got), NULL, 0, NULL), 0);
    uint32_t event;
    assert_int_equal(fi_eq_read(ends.eq, &event, &entry, sizeof(entry), 0), -FI_EAGAIN);
    assert_int_equal(fi_close(&pair.client->fid), 0);
    close_ends(&ends);
}

static void a_closed_endpoint_has_sent_all(void **state) {
    (void)state;
    struct ends ends;
    struct pair pair;
    pairs_of(&ends, &pair, "127.0.0.1");
    char bytes[20000] = "begin", got[sizeof(bytes)];
    strcpy(bytes + sizeof(bytes) - 4, "end");
    send_all(pair.client, bytes, sizeof(bytes));
    assert_int_equal(fi_close(&pair.client->fid), 0);
    receive_all(pair.server, got, sizeof(got));
    assert_memory_equal(got, bytes, sizeof(bytes));
    assert_int_equal(receive_some(pair.server, got, 1), 0);
    assert_int_equal(fi_close(&pair.server->fid), 0);
    close_ends(&ends);
}

/* The descriptor is not readable for ever. It may still tell of words of the peer. */
static void assert_nothing_to_receive(struct fid_ep *ep) {
    for (int i = 0; is_readable(descriptor_of(&ep->fid)); ++i) {
        assert_int_equal(fi_recvmsg(ep, NULL, FI_PEEK), -FI_EAGAIN);
        assert_in_range(i, 0, 100);
    }
}

/* The descriptor is readable while there is something to receive, and after a send has found no room once
 * there is room. */
static void a_descriptor_tells_what_peek_tells(void **state) {
    (void)state;
    struct ends ends;
    struct pair pair;
    pairs_of(&ends, &pair, "127.0.0.1");
    const int fd = descriptor_of(&pair.server->fid);
    assert_int_equal(descriptor_of(&pair.server->fid), fd);
    assert_int_equal(fi_recvmsg(pair.server, NULL, FI_PEEK), -FI_EAGAIN);
    assert_int_equal(fi_sendmsg(pair.server, NULL, FI_PEEK), 0);
    assert_nothing_to_receive(pair.server);
    send_all(pair.client, "abc", 3);
    struct pollfd descriptor = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&descriptor, 1, -1), 1);
    while (fi_recvmsg(pair.server, NULL, FI_PEEK) == -FI_EAGAIN) {
    }
    assert_int_equal(fi_recvmsg(pair.server, NULL, FI_PEEK), 0);
    char got[4];
    assert_int_equal(fi_recv(pair.server, got, 1, NULL, 0, NULL), 1);
    assert_true(is_readable(fd));
    assert_int_equal(fi_recv(pair.server, got, sizeof(got), NULL, 0, NULL), 2);
    assert_int_equal(fi_recv(pair.server, got, sizeof(got), NULL, 0, NULL), -FI_EAGAIN);
    assert_nothing_to_receive(pair.server);

    /* The second half of the buffer may be opened later. */
    static char block[4096];
    const size_t most = 32768 - 3;
    const int client_fd = descriptor_of(&pair.client->fid);
    for (size_t sent = 0; sent < most;) {
        const ssize_t put = fi_send(pair.client, block, sizeof(block), NULL, 0, NULL);
        assert_true(put > 0 || put == -FI_EAGAIN);
        sent += put > 0 ? (size_t)put : 0;
    }
    assert_int_equal(fi_sendmsg(pair.client, NULL, FI_PEEK), -FI_EAGAIN);
    assert_int_equal(fi_send(pair.client, block, 1, NULL, 0, NULL), -FI_EAGAIN);
    assert_nothing_to_receive(pair.client);
    for (size_t taken = 0; taken < most;) {
        taken += (size_t)receive_some(pair.server, block, sizeof(block));
    }
    struct pollfd client = {.fd = client_fd, .events = POLLIN};
    assert_int_equal(poll(&client, 1, -1), 1);
    while (fi_sendmsg(pair.client, NULL, FI_PEEK) == -FI_EAGAIN) {
    }
    assert_int_equal(fi_send(pair.client, "x", 1, NULL, 0, NULL), 1);
    assert_nothing_to_receive(pair.client);
    close_pair(&pair);
    close_ends(&ends);
}

static void wait_by_trywait(struct ends *ends, struct fid_ep *ep) {
    fid_t fid = &ep->fid;
    assert_int_equal(fi_trywait(ends->fabric, &fid, 1), 0);
}

static bool polled(int fd) {
    struct pollfd descriptor = {.fd = fd, .events = POLLIN};
    return poll(&descriptor, 1, -1) == 1;
}

/* The program may wait after fi_trywait has returned 0. After a call that moved bytes the descriptor is
 * readable, whatever the call has left. */
static void trywait_says_when_to_wait(void **state) {
    (void)state;
    struct ends ends;
    struct pair pair;
    pairs_of(&ends, &pair, "127.0.0.1");
    fid_t fid = &pair.server->fid;
    char got[4];
    assert_int_equal(fi_trywait(ends.fabric, &fid, -1), -FI_EINVAL);
    assert_int_equal(fi_trywait(ends.fabric, NULL, 1), -FI_EINVAL);
    wait_by_trywait(&ends, pair.server); /* without a descriptor too */
    const int fd = descriptor_of(fid);
    for (int round = 0; round < 3; ++round) {
        wait_by_trywait(&ends, pair.server);
        wait_by_trywait(&ends, pair.server);
        send_all(pair.client, "abc", 3);
        assert_true(polled(fd));
        while (fi_trywait(ends.fabric, &fid, 1) != -FI_EAGAIN) {
            assert_true(polled(fd));
        }
        assert_true(is_readable(fd));
        assert_int_equal(fi_recv(pair.server, got, 1, NULL, 0, NULL), 1);
        assert_true(is_readable(fd));
        assert_int_equal(fi_trywait(ends.fabric, &fid, 1), -FI_EAGAIN);
        assert_int_equal(fi_recv(pair.server, got, sizeof(got), NULL, 0, NULL), 2);
        send_all(pair.client, "d", 1);
        assert_int_equal(receive_some(pair.server, got, sizeof(got)), 1);
        assert_int_equal(fi_recv(pair.server, got, sizeof(got), NULL, 0, NULL), -FI_EAGAIN);
    }
    close_pair(&pair);
    close_ends(&ends);
}

struct waiter {
    struct ends *ends;
    struct fid_ep *ep;
    int fd;
    int told; /* a pipe, written before the wait */
    bool tries;
};

static void *wait_in_thread(void *argument) {
    const struct waiter *const waiter = argument;
    fid_t fid = &waiter->ep->fid;
    long result = waiter->tries ? fi_trywait(waiter->ends->fabric, &fid, 1) : 0;
    if (result == 0 && write(waiter->told, "w", 1) == 1) {
        struct pollfd descriptor = {.fd = waiter->fd, .events = POLLIN};
        result = poll(&descriptor, 1, 60000);
    }
    return (void *)result;
}

/* One thread waits, with its own fi_trywait or another's, while another takes what comes and then makes no
 * further call. */
static void a_thread_that_waits_is_woken(void **state) {
    (void)state;
    for (int tries = 0; tries < 2; ++tries) {
        struct ends ends;
        struct pair pair;
        pairs_of(&ends, &pair, "127.0.0.1");
        int told[2];
        char got[4];
        pthread_t thread;
        assert_int_equal(pipe(told), 0);
        struct waiter waiter = {
            .ends = &ends, .ep = pair.server, .fd = descriptor_of(&pair.server->fid), .told = told[1]};
        waiter.tries = tries == 1;
        wait_by_trywait(&ends, pair.server);
        send_all(pair.client, "a", 1);
        assert_int_equal(receive_some(pair.server, got, sizeof(got)), 1);
        wait_by_trywait(&ends, pair.server);
        assert_int_equal(pthread_create(&thread, NULL, wait_in_thread, &waiter), 0);
        assert_int_equal(read(told[0], got, 1), 1);
        send_all(pair.client, "b", 1);
        while (fi_recv(pair.server, got, sizeof(got), NULL, 0, NULL) == -FI_EAGAIN) {
        }
        send_all(pair.client, "c", 1);
        void *result = NULL;
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, (void *)1);
        close(told[0]);
        close(told[1]);
        close_pair(&pair);
        close_ends(&ends);
    }
}

/* A client that makes no call after fi_connect is connected all the same. */
static void a_connection_completes_by_itself(void **state) {
    (void)state;
    struct ends client_side, server_side;
    struct fi_eq_cm_entry entry;
    open_ends(&client_side, "127.0.0.1");
    open_ends(&server_side, "127.0.0.1");
    struct pair pair = {.client = make_endpoint(&client_side, client_side.info)};
    assert_int_equal(fi_connect(pair.client, &server_side.address, NULL, 0), 0);
    struct fi_info *request = wait_for_request(&server_side);
    pair.server = make_endpoint(&server_side, request);
    fi_freeinfo(request);
    assert_int_equal(fi_accept(pair.server, NULL, 0), 0);
    assert_int_equal(next_event(&server_side, &entry), FI_CONNECTED);
    close_pair(&pair);
    close_ends(&client_side);
    close_ends(&server_side);
}

static void sizes_are_set_before_the_stream(void **state) {
    (void)state;
    struct ends ends;
    open_ends(&ends, "127.0.0.1");
    struct pair pair = {.client = make_endpoint(&ends, ends.info)};
    fid_t fid = &pair.client->fid;
    uint32_t bytes = 0;
    uint16_t messages = 0;
    size_t size = sizeof(bytes);
    const int buffers[] = {FI_OPT_SEND_BUF_SIZE, FI_OPT_RECV_BUF_SIZE};
    const int queues[] = {FI_OPT_TX_SIZE, FI_OPT_RX_SIZE};
    for (int i = 0; i < 2; ++i) {
        size = sizeof(bytes);
        assert_int_equal(fi_getopt(fid, FI_OPT_ENDPOINT, buffers[i], &bytes, &size), 0);
        assert_int_equal(bytes, 32768);
        bytes = 65536u << i;
        assert_int_equal(fi_setopt(fid, FI_OPT_ENDPOINT, buffers[i], &bytes, sizeof(bytes)), 0);
        bytes = 0;
        assert_int_equal(fi_setopt(fid, FI_OPT_ENDPOINT, buffers[i], &bytes, sizeof(bytes)), -FI_EINVAL);
        assert_int_equal(fi_getopt(fid, FI_OPT_ENDPOINT, buffers[i], &bytes, &size), 0);
        assert_int_equal(bytes, 65536u << i);
        size = sizeof(messages);
        assert_int_equal(fi_getopt(fid, FI_OPT_ENDPOINT, queues[i], &messages, &size), 0);
        assert_int_equal(messages, 384);
        messages = 100;
        assert_int_equal(fi_setopt(fid, FI_OPT_ENDPOINT, queues[i], &messages, sizeof(messages)), 0);
        assert_int_equal(fi_setopt(fid, FI_OPT_ENDPOINT, queues[i], &messages, 1), -FI_EINVAL);
        size = 1;
        assert_int_equal(fi_getopt(fid, FI_OPT_ENDPOINT, queues[i], &messages, &size), -FI_ETOOSMALL);
        assert_int_equal(size, sizeof(messages));
    }
    assert_int_equal(fi_setopt(fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, sizeof(size)),
                     -FI_ENOPROTOOPT);
    assert_int_equal(fi_setopt(fid, FI_OPT_ENDPOINT + 1, FI_OPT_TX_SIZE, &messages, sizeof(messages)),
                     -FI_ENOPROTOOPT);
    connect_pair(&ends, &pair);
    assert_int_equal(fi_setopt(fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &messages, sizeof(messages)),
                     -FI_EOPBADSTATE);
    size = sizeof(bytes);
    assert_int_equal(fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_RECV_BUF_SIZE, &bytes, &size), 0);
    assert_int_equal(bytes, 131072);
    /* The server may send as much as the client's buffer holds. */
    static char block[262144];
    size_t sent = 0;
    ssize_t put = 0;
    while ((put = fi_send(pair.server, block, sizeof(block), NULL, 0, NULL)) > 0) {
        sent += (size_t)put;
    }
    assert_in_range(sent, 65536, 131072);
    close_pair(&pair);
    close_ends(&ends);
}

static uint64_t mixed(uint64_t sum, const unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size; ++i) {
        sum = (sum ^ bytes[i]) * 1099511628211u;
    }
    return sum;
}

/* RSTREAM_TEST_MIB says how many MiB. */
static void many_bytes_arrive_unchanged(void **state) {
    (void)state;
    struct ends ends;
    struct pair pair;
    pairs_of(&ends, &pair, "127.0.0.1");
    const char *wanted = getenv("RSTREAM_TEST_MIB");
    const size_t total = (size_t)(wanted != NULL ? atol(wanted) : 64) << 20;
    static unsigned char block[100003], got[65536];
    size_t sent = 0, received = 0;
    uint64_t sent_sum = 14695981039346656037u, received_sum = sent_sum, random = 1;
    while (received < total) {
        if (sent < total) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t size = (size_t)(random >> 40) % sizeof(block) + 1;
            size = size < total - sent ? size : total - sent;
            memcpy(block + size / 2, &random, size >= 16 ? sizeof(random) : 0);
            const ssize_t put = fi_send(pair.client, block, size, NULL, 0, NULL);
            assert_true(put > 0 || put == -FI_EAGAIN);
            sent_sum = put > 0 ? mixed(sent_sum, block, (size_t)put) : sent_sum;
            sent += put > 0 ? (size_t)put : 0;
        }
        const ssize_t taken = fi_recv(pair.server, got, sizeof(got), NULL, 0, NULL);
        assert_true(taken > 0 || taken == -FI_EAGAIN);
        received_sum = taken > 0 ? mixed(received_sum, got, (size_t)taken) : received_sum;
        received += taken > 0 ? (size_t)taken : 0;
    }
    assert_int_equal(received, total);
    assert_true(received_sum == sent_sum);
    close_pair(&pair);
    close_ends(&ends);
}

#define MANY 100

static void one_poll_watches_many(void **state) {
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    static struct pair pairs[MANY];
    struct pollfd descriptors[MANY];
    struct ends ends;
    open_ends(&ends, "127.0.0.1");
    for (int i = 0; i < MANY; ++i) {
        connect_pair(&ends, &pairs[i]);
        descriptors[i] = (struct pollfd){.fd = descriptor_of(&pairs[i].server->fid), .events = POLLIN};
    }
    int spurious = 0;
    for (int i = 0; i < MANY; ++i) {
        const int one = i * 37 % MANY;
        const unsigned char sent = (unsigned char)one;
        send_all(pairs[one].client, &sent, 1);
        for (descriptors[one].revents = 0; descriptors[one].revents == 0;) {
            assert_true(poll(descriptors, MANY, -1) > 0);
            for (int j = 0; j < MANY; ++j) {
                if (j != one && descriptors[j].revents != 0) { /* a word of the peer */
                    assert_int_equal(fi_recvmsg(pairs[j].server, NULL, FI_PEEK), -FI_EAGAIN);
                    ++spurious;
                }
            }
        }
        unsigned char got = 0;
        assert_int_equal(receive_some(pairs[one].server, &got, 1), 1);
        assert_int_equal(got, sent);
        assert_int_equal(fi_recvmsg(pairs[one].server, NULL, FI_PEEK), -FI_EAGAIN);
    }
    assert_in_range(spurious, 0, 3 * MANY);
    for (int i = 0; i < MANY; ++i) {
        close_pair(&pairs[i]);
    }
    close_ends(&ends);
}

static void a_rejected_client_learns_the_reason(void **state) {
    (void)state;
    struct ends ends;
    open_ends(&ends, "127.0.0.1");
    size_t most = 0, size = sizeof(most);
    assert_int_equal(fi_getopt(&ends.pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &size), 0);
    assert_true(most >= 56);
    for (int with_reason = 0; with_reason < 2; ++with_reason) {
        struct fid_ep *client = make_endpoint(&ends, ends.info);
        assert_int_equal(fi_connect(client, &ends.address, NULL, 0), 0);
        struct fi_info *request = wait_for_request(&ends);
        assert_int_equal(request->handle->fclass, FI_CLASS_CONNREQ);
        assert_int_equal(
            fi_reject(ends.pep, request->handle, with_reason ? "not now" : NULL, with_reason ? 8 : 0), 0);
        assert_int_equal(fi_reject(ends.pep, request->handle, NULL, 0), -FI_EINVAL);
        fi_freeinfo(request);
        struct fi_eq_cm_entry entry;
        assert_int_equal(next_event(&ends, &entry), -1);
        assert_ptr_equal(last_error.fid, &client->fid);
        assert_int_equal(last_error.err, FI_ECONNREFUSED);
        assert_int_equal(last_error.err_data_size, with_reason ? 8 : 0);
        assert_true(!with_reason || strcmp(last_error.err_data, "not now") == 0);
        assert_int_equal(fi_send(client, "x", 1, NULL, 0, NULL), -FI_ECONNREFUSED);
        assert_int_equal(fi_close(&client->fid), 0);
    }
    /* Nobody listens there any more. */
    assert_int_equal(fi_close(&ends.pep->fid), 0);
    ends.pep = NULL;
    struct fid_ep *client = make_endpoint(&ends, ends.info);
    assert_int_equal(fi_connect(client, &ends.address, NULL, 0), 0);
    struct fi_eq_cm_entry entry;
    assert_int_equal(next_event(&ends, &entry), -1);
    assert_int_equal(last_error.err, FI_ECONNREFUSED);
    assert_int_equal(last_error.err_data_size, 0);
    assert_int_equal(fi_close(&client->fid), 0);
    close_ends(&ends);
}

/* An endpoint of a request that is closed without fi_accept rejects it; so does a listener whose requests
 * nobody has read. */
static void a_forgotten_request_is_rejected(void **state) {
    (void)state;
    struct ends ends;
    open_ends(&ends, "127.0.0.1");
    struct fid_ep *client = make_endpoint(&ends, ends.info);
    assert_int_equal(fi_connect(client, &ends.address, NULL, 0), 0);
    struct fi_info *request = wait_for_request(&ends);
    struct fid_ep *server = make_endpoint(&ends, request);
    struct fid_ep *another = NULL;
    assert_int_equal(fi_connect(server, &ends.address, NULL, 0), -FI_EOPBADSTATE);
    fi_freeinfo(request);
    assert_int_equal(fi_close(&server->fid), 0);
    struct fi_eq_cm_entry entry;
    assert_int_equal(next_event(&ends, &entry), -1);
    assert_ptr_equal(last_error.fid, &client->fid);
    assert_int_equal(fi_close(&client->fid), 0);

    another = make_endpoint(&ends, ends.info);
    assert_int_equal(fi_connect(another, &ends.address, NULL, 0), 0);
    uint32_t event;
    while (fi_eq_read(ends.eq, &event, &entry, sizeof(entry), FI_PEEK) == -FI_EAGAIN) {
    }
    assert_int_equal(event, FI_CONNREQ);
    assert_int_equal(fi_close(&ends.pep->fid), 0);
    ends.pep = NULL;
    assert_int_equal(next_event(&ends, &entry), -1);
    assert_ptr_equal(last_error.fid, &another->fid);
    assert_int_equal(fi_close(&another->fid), 0);
    close_ends(&ends);
}

/* The peer of this program: it connects, sends, and waits to be killed. */
static int peer(const char *port) {
    struct ends ends;
    open_ends(&ends, "127.0.0.1");
    ((struct sockaddr_in *)&ends.address)->sin_port = (in_port_t)atoi(port);
    struct fid_ep *client = make_endpoint(&ends, ends.info);
    struct fi_eq_cm_entry entry;
    if (fi_connect(client, &ends.address, NULL, 0) == 0 && next_event(&ends, &entry) == FI_CONNECTED) {
        send_all(client, "alive", 5);
        (void)next_event(&ends, &entry);
    }
    return 1;
}

static void a_killed_peer_is_told(void **state) {
    (void)state;
    struct ends ends;
    open_ends(&ends, "127.0.0.1");
    char port[8];
    snprintf(port, sizeof(port), "%d", ((struct sockaddr_in *)&ends.address)->sin_port);
    char *arguments[] = {(char *)self, "peer", port, NULL};
    extern char **environ;
    pid_t child;
    assert_int_equal(posix_spawn(&child, self, NULL, NULL, arguments, environ), 0);
    struct fi_info *request = wait_for_request(&ends);
    struct fid_ep *server = make_endpoint(&ends, request);
    fi_freeinfo(request);
    assert_int_equal(fi_accept(server, NULL, 0), 0);
    struct fi_eq_cm_entry entry;
    assert_int_equal(next_event(&ends, &entry), FI_CONNECTED);
    char got[8];
    receive_all(server, got, 5);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(receive_some(server, got, sizeof(got)), -FI_ECONNRESET);
    assert_int_equal(next_event(&ends, &entry), FI_SHUTDOWN);
    assert_ptr_equal(entry.fid, &server->fid);
    assert_int_equal(fi_send(server, "x", 1, NULL, 0, NULL), -FI_ECONNRESET);
    assert_int_equal(fi_recvmsg(server, NULL, FI_PEEK), -FI_ECONNRESET);
    assert_int_equal(fi_close(&server->fid), 0);
    close_ends(&ends);
}

static void objects_in_use_are_not_closed(void **state) {
    (void)state;
    struct ends ends;
    struct pair pair;
    pairs_of(&ends, &pair, "127.0.0.1");
    assert_int_equal(fi_close(&ends.fabric->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&ends.domain->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&ends.eq->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&ends.pep->fid), 0);
    ends.pep = NULL;
    send_all(pair.client, "x", 1);
    char got;
    receive_all(pair.server, &got, 1);
    close_pair(&pair);
    close_ends(&ends);
}

static void a_wrong_call_gets_its_error(void **state) {
    (void)state;
    struct ends ends;
    open_ends(&ends, "127.0.0.1");
    struct fid_ep *ep = NULL;
    struct fid_eq *eq = NULL;
    struct fid_cq *cq = NULL;
    struct fid_mr *mr = NULL;
    char byte = 0;
    struct fi_eq_attr set = {.wait_obj = FI_WAIT_SET};
    struct fi_cq_attr cq_attributes = {0};
    assert_int_equal(fi_eq_open(ends.fabric, &set, &eq, NULL), -FI_ENOSYS);
    assert_int_equal(fi_cq_open(ends.domain, &cq_attributes, &cq, NULL), -FI_ENOSYS);
    assert_int_equal(fi_mr_reg(ends.domain, &byte, 1, FI_SEND, 0, 0, 0, &mr, NULL), -FI_ENOSYS);
    assert_int_equal(fi_endpoint(ends.domain, ends.info, &ep, NULL), 0);
    assert_int_equal(fi_enable(ep), -FI_ENOEQ);
    assert_int_equal(fi_connect(ep, &ends.address, NULL, 0), -FI_ENOEQ);
    assert_int_equal(fi_ep_bind(ep, &ends.domain->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_ep_bind(ep, &ends.eq->fid, 0), 0);
    assert_int_equal(fi_accept(ep, NULL, 0), -FI_EOPBADSTATE);
    assert_int_equal(fi_connect(ep, &ends.address, "data", 4), -FI_ENOSYS);
    assert_int_equal(fi_connect(ep, NULL, NULL, 0), -FI_EINVAL);
    const struct sockaddr other = {.sa_family = AF_UNIX};
    assert_int_equal(fi_connect(ep, &other, NULL, 0), -FI_EINVAL);
    assert_int_equal(fi_send(ep, &byte, 1, NULL, 0, NULL), -FI_ENOTCONN);
    assert_int_equal(fi_recv(ep, &byte, 1, NULL, 0, NULL), -FI_ENOTCONN);
    assert_int_equal(fi_shutdown(ep, 0), -FI_ENOTCONN);
    assert_int_equal(fi_shutdown(ep, 1), -FI_EBADFLAGS);
    assert_int_equal(fi_inject(ep, &byte, 1, 0), -FI_ENOSYS);
    assert_int_equal(fi_control(&ep->fid, FI_BACKLOG, NULL), -FI_ENOSYS);
    assert_int_equal(fi_listen(ends.pep), -FI_EOPBADSTATE);
    assert_int_equal(fi_close(&ep->fid), 0);

    struct pair pair = {NULL, NULL};
    connect_pair(&ends, &pair);
    assert_int_equal(fi_connect(pair.client, &ends.address, NULL, 0), -FI_EOPBADSTATE);
    assert_int_equal(fi_accept(pair.server, NULL, 0), -FI_EOPBADSTATE);
    assert_int_equal(fi_send(pair.client, NULL, 1, NULL, 0, NULL), -FI_EINVAL);
    assert_int_equal(fi_recv(pair.client, NULL, 1, NULL, 0, NULL), -FI_EINVAL);
    assert_int_equal(fi_send(pair.client, NULL, 0, NULL, 0, NULL), 0);
    assert_int_equal(fi_sendmsg(pair.client, NULL, 0), -FI_EINVAL);
    const struct iovec more_than_there_is[2] = {{&byte, 1},
                                                {&byte, SIZE_MAX}}; /* 0 bytes, as a size_t sums up */
    assert_int_equal(fi_sendv(pair.client, more_than_there_is, NULL, 2, 0, NULL), -FI_EINVAL);
    assert_int_equal(fi_recvv(pair.client, more_than_there_is, NULL, 2, 0, NULL), -FI_EINVAL);
    assert_int_equal(fi_sendmsg(pair.client, NULL, FI_PEEK | FI_INJECT), -FI_EBADFLAGS);
    assert_int_equal(fi_recvmsg(pair.client, NULL, FI_PEEK | FI_DISCARD), -FI_EBADFLAGS);
    uint32_t event;
    struct fi_eq_cm_entry entry;
    struct fi_eq_err_entry error = {0};
    assert_int_equal(fi_eq_sread(ends.eq, &event, &entry, sizeof(entry), 1, 0), -FI_EAGAIN);
    assert_int_equal(fi_eq_readerr(ends.eq, &error, 0), -FI_EAGAIN);
    assert_int_equal(fi_close(&pair.client->fid), 0);
    ssize_t got = -FI_EAGAIN;
    while (got == -FI_EAGAIN) {
        got = fi_eq_read(ends.eq, &event, &entry, sizeof(struct fid *), 0);
    }
    assert_int_equal(got, -FI_ETOOSMALL);
    assert_int_equal(next_event(&ends, &entry), FI_SHUTDOWN);
    assert_int_equal(fi_close(&pair.server->fid), 0);
    close_ends(&ends);
}

/* The handle of a request is no object any more when the request has been taken: valgrind sees who reads it.
 */
static void a_request_is_taken_once(void **state) {
    (void)state;
    struct ends ends;
    open_ends(&ends, "127.0.0.1");
    struct fid_ep *const client = make_endpoint(&ends, ends.info);
    struct fid_ep *again = NULL;
    assert_int_equal(fi_connect(client, &ends.address, NULL, 0), 0);
    struct fi_info *const request = wait_for_request(&ends);
    struct fid_ep *const server = make_endpoint(&ends, request);
    assert_int_equal(fi_endpoint(ends.domain, request, &again, NULL), -FI_EINVAL);
    assert_int_equal(fi_reject(ends.pep, request->handle, NULL, 0), -FI_EINVAL);
    assert_int_equal(fi_close(&client->fid), 0);
    assert_int_equal(fi_close(&server->fid), 0);
    request->handle = &ends.pep->fid; /* an endpoint with the address of a listener */
    assert_int_equal(fi_endpoint(ends.domain, request, &again, NULL), 0);
    assert_int_equal(fi_close(&again->fid), 0);
    assert_int_equal(fi_close(&ends.pep->fid), 0);
    assert_int_equal(fi_endpoint(ends.domain, request, &again, NULL), -FI_EINVAL);
    request->handle = NULL;
    assert_int_equal(fi_passive_ep(ends.fabric, ends.info, &ends.pep, NULL), 0);
    fi_freeinfo(request);
    close_ends(&ends);
}

static int info_of(void (*change)(struct fi_info *), struct fi_info **info) {
    struct fi_info *hints = wanted_info();
    change(hints);
    const int result = fi_getinfo(RSTREAM_API, NULL, NULL, 0, hints, info);
    fi_freeinfo(hints);
    return result;
}

static void nothing(struct fi_info *hints) {
    (void)hints;
}
static void iwarp(struct fi_info *hints) {
    hints->ep_attr->protocol = FI_PROTO_IWARP;
}
static void in6(struct fi_info *hints) {
    hints->addr_format = FI_SOCKADDR_IN6;
}
static void any_type(struct fi_info *hints) {
    hints->ep_attr->type = FI_EP_UNSPEC;
}
static void other_type(struct fi_info *hints) {
    hints->ep_attr->type = FI_EP_RDM;
}
static void rma(struct fi_info *hints) {
    hints->caps = FI_MSG | FI_RMA;
}
static void automatic(struct fi_info *hints) {
    hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
}
static void automatic_control(struct fi_info *hints) {
    hints->domain_attr->control_progress = FI_PROGRESS_AUTO;
}
static void injects(struct fi_info *hints) {
    hints->tx_attr->inject_size = 1;
}
static void other_domain(struct fi_info *hints) {
    hints->domain_attr->name = strdup("none");
}
static void ib_address(struct fi_info *hints) {
    hints->addr_format = FI_SOCKADDR_IB;
}

static void an_info_is_what_was_asked_for(void **state) {
    (void)state;
    struct fi_info *info = NULL;
    assert_int_equal(info_of(nothing, &info), 0);
    assert_int_equal(info->ep_attr->type, FI_EP_SOCK_STREAM);
    assert_int_equal(info->ep_attr->protocol, FI_PROTO_RSTREAM);
    assert_int_equal(info->caps, FI_MSG | FI_SEND | FI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM);
    assert_int_equal(info->mode, 0);
    assert_int_equal(info->domain_attr->mr_mode, 0);
    assert_int_equal(info->domain_attr->threading, FI_THREAD_SAFE);
    assert_int_equal(info->domain_attr->data_progress, FI_PROGRESS_MANUAL);
    assert_int_equal(info->tx_attr->size, 384);
    assert_string_equal(info->fabric_attr->prov_name, "rstream");
    assert_non_null(info->src_addr);
    assert_null(info->dest_addr);
    fi_freeinfo(info);
    assert_int_equal(info_of(iwarp, &info), 0);
    assert_int_equal(info->ep_attr->protocol, FI_PROTO_IWARP);
    fi_freeinfo(info);
    assert_int_equal(info_of(any_type, &info), 0);
    assert_int_equal(info->domain_attr->control_progress, FI_PROGRESS_MANUAL);
    fi_freeinfo(info);
    assert_int_equal(info_of(automatic_control, &info), 0);
    assert_int_equal(info->domain_attr->control_progress, FI_PROGRESS_AUTO);
    fi_freeinfo(info);
    assert_int_equal(info_of(in6, &info), 0);
    for (const struct fi_info *one = info; one != NULL; one = one->next) {
        assert_int_equal(one->addr_format, FI_SOCKADDR_IN6);
        assert_int_equal(one->src_addrlen, sizeof(struct sockaddr_in6));
    }
    fi_freeinfo(info);
    void (*const refused[])(struct fi_info *) = {other_type, rma,          automatic,
                                                 injects,    other_domain, ib_address};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); ++i) {
        assert_int_equal(info_of(refused[i], &info), -FI_ENODATA);
    }
    struct fi_info *hints = wanted_info();
    assert_int_equal(fi_getinfo(RSTREAM_API, "127.0.0.1", "7", 0, hints, &info), 0);
    const struct sockaddr_in *address = info->dest_addr;
    assert_int_equal(address->sin_port, htons(7));
    address = info->src_addr;
    assert_int_equal(address->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_int_equal(address->sin_port, 0);
    fi_freeinfo(info);
    assert_int_equal(fi_getinfo(RSTREAM_API, NULL, "7", FI_SOURCE, hints, &info), 0);
    assert_null(info->dest_addr);
    assert_int_equal(((struct sockaddr_in *)info->src_addr)->sin_port, htons(7));
    fi_freeinfo(info);
    fi_freeinfo(hints);
    assert_int_equal(fi_getinfo(RSTREAM_API, NULL, NULL, 0, NULL, &info), 0);
    bool any = false;
    for (const struct fi_info *one = info; one != NULL; one = one->next) {
        any = any || strcmp(one->fabric_attr->prov_name, "rstream") == 0;
    }
    assert_true(any);
    fi_freeinfo(info);
}

int main(int argc, char **argv) {
    self = argv[0];
    if (argc == 3) {
        return peer(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_info_is_what_was_asked_for),
        cmocka_unit_test(bytes_go_both_ways),
        cmocka_unit_test(a_shutdown_ends_one_direction),
        cmocka_unit_test(a_closed_endpoint_has_sent_all),
        cmocka_unit_test(a_descriptor_tells_what_peek_tells),
        cmocka_unit_test(trywait_says_when_to_wait),
        cmocka_unit_test(a_thread_that_waits_is_woken),
        cmocka_unit_test(a_connection_completes_by_itself),
        cmocka_unit_test(sizes_are_set_before_the_stream),
        cmocka_unit_test(many_bytes_arrive_unchanged),
        cmocka_unit_test(one_poll_watches_many),
        cmocka_unit_test(a_rejected_client_learns_the_reason),
        cmocka_unit_test(a_forgotten_request_is_rejected),
        cmocka_unit_test(a_killed_peer_is_told),
        cmocka_unit_test(objects_in_use_are_not_closed),
        cmocka_unit_test(a_wrong_call_gets_its_error),
        cmocka_unit_test(a_request_is_taken_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
