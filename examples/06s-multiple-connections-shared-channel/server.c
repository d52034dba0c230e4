/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 06s-multiple-connections-shared-channel, server: as 06, and each connection has two completion queues, one
 * of them for receives, that share one completion channel: one descriptor to watch. The server receives a
 * message that says how long the client's line is, reads the line, and disconnects.
 *
 *     server ADDR PORT [CLIENTS]
 *
 * It ends when this many clients (3) have come and gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <librpma.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define TEXT_SIZE 64
#define CLIENTS_MAX 100

static struct client {
    struct rpma_conn *conn; /* NULL: this place is free */
    struct rpma_mr_remote *remote;
} clients[CLIENTS_MAX];
static struct line {
    uint32_t length; /* the message */
    char text[TEXT_SIZE];
} lines[CLIENTS_MAX]; /* one for each client */

static struct rpma_mr_local *local; /* lines, registered */
static struct rpma_conn_cfg *config;
static int epoll_fd = -1;
static unsigned gone, served;

/* A source that epoll reports: the endpoint, or the events or completions of the client in a place. */
enum source { REQUESTS, EVENTS, COMPLETIONS };

/* True when the call succeeded. Otherwise prints the call and the reason. */
#define OK(call) worked(#call, call)
static bool worked(const char *call, int ret) {
    if (ret != 0) {
        fprintf(stderr, "server: %s: %s\n", call, rpma_err_2str(ret));
    }
    return ret == 0;
}

/* Makes the descriptor non-blocking, so that no call blocks the thread, and watches it. */
static bool watched(int fd, enum source source, uint32_t place) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)place << 8 | source};
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        fprintf(stderr, "server: descriptor %d cannot be watched: %s\n", fd, strerror(errno));
        return false;
    }
    return true;
}

/* Ends one client, for any reason. Its descriptors are closed, and epoll no longer watches them. */
static void drop(struct client *client) {
    (void)OK(rpma_conn_delete(&client->conn));
    (void)OK(rpma_mr_remote_delete(&client->remote));
    gone++;
}

/* A client wants to connect. Its request has the descriptor of the text to read. */
static void on_request(struct rpma_ep *endpoint) {
    struct rpma_conn_req *request = NULL;
    struct rpma_conn_private_data theirs = {0};
    uint32_t place = 0;
    int events = -1;
    int completions = -1;
    const int ret = rpma_ep_next_conn_req(endpoint, config, &request);
    if (ret == RPMA_E_NO_EVENT || !worked("rpma_ep_next_conn_req", ret)) {
        return;
    }
    while (place < CLIENTS_MAX && clients[place].conn != NULL) {
        place++;
    }
    if (place == CLIENTS_MAX) {
        (void)OK(rpma_conn_req_delete(&request)); /* rejects the client */
        return;
    }
    struct client *client = &clients[place];
    if (OK(rpma_conn_req_get_private_data(request, &theirs)) &&
        OK(rpma_mr_remote_from_descriptor(theirs.ptr, theirs.len, &client->remote)) &&
        /* The receive is posted before the client can know that it may send. */
        OK(rpma_conn_req_recv(request, local, place * sizeof(struct line) + offsetof(struct line, length),
                              sizeof(uint32_t), NULL)) &&
        OK(rpma_conn_req_connect(&request, NULL, &client->conn)) &&
        OK(rpma_conn_get_event_fd(client->conn, &events)) &&
        OK(rpma_conn_get_compl_fd(client->conn, &completions)) && watched(events, EVENTS, place) &&
        watched(completions, COMPLETIONS, place)) {
        return;
    }
    (void)OK(rpma_conn_req_delete(&request));
    drop(client);
}

/* A connection changed. When it is established, the server waits for the client's message; when it is closed,
 * the server drops the client. */
static void on_event(uint32_t place) {
    struct client *client = &clients[place];
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    const int ret = rpma_conn_next_event(client->conn, &event);
    if (ret == RPMA_E_NO_EVENT) {
        return;
    }
    if (worked("rpma_conn_next_event", ret) && event == RPMA_CONN_ESTABLISHED) {
        return;
    }
    printf("place %u: %s\n", place, rpma_utils_conn_event_2str(event));
    drop(client);
}

/* The message has come. Reads the length that it gives; false when that is too long, or the read fails. */
static bool on_message(uint32_t place, const struct ibv_wc *wc) {
    const uint32_t length = lines[place].length;
    if (wc->byte_len != sizeof(length) || length == 0 || length > TEXT_SIZE) {
        fprintf(stderr, "server: place %u: a message of %u bytes that says %u (expected: 4, and 1 to %d)\n",
                place, wc->byte_len, length, TEXT_SIZE);
        return false;
    }
    return OK(rpma_read(clients[place].conn, local, place * sizeof(struct line) + offsetof(struct line, text),
                        clients[place].remote, 0, length, RPMA_F_COMPLETION_ALWAYS, NULL));
}

/* The line has come. */
static bool on_line(uint32_t place) {
    printf("place %u: read: %.*s\n", place, (int)lines[place].length, lines[place].text);
    served++;
    return OK(rpma_conn_disconnect(clients[place].conn));
}

/* One of the two queues has completions, and rpma_conn_wait says which. All of them have to be collected. */
static void on_completion(uint32_t place) {
    struct client *client = &clients[place];
    struct rpma_cq *cq = NULL;
    bool is_receive = false;
    bool ok = true;
    int ret = rpma_conn_wait(client->conn, 0, &cq, &is_receive); /* does not wait: it is non-blocking */
    while (ok && ret == 0) {
        struct ibv_wc wc = {0};
        ret = rpma_cq_get_wc(cq, 1, &wc, NULL);
        if (ret == 0 && wc.status != IBV_WC_SUCCESS) {
            fprintf(stderr, "server: place %u: an operation failed: status %d of enum ibv_wc_status\n", place,
                    (int)wc.status);
            ok = false;
        } else if (ret == 0) {
            ok = is_receive ? on_message(place, &wc) : on_line(place);
        }
    }
    if (!ok || (ret != RPMA_E_NO_COMPLETION && !worked("rpma_conn_wait, rpma_cq_get_wc", ret))) {
        drop(client);
    }
}

/* Serves until this many clients are gone. */
static bool serve(struct rpma_ep *endpoint, unsigned wanted) {
    while (gone < wanted) {
        /* Takes one event at a time, because its handler may delete other sources that were ready. */
        struct epoll_event ready;
        const int count = epoll_wait(epoll_fd, &ready, 1, -1);
        if (count < 0 && errno != EINTR) {
            perror("server: epoll_wait");
            return false;
        }
        if (count != 1) {
            continue;
        }
        const uint32_t place = (uint32_t)(ready.data.u64 >> 8);
        switch ((enum source)(ready.data.u64 & 0xff)) {
            case REQUESTS:
                on_request(endpoint);
                break;
            case EVENTS:
                on_event(place);
                break;
            case COMPLETIONS:
                on_completion(place);
                break;
        }
    }
    printf("%u clients were served, %u have left\n", served, gone);
    return served == wanted;
}

int main(int argc, char *argv[]) {
    const unsigned wanted = argc == 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 3;
    if (argc < 3 || argc > 4 || wanted == 0) {
        fprintf(stderr, "usage: %s ADDR PORT [CLIENTS]\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_ep *endpoint = NULL;
    int requests = -1;

    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) {
        perror("server: epoll_create1");
        return EXIT_FAILURE;
    }
    const int usage = RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_READ_DST;
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, lines, sizeof(lines), usage, &local)) && OK(rpma_conn_cfg_new(&config)) &&
              OK(rpma_conn_cfg_set_rcq_size(config, 10)) &&
              OK(rpma_conn_cfg_set_compl_channel(config, true)) &&
              OK(rpma_ep_listen(peer, argv[1], argv[2], &endpoint)) &&
              OK(rpma_ep_get_fd(endpoint, &requests)) && watched(requests, REQUESTS, 0);
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    ok = ok && serve(endpoint, wanted);

    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    for (struct client *client = clients; client < clients + CLIENTS_MAX; client++) {
        ok = OK(rpma_conn_delete(&client->conn)) && ok;
        ok = OK(rpma_mr_remote_delete(&client->remote)) && ok;
    }
    ok = OK(rpma_ep_shutdown(&endpoint)) && ok;
    ok = OK(rpma_conn_cfg_delete(&config)) && ok;
    ok = OK(rpma_mr_dereg(&local)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    close(epoll_fd);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
