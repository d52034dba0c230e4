// SPDX-License-Identifier: BSD-3-Clause
// carry/arena: gives out places, and reaps processes.
#include "carry/arena.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>

#include "base/interpose.hpp"
#include "base/own_pages.hpp"
#include "carry/own_calls.hpp"

namespace carry {

std::uint64_t Process::of_this() {
    struct stat space{};
    const bool is_known = stat("/proc/self/ns/pid", &space) == 0;
    return std::uint64_t{is_known ? static_cast<std::uint32_t>(space.st_ino) : 0} << 32 |
           static_cast<std::uint32_t>(getpid());
}

bool Process::is_dead(std::uint64_t id, std::uint32_t space) {
    if (id == 0 || space_of(id) != space || space == unborn || !makes_own_calls) {
        return false;
    }
    const auto fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(id), 0U));
    if (fd < 0) {
        return errno == ESRCH;
    }
    pollfd ended{.fd = fd, .events = POLLIN, .revents = 0};
    const bool is_dead = LIBC(poll)(&ended, 1, 0) > 0;
    (void)LIBC(close)(fd);
    return is_dead;
}

// A folder of /proc has as many links as it has folders, and two more. Without /proc, as after chroot(2), the
// kernel says it by refusing a call that changes nothing for a process without other threads. A filter of
// system calls might end the process for that call.
bool Process::has_other_threads() {
    const int error = errno;
    struct stat threads{};
    const bool is_known = stat("/proc/self/task", &threads) == 0;
    const bool has_others =
        is_known ? threads.st_nlink > 3 : !makes_own_calls || LIBC(unshare)(CLONE_VM) != 0;
    errno = error;
    return has_others;
}

Arena *Arena::make() {
    void *const memory = mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory != MAP_FAILED ? static_cast<Arena *>(memory) : nullptr;
}

std::uint32_t Arena::take() {
    std::uint64_t head = free.load();
    while (static_cast<std::uint32_t>(head) != 0) {
        const std::uint32_t next = all[static_cast<std::uint32_t>(head)].socket.next_free;
        if (free.compare_exchange_weak(head, ((head >> 32) + 1) << 32 | next)) {
            return static_cast<std::uint32_t>(head);
        }
    }
    const std::uint32_t place = used.fetch_add(1) + 1;
    if (place >= most_sockets) {
        return 0;
    }
    all[place].locks.begin();
    return place;
}

void Arena::give(std::uint32_t place) {
    std::uint64_t head = free.load();
    do {
        all[place].socket.next_free = static_cast<std::uint32_t>(head);
    } while (!free.compare_exchange_weak(head, ((head >> 32) + 1) << 32 | place));
}

std::uint32_t Arena::enter(std::uint64_t id, std::uint32_t space) {
    for (const bool is_first : {true, false}) {
        for (std::uint32_t one = 1; one < most_processes; ++one) {
            std::uint64_t none = 0;
            if (processes[one].id.compare_exchange_strong(none, id)) {
                std::uint32_t end = processes_end.load();
                while (end <= one && !processes_end.compare_exchange_weak(end, one + 1)) {
                }
                return one;
            }
        }
        if (is_first) {
            reap_dead(space, [](const Process &) { return true; });
        }
    }
    return 0;
}

// A place in which it was, or a thread of another process still is, is not given to a next Socket.
void Arena::reap(Process &dead, std::uint64_t id) {
    constexpr std::uint64_t reaped = ~std::uint64_t{0};
    if (!dead.id.compare_exchange_strong(id, reaped)) {
        return;  // another process has reaped it
    }
    for (std::uint32_t word = 0; word < most_sockets / 64; ++word) {
        for (std::uint64_t left = dead.places[word].exchange(0); left != 0; left &= left - 1) {
            const auto place = word * 64 + static_cast<std::uint32_t>(std::countr_zero(left));
            if (all[place].socket.one_process_less() && all[place].locks.inside == 0) {
                give(place);
            }
        }
    }
    dead.id = 0;
}

bool Arena::has_others(std::uint32_t own) const {
    return own == 0 || std::ranges::any_of(processes, [&](const Process &one) {
               return one.id != 0 && &one != &processes[own];
           });
}

// A lock may be taken by a thread of the other processes. They change the list of free places while it is
// copied, so it is made anew.
bool Arena::become_private(std::uint32_t own, bool (*is_used)(std::uint32_t place)) {
    auto *const bytes = reinterpret_cast<std::byte *>(this);
    const auto *const end = reinterpret_cast<std::byte *>(&all[std::min(used + 1, most_sockets)]);
    if (!base::take_own_pages(this, static_cast<std::size_t>(end - bytes), sizeof(Arena))) {
        return false;
    }
    for (std::uint32_t one = 1; one < processes_end; ++one) {
        if (one != own) {
            processes[one].id = 0;
            std::ranges::for_each(processes[one].places, [](auto &word) { word = 0; });
        }
    }
    free = 0;
    for (std::uint32_t place = 1; place < used + 1 && place < most_sockets; ++place) {
        all[place].locks.begin();
        all[place].locks.inside = 0;
        if (!is_used(place)) {
            give(place);
        }
    }
    return true;
}

}  // namespace carry
