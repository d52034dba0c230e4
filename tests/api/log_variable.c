/* SPDX-License-Identifier: BSD-3-Clause */
/* log_variable: tests RPMA_LOG. Each test uses a process of its own, because the
 * variable is read when the library is loaded. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define ERRORS "errors"
#define LINES "lines"

static void swallow(enum rpma_log_level level, const char *file, const int line, const char *function,
                    const char *format, ...) {
    (void)level, (void)file, (void)line, (void)function, (void)format;
}

/* A process under test makes two calls that fail, logged at ERROR. */
static int fail_twice(bool has_function) {
    struct rpma_peer_cfg *pcfg = NULL;
    if (has_function) {
        (void)rpma_log_set_function(swallow);
    }
    return rpma_peer_cfg_from_descriptor("", 0, &pcfg) == RPMA_E_INVAL &&
                   rpma_peer_cfg_from_descriptor("", 0, &pcfg) == RPMA_E_INVAL
               ? 0
               : 1;
}

/* This is the path of this program. /proc/self/exe is valgrind when valgrind runs the program. */
static const char *program;
static char text[4096];

/* Returns the text of a file, or an empty text when there is none. */
static const char *content(const char *name) {
    const int fd = open(name, O_RDONLY);
    const ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    assert_true(got >= 0);
    text[got] = '\0';
    if (fd >= 0) {
        close(fd);
    }
    return text;
}

static int times(const char *part) {
    int count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        ++count;
    }
    return count;
}

/* Runs the program with its standard error in ERRORS. */
static void run_with(const char *variable, const char *argument) {
    const pid_t child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0) {
        const int fd = open(ERRORS, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || dup2(fd, STDERR_FILENO) < 0 || setenv("RPMA_LOG", variable, 1) != 0) {
            _exit(2);
        }
        execl(program, program, argument, NULL);
        _exit(3);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void standard_error(void **state) {
    (void)state;
    run_with("stderr:error", "fail");
    (void)content(ERRORS);
    assert_int_equal(times("*ERROR*"), 2);
    assert_int_equal(times("rpma_peer_cfg_from_descriptor"), 2);
    run_with("stderr:fatal", "fail");
    assert_string_equal(content(ERRORS), "");
}

/* The library appends lines, and a name may have colons. */
static void a_file(void **state) {
    (void)state;
    unlink(LINES);
    run_with("file:" LINES ":info", "fail");
    run_with("file:" LINES, "fail");
    assert_string_equal(content(ERRORS), "");
    (void)content(LINES);
    assert_int_equal(times("*ERROR*"), 4);
    unlink(LINES);
    unlink("a:b/x");
    rmdir("a:b");
    assert_int_equal(mkdir("a:b", 0700), 0);
    run_with("file:a:b/x", "fail");
    (void)content("a:b/x");
    assert_int_equal(times("*ERROR*"), 2);
    unlink("a:b/x");
    rmdir("a:b");
}

static void nothing_at_all(void **state) {
    (void)state;
    run_with("none", "fail");
    assert_string_equal(content(ERRORS), "");
}

/* The program's own function gets the lines. */
static void the_programs_function_wins(void **state) {
    (void)state;
    run_with("stderr:debug", "function");
    assert_string_equal(content(ERRORS), "");
}

static void what_is_not_understood_is_named(void **state) {
    (void)state;
    const char *const wrong[] = {"stdout", "stderr:loud", "file:", "file:x:loud", "", ":info"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        char named[64];
        snprintf(named, sizeof(named), "RPMA_LOG=%s is not understood", wrong[i]);
        run_with(wrong[i], "function");
        (void)content(ERRORS);
        assert_int_equal(times(named), 1);
        assert_int_equal(times("expected"), 1);
    }
    run_with("file:/no/such/folder:info", "function");
    (void)content(ERRORS);
    assert_int_equal(times("cannot open /no/such/folder: No such file or directory"), 1);
}

/* A program without settings and without a system log is told once how to see the reason. */
static void a_hint(void **state) {
    (void)state;
    if (access("/dev/log", F_OK) == 0) {
        skip();
    }
    run_with("stdout", "fail"); /* counts as not set */
    (void)content(ERRORS);
    assert_int_equal(times("RPMA_LOG=stderr shows"), 1);
    run_with("stdout", "function");
    (void)content(ERRORS);
    assert_int_equal(times("RPMA_LOG=stderr shows"), 0);
}

int main(int argc, char **argv) {
    program = argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(standard_error),
        cmocka_unit_test(a_file),
        cmocka_unit_test(nothing_at_all),
        cmocka_unit_test(the_programs_function_wins),
        cmocka_unit_test(what_is_not_understood_is_named),
        cmocka_unit_test(a_hint),
    };
    if (argc > 1) {
        return fail_twice(strcmp(argv[1], "function") == 0);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
