/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * write_flush_read: a program for Debian's librpma0, with its header and linked to it. A server and a client
 * in two processes on RPMA_TEST_ADDRESS (127.0.0.1 when it is not set); the client writes, flushes, writes
 * atomically, reads back and compares, and sends a message that the server sends back.
 *
 *     write_flush_read [LIBRARY [server | client PORT]]
 *
 * LIBRARY is the file that librpma must have been loaded from. After it, `server` or `client` runs only that
 * end; the server prints its port.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/wait.h>

#include "program.h"

#define ADDRESS test_address()
#define SIZE 4096
#define TEXT "written by a program that knows Debian's librpma only"
#define WORD "8 bytes."
#define WORD_AT (SIZE / 4)    /* in the server's memory */
#define MESSAGE_AT (SIZE / 2) /* in either's */
#define ECHO_AT (SIZE / 4 * 3)
#define ALWAYS RPMA_F_COMPLETION_ALWAYS

static const char *test_address(void) {
    const char *const chosen = getenv("RPMA_TEST_ADDRESS");
    return chosen != NULL ? chosen : "127.0.0.1";
}

static void *new_page(void) {
    void *const page = aligned_alloc(SIZE, SIZE);
    REQUIRE(page != NULL);
    memset(page, 0, SIZE);
    return page;
}

/* Serves the next client until it has gone, and sends its message back. */
static void serve_client_with(struct rpma_ep *ep, struct rpma_mr_local *mr,
                              const struct rpma_conn_private_data *data) {
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    CHECK(rpma_ep_next_conn_req(ep, NULL, &request));
    CHECK(rpma_conn_req_recv(request, mr, MESSAGE_AT, sizeof(TEXT), NULL));
    CHECK(rpma_conn_req_connect(&request, data, &conn));
    await(conn, RPMA_CONN_ESTABLISHED);
    REQUIRE(complete(conn) == IBV_WC_RECV);
    CHECK(rpma_send(conn, mr, MESSAGE_AT, sizeof(TEXT), ALWAYS, NULL));
    complete(conn);
    await(conn, RPMA_CONN_CLOSED);
    CHECK(rpma_conn_disconnect(conn));
    CHECK(rpma_conn_delete(&conn));
}

/* Listens at a free port, writes the port to port_fd, and serves one client until it goes. */
static void serve(int port_fd) {
    struct rpma_peer *peer = new_peer(ADDRESS);
    struct rpma_ep *ep = NULL;
    struct rpma_mr_local *mr = NULL;
    char *const memory = new_page();
    char port[PORT_SIZE];
    unsigned char descriptor[64];
    size_t size = 0;
    find_port(ADDRESS, port);

    CHECK(rpma_mr_reg(peer, memory, SIZE,
                      RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY |
                          RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV,
                      &mr));
    CHECK(rpma_mr_get_descriptor_size(mr, &size));
    REQUIRE(size <= sizeof(descriptor));
    CHECK(rpma_mr_get_descriptor(mr, descriptor));
    const struct rpma_conn_private_data data = {descriptor, (uint8_t)size};
    CHECK(rpma_ep_listen(peer, ADDRESS, port, &ep));
    REQUIRE(write(port_fd, port, sizeof(port)) == sizeof(port));
    serve_client_with(ep, mr, &data);
    REQUIRE(strcmp(memory, TEXT) == 0);
    REQUIRE(memcmp(memory + WORD_AT, WORD, 8) == 0);
    CHECK(rpma_ep_shutdown(&ep));
    CHECK(rpma_mr_dereg(&mr));
    CHECK(rpma_peer_delete(&peer));
    free(memory);
}

static void write_flush_read(const char *port) {
    struct rpma_peer *peer = new_peer(ADDRESS);
    struct rpma_mr_local *mr = NULL;
    struct rpma_mr_remote *remote = NULL;
    struct rpma_conn_private_data data = {NULL, 0};
    char *const memory = new_page();
    size_t size = 0;
    CHECK(rpma_mr_reg(
        peer, memory, SIZE,
        RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV, &mr));
    struct rpma_conn *const conn = connect_to(peer, ADDRESS, port);
    CHECK(rpma_conn_get_private_data(conn, &data));
    CHECK(rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote));
    CHECK(rpma_mr_remote_get_size(remote, &size));
    REQUIRE(size == SIZE);

    memcpy(memory, TEXT, sizeof(TEXT));
    CHECK(rpma_write(conn, remote, 0, mr, 0, sizeof(TEXT), RPMA_F_COMPLETION_ON_ERROR, NULL));
    CHECK(rpma_flush(conn, remote, 0, sizeof(TEXT), RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
                     NULL));
    complete(conn);
    CHECK(rpma_read(conn, mr, SIZE / 2, remote, 0, sizeof(TEXT), RPMA_F_COMPLETION_ALWAYS, NULL));
    complete(conn);
    REQUIRE(strcmp(memory + SIZE / 2, TEXT) == 0);

    CHECK(rpma_atomic_write(conn, remote, WORD_AT, WORD, ALWAYS, NULL));
    complete(conn);
    CHECK(rpma_flush(conn, remote, WORD_AT, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL));
    complete(conn);
    CHECK(rpma_read(conn, mr, WORD_AT, remote, WORD_AT, 8, ALWAYS, NULL));
    complete(conn);
    REQUIRE(memcmp(memory + WORD_AT, WORD, 8) == 0);

    CHECK(rpma_recv(conn, mr, ECHO_AT, sizeof(TEXT), NULL));
    CHECK(rpma_send(conn, mr, 0, sizeof(TEXT), ALWAYS, NULL));
    complete(conn); /* the message and the answer, in either order */
    complete(conn);
    REQUIRE(strcmp(memory + ECHO_AT, TEXT) == 0);

    disconnect(conn);
    CHECK(rpma_mr_remote_delete(&remote));
    CHECK(rpma_mr_dereg(&mr));
    CHECK(rpma_peer_delete(&peer));
    free(memory);
}

int main(int argc, char *argv[]) {
    int port_pipe[2];
    char port[PORT_SIZE] = "";
    int status = -1;
    Dl_info library = {0};
    REQUIRE(dladdr((void *)rpma_peer_new, &library) != 0);
    fprintf(stderr, "librpma is %s\n", library.dli_fname);
    if (argc > 1) {
        char *const loaded = realpath(library.dli_fname, NULL);
        char *const expected = realpath(argv[1], NULL);
        REQUIRE(loaded != NULL && expected != NULL && strcmp(loaded, expected) == 0);
        free(loaded);
        free(expected);
    }
    if (argc == 3 && strcmp(argv[2], "server") == 0) {
        serve(STDOUT_FILENO);
        return EXIT_SUCCESS;
    }
    if (argc == 4 && strcmp(argv[2], "client") == 0) {
        write_flush_read(argv[3]);
        return EXIT_SUCCESS;
    }
    REQUIRE(argc <= 2);
    REQUIRE(pipe(port_pipe) == 0);
    const pid_t server = fork();
    REQUIRE(server >= 0);
    if (server == 0) {
        close(port_pipe[0]);
        serve(port_pipe[1]);
        return EXIT_SUCCESS;
    }
    close(port_pipe[1]);
    REQUIRE(read(port_pipe[0], port, sizeof(port)) == sizeof(port));
    write_flush_read(port);
    REQUIRE(waitpid(server, &status, 0) == server);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    return EXIT_SUCCESS;
}
