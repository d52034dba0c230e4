// SPDX-License-Identifier: BSD-3-Clause
#include "base/multipath.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/mptcp_info.hpp"
#include "base/shared_value.hpp"

namespace base {

namespace {

// These are the values of <linux/mptcp.h>.
constexpr int option_info = 1;
constexpr int option_tcp_info = 2;

// Returns nothing when the kernel does not tell all of it, as one before Linux 6.10.
std::optional<MptcpInfo> info_of(int socket) {
    MptcpInfo info{};
    socklen_t size = sizeof(info);
    if (getsockopt(socket, SOL_MPTCP, option_info, &info, &size) != 0 || size < sizeof(info)) {
        return std::nullopt;
    }
    return info;
}

// Says once in this process why connections are plain TCP.
void stays_plain(const char *why) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true)) {
        BASE_LOG(Info, "connections use TCP and no MPTCP: %s", why);
    }
}

// Returns whether the path manager of this network namespace may add paths. A new socket of MPTCP has its
// numbers, which any user may read. The system calls go past a library that stands in front of libc's: the
// socket is no program's.
bool has_paths(Multipath asked) {
    const auto socket =
        static_cast<int>(syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP));
    if (socket < 0) {
        if (errno == EPROTONOSUPPORT || errno == ENOPROTOOPT || errno == EINVAL) {
            stays_plain(errno == ENOPROTOOPT ? "net.mptcp.enabled is 0" : "the kernel has none");
        }
        return false;
    }
    const auto info = info_of(socket);
    syscall(SYS_close, socket);
    if (!info) {
        stays_plain("the kernel's is older than Linux 6.10, and does not tell of silent peers");
        return false;
    }
    return asked == Multipath::On || info->endpoints_to_announce != 0 || info->endpoints_to_use != 0 ||
           info->most_accepted != 0;
}

// The answer holds for a second, so that a new connection costs no more than one of TCP.
bool has_paths_lately(Multipath asked) {
    constexpr std::chrono::seconds holds{1};
    static std::atomic<Clock::rep> asked_at{std::numeric_limits<Clock::rep>::min()};
    static std::atomic<bool> answer{false};
    const auto now = Clock::now().time_since_epoch();
    const Clock::duration last{asked_at.load(std::memory_order_acquire)};
    if (last == Clock::duration::min() || now - last >= holds) {
        set_shared(answer, has_paths(asked));
        set_shared(asked_at, now.count(), std::memory_order_release);
    }
    return answer.load(std::memory_order_relaxed);
}

}  // namespace

Result<Multipath> multipath_asked_for(const char *value) {
    const std::string_view word{value != nullptr ? value : ""};
    if (word.empty() || word == "auto") {
        return Multipath::Auto;
    }
    if (word == "on") {
        return Multipath::On;
    }
    if (word == "off") {
        return Multipath::Off;
    }
    BASE_LOG(Error, "SOFTRDMA_MPTCP is \"%s\", expected on, off or auto: no device is opened", value);
    return failure(EINVAL);
}

const Result<Multipath> &multipath_of_environment() {
    static const Result<Multipath> once = multipath_asked_for(secure_getenv("SOFTRDMA_MPTCP"));
    return once;
}

Result<Fd> stream_socket(int family, int flags) {
    Fd socket{::socket(family, SOCK_STREAM | flags, uses_multipath() ? IPPROTO_MPTCP : 0)};
    return socket ? Result<Fd>{std::move(socket)} : last_failure();
}

bool uses_multipath() {
    const Multipath asked = multipath_of_environment().value_or(Multipath::Off);
    return asked != Multipath::Off && has_paths_lately(asked);
}

bool is_multipath(int socket) {
    int protocol = 0;
    socklen_t size = sizeof(protocol);
    return getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_MPTCP;
}

std::optional<MultipathState> multipath_state(int socket) {
    const auto info = info_of(socket);
    if (!info || (info->flags & MptcpInfo::is_plain) != 0) {
        return std::nullopt;
    }
    return MultipathState{.acknowledged = info->acknowledged, .silent_ms = info->silent_ms};
}

std::optional<std::size_t> paths_of(int socket) {
    const auto info = info_of(socket);
    if (!info || (info->flags & MptcpInfo::is_plain) != 0) {
        return std::nullopt;
    }
    // The kernel writes the beginning of each subflow's tcp_info, which is its state.
    constexpr std::size_t most = 64;
    struct {
        std::uint32_t size_of_head;
        std::uint32_t subflows;
        std::uint32_t size_in_kernel;
        std::uint32_t size_of_each;
        std::array<std::uint8_t, most> states;
    } told{.size_of_head = 16, .subflows = 0, .size_in_kernel = 0, .size_of_each = 1, .states = {}};
    static_assert(offsetof(decltype(told), states) == 16);
    socklen_t size = sizeof(told);
    if (getsockopt(socket, SOL_MPTCP, option_tcp_info, &told, &size) != 0) {
        return std::nullopt;
    }
    const auto count = std::min<std::size_t>(told.subflows, most);
    constexpr std::uint8_t established = 1;
    return static_cast<std::size_t>(std::count(
        told.states.begin(), told.states.begin() + static_cast<std::ptrdiff_t>(count), established));
}

}  // namespace base
