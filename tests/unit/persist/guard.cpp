// SPDX-License-Identifier: BSD-3-Clause
// persist/guard: faults inside guarded sections are results, faults outside go where they went before.
#include "persist/guard.hpp"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/parts.hpp"
#include "base/signals.hpp"

#include "../../child.hpp"
#include "memory.hpp"

namespace {

// cmocka sets its own handlers before each test, so each test that is not about handlers begins with this.
void begin() {
    persist::install_guard();
}

// Returns an address that is no longer mapped.
char *unmapped() {
    char *const memory = map_anonymous(page);
    munmap(memory, page);
    return memory;
}

// Returns a mapped page after the end of its file: an access to it raises SIGBUS.
char *truncated() {
    const int fd = new_file("guard-truncated", page);
    char *const memory = map(fd, page);
    memory[0] = 1;
    assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    unlink("guard-truncated");
    return memory;
}

void copies_good_memory(void **) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{16}, size_t{31},
                              size_t{512}, size_t{513}, size_t{100'000}}) {
        std::vector<char> from(size + 8, 'x');
        std::vector<char> to(size + 8, '-');
        assert_true(persist::guarded_copy(to.data() + 1, from.data(), size));
        assert_int_equal(to[0], '-');
        assert_int_equal(to[size + 1], '-');
        assert_memory_equal(to.data() + 1, from.data(), size);
    }
    alignas(8) std::array<char, 8> from = {'1', '2', '3', '4', '5', '6', '7', '8'};
    alignas(8) std::array<char, 8> to = {};
    assert_true(persist::guarded_copy(to.data(), from.data(), 8));
    assert_memory_equal(to.data(), from.data(), 8);
}

void gathers_pieces(void **) {
    alignas(8) std::array<char, 24> from = {};
    for (size_t i = 0; i < from.size(); ++i) {
        from[i] = static_cast<char>('a' + i);
    }
    const iovec pieces[] = {{from.data() + 16, 8}, {nullptr, 0}, {from.data(), 8}, {from.data() + 8, 3}};
    alignas(8) std::array<char, 20> to = {};
    assert_true(persist::guarded_gather(reinterpret_cast<std::byte *>(to.data()), pieces));
    assert_string_equal(to.data(), "qrstuvwxabcdefghijk");
    assert_true(persist::guarded_gather(nullptr, {}));
    assert_true(persist::guarded_gather(nullptr, std::span{pieces}.subspan(1, 1)));
}

void stores_eight_bytes(void **) {
    uint64_t value = 0;
    assert_true(persist::guarded_store(&value, 0x1122334455667788));
    assert_int_equal(value, 0x1122334455667788);
}

void reports_faults(char *gone) {
    alignas(8) std::array<char, page> buffer = {};
    // The fault comes twice, because the first must leave everything as it was.
    for (int round = 0; round < 2; ++round) {
        VALGRIND_DISABLE_ERROR_REPORTING;
        for (const size_t size : {size_t{1}, size_t{8}, size_t{100}, size_t{512}, size_t{513}, page}) {
            assert_false(persist::guarded_copy(gone, buffer.data(), size));
            assert_false(persist::guarded_copy(buffer.data(), gone, size));
        }
        // The fault is in the first, the second or the last piece, or where they go.
        for (size_t place = 0; place < 3; ++place) {
            std::array<iovec, 3> pieces;
            pieces.fill({buffer.data(), 8});
            pieces.at(place) = {gone, 16};
            assert_false(
                persist::guarded_gather(reinterpret_cast<std::byte *>(buffer.data() + 1024), pieces));
            pieces.at(place) = {buffer.data(), 16};
            assert_false(persist::guarded_gather(reinterpret_cast<std::byte *>(gone), pieces));
        }
        assert_false(persist::guarded_store(reinterpret_cast<uint64_t *>(gone), 1));
        assert_false(persist::guarded(gone, page, [gone] { *static_cast<volatile char *>(gone) = 1; }));
        VALGRIND_ENABLE_ERROR_REPORTING;
        assert_true(persist::guarded_copy(buffer.data() + 8, buffer.data(), 8));
    }
}

void reports_unmapped_memory(void **) {
    begin();
    reports_faults(unmapped());
}

void reports_a_truncated_file(void **) {
    begin();
    char *const gone = truncated();
    reports_faults(gone);
    munmap(gone, page);
}

void reports_read_only_memory(void **) {
    begin();
    char *const memory = map_anonymous(page);
    assert_int_equal(mprotect(memory, page, PROT_READ), 0);
    uint64_t value = 1;
    assert_false(persist::guarded_store(reinterpret_cast<uint64_t *>(memory), value));
    assert_false(persist::guarded_copy(memory, &value, sizeof(value)));
    assert_true(persist::guarded_copy(&value, memory, sizeof(value)));
    assert_int_equal(value, 0);
    munmap(memory, page);
}

// The processor reports another fault for an address that no program can have. AddressSanitizer looks up what
// it knows of an address before the processor does.
void reports_addresses_that_are_none(void **) {
#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
    begin();
    std::array<std::byte, 4096> here{};
    for (const std::uintptr_t address : {std::uintptr_t{1} << 47, std::uintptr_t{1} << 63}) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        auto *const none = reinterpret_cast<std::byte *>(address);
        assert_false(persist::guarded_copy(none, here.data(), here.size()));
        assert_false(persist::guarded_copy(here.data(), none, here.size()));
        assert_false(persist::guarded_copy(none, here.data(), 8));
        assert_false(persist::guarded_store(reinterpret_cast<std::uint64_t *>(none), 1));
        const std::array<iovec, 2> pieces{base::part_of(here.data(), 8), base::part_of(none, 8)};
        assert_false(persist::guarded_gather(here.data() + 100, pieces));
    }
}

void sections_nest(void **) {
    begin();
    char *const gone = truncated();
    int after_inner = 0;
    const bool outer = persist::guarded(gone, page, [gone, &after_inner] {
        if (!persist::guarded_copy(gone, "x", 1)) {
            after_inner = 1;
        }
        *static_cast<volatile char *>(gone) = 1;
        after_inner = 2;
    });
    assert_false(outer);
    assert_int_equal(after_inner, 1);
    munmap(gone, page);
}

void threads_do_not_meet(void **) {
    begin();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
        char *const gone = truncated();
        threads.emplace_back([gone, number, &wrong] {
            alignas(8) std::array<char, 64> own = {};
            for (int round = 0; round < 500; ++round) {
                const bool good = (round + number) % 2 == 0;
                const size_t size = round % 3 == 0 ? 8 : 16;
                if (persist::guarded_copy(good ? own.data() : gone, own.data() + 32, size) != good) {
                    ++wrong;
                }
            }
            munmap(gone, page);
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    assert_int_equal(wrong.load(), 0);
}

void never_called(int) {
    _exit(95);
}

// Our handler runs on an alternate stack when the handler before it did, as the handlers of other runtimes
// do.
void works_with_an_alternate_stack(void **) {
    const size_t size = 16 * page;
    std::vector<char> memory(size);
    stack_t before;
    const stack_t alternate = {.ss_sp = memory.data(), .ss_flags = 0, .ss_size = size};
    assert_int_equal(sigaltstack(&alternate, &before), 0);
    struct sigaction action = {};
    action.sa_handler = never_called;
    action.sa_flags = SA_ONSTACK;
    for (const int signal : {SIGSEGV, SIGBUS}) {
        assert_int_equal(sigaction(signal, &action, nullptr), 0);
    }
    begin();
    char *const gone = truncated();
    reports_faults(gone);
    munmap(gone, page);
    // Valgrind would report reads of the bytes that a handler leaves on its stack.
    VALGRIND_DISABLE_ERROR_REPORTING;
    const bool used = std::ranges::any_of(memory, [](char byte) { return byte != 0; });
    VALGRIND_ENABLE_ERROR_REPORTING;
    assert_true(used);
    assert_int_equal(sigaltstack(&before, nullptr), 0);
}

// ---- What the handler before ours sees. Each runs in a child that has not yet installed the guard.

// Runs `body` in a child, and returns its wait status.
template <typename Body>
int in_child(Body body) {
    fflush(nullptr);
    const pid_t child = test::fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        body();
        _exit(99);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

char *expected_address;

void previous_with_information(int signal, siginfo_t *info, void *context) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    const bool right = signal == SIGSEGV && info->si_addr == expected_address && context != nullptr &&
                       sigismember(&blocked, SIGUSR1) == 1 && sigismember(&blocked, SIGSEGV) == 1 &&
                       sigismember(&blocked, SIGUSR2) == 0;
    _exit(right ? 42 : 43);
}

void previous_plain(int signal) {
    _exit(signal == SIGBUS ? 44 : 45);
}

void set_handler(int signal, const struct sigaction &action) {
    if (sigaction(signal, &action, nullptr) != 0) {
        _exit(98);
    }
}

void touch_guarded_then_bare(char *gone) {
    VALGRIND_DISABLE_ERROR_REPORTING;
    if (persist::guarded_copy(gone, "x", 1)) {
        _exit(97);
    }
    *static_cast<volatile char *>(gone) = 1;
    VALGRIND_ENABLE_ERROR_REPORTING;
}

void chains_to_a_handler_with_information(void **) {
    const int status = in_child([] {
        struct sigaction action = {};
        action.sa_sigaction = previous_with_information;
        action.sa_flags = SA_SIGINFO;
        sigemptyset(&action.sa_mask);
        sigaddset(&action.sa_mask, SIGUSR1);
        set_handler(SIGSEGV, action);
        expected_address = unmapped();
        touch_guarded_then_bare(expected_address);
    });
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
}

void chains_to_a_plain_handler(void **) {
    const int status = in_child([] {
        struct sigaction action = {};
        action.sa_handler = previous_plain;
        set_handler(SIGBUS, action);
        touch_guarded_then_bare(truncated());
    });
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 44);
}

void ends_by_default(void **) {
    for (void (*const before)(int) : {SIG_DFL, SIG_IGN}) {
        const int status = in_child([before] {
            struct sigaction action = {};
            action.sa_handler = before;
            set_handler(SIGSEGV, action);
            touch_guarded_then_bare(unmapped());
        });
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGSEGV);
    }
}

struct sigaction handed_on_to;
volatile sig_atomic_t entered;

void late_handler(int signal, siginfo_t *info, void *context) {
    entered = entered + 1;
    handed_on_to.sa_sigaction(signal, info, context);
}

void oldest_handler(int) {
    _exit(entered == 1 ? 46 : 47);
}

// A handler that replaced ours and calls ours must not make a fault circulate between the two.
void comes_back_in_front(void **) {
    const int status = in_child([] {
        struct sigaction action = {};
        action.sa_handler = oldest_handler;
        set_handler(SIGSEGV, action);
        persist::install_guard();
        action.sa_sigaction = late_handler;
        action.sa_flags = SA_SIGINFO;
        if (sigaction(SIGSEGV, &action, &handed_on_to) != 0) {
            _exit(98);
        }
        persist::install_guard();
        touch_guarded_then_bare(unmapped());
    });
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 46);
}

volatile sig_atomic_t calls;
void count_call(int) {
    calls = calls + 1;
}

// Signals that a process sends are not faults: they go to the program, inside a guarded section too.
void passes_on_signals_that_were_sent(void **) {
    const int status = in_child([] {
        struct sigaction action = {};
        action.sa_handler = count_call;
        action.sa_flags = static_cast<int>(SA_RESETHAND);
        set_handler(SIGSEGV, action);
        action.sa_handler = SIG_IGN;
        action.sa_flags = 0;
        set_handler(SIGBUS, action);
        int steps = 0;
        const bool whole = persist::guarded(&steps, sizeof(steps), [&steps] {
            raise(SIGSEGV);
            raise(SIGBUS);
            steps = 1;
        });
        if (!whole || steps != 1 || calls != 1) {
            _exit(96);
        }
        raise(SIGSEGV);  // it was to be called once, so this ends us
    });
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    assert_int_equal(calls, 0);
}

// The program samples itself: a signal handler reads where it may fault, and has a handler for that fault.
sigjmp_buf *volatile looks_from;
volatile sig_atomic_t caught;
char *looked_at;

void catch_own_fault(int) {
    if (looks_from == nullptr) {
        _exit(94);
    }
    caught = caught + 1;
    siglongjmp(*looks_from, 1);
}

void look(int) {
    sigjmp_buf here;
    looks_from = &here;
    if (sigsetjmp(here, 1) == 0) {
        static_cast<void>(*static_cast<volatile char *>(looked_at));
    }
    looks_from = nullptr;
}

void leaves_faults_of_others_alone(void **) {
#ifdef __SANITIZE_THREAD__
    print_message("SKIPPED: ThreadSanitizer blocks the signals of faults while a handler runs\n");
    skip();
#endif
    const int status = in_child([] {
        struct sigaction action = {};
        action.sa_handler = catch_own_fault;
        set_handler(SIGSEGV, action);
        set_handler(SIGBUS, action);
        action.sa_handler = look;
        set_handler(SIGUSR1, action);
        char *const gone = truncated();
        looked_at = unmapped();
        VALGRIND_DISABLE_ERROR_REPORTING;
        int steps = 0;
        const bool whole = persist::guarded(gone, page, [gone, &steps] {
            for (steps = 0; steps < 10; ++steps) {
                raise(SIGUSR1);
            }
            // The section is still guarded after that.
            *static_cast<volatile char *>(gone) = 1;
            steps = -1;
        });
        VALGRIND_ENABLE_ERROR_REPORTING;
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        if (whole || steps != 10 || caught != 10) {
            _exit(96);
        }
        _exit(sigismember(&blocked, SIGUSR1) == 1 ? 93 : 0);
    });
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

// The guard does not handle faults at bytes beside the range of a section.
void guards_no_byte_beside_the_range(void **) {
    const int status = in_child([] {
        struct sigaction action = {};
        action.sa_handler = previous_plain;
        set_handler(SIGBUS, action);
        char *const gone = truncated();
        VALGRIND_DISABLE_ERROR_REPORTING;
        (void)persist::guarded(gone, 8, [gone] { *static_cast<volatile char *>(gone + 8) = 1; });
        VALGRIND_ENABLE_ERROR_REPORTING;
    });
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 44);
}

void blocks_no_signal_of_a_fault(void **) {
    const sigset_t signals = base::signals_from_outside();
    assert_int_equal(sigismember(&signals, SIGSEGV), 0);
    assert_int_equal(sigismember(&signals, SIGBUS), 0);
    assert_int_equal(sigismember(&signals, SIGTERM), 1);
    assert_int_equal(sigismember(&signals, SIGCHLD), 1);
}

}  // namespace

int main() {
    // The tests that need a process without the guard come first.
    const CMUnitTest before[] = {cmocka_unit_test(chains_to_a_handler_with_information),
                                 cmocka_unit_test(chains_to_a_plain_handler),
                                 cmocka_unit_test(ends_by_default),
                                 cmocka_unit_test(comes_back_in_front),
                                 cmocka_unit_test(passes_on_signals_that_were_sent),
                                 cmocka_unit_test(leaves_faults_of_others_alone),
                                 cmocka_unit_test(guards_no_byte_beside_the_range)};
    const CMUnitTest guarded[] = {cmocka_unit_test(copies_good_memory),
                                  cmocka_unit_test(stores_eight_bytes),
                                  cmocka_unit_test(gathers_pieces),
                                  cmocka_unit_test(reports_unmapped_memory),
                                  cmocka_unit_test(reports_a_truncated_file),
                                  cmocka_unit_test(reports_read_only_memory),
                                  cmocka_unit_test(reports_addresses_that_are_none),
                                  cmocka_unit_test(sections_nest),
                                  cmocka_unit_test(threads_do_not_meet),
                                  cmocka_unit_test(works_with_an_alternate_stack),
                                  cmocka_unit_test(blocks_no_signal_of_a_fault)};
    return cmocka_run_group_tests(before, nullptr, nullptr) +
           cmocka_run_group_tests(guarded, nullptr, nullptr);
}
