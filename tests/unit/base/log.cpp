// SPDX-License-Identifier: BSD-3-Clause
// base/log: tests which lines reach the sink, with which level and place, and which lines cost nothing.
#include "base/log.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <semaphore>
#include <string>
#include <string_view>
#include <thread>

#include "check.hpp"

namespace {

struct Line {
    int level;
    std::string file;
    int number;
    std::string function;
    std::string text;
};

Line last;
int lines = 0;

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is librpma's log function.
void collect(int level, const char *file, int line, const char *function, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    (void)std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    last = {level, file, line, function, text};
    ++lines;
}

int evaluated = 0;
int evaluate() {
    return ++evaluated;
}

int with_a_sink(void **) {
    base::set_log_sink(collect);
    base::log_threshold.store(static_cast<int>(base::LogLevel::Warning));
    last = {};
    lines = 0;
    evaluated = 0;
    return 0;
}

int with_the_default(void **) {
    base::set_log_sink(nullptr);
    return 0;
}

void a_line_has_its_place(void **) {
    BASE_LOG(Error, "%d bytes of %s", 8, "memory");
    const int line = __LINE__ - 1;
    assert_int_equal(lines, 1);
    assert_int_equal(last.level, 1);
    assert_string_equal(last.text.c_str(), "8 bytes of memory\n");
    assert_string_equal(last.file.c_str(), __FILE__);
    assert_int_equal(last.number, line);
    assert_string_equal(last.function.c_str(), "a_line_has_its_place");
    BASE_LOG(Warning, "no arguments");
    assert_string_equal(last.text.c_str(), "no arguments\n");
}

void the_threshold_is_inclusive(void **) {
    BASE_LOG(Notice, "not wanted");
    assert_int_equal(lines, 0);
    base::log_threshold.store(static_cast<int>(base::LogLevel::Debug));
    BASE_LOG(Debug, "wanted");
    assert_int_equal(lines, 1);
    base::log_threshold.store(static_cast<int>(base::LogLevel::Disabled));
    BASE_LOG(Fatal, "nothing is wanted");
    assert_int_equal(lines, 1);
}

void what_is_not_wanted_is_not_evaluated(void **) {
    BASE_LOG(Info, "%d", evaluate());
    assert_int_equal(evaluated, 0);
    BASE_LOG(Warning, "%d", evaluate());
    assert_int_equal(evaluated, 1);
}

// The macro is one statement.
void stands_in_a_branch(void **) {
    for (int i = 0; i < 2; ++i) {
        if (i == 0) {  // NOLINT(readability-braces-around-statements): it is what is tested
            BASE_LOG(Error, "first");
        } else {
            BASE_LOG(Error, "second");
        }
    }
    assert_int_equal(lines, 2);
    assert_string_equal(last.text.c_str(), "second\n");
}

void no_sink_means_standard_error(void **) {
    base::set_log_sink(nullptr);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const int standard_error = dup(STDERR_FILENO);
    assert_true(standard_error >= 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    BASE_LOG(Warning, "a warning of %d words", 4);
    BASE_LOG(Info, "not this");
    assert_true(dup2(standard_error, STDERR_FILENO) >= 0);
    close(standard_error);
    close(ends[1]);
    char text[256];
    const ssize_t size = read(ends[0], text, sizeof(text));
    close(ends[0]);
    assert_true(size > 0);
    const std::string_view written{text, static_cast<std::size_t>(size)};
    assert_true(written.find("a warning of 4 words\n") != std::string_view::npos);
    assert_true(written.find("not this") == std::string_view::npos);
}

constexpr int warning = static_cast<int>(base::LogLevel::Warning);
constexpr int error = static_cast<int>(base::LogLevel::Error);
const base::Clock::time_point beginning = base::Clock::now();

// One place logs a million lines. Few are written, and none is lost, because one more
// line has the number of the rest.
void what_peers_repeat_is_counted(void **) {
    static constinit base::LogPlace place{"file", 7, "function"};
    const unsigned first = base::log_lines_of_place();
    unsigned admitted = 0;
    for (unsigned i = 0; i < 1'000'000; ++i) {
        const int level = i == 500'000 ? error : warning;
        if (place.admits(level, beginning + std::chrono::microseconds{i})) {
            place.write(level, "%u is wrong", ++admitted);
        }
    }
    assert_int_equal(admitted, first);
    assert_int_equal(lines, first);
    assert_string_equal(last.text.c_str(), (std::to_string(first) + " is wrong\n").c_str());
    assert_true(base::log_withholds);
    // The next line comes behind the number.
    assert_true(place.admits(warning, beginning + base::log_window));
    assert_int_equal(lines, first + 1);
    assert_int_equal(last.level, error);
    assert_string_equal(last.file.c_str(), "file");
    assert_int_equal(last.number, 7);
    assert_string_equal(last.function.c_str(), "function");
    const std::string text = "and " + std::to_string(1'000'000 - first) +
                             " more like this in the last 10 s: " + std::to_string(first) + " is wrong\n";
    assert_string_equal(last.text.c_str(), text.c_str());
    assert_false(base::log_withholds);
    // The place has as many lines again.
    for (unsigned i = 1; i < first; ++i) {
        assert_true(place.admits(warning, beginning + base::log_window));
    }
    assert_false(place.admits(warning, beginning + base::log_window));
    base::tell_withheld_lines(beginning, true);
}

// The log tells the number of suppressed lines of each place when its time has come, even when no line
// follows.
void what_was_counted_is_told(void **) {
    static constinit base::LogPlace early{"early", 1, "f"};
    static constinit base::LogPlace late{"late", 1, "f"};
    const auto begin = beginning + 10 * base::log_window;
    early.write(warning, "early");
    late.write(warning, "late");
    lines = 0;
    for (unsigned i = 0; i < base::log_lines_of_place() + 3; ++i) {
        (void)early.admits(warning, begin);
        (void)late.admits(warning, begin + std::chrono::seconds{5});
    }
    base::tell_withheld_lines(begin + std::chrono::seconds{9}, false);
    assert_int_equal(lines, 0);
    base::tell_withheld_lines(begin + std::chrono::seconds{12}, false);
    assert_int_equal(lines, 1);
    assert_string_equal(last.text.c_str(), "and 3 more like this in the last 12 s: early\n");
    assert_true(base::log_withholds);
    base::tell_withheld_lines(begin + std::chrono::seconds{12}, true);
    assert_int_equal(lines, 2);
    assert_string_equal(last.text.c_str(), "and 3 more like this in the last 7 s: late\n");
    assert_false(base::log_withholds);
    base::tell_withheld_lines(begin + std::chrono::seconds{12}, true);
    assert_int_equal(lines, 2);
}

// A child has its own lines, and only the parent tells of the parent's lines.
void a_child_tells_nothing_of_its_parents(void **) {
    static constinit base::LogPlace place{"file", 1, "f"};
    const auto begin = beginning + 20 * base::log_window;
    for (unsigned i = 0; i < base::log_lines_of_place() + 1; ++i) {
        (void)place.admits(warning, begin);
    }
    const pid_t child = fork();
    if (child == 0) {
        base::tell_withheld_lines(begin, true);
        _exit(lines);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    base::tell_withheld_lines(begin, true);
    assert_int_equal(lines, 1);
}

// There is no order between the thread and the fork that a race detector would see.
void a_child_takes_over_from_a_thread_that_logs(void **) {
    static constinit base::LogPlace place{"file", 1, "f"};
    std::atomic<bool> logged{false};
    std::binary_semaphore forked{0};
    std::thread logs{[&] {
        (void)place.admits(warning, beginning + 30 * base::log_window);
        logged.store(true, std::memory_order_relaxed);
        forked.acquire();
    }};
    while (!logged.load(std::memory_order_relaxed)) {
        std::this_thread::yield();
    }
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(place.admits(warning, beginning + 30 * base::log_window) ? 0 : 1);
    }
    forked.release();
    logs.join();
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

// Each place counts for itself, and only the lines that are wanted.
void peers_lines_are_lines(void **) {
    for (unsigned i = 0; i < base::log_lines_of_place() + 2; ++i) {
        BASE_LOG_PEER(Warning, "%d", evaluate());
        BASE_LOG_PEER_AT(error, "no arguments");
        BASE_LOG_PEER(Info, "%d", evaluate());
    }
    assert_int_equal(lines, 2 * base::log_lines_of_place());
    assert_int_equal(evaluated, base::log_lines_of_place());
    base::tell_withheld_lines(base::Clock::now(), true);
    assert_int_equal(lines, 2 * base::log_lines_of_place() + 2);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_has_its_place, with_a_sink, with_the_default),
        cmocka_unit_test_setup_teardown(the_threshold_is_inclusive, with_a_sink, with_the_default),
        cmocka_unit_test_setup_teardown(what_is_not_wanted_is_not_evaluated, with_a_sink, with_the_default),
        cmocka_unit_test_setup_teardown(stands_in_a_branch, with_a_sink, with_the_default),
        cmocka_unit_test_setup_teardown(what_peers_repeat_is_counted, with_a_sink, with_the_default),
        cmocka_unit_test_setup_teardown(what_was_counted_is_told, with_a_sink, with_the_default),
        cmocka_unit_test_setup_teardown(a_child_tells_nothing_of_its_parents, with_a_sink, with_the_default),
        cmocka_unit_test_setup_teardown(a_child_takes_over_from_a_thread_that_logs, with_a_sink,
                                        with_the_default),
        cmocka_unit_test_setup_teardown(peers_lines_are_lines, with_a_sink, with_the_default),
        cmocka_unit_test_setup_teardown(no_sink_means_standard_error, with_a_sink, with_the_default)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
