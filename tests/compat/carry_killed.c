/* SPDX-License-Identifier: BSD-3-Clause */
/* carry_killed: a child makes one call on a connection that its parent has too. It is killed after so many
 * instructions of the call. Its parent goes on: each byte is lost with the child or read once, and no other
 * is. test_carry_killed [memory [STRIDE]]     every STRIDE-th instruction; 1 takes minutes
 */
#define _GNU_SOURCE 1 /* accept4 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "socket_pairs.h"

enum { first_bytes = 100, wanted_bytes = 60, later_bytes = 50, all_bytes = first_bytes + later_bytes };
static long stride = 7;
static volatile bool *has_returned; /* from the call; shared with the child */

enum call { ReceivesInRing, ReceivesInTcp, PeeksInRing, Sends };
static enum call calls[] = {ReceivesInRing, ReceivesInTcp, PeeksInRing, Sends};

static void fill(char bytes[all_bytes]) {
    for (int i = 0; i < all_bytes; ++i) {
        bytes[i] = (char)(i + 1);
    }
}

/* Runs in the child, which is stopped right before. */
static void make_call(enum call what, int fd, const char sent[all_bytes]) {
    char bytes[first_bytes];
    if (what == Sends) {
        (void)send(fd, sent, first_bytes, 0);
    } else {
        (void)recv(fd, bytes, wanted_bytes, what == PeeksInRing ? MSG_PEEK : 0);
    }
    *has_returned = true;
}

static void kill_after(pid_t child, long instructions) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    for (long i = 0; i < instructions && !*has_returned; ++i) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSTOPPED(status));
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
}

struct receiving {
    int fd;
    char bytes[all_bytes + 1];
    ssize_t size; /* -1: it has failed */
};

/* Sleeps before most bytes come, so that a sender rings. */
static void *receive_all(void *argument) {
    struct receiving *const one = argument;
    for (ssize_t more = 1; more > 0; one->size = more < 0 ? -1 : one->size + more) {
        more = recv(one->fd, one->bytes + one->size, sizeof(one->bytes) - (size_t)one->size, 0);
    }
    return NULL;
}

struct waiting {
    int fd;
    _Atomic pid_t thread;
};

static void *wait_for_bytes(void *argument) {
    struct waiting *const one = argument;
    one->thread = gettid();
    return (void *)(intptr_t)(poll(&(struct pollfd){.fd = one->fd, .events = POLLIN}, 1, wait_ms) == 1 ? 0
                                                                                                       : 1);
}

/* The sender rings for a thread that sleeps. */
static void send_to_sleeper(const int ends[2], const char sent[all_bytes], int flags) {
    struct waiting waiting = {.fd = ends[1]};
    pthread_t sleeper;
    void *failed = NULL;
    assert_int_equal(pthread_create(&sleeper, NULL, wait_for_bytes, &waiting), 0);
    while (!is_in(waiting.thread, SYS_poll) && !is_in(waiting.thread, SYS_ppoll)) {
        (void)sched_yield();
    }
    assert_int_equal(send(ends[0], sent, first_bytes, flags), first_bytes);
    assert_int_equal(pthread_join(sleeper, &failed), 0);
    assert_null(failed);
}

static void go_on_after(enum call what, long instructions) {
    int ends[2];
    char sent[all_bytes];
    fill(sent);
    make_pair(ends);
    const int own = what == Sends ? 0 : 1; /* the child's end */
    struct receiving received = {.fd = ends[1]};
    pthread_t receiver;
    if (what == Sends) {
        assert_int_equal(pthread_create(&receiver, NULL, receive_all, &received), 0);
    } else {
        /* The ring does not carry the flag. */
        send_to_sleeper(ends, sent, what == ReceivesInTcp ? MSG_DONTROUTE : 0);
    }
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 && raise(SIGSTOP) == 0) {
            make_call(what, ends[own], sent);
        }
        _exit(0);
    }
    kill_after(child, instructions);
    assert_int_equal(send(ends[0], sent + first_bytes, later_bytes, MSG_NOSIGNAL), later_bytes);
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    if (what == Sends) {
        assert_int_equal(pthread_join(receiver, NULL), 0);
    } else {
        (void)receive_all(&received);
    }
    /* The child has sent all of its bytes, or none; it may have taken those that it wanted. */
    const ssize_t least = what == Sends         ? later_bytes
                          : what == PeeksInRing ? all_bytes
                                                : all_bytes - wanted_bytes;
    assert_true(received.size == least || received.size == all_bytes);
    assert_memory_equal(received.bytes, sent + all_bytes - received.size, (size_t)received.size);
    close_pair(ends);
}

static void a_connection_goes_on_behind_a_killed_process(void **state) {
    const enum call what = *(const enum call *)*state;
    *has_returned = false;
    for (long instructions = 0; !*has_returned; instructions += stride) {
        go_on_after(what, instructions);
    }
}

int main(int count, char **words) {
    in_the_memory = count > 1 && strcmp(words[1], "memory") == 0;
    stride = count > 2 ? strtol(words[2], NULL, 10) : stride;
    has_returned =
        mmap(NULL, sizeof(*has_returned), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (has_returned == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(a_connection_goes_on_behind_a_killed_process, &calls[0]),
        cmocka_unit_test_prestate(a_connection_goes_on_behind_a_killed_process, &calls[1]),
        cmocka_unit_test_prestate(a_connection_goes_on_behind_a_killed_process, &calls[2]),
        cmocka_unit_test_prestate(a_connection_goes_on_behind_a_killed_process, &calls[3]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
