// SPDX-License-Identifier: BSD-3-Clause
// Tests SOFTRDMA_FAULTS as a program sees it. Each run is a process of its own, because the variable is read
// once: it uses two connected ends, and tells the result in words.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "../child.hpp"
#include "requests.hpp"

// Last, as it wants.
#include "suite.hpp"

namespace {

using namespace conformance;

constexpr std::byte old_byte{0};
constexpr std::byte new_byte{'n'};

using Scenario = std::function<std::string()>;

// Runs the scenario in a child process with these faults, and returns the text of its result.
std::string outcome(const char *faults, const Scenario &scenario, const char *crc = "0") {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = test::fork_child();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(static_cast<unsigned>(patience.count()));
        setenv("SOFTRDMA_FAULTS", faults, 1);
        setenv("SOFTRDMA_CRC", crc, 1);
        const std::string told = scenario();
        _exit(write(ends[1], told.data(), told.size()) == static_cast<ssize_t>(told.size()) ? 0 : 1);
    }
    close(ends[1]);
    std::string told;
    std::array<char, 4096> bytes;
    for (ssize_t count = 0; (count = read(ends[0], bytes.data(), bytes.size())) > 0;) {
        told.append(bytes.data(), static_cast<std::size_t>(count));
    }
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return told;
}

// Returns one character for each completion of the client that is there when both ends know of the end: its
// status.
std::string statuses(Ends &ends) {
    ends.expect_disconnected();
    std::string text;
    for (ibv_wc completion{}; ibv_poll_cq(ends.client.cq, 1, &completion) == 1;) {
        text += completion.status == IBV_WC_SUCCESS         ? '+'
                : completion.status == IBV_WC_RETRY_EXC_ERR ? '!'
                : completion.status == IBV_WC_WR_FLUSH_ERR  ? '-'
                                                            : '?';
    }
    return text;
}

// Returns how many bytes were written at the begin of the server's memory. All bytes after them must be old.
std::size_t arrived(const Ends &ends) {
    const auto &there = ends.server.memory;
    const auto first_old = std::ranges::find(there, old_byte);
    assert_true(std::all_of(there.begin(), first_old, [](std::byte one) { return one == new_byte; }));
    assert_true(std::all_of(first_old, there.end(), [](std::byte one) { return one == old_byte; }));
    return static_cast<std::size_t>(first_old - there.begin());
}

// Makes a connection, and posts adjacent writes with one call.
std::string write_once(std::size_t count, std::size_t bytes) {
    Ends ends;
    ends.connect();
    std::ranges::fill(ends.client.memory, new_byte);
    std::vector<Request> chain;
    for (std::size_t i = 0; i < count; ++i) {
        chain.push_back(write_request(ends.client, ends.server, i * bytes, bytes, i));
    }
    assert_int_equal(post(ends.client, chain), 0);
    const std::string ended = statuses(ends);
    return ended + " " + std::to_string(arrived(ends));
}

Scenario writes(std::size_t count, std::size_t bytes) {
    return [=] { return write_once(count, bytes); };
}

std::string three_connections() {
    std::string told;
    for (int i = 0; i < 3; ++i) {
        told += write_once(16, 8) + ";";
    }
    return told;
}

void a_connection_is_dropped_behind_so_many_requests(void **) {
    assert_string_equal(outcome("drop=3", writes(6, 8)).c_str(), "+++!-- 24");
    assert_string_equal(outcome("drop=0", writes(2, 8)).c_str(), "!- 0");
    assert_string_equal(outcome("drop=3", writes(4, 100'000)).c_str(), "+++! 300000");
}

void a_write_is_torn_at_a_byte(void **) {
    assert_string_equal(outcome("tear=5", writes(2, 64)).c_str(), "!- 5");
    assert_string_equal(outcome("tear=5", writes(2, 64), "1").c_str(), "!- 5");
    // The tear is in the second segment of the write; another is at its very end.
    assert_string_equal(outcome("tear=70001", writes(1, 100'000)).c_str(), "! 70001");
    assert_string_equal(outcome("tear=99999", writes(1, 100'000)).c_str(), "! 99999");
    assert_string_equal(outcome("tear=0", writes(1, 8)).c_str(), "! 0");
}

void shorter_writes_are_not_torn(void **) {
    assert_string_equal(outcome("tear=8,drop=2", writes(3, 8)).c_str(), "++! 16");
}

void a_request_is_delayed(void **) {
    constexpr std::chrono::milliseconds delay{30};
    assert_string_equal(
        outcome("delay_us=30000",
                [=] {
                    Ends ends;
                    ends.connect();
                    const auto start = std::chrono::steady_clock::now();
                    assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8)}), 0);
                    expect_completion(ends.client.cq, 1);
                    const auto took = std::chrono::steady_clock::now() - start;
                    return std::string{took >= delay ? "late" : "in time"};
                })
            .c_str(),
        "late");
}

// The threads of the device sleep on its epoll sets. Returns all of them.
std::vector<pollfd> epoll_sets() {
    std::vector<pollfd> sets;
    for (const auto &entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
        std::error_code gone;
        if (std::filesystem::read_symlink(entry.path(), gone) == "anon_inode:[eventpoll]") {
            sets.push_back(
                {.fd = std::stoi(entry.path().filename().string()), .events = POLLIN, .revents = 0});
        }
    }
    return sets;
}

// The threads sleep before the request is sent: no descriptor that is ready, such as a writable socket, keeps
// them awake.
void who_waits_for_a_delayed_request_can_sleep(void **) {
    const Scenario scenario = [] {
        Ends ends;
        ends.connect();
        assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8)}), 0);
        auto sets = epoll_sets();
        ibv_wc completion{};
        while (poll(sets.data(), sets.size(), 0) != 0) {
            if (ibv_poll_cq(ends.client.cq, 1, &completion) != 0) {
                return std::string{"never quiet"};
            }
        }
        return std::string{sets.empty() ? "nothing there" : "quiet"};
    };
    assert_string_equal(outcome("delay_us=5000000", scenario).c_str(), "quiet");
}

// No thread polls: the end of the delay itself has to wake the device.
void a_delayed_request_is_sent_though_all_sleep(void **) {
    const Scenario scenario = [] {
        Ends ends;
        ends.connect();
        assert_int_equal(ibv_req_notify_cq(ends.client.cq, 0), 0);
        assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8)}), 0);
        expect_cq_event(ends.client, ends.client.cq);
        expect_completion(ends.client.cq, 1);
        return std::string{"sent"};
    };
    assert_string_equal(outcome("delay_us=30000", scenario).c_str(), "sent");
}

void a_registration_fails(void **) {
    const Scenario scenario = [] {
        End end;
        end.resolve(Listener{}.port);
        errno = 0;
        const bool refused = end.register_memory(end.memory.data(), 8, IBV_ACCESS_LOCAL_WRITE) == nullptr;
        return std::string{refused ? std::strerror(errno) : "registered"};
    };
    assert_string_equal(outcome("register=1", scenario).c_str(), std::strerror(ENOMEM));
    assert_string_equal(outcome("register=2", scenario).c_str(), "registered");
}

// Each completion after the second finds the queue full and is lost; the connection ends, as it does with a
// full queue.
void a_completion_queue_fills(void **) {
    assert_string_equal(outcome("fill=2", writes(4, 8)).c_str(), "++ 32");
}

void the_same_seed_gives_the_same_faults(void **) {
    const std::string once = outcome("seed=7,drop=0:0.1,tear=3:0.1", three_connections);
    assert_string_equal(once.c_str(), outcome("seed=7,drop=0:0.1,tear=3:0.1", three_connections).c_str());
    assert_string_not_equal(once.c_str(), outcome("seed=8,drop=0:0.1,tear=3:0.1", three_connections).c_str());
}

std::string logged;

void keep_log(int, const char *, int, const char *, const char *format, ...) {
    std::array<char, 512> line{};
    va_list arguments;
    va_start(arguments, format);
    (void)std::vsnprintf(line.data(), line.size(), format, arguments);
    va_end(arguments);
    logged += line.data();
}

void a_text_without_meaning_opens_no_device(void **) {
    const std::string told = outcome("seed=1,drop=many", [] {
        verbs::set_soft_log(keep_log, static_cast<int>(base::LogLevel::Warning));
        int count = 0;
        ibv_device **const list = softrdma_ibv_get_device_list(&count);
        for (int i = 0; i < count; ++i) {
            errno = 0;
            assert_null(softrdma_ibv_open_device(list[i]));
            assert_int_equal(errno, EINVAL);
        }
        softrdma_ibv_free_device_list(list);
        assert_true(count > 0);
        return logged;
    });
    assert_string_equal(told.c_str(),
                        "SOFTRDMA_FAULTS has \"drop=many\", expected drop=REQUESTS[:CHANCE], REQUESTS up to "
                        "4294967295: no device is opened\n");
}

}  // namespace

int main() {
    subject.provider = &verbs::soft;
    subject.provider_name = "soft";
    subject.address = "127.0.0.1";
    subject.is_soft = true;
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_dropped_behind_so_many_requests),
        cmocka_unit_test(a_write_is_torn_at_a_byte),
        cmocka_unit_test(shorter_writes_are_not_torn),
        cmocka_unit_test(a_request_is_delayed),
        cmocka_unit_test(who_waits_for_a_delayed_request_can_sleep),
        cmocka_unit_test(a_delayed_request_is_sent_though_all_sleep),
        cmocka_unit_test(a_registration_fails),
        cmocka_unit_test(a_completion_queue_fills),
        cmocka_unit_test(the_same_seed_gives_the_same_faults),
        cmocka_unit_test(a_text_without_meaning_opens_no_device),
    };
    return cmocka_run_group_tests_name("faults", tests, nullptr, nullptr);
}
