// SPDX-License-Identifier: BSD-3-Clause
// persist/file: the kernel reports lost bytes once; no caller that asks about that file later, or at the same
// time, gets the answer that they are durable. This program replaces msync.
#include "persist/file.hpp"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <semaphore>
#include <string>
#include <thread>

#include "../../child.hpp"
#include "memory.hpp"
#include "persist/region.hpp"

namespace {

using persist::Region;

// These say what the next calls of msync do.
std::atomic<int> next_error{0};  // the first that takes it returns it, as the kernel tells once
std::atomic<bool> hold{false};   // that one returns only after another call has returned
std::binary_semaphore held{0};
std::binary_semaphore release_held{0};

}  // namespace

extern "C" [[gnu::visibility("default")]] int msync(void *address, std::size_t length, int flags) {
    if (const int error = next_error.exchange(0); error != 0) {
        if (hold) {
            held.release();
            release_held.acquire();
        }
        errno = error;
        return -1;
    }
    const auto result = static_cast<int>(syscall(SYS_msync, address, length, flags));
    if (hold.exchange(false)) {
        release_held.release();
    }
    return result;
}

namespace {

int error_of(const base::Result<void> &result) {
    return result ? 0 : result.error().number;
}

// This is a file of two pages, mapped through two open files. It stays, so that no other file gets its inode
// number.
struct Opened {
    explicit Opened(const std::string &name)
        : first{new_file(name.c_str(), 2 * page)},
          second{::open(name.c_str(), O_RDWR | O_CLOEXEC)},
          memory{map(first, 2 * page)},
          again{map(second, 2 * page)} {}
    ~Opened() {
        munmap(memory, 2 * page);
        munmap(again, 2 * page);
        close(first);
        close(second);
    }
    Opened(const Opened &) = delete;
    Opened &operator=(const Opened &) = delete;

    int first;
    int second;
    char *memory;
    char *again;
};

std::unique_ptr<Region> region_of(char *memory) {
    auto region = Region::open(memory, page);
    assert_true(region.has_value());
    return std::move(*region);
}

void lost_bytes_fail_every_registration(void **) {
    if (!on_storage()) {
        skip();
    }
    const Opened file{"file-lost"};
    const Opened other{"file-other"};
    const auto told = region_of(file.memory);
    const auto same = region_of(file.memory);
    const auto beside = region_of(file.memory + page);
    const auto through_another = region_of(file.again);
    const auto unconcerned = region_of(other.memory);
    assert_int_equal(error_of(same->persist(file.memory, 8)), 0);
    next_error = EIO;
    assert_int_equal(error_of(told->persist(file.memory, 8)), EIO);
    for (int round = 0; round < 2; ++round) {
        assert_int_equal(error_of(told->persist(file.memory, 8)), EIO);
        assert_int_equal(error_of(same->persist(file.memory, 8)), EIO);
        assert_int_equal(error_of(beside->persist(file.memory + page, 8)), EIO);
        assert_int_equal(error_of(through_another->persist(file.again, 8)), EIO);
        assert_int_equal(error_of(unconcerned->persist(other.memory, 8)), 0);
    }
}

// For this process the file has failed, even when none of its regions is left.
void a_lost_file_is_not_registered_again(void **) {
    if (!on_storage()) {
        skip();
    }
    const Opened file{"file-again"};
    next_error = ENOSPC;
    assert_int_equal(error_of(region_of(file.memory)->persist(file.memory, 8)), ENOSPC);
    const auto again = Region::open(file.again, page);
    assert_false(again.has_value());
    assert_int_equal(again.error().number, ENOSPC);
}

// One call has got the error and has not returned yet when another returns that got none.
void a_race_hides_no_failure(void **) {
    if (!on_storage()) {
        skip();
    }
    for (int round = 0; round < 20; ++round) {
        const Opened file{"file-race-" + std::to_string(round)};
        const auto told = region_of(file.memory);
        const auto beside = region_of(file.again);
        int of_told = 0;
        hold = true;
        next_error = EIO;
        std::thread first{[&] { of_told = error_of(told->persist(file.memory, 8)); }};
        held.acquire();
        const int of_beside = error_of(beside->persist(file.again, 8));
        first.join();
        assert_int_equal(of_told, EIO);
        assert_int_equal(of_beside, EIO);
    }
}

// Memory that the program unmapped is no failure of the file.
void unmapped_memory_spares_the_file(void **) {
    if (!on_storage()) {
        skip();
    }
    const Opened file{"file-unmapped"};
    char *const gone = map(file.first, page);
    const auto region = region_of(gone);
    const auto same = region_of(file.memory);
    munmap(gone, page);
    VALGRIND_DISABLE_ERROR_REPORTING;
    assert_int_equal(error_of(region->persist(gone, 8)), ENOMEM);
    VALGRIND_ENABLE_ERROR_REPORTING;
    assert_int_equal(error_of(same->persist(file.memory, 8)), 0);
    // While the memory is there, storage has caused this error.
    next_error = ENOMEM;
    assert_int_equal(error_of(same->persist(file.memory, 8)), ENOMEM);
    assert_false(Region::open(file.memory, page).has_value());
}

// The process forks while a thread of the parent is inside msync.
void a_forked_child_waits_for_nobody(void **) {
    if (!on_storage()) {
        skip();
    }
    const Opened file{"file-fork"};
    const auto region = region_of(file.memory);
    hold = true;
    next_error = EIO;
    std::thread inside{[&] { (void)region->persist(file.memory, 8); }};
    held.acquire();
    const pid_t child = test::fork_child();
    if (child == 0) {
        hold = false;
        _exit(error_of(region->persist(file.memory, 8)));
    }
    hold = false;
    release_held.release();
    inside.join();
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(lost_bytes_fail_every_registration),
        cmocka_unit_test(a_lost_file_is_not_registered_again), cmocka_unit_test(a_race_hides_no_failure),
        cmocka_unit_test(unmapped_memory_spares_the_file), cmocka_unit_test(a_forked_child_waits_for_nobody)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
