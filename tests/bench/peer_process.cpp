// SPDX-License-Identifier: BSD-3-Clause
// bench: the process at the other end, and what all programs here share.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench.hpp"

namespace bench {

void die(const char *what) {
    std::fprintf(stderr, "bench: %s: %s\n", what, std::strerror(errno));
    std::exit(EXIT_FAILURE);
}

std::size_t number(const char *text) {
    std::size_t value = 0;
    const auto parsed = std::from_chars(text, text + std::strlen(text), value);
    if (parsed.ec != std::errc{} || *parsed.ptr != '\0' || value == 0) {
        std::fprintf(stderr, "bench: '%s' is no number above 0\n", text);
        std::exit(2);
    }
    return value;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

PeerProcess::PeerProcess(const Serve &serve) {
    int ends[2];
    if (pipe(ends) != 0) {
        die("pipe");
    }
    pid_ = fork();
    if (pid_ < 0) {
        die("fork");
    }
    if (pid_ == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        serve([&](std::uint16_t port) {
            if (write(ends[1], &port, sizeof(port)) != sizeof(port)) {
                _exit(EXIT_FAILURE);
            }
        });
        _exit(EXIT_SUCCESS);
    }
    close(ends[1]);
    if (read(ends[0], &port_, sizeof(port_)) != sizeof(port_)) {
        die("the other process did not come up");
    }
    close(ends[0]);
}

PeerProcess::~PeerProcess() {
    int status = 0;
    (void)waitpid(pid_, &status, 0);
}

}  // namespace bench
