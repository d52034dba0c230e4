// SPDX-License-Identifier: BSD-3-Clause
#include "fixture.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../child.hpp"
#include "suite.hpp"

namespace conformance {

Subject subject;

namespace {

// Returns seconds that are far more than any test takes, also with a sanitizer on a busy machine.
unsigned watchdog_s() {
    const char *const chosen = std::getenv("CONFORMANCE_WATCHDOG_S");
    return chosen != nullptr ? static_cast<unsigned>(std::strtoul(chosen, nullptr, 10)) : 200;
}

std::vector<std::shared_ptr<void>> &kept() {
    static std::vector<std::shared_ptr<void>> objects;
    return objects;
}

volatile pid_t watched = 0;  // a child

void on_alarm(int) {
    static constexpr char text[] = "the last test that was begun hangs, or the end of the process does\n";
    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    if (watched > 0) {
        kill(watched, SIGKILL);
    }
    abort();
}

}  // namespace

void keep_until_end_of_test(std::shared_ptr<void> object) {
    kept().push_back(std::move(object));
}

void watch() {
    signal(SIGALRM, on_alarm);
    alarm(watchdog_s());
}

pid_t watched_fork() {
    watched = test::fork_child();
    if (watched == 0) {
        alarm(100);  // it inherits none
    }
    return watched;
}

int status_of(pid_t child) {
    int status = -1;
    const bool ended = child > 0 && waitpid(child, &status, 0) == child;
    watched = 0;
    return ended ? status : -1;
}

int begin_test(void **) {
    watch();
    return 0;
}

int end_test(void **) {
    while (!kept().empty()) {
        // The object leaves the list first, because its destructor may assert.
        const std::shared_ptr<void> last = std::move(kept().back());
        kept().pop_back();
    }
    return 0;
}

Thread::Thread(std::function<std::string()> run)
    : thread_{[this, body = std::move(run)] { wrong_ = body(); }} {}

void Thread::expect_well() {
    thread_.join();
    if (!wrong_.empty()) {
        std::fprintf(stderr, "in a thread: %s\n", wrong_.c_str());
    }
    assert_int_equal(wrong_.size(), 0);
}

}  // namespace conformance
