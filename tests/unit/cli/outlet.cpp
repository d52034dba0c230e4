// SPDX-License-Identifier: BSD-3-Clause
// cli/outlet: nobody who prints a line waits for its reader, and lost lines are counted.
#include "cli/outlet.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>
#include <vector>

#include "base/fd.hpp"
// Last: it has macros with everyday names.
#include "../base/check.hpp"

namespace {

using cli::Outlet;

constexpr auto for_ever = std::chrono::hours{1};

std::string lost(std::uint64_t lines) {
    return "lost " + std::to_string(lines);
}

// A reader that stops and goes on.
class Reader {
public:
    void take(const std::string &line) {
        const base::Lock lock{mutex_};
        ++waiting_;
        changed_.notify_all();
        while (stopped_) {
            changed_.wait(mutex_);
        }
        --waiting_;
        lines_.push_back(line);
        changed_.notify_all();
    }
    void stop(bool stopped) {
        const base::Lock lock{mutex_};
        stopped_ = stopped;
        changed_.notify_all();
    }
    // Waits until a line waits for the reader.
    void await_line() {
        const base::Lock lock{mutex_};
        while (waiting_ == 0) {
            changed_.wait(mutex_);
        }
    }
    // Waits until the reader has so many lines, and returns them.
    std::vector<std::string> lines(std::size_t count) {
        const base::Lock lock{mutex_};
        while (lines_.size() < count) {
            changed_.wait(mutex_);
        }
        return lines_;
    }

private:
    base::Mutex mutex_;
    base::Condition changed_;
    bool stopped_ GUARDED_BY(mutex_) = false;
    int waiting_ GUARDED_BY(mutex_) = 0;
    std::vector<std::string> lines_ GUARDED_BY(mutex_);
};

void lines_that_find_no_room_are_counted(void **) {
    Reader reader;
    Outlet outlet{[&](int, const std::string &line) { reader.take(line); }, 10};
    outlet.put(0, "at once");
    assert_int_equal(reader.lines(1).size(), 1);
    assert_true(outlet.begin(lost).has_value());
    reader.stop(true);
    outlet.put(0, "first");
    reader.await_line();
    for (const char *line : {"aaaaa", "bbbb", "cc", "d"}) {
        outlet.put(0, line);  // "d" would have room
    }
    reader.stop(false);
    const std::vector<std::string> expected{"at once", "first", "aaaaa", "bbbb", "lost 2"};
    assert_true(reader.lines(5) == expected);
    outlet.put(0, "next");
    assert_true(reader.lines(6).back() == "next");
    outlet.end(base::Clock::now() + for_ever);
    outlet.put(0, "at once");
    assert_int_equal(reader.lines(7).size(), 7);
}

void what_waits_is_written_at_the_end(void **) {
    Reader reader;
    Outlet outlet{[&](int, const std::string &line) { reader.take(line); }};
    assert_true(outlet.begin(lost).has_value());
    for (int i = 0; i < 1000; ++i) {
        outlet.put(0, std::to_string(i));
    }
    outlet.end(base::Clock::now() + for_ever);
    const auto lines = reader.lines(1000);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        assert_true(lines[i] == std::to_string(i));
    }
}

void the_end_does_not_wait_for_a_reader_that_has_stopped(void **) {
    static auto &reader = *new Reader;  // the thread that waits for it may outlive the test
    static auto &outlet = *new Outlet{[](int, const std::string &line) { reader.take(line); }};
    assert_true(outlet.begin(lost).has_value());
    reader.stop(true);
    outlet.put(0, "first");
    reader.await_line();
    outlet.end(base::Clock::now());
    outlet.put(0, "second");
    reader.stop(false);
    assert_int_equal(reader.lines(2).size(), 2);
}

// A descriptor that does not wait, which another process may have made so, gets all bytes too.
void all_bytes_are_written(void **) {
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC), 0);
    const base::Fd in{ends[0]};
    base::Fd out{ends[1]};
    const std::string text(1'000'000, 'a');
    int error = -1;
    std::thread writer{[&] {
        error = cli::write_to(out.get(), text);
        out.reset();
    }};
    assert_int_equal(fcntl(in.get(), F_SETFL, 0), 0);
    std::size_t read_bytes = 0;
    std::array<char, 4096> some{};
    for (ssize_t got = 1; got > 0; read_bytes += static_cast<std::size_t>(got)) {
        got = read(in.get(), some.data(), some.size());
        assert_true(got >= 0);
    }
    assert_int_equal(read_bytes, text.size());
    writer.join();
    assert_int_equal(error, 0);
    assert_int_equal(cli::write_to(-1, "a"), EBADF);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(lines_that_find_no_room_are_counted),
        cmocka_unit_test(what_waits_is_written_at_the_end),
        cmocka_unit_test(the_end_does_not_wait_for_a_reader_that_has_stopped),
        cmocka_unit_test(all_bytes_are_written),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
