// SPDX-License-Identifier: BSD-3-Clause
// carry/sockets: the memory of Sockets, and who has each.
#include "carry/sockets.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "base/fork.hpp"
#include "base/small_mutex.hpp"
#include "carry/mirror.hpp"
#include "carry/records.hpp"
#include "carry/section.hpp"

namespace carry {

constinit Sockets sockets;

// Places that are free again form a list; its head has a count, so that a thread that was late does not take
// what came back meanwhile.
struct Sockets::Arena {
    std::atomic<std::uint64_t> free;  // count << 32 | place
    std::atomic<std::uint32_t> used;
    Place all[most_sockets];

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
                                     .after_in_parent = [] { changing.leave(); },
                                     .after_in_child = [] { changing.leave(); }}};

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
    }
    memory->all[place].socket.begin(role, blocks, is_smc);
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
    if (is_last && is_open && socket.is_of_one_process()) {
        socket.before_end(fd);
    }
    return is_last;
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
    if (socket.one_process_less() && socket.end()) {
        give_back(socket);
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
        if (socket.is_of_one_process()) {
            socket.before_end(fd);
        } else {
            (void)socket.one_process_less();
        }
    });
    mirrors::drain();
}

void Sockets::leave() {
    for_each([](int fd, Socket &socket) {
        socket.drop_doorbells(fd);
        (void)socket.one_process_less();
    });
    mirrors::drain();
}

void Sockets::stay() {
    for_each([](int, Socket &socket) { socket.one_more_process(); });
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
        for (std::uint32_t place = 1; place < memory->used.load() + 1 && place < most_sockets; ++place) {
            if (std::atomic_ref{numbers_[place]} != 0) {
                memory->all[place].socket.one_more_process();
            }
        }
    }
}

}  // namespace carry
