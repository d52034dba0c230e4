/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * log: librpma's log lines, and three destinations for them: syslog, standard error, and the program's own
 * function.
 *
 *     log ADDR PORT
 *
 * It asks for a connection where probably no program listens, so that there is an error to log.
 */
#include <librpma.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_int lines_taken;

/* True when the call worked. Here a failure is not told again: that is the log's part. */
static bool worked(int ret) {
    return ret == 0;
}

/*
 * A log function. It may be called from any thread, from several at once, and must not call librpma. So the
 * line is made on the stack and goes out at once. The format ends in a newline.
 */
static void take_line(enum rpma_log_level level, const char *file_name, const int line_no,
                      const char *function_name, const char *message_format, ...) {
    static const char *const names[] = {"FATAL", "ERROR", "WARNING", "NOTICE", "INFO", "DEBUG"};
    char message[512];
    va_list arguments;
    va_start(arguments, message_format);
    vsnprintf(message, sizeof(message), message_format, arguments);
    va_end(arguments);
    /* Lines that are not about a place in the source have no file name. */
    printf("%-7s %s:%d %s: %s", names[level], file_name != NULL ? file_name : "-", line_no,
           function_name != NULL ? function_name : "-", message);
    atomic_fetch_add(&lines_taken, 1);
}

/* Asks for a connection, tells what became of it, and cleans up. False when there was not even an answer. */
static bool connection_tried(const char *addr, const char *port) {
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    bool ok = worked(rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) &&
              worked(rpma_peer_new(context, &peer)) &&
              worked(rpma_conn_req_new(peer, addr, port, NULL, &request)) &&
              worked(rpma_conn_req_connect(&request, NULL, &conn)) &&
              worked(rpma_conn_next_event(conn, &event));
    ok = worked(rpma_conn_delete(&conn)) && ok;
    ok = worked(rpma_conn_req_delete(&request)) && ok;
    ok = worked(rpma_peer_delete(&peer)) && ok;
    printf("-> %s\n", ok ? rpma_utils_conn_event_2str(event) : "no answer at all");
    return ok;
}

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }

    printf("1. By default, warnings and worse go to syslog, and nothing to standard error.\n");
    bool ok = connection_tried(argv[1], argv[2]);

    /* Two thresholds: what goes to the log function at all, and what the default one also writes to standard
     * error. */
    printf("2. Standard error gets the same as syslog, from notices up.\n");
    fflush(stdout);
    ok = worked(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_NOTICE)) &&
         worked(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_NOTICE)) &&
         connection_tried(argv[1], argv[2]) && ok;

    printf(
        "3. A function of our own takes everything, and neither syslog nor standard error gets any of it.\n");
    ok = worked(rpma_log_set_function(take_line)) &&
         worked(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_DEBUG)) &&
         connection_tried(argv[1], argv[2]) && ok;
    (void)rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION);
    if (ok && atomic_load(&lines_taken) == 0) {
        fprintf(stderr, "log: our function was not called (expected: at least a notice of the request)\n");
        ok = false;
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
