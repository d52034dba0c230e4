// SPDX-License-Identifier: BSD-3-Clause
// A child of a test, made with fork().
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>

namespace test {

// fork(). The child ends with its parent, and with the first assertion that fails: cmocka would jump back
// into the child's copy of its runner, and the other tests would run there too.
[[nodiscard]] inline pid_t fork_child() {
    const pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setenv("CMOCKA_TEST_ABORT", "1", 1);
    }
    return child;
}

}  // namespace test
