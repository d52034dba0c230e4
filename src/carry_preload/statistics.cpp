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
    if (totals.over + totals.in_tcp == 0 && !is_always) {
        return;
    }
    char why[512] = "";
    std::size_t used = 0;
    for (const carry::Totals::Reason &reason : totals.reasons) {
        if (reason.text != nullptr && used < sizeof(why)) {
            used +=
                static_cast<std::size_t>(std::snprintf(why + used, sizeof(why) - used, "%s%s: %lu",
                                                       used == 0 ? " (" : ", ", reason.text, reason.count));
        }
    }
    char line[1024];
    const int size =
        std::snprintf(line, sizeof(line),
                      "rpma run --sockets: %s[%d]: %lu connections over memory, %lu over TCP%s%s; %lu bytes "
                      "received, %lu of "
                      "them over memory, %lu sent, %lu of them over memory; %lu turns back to TCP\n",
                      program, getpid(), totals.over, totals.in_tcp, why, used != 0 ? ")" : "",
                      totals.received.by_memory + totals.received.by_tcp, totals.received.by_memory,
                      totals.sent.by_memory + totals.sent.by_tcp, totals.sent.by_memory, totals.back);
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
const base::ForkHook counts_from_fork{base::ForkLevel::SocketPreloadStreams, {.after_in_child = [] {
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
