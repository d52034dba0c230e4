/* SPDX-License-Identifier: BSD-3-Clause */
/* compat: a program that asks for devices of RoCE finds them in /sys/class/infiniband and /dev/infiniband, by
 * each call that takes a path. The files are those of its process, and go with it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DEVICE "/sys/class/infiniband/soft_lo"
#define PORT DEVICE "/ports/1"
#define NODE "/dev/infiniband/soft_lo"

static void first_line_is(const char *path, const char *expected) {
    char line[64] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    assert_int_equal(fclose(file), 0);
    assert_string_equal(line, expected);
}

static void files_say_what_verbs_say(void **state) {
    (void)state;
    first_line_is(DEVICE "/node_type", "1: CA\n");
    first_line_is(PORT "/link_layer", "Ethernet\n");
    first_line_is(PORT "/gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
    first_line_is(PORT "/gid_attrs/types/0", "IB/RoCE v1\n");
    first_line_is(PORT "/gid_attrs/types/1", "RoCE v2\n");
    first_line_is(PORT "/gid_attrs/ndevs/1", "lo\n");
    first_line_is(PORT "/pkeys/0", "0xffff\n");
}

static int is_soft_lo(const struct dirent *entry) {
    return strcmp(entry->d_name, "soft_lo") == 0;
}

static void folders_list_devices(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct dirent **names = NULL;
        assert_int_equal(
            scandir(i == 0 ? "/sys/class/infiniband" : "/dev/infiniband", &names, is_soft_lo, NULL), 1);
        free(names[0]);
        free(names);
    }
    DIR *folder = opendir(DEVICE "/device/net");
    assert_non_null(folder);
    int found = 0;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        found += strcmp(entry->d_name, "lo") == 0;
    }
    assert_int_equal(found, 1);
    assert_int_equal(closedir(folder), 0);
}

static void calls_with_a_path_agree(void **state) {
    (void)state;
    struct stat status;
    struct statx more;
    assert_int_equal(stat(NODE, &status), 0);
    assert_true(S_ISCHR(status.st_mode)); /* UCX looks at this */
    assert_int_equal(access(NODE, R_OK | W_OK), 0);
    assert_int_equal(faccessat(AT_FDCWD, NODE, R_OK, AT_EACCESS), 0);
    assert_int_equal(euidaccess(NODE, R_OK), 0);
    assert_int_equal(lstat(PORT, &status), 0);
    assert_true(S_ISDIR(status.st_mode));
    assert_int_equal(fstatat(AT_FDCWD, PORT "/state", &status, 0), 0);
    assert_int_equal(statx(AT_FDCWD, PORT "/state", 0, STATX_SIZE, &more), 0);
    assert_int_equal(more.stx_size, status.st_size);
    char text[PATH_MAX];
    assert_true(readlink(DEVICE "/device/net/lo", text, sizeof(text)) > 0);
    assert_true(readlinkat(AT_FDCWD, DEVICE "/device/net/lo", text, sizeof(text)) > 0);
    assert_int_equal(readlink(PORT, text, sizeof(text)), -1);
    assert_int_equal(errno, EINVAL);
    assert_ptr_equal(realpath(DEVICE "/ports/../ports/1", text), text);
    assert_string_equal(text, PORT);
    char *const whole = canonicalize_file_name(PORT "/.");
    assert_string_equal(whole, PORT);
    free(whole);
    const int folder = open(PORT, O_RDONLY | O_DIRECTORY);
    const int file = openat(folder, "lid", O_RDONLY);
    assert_int_equal(read(file, text, 4), 4);
    assert_memory_equal(text, "0x0\n", 4);
    assert_int_equal(close(file) | close(folder), 0);
}

static void other_paths_are_the_kernels(void **state) {
    (void)state;
    struct stat status;
    errno = 0;
    assert_int_equal(stat("/sys/class/infiniband/soft_none", &status), -1);
    assert_int_equal(errno, ENOENT);
    assert_null(fopen("/sys/class/infiniband_none", "r"));
    assert_null(opendir("/dev/infiniband_none"));
    assert_null(realpath(DEVICE "/none", NULL));
    assert_int_equal(stat("/sys/class/net/lo", &status), 0);
    assert_int_equal(access("/proc/self/maps", R_OK), 0);
    const char *volatile none = NULL;
    assert_int_equal(stat(none, &status), -1);
    assert_int_equal(errno, EFAULT);
}

/* Begins a process that looks, and gives the name of its files. It ends when `hold` is closed. */
static pid_t process_that_looks(char *files, size_t room, int *hold) {
    int told[2];
    int held[2];
    assert_int_equal(pipe(told) | pipe(held), 0);
    const pid_t child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0) {
        const int folder = open(PORT, O_RDONLY | O_DIRECTORY);
        char name[64];
        (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", folder);
        char own[PATH_MAX] = "";
        (void)readlink(name, own, sizeof(own) - 1);
        (void)!write(told[1], own, strlen(own) + 1);
        (void)close(held[1]);
        (void)!read(held[0], own, 1);
        exit(0);
    }
    assert_true(read(told[0], files, room) > 1);
    assert_int_equal(close(told[0]) | close(told[1]) | close(held[0]), 0);
    *hold = held[1];
    return child;
}

static void ended(pid_t child) {
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void files_go_with_their_process(void **state) {
    (void)state;
    char files[PATH_MAX];
    int hold = -1;
    struct stat status;
    assert_int_equal(access(PORT, F_OK), 0);
    pid_t child = process_that_looks(files, sizeof(files), &hold);
    assert_int_equal(stat(files, &status), 0);
    assert_int_equal(close(hold), 0);
    ended(child);
    assert_int_equal(stat(files, &status), -1);
    /* The next process that looks removes the files of one that was killed. */
    child = process_that_looks(files, sizeof(files), &hold);
    assert_int_equal(kill(child, SIGKILL), 0);
    ended(child);
    assert_int_equal(close(hold), 0);
    char others[PATH_MAX];
    child = process_that_looks(others, sizeof(others), &hold);
    assert_int_equal(stat(files, &status), -1);
    assert_int_equal(stat(others, &status), 0);
    assert_int_equal(close(hold), 0);
    ended(child);
    assert_int_equal(access(PORT, F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_say_what_verbs_say),    cmocka_unit_test(folders_list_devices),
        cmocka_unit_test(calls_with_a_path_agree),     cmocka_unit_test(other_paths_are_the_kernels),
        cmocka_unit_test(files_go_with_their_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
