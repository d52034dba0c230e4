// SPDX-License-Identifier: BSD-3-Clause
// carry/waits: epoll(7). The set is the kernel's. This file knows which TCP sockets are in it. A member whose
// socket has a link is in the kernel's set under the address of its Member, so that an event that a doorbell
// caused is known. The members that are `hot` may have bytes in their rings and have not asked for a
// doorbell: a wait looks at these, and asks for their doorbells before it sleeps.
//
// Programs change a member's events with each message (redis-benchmark makes four calls of epoll_ctl for one
// request). Where the kernel's set has all events that are needed of it, a change of a member with a link
// stays here; it reaches the kernel before a thread sleeps. A member whose ring has room for what the program
// sends is ready for EPOLLOUT by that, and the kernel's set does not need this event.
//
// Most sockets are in one set, under one number, and end without a link. Such a socket has a Single in a
// table, and no Member: that is made when the socket is about to get a link, or is duplicated.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "base/small_mutex.hpp"
#include "carry/high_number.hpp"
#include "carry/looking.hpp"
#include "carry/pool.hpp"
#include "carry/section.hpp"
#include "carry/sockets.hpp"
#include "carry/waits.hpp"

namespace carry {

namespace {

constexpr std::uint32_t to_read = EPOLLIN | EPOLLRDNORM;
constexpr std::uint32_t to_write = EPOLLOUT | EPOLLWRNORM;

// A handler may make the calls that keep these.
template <typename T>
using Vector = std::vector<T, pool::Allocator<T>>;
template <typename Key, typename Value>
using KeyedBy = pool::Allocator<std::pair<const Key, Value>>;

struct Set;

// The kernel knows a member by the descriptor and the file that it was when it was added. Both stay when that
// number is closed, as long as any process has another number of the file.
struct Member {
    Set &set;
    int fd;
    Socket *socket;
    epoll_event wanted;            // by the program
    int number;                    // of the socket in this process; -1 when it has none any more
    std::uint32_t registered = 0;  // events in the kernel's set, with a link
    bool is_out = false;           // of the program's set, but in the kernel's
    bool is_changed = false;       // in `changed`
    bool is_linked = false;
    bool is_lasting = false;  // the kernel keeps it, under this name
    // A parent has it too, and says what the kernel knows of it. The program has not changed it here.
    bool is_parents = false;
    bool is_hot = false;
    bool sleeps = false;        // its peer rings
    unsigned quiet = 0;         // sleeps of the set in which nothing came
    bool is_disarmed = false;   // EPOLLONESHOT has had its event
    std::uint64_t told = none;  // the bytes that had come through the ring at the last event
    std::uint64_t told_by_tcp = none;
    epoll_event *found = nullptr;  // in the present wait

    static constexpr std::uint64_t none = UINT64_MAX;

    [[nodiscard]] bool has(std::uint32_t flag) const { return (wanted.events & flag) != 0; }
    [[nodiscard]] bool wants_to_read() const { return !is_disarmed && has(to_read); }
    // A change of an edge, or of EPOLLONESHOT, has an effect in the kernel's set.
    [[nodiscard]] static bool may_differ(std::uint32_t events) {
        return (events & (EPOLLET | EPOLLONESHOT)) == 0;
    }
    // Returns the events for which the ring has room.
    [[nodiscard]] std::uint32_t writable() const {
        const std::uint32_t asked = may_differ(wanted.events) ? wanted.events & to_write : 0;
        return asked != 0 && socket->has_room() ? asked : 0;
    }
    // Returns the events that the kernel's set has to have.
    [[nodiscard]] std::uint32_t needed() const { return wanted.events & ~writable(); }
    // Returns whether `fd` is the socket still, and not closed, or another one.
    [[nodiscard]] bool has_fd() const { return sockets.at(fd) == socket; }
    // Returns whether the ring has bytes of which the program is to be told.
    [[nodiscard]] bool is_ready() const {
        return wants_to_read() && (!has(EPOLLET) || socket->arrived() != told) &&
               (socket->has_ring_bytes() || (socket->has_bytes() && socket->is_readable(number)));
    }
    // The kernel says that the socket is readable. Returns whether the program is to be told: a doorbell
    // alone is nothing new for it.
    [[nodiscard]] bool takes_news(std::uint32_t events) {
        constexpr std::uint32_t ends = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
        const std::uint64_t by_tcp = has(EPOLLET) ? socket->arrived_by_tcp(number) : none;
        const std::uint64_t by_ring = socket->arrived();
        const bool is_new = !has(EPOLLET) || (events & ends) != 0 || by_tcp != told_by_tcp || by_ring != told;
        if (!is_new || !socket->is_readable(number)) {
            return false;
        }
        told = by_ring;
        told_by_tcp = by_tcp;
        return true;
    }
};

// A member of whose ring the program is to be told.
struct Ready {
    Member *member;
    std::uint32_t events;
    std::int64_t since;
};

struct Set {
    explicit Set(int number) : epoll{number}, id{++last_id} {}
    ~Set() {
        if (waker >= 0) {
            (void)LIBC(close)(waker);
        }
    }
    Set(const Set &) = delete;
    Set &operator=(const Set &) = delete;
    int epoll;
    const std::uint64_t id;  // no other set has had it
    static inline std::uint64_t last_id = 0;
    std::atomic<std::size_t> linked{0};
    using Key = std::pair<int, const Socket *>;
    std::map<Key, pool::Owned<Member>, std::less<>, KeyedBy<Key, pool::Owned<Member>>> members;
    // The kernel has the members of these by their address.
    std::unordered_set<const void *, std::hash<const void *>, std::equal_to<>, pool::Allocator<const void *>>
        names;
    // Members that were taken out. A wait of another thread may have an event of theirs.
    std::deque<pool::Owned<Member>, pool::Allocator<pool::Owned<Member>>> gone;
    Vector<pool::Owned<Member>> lasting;  // of sockets that another process may have
    Vector<Member *> hot;
    Vector<Ready> ready;       // for take_from_rings()
    Vector<Member *> changed;  // may have events in the kernel's set that are not needed
    int waker = -1;            // an eventfd in the set, under the set's address; ends a sleep
    std::size_t first = 0;     // of `hot`, to be looked at first
    unsigned sleepers = 0;     // threads
    bool is_member = false;    // of another set, which the kernel tells of this one
};

// One lock for all: it is held for as long as a look takes.
constinit base::SmallMutex mutex;

using Sets = std::unordered_map<int, std::shared_ptr<Set>, std::hash<int>, std::equal_to<>,
                                KeyedBy<int, std::shared_ptr<Set>>>;
Sets &sets() REQUIRES(mutex) {
    static auto &all = pool::lasting<Sets>();
    return all;
}
// The members of each socket.
using Members = std::unordered_multimap<const Socket *, Member *, std::hash<const Socket *>, std::equal_to<>,
                                        KeyedBy<const Socket *, Member *>>;
Members &members() REQUIRES(mutex) {
    static auto &all = pool::lasting<Members>();
    return all;
}
// The only place of a socket in a set that a Socket without a Member has. It is another socket's, and none,
// when that has ended.
struct Single {
    std::uint64_t set = 0;     // its id; 0: none
    std::uint32_t socket = 0;  // its number
    int fd = 0;
    epoll_event wanted{};
};
constinit std::array<Single, most_sockets> singles GUARDED_BY(mutex){};
// By the place of the socket: the number of one that has, or had, a Member.
constinit std::array<std::atomic<std::uint32_t>, most_sockets> with_members{};

Single &single_of(const Socket &socket) REQUIRES(mutex) {
    Single &single = singles[sockets.place_of(socket)];
    if (single.socket != socket.number()) {
        single = {};
    }
    return single;
}
bool has_members(const Socket &socket) {
    return with_members[sockets.place_of(socket)].load(std::memory_order_relaxed) == socket.number();
}

// Whether each number of a descriptor is a set's.
constinit std::array<bool, Sockets::most_numbers> are_sets{};
void mark_set(int number, bool is_one) {
    if (static_cast<std::size_t>(number) < are_sets.size()) {
        std::atomic_ref{are_sets[static_cast<std::size_t>(number)]}.store(is_one);
    }
}
// How many sets have a socket with a link.
constinit std::atomic<std::size_t> linked_sets{0};

std::shared_ptr<Set> set_of(int epoll) REQUIRES(mutex) {
    const auto found = sets().find(epoll);
    return found != sets().end() ? found->second : nullptr;
}

// Returns nullptr where the set is closed.
Set *set_with(std::uint64_t id) REQUIRES(mutex) {
    const auto found = std::ranges::find_if(sets(), [id](const auto &one) { return one.second->id == id; });
    return found != sets().end() ? found->second.get() : nullptr;
}

Member *member_of(Set &set, int fd, const Socket &socket) REQUIRES(mutex) {
    const auto found = set.members.find({fd, &socket});
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

// Makes the kernel name the member so, and registers the events. That arms it, as far as the program has not
// had its event.
void name(Member &member, epoll_data_t name, std::uint32_t events) REQUIRES(mutex) {
    member.registered = events;
    epoll_event event{.events = events, .data = name};
    if (member.is_disarmed) {
        event.events &= EPOLLONESHOT | EPOLLET;
    }
    (void)LIBC(epoll_ctl)(member.set.epoll, EPOLL_CTL_MOD, member.fd, &event);
}

void change(Member &member) REQUIRES(mutex) {
    if (!std::exchange(member.is_changed, true)) {
        member.set.changed.push_back(&member);
    }
}

// The waits of a set without a link are the kernel's alone, so it alone knows which members it has disarmed.
bool is_disarmed_in_kernel(const Member &member) {
    char path[64];
    (void)std::snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", member.set.epoll);
    const int file = LIBC(open)(path, O_RDONLY | O_CLOEXEC);
    Vector<char> text;
    std::array<char, 4096> part;
    for (ssize_t more = 1; file >= 0 && more > 0;) {
        more = LIBC(read)(file, part.data(), part.size());
        text.insert(text.end(), part.begin(), part.begin() + std::max<ssize_t>(more, 0));
    }
    if (file >= 0) {
        (void)LIBC(close)(file);
    }
    bool is_disarmed = false;
    for (auto line = text.begin(); line != text.end();) {
        const auto end = std::find(line, text.end(), '\n');
        if (end == text.end()) {
            break;
        }
        *end = '\0';
        int fd = -1;
        unsigned events = 0;
        unsigned long data = 0;
        // NOLINTNEXTLINE(cert-err34-c): the kernel writes numbers that the variables have
        if (std::sscanf(&*line, "tfd: %d events: %x data: %lx", &fd, &events, &data) == 3 &&
            fd == member.fd && data == member.wanted.data.u64) {
            is_disarmed = (events & ~(EPOLLONESHOT | EPOLLET)) == 0;
        }
        line = end + 1;
    }
    return is_disarmed;
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
    member.is_parents = false;  // who takes a link shares the socket with nobody
    member.is_disarmed = member.has(EPOLLONESHOT) && (member.is_disarmed || is_disarmed_in_kernel(member));
    if (member.has_fd()) {
        name(member, {.ptr = &member}, member.needed());
    }
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
    // A change would arm a disarmed member for errors; the program names it when it arms it.
    if (member.has_fd() && !member.is_disarmed && !member.is_parents) {
        name(member, member.wanted.data, member.wanted.events);
    }
}

// A child that has its parent's sockets, and unlinks one, leaves the name to the parent, which renames the
// member when it sees that.
void rename_unlinked(Set &set) REQUIRES(mutex) {
    for (std::size_t i = set.hot.size(); i != 0; --i) {
        if (Member &member = *set.hot[i - 1]; !member.socket->is_linked()) {
            name_by_program(member);
        }
    }
}

// The kernel's set keeps the member of a socket that was passed on (SCM_RIGHTS). A new name would have it
// tell of an edge once more.
void end_names_of(Member &member) REQUIRES(mutex) {
    if (member.is_linked && member.has(EPOLLET) && member.socket->is_passed_on()) {
        member.is_lasting = true;
    } else {
        name_by_program(member);
    }
}

// This process cannot read from the member's socket any more.
void detach(Member &member) REQUIRES(mutex) {
    std::erase(member.set.hot, &member);
    std::erase(member.set.changed, &member);
    member.is_hot = member.is_changed = false;
    end_sleep_of(member);
    const auto [first, last] = members().equal_range(member.socket);
    if (const auto own = std::find_if(first, last, [&](const auto &one) { return one.second == &member; });
        own != last) {
        members().erase(own);
    }
    if (std::exchange(member.is_linked, false)) {
        linked_sets -= --member.set.linked == 0 ? 1 : 0;
    }
    member.number = -1;
}

void forget(Member &member) REQUIRES(mutex) {
    constexpr std::size_t most_gone = 256;
    Set &set = member.set;
    detach(member);
    const auto found = set.members.find({member.fd, member.socket});
    if (member.is_lasting) {
        set.lasting.push_back(std::move(found->second));
    } else if (set.names.contains(&member)) {
        set.gone.push_back(std::move(found->second));
    }
    set.members.erase(found);
    if (set.gone.size() > most_gone) {
        set.names.erase(set.gone.front().get());
        set.gone.pop_front();
    }
}

// The kernel's set becomes the program's.
void tell_kernel(Set &set) REQUIRES(mutex) {
    while (!set.changed.empty()) {
        Member &member = *set.changed.back();
        set.changed.pop_back();
        member.is_changed = false;
        if (member.is_out) {
            (void)LIBC(epoll_ctl)(set.epoll, EPOLL_CTL_DEL, member.fd, nullptr);
            forget(member);
        } else if (const std::uint32_t needed = member.needed(); needed != member.registered) {
            name(member, {.ptr = &member}, needed);
        }
    }
}

Member &add_member(Set &set, int fd, Socket &socket, const epoll_event &wanted) REQUIRES(mutex) {
    auto made = pool::own(Member{.set = set, .fd = fd, .socket = &socket, .wanted = wanted, .number = fd});
    Member &member = *set.members.insert_or_assign({fd, &socket}, std::move(made)).first->second;
    members().emplace(&socket, &member);
    with_members[sockets.place_of(socket)].store(socket.number(), std::memory_order_relaxed);
    return member;
}

// The Single of the socket, if it has one, becomes a Member.
void make_member(Socket &socket) REQUIRES(mutex) {
    const Single single = std::exchange(single_of(socket), {});
    if (Set *const set = single.set != 0 ? set_with(single.set) : nullptr; set != nullptr) {
        (void)add_member(*set, single.fd, socket, single.wanted);
    }
}

std::shared_ptr<Set> make_set(int epoll) REQUIRES(mutex) {
    auto made = sets().emplace(epoll, std::allocate_shared<Set>(pool::Allocator<Set>{}, epoll)).first->second;
    mark_set(epoll, true);
    return made;
}

// Returns whether the descriptor, a member of `other`, is a set as well: only a set has members.
bool is_epoll(int fd, int other) {
    const int error = errno;
    const bool is_one = LIBC(epoll_ctl)(fd, EPOLL_CTL_DEL, other, nullptr) != 0 && errno == ENOENT;
    errno = error;
    return is_one;
}

// The member's bytes come through TCP from here on. Where its ring has some, the set is readable by its
// waker.
void keep_in_tcp(Member &member) REQUIRES(mutex) {
    if (member.socket->is_kernels(member.number)) {
        name_by_program(member);
    } else if (member.is_linked) {
        wake(member.set);
    }
}

// The set is a member of another one.
void becomes_member(int epoll) {
    const Held held{mutex};
    std::shared_ptr<Set> set = set_of(epoll);
    if (set == nullptr) {
        set = make_set(epoll);
    }
    set->is_member = true;
    tell_kernel(*set);
    sockets.for_all([&](int, Socket &socket) {
        mutex.assert_held();
        if (single_of(socket).set == set->id) {
            make_member(socket);
        }
    });
    for (const auto &[key, member] : set->members) {
        if (member->number >= 0) {
            keep_in_tcp(*member);
        }
    }
}

// The parent's threads sleep in the parent only, and it needs its names.
void leave_sets_to_parent() REQUIRES(mutex) {
    for (const auto &[number, set] : sets()) {
        set->sleepers = 0;
        std::ranges::for_each(set->members, [](const auto &one) {
            one.second->sleeps = false;
            one.second->is_parents = true;
        });
    }
}

// A child does not change its parent's members, so the kernel's set has all that the child may wait for.
void register_all() REQUIRES(mutex) {
    for (const auto &[number, set] : sets()) {
        std::ranges::for_each(set->members, [](const auto &one) {
            mutex.assert_held();
            Member &member = *one.second;
            if (member.is_linked && !member.is_parents && member.has_fd() &&
                (member.wanted.events & ~member.registered) != 0) {
                name(member, {.ptr = &member}, member.wanted.events);
            }
        });
    }
}

// A member that is out is forgotten then.
void tell_kernel_of(const Socket &socket) REQUIRES(mutex) {
    Vector<Set *> with;
    const auto [first, last] = members().equal_range(&socket);
    std::for_each(first, last, [&](const auto &one) { with.push_back(&one.second->set); });
    for (Set *const set : with) {
        tell_kernel(*set);
    }
}

void tell_kernel_of_all() REQUIRES(mutex) {
    for (const auto &[number, set] : sets()) {
        tell_kernel(*set);
    }
}

// A child has the kernel's sets with its parent.
const base::ForkHook whole_after_forks{base::ForkLevel::Rsocket,
                                       {.before =
                                            [] {
                                                mutex.take();
                                                mutex.assert_held();
                                                tell_kernel_of_all();
                                                register_all();
                                            },
                                        .after_in_parent = [] { mutex.leave(); },
                                        .after_in_child =
                                            [] {
                                                mutex.assert_held();
                                                leave_sets_to_parent();
                                                mutex.leave();
                                            }}};

// Takes these numbers of sets away. A set without a number has no members; a thread may still wait for it.
template <typename Which>
void erase_sets(Which is_gone) REQUIRES(mutex) {
    Vector<std::shared_ptr<Set>> gone;
    std::erase_if(sets(), [&](const auto &one) {
        const bool is_its = is_gone(one.first);
        if (is_its) {
            gone.push_back(one.second);
            mark_set(one.first, false);
        }
        return is_its;
    });
    for (const auto &set : gone) {
        const auto other = std::ranges::find_if(sets(), [&](const auto &one) { return one.second == set; });
        if (other != sets().end()) {
            set->epoll = other->first;
            continue;
        }
        while (!set->members.empty()) {
            forget(*set->members.begin()->second);
        }
    }
}

// Writes the events of the rings, in the order in which the bytes came, as the kernel does. Returns how many.
std::size_t take_from_rings(Set &set, std::span<epoll_event> events) REQUIRES(mutex) {
    set.ready.clear();
    rename_unlinked(set);
    const std::size_t all = set.hot.size();
    for (std::size_t i = 0; i < all && set.ready.size() < events.size(); ++i) {
        Member &member = *set.hot[(set.first + i) % all];
        const bool is_readable = member.is_ready();
        const std::uint32_t writable = member.writable();
        if ((member.needed() & ~member.registered) != 0 && member.has_fd() && !member.is_parents) {
            name(member, {.ptr = &member}, member.needed());  // the ring has no more room
        }
        if (!is_readable && writable == 0) {
            continue;
        }
        if (is_readable) {
            member.told = member.socket->arrived();
            if (member.has(EPOLLET) && member.socket->is_partly_in_tcp()) {
                member.told_by_tcp = member.socket->arrived_by_tcp(member.number);
            }
            member.quiet = 0;
            member.is_disarmed = member.has(EPOLLONESHOT);
        }
        set.ready.push_back({.member = &member,
                             .events = (is_readable ? member.wanted.events & to_read : 0) | writable,
                             .since = is_readable ? member.socket->filled_at() : 0});
    }
    set.first = all != 0 ? (set.first + 1) % all : 0;
    std::ranges::sort(set.ready, {}, &Ready::since);
    auto event = events.begin();
    for (const Ready &one : set.ready) {
        *event = {.events = one.events, .data = one.member->wanted.data};
        one.member->found = &*event++;
    }
    return set.ready.size();
}

// The kernel has disarmed the member for an event of which the program is not told.
void rearm(Member &member) REQUIRES(mutex) {
    if (member.has(EPOLLONESHOT) && !member.is_disarmed && member.is_linked && member.has_fd()) {
        name(member, {.ptr = &member}, member.registered);
    }
}

// Turns the kernel's events into the program's, behind those of the rings. Returns how many there are in all.
std::size_t take_from_kernel(Set &set, std::span<epoll_event> events, std::size_t before) REQUIRES(mutex) {
    std::size_t count = before;
    for (const epoll_event event : events.subspan(before)) {
        const void *const name = event.data.ptr;  // its place in an epoll_event is not aligned
        if (!set.names.contains(name)) {
            events[count++] = event;
            continue;
        }
        if (name == &set) {
            eventfd_t wakes = 0;
            (void)eventfd_read(set.waker, &wakes);
            continue;
        }
        Member &member = *static_cast<Member *>(event.data.ptr);
        if (member.is_out) {
            continue;
        }
        // The event may have disarmed it, or stand among the events already.
        if (!member.socket->is_linked() && !member.has(EPOLLONESHOT) && member.found == nullptr) {
            name_by_program(member);
        }
        std::uint32_t found = event.events & (member.wanted.events | EPOLLERR | EPOLLHUP);
        if ((found & EPOLLHUP) != 0 && member.is_linked) {
            found = static_cast<std::uint16_t>(member.socket->events_of(static_cast<short>(found)));
        }
        if ((found & to_read) != 0 && member.is_linked) {
            heat(member);
            if (set.sleepers == 0) {
                end_sleep_of(member);
            }
            found &= member.takes_news(found) ? ~0U : ~to_read;
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
    tell_kernel(set);
    return std::ranges::all_of(set.hot, [](Member *const member) {
        if (member->writable() != 0 || !member->socket->is_linked()) {
            return false;
        }
        if (!member->wants_to_read()) {
            return true;
        }
        // Another thread may sleep in the set.
        const bool has_slept = std::exchange(member->sleeps, true);
        return ((!has_slept && member->socket->begin_sleep(member->number)) || !member->is_ready()) &&
               !member->socket->has_unexplained(member->number);
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
        const bool waits_for_room = (member->needed() & ~member->registered) != 0;
        member->is_hot = !member->sleeps || waits_for_room || ++member->quiet <= quiet_enough ||
                         member->socket->has_bytes();
        if (member->is_hot) {
            end_sleep_of(*member);
        }
    }
    std::erase_if(set.hot, [](const Member *member) { return !member->is_hot; });
}

bool has_ready(const Set &set) REQUIRES(mutex) {
    return std::ranges::any_of(
        set.hot, [](const Member *member) { return member->is_ready() || member->writable() != 0; });
}

class SetSleeps {
public:
    explicit SetSleeps(Set &set) : set_{set} {
        const Held held{mutex};
        has_nothing_ = begin_sleep_of(set);
    }
    ~SetSleeps() noexcept(false) {
        const Held held{mutex};
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
                .socket = member.socket, .told = member.has(EPOLLET) ? member.told : Member::none};
        }
    }
    [[nodiscard]] bool has_bytes() const {
        return std::any_of(all_.begin(), all_.begin() + count_, [](const Ring &ring) {
            return ring.socket->has_bytes() && ring.socket->arrived() != ring.told;
        });
    }

private:
    struct Ring {
        const Socket *socket;
        std::uint64_t told;
    };
    std::array<Ring, 64> all_;
    std::ptrdiff_t count_ = 0;
};

Hot hot_of(const Set &set) {
    const Held held{mutex};
    Hot hot;
    std::ranges::for_each(set.hot, [&](const Member *member) { hot.add(*member); });
    return hot;
}

// A filter of system calls may allow only the older ones, which count milliseconds.
int wait_in_kernel(int epoll, std::span<epoll_event> events, const timespec *timeout, const sigset_t *mask) {
    const auto size = static_cast<int>(events.size());
    if (makes_own_calls) {
        return LIBC(epoll_pwait2)(epoll, events.data(), size, timeout, mask);
    }
    const auto time =
        timeout != nullptr
            ? std::chrono::ceil<std::chrono::milliseconds>(std::chrono::seconds{timeout->tv_sec} +
                                                           std::chrono::nanoseconds{timeout->tv_nsec})
                  .count()
            : -1;
    const auto milliseconds = static_cast<int>(std::min<std::int64_t>(time, INT_MAX));
    return mask == nullptr ? LIBC(epoll_wait)(epoll, events.data(), size, milliseconds)
                           : LIBC(epoll_pwait)(epoll, events.data(), size, milliseconds, mask);
}

// One look at the rings and the kernel. Returns how many events it found, or -1.
int look_once(Set &set, std::span<epoll_event> events, const sigset_t *mask) {
    constexpr timespec at_once{};
    const Held held{mutex};
    std::size_t count = take_from_rings(set, events);
    const bool wakes = set.is_member && count != 0;
    if (count < events.size()) {  // the kernel would tell of all at once
        // A wait that finds something lets no signal through.
        const int more =
            wait_in_kernel(set.epoll, events.subspan(count), &at_once, count == 0 ? mask : nullptr);
        if (more < 0 && count == 0) {
            return -1;
        }
        count =
            take_from_kernel(set, events.first(count + static_cast<std::size_t>(std::max(more, 0))), count);
    }
    if (wakes) {
        wake(set);  // the program may not read all
    }
    end_wait(set);
    return static_cast<int>(count);
}

// The program has set the events of a member with a link.
void begin_events(Member &member) REQUIRES(mutex) {
    Set &set = member.set;
    member.is_disarmed = member.is_parents = false;
    member.told = member.told_by_tcp = Member::none;
    heat(member);
    if (set.sleepers == 0) {
        return;
    }
    const bool has_bytes = member.wants_to_read() && !std::exchange(member.sleeps, true) &&
                           !member.socket->begin_sleep(member.number) && member.is_ready();
    if (has_bytes || member.writable() != 0) {
        wake(set);
    }
}

// Makes a change of a member with a link. Returns nothing where the kernel's set has to change at once.
std::optional<int> change_here(Member &member, int operation, const epoll_event *event) REQUIRES(mutex) {
    const bool adds = operation == EPOLL_CTL_ADD;
    if (member.is_out && !adds) {
        errno = ENOENT;
        return -1;
    }
    if (operation == EPOLL_CTL_DEL && Member::may_differ(member.wanted.events)) {
        member.is_out = true;
        member.wanted.events = 0;
        change(member);
        return 0;
    }
    const bool is_change = event != nullptr && (adds ? member.is_out : operation == EPOLL_CTL_MOD);
    if (!is_change || !Member::may_differ(event->events | member.wanted.events) ||
        (event->events & EPOLLEXCLUSIVE) != 0) {
        tell_kernel(member.set);
        return std::nullopt;
    }
    member.is_out = false;
    member.wanted = *event;
    if (const std::uint32_t needed = member.needed(); (needed & ~member.registered) != 0) {
        name(member, {.ptr = &member}, needed);
    } else if (needed != member.registered) {
        change(member);
    }
    begin_events(member);
    return 0;
}

// Makes a change of a socket that has one place in a set, or none, and no Member. Returns nothing where a
// Member has to be made for it.
std::optional<int> change_single(int epoll, int operation, int fd, const Socket &socket, epoll_event *event) {
    const HeldShortly held{mutex};
    const auto found = sets().find(epoll);
    if (found == sets().end() || has_members(socket) || socket.is_linked() || found->second->is_member ||
        (event == nullptr && operation != EPOLL_CTL_DEL)) {
        return std::nullopt;
    }
    const std::uint64_t set = found->second->id;
    Single &single = single_of(socket);
    const bool adds = operation == EPOLL_CTL_ADD;
    if (adds ? single.set != 0 || (event->events & EPOLLEXCLUSIVE) != 0
             : single.set != set || single.fd != fd) {
        return std::nullopt;
    }
    const int result = LIBC(epoll_ctl)(epoll, operation, fd, event);
    if (result == 0) {
        single = operation == EPOLL_CTL_DEL
                     ? Single{}
                     : Single{.set = set, .socket = socket.number(), .fd = fd, .wanted = *event};
    }
    return result;
}

}  // namespace

constinit std::atomic<bool> has_link{false};

int epolls::control(int epoll, int operation, int fd, epoll_event *event) {
    Socket *const socket = sockets.at(fd);
    if (socket == nullptr) {
        const int result = LIBC(epoll_ctl)(epoll, operation, fd, event);
        if (result == 0 && operation == EPOLL_CTL_ADD && is_epoll(fd, epoll)) {
            becomes_member(fd);
        }
        return result;
    }
    if (const auto result = change_single(epoll, operation, fd, *socket, event)) {
        return *result;
    }
    const Held held{mutex};
    make_member(*socket);
    std::shared_ptr<Set> set = set_of(epoll);
    Member *member = set != nullptr ? member_of(*set, fd, *socket) : nullptr;
    if (member != nullptr && member->is_linked) {
        if (const auto result = change_here(*member, operation, event)) {
            if (set->is_member) {
                tell_kernel(*set);
            }
            return *result;
        }
        member = member_of(*set, fd, *socket);
    }
    epoll_event wanted = event != nullptr ? *event : epoll_event{};
    if (member != nullptr && member->is_linked && operation == EPOLL_CTL_MOD && event != nullptr) {
        wanted.data.ptr = member;
    }
    const int result = LIBC(epoll_ctl)(epoll, operation, fd, event != nullptr ? &wanted : nullptr);
    if (result != 0) {
        return result;
    }
    if (operation == EPOLL_CTL_DEL) {
        if (member != nullptr) {
            forget(*member);
        }
        return result;
    }
    if ((event->events & EPOLLEXCLUSIVE) != 0) {
        socket->stay("a set has it with EPOLLEXCLUSIVE");
        return result;
    }
    if (operation == EPOLL_CTL_MOD && member != nullptr) {
        member->wanted = *event;
        member->registered = event->events;
        member->is_disarmed = member->is_parents = false;
        if (member->is_linked) {
            begin_events(*member);
        }
        return result;
    }
    if (operation == EPOLL_CTL_ADD) {
        if (set == nullptr) {
            set = make_set(epoll);
        }
        if (member != nullptr) {
            forget(*member);  // of a socket that the program closed unseen
        }
        Member &added = add_member(*set, fd, *socket, *event);
        if (socket->is_linked()) {
            name_by_address(added);
        }
        if (set->is_member) {
            keep_in_tcp(added);
        }
    }
    return result;
}

bool epolls::is_set(int fd) {
    const auto number = static_cast<std::size_t>(fd);  // negative: larger than all
    return number < are_sets.size() && std::atomic_ref{are_sets[number]}.load(std::memory_order_relaxed);
}

// As in the kernel, the set keeps a file of which there is another number, here or in another process.
bool epolls::concerns(int fd, const Socket *socket, bool has_more_numbers) {
    return is_set(fd) ||
           (socket != nullptr && (has_members(*socket) || has_more_numbers || !socket->is_of_one_process()));
}

bool epolls::has_linked(int epoll) {
    if (linked_sets.load() == 0) {
        return false;
    }
    const Held held{mutex};
    const std::shared_ptr<Set> set = set_of(epoll);
    return set != nullptr && set->linked != 0;
}

bool epolls::has_names(int epoll) {
    if (!any_link()) {
        return false;
    }
    const Held held{mutex};
    const std::shared_ptr<Set> set = set_of(epoll);
    return set != nullptr && !set->names.empty();
}

bool epolls::is_ready(int epoll) {
    if (linked_sets.load() == 0) {
        return false;
    }
    const Held held{mutex};
    const std::shared_ptr<Set> set = set_of(epoll);
    return set != nullptr && has_ready(*set);
}

bool epolls::begin_sleep(int epoll) {
    if (!any_link()) {
        return true;
    }
    const Held held{mutex};
    const std::shared_ptr<Set> set = set_of(epoll);
    return set == nullptr || begin_sleep_of(*set);
}

void epolls::end_sleep(int epoll) {
    if (!any_link()) {
        return;
    }
    const Held held{mutex};
    if (const std::shared_ptr<Set> set = set_of(epoll); set != nullptr && set->sleepers != 0) {
        end_sleep_of(*set);
    }
}

void epolls::tell_kernel(int epoll) {
    if (linked_sets.load() == 0) {
        return;
    }
    const Held held{mutex};
    if (const std::shared_ptr<Set> set = set_of(epoll); set != nullptr) {
        carry::tell_kernel(*set);
    }
}

int epolls::settle(int epoll, std::span<epoll_event> events) {
    const Held held{mutex};
    const std::shared_ptr<Set> set = set_of(epoll);
    return static_cast<int>(set != nullptr ? take_from_kernel(*set, events, 0) : events.size());
}

int epolls::wait(int epoll, std::span<epoll_event> events, const timespec *timeout, const sigset_t *mask) {
    std::shared_ptr<Set> set;
    {
        const Held held{mutex};
        set = set_of(epoll);
    }
    if (set == nullptr) {
        return wait_in_kernel(epoll, events, timeout, mask);
    }
    TimeLeft left{timeout};
    const Interruptions handlers;
    bool has_looked = false;
    for (;;) {
        if (const int found = look_once(*set, events, mask); found != 0 || left.is_over()) {
            return found;
        }
        // The look may have found the beginning of a turn whose bytes have not come.
        const Hot hot = hot_of(*set);
        has_looked = !has_looked && look([&] { return hot.has_bytes(); });
        if (has_looked) {
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
    const Held held{mutex};
    if (const auto set = set_of(epoll); set != nullptr && number >= 0) {
        sets()[number] = set;
        mark_set(number, true);
    }
}

void epolls::closed(int fd, bool has_more_numbers) {
    const Held held{mutex};
    if (is_set(fd)) {
        erase_sets([fd](int number) { return number == fd; });
    }
    Socket *const socket = sockets.at(fd);
    if (socket == nullptr) {
        return;
    }
    const bool stays = has_more_numbers || !socket->is_of_one_process();
    if (stays) {
        make_member(*socket);
    } else {
        single_of(*socket) = {};
    }
    if (!members().contains(socket)) {
        return;
    }
    tell_kernel_of(*socket);
    Vector<Member *> all;
    const auto [first, last] = members().equal_range(socket);
    std::for_each(first, last, [&](const auto &one) { all.push_back(one.second); });
    const int other = sockets.another_number(fd);
    for (Member *const member : all) {
        if (!stays) {
            end_names_of(*member);
            forget(*member);
        } else if (other < 0) {
            detach(*member);
        } else if (member->number == fd) {
            member->number = other;
        }
    }
}

void epolls::before_exec() {
    const Held held{mutex};
    tell_kernel_of_all();
    for (const auto &[number, set] : sets()) {
        std::ranges::for_each(set->members, [](const auto &one) {
            mutex.assert_held();
            if (!one.second->is_parents) {
                name_by_program(*one.second);
            }
        });
    }
}

void epolls::after_failed_exec() {
    const Held held{mutex};
    for (const auto &[number, set] : sets()) {
        for (const auto &[key, member] : set->members) {
            if (member->number >= 0 && member->socket->is_linked()) {
                name_by_address(*member);
            }
        }
    }
}

void epolls::closed_between(unsigned first, unsigned last) {
    const Held held{mutex};
    erase_sets([&](int number) {
        return static_cast<unsigned>(number) >= first && static_cast<unsigned>(number) <= last;
    });
}

bool epolls::may_rename(Socket &socket, int fd) {
    constexpr std::size_t most_with_one_shot = 1024;  // the kernel tells of each member
    const auto has_news = [fd] {
        pollfd one{.fd = fd, .events = POLLIN | POLLPRI | POLLRDHUP, .revents = 0};
        return LIBC(poll)(&one, 1, 0) != 0;
    };
    const Held held{mutex};
    make_member(socket);
    const auto [first, last] = members().equal_range(&socket);
    return std::all_of(first, last, [&](const auto &one) {
        const Member &member = *one.second;
        return (member.has_fd() || member.is_linked) && (!member.has(EPOLLET) || !has_news()) &&
               (!member.has(EPOLLONESHOT) || member.set.members.size() <= most_with_one_shot);
    });
}

void epolls::shuts_down(Socket &socket) {
    if (!any_link()) {
        return;
    }
    const Held held{mutex};
    const auto [first, last] = members().equal_range(&socket);
    std::for_each(first, last,
                  [](const auto &one) { one.second->told = one.second->told_by_tcp = Member::none; });
}

void epolls::linked(Socket &socket) {
    has_link = true;
    const Held held{mutex};
    make_member(socket);
    const auto [first, last] = members().equal_range(&socket);
    for (auto one = first; one != last; ++one) {
        if (Member &member = *one->second; member.is_linked) {  // another process has left the link before
            member.sleeps = false;
            heat(member);
        } else {
            name_by_address(member);
        }
    }
}

void epolls::unlinked(Socket &socket) {
    const Held held{mutex};
    tell_kernel_of(socket);
    const auto [first, last] = members().equal_range(&socket);
    for (auto one = first; one != last; ++one) {
        name_by_program(*one->second);
    }
}

bool epolls::tell_again(const Socket &socket) {
    const HeldHandlers held;
    if (!mutex.try_lock()) {
        return false;
    }
    const auto [first, last] = members().equal_range(&socket);
    for (auto one = first; one != last; ++one) {
        Member &member = *one->second;
        member.told_by_tcp = Member::none;
        if (member.is_linked && member.has_fd() && !member.is_disarmed && !member.is_parents) {
            name(member, {.ptr = &member}, member.registered);
        }
    }
    mutex.unlock();
    return true;
}

}  // namespace carry
