// SPDX-License-Identifier: BSD-3-Clause
// A test makes its child processes here.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>

namespace test {

// Calls fork(). The child ends with its parent. It also ends when an assertion fails in it: cmocka would jump
// back into the child's copy of its runner, and the child would run the other tests too.
[[nodiscard]] inline pid_t fork_child() {
    const pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setenv("CMOCKA_TEST_ABORT", "1", 1);
    }
    return child;
}

}  // namespace test
