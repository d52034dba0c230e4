// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/child: starts a process that does not outlive the command.
#pragma once

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace cli {

// Calls fork(). The child gets the signal when the command ends in any way, also when it is killed.
[[nodiscard]] inline pid_t fork_child(int signal) {
    // Where SIGCHLD is ignored, the number of a child that has ended may be another process's.
    std::signal(SIGCHLD, SIG_DFL);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0 && (prctl(PR_SET_PDEATHSIG, signal) != 0 || getppid() != parent)) {
        std::_Exit(EXIT_FAILURE);
    }
    return child;
}

}  // namespace cli
