/* SPDX-License-Identifier: BSD-3-Clause */
/* entries: counts what is in a folder, such as /proc/self/fd. Include it after cmocka.h. */
#ifndef ENTRIES_H
#define ENTRIES_H 1

#include <dirent.h>
#include <string.h>

/* Returns how many entries of the folder, with `.` and `..`, have this text in their names. */
static inline int entries_with(const char *folder, const char *text) {
    int count = 0;
    DIR *const opened = opendir(folder);
    assert_non_null(opened);
    for (const struct dirent *entry = NULL; (entry = readdir(opened)) != NULL;) {
        count += strstr(entry->d_name, text) != NULL;
    }
    assert_int_equal(closedir(opened), 0);
    return count;
}

static inline int entries_of(const char *folder) {
    return entries_with(folder, "");
}

#endif
