// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/restartable: accesses to another process's memory that end when the kernel interrupts them. The
// kernel knows the instructions (a restartable sequence, rseq(2)). When it stops, preempts or moves a thread
// inside them, or runs a signal handler there, the thread does not go on at that instruction, but returns
// from the sequence with Outcome::Interrupted. So a thread that looks at an offer and then stores there, in
// one sequence, never stores after an interruption without looking again.
//
// A look at the peer's process is a system call, for which there is no place in a sequence. So a thread asks
// for its present stretch before it looks. An access belongs to that stretch: an interruption since then ends
// it too.
//
// Another thread on this host that sees, after the offer was withdrawn, that this thread does not run, knows
// that it is in no sequence any more.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace soft::restartable {

// A time in which a thread was not interrupted.
struct Stretch {
    std::uint64_t number = 0;  // no other stretch of this process has it; 0 where the kernel restarts nothing
    pid_t thread = 0;
};

// Returns the present stretch of this thread. It is over when the next call returns another one.
[[nodiscard]] Stretch present_stretch();

// Returns whether the kernel restarts the sequences of this thread.
[[nodiscard]] inline bool is_possible() {
    return present_stretch().number != 0;
}

enum class Outcome : std::uint8_t {
    Done,
    Interrupted,  // the stretch is over
    Refused,      // the number has another value
    Faulted       // memory is gone
};

// An access is allowed as long as the number has this value, and the stretch is the thread's present one.
struct Look {
    const std::atomic<std::uint32_t> *place;
    std::uint32_t value;
    Stretch stretch;
};

struct Copy {
    std::byte *to;
    const std::byte *from;
    std::size_t bytes;
};

// Copies as persist::guarded_copy() does. `copy` names what is left then.
[[nodiscard]] Outcome copy(const Look &look, Copy &copy);

// Replaces the eight bytes at `to`, a multiple of 8, by `desired` at once, with acquire and release order, if
// they are `expected`. Otherwise they stay, the outcome is Done too, and `replaced` is false. `expected` gets
// what they were.
[[nodiscard]] Outcome exchange(const Look &look, std::uint64_t *to, std::uint64_t &expected,
                               std::uint64_t desired, bool &replaced);

// Makes the system call with this number, process_vm_writev(2) or process_vm_readv(2), with one piece of the
// peer. `result` gets the number of bytes, or a negative errno value. Without a stretch the call is an
// ordinary one, and the outcome is Done.
[[nodiscard]] Outcome transfer(const Look &look, long call, pid_t peer, std::span<const iovec> here,
                               const iovec &there, ssize_t &result);

}  // namespace soft::restartable
