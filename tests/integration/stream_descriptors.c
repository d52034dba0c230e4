/* SPDX-License-Identifier: BSD-3-Clause */
/* A stream takes one descriptor at each of its ends, and gives it back. */
#define _GNU_SOURCE
#include <sys/resource.h>

#include "../api/test.h"

/* This is included last, because it asserts. */
#include "../api/rsockets.h"
#include "../entries.h"

enum { STREAMS = 1000, OTHERS = 40 };

/* The first listener needs the device, and the device descriptors. */
static void too_few_are_told(void **state) {
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rlimit before;
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_in_range(fd, 0, 1000);
    assert_int_equal(rbind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {.rlim_cur = 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const int result = rlisten(fd, 1);
    const int error = errno;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(result, -1);
    assert_int_equal(error, EMFILE);
    assert_int_equal(rlisten(fd, 1), 0);
    assert_int_equal(rclose(fd), 0);
}

static void a_thousand_streams(void **state) {
    (void)state;
    static int fds[STREAMS][2];
    struct rlimit limit;
    uint16_t port = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max < 2 * STREAMS + 2 * OTHERS || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        printf("skipped: no more than %lu descriptors\n", (unsigned long)limit.rlim_max);
        skip();
    }
    const int listener = listening_rsocket(&port);
    const int before = entries_of("/proc/self/fd");
    for (int i = 0; i < STREAMS; ++i) {
        connect_ends(fds[i], listener, port);
    }
    const int with_streams = entries_of("/proc/self/fd") - before;
    print_message("%d descriptors for %d streams, both ends\n", with_streams, STREAMS);
    assert_in_range(with_streams, 2 * STREAMS, 2 * STREAMS + OTHERS);
    for (int i = 0; i < STREAMS; ++i) {
        char byte = 0;
        assert_int_equal(rsend(fds[i][0], "x", 1, 0), 1);
        assert_int_equal(rrecv(fds[i][1], &byte, 1, 0), 1);
        assert_int_equal(rclose(fds[i][0]), 0);
        assert_int_equal(rrecv(fds[i][1], &byte, 1, 0), 0);
        assert_int_equal(rclose(fds[i][1]), 0);
    }
    /* The device drains what it was left, in a thread of its own. */
    const double deadline = seconds() + 30;
    while (entries_of("/proc/self/fd") - before > OTHERS && seconds() < deadline) {
        assert_int_equal(rpoll(NULL, 0, 1), 0);
    }
    assert_in_range(entries_of("/proc/self/fd") - before, 0, OTHERS);
    assert_int_equal(rclose(listener), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(too_few_are_told),
                                       cmocka_unit_test(a_thousand_streams)};
    return cmocka_run_group_tests_name("stream_descriptors", tests, NULL, NULL);
}
