// SPDX-License-Identifier: BSD-3-Clause
// rsocket/call: whether this thread is in a call of this library. A signal handler may have interrupted a
// call that holds locks or allocates memory. That call goes on only after the handler returns.
#pragma once

#include <atomic>

namespace rsockets {

// A call of this thread, while it lives.
class Call {
public:
    // Returns whether the caller is in a signal handler that has interrupted a call of this thread.
    [[nodiscard]] static bool is_interrupted() { return is_under_way.load(std::memory_order_relaxed); }

    Call() { begin(); }
    ~Call() { end(); }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    // Returns whether the caller is in a signal handler that has interrupted a Pause of this thread. The
    // handler may take the bytes that the thread is about to wait for.
    [[nodiscard]] static bool has_interrupted_pause() { return pauses.load(std::memory_order_relaxed); }

    // For a child that a handler forks: the pause that it has interrupted waits on the parent's descriptors,
    // so the child's calls take nothing from it.
    static void forget_pause_in_child() { pauses.store(false, std::memory_order_relaxed); }

    // The thread waits in the kernel while this lives, and holds nothing that another call needs.
    class Pause {
    public:
        Pause() : is_nested_{pauses.load(std::memory_order_relaxed)} {
            pauses.store(true, std::memory_order_relaxed);
            end();
        }
        ~Pause() {
            begin();
            pauses.store(is_nested_, std::memory_order_relaxed);
        }
        Pause(const Pause &) = delete;
        Pause &operator=(const Pause &) = delete;

    private:
        const bool is_nested_;
    };

private:
    // A handler runs in the thread that it interrupts: only the compiler must keep the order.
    static void begin() {
        is_under_way.store(true, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    static void end() {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        is_under_way.store(false, std::memory_order_relaxed);
    }

    // They are small enough for the room that a process keeps for libraries that it loads late (dlopen(3)),
    // so that a thread finds its own without a call.
    [[gnu::tls_model("initial-exec")]] static constinit inline thread_local std::atomic<bool> is_under_way{
        false};
    [[gnu::tls_model("initial-exec")]] static constinit inline thread_local std::atomic<bool> pauses{false};
};

}  // namespace rsockets
