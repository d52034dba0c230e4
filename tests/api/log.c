/* SPDX-License-Identifier: BSD-3-Clause */
/* log: tests the thresholds, the user's function, and the lines that the default one
 * writes to the system log and standard error. */
#include <regex.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "log_capture.h"
#include "test.h"

/* Replaces the C library's system log, for the whole process, by functions that remember the lines. */
#define EVERYWHERE __attribute__((visibility("default")))
static int opened;
static char identity[32];
static int open_option;
static int open_facility;
static int severity;
static char system_line[1200];

EVERYWHERE void openlog(const char *ident, int option, int facility) {
    ++opened;
    snprintf(identity, sizeof(identity), "%s", ident);
    open_option = option;
    open_facility = facility;
}

static void remember(int priority, const char *format, va_list arguments) {
    severity = priority;
    vsnprintf(system_line, sizeof(system_line), format, arguments);
}

EVERYWHERE void syslog(int priority, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    remember(priority, format, arguments);
    va_end(arguments);
}

/* syslog() calls this where the checks of the C library are compiled in. */
void __syslog_chk(int priority, int flag, const char *format, ...);
EVERYWHERE void __syslog_chk(int priority, int flag, const char *format, ...) {
    (void)flag;
    va_list arguments;
    va_start(arguments, format);
    remember(priority, format, arguments);
    va_end(arguments);
}

/* Makes the library log one line, at ERROR. */
static void provoke_error(void) {
    struct rpma_peer_cfg *pcfg = NULL;
    assert_code(rpma_peer_cfg_from_descriptor("", 0, &pcfg), RPMA_E_INVAL);
}

static void defaults(void **state) {
    (void)state;
    enum rpma_log_level level = RPMA_LOG_LEVEL_FATAL;
    assert_ok(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level));
    assert_int_equal(level, RPMA_LOG_LEVEL_WARNING);
    assert_ok(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_AUX, &level));
    assert_int_equal(level, RPMA_LOG_DISABLED);
}

static void system_log_identity_is_left_alone_until_the_first_line(void **state) {
    (void)state;
    capture_log(RPMA_LOG_LEVEL_DEBUG);
    provoke_error();
    assert_int_equal(logged_lines(), 1);
    assert_int_equal(opened, 0);

    rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION);
    provoke_error();
    provoke_error();
    assert_int_equal(opened, 1);
    assert_string_equal(identity, "rpma");
    assert_int_equal(open_option, LOG_PID);
    assert_int_equal(open_facility, LOG_LOCAL7);
}

static void thresholds_are_kept(void **state) {
    (void)state;
    const enum rpma_log_threshold thresholds[] = {RPMA_LOG_THRESHOLD, RPMA_LOG_THRESHOLD_AUX};
    for (size_t i = 0; i < 2; ++i) {
        for (int set = RPMA_LOG_DISABLED; set <= RPMA_LOG_LEVEL_DEBUG; ++set) {
            enum rpma_log_level got = RPMA_LOG_LEVEL_FATAL;
            assert_ok(rpma_log_set_threshold(thresholds[i], (enum rpma_log_level)set));
            assert_ok(rpma_log_get_threshold(thresholds[i], &got));
            assert_int_equal(got, set);
        }
    }
    assert_ok(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_DISABLED));
}

static void arguments_are_checked(void **state) {
    (void)state;
    enum rpma_log_level level = RPMA_LOG_LEVEL_INFO;
    const enum rpma_log_threshold below = (enum rpma_log_threshold) - 1;
    assert_code(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_MAX, RPMA_LOG_LEVEL_INFO), RPMA_E_INVAL);
    assert_code(rpma_log_set_threshold(below, RPMA_LOG_LEVEL_INFO), RPMA_E_INVAL);
    assert_code(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)6), RPMA_E_INVAL);
    assert_code(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level) - 2), RPMA_E_INVAL);
    assert_code(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_MAX, &level), RPMA_E_INVAL);
    assert_code(rpma_log_get_threshold(below, &level), RPMA_E_INVAL);
    assert_code(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, NULL), RPMA_E_INVAL);
    assert_int_equal(level, RPMA_LOG_LEVEL_INFO);
}

static int calls;
static void examine(enum rpma_log_level level, const char *file_name, const int line_no,
                    const char *function_name, const char *message_format, ...) {
    ++calls;
    assert_int_equal(level, RPMA_LOG_LEVEL_ERROR);
    assert_non_null(strstr(file_name, "peer_cfg"));
    assert_true(line_no > 0);
    assert_string_equal(function_name, "rpma_peer_cfg_from_descriptor");
    assert_int_equal(message_format[strlen(message_format) - 1], '\n');
}

static void threshold_filters_before_the_function(void **state) {
    (void)state;
    assert_ok(rpma_log_set_function(examine));
    assert_ok(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_ERROR));
    provoke_error();
    assert_int_equal(calls, 1);
    assert_ok(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_FATAL));
    provoke_error();
    assert_int_equal(calls, 1);
    assert_ok(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
    provoke_error();
    assert_int_equal(calls, 1);
}

/* Stores the text that goes to standard error while the library logs one error. */
static void provoke_error_to(char *text, size_t size) {
    FILE *const file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    const int kept = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    provoke_error();
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

static void default_function_writes_both_logs(void **state) {
    (void)state;
    char text[2048];
    regex_t line;
    assert_ok(rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION));
    assert_ok(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_DEBUG));

    assert_ok(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_FATAL));
    provoke_error_to(text, sizeof(text));
    assert_string_equal(text, "");
    assert_int_equal(severity, LOG_ERR);
    assert_int_equal(strncmp(system_line, "*ERROR* peer_cfg", strlen("*ERROR* peer_cfg")), 0);

    assert_ok(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_ERROR));
    provoke_error_to(text, sizeof(text));
    assert_int_equal(
        regcomp(&line,
                "^[A-Z][a-z]{2} [0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6} \\[[0-9]+\\] \\*ERROR\\* "
                "peer_cfg\\.[a-z]+: [ 0-9]{2}[0-9]: rpma_peer_cfg_from_descriptor: [^\n]+\n$",
                REG_EXTENDED | REG_NOSUB),
        0);
    const int matched = regexec(&line, text, 0, NULL, 0);
    regfree(&line);
    assert_int_equal(matched, 0);
    assert_ok(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_DISABLED));
}

int main(void) {
    /* The first two tests are about settings that no test has changed yet, so the order matters. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(system_log_identity_is_left_alone_until_the_first_line),
        cmocka_unit_test(thresholds_are_kept),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(threshold_filters_before_the_function),
        cmocka_unit_test(default_function_writes_both_logs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
