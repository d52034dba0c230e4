// SPDX-License-Identifier: BSD-3-Clause
// A test stops its own process here for a while (SIGSTOP), as a debugger does.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

// This comes last, because it asserts.
#include "device.hpp"

namespace test {

inline bool is_stopped(pid_t process) {
    const std::filesystem::directory_iterator threads{"/proc/" + std::to_string(process) + "/task"};
    return std::ranges::all_of(threads, [](const auto &thread) {
        std::ifstream file{thread.path() / "stat"};
        std::string text;
        std::getline(file, text);
        return text.substr(text.rfind(')') + 2, 1) == "T";
    });
}

// Has a child act while no thread of this process runs, for a duration. Returns when this process goes on.
template <typename Act>
void act_while_stopped(std::chrono::milliseconds duration, Act &&act) {
    const pid_t process = getpid();
    const pid_t child = fork();
    if (child == 0) {
        (void)kill(process, SIGSTOP);
        while (!is_stopped(process)) {
        }
        act();
        std::this_thread::sleep_for(duration);
        (void)kill(process, SIGCONT);
        _exit(0);
    }
    assert_int_equal(waitpid(child, nullptr, 0), child);
}

}  // namespace test
