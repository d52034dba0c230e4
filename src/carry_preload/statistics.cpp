// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/statistics: the end of a process, and the line of `rpma run --sockets --stats` about it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "base/log.hpp"
#include "carry/high_number.hpp"
#include "carry/sockets.hpp"

namespace {

bool is_wanted = false;
bool is_always = false;  // also of a process without a connection
int file = -1;
char program[64];  // before it writes its title there

// " (a reason: 2, another one: 1)", or nothing.
class ReasonsText {
public:
    explicit ReasonsText(const carry::Totals::Reasons &reasons) {
        std::size_t used = 0;
        for (const carry::Totals::Reason &reason : reasons) {
            if (reason.text != nullptr && used < sizeof(text_)) {
                used += static_cast<std::size_t>(std::snprintf(text_ + used, sizeof(text_) - used,
                                                               "%s%s: %lu", used == 0 ? " (" : ", ",
                                                               reason.text, reason.count));
            }
        }
        if (used != 0 && used < sizeof(text_)) {
            (void)std::snprintf(text_ + used, sizeof(text_) - used, ")");
        }
    }
    [[nodiscard]] const char *get() const { return text_; }

private:
    char text_[768] = "";
};

std::uint64_t all_of(const carry::Socket::Counts &counts) {
    return counts.by_memory + counts.by_device + counts.by_tcp;
}

void tell() {
    if (!is_wanted || base::is_in_parents_memory()) {
        return;
    }
    carry::Totals totals = carry::sockets.totals();
    std::set<const carry::Socket *> open;
    carry::sockets.for_all([&](int, const carry::Socket &socket) {
        if (open.insert(&socket).second) {
            totals.add(socket);
        }
    });
    if (totals.over_memory + totals.over_device + totals.in_tcp == 0 && !is_always) {
        return;
    }
    const ReasonsText why_in_tcp{totals.reasons};
    const ReasonsText why_back{totals.back_reasons};
    char line[2048];
    const int size = std::snprintf(
        line, sizeof(line),
        "rpma run --sockets: %s[%d]: %lu connections over memory, %lu over a device, %lu over TCP%s; %lu "
        "bytes "
        "received, %lu of them over memory, %lu over a device, %lu sent, %lu of them over memory, %lu over a "
        "device; %lu turns back to TCP%s\n",
        program, getpid(), totals.over_memory, totals.over_device, totals.in_tcp, why_in_tcp.get(),
        all_of(totals.received), totals.received.by_memory, totals.received.by_device, all_of(totals.sent),
        totals.sent.by_memory, totals.sent.by_device, totals.back, why_back.get());
    const int to = file >= 0 ? file : STDERR_FILENO;
    struct stat status{};
    if (size > 0 && fstat(to, &status) == 0 && !S_ISSOCK(status.st_mode)) {
        (void)!LIBC(write)(to, line, static_cast<std::size_t>(size));
    }
}

// Opened at the start: the process may give up the rights for it, or the name (chroot(2)), before it ends.
int file_of_figures() {
    const char *const path = secure_getenv("RSOCKET_PRELOAD_STATS_FILE");
    const int opened =
        path != nullptr
            ? carry::high_number(LIBC(open)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666))
            : -1;
    if (path != nullptr && opened < 0) {
        BASE_LOG(Warning, "RSOCKET_PRELOAD_STATS_FILE: cannot open %s: %s; standard error gets the figures",
                 path, std::strerror(errno));
    }
    return opened;
}

// NOLINTNEXTLINE(cppcoreguidelines-special-member-functions): there is one, and it does one thing.
struct OfProcess {
    OfProcess() {
        (void)std::snprintf(program, sizeof(program), "%s", program_invocation_short_name);
        if (const char *const wanted = secure_getenv("RSOCKET_PRELOAD_STATS"); wanted != nullptr) {
            is_wanted = true;
            is_always = wanted == std::to_string(getpid());
            file = file_of_figures();
        }
    }
    ~OfProcess() {
        tell();
        carry::sockets.end_with_process();
    }
} of_process;

// A forked child counts its own connections. `sockets` is made by the compiler, before any constructor.
// NOLINTNEXTLINE(cppcoreguidelines-interfaces-global-init)
const base::ForkHook counts_from_fork{base::ForkLevel::CarryLinks, {.after_in_child = [] {
                                          carry::sockets.count_from_here();
                                          is_always = false;
                                      }}};

}  // namespace

// Many programs and children end so, without the functions that exit(3) calls.
NAMED(void, _exit, int status) {
    tell();
    carry::sockets.end_with_process();
    LIBC(_exit)(status);
    __builtin_unreachable();
}

NAMED(void, _Exit, int status) {
    program__exit(status);
}
