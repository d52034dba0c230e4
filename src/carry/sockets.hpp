// SPDX-License-Identifier: BSD-3-Clause
// carry/sockets: which of the process's descriptors are TCP sockets that it has made, and the Socket of each.
// The table is the process's own. The Sockets lie in memory that it shares with its forked children.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/fork.hpp"
#include "carry/arena.hpp"
#include "carry/own_calls.hpp"
#include "carry/socket.hpp"

namespace carry {

// The counts of connections: those whose bytes went through memory too, those that stayed in TCP, and why, as
// far as it is known, and their bytes.
struct Totals {
    struct Reason {
        const char *text = nullptr;  // nullptr: of no connection
        std::uint64_t count = 0;
    };

    // As many as Socket::stay() and Socket::leave() are called with, and more.
    using Reasons = std::array<Reason, 24>;

    std::uint64_t over_memory = 0;
    std::uint64_t over_device = 0;
    std::uint64_t in_tcp = 0;
    Reasons reasons{};       // of these
    std::uint64_t back = 0;  // turns that went back to TCP
    Reasons back_reasons{};  // of connections that were over
    Socket::Counts received;
    Socket::Counts sent;

    void add(const Socket &socket);
};

class Sockets {
public:
    // Numbers above have none. Linux gives out 1048576 unless /proc/sys/fs/nr_open was raised.
    static constexpr std::size_t most_numbers = std::size_t{1} << 20;

    // Returns the Socket of a descriptor, or nullptr. Any number of threads may call, without a lock of a
    // Socket. Waits while another thread replaces the descriptor.
    [[nodiscard]] Socket *at(int fd) const {
        std::uint32_t place = place_at(fd);
        while (place == replaced) [[unlikely]] {
            wait_a_moment();
            place = place_at(fd);
        }
        return place != 0 ? &socket(place) : nullptr;
    }
    // Returns whether the descriptor is one of the Socket, and no thread is replacing it.
    [[nodiscard]] bool is_at(int fd, const Socket &one) const {
        const std::uint32_t place = place_at(fd);
        return place != 0 && place != replaced && &socket(place) == &one;
    }
    // Returns the number of a Socket, below most_sockets.
    [[nodiscard]] std::uint32_t place_of(const Socket &socket) const {
        const auto *const first = reinterpret_cast<const std::byte *>(all_.load(std::memory_order_relaxed));
        return static_cast<std::uint32_t>(
            static_cast<std::size_t>(reinterpret_cast<const std::byte *>(&socket) - first) / sizeof(Place));
    }
    // The kernel has made this socket. There may be no memory for its Socket; then it stays in TCP.
    void made(int fd, Socket::Role role, bool blocks, bool is_smc = false);
    [[nodiscard]] bool has_more_numbers(int fd) const;
    // Returns another number of the same Socket; -1 when there is none.
    [[nodiscard]] int another_number(int fd) const;
    // Returns the first number from which on there is none.
    [[nodiscard]] std::size_t end() const { return end_; }
    // `number` is another number of fd now.
    void duplicated(int fd, int number);
    // Closes a descriptor by calling close(). With another process's memory (vfork(2)) nothing else happens.
    template <typename Close>
    int close(int fd, Close by_kernel) {
        Socket *const socket = at(fd);
        if (socket == nullptr || base::is_in_parents_memory()) {
            return by_kernel();
        }
        const bool is_last = take(fd, *socket, true);
        const int result = socket->close(by_kernel);
        if (is_last) {
            end(*socket);
        }
        return result;
    }
    // Has the kernel put fd under a number too, by calling duplicate(), as dup2(2) does. A thread that looks
    // for the number's Socket meanwhile waits, and finds what the kernel has there. With another process's
    // memory (vfork(2)) nothing else happens.
    template <typename Duplicate>
    int replace(int fd, int number, Duplicate duplicate) {
        if ((at(fd) == nullptr && at(number) == nullptr) ||
            static_cast<std::size_t>(number) >= most_numbers || base::is_in_parents_memory()) {
            return duplicate();
        }
        int made = -1;
        Replaced before;
        {
            const HeldHandlers held;
            hold();
            before = begin_replacing(number);
            const auto by_kernel = [&] { return made = duplicate(); };
            (void)(before.socket != nullptr ? before.socket->close(by_kernel) : by_kernel());
            end_replacing(made >= 0 ? fd : -1, number, before);
            release();
        }
        if (made >= 0 && before.is_last) {
            close_replaced(before);
        }
        return made;
    }
    // The Socket has ended, and no thread uses it.
    void give_back(const Socket &socket);
    // The process ends, and with it its descriptors, as if it closed them.
    void end_with_process();
    // The process is about to execute another program, whose use of the sockets is not counted. stay() is for
    // a process that could not.
    void leave();
    void stay();
    // The number is another descriptor's now: the program has closed it unseen.
    void forget(int fd);
    // Learns which processes have been killed.
    void reap();
    // The process is about to filter its system calls. From here on its connections are TCP, but for bytes
    // that are in a ring, and this library makes no call of its own, for their ends neither.
    void make_no_own_calls();
    // Has no Socket in common with another process any more. Those of such a process have no link. No other
    // thread of this process uses a Socket meanwhile.
    void share_no_more();
    // Returns the counts of the connections that have ended in this process.
    [[nodiscard]] Totals totals() const;
    void count_from_here();
    // The process is about to fork: its child will have all of them too.
    void fork();
    void begin_as_child();
    void end_fork();
    // The thread has forked, and fork(2) has returned this. The child may be killed before it says itself
    // that it is there.
    void forked(pid_t child);

    // Returns the number of the namespace of this process; 0 when that is unknown, or there was no socket
    // yet.
    [[nodiscard]] std::uint32_t space_of_processes() const { return Process::space_of(id_); }

    // Returns one of its numbers; -1 when this process has none.
    [[nodiscard]] int number_of(std::uint32_t place) const;
    // Calls use(one of its numbers, the Socket) while no thread can close the number. Returns false when this
    // process has none for the place.
    template <typename Use>
    bool with_number(std::uint32_t place, Use use);

    template <typename Use>
    void for_all(Use use) const {
        for (std::size_t number = 0; number < end_.load(); ++number) {
            if (Socket *const one = at(static_cast<int>(number)); one != nullptr) {
                use(static_cast<int>(number), *one);
            }
        }
    }

private:
    [[nodiscard]] Socket &socket(std::uint32_t place) const {
        return all_.load(std::memory_order_relaxed)[place].socket;
    }
    // Stands for the place of a number that a thread is replacing.
    static constexpr std::uint32_t replaced = UINT32_MAX;
    [[nodiscard]] std::uint32_t place_at(int fd) const {
        const auto number = static_cast<std::size_t>(fd);  // negative: larger than all
        return number < most_numbers ? std::atomic_ref{places_[number]}.load(std::memory_order_relaxed) : 0;
    }
    // A number stood for this before another descriptor got it.
    struct Replaced {
        Socket *socket = nullptr;
        bool is_last = false;  // of the process's numbers
        int lingers = -1;      // keeps the last number's end away from the kernel's call
    };
    [[nodiscard]] Replaced begin_replacing(int number);
    void end_replacing(int fd, int number, const Replaced &before);
    void close_replaced(const Replaced &before);
    [[nodiscard]] static Arena *arena();
    void set(int fd, std::uint32_t place);
    void hold();
    void release();
    [[nodiscard]] bool take(int fd, Socket &socket, bool is_open);
    template <typename Use>
    void for_each(Use use);
    static constexpr std::uint32_t seen = 1U << 31;  // of numbers_, during for_each()
    void end(Socket &socket);
    // This process has closed its last descriptor of it. Returns whether no process has one any more.
    [[nodiscard]] bool one_process_less(Socket &socket);
    void one_more_process(Socket &socket, std::uint32_t process);
    void unmap_closed();
    // Returns whether no other process has it. One that was killed has not said that it has it no more.
    [[nodiscard]] bool is_of_this_process(const Socket &socket);

    mutable std::uint32_t places_[most_numbers]{};   // 0: none
    mutable std::uint32_t numbers_[most_sockets]{};  // how many numbers of this process each has
    std::atomic<std::size_t> end_{0};
    std::atomic<Arena *> arena_{nullptr};
    std::atomic<Place *> all_{nullptr};  // of the arena
    // This process, and the child that is being forked, among those of the arena; 0: there was no room.
    std::uint64_t id_ = 0;  // as in Process
    std::uint32_t own_ = 0;
    std::uint32_t child_ = 0;
    std::uint64_t unborn_ = 0;  // the child's id, until it tells another one
};

template <typename Use>
bool Sockets::with_number(std::uint32_t place, Use use) {
    const HeldHandlers held;
    hold();
    const int fd = number_of(place);
    if (fd >= 0) {
        use(fd, socket(place));
    }
    release();
    return fd >= 0;
}

extern constinit Sockets sockets;

bool Socket::has_number(int fd) const {
    return sockets.is_at(fd, *this);
}

Socket *Socket::now_at(int fd) {
    return sockets.at(fd);
}

}  // namespace carry
