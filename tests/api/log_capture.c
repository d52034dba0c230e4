/* SPDX-License-Identifier: BSD-3-Clause */
/* log_capture: keeps the log of the process for a test, instead of writing it. */
#include "log_capture.h"

#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#define MAX_LINES 64
#define LINE_SIZE 1200

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char lines[MAX_LINES][LINE_SIZE];
static int used;

static void keep(enum rpma_log_level level, const char *file_name, const int line_no,
                 const char *function_name, const char *message_format, ...) {
    (void)level;
    (void)file_name;
    (void)line_no;
    (void)function_name;
    va_list arguments;
    va_start(arguments, message_format);
    pthread_mutex_lock(&mutex);
    if (used < MAX_LINES) {
        vsnprintf(lines[used++], LINE_SIZE, message_format, arguments);
    }
    pthread_mutex_unlock(&mutex);
    va_end(arguments);
}

void capture_log(enum rpma_log_level level) {
    pthread_mutex_lock(&mutex);
    used = 0;
    pthread_mutex_unlock(&mutex);
    rpma_log_set_function(keep);
    rpma_log_set_threshold(RPMA_LOG_THRESHOLD, level);
}

static bool has_all(const char *line, const char *text, va_list texts) {
    for (; text != NULL; text = va_arg(texts, const char *)) {
        if (strstr(line, text) == NULL) {
            return false;
        }
    }
    return true;
}

bool logged(const char *text, ...) {
    bool found = false;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < used && !found; ++i) {
        va_list texts;
        va_start(texts, text);
        found = has_all(lines[i], text, texts);
        va_end(texts);
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

int logged_lines(void) {
    pthread_mutex_lock(&mutex);
    const int count = used;
    pthread_mutex_unlock(&mutex);
    return count;
}
