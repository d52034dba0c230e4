// SPDX-License-Identifier: BSD-3-Clause
// conformance/fixture: what the suite runs on, and what a test owns. A failed assertion of cmocka longjmps
// past destructors, so a test makes its objects with make(); its teardown destroys them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "verbs/provider.hpp"

namespace conformance {

// Set by main() from its arguments.
struct Subject {
    const verbs::Provider *provider = nullptr;
    std::string provider_name;
    std::string address;
    std::string program;  // this program, to start another process of it
    bool is_soft = false;
};
extern Subject subject;

inline const verbs::Provider &provider() {
    return *subject.provider;
}

void keep_until_end_of_test(std::shared_ptr<void> object);

// An object that lives until the end of the test; those made last go first.
template <typename T, typename... Arguments>
T &make(Arguments &&...arguments) {
    auto made = std::make_shared<T>(std::forward<Arguments>(arguments)...);
    T &object = *made;
    keep_until_end_of_test(std::move(made));
    return object;
}

// From here on a process that takes too long, also to end, says so and aborts. The other process of a test
// watches itself: what hangs there would keep the output of the suite open.
void watch();

// fork_child(). One that hangs, even in what libraries do before fork() returns, is killed with its parent.
pid_t watched_fork();
// Waits for its end: its status as of waitpid(); -1 when there is no such child.
int status_of(pid_t child);

// Before and after every test; begin_test() watches.
int begin_test(void **);
int end_test(void **);

// A thread of a test. Assertions belong to the main thread: run() returns what went wrong, or nothing.
class Thread {
public:
    explicit Thread(std::function<std::string()> run);

    // Waits for its end, and asserts that nothing went wrong.
    void expect_well();
    [[nodiscard]] pthread_t handle() { return thread_.native_handle(); }

private:
    std::string wrong_;
    std::jthread thread_;
};

}  // namespace conformance
