// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/openssl: what is made once, while another thread forks. The child neither waits for a thread that
// it does not have, nor makes it once more.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <string_view>
#include <thread>

#include "base/fd.hpp"
#include "base/fork.hpp"
#include "soft/tls/openssl.hpp"

#include "../../child.hpp"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace {

std::atomic<bool> is_making{false};
std::atomic<bool> is_forking{false};
std::atomic<int> times_made{0};
int state_of_forking_thread = -1;  // the kernel's file that tells what that thread does

// It is called before the fork waits for a mutex.
const base::ForkHook tells_of_forks{base::ForkLevel::EndedThreads, {.before = [] {
                                        is_forking.store(true);
                                        is_forking.notify_all();
                                    }}};

// Takes no lock and no memory, which the fork needs too.
bool forking_thread_sleeps() {
    std::array<char, 256> text{};
    const ssize_t count = pread(state_of_forking_thread, text.data(), text.size(), 0);
    const std::string_view line{text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
    const std::size_t name_ends = line.rfind(')');
    return name_ends != std::string_view::npos && line.substr(name_ends).starts_with(") S");
}

// Lasts until the thread that forks sleeps: in the fork, or behind it until the child ends.
int *make() {
    static int one = 0;
    ++times_made;
    is_making.store(true);
    is_making.notify_all();
    is_forking.wait(false);
    while (!forking_thread_sleeps()) {
        std::this_thread::yield();
    }
    return &one;
}

void a_child_does_not_wait_for_a_thread_of_its_parent(void **) {
    const std::string name = "/proc/self/task/" + std::to_string(gettid()) + "/stat";
    const base::Fd file{open(name.c_str(), O_RDONLY | O_CLOEXEC)};
    assert_true(file.get() >= 0);
    state_of_forking_thread = file.get();
    std::thread maker{[] { assert_non_null(soft::made_once<make>()); }};
    is_making.wait(false);
    const pid_t child = test::fork_child();
    if (child == 0) {
        alarm(30);
        _exit(soft::made_once<make>() != nullptr && times_made == 1 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    maker.join();
    assert_int_equal(status, 0);
}

// ---- what could not be made is made at the next call ----

int *make_at_the_second_time() {
    static int times = 0;
    return ++times == 1 ? nullptr : &times;
}

void what_could_not_be_made_is_made_later(void **) {
    assert_null(soft::made_once<make_at_the_second_time>());
    int *const times = soft::made_once<make_at_the_second_time>();
    assert_non_null(times);
    assert_ptr_equal(soft::made_once<make_at_the_second_time>(), times);
    assert_int_equal(*times, 2);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_child_does_not_wait_for_a_thread_of_its_parent),
        cmocka_unit_test(what_could_not_be_made_is_made_later),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
