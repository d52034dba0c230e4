/* SPDX-License-Identifier: BSD-3-Clause */
/* engines: a process has further threads of the device when it has connections on several completion queues,
 * and at most as many as SOFTRDMA_ENGINES says: 2 here. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ends.h"

/* Returns the number of the device's threads that have begun. */
static int engines(void) {
    int count = 0;
    DIR *const tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        char name[300];
        char text[32] = "";
        snprintf(name, sizeof(name), "/proc/self/task/%s/comm", task->d_name);
        FILE *const file = fopen(name, "r");
        if (file != NULL) {
            count += fgets(text, sizeof(text), file) != NULL && strcmp(text, "softrdma\n") == 0;
            fclose(file);
        }
    }
    closedir(tasks);
    return count;
}

static void write_and_read(struct ends *ends, struct rpma_conn *conn) {
    struct rpma_mr_local *const near =
        reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST);
    struct rpma_mr_local *const far =
        reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC);
    struct rpma_mr_remote *const remote = remote_of(ends, far);
    for (int i = 0; i < 100; ++i) {
        memset(ends->near, i, BUFFER_SIZE);
        assert_ok(rpma_write(conn, remote, 0, near, 0, BUFFER_SIZE / 2, RPMA_F_COMPLETION_ALWAYS, NULL));
        assert_int_equal(await_completion(conn).status, IBV_WC_SUCCESS);
        assert_ok(rpma_read(conn, near, BUFFER_SIZE / 2, remote, 0, BUFFER_SIZE / 2, RPMA_F_COMPLETION_ALWAYS,
                            NULL));
        assert_int_equal(await_completion(conn).status, IBV_WC_SUCCESS);
        assert_memory_equal(ends->near, ends->near + BUFFER_SIZE / 2, BUFFER_SIZE / 2);
    }
}

/* The thread that waits for one end serves its queue, and an engine serves that of the other end. So each
 * queue's engine has begun. */
static void connect_ends(struct ends *ends) {
    ask(ends, NULL, NULL);
    answer(ends, NULL, NULL);
    await_established(ends);
    write_and_read(ends, ends->client);
    write_and_read(ends, ends->server);
}

/* Both ends are in this process, so a connection has two completion queues. */
static void a_connection_brings_the_second(void **state) {
    struct ends *ends = *state;
    assert_in_range(engines(), 0, 1);
    connect_ends(ends);
    assert_int_equal(engines(), 2);
}

static void there_is_no_third(void **state) {
    struct ends *ends = *state;
    connect_ends(ends);
    struct rpma_conn *client = ends->client;
    struct rpma_conn *server = ends->server;
    ends->client = NULL;
    ends->server = NULL;
    connect_ends(ends);
    assert_int_equal(engines(), 2);
    assert_ok(rpma_conn_delete(&client));
    assert_ok(rpma_conn_delete(&server));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_connection_brings_the_second, make_endpoint, end_all),
        cmocka_unit_test_setup_teardown(there_is_no_third, make_endpoint, end_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
