/* SPDX-License-Identifier: BSD-3-Clause */
/* exit: tests that a process ends, with or without its objects. No thread of the library is left, and no
 * object that a child inherited counts as a leak. */
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ends.h"

#ifndef __SANITIZE_THREAD__ /* ThreadSanitizer has a thread of its own */
static int threads(void) {
    int count = 0;
    DIR *const tasks = opendir("/proc/self/task");
    for (const struct dirent *one = readdir(tasks); one != NULL; one = readdir(tasks)) {
        count += one->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

/* A thread that was joined may still be listed for a moment. */
static void no_thread_is_left(void *unused) {
    (void)unused;
    for (int looks = 0; threads() != 1; ++looks) {
        if (looks == 1000) {
            fprintf(stderr, "%d threads are left when the process ends\n", threads());
            _exit(3);
        }
        poll(NULL, 0, 1);
    }
}

/* no_thread_is_left is registered before the libraries, and for no library, so it runs after
 * their functions at the end of the process. */
int __cxa_atexit(void (*function)(void *), void *argument, void *library);
static void ask_early(void) {
    (void)__cxa_atexit(no_thread_is_left, NULL, NULL);
}
__attribute__((section(".preinit_array"), used)) static void (*const at_first)(void) = ask_early;
#endif

static pid_t child(void) {
    fflush(NULL); /* buffered text would be written twice */
    const pid_t made = fork();
    assert_int_not_equal(made, -1);
    if (made == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setenv("CMOCKA_TEST_ABORT", "1", 1);
        alarm(60);
    }
    return made;
}

static void ends_well(pid_t made) {
    int status = 0;
    assert_int_equal(waitpid(made, &status, 0), made);
    assert_int_equal(status, 0);
}

/* This is the first test, so the parent has no thread and no connection yet. */
static void a_process_leaves_its_connection_behind(void **state) {
    const pid_t made = child();
    if (made == 0) {
        (void)make_connection(state);
        exit(0);
    }
    ends_well(made);
}

static void a_process_ends_right_after_its_last_object(void **state) {
    const pid_t made = child();
    if (made == 0) {
        (void)make_connection(state);
        exit(end_all(state));
    }
    ends_well(made);
}

static int engine_threads(void) {
    int count = 0;
    DIR *const tasks = opendir("/proc/self/task");
    for (const struct dirent *one = readdir(tasks); one != NULL; one = readdir(tasks)) {
        char path[64];
        char name[16] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", one->d_name);
        FILE *const file = fopen(path, "r");
        if (file != NULL) {
            count += fgets(name, sizeof(name), file) != NULL && strcmp(name, "softrdma\n") == 0;
            fclose(file);
        }
    }
    closedir(tasks);
    return count;
}

/* The engine ends with the last object. */
static void let_the_engine_end(void **state) {
    (void)make_connection(state);
    (void)end_all(state);
    for (int looks = 0; engine_threads() != 0; ++looks) {
        assert_true(looks < 10000);
        poll(NULL, 0, 1);
    }
}

/* ThreadSanitizer reports a thread that has ended and was not joined. */
static void a_thread_that_has_ended_is_joined(void **state) {
    const pid_t made = child();
    if (made == 0) {
        let_the_engine_end(state);
        const pid_t inherits = child();
        if (inherits == 0) {
            _exit(0);
        }
        ends_well(inherits);
        let_the_engine_end(state);
        (void)make_connection(state);
        _exit(0);
    }
    ends_well(made);
}

static void a_child_ends(void **state) {
    struct ends *ends = *state;
    const pid_t made = child();
    if (made == 0) {
#ifdef __SANITIZE_ADDRESS__
        /* LeakSanitizer takes what the parent's threads hold for leaks of the child. */
        _exit(0);
#else
        exit(0);
#endif
    }
    ends_well(made);
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC);
    struct rpma_mr_remote *const far =
        remote_of(ends, reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_DST));
    assert_ok(rpma_write(ends->client, far, 0, near, 0, 8, RPMA_F_COMPLETION_ALWAYS, NULL));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_leaves_its_connection_behind),
        cmocka_unit_test(a_process_ends_right_after_its_last_object),
        cmocka_unit_test(a_thread_that_has_ended_is_joined),
        cmocka_unit_test_setup_teardown(a_child_ends, make_connection, end_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
