// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/restartable: accesses that end when the kernel interrupts them. peer_thread: what a process
// knows of the accesses of another one.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "../../child.hpp"
#include "persist/guard.hpp"
#include "soft/memory/peer_thread.hpp"
#include "soft/memory/restartable.hpp"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace {

namespace restartable = soft::restartable;
using restartable::Copy;
using restartable::Look;
using restartable::Outcome;
using soft::Board;

constexpr std::uint32_t key = 7;
std::atomic<std::uint32_t> offered{key};

Look look() {
    return {.place = &offered, .value = key, .stretch = restartable::present_stretch()};
}

// A signal whose handler does nothing, or asks for a stretch, interrupts this thread.
void interrupt_with(void (*handler)(int)) {
    struct sigaction action{};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    assert_int_equal(sigaction(SIGUSR1, &action, nullptr), 0);
    assert_int_equal(raise(SIGUSR1), 0);
}

// Copies until it is done, and returns how often that was interrupted.
unsigned copy_all(Copy copy) {
    unsigned interruptions = 0;
    for (;; ++interruptions) {
        const Outcome outcome = restartable::copy(look(), copy);
        if (outcome == Outcome::Done) {
            return interruptions;
        }
        assert_int_equal(outcome, Outcome::Interrupted);
    }
}

void bytes_are_copied_from_and_to_any_place(void **) {
    std::vector<std::byte> from(4096);
    for (std::size_t i = 0; i < from.size(); ++i) {
        from[i] = static_cast<std::byte>(i * 7 + i / 251);
    }
    for (std::size_t size = 1; size <= 2100; size += size < 80 ? 1 : 61) {
        for (std::size_t shift = 0; shift < 9; shift += 3) {
            std::vector<std::byte> to(4096, std::byte{0xa5});
            (void)copy_all({.to = to.data() + shift, .from = from.data() + 2 * shift, .bytes = size});
            assert_memory_equal(to.data() + shift, from.data() + 2 * shift, size);
            const auto is_untouched = [](std::byte one) { return one == std::byte{0xa5}; };
            assert_true(
                std::all_of(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(shift), is_untouched));
            assert_true(
                std::all_of(to.begin() + static_cast<std::ptrdiff_t>(shift + size), to.end(), is_untouched));
        }
    }
}

// Tries each access; nothing may be stored.
void assert_nothing_is_stored(const Look &seen, Outcome expected) {
    const std::array<std::uint64_t, 4> from{1, 2, 3, 4};
    std::array<std::uint64_t, 4> to{};
    for (const std::size_t size : {std::size_t{3}, std::size_t{8}, sizeof(from)}) {
        Copy copy{.to = reinterpret_cast<std::byte *>(to.data()),
                  .from = reinterpret_cast<const std::byte *>(from.data()),
                  .bytes = size};
        assert_int_equal(restartable::copy(seen, copy), expected);
        assert_int_equal(copy.bytes, size);
    }
    std::uint64_t found = 0;
    bool replaced = true;
    assert_int_equal(restartable::exchange(seen, to.data(), found, 9, replaced), expected);
    assert_false(replaced);
    iovec here{.iov_base = const_cast<std::uint64_t *>(from.data()), .iov_len = sizeof(from)};
    const iovec there{.iov_base = to.data(), .iov_len = sizeof(to)};
    ssize_t count = 0;
    assert_int_equal(restartable::transfer(seen, SYS_process_vm_writev, getpid(), {&here, 1}, there, count),
                     expected);
    for (const std::uint64_t one : to) {
        assert_int_equal(one, 0);
    }
}

void nothing_is_stored_after_an_interruption(void **) {
    const Look seen = look();
    interrupt_with([](int) {});
    assert_nothing_is_stored(seen, Outcome::Interrupted);
}

// The handler's accesses are in a stretch of their own.
void nothing_is_stored_after_a_handler_that_looks(void **) {
    const Look seen = look();
    interrupt_with([](int) { (void)restartable::present_stretch(); });
    assert_nothing_is_stored(seen, Outcome::Interrupted);
}

void nothing_is_stored_after_the_thread_slept(void **) {
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    const Look seen = look();
    std::thread other{[&] {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
        assert_int_equal(write(pipes[1], "x", 1), 1);
    }};
    char byte = 0;
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    assert_nothing_is_stored(seen, Outcome::Interrupted);
    other.join();
    close(pipes[0]);
    close(pipes[1]);
}

void nothing_is_stored_without_an_offer(void **) {
    offered = 0;
    const Look seen = look();
    assert_nothing_is_stored(seen, Outcome::Refused);
    offered = key;
}

void nothing_is_stored_in_another_thread(void **) {
    const Look seen = look();
    std::thread{[&] { assert_nothing_is_stored(seen, Outcome::Interrupted); }}.join();
}

// Begins an access until nothing has interrupted it between its look and its end.
Outcome settled(const auto &access) {
    Outcome outcome = Outcome::Interrupted;
    while (outcome == Outcome::Interrupted) {
        outcome = access(look());
    }
    return outcome;
}

void memory_that_is_gone_is_a_fault(void **) {
    persist::install_guard();  // cmocka has set handlers of its own
    const std::array<std::byte, 64> from{};
    auto *const gone =
        static_cast<std::byte *>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    assert_ptr_not_equal(gone, MAP_FAILED);
    Copy to_nowhere{.to = gone, .from = from.data(), .bytes = from.size()};
    assert_int_equal(settled([&](const Look &seen) { return restartable::copy(seen, to_nowhere); }),
                     Outcome::Faulted);
    std::array<std::byte, 64> to{};
    Copy from_nowhere{.to = to.data(), .from = gone, .bytes = to.size()};
    assert_int_equal(settled([&](const Look &seen) { return restartable::copy(seen, from_nowhere); }),
                     Outcome::Faulted);
    std::uint64_t found = 0;
    bool replaced = false;
    const auto exchange = [&](const Look &seen) {
        return restartable::exchange(seen, reinterpret_cast<std::uint64_t *>(gone), found, 1, replaced);
    };
    assert_int_equal(settled(exchange), Outcome::Faulted);
    munmap(gone, 4096);
}

void the_kernel_copies_in_a_stretch(void **) {
    std::uint64_t from = 5;
    std::uint64_t to = 0;
    const iovec here{.iov_base = &from, .iov_len = sizeof(from)};
    const iovec there{.iov_base = &to, .iov_len = sizeof(to)};
    ssize_t count = 0;
    while (restartable::transfer(look(), SYS_process_vm_writev, getpid(), {&here, 1}, there, count) !=
           Outcome::Done) {
    }
    assert_int_equal(count, sizeof(to));
    assert_int_equal(to, 5);
    const iovec nowhere{.iov_base = nullptr, .iov_len = sizeof(to)};
    while (restartable::transfer(look(), SYS_process_vm_writev, getpid(), {&here, 1}, nowhere, count) !=
           Outcome::Done) {
    }
    assert_int_equal(count, -EFAULT);
}

// Signals as often as the kernel sends them, as long as this lives.
struct Signals {
    Signals() {
        struct sigaction action{};
        action.sa_handler = [](int) { ++count; };
        action.sa_flags = SA_RESTART;
        assert_int_equal(sigaction(SIGUSR1, &action, nullptr), 0);
    }
    ~Signals() {
        over = true;
        sender.join();
    }
    Signals(const Signals &) = delete;
    Signals &operator=(const Signals &) = delete;

    static inline std::atomic<unsigned> count{0};
    std::atomic<bool> over{false};
    std::thread sender{[this, thread = pthread_self()] {
        while (!over) {
            (void)pthread_kill(thread, SIGUSR1);
        }
    }};
};

// Each addition counts once, and each copy arrives, wherever a signal interrupts it.
void interrupted_accesses_are_whole(void **) {
    std::vector<std::byte> from(std::size_t{256} << 10);
    std::uint64_t sum = 0;
    std::uint64_t additions = 0;
    unsigned interruptions = 0;
    Signals signals;
    for (unsigned number = 1; number < 100'000 && (Signals::count < 300 || interruptions < 30); ++number) {
        std::vector<std::byte> to(from.size());
        std::ranges::fill(from, static_cast<std::byte>(number));
        interruptions += copy_all({.to = to.data(), .from = from.data(), .bytes = from.size()});
        assert_memory_equal(to.data(), from.data(), from.size());
        for (unsigned i = 0; i < 1000; ++i) {
            std::uint64_t found = sum;
            bool replaced = false;
            while (!replaced) {
                const Outcome outcome = restartable::exchange(look(), &sum, found, found + 1, replaced);
                interruptions += outcome == Outcome::Interrupted ? 1U : 0U;
            }
            ++additions;
        }
    }
    assert_int_equal(sum, additions);
    assert_true(interruptions >= 30);
}

// A child that acts until it is killed.
class Child {
public:
    explicit Child(void (*act)()) : process_{test::fork_child()} {
        if (process_ == 0) {
            for (;;) {
                act();
            }
        }
    }
    ~Child() {
        (void)kill(process_, SIGKILL);
        (void)waitpid(process_, nullptr, 0);
    }
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    [[nodiscard]] bool has_let_go(bool is_call) const {
        return soft::has_let_go(process_, {.offer = 1, .thread = process_, .is_call = is_call});
    }
    [[nodiscard]] pid_t process() const { return process_; }

private:
    pid_t process_;
};

// A child that spins runs, or waits for a processor, until it is stopped.
void a_thread_lets_go_when_it_is_stopped(void **) {
    const Child child{[] {}};
    for (const bool is_call : {false, true}) {
        assert_false(child.has_let_go(is_call));
    }
    int status = 0;
    assert_int_equal(kill(child.process(), SIGSTOP), 0);
    assert_int_equal(waitpid(child.process(), &status, WUNTRACED), child.process());
    for (const bool is_call : {false, true}) {
        while (!child.has_let_go(is_call)) {
            sched_yield();
        }
    }
    assert_false(soft::has_let_go(child.process(), {.offer = 1}));
}

void a_thread_that_sleeps_lets_go(void **) {
    const Child child{[] { pause(); }};
    for (const bool is_call : {false, true}) {
        while (!child.has_let_go(is_call)) {
            sched_yield();
        }
    }
}

void a_thread_that_is_gone_lets_go(void **) {
    pid_t process = 0;
    {
        const Child child{[] { pause(); }};
        process = child.process();
    }
    // One that its parent has not waited for is gone, too.
    const pid_t ended = test::fork_child();
    if (ended == 0) {
        _exit(0);
    }
    siginfo_t information{};
    assert_int_equal(waitid(P_PID, static_cast<id_t>(ended), &information, WEXITED | WNOWAIT), 0);
    assert_true(soft::has_let_go(ended, {.offer = 1, .thread = ended}));
    assert_int_equal(waitpid(ended, nullptr, 0), ended);
    assert_true(soft::has_let_go(process, {.offer = 1}));
    assert_true(soft::has_let_go(process, {.offer = 1, .thread = process}));
    assert_false(soft::has_let_go(0, {.offer = 1, .thread = process}));
}

// Its numbers are those of other processes there, such as kernel threads, which are in no call.
void the_proc_of_another_namespace_tells_nothing(void **) {
    const pid_t first = test::fork_child();
    if (first == 0) {
        if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
            _exit(77);
        }
        const pid_t inner = test::fork_child();
        if (inner == 0) {
            const Child spins{[] {}};
            const Child sleeps{[] { pause(); }};
            bool tells = soft::proc_is_of_this_namespace();
            for (int i = 0; i < 100; ++i) {
                tells = tells || spins.has_let_go(false) || sleeps.has_let_go(true);
                sched_yield();
            }
            _exit(tells ? 1 : 0);
        }
        int status = 0;
        (void)waitpid(inner, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(first, &status, 0), first);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        std::puts("this user may make no PID namespace");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

void an_access_is_64_bits(void **) {
    const Board::Access whole{.offer = 16, .thread = 4'194'304, .is_call = true};
    const Board::Access again = Board::Access::of(whole.bits());
    assert_int_equal(again.offer, 16);
    assert_int_equal(again.thread, 4'194'304);
    assert_true(again.is_call);
    assert_int_equal(Board::Access{.offer = 3}.bits(), 3);
    assert_false(Board::Access::of(3).is_call);
}

}  // namespace

int main() {
    if (!restartable::is_possible()) {
        std::puts("skipped: the kernel does not restart sequences of this process (rseq(2))");
        return 77;
    }
    const CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_copied_from_and_to_any_place),
        cmocka_unit_test(nothing_is_stored_after_an_interruption),
        cmocka_unit_test(nothing_is_stored_after_a_handler_that_looks),
        cmocka_unit_test(nothing_is_stored_after_the_thread_slept),
        cmocka_unit_test(nothing_is_stored_without_an_offer),
        cmocka_unit_test(nothing_is_stored_in_another_thread),
        cmocka_unit_test(memory_that_is_gone_is_a_fault),
        cmocka_unit_test(the_kernel_copies_in_a_stretch),
        cmocka_unit_test(interrupted_accesses_are_whole),
        cmocka_unit_test(a_thread_lets_go_when_it_is_stopped),
        cmocka_unit_test(a_thread_that_sleeps_lets_go),
        cmocka_unit_test(a_thread_that_is_gone_lets_go),
        cmocka_unit_test(the_proc_of_another_namespace_tells_nothing),
        cmocka_unit_test(an_access_is_64_bits),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
