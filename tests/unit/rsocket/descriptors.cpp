// SPDX-License-Identifier: BSD-3-Clause
// rsocket/descriptors: tests which object is found for a descriptor, and when the object ends.
#include "rsocket/descriptors.hpp"

#include <climits>
#include <latch>
#include <thread>
#include <vector>

// check.hpp comes last, because it has macros with everyday names.
#include "../base/check.hpp"

namespace {

// A Thing is an object that knows its descriptor for as long as it lives.
struct Thing {
    explicit Thing(int number) : fd{number} { ++alive; }
    ~Thing() {
        fd = -1;
        --alive;
    }
    Thing(const Thing &) = delete;
    Thing &operator=(const Thing &) = delete;

    std::atomic<int> fd;
    static inline std::atomic<int> alive{0};
};
using Things = rsockets::Descriptors<Thing>;

void put(Things &things, int fd) {
    things.set(fd, std::make_shared<Thing>(fd));
}

bool has(const Things &things, int fd) {
    return static_cast<bool>(things.find(fd));
}

void a_descriptor_has_what_was_set(void **) {
    Things things;
    for (const int fd : {0, 1, 64, 1023, 1024, 3071, 3072, 5000}) {
        assert_false(has(things, fd));
        put(things, fd);
        assert_int_equal(things.find(fd)->fd, fd);
        assert_ptr_equal(things.find(fd).shared().get(), &*things.find(fd));
    }
    int sum = 0;
    things.for_each([&](const Thing &thing) { sum += thing.fd; });
    assert_int_equal(sum, 0 + 1 + 64 + 1023 + 1024 + 3071 + 3072 + 5000);
    assert_int_equal(things.take(64)->fd, 64);
    assert_false(has(things, 64));
    assert_null(things.take(64).get());
    for (const int fd : {-1, INT_MIN, INT_MAX, 65, 4999}) {
        assert_false(has(things, fd));
        assert_null(things.find(fd).shared().get());
        assert_null(things.take(fd).get());
    }
}

void an_object_ends_with_its_last_user(void **) {
    {
        Things things;
        put(things, 7);
        {
            const auto found = things.find(7);
            assert_int_equal(things.take(7)->fd, 7);
            assert_false(has(things, 7));
            put(things, 7);  // close(2) made the number free
            assert_int_equal(Thing::alive, 2);
            assert_int_equal(found->fd, 7);
        }
        assert_int_equal(Thing::alive, 1);
        put(things, 7);
        assert_int_equal(Thing::alive, 1);
        put(things, 8);
    }
    assert_int_equal(Thing::alive, 0);
}

// Two threads put objects at few numbers and take them out, so that each entry becomes another number's all
// the time. Two more threads look. Each object that they find lives and is that number's.
void threads_share_the_numbers(void **) {
    constexpr int threads = 4;
    constexpr int numbers = 3;
    constexpr int rounds = 100000;
    std::atomic<int> wrong{0};
    std::atomic<int> found_any{0};
    {
        Things things;
        const auto look = [&](int fd) {
            const auto found = things.find(fd);
            wrong += found && found->fd != fd ? 1 : 0;
            found_any += found ? 1 : 0;
        };
        std::latch all{threads};
        const auto work = [&](int thread) {
            all.arrive_and_wait();
            for (int i = 0; i < rounds; ++i) {
                const int fd = i % numbers;
                if (thread % 2 != 0) {
                    look(fd);
                    continue;
                }
                put(things, fd);
                const auto taken = things.take((fd + 1) % numbers);
                wrong += taken != nullptr && taken->fd != (fd + 1) % numbers ? 1 : 0;
            }
        };
        put(things, 0);
        std::vector<std::jthread> workers;
        workers.reserve(threads);
        for (int thread = 0; thread < threads; ++thread) {
            workers.emplace_back(work, thread);
        }
        workers.clear();
        assert_in_range(Thing::alive, 1, numbers);
    }
    assert_int_equal(Thing::alive, 0);
    assert_int_equal(wrong, 0);
    assert_true(found_any > 0);
}

// A thread that forks while others open and close leaves the child a table that works.
void lists_are_whole_around_a_fork(void **) {
    Things things;
    put(things, 1);
    things.before_fork();
    std::jthread other{[&] { put(things, 2); }};
    assert_int_equal(things.find(1)->fd, 1);  // takes no lock
    assert_false(has(things, 2));
    things.after_fork();
    other.join();
    assert_int_equal(things.find(2)->fd, 2);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_descriptor_has_what_was_set),
        cmocka_unit_test(an_object_ends_with_its_last_user),
        cmocka_unit_test(threads_share_the_numbers),
        cmocka_unit_test(lists_are_whole_around_a_fork),
    };
    return cmocka_run_group_tests_name("rsocket_descriptors", tests, nullptr, nullptr);
}
