// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/peer_thread.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>

#include "base/number.hpp"

namespace soft {

namespace {

// The beginning of a file of the thread in /proc.
struct Text {
    std::array<char, 512> bytes;
    std::size_t size = 0;

    [[nodiscard]] std::string_view view() const { return {bytes.data(), size}; }
};

// The C library's functions are cancellation points.
std::optional<Text> read_of(pid_t process, pid_t thread, const char *name) {
    std::array<char, 64> path;
    (void)std::snprintf(path.data(), path.size(), "/proc/%d/task/%d/%s", process, thread, name);
    const long file = syscall(SYS_openat, AT_FDCWD, path.data(), O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return std::nullopt;
    }
    Text text;
    const long bytes = syscall(SYS_read, file, text.bytes.data(), text.bytes.size());
    (void)syscall(SYS_close, file);
    if (bytes <= 0) {
        return std::nullopt;
    }
    text.size = static_cast<std::size_t>(bytes);
    return text;
}

// Returns the system call in which a thread waits that does not run, -1 when it is in none. Returns nothing
// when the thread runs: the kernel has waited then until the thread had left its processor.
std::optional<long> call_of(pid_t process, pid_t thread) {
    const auto text = read_of(process, thread, "syscall");
    long number = 0;
    if (!text ||
        std::from_chars(text->bytes.data(), text->bytes.data() + text->size, number).ec != std::errc{}) {
        return std::nullopt;
    }
    return number;
}

// Returns whether the thread is stopped by a signal, as it is at the end of a system call or outside of one,
// or has ended.
bool runs_no_more(pid_t process, pid_t thread) {
    const auto text = read_of(process, thread, "stat");
    if (!text) {
        return false;
    }
    const std::size_t name = text->view().rfind(')');
    constexpr std::array states{") T ", ") Z ", ") X "};
    return name != std::string_view::npos && std::ranges::any_of(states, [&](const char *state) {
               return text->view().substr(name).starts_with(state);
           });
}

}  // namespace

bool proc_is_of_this_namespace() {
    std::array<char, 16> number;
    const long bytes = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self", number.data(), number.size());
    pid_t found = 0;
    return bytes > 0 && base::read_number({number.data(), static_cast<std::size_t>(bytes)}, found) &&
           found == getpid();
}

bool has_let_go(pid_t process, const Board::Access &access) {
    if (process <= 0) {
        return false;
    }
    if (access.thread == 0) {
        return kill(process, 0) != 0 && errno == ESRCH;
    }
    if (tgkill(process, access.thread, 0) != 0) {
        return errno == ESRCH;
    }
    if (!proc_is_of_this_namespace()) {
        return false;
    }
    const auto call = call_of(process, access.thread);
    const bool is_outside =
        call && (!access.is_call || (*call != SYS_process_vm_writev && *call != SYS_process_vm_readv));
    return is_outside || runs_no_more(process, access.thread);
}

}  // namespace soft
