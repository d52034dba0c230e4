// SPDX-License-Identifier: BSD-3-Clause
// carry/arena: the memory of Sockets, which a process shares with its forked children, and which process has
// which of them. A process that was killed has not said that it has them no more, so the others ask the
// kernel.
#pragma once

#include <atomic>
#include <cstdint>

#include "carry/socket.hpp"

namespace carry {

inline constexpr std::uint32_t most_sockets = 1U << 16;

// A process that has Sockets of the arena.
struct Process {
    // The number of the process, and above it that of its namespace, which alone knows the number; 0: none. A
    // child that has not told its number yet has a namespace that is none, and a number that no other such
    // child has.
    std::atomic<std::uint64_t> id;
    static constexpr std::uint32_t unborn = UINT32_MAX;
    std::atomic<std::uint64_t> places[most_sockets / 64];  // a bit for each Socket that it has

    // Returns whether this process has other threads; also true where that cannot be known.
    [[nodiscard]] static bool has_other_threads();
    // Returns the id of this process.
    [[nodiscard]] static std::uint64_t of_this();
    [[nodiscard]] static std::uint32_t space_of(std::uint64_t id) {
        return static_cast<std::uint32_t>(id >> 32);
    }
    [[nodiscard]] bool has(std::uint32_t place) const { return (places[place / 64] >> place % 64 & 1) != 0; }
    void take(std::uint32_t place) { places[place / 64].fetch_or(std::uint64_t{1} << place % 64); }
    void leave(std::uint32_t place) { places[place / 64].fetch_and(~(std::uint64_t{1} << place % 64)); }
    // Returns whether the process has ended, as far as one of this namespace can know that.
    [[nodiscard]] static bool is_dead(std::uint64_t id, std::uint32_t space);
};

// Pages are there when they are used.
struct Arena {
    // Returns nullptr where there is no memory.
    [[nodiscard]] static Arena *make();

    // Returns a place that no Socket has; 0 when there is none.
    [[nodiscard]] std::uint32_t take();
    void give(std::uint32_t place);

    // Returns the place of a new process; 0 when there is none.
    [[nodiscard]] std::uint32_t enter(std::uint64_t id, std::uint32_t space);
    [[nodiscard]] std::uint64_t next_unborn() {
        return std::uint64_t{Process::unborn} << 32 | (births.fetch_add(1) % Process::unborn);
    }
    // The process of this id was killed, and closed nothing itself; or it was never born.
    void reap(Process &dead, std::uint64_t id);
    // Reaps the dead among those for which is_concerned(Process).
    template <typename Concerned>
    void reap_dead(std::uint32_t space, Concerned is_concerned) {
        for (std::uint32_t one = 1; one < processes_end.load(); ++one) {
            if (const std::uint64_t id = processes[one].id;
                is_concerned(processes[one]) && Process::is_dead(id, space)) {
                reap(processes[one], id);
            }
        }
    }
    // Returns whether another process than this one has entered.
    [[nodiscard]] bool has_others(std::uint32_t own) const;
    // Puts a copy in its place, which this process alone has, with the Sockets of the places that it uses.
    // Returns false without memory, and then the arena is of no use any more. No other thread of this process
    // uses a Socket meanwhile.
    [[nodiscard]] bool become_private(std::uint32_t own, bool (*is_used)(std::uint32_t place));

    // Places that are free again form a list; its head has a count, so that a thread that was late does not
    // take what came back meanwhile.
    std::atomic<std::uint64_t> free;  // count << 32 | place
    std::atomic<std::uint32_t> used;
    std::atomic<std::uint32_t> births;
    std::atomic<std::uint32_t> processes_end;  // the first place that no process has had
    static constexpr std::uint32_t most_processes = 256;
    Process processes[most_processes];  // the first stays empty
    Place all[most_sockets];
};

}  // namespace carry
