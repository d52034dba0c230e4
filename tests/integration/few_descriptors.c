/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that may have few descriptors. With each limit a connection works, or the program is told at once
 * that there are too few descriptors: EMFILE, and for librpma's calls a line that names the limit. The peer
 * is told too. The process with the limit is this program, executed anew, so that it has no other
 * descriptors. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <threads.h>

#include "../api/test.h"

/* This is included last, because it asserts. */
#include "../api/rsockets.h"

enum { LEAST = 4, MOST = 32 };
enum outcome { WORKS, TOLD, WRONG };
enum { PATIENCE = 30 }; /* seconds, after which a process that hangs ends by a signal */

extern char **environ;

static const char *outcome_names = "+-!";
static atomic_bool limit_named;

static void note_line(enum rpma_log_level level, const char *file, int line, const char *function,
                      const char *format, ...) {
    (void)file, (void)line, (void)function;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (level <= RPMA_LOG_LEVEL_ERROR && strstr(text, "ulimit -n") != NULL) {
        limit_named = true;
    }
}

/* ---- rsockets ---- */

static enum outcome outcome_of_errno(const char *call) {
    if (errno == EMFILE) {
        return TOLD;
    }
    perror(call);
    return WRONG;
}

static enum outcome exchange(uint16_t port) {
    const struct sockaddr_in address = loopback_at(port);
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) {
        return outcome_of_errno("rsocket");
    }
    char bytes[3];
    enum outcome outcome = WORKS;
    if (rconnect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        /* A server without descriptors drops the connection. */
        outcome = errno == ECONNRESET || errno == ECONNREFUSED ? TOLD : outcome_of_errno("rconnect");
    } else if (rsend(fd, "abc", 3, 0) != 3 || rrecv(fd, bytes, 3, MSG_WAITALL) != 3) {
        outcome = outcome_of_errno("rsend or rrecv");
    }
    rclose(fd);
    return outcome;
}

static enum outcome serve_one(int listener) {
    const int fd = raccept(listener, NULL, NULL);
    if (fd < 0) {
        return outcome_of_errno("raccept");
    }
    char bytes[3];
    const bool serves = rrecv(fd, bytes, 3, MSG_WAITALL) == 3 && rsend(fd, bytes, 3, 0) == 3;
    const enum outcome outcome = serves ? WORKS : outcome_of_errno("rrecv or rsend");
    rclose(fd);
    return outcome;
}

/* Tells the port, or 0, on standard output. */
static enum outcome stream_server(void) {
    struct sockaddr_in address = loopback_at(0);
    socklen_t size = sizeof(address);
    const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    uint16_t port = 0;
    enum outcome outcome = WORKS;
    if (listener < 0) {
        outcome = outcome_of_errno("rsocket");
    } else if (rbind(listener, (struct sockaddr *)&address, size) != 0 || rlisten(listener, 8) != 0 ||
               rgetsockname(listener, (struct sockaddr *)&address, &size) != 0) {
        outcome = outcome_of_errno("rlisten");
    } else {
        port = ntohs(address.sin_port);
    }
    if (write(STDOUT_FILENO, &port, sizeof(port)) != sizeof(port)) {
        return WRONG;
    }
    return port != 0 ? serve_one(listener) : outcome;
}

static int serve_streams(void *listener) {
    while (true) { /* a client may break its connection off, for want of descriptors */
        (void)serve_one(*(int *)listener);
    }
    return 0;
}

/* ---- librpma ---- */

static enum outcome outcome_of_code(const char *call, int code) {
    if (code == RPMA_E_PROVIDER && errno == EMFILE && limit_named) {
        return TOLD;
    }
    fprintf(stderr, "%s: %s, errno %d, %s the limit\n", call, rpma_err_2str(code), errno,
            limit_named ? "a line names" : "no line names");
    return WRONG;
}

static int new_peer(enum rpma_util_ibv_context_type side, struct rpma_peer **peer) {
    struct ibv_context *context = NULL;
    const int code = rpma_utils_get_ibv_context("127.0.0.1", side, &context);
    return code != 0 ? code : rpma_peer_new(context, peer);
}

static enum outcome connect_to(uint16_t port) {
    char text[8];
    struct rpma_peer *peer = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *connection = NULL;
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    snprintf(text, sizeof(text), "%u", port);
    int code = new_peer(RPMA_UTIL_IBV_CONTEXT_REMOTE, &peer);
    code = code != 0 ? code : rpma_conn_req_new(peer, "127.0.0.1", text, NULL, &request);
    code = code != 0 ? code : rpma_conn_req_connect(&request, NULL, &connection);
    code = code != 0 ? code : rpma_conn_next_event(connection, &event);
    if (code != 0) {
        return outcome_of_code("the client", code);
    }
    const enum outcome outcome = event == RPMA_CONN_ESTABLISHED ? WORKS
                                 : event == RPMA_CONN_REJECTED  ? TOLD
                                                                : WRONG;
    rpma_conn_disconnect(connection);
    rpma_conn_delete(&connection);
    rpma_peer_delete(&peer);
    return outcome;
}

static enum outcome accept_from(struct rpma_ep *ep) {
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *connection = NULL;
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    int code = rpma_ep_next_conn_req(ep, NULL, &request);
    code = code != 0 ? code : rpma_conn_req_connect(&request, NULL, &connection);
    code = code != 0 ? code : rpma_conn_next_event(connection, &event);
    if (code != 0) {
        return outcome_of_code("the server", code);
    }
    const bool established = event == RPMA_CONN_ESTABLISHED;
    while (event != RPMA_CONN_CLOSED && rpma_conn_next_event(connection, &event) == 0) {
    }
    rpma_conn_disconnect(connection);
    rpma_conn_delete(&connection);
    return established ? WORKS : WRONG;
}

static int listen_anywhere(struct rpma_ep **ep, uint16_t *port) {
    struct rpma_peer *peer = NULL;
    struct sockaddr_storage address = {0};
    int code = new_peer(RPMA_UTIL_IBV_CONTEXT_LOCAL, &peer);
    code = code != 0 ? code : rpma_ep_listen(peer, "127.0.0.1", "0", ep);
    code = code != 0 ? code : rpma_ep_get_local_addr(*ep, &address);
    *port = code != 0 ? 0 : ntohs(((const struct sockaddr_in *)&address)->sin_port);
    return code;
}

/* Tells the port, or 0, on standard output. */
static enum outcome endpoint(void) {
    struct rpma_ep *ep = NULL;
    uint16_t port = 0;
    const int code = listen_anywhere(&ep, &port);
    const enum outcome outcome = code != 0 ? outcome_of_code("rpma_ep_listen", code) : WORKS;
    if (write(STDOUT_FILENO, &port, sizeof(port)) != sizeof(port)) {
        return WRONG;
    }
    return port != 0 ? accept_from(ep) : outcome;
}

static int serve_endpoint(void *ep) {
    while (accept_from((struct rpma_ep *)ep) == WORKS) {
    }
    return 0;
}

/* ---- the process with the limit ---- */

static enum outcome run(const char *role, rlim_t limit, uint16_t port) {
    const struct rlimit few = {.rlim_cur = limit, .rlim_max = limit};
    alarm(PATIENCE);
    rpma_log_set_function(note_line);
    if (close_range(STDERR_FILENO + 1, ~0U, 0) != 0 || setrlimit(RLIMIT_NOFILE, &few) != 0) {
        return WRONG;
    }
    return strcmp(role, "stream client") == 0   ? exchange(port)
           : strcmp(role, "stream server") == 0 ? stream_server()
           : strcmp(role, "client") == 0        ? connect_to(port)
                                                : endpoint();
}

/* Starts this program as that process. *output gets what it writes, unless output is NULL. */
static pid_t start(const char *role, int limit, uint16_t port, int *output) {
    char limit_text[12];
    char port_text[12];
    char *arguments[] = {"few_descriptors", (char *)role, limit_text, port_text, NULL};
    int ends[2] = {-1, -1};
    pid_t process = 0;
    posix_spawn_file_actions_t actions;
    snprintf(limit_text, sizeof(limit_text), "%d", limit);
    snprintf(port_text, sizeof(port_text), "%u", port);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    if (output != NULL) {
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        assert_int_equal(posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO), 0);
        *output = ends[0];
    }
    assert_int_equal(posix_spawn(&process, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    if (output != NULL) {
        close(ends[1]);
    }
    return process;
}

static enum outcome outcome_of(pid_t process) {
    int status = 0;
    assert_int_equal(waitpid(process, &status, 0), process);
    return WIFEXITED(status) ? (enum outcome)WEXITSTATUS(status) : WRONG;
}

/* With more descriptors it does not work worse. */
static void assert_table(const enum outcome *outcomes, const char *role, int enough) {
    char line[MOST + 2] = "";
    for (int limit = LEAST; limit <= MOST; ++limit) {
        line[limit - LEAST] = outcome_names[outcomes[limit]];
    }
    print_message("%s with %d to %d descriptors: %s\n", role, LEAST, MOST, line);
    for (int limit = LEAST; limit <= MOST; ++limit) {
        assert_int_not_equal(outcomes[limit], WRONG);
        assert_true(outcomes[limit] == WORKS || limit < enough);
        assert_true(limit == LEAST || outcomes[limit] <= outcomes[limit - 1]);
    }
    assert_int_equal(outcomes[LEAST], TOLD);
}

static void clients(const char *role, uint16_t port, int enough) {
    enum outcome outcomes[MOST + 1] = {0};
    for (int limit = LEAST; limit <= MOST; ++limit) {
        outcomes[limit] = outcome_of(start(role, limit, port, NULL));
    }
    assert_table(outcomes, role, enough);
}

/* A server that rejects the only client waits for the next. */
static void servers(const char *role, enum outcome (*client)(uint16_t), int enough) {
    enum outcome outcomes[MOST + 1] = {0};
    for (int limit = LEAST; limit <= MOST; ++limit) {
        int output = -1;
        uint16_t port = 0;
        const pid_t process = start(role, limit, 0, &output);
        assert_int_equal(read(output, &port, sizeof(port)), sizeof(port));
        close(output);
        const enum outcome of_client = port != 0 ? client(port) : TOLD;
        if (of_client != WORKS) {
            kill(process, SIGTERM);
        }
        const enum outcome of_server = outcome_of(process);
        outcomes[limit] = of_client != WORKS ? of_client : of_server;
    }
    assert_table(outcomes, role, enough);
}

static void stream_clients(void **state) {
    (void)state;
    static int listener;
    uint16_t port = 0;
    thrd_t server;
    listener = listening_rsocket(&port);
    assert_int_equal(thrd_create(&server, serve_streams, &listener), thrd_success);
    thrd_detach(server);
    clients("stream client", port, 15);
}

static void stream_servers(void **state) {
    (void)state;
    servers("stream server", exchange, 17);
}

static void librpma_clients(void **state) {
    (void)state;
    struct rpma_ep *ep = NULL;
    uint16_t port = 0;
    thrd_t server;
    assert_int_equal(listen_anywhere(&ep, &port), 0);
    assert_int_equal(thrd_create(&server, serve_endpoint, ep), thrd_success);
    thrd_detach(server);
    clients("client", port, 14);
}

static void librpma_servers(void **state) {
    (void)state;
    servers("server", connect_to, 18);
}

int main(int argc, char *argv[]) {
#ifdef __SANITIZE_ADDRESS__
    /* Without a descriptor UBSan cannot look at memory, and takes sound objects for broken ones. */
    return 77;
#endif
    if (argc == 4) {
        return (int)run(argv[1], (rlim_t)strtoul(argv[2], NULL, 10), (uint16_t)strtoul(argv[3], NULL, 10));
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(stream_clients), cmocka_unit_test(stream_servers),
                                       cmocka_unit_test(librpma_clients), cmocka_unit_test(librpma_servers)};
    return cmocka_run_group_tests_name("few_descriptors", tests, NULL, NULL);
}
