// SPDX-License-Identifier: BSD-3-Clause
// carry/sockets: the memory of Sockets, and who has each.
#include "carry/sockets.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "base/small_mutex.hpp"
#include "carry/meeting.hpp"
#include "carry/mirror.hpp"
#include "carry/records.hpp"
#include "carry/section.hpp"

namespace carry {

constinit Sockets sockets;

// A process that has Sockets of the arena.
struct Sockets::Process {
    // The number of the process, and above it that of its namespace, which alone knows the number; 0: none.
    std::atomic<std::uint64_t> id;
    std::atomic<std::uint64_t> places[most_sockets / 64];  // a bit for each Socket that it has

    [[nodiscard]] bool has(std::uint32_t place) const { return (places[place / 64] >> place % 64 & 1) != 0; }
    void take(std::uint32_t place) { places[place / 64].fetch_or(std::uint64_t{1} << place % 64); }
    void leave(std::uint32_t place) { places[place / 64].fetch_and(~(std::uint64_t{1} << place % 64)); }
    // Returns whether it has ended, as far as this process can know that.
    [[nodiscard]] bool is_dead() const {
        const std::uint64_t one = id;
        if (one == 0 || one >> 32 != sockets.space_of_processes()) {
            return false;
        }
        const auto fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(one), 0U));
        if (fd < 0) {
            return errno == ESRCH;
        }
        pollfd ended{.fd = fd, .events = POLLIN, .revents = 0};
        const bool is_dead = LIBC(poll)(&ended, 1, 0) > 0;
        (void)LIBC(close)(fd);
        return is_dead;
    }
};

// Places that are free again form a list; its head has a count, so that a thread that was late does not take
// what came back meanwhile.
struct Sockets::Arena {
    std::atomic<std::uint64_t> free;  // count << 32 | place
    std::atomic<std::uint32_t> used;
    std::atomic<std::uint32_t> processes_end;  // the first place that no process has had
    static constexpr std::uint32_t most_processes = 256;
    Process processes[most_processes];  // the first stays empty
    Place all[most_sockets];

    // Returns the place of a new process; 0 when there is none.
    [[nodiscard]] std::uint32_t enter(std::uint64_t id) {
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
                bury_dead([](const Process &) { return true; });
            }
        }
        return 0;
    }
    // The process was killed, and closed nothing itself. A place in which it was, or a thread of another
    // process still is, is not given to a next Socket.
    void bury(Process &dead) {
        constexpr std::uint64_t buried = ~std::uint64_t{0};
        if (std::uint64_t id = dead.id; id == buried || !dead.id.compare_exchange_strong(id, buried)) {
            return;  // by another process
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
    template <typename Concerned>
    void bury_dead(Concerned is_concerned) {
        for (std::uint32_t one = 1; one < processes_end.load(); ++one) {
            if (is_concerned(processes[one]) && processes[one].is_dead()) {
                bury(processes[one]);
            }
        }
    }

    [[nodiscard]] std::uint32_t take() {
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
    void give(std::uint32_t place) {
        std::uint64_t head = free.load();
        do {
            all[place].socket.next_free = static_cast<std::uint32_t>(head);
        } while (!free.compare_exchange_weak(head, ((head >> 32) + 1) << 32 | place));
    }
};

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

// Links of Sockets that this process has closed, and others have. They stay mapped until no process has one.
struct Left {
    Link *link;
    std::uint32_t place;
    std::uint32_t number;
};
constexpr std::size_t most_left = 4096;
std::array<Left, most_left> left_links GUARDED_BY(changing);
std::size_t left_count GUARDED_BY(changing) = 0;

}  // namespace

// Pages are there when they are used.
Sockets::Arena *Sockets::arena() {
    static Arena *const made = [] {
        void *const memory = mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return memory != MAP_FAILED ? static_cast<Arena *>(memory) : nullptr;
    }();
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
        know_itself();
        own_ = memory->enter(id_);
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

bool Sockets::is_of_this_process(const Socket &socket) {
    if (!socket.is_of_one_process()) {
        arena_.load()->bury_dead([place = place_of(socket)](const Process &one) { return one.has(place); });
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
    const Left left{.link = socket.mapped_link(), .place = place_of(socket), .number = socket.number()};
    if (left.link != nullptr) {
        (void)is_of_this_process(socket);
    }
    const bool is_last = one_process_less(socket);
    if (is_last && socket.end()) {
        give_back(socket);
    }
    const HeldShortly whole{changing};
    if (!is_last && left.link != nullptr && left_count < most_left) {
        left_links[left_count++] = left;
    }
    unmap_left();
}

void Sockets::unmap_left() {
    changing.assert_held();
    static base::Clock::time_point looked_at GUARDED_BY(changing);
    if (left_count == 0) {
        return;
    }
    if (const auto now = base::Clock::now(); now - looked_at > std::chrono::seconds{1}) {
        looked_at = now;
        arena_.load()->bury_dead([](const Process &) { return true; });
    }
    for (std::size_t i = 0; i < left_count;) {
        const Left left = left_links[i];
        const Place &place = all_[left.place];
        if (place.socket.number() != left.number ||
            (place.socket.is_of_no_process() && place.locks.inside == 0)) {
            (void)munmap(left.link, sizeof(Link));
            left_links[i] = left_links[--left_count];
        } else {
            ++i;
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
            sockets.one_more_process(socket, sockets.own_);  // whoever buries this process gives it back
        }
    });
    mirrors::drain();
}

void Sockets::leave() {
    for_each([](int fd, Socket &socket) {
        socket.drop_doorbells(fd);
        (void)sockets.one_process_less(socket);
    });
    mirrors::drain();
}

void Sockets::stay() {
    for_each([](int, Socket &socket) { sockets.one_more_process(socket, sockets.own_); });
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
        child_ = memory->enter(id_);
        for (std::uint32_t place = 1; place < memory->used.load() + 1 && place < most_sockets; ++place) {
            if (std::atomic_ref{numbers_[place]} != 0) {
                Meeting::before_fork(memory->all[place].socket);
                one_more_process(memory->all[place].socket, child_);
            }
        }
    }
}

namespace {
// Where the child of the thread's last fork is among the processes; 0: nowhere.
[[gnu::tls_model("initial-exec")]] thread_local constinit std::uint32_t childs_place = 0;
}  // namespace

void Sockets::end_fork() {
    childs_place = std::exchange(child_, 0);
}

void Sockets::forked(pid_t child) {
    Arena *const memory = arena_;
    const std::uint32_t place = child != 0 ? std::exchange(childs_place, 0) : 0;
    if (memory == nullptr || place == 0 || base::is_in_parents_memory()) {
        return;
    }
    Process &one = memory->processes[place];
    if (child < 0 && one.id == id_) {
        const int error = errno;
        const HeldShortly whole{changing};
        memory->bury(one);
        errno = error;
    } else if (std::uint64_t unborn = id_; child > 0) {
        const std::uint64_t born =
            std::uint64_t{space_of_processes()} << 32 | static_cast<std::uint32_t>(child);
        (void)one.id.compare_exchange_strong(unborn, born);
    }
}

void Sockets::know_itself() {
    struct stat space{};
    const bool is_known = stat("/proc/self/ns/pid", &space) == 0;
    id_ = std::uint64_t{is_known ? static_cast<std::uint32_t>(space.st_ino) : 0} << 32 |
          static_cast<std::uint32_t>(getpid());
}

void Sockets::begin_as_child() {
    if (Arena *const memory = arena_; memory != nullptr) {
        know_itself();
        own_ = child_;
        if (own_ != 0) {
            memory->processes[own_].id = id_;
        }
    }
}

// The process gets a copy of the arena, at the same place. What it leaves in the other one is buried with it.
void Sockets::share_no_more() {
    Arena *const memory = arena_;
    if (memory == nullptr) {
        return;
    }
    const Held whole{changing};
    left_count = 0;
    const bool is_shared = own_ == 0 || std::ranges::any_of(memory->processes, [&](const Process &one) {
                               return one.id != 0 && &one != &memory->processes[own_];
                           });
    if (!is_shared) {
        return;
    }
    auto *const bytes = reinterpret_cast<std::byte *>(memory);
    const auto *const end =
        reinterpret_cast<std::byte *>(&memory->all[std::min(memory->used + 1, most_sockets)]);
    const auto used = static_cast<std::size_t>(end - bytes);
    constexpr int access = PROT_READ | PROT_WRITE;
    void *const copy = mmap(nullptr, used, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
        return;
    }
    std::memcpy(copy, bytes, used);
    if (mmap(memory, sizeof(Arena), access, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        memory) {
        std::memcpy(bytes, copy, used);
    }
    (void)munmap(copy, used);
    for (std::uint32_t one = 1; one < memory->processes_end; ++one) {
        if (one != own_) {
            memory->processes[one].id = 0;
            std::ranges::for_each(memory->processes[one].places, [](auto &word) { word = 0; });
        }
    }
    for (std::uint32_t place = 1; place < memory->used + 1 && place < most_sockets; ++place) {
        memory->all[place].locks.begin();
        memory->all[place].locks.inside = 0;
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
