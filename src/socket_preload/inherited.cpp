// SPDX-License-Identifier: BSD-3-Clause
#include "socket_preload/inherited.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <rpma/rsocket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/cancelling.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "base/signals.hpp"
#include "rsocket/process.hpp"
#include "socket_preload/carried.hpp"
#include "socket_preload/configuration.hpp"
#include "socket_preload/libc.hpp"
#include "socket_preload/reuse.hpp"
#include "socket_preload/stdio.hpp"

namespace socket_preload {

namespace {

constinit base::LastingMutex adopting;
const base::HeldWhileForking<adopting> whole_after_forks{base::ForkLevel::SocketPreload};
// No number from here on is of Kind::Inherited.
constinit std::atomic<int> end_of_inherited{0};

struct AtStart {
    AtStart() {
        if (carries_anything()) {
            (void)for_open_descriptors(inherit);
        }
    }
} at_start;

bool is_same(int one, int other) {
    struct stat of_one{};
    struct stat of_other{};
    return fstat(one, &of_one) == 0 && fstat(other, &of_other) == 0 && of_one.st_ino == of_other.st_ino &&
           of_one.st_dev == of_other.st_dev;
}

enum class Outcome { Rsocket, Lost, Failed };

// Lets librsocket know the socket as `first`.
Outcome make_rsocket(int first) {
    if (!rsockets::carries_stream(first)) {
        return radopt(first) == 0 ? Outcome::Rsocket : Outcome::Failed;
    }
    try {
        rsockets::add_lost(first);
        return Outcome::Lost;
    } catch (const std::bad_alloc &) {
        errno = ENOMEM;
        return Outcome::Failed;
    }
}

// Makes an rsocket of the socket of Kind::Inherited. The program may close one of its numbers, use that
// number for another descriptor, and keep a second one. So librsocket knows the socket by a number that the
// program does not have.
Outcome adopt(int fd) REQUIRES(adopting) {
    const int own = kept(LIBC(fcntl)(fd, F_DUPFD_CLOEXEC, 0));
    const int first = own >= 0 ? own : fd;
    const Outcome outcome = make_rsocket(first);
    if (outcome == Outcome::Failed) {
        descriptors.set(fd, Kind::Own);  // calls fail, and the peer sees no bytes that are no stream's
        return outcome;
    }
    descriptors.set(first, Kind::Rsocket);
    for (int number = 0; number < end_of_inherited.load(); ++number) {
        if (descriptors.kind(number) == Kind::Inherited && is_same(number, first)) {
            add_number(first, number, Kind::RsocketAgain);
        }
    }
    if (first != fd) {
        (void)close_carried(first, Kind::Rsocket);
    }
    return outcome;
}

}  // namespace

void inherit(int fd) {
    const int protocol = option_of(fd, SO_PROTOCOL);
    if (protocol != IPPROTO_TCP || !carries(option_of(fd, SO_DOMAIN), SOCK_STREAM, protocol)) {
        return;
    }
    descriptors.set(fd, Kind::Inherited);
    begin_standard_stream(fd);
    int end = end_of_inherited.load();
    while (end <= fd && !end_of_inherited.compare_exchange_weak(end, fd + 1)) {
    }
}

Kind adopted(int fd) {
    const base::HeldSignals held;  // a handler may fork, or use the descriptor
    const base::Cancelling disabled{PTHREAD_CANCEL_DISABLE};
    const int error = errno;
    base::Lock lock{adopting};
    if (descriptors.kind(fd) == Kind::Inherited && !base::is_in_parents_memory()) {
        const Outcome outcome = adopt(fd);
        lock.unlock();  // standard error may be this descriptor
        if (outcome == Outcome::Lost) {
            BASE_LOG(
                Warning,
                "descriptor %d: its stream stays with the process that began it, where it can be used; here "
                "it gives ECONNRESET",
                fd);
        } else if (outcome == Outcome::Failed) {
            BASE_LOG(Error, "descriptor %d: it cannot become an rsocket: %s", fd, std::strerror(errno));
        }
    }
    errno = error;
    return descriptors.kind(fd);
}

void take_rights(const msghdr &message) {
    if (message.msg_controllen == 0) {
        return;
    }
    auto *const whole = const_cast<msghdr *>(&message);  // not written to
    for (cmsghdr *part = CMSG_FIRSTHDR(whole); part != nullptr; part = CMSG_NXTHDR(whole, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(fd), sizeof(fd));
            inherit(fresh(fd));
        }
    }
}

}  // namespace socket_preload
