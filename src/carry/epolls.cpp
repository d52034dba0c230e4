// SPDX-License-Identifier: BSD-3-Clause
// carry/waits: epoll(7). The set is the kernel's. This file knows which TCP sockets are in it. A member whose
// socket has a link is in the kernel's set under the address of its Member, so that an event that a doorbell
// caused is known. The members that are `hot` may have bytes in their rings and have not asked for a
// doorbell: a wait looks at these, and asks for their doorbells before it sleeps.
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <new>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "base/mutex.hpp"
#include "carry/high_number.hpp"
#include "carry/looking.hpp"
#include "carry/sockets.hpp"
#include "carry/waits.hpp"

namespace carry {

namespace {

constexpr std::uint32_t to_read = EPOLLIN | EPOLLRDNORM;

struct Set;

struct Member {
    Set &set;
    int fd;
    Socket *socket;
    epoll_event wanted;
    bool is_linked = false;
    bool is_hot = false;
    bool sleeps = false;           // its peer rings
    unsigned quiet = 0;            // sleeps of the set in which nothing came
    bool is_disarmed = false;      // EPOLLONESHOT has had its event
    std::uint64_t told = 0;        // the bytes that had arrived at the last event
    epoll_event *found = nullptr;  // in the present wait

    [[nodiscard]] bool wants_to_read() const { return !is_disarmed && (wanted.events & to_read) != 0; }
    // Returns whether the ring has bytes of which the program is to be told.
    [[nodiscard]] bool is_ready() const {
        const std::uint64_t arrived = socket->arrived();
        return wants_to_read() && ((wanted.events & EPOLLET) == 0 || arrived != told) &&
               (socket->has_ring_bytes() || (socket->has_bytes() && socket->is_readable(fd)));
    }
};

struct Set {
    explicit Set(int number) : epoll{number} {}
    ~Set() {
        if (waker >= 0) {
            (void)LIBC(close)(waker);
        }
    }
    Set(const Set &) = delete;
    Set &operator=(const Set &) = delete;
    const int epoll;
    std::atomic<std::size_t> linked{0};
    std::unordered_map<int, std::unique_ptr<Member>> members;
    std::unordered_set<const void *> names;       // of those that the kernel has by their address
    std::vector<std::unique_ptr<Member>> closed;  // another number may keep it in the kernel's set
    std::vector<Member *> hot;
    int waker = -1;         // an eventfd in the set, under the set's address; ends a sleep
    std::size_t first = 0;  // of `hot`, to be looked at first
    unsigned sleepers = 0;  // threads
};

// One lock for all: it is held for as long as a look takes.
constinit base::LastingMutex mutex;

class SCOPED_CAPABILITY Held {
public:
    Held() ACQUIRE(mutex) { mutex.lock(); }
    ~Held() RELEASE(mutex) { mutex.unlock(); }
    Held(const Held &) = delete;
    Held &operator=(const Held &) = delete;

private:
    const HeldHandlers held_;
};

using Sets = std::unordered_map<int, std::shared_ptr<Set>>;
Sets &sets() REQUIRES(mutex) {
    static auto &all = *new Sets;
    return all;
}
// The members of each socket.
using Members = std::unordered_multimap<const Socket *, Member *>;
Members &members() REQUIRES(mutex) {
    static auto &all = *new Members;
    return all;
}
// How many numbers of sets there are.
constinit std::atomic<std::size_t> all_sets{0};
// How many sets have a socket with a link.
constinit std::atomic<std::size_t> linked_sets{0};

// The parent's threads sleep in the parent only.
void sleep_in_parent_only() REQUIRES(mutex) {
    for (const auto &[number, set] : sets()) {
        set->sleepers = 0;
        std::ranges::for_each(set->members, [](const auto &one) { one.second->sleeps = false; });
    }
}

const base::ForkHook whole_after_forks{base::ForkLevel::Rsocket,
                                       {.before = [] { mutex.take(); },
                                        .after_in_parent = [] { mutex.leave(); },
                                        .after_in_child =
                                            [] {
                                                mutex.assert_held();
                                                sleep_in_parent_only();
                                                mutex.leave();
                                            }}};

std::shared_ptr<Set> set_of(int epoll) REQUIRES(mutex) {
    const auto found = sets().find(epoll);
    return found != sets().end() ? found->second : nullptr;
}

Member *member_of(Set &set, int fd) REQUIRES(mutex) {
    const auto found = set.members.find(fd);
    return found != set.members.end() ? found->second.get() : nullptr;
}

void heat(Member &member) REQUIRES(mutex) {
    member.quiet = 0;
    if (!member.is_hot) {
        member.set.hot.push_back(&member);
        member.is_hot = true;
    }
}

void end_sleep_of(Member &member) REQUIRES(mutex) {
    if (std::exchange(member.sleeps, false)) {
        member.socket->end_sleep();
    }
}

void wake(Set &set) REQUIRES(mutex) {
    (void)eventfd_write(set.waker, 1);
}

// Makes the kernel name the member by its address.
void name_by_address(Member &member) REQUIRES(mutex) {
    Set &set = member.set;
    if (member.is_linked) {
        return;
    }
    if (set.waker < 0) {
        set.waker = high_number(LIBC(eventfd)(0, EFD_CLOEXEC | EFD_NONBLOCK));
        epoll_event woken{.events = EPOLLIN, .data = {.ptr = &set}};
        set.names.insert(&set);
        (void)LIBC(epoll_ctl)(set.epoll, EPOLL_CTL_ADD, set.waker, &woken);
    }
    // The counts come first: a thread that gets the new name knows then that there are names.
    linked_sets += set.linked++ == 0 ? 1 : 0;
    set.names.insert(&member);
    member.is_linked = true;
    epoll_event event = member.wanted;
    event.data.ptr = &member;
    (void)LIBC(epoll_ctl)(set.epoll, EPOLL_CTL_MOD, member.fd, &event);
    heat(member);
}

// Gives the member its own name again. Its events under the other name are known still.
void name_by_program(Member &member) REQUIRES(mutex) {
    Set &set = member.set;
    if (!member.is_linked) {
        return;
    }
    member.is_linked = false;
    linked_sets -= --set.linked == 0 ? 1 : 0;
    std::erase(set.hot, &member);
    end_sleep_of(member);
    member.is_hot = false;
    epoll_event event = member.wanted;
    if (member.is_disarmed) {
        event.events &= EPOLLONESHOT | EPOLLET;
    }
    (void)LIBC(epoll_ctl)(set.epoll, EPOLL_CTL_MOD, member.fd, &event);
}

// The kernel's set still has the member when `stays`: another number of the socket keeps it there.
void forget(Set &set, int fd, bool stays) REQUIRES(mutex) {
    const auto found = set.members.find(fd);
    if (found == set.members.end()) {
        return;
    }
    Member &member = *found->second;
    std::erase(set.hot, &member);
    end_sleep_of(member);
    const auto [first, last] = members().equal_range(member.socket);
    if (const auto own = std::find_if(first, last, [&](const auto &one) { return one.second == &member; });
        own != last) {
        members().erase(own);
    }
    if (member.is_linked) {
        linked_sets -= --set.linked == 0 ? 1 : 0;
    }
    if (stays) {
        set.closed.push_back(std::move(found->second));
    } else {
        set.names.erase(&member);
    }
    set.members.erase(found);
}

// Takes these numbers of sets away. A set without a number has no members; a thread may still wait for it.
template <typename Which>
void erase_sets(Which is_gone) REQUIRES(mutex) {
    std::vector<std::shared_ptr<Set>> gone;
    std::erase_if(sets(), [&](const auto &one) {
        const bool is_its = is_gone(one.first);
        if (is_its) {
            gone.push_back(one.second);
        }
        return is_its;
    });
    all_sets = sets().size();
    for (const auto &set : gone) {
        const bool has_number =
            std::ranges::any_of(sets(), [&](const auto &one) { return one.second == set; });
        while (!has_number && !set->members.empty()) {
            forget(*set, set->members.begin()->first, true);
        }
    }
}

// Writes the events of the rings. Returns how many.
std::size_t take_from_rings(Set &set, std::span<epoll_event> events) REQUIRES(mutex) {
    std::size_t count = 0;
    const std::size_t all = set.hot.size();
    for (std::size_t i = 0; i < all && count < events.size(); ++i) {
        Member &member = *set.hot[(set.first + i) % all];
        if (!member.is_ready()) {
            continue;
        }
        member.told = member.socket->arrived();
        member.quiet = 0;
        member.is_disarmed = (member.wanted.events & EPOLLONESHOT) != 0;
        member.found = &events[count++];
        *member.found = {.events = member.wanted.events & to_read, .data = member.wanted.data};
    }
    set.first = all != 0 ? (set.first + 1) % all : 0;
    return count;
}

// The kernel has disarmed the member for an event of which the program is not told.
void rearm(const Member &member) REQUIRES(mutex) {
    if ((member.wanted.events & EPOLLONESHOT) != 0 && !member.is_disarmed) {
        epoll_event event = member.wanted;
        event.data.ptr = const_cast<Member *>(&member);
        (void)LIBC(epoll_ctl)(member.set.epoll, EPOLL_CTL_MOD, member.fd, &event);
    }
}

// Turns the kernel's events into the program's, behind those of the rings. Returns how many there are in all.
std::size_t take_from_kernel(Set &set, std::span<epoll_event> events, std::size_t before) REQUIRES(mutex) {
    std::size_t count = before;
    for (const epoll_event event : events.subspan(before)) {
        if (!set.names.contains(event.data.ptr)) {
            events[count++] = event;
            continue;
        }
        if (event.data.ptr == &set) {
            eventfd_t wakes = 0;
            (void)eventfd_read(set.waker, &wakes);
            continue;
        }
        Member &member = *static_cast<Member *>(event.data.ptr);
        std::uint32_t found = event.events;
        if ((found & to_read) != 0) {
            heat(member);
            if (set.sleepers == 0) {
                end_sleep_of(member);
            }
            found &= member.socket->is_readable(member.fd) ? ~0U : ~to_read;
            member.told = member.socket->arrived();
        }
        if (found == 0 || (member.is_disarmed && member.found == nullptr)) {
            rearm(member);
            continue;
        }
        if (member.found != nullptr) {
            member.found->events |= found;
            continue;
        }
        member.is_disarmed = (member.wanted.events & EPOLLONESHOT) != 0;
        events[count++] = {.events = found, .data = member.wanted.data};
    }
    return count;
}

void end_wait(Set &set) REQUIRES(mutex) {
    for (Member *const member : set.hot) {
        member->found = nullptr;
    }
}

// The peers of all hot members ring from here on. Returns false when one has bytes.
bool begin_sleep_of(Set &set) REQUIRES(mutex) {
    ++set.sleepers;
    return std::ranges::all_of(set.hot, [](Member *const member) {
        if (!member->wants_to_read()) {
            return true;
        }
        if (member->sleeps) {  // another thread's sleep in the set
            return !member->is_ready();
        }
        member->sleeps = true;
        return member->socket->begin_sleep(member->fd) || !member->is_ready();
    });
}

// They need not ring any more, when no other thread sleeps here; but a member at which nothing came for some
// time is left asleep, so that a look does not take longer for it. One with bytes has not been rung for.
void end_sleep_of(Set &set) REQUIRES(mutex) {
    constexpr unsigned quiet_enough = 16;
    if (--set.sleepers != 0) {
        return;
    }
    for (Member *const member : set.hot) {
        member->is_hot = !member->sleeps || ++member->quiet <= quiet_enough || member->socket->has_bytes();
        if (member->is_hot) {
            end_sleep_of(*member);
        }
    }
    std::erase_if(set.hot, [](const Member *member) { return !member->is_hot; });
}

bool has_ready(const Set &set) REQUIRES(mutex) {
    return std::ranges::any_of(set.hot, [](const Member *member) { return member->is_ready(); });
}

class SetSleeps {
public:
    explicit SetSleeps(Set &set) : set_{set} {
        const Held held;
        has_nothing_ = begin_sleep_of(set);
    }
    ~SetSleeps() noexcept(false) {
        const Held held;
        end_sleep_of(set_);
    }
    SetSleeps(const SetSleeps &) = delete;
    SetSleeps &operator=(const SetSleeps &) = delete;
    // Returns whether there was nothing to read when it began.
    [[nodiscard]] bool has_nothing() const { return has_nothing_; }

private:
    Set &set_;
    bool has_nothing_ = false;
};

// The rings of a set's hot members, at which a wait looks without the lock. A Socket stays where it is when
// it ends.
class Hot {
public:
    void add(const Member &member) {
        if (count_ < std::ssize(all_) && member.wants_to_read()) {
            all_[static_cast<std::size_t>(count_++)] = {
                .socket = member.socket, .told = (member.wanted.events & EPOLLET) != 0 ? member.told : none};
        }
    }
    [[nodiscard]] bool has_bytes() const {
        return std::any_of(all_.begin(), all_.begin() + count_, [](const Ring &ring) {
            return ring.socket->has_bytes() && ring.socket->arrived() != ring.told;
        });
    }

private:
    static constexpr std::uint64_t none = UINT64_MAX;
    struct Ring {
        const Socket *socket;
        std::uint64_t told;
    };
    std::array<Ring, 64> all_;
    std::ptrdiff_t count_ = 0;
};

Hot hot_of(const Set &set) {
    const Held held;
    Hot hot;
    std::ranges::for_each(set.hot, [&](const Member *member) { hot.add(*member); });
    return hot;
}

int wait_in_kernel(int epoll, std::span<epoll_event> events, const timespec *timeout, const sigset_t *mask) {
    return LIBC(epoll_pwait2)(epoll, events.data(), static_cast<int>(events.size()), timeout, mask);
}

// One look at the rings and the kernel. Returns how many events it found, or -1.
int look_once(Set &set, std::span<epoll_event> events, const sigset_t *mask) {
    constexpr timespec at_once{};
    const Held held;
    std::size_t count = take_from_rings(set, events);
    if (count < events.size()) {  // the kernel would tell of all at once
        const int more = wait_in_kernel(set.epoll, events.subspan(count), &at_once, mask);
        if (more < 0 && count == 0) {
            return -1;
        }
        count =
            take_from_kernel(set, events.first(count + static_cast<std::size_t>(std::max(more, 0))), count);
    }
    end_wait(set);
    return static_cast<int>(count);
}

constinit std::atomic<bool> has_link{false};

}  // namespace

bool any_link() {
    return has_link.load(std::memory_order_relaxed);
}

int epolls::control(int epoll, int operation, int fd, epoll_event *event) {
    Socket *const socket = sockets.at(fd);
    if (socket == nullptr) {
        return LIBC(epoll_ctl)(epoll, operation, fd, event);
    }
    const Held held;
    std::shared_ptr<Set> set = set_of(epoll);
    Member *const member = set != nullptr ? member_of(*set, fd) : nullptr;
    epoll_event wanted = event != nullptr ? *event : epoll_event{};
    if (member != nullptr && member->is_linked && operation == EPOLL_CTL_MOD && event != nullptr) {
        wanted.data.ptr = member;
    }
    const int result = LIBC(epoll_ctl)(epoll, operation, fd, event != nullptr ? &wanted : nullptr);
    if (result != 0) {
        return result;
    }
    if (operation == EPOLL_CTL_DEL) {
        if (set != nullptr) {
            forget(*set, fd, false);
        }
        return result;
    }
    if ((event->events & EPOLLEXCLUSIVE) != 0) {
        socket->stay("a set has it with EPOLLEXCLUSIVE");
        return result;
    }
    if (operation == EPOLL_CTL_MOD && member != nullptr) {
        member->wanted = *event;
        member->is_disarmed = false;
        member->told = 0;
        if (member->is_linked) {
            heat(*member);
            if (set->sleepers != 0 && member->wants_to_read() && !std::exchange(member->sleeps, true) &&
                !socket->begin_sleep(fd) && member->is_ready()) {
                wake(*set);
            }
        }
        return result;
    }
    if (operation == EPOLL_CTL_ADD) {
        if (set == nullptr) {
            set = sets().emplace(epoll, std::make_shared<Set>(epoll)).first->second;
            all_sets = sets().size();
        }
        forget(*set, fd, false);  // of a socket that the program closed unseen
        auto &added = set->members[fd];
        added = std::make_unique<Member>(Member{.set = *set, .fd = fd, .socket = socket, .wanted = *event});
        members().emplace(socket, added.get());
        if (socket->is_linked()) {
            name_by_address(*added);
        }
    }
    return result;
}

bool epolls::is_set(int fd) {
    if (all_sets.load(std::memory_order_relaxed) == 0) {
        return false;
    }
    const Held held;
    return sets().contains(fd);
}

bool epolls::has_linked(int epoll) {
    if (linked_sets.load() == 0) {
        return false;
    }
    const Held held;
    const std::shared_ptr<Set> set = set_of(epoll);
    return set != nullptr && set->linked != 0;
}

bool epolls::has_names(int epoll) {
    if (!any_link()) {
        return false;
    }
    const Held held;
    const std::shared_ptr<Set> set = set_of(epoll);
    return set != nullptr && !set->names.empty();
}

bool epolls::is_ready(int epoll) {
    if (linked_sets.load() == 0) {
        return false;
    }
    const Held held;
    const std::shared_ptr<Set> set = set_of(epoll);
    return set != nullptr && has_ready(*set);
}

bool epolls::begin_sleep(int epoll) {
    if (!any_link()) {
        return true;
    }
    const Held held;
    const std::shared_ptr<Set> set = set_of(epoll);
    return set == nullptr || begin_sleep_of(*set);
}

void epolls::end_sleep(int epoll) {
    if (!any_link()) {
        return;
    }
    const Held held;
    if (const std::shared_ptr<Set> set = set_of(epoll); set != nullptr && set->sleepers != 0) {
        end_sleep_of(*set);
    }
}

int epolls::settle(int epoll, std::span<epoll_event> events) {
    const Held held;
    const std::shared_ptr<Set> set = set_of(epoll);
    return static_cast<int>(set != nullptr ? take_from_kernel(*set, events, 0) : events.size());
}

int epolls::wait(int epoll, std::span<epoll_event> events, const timespec *timeout, const sigset_t *mask) {
    std::shared_ptr<Set> set;
    {
        const Held held;
        set = set_of(epoll);
    }
    if (set == nullptr) {
        return wait_in_kernel(epoll, events, timeout, mask);
    }
    TimeLeft left{timeout};
    const Interruptions handlers;
    for (;;) {
        if (const int found = look_once(*set, events, mask); found != 0 || left.is_over()) {
            return found;
        }
        const Hot hot = hot_of(*set);
        if (look([&] { return hot.has_bytes(); })) {
            continue;
        }
        if (handlers.any()) {
            errno = EINTR;
            return -1;
        }
        int woken = 0;
        {
            const SetSleeps sleep{*set};
            woken = sleep.has_nothing() ? wait_in_kernel(epoll, events, left.now(), mask) : 0;
        }
        const int found = woken > 0 ? settle(epoll, events.first(static_cast<std::size_t>(woken))) : woken;
        if (found != 0) {
            return found;
        }
    }
}

void epolls::duplicated(int epoll, int number) {
    const Held held;
    if (const auto set = set_of(epoll); set != nullptr && number >= 0) {
        sets()[number] = set;
        all_sets = sets().size();
    }
}

void epolls::closed(int fd, bool has_more_numbers) {
    const Held held;
    erase_sets([fd](int number) { return number == fd; });
    Socket *const socket = sockets.at(fd);
    if (socket == nullptr) {
        return;
    }
    std::vector<Member *> own;
    const auto [first, last] = members().equal_range(socket);
    std::for_each(first, last, [&](const auto &one) {
        if (one.second->fd == fd) {
            own.push_back(one.second);
        }
    });
    // As in the kernel, the set that a child shares keeps what another process has.
    const bool stays = has_more_numbers || !socket->is_of_one_process();
    for (Member *const member : own) {
        if (!stays) {
            (void)LIBC(epoll_ctl)(member->set.epoll, EPOLL_CTL_DEL, fd, nullptr);
        }
        forget(member->set, fd, stays);
    }
}

void epolls::closed_between(unsigned first, unsigned last) {
    const Held held;
    erase_sets([&](int number) {
        return static_cast<unsigned>(number) >= first && static_cast<unsigned>(number) <= last;
    });
}

void epolls::linked(Socket &socket) {
    has_link = true;
    const Held held;
    const auto [first, last] = members().equal_range(&socket);
    for (auto one = first; one != last; ++one) {
        name_by_address(*one->second);
    }
}

void epolls::unlinked(Socket &socket) {
    const Held held;
    const auto [first, last] = members().equal_range(&socket);
    for (auto one = first; one != last; ++one) {
        name_by_program(*one->second);
    }
}

}  // namespace carry
