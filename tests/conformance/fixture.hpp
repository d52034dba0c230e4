// SPDX-License-Identifier: BSD-3-Clause
// conformance/fixture: keeps the device under test and the objects of a test. A failed assertion of cmocka
// jumps past destructors, so a test makes its objects with make(), and its tear-down destroys them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "verbs/provider.hpp"

namespace conformance {

// main() sets it from its arguments.
struct Subject {
    const verbs::Provider *provider = nullptr;
    std::string provider_name;
    std::string address;
    std::string program;  // this program, to start another process of it
    bool is_soft = false;
    bool by_number = false;  // the ends are connected by the numbers of their queue pairs
};
extern Subject subject;

inline const verbs::Provider &provider() {
    return *subject.provider;
}

void keep_until_end_of_test(std::shared_ptr<void> object);

// Makes an object that lives until the end of the test. The last object made is destroyed first.
template <typename T, typename... Arguments>
T &make(Arguments &&...arguments) {
    auto made = std::make_shared<T>(std::forward<Arguments>(arguments)...);
    T &object = *made;
    keep_until_end_of_test(std::move(made));
    return object;
}

// Watches the process from here on. A process that takes too long prints a message and aborts,
// also while it ends. The other process of a test watches itself, because it would keep the
// output of the suite open if it hung.
void watch();

// Calls fork_child(). A child that hangs is killed with its parent, even when a library's fork handler hangs
// in it.
pid_t watched_fork();
// Waits for the end of the child and returns its status, as waitpid() gives it, or -1 when there is no such
// child.
int status_of(pid_t child);

// These run before and after every test. begin_test() calls watch().
int begin_test(void **);
int end_test(void **);

// A Thread is a thread of a test. Only the main thread may assert, so run() returns a text that says what
// went wrong, or an empty one.
class Thread {
public:
    explicit Thread(std::function<std::string()> run);

    // Waits for the end of the thread, and asserts that nothing went wrong in it.
    void expect_well();
    [[nodiscard]] pthread_t handle() { return thread_.native_handle(); }

private:
    std::string wrong_;
    std::jthread thread_;
};

}  // namespace conformance
