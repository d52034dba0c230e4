// SPDX-License-Identifier: BSD-3-Clause
// base/fork: tests the order in which a fork calls hooks, the state that a child finds, and hooks of a
// library that comes and goes.
#include "base/fork.hpp"

#include <dlfcn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <thread>

#include "../../child.hpp"

// check.hpp comes last, because it has macros with everyday names.
#include "check.hpp"
#include "fork_library.hpp"

namespace {

using base::ForkHook;
using base::ForkLevel;

// These are the calls so far, one letter for each. The child begins with the letters of its parent.
std::array<char, 32> called;
std::size_t calls;

void note(char letter) {
    called[calls++] = letter;
}

bool were_called(std::string_view letters) {
    return std::string_view{called.data(), calls} == letters;
}

template <char before, char parent, char child>
constexpr base::ForkCalls noted{.before = [] { note(before); },
                                .after_in_parent = [] { note(parent); },
                                .after_in_child = [] { note(child); }};

// The hooks are defined neither from the upper levels down nor from the lower levels up.
const ForkHook middle{ForkLevel::SoftDevice, noted<'c', 'C', '3'>};
const ForkHook lowest{ForkLevel::Base, noted<'e', 'E', '5'>};
const ForkHook highest{ForkLevel::EndedThreads, noted<'a', 'A', '1'>};
const ForkHook child_only{ForkLevel::Persist, {.after_in_child = [] { note('4'); }}};
const ForkHook upper{ForkLevel::Stream, noted<'b', 'B', '2'>};

constinit base::LastingMutex mutex;
unsigned generation_in_renew;
const base::HeldWhileForking<mutex, [] { generation_in_renew = base::fork_generation(); }> whole{
    ForkLevel::SoftMemory};

// Returns whether a child ends with 0.
template <typename Body>
bool child_succeeds(Body body) {
    const pid_t child = test::fork_child();
    if (child == 0) {
        alarm(20);
        _exit(body() ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status == 0;
}

void levels_are_the_order(void **) {
    calls = 0;
    assert_true(child_succeeds([] { return were_called("abce54321"); }));
    assert_true(were_called("abceECBA"));
}

void a_child_counts_before_its_hooks(void **) {
    const unsigned own = base::fork_generation();
    assert_true(
        child_succeeds([=] { return base::fork_generation() == own + 1 && generation_in_renew == own + 1; }));
    assert_int_equal(base::fork_generation(), own);
    assert_false(base::is_in_parents_memory());
}

// Another thread takes the mutex and leaves it all the time.
void a_child_finds_the_mutex_free(void **) {
    std::atomic<bool> ending{false};
    long guarded[2] = {};
    std::thread busy{[&] {
        while (!ending.load(std::memory_order_relaxed)) {
            const base::Lock lock{mutex};
            ++guarded[0];
            ++guarded[1];
        }
    }};
    bool all_whole = true;
    for (int round = 0; round < 100; ++round) {
        calls = 0;
        all_whole = child_succeeds([&] {
                        const base::Lock lock{mutex};
                        return guarded[0] == guarded[1];
                    }) &&
                    all_whole;
    }
    ending.store(true, std::memory_order_relaxed);
    busy.join();
    assert_true(all_whole);
}

void hooks_of_a_library_go_with_it(void **) {
    for (int round = 0; round < 2; ++round) {
        void *const library = dlopen(FORK_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        assert_non_null(library);
        const auto *const seen =
            reinterpret_cast<const ForkLibraryCalls *>(dlsym(library, "fork_library_calls"));
        assert_non_null(seen);
        calls = 0;
        assert_true(child_succeeds(
            [&] { return seen->before == 1 && seen->after_in_parent == 0 && seen->after_in_child == 1; }));
        assert_int_equal(seen->before, 1);
        assert_int_equal(seen->after_in_parent, 1);
        assert_int_equal(seen->after_in_child, 0);
        assert_int_equal(dlclose(library), 0);
        calls = 0;
        assert_true(child_succeeds([] { return were_called("abce54321"); }));
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(levels_are_the_order),
        cmocka_unit_test(a_child_counts_before_its_hooks),
        cmocka_unit_test(a_child_finds_the_mutex_free),
        cmocka_unit_test(hooks_of_a_library_go_with_it),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
