// SPDX-License-Identifier: BSD-3-Clause
// carry/records: the registry's entries of this process's sockets.
#include "carry/records.hpp"

#include <sys/stat.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <new>
#include <unordered_map>
#include <utility>

#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "carry/pool.hpp"
#include "carry/section.hpp"
#include "carry/sockets.hpp"
#include "registry/book.hpp"

namespace carry::records {

namespace {

struct One {
    registry::Entry entry;
    registry::Description description;
};

constinit base::LastingMutex mutex;

// Never destroyed: other threads may be in a call when main() returns.
using All = std::unordered_map<std::uint32_t, One, std::hash<std::uint32_t>, std::equal_to<>,
                               pool::Allocator<std::pair<const std::uint32_t, One>>>;
All &all() REQUIRES(mutex) {
    static auto &records = pool::lasting<All>();
    return records;
}

constinit std::atomic<registry::Live *> lives[most_sockets]{};

// A child has no records of its parent's connections. What it has of them stays until it needs the place: it
// may free no memory here (Book::after_fork_in_child()).
const base::ForkHook whole_after_forks{base::ForkLevel::Stream,
                                       {.before =
                                            [] {
                                                mutex.take();
                                                registry::Book::instance().before_fork();
                                            },
                                        .after_in_parent =
                                            [] {
                                                registry::Book::instance().after_fork_in_parent();
                                                mutex.leave();
                                            },
                                        .after_in_child =
                                            [] {
                                                registry::Book::instance().after_fork_in_child();
                                                mutex.assert_held();
                                                for (const auto &[place, one] : all()) {
                                                    lives[place] = nullptr;
                                                }
                                                mutex.leave();
                                            }}};

using registry::Description;

Description description_of(int fd) {
    Description description{.kind = registry::Kind::Stream,
                            .state = registry::State::Connected,
                            .mode = registry::Mode::Carried,
                            .fd = fd};
    struct stat status{};
    description.inode = fstat(fd, &status) == 0 ? status.st_ino : 0;
    const auto ask = [fd](auto call, Description::Address &address) {
        socklen_t length = sizeof(address);
        (void)call(fd, reinterpret_cast<sockaddr *>(&address), &length);
    };
    ask(LIBC(getsockname), description.local);
    ask(LIBC(getpeername), description.peer);
    return description;
}

}  // namespace

void add(const Socket &socket, int fd) try {
    const std::uint32_t place = sockets.place_of(socket);
    const Held held{mutex};
    if (lives[place] != nullptr) {
        return;
    }
    One one{.entry = registry::Book::instance().add(), .description = description_of(fd)};
    registry::Live *const live = one.entry.live();
    if (live != nullptr) {
        live->phase = registry::Phase::Established;
        live->link = registry::Link::Tcp;
        one.entry.describe(one.description);
        all().insert_or_assign(place, std::move(one));
        lives[place] = live;
    }
} catch (const std::bad_alloc &) {
    BASE_LOG(Debug, "no memory is left for the record of a connection; other programs do not see it");
}

void tell(const Socket &socket, const char *reason) {
    const std::uint32_t place = sockets.place_of(socket);
    const Held held{mutex};
    if (const auto found = all().find(place); found != all().end() && lives[place] != nullptr) {
        Description &description = found->second.description;
        (void)std::snprintf(description.reason.data(), description.reason.size(), "%s", reason);
        found->second.entry.describe(description);
    }
}

void remove(const Socket &socket) {
    const std::uint32_t place = sockets.place_of(socket);
    if (lives[place].load(std::memory_order_relaxed) != nullptr &&
        lives[place].exchange(nullptr) != nullptr) {
        const Held held{mutex};
        all().erase(place);
    }
}

registry::Live *of(const Socket &socket) {
    return lives[sockets.place_of(socket)].load(std::memory_order_relaxed);
}

}  // namespace carry::records
