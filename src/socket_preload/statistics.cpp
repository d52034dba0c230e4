// SPDX-License-Identifier: BSD-3-Clause
#include "socket_preload/statistics.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <rpma/rsocket.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "rsocket/process.hpp"
#include "socket_preload/configuration.hpp"
#include "socket_preload/descriptor_kinds.hpp"
#include "socket_preload/libc.hpp"

namespace socket_preload {

namespace {

// Returns whether streams of the kernel's could have been carried instead.
bool is_tcp(int fd) {
    return option_of(fd, SO_PROTOCOL) == IPPROTO_TCP;
}

bool has_io_uring() {
    bool has = false;
    (void)for_open_descriptors([&](int fd) {
        std::array<char, 32> what{};
        (void)readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), what.data(), what.size() - 1);
        has = has || std::string_view{what.data()} == "anon_inode:[io_uring]";
    });
    return has;
}

// Opened at the start: the process may give up the rights for it, or the name (chroot(2)), before it ends.
int file_of_figures() {
    const char *const path = secure_getenv("RSOCKET_PRELOAD_STATS_FILE");
    if (path == nullptr) {
        return -1;
    }
    const int file = kept(LIBC(open)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
    if (file < 0) {
        BASE_LOG(Warning, "RSOCKET_PRELOAD_STATS_FILE: cannot open %s: %s; standard error gets the figures",
                 path, std::strerror(errno));
    }
    return file;
}

bool is_socket(int fd) {
    struct stat status{};
    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

char program[64];  // before it writes its title there

// NOLINTNEXTLINE(cppcoreguidelines-special-member-functions): there is one, and it does one thing.
struct CountsOfProcess {
    CountsOfProcess() {
        (void)std::snprintf(program, sizeof(program), "%s", program_invocation_short_name);
        if (const char *const wanted = secure_getenv("RSOCKET_PRELOAD_STATS"); wanted != nullptr) {
            statistics.begin(wanted == std::to_string(getpid()), file_of_figures());
        }
    }
    ~CountsOfProcess() { statistics.tell(); }
} counts_of_process;

// A forked child counts only its own connections and bytes.
const base::ForkHook counts_from_fork{base::ForkLevel::SocketPreload,
                                      {.after_in_child = [] { statistics.forget(); }}};

}  // namespace

void Statistics::rsocket_ends(int fd) {
    int mode = RDMA_MODE_OPEN;
    socklen_t length = sizeof(mode);
    if (!wanted_ || rgetsockopt(fd, SOL_RDMA, RDMA_MODE, &mode, &length) != 0 || mode == RDMA_MODE_OPEN) {
        return;
    }
    int reason = RDMA_REASON_NONE;
    if (mode == RDMA_MODE_TCP && rgetsockopt(fd, SOL_RDMA, RDMA_MODE_REASON, &reason, &length) == 0) {
        add(plain_.at(static_cast<std::size_t>(reason)), 1);
    } else {
        add(carried_, 1);
    }
}

void Statistics::add_of_kernel(int fd, Made how) {
    if (!is_tcp(fd)) {
        return;
    }
    if (!carries(option_of(fd, SO_DOMAIN), SOCK_STREAM, IPPROTO_TCP)) {
        add(plain_[Excluded], 1);
    } else if (how == Made::BySystemCall) {
        add(plain_[Unseen], 1);
    }
}

int Statistics::accepted_by_kernel(int accepted, Made how) {
    if (wanted_ && accepted >= 0) {
        add_of_kernel(accepted, how);
    }
    return accepted;
}

int Statistics::connected_by_kernel(int fd, int result, Made how) {
    if (wanted_) {
        const int error = errno;
        if (result == 0 || error == EINPROGRESS) {
            add_of_kernel(fd, how);
        }
        errno = error;
    }
    return result;
}

void Statistics::forget() {
    for (Count *const count : {&carried_, &received_, &sent_}) {
        count->store(0);
    }
    for (Count &count : plain_) {
        count.store(0);
    }
    always_ = false;
}

std::string Statistics::plain_text() const {
    std::uint64_t all = 0;
    std::string why;
    for (int reason = 0; reason < reasons; ++reason) {
        if (const std::uint64_t count = plain_.at(static_cast<std::size_t>(reason)); count != 0) {
            all += count;
            why += why.empty() ? " (" : ", ";
            why += reason == Excluded ? "preload_config excludes it"
                   : reason == Unseen ? "by a system call"
                                      : rsockets::text_of_reason(reason);
            why += ": " + std::to_string(count);
        }
    }
    return std::to_string(all) + " over TCP" + (why.empty() ? "" : why + ")");
}

void Statistics::tell() {
    std::set<int> open;
    for (int fd = 0; wanted_ && fd < static_cast<int>(DescriptorKinds::most); ++fd) {
        const Kind kind = descriptors.kind(fd);
        if (kind == Kind::Rsocket || kind == Kind::RsocketAgain) {
            open.insert(kind == Kind::Rsocket ? fd : descriptors.first_of(fd));
        }
    }
    std::ranges::for_each(open, [this](int fd) { rsocket_ends(fd); });
    const bool had_any =
        carried_ != 0 || std::ranges::any_of(plain_, [](const Count &one) { return one != 0; });
    const bool has_ring = wanted_ && has_io_uring();
    if (!wanted_ || !(had_any || has_ring || always_)) {
        return;
    }
    const std::string line = std::string{"rpma run --sockets: "} + program + "[" + std::to_string(getpid()) +
                             "]: " + std::to_string(carried_) + " connections over rsockets, " +
                             plain_text() + "; " + std::to_string(received_) + " bytes received, " +
                             std::to_string(sent_) + " sent" +
                             (has_ring ? "; io_uring passes the library by" : "") + "\n";
    const int to = file_ >= 0 ? file_ : STDERR_FILENO;
    if (!is_socket(to)) {
        [[maybe_unused]] const auto written = LIBC(write)(to, line.data(), line.size());
    }
}

}  // namespace socket_preload
