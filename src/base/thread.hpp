// SPDX-License-Identifier: BSD-3-Clause
// base/thread: the library's own threads. They end by themselves, and are joined all the same, so that none
// is left half ended when the process ends.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <optional>
#include <utility>

namespace base {

// True on the threads that start_thread() has started.
inline thread_local bool on_own_thread = false;

// Starts a thread that runs owner.*run(). It blocks exactly the signals of `blocked`, from its first
// instruction. Returns 0 or an errno value.
template <auto run, typename Owner>
[[nodiscard]] int start_thread(Owner &owner, const sigset_t &blocked) {
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    pthread_t thread{};
    const auto body = [](void *argument) -> void * {
        on_own_thread = true;
        (static_cast<Owner *>(argument)->*run)();
        return nullptr;
    };
    const int error = pthread_create(&thread, nullptr, body, &owner);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return error;
}

// Remembers which of one owner's threads ended last. A thread that ends joins the one before it, unless
// take() has returned that one. The owner locks.
class EndedThread {
public:
    // The thread to join when the lock is released.
    using Earlier = std::optional<pthread_t>;

    // Is called by a thread that ends. Returns the thread that ended before it.
    [[nodiscard]] Earlier follow() { return std::exchange(last_, pthread_self()); }
    // Returns the thread that ended last. The caller joins it, instead of the next thread that ends.
    [[nodiscard]] Earlier take() { return std::exchange(last_, std::nullopt); }

    static void join(const Earlier &earlier) {
        if (earlier) {
            pthread_join(*earlier, nullptr);
        }
    }

private:
    Earlier last_;
};

}  // namespace base
