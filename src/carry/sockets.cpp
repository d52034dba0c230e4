// SPDX-License-Identifier: BSD-3-Clause
// carry/sockets: the table of the process, and what becomes of its Sockets when processes begin and end.
#include "carry/sockets.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/cancelling.hpp"
#include "base/clock.hpp"
#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "base/log.hpp"
#include "base/small_mutex.hpp"
#include "carry/high_number.hpp"
#include "carry/links.hpp"
#include "carry/meeting.hpp"
#include "carry/mirror.hpp"
#include "carry/own_calls.hpp"
#include "carry/records.hpp"
#include "carry/section.hpp"
#include "registry/book.hpp"

namespace carry {

constinit Sockets sockets;

namespace {

// Held while the table changes, and during a fork: a child has the Sockets that are in the table then.
constinit base::SmallMutex changing;

Totals ended GUARDED_BY(changing);

const base::ForkHook with_the_child{base::ForkLevel::Carry,
                                    {.before =
                                         [] {
                                             changing.take();
                                             sockets.fork();
                                         },
                                     .after_in_parent =
                                         [] {
                                             sockets.end_fork();
                                             changing.leave();
                                         },
                                     .after_in_child =
                                         [] {
                                             sockets.begin_as_child();
                                             changing.leave();
                                         }}};

// How many links may be of Sockets that this process has closed while others have them.
std::size_t closed_links GUARDED_BY(changing) = 0;

}  // namespace

Arena *Sockets::arena() {
    static Arena *const made = Arena::make();
    return made;
}

void Sockets::set(int fd, std::uint32_t place) {
    ++std::atomic_ref{numbers_[place]};
    std::atomic_ref{places_[fd]}.store(place);
    std::size_t end = end_.load();
    while (end <= static_cast<std::size_t>(fd) &&
           !end_.compare_exchange_weak(end, static_cast<std::size_t>(fd) + 1)) {
    }
}

void Sockets::made(int fd, Socket::Role role, bool blocks, bool is_smc) {
    if (fd < 0 || static_cast<std::size_t>(fd) >= most_numbers || base::is_in_parents_memory()) {
        return;
    }
    Arena *const memory = arena();
    const std::uint32_t place = memory != nullptr ? memory->take() : 0;
    if (place == 0) {
        return;
    }
    const HeldShortly whole{changing};
    if (arena_.load(std::memory_order_relaxed) == nullptr) {
        all_ = memory->all;
        arena_ = memory;
        id_ = Process::of_this();
        own_ = memory->enter(id_, space_of_processes());
    }
    memory->all[place].socket.begin(role, blocks, is_smc);
    if (own_ != 0) {
        memory->processes[own_].take(place);
    }
    std::atomic_ref{numbers_[place]}.store(0, std::memory_order_relaxed);
    set(fd, place);
}

void Sockets::hold() {
    changing.take();
}

void Sockets::release() {
    changing.leave();
}

int Sockets::number_of(std::uint32_t place) const {
    const bool has_any = std::atomic_ref{numbers_[place]}.load() != 0;
    for (std::size_t number = 0; has_any && number < end_.load(); ++number) {
        if (std::atomic_ref{places_[number]}.load(std::memory_order_relaxed) == place) {
            return static_cast<int>(number);
        }
    }
    return -1;
}

void Sockets::duplicated(int fd, int number) {
    if (Socket *const socket = at(fd); socket != nullptr && number >= 0 && number != fd &&
                                       static_cast<std::size_t>(number) < most_numbers &&
                                       !base::is_in_parents_memory()) {
        const Held whole{changing};
        set(number, place_of(*socket));
    }
}

bool Sockets::has_more_numbers(int fd) const {
    const Socket *const socket = at(fd);
    return socket != nullptr && (std::atomic_ref{numbers_[place_of(*socket)]}.load() & ~seen) > 1;
}

int Sockets::another_number(int fd) const {
    const Socket *const socket = at(fd);
    for (std::size_t number = 0; socket != nullptr && number < end_; ++number) {
        if (number != static_cast<std::size_t>(fd) && at(static_cast<int>(number)) == socket) {
            return static_cast<int>(number);
        }
    }
    return -1;
}

// Takes a number away. Returns whether it was the process's last of the Socket.
bool Sockets::take(int fd, Socket &socket, bool is_open) {
    const auto take_number = [&] {
        changing.assert_held();
        std::atomic_ref{places_[fd]}.store(0);
        const bool is_last = --std::atomic_ref{numbers_[place_of(socket)]} == 0;
        if (is_last) {
            ended.add(socket);
        }
        return is_last;
    };
    if (!socket.is_linked()) {
        const HeldShortly whole{changing};
        return take_number();
    }
    const Held whole{changing};
    const bool is_last = take_number();
    if (is_last && is_open && is_of_this_process(socket)) {
        socket.before_end(fd);
    }
    return is_last;
}

// A close(2) may sleep (SO_LINGER), and so is not the kernel's part of the call, which others wait for.
Sockets::Replaced Sockets::begin_replacing(int number) {
    changing.assert_held();
    const std::uint32_t place = place_at(number);
    std::atomic_ref{places_[number]}.store(replaced);
    if (place == 0) {
        return {};
    }
    const int error = errno;
    Replaced before{
        .socket = &socket(place), .is_last = std::atomic_ref{numbers_[place]} == 1, .lingers = -1};
    if (before.is_last) {
        if (before.socket->is_linked() && is_of_this_process(*before.socket)) {
            before.socket->before_end(number);
        }
        linger waits{};
        socklen_t size = sizeof(waits);
        if (LIBC(getsockopt)(number, SOL_SOCKET, SO_LINGER, &waits, &size) == 0 && waits.l_onoff != 0 &&
            waits.l_linger != 0) {
            before.lingers = LIBC(fcntl)(number, F_DUPFD_CLOEXEC, first_high_number());
        }
    }
    errno = error;
    return before;
}

// fd: what the number is now; -1: what it was before.
void Sockets::end_replacing(int fd, int number, const Replaced &before) {
    changing.assert_held();
    const std::uint32_t old = before.socket != nullptr ? place_of(*before.socket) : 0;
    const std::uint32_t place = fd >= 0 ? place_at(fd) : old;
    if (place != 0 && fd >= 0) {
        set(number, place);
    } else {
        std::atomic_ref{places_[number]}.store(place);
    }
    if (old != 0 && fd >= 0) {
        --std::atomic_ref{numbers_[old]};
        if (before.is_last) {
            ended.add(*before.socket);
        }
    } else if (before.lingers >= 0) {
        (void)LIBC(close)(before.lingers);
    }
}

// dup2(2) is no cancellation point.
void Sockets::close_replaced(const Replaced &before) {
    const base::Cancelling disabled{PTHREAD_CANCEL_DISABLE};
    if (before.lingers >= 0) {
        (void)LIBC(close)(before.lingers);
    }
    end(*before.socket);
}

bool Sockets::is_of_this_process(const Socket &socket) {
    if (!socket.is_of_one_process()) {
        arena_.load()->reap_dead(space_of_processes(),
                                 [place = place_of(socket)](const Process &one) { return one.has(place); });
    }
    return socket.is_of_one_process();
}

bool Sockets::one_process_less(Socket &socket) {
    if (own_ != 0) {
        arena_.load()->processes[own_].leave(place_of(socket));
    }
    return socket.one_process_less();
}

void Totals::add(const Socket &socket) {
    const Socket::Counts in = socket.received();
    const Socket::Counts out = socket.sent();
    const bool is_over_memory = in.by_memory + out.by_memory != 0;
    const bool is_over_device = in.by_device + out.by_device != 0;
    const bool is_over = is_over_memory || is_over_device;
    over_memory += is_over_memory ? 1 : 0;
    over_device += is_over_device ? 1 : 0;
    if (is_over || in.by_tcp + out.by_tcp != 0) {
        in_tcp += is_over ? 0 : 1;
        Reasons &all = is_over ? back_reasons : reasons;
        const char *const why = socket.why_in_tcp();
        auto *const reason = std::ranges::find_if(
            all, [why](const Reason &one) { return one.text == nullptr || one.text == why; });
        if (why != nullptr && reason != all.end()) {
            *reason = {.text = why, .count = reason->count + 1};
        }
    }
    back += socket.turns_back();
    const auto sum = [](Socket::Counts &all, const Socket::Counts &one) {
        all.by_memory += one.by_memory;
        all.by_device += one.by_device;
        all.by_tcp += one.by_tcp;
    };
    sum(received, in);
    sum(sent, out);
}

Totals Sockets::totals() const {
    const Held whole{changing};
    return ended;
}

void Sockets::count_from_here() {
    const Held whole{changing};
    ended = {};
}

void Sockets::end(Socket &socket) {
    records::remove(socket);
    const Link *const link = socket.mapped_link();
    const std::uint32_t number = socket.number();
    const std::uint32_t place = place_of(socket);
    if (link == nullptr) {
        if (one_process_less(socket) && socket.end()) {
            give_back(socket);
        }
        return;
    }
    (void)is_of_this_process(socket);
    links::Mapped *const mapped = links::find(link);
    socket.begin_use();  // nobody unmaps the link meanwhile
    if (mapped != nullptr) {
        const HeldShortly whole{changing};
        mapped->closed_number = number;
        mapped->closed_place = place;
    }
    if (one_process_less(socket)) {
        (void)socket.end();
    }
    socket.end_use();
    const HeldShortly whole{changing};
    if (mapped != nullptr && mapped->closed_place == place) {  // it is not unmapped
        ++closed_links;
    }
    unmap_closed();
}

// A link stays mapped until no process has its Socket, and no thread of this one is inside.
void Sockets::unmap_closed() {
    changing.assert_held();
    static base::Clock::time_point looked_at GUARDED_BY(changing);
    if (closed_links == 0) {
        return;
    }
    const auto now = base::Clock::now();
    if (now - looked_at < std::chrono::seconds{1}) {
        return;
    }
    looked_at = now;
    reap();
    closed_links = 0;
    // A process that was killed in a call counts as inside for good. Its memory is another one.
    const bool is_outside =
        handlers::of_thread.inside == 0 &&
        (__libc_single_threaded != 0 || (makes_own_calls && !Process::has_other_threads()));
    for (const links::Mapped &one : links::all) {
        const Link *const link = one.link;
        const std::uint32_t closed = one.closed_place;
        if (link == nullptr || closed == 0) {
            continue;
        }
        const Place &place = all_[closed];
        if (place.socket.number() != one.closed_number ||
            (place.socket.is_of_no_process() && (is_outside || place.locks.inside == 0))) {
            links::unmap(link);
        } else {
            ++closed_links;
        }
    }
}

void Sockets::give_back(const Socket &socket) {
    arena_.load()->give(place_of(socket));
}

// Calls use(one of its numbers, a Socket), once for each Socket of this process. A handler may call, so there
// is no list of them.
template <typename Use>
void Sockets::for_each(Use use) {
    if (arena_ == nullptr || base::is_in_parents_memory()) {
        return;
    }
    const Held whole{changing};
    for_all([&](int fd, Socket &socket) {
        if (const std::atomic_ref numbers{numbers_[place_of(socket)]}; (numbers & seen) == 0) {
            numbers |= seen;
            use(fd, socket);
        }
    });
    for_all([&](int, Socket &socket) { std::atomic_ref{numbers_[place_of(socket)]} &= ~seen; });
}

void Sockets::end_with_process() {
    static std::atomic<bool> has_ended{false};
    if (has_ended.exchange(true)) {
        return;
    }
    for_each([](int fd, Socket &socket) {
        if (sockets.is_of_this_process(socket)) {
            socket.before_end(fd);
        } else if (sockets.one_process_less(socket)) {
            sockets.one_more_process(socket, sockets.own_);  // as the last one it has it until it is reaped
        }
    });
    mirrors::drain();
}

// The process keeps what it alone has until it is reaped, whatever program it executes.
void Sockets::leave() {
    for_each([](int fd, Socket &socket) {
        socket.drop_doorbells(fd);
        if (sockets.own_ == 0 || !sockets.is_of_this_process(socket)) {
            (void)sockets.one_process_less(socket);
        }
    });
    mirrors::drain();
}

void Sockets::stay() {
    for_each([](int, Socket &socket) {
        if (sockets.own_ == 0 ||
            !sockets.arena_.load()->processes[sockets.own_].has(sockets.place_of(socket))) {
            sockets.one_more_process(socket, sockets.own_);
        }
    });
}

void Sockets::forget(int fd) {
    Socket *const socket = at(fd);
    if (socket == nullptr || base::is_in_parents_memory()) {
        return;
    }
    if (take(fd, *socket, false)) {
        end(*socket);
    }
}

void Sockets::fork() {
    if (Arena *const memory = arena_; memory != nullptr) {
        unborn_ = memory->next_unborn();
        child_ = memory->enter(unborn_, space_of_processes());
        for (std::uint32_t place = 1; place < memory->used.load() + 1 && place < most_sockets; ++place) {
            if (std::atomic_ref{numbers_[place]} != 0) {
                Meeting::before_fork(memory->all[place].socket);
                one_more_process(memory->all[place].socket, child_);
            }
        }
    }
}

namespace {
// Where the child of the thread's last fork is among the processes, and its id until it tells another one.
struct Unborn {
    std::uint32_t place = 0;  // 0: nowhere
    std::uint64_t id = 0;
};
[[gnu::tls_model("initial-exec")]] thread_local constinit Unborn last_child;
}  // namespace

void Sockets::end_fork() {
    last_child = {.place = std::exchange(child_, 0), .id = unborn_};
}

void Sockets::forked(pid_t child) {
    Arena *const memory = arena_;
    Unborn unborn = child != 0 ? std::exchange(last_child, {}) : Unborn{};
    if (memory == nullptr || unborn.place == 0 || base::is_in_parents_memory()) {
        return;
    }
    Process &one = memory->processes[unborn.place];
    if (child < 0) {
        memory->reap(one, unborn.id);
    } else if (space_of_processes() != Process::unborn) {
        const std::uint64_t born =
            std::uint64_t{space_of_processes()} << 32 | static_cast<std::uint32_t>(child);
        (void)one.id.compare_exchange_strong(unborn.id, born);
    }
}

void Sockets::begin_as_child() {
    if (Arena *const memory = arena_; memory != nullptr) {
        const int error = errno;
        const std::uint64_t id = makes_own_calls ? Process::of_this() : 0;
        errno = error;
        const bool is_known = Process::space_of(id) != 0;
        id_ = is_known ? id : unborn_;  // the parent tells the child's id then
        own_ = child_;
        if (own_ != 0 && is_known) {
            memory->processes[own_].id = id_;
        }
        for_all([](int, const Socket &socket) { Meeting::begin_as_child(socket); });
    }
}

void Sockets::reap() {
    if (Arena *const memory = arena_; memory != nullptr) {
        memory->reap_dead(space_of_processes(), [](const Process &) { return true; });
    }
}

void Sockets::make_no_own_calls() {
    reap();
    registry::Book::instance().leave_files();
    for_all([](int fd, Socket &socket) {
        socket.stay_in_tcp(fd);
        Meeting::forget_for_good(socket);
    });
    links::stay_mapped();
    makes_own_calls = false;
}

// The process gets a copy of the arena, at the same place. What it leaves in the other one is reaped with it.
void Sockets::share_no_more() {
    Arena *const memory = arena_;
    if (memory == nullptr) {
        return;
    }
    const Held whole{changing};
    if (!memory->has_others(own_)) {
        return;
    }
    for_all([](int, Socket &socket) { socket.before_copy(); });
    const auto has_number = [](std::uint32_t place) { return sockets.number_of(place) >= 0; };
    if (!memory->become_private(own_, has_number) || !mirrors::share_no_more(memory->used)) {
        BASE_LOG(Error, "the process has no memory to leave that of its former user: it ends");
        std::abort();
    }
    for_all([](int, Socket &socket) { socket.is_alone_now(); });
}

void Sockets::one_more_process(Socket &socket, std::uint32_t process) {
    socket.one_more_process();
    if (process != 0) {
        arena_.load()->processes[process].take(place_of(socket));
    }
}

}  // namespace carry
