// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/durability: a short flush is done while long ones of the same file are not, which came first
// and have all threads of its device. This program replaces msync.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <semaphore>

#include "base/fd.hpp"
#include "soft/memory/durability.hpp"

// These come last, because they assert.
#include "../base/fixture.hpp"
#include "../persist/memory.hpp"

namespace {

constexpr std::size_t long_bytes = std::size_t{1} << 30;
constexpr unsigned threads = persist::Worker::most_threads;
constexpr std::chrono::seconds patience{30};

// The calls of msync, which end when the test says so.
class Storage {
public:
    void sync(bool is_long) {
        std::unique_lock lock{mutex_};
        const unsigned number = is_long ? begun_++ : 0;
        short_began_ = short_began_ || !is_long;
        changed_.notify_all();
        changed_.wait(lock, [&] { return is_long ? number < ending_ : short_ends_; });
        ended_ += is_long ? 1 : 0;
        changed_.notify_all();
    }

    // When long calls have all threads, they end. Returns whether the short one got a thread.
    bool run_until_short() {
        std::unique_lock lock{mutex_};
        const auto has_news = [&] {
            return short_began_ || (begun_ - ended_ == threads && ended_ == ending_);
        };
        while (changed_.wait_for(lock, patience, has_news)) {
            if (short_began_) {
                return true;
            }
            ending_ = begun_;
            changed_.notify_all();
        }
        return false;
    }
    // The short call ends, and the long ones beside it; a call that begins later does not.
    bool end_those_beside_short() {
        std::unique_lock lock{mutex_};
        const bool have_begun =
            changed_.wait_for(lock, patience, [&] { return begun_ - ended_ == threads - 1; });
        ending_ = begun_;
        short_ends_ = true;
        changed_.notify_all();
        return have_begun;
    }
    void end_all() {
        const std::lock_guard lock{mutex_};
        ending_ = UINT_MAX;
        short_ends_ = true;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    unsigned begun_ = 0;  // the long ones
    unsigned ended_ = 0;
    unsigned ending_ = 0;  // calls with a lower number end
    bool short_began_ = false;
    bool short_ends_ = false;
};
Storage storage;

}  // namespace

extern "C" [[gnu::visibility("default")]] int msync(void *, std::size_t length, int) {
    storage.sync(length > page);
    return 0;
}

namespace {

// One connection has to make this durable.
struct Flush {
    soft::Durability ranges{[](void *flush, soft::Durability &durability) {
                                durability.worker_is_back();
                                static_cast<Flush *>(flush)->done.release();
                            },
                            this};
    std::counting_semaphore<> done{0};
};

// All flush one file, which has no pages.
struct Flushes {
    Flushes() {
        if (!on_storage()) {
            return;
        }
        const base::Fd file{new_file("slow-storage", long_bytes)};
        memory = reinterpret_cast<std::byte *>(map(file.get(), long_bytes));
        auto opened = persist::Region::open(memory, long_bytes);
        assert_true(opened.has_value());
        region = std::move(*opened);
    }
    // No thread is left in a flush.
    ~Flushes() {
        storage.end_all();
        persist::Worker::end_all();
        if (memory != nullptr) {
            munmap(memory, long_bytes);
        }
        unlink("slow-storage");
    }
    Flushes(const Flushes &) = delete;
    Flushes &operator=(const Flushes &) = delete;

    std::byte *memory = nullptr;
    std::shared_ptr<persist::Region> region;
    std::array<Flush, 2 * threads> of_all;
    Flush of_a_word;
};

void a_short_flush_overtakes_long_ones(Flushes &flushes) {
    if (flushes.region == nullptr) {
        skip();
    }
    for (Flush &flush : flushes.of_all) {
        flush.ranges.note(flushes.region, flushes.memory, flushes.memory + long_bytes);
        assert_true(flush.ranges.begin());
    }
    flushes.of_a_word.ranges.note(flushes.region, flushes.memory, flushes.memory + 8);
    assert_true(flushes.of_a_word.ranges.begin());
    assert_true(storage.run_until_short());
    assert_true(storage.end_those_beside_short());
    assert_true(flushes.of_a_word.done.try_acquire_for(patience));
    for (Flush &flush : flushes.of_all) {
        assert_false(flush.done.try_acquire());
    }
    storage.end_all();
    for (Flush &flush : flushes.of_all) {
        flush.done.acquire();
        assert_int_equal(flush.ranges.error(), 0);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(a_short_flush_overtakes_long_ones)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
