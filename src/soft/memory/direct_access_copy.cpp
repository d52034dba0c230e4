// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/direct_access: the accesses themselves.
#include <infiniband/verbs.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "persist/guard.hpp"
#include "soft/memory/direct_access.hpp"
#include "softrdma.h"

namespace soft {

namespace {

void raise_to(std::atomic<std::uint64_t> &number, std::uint64_t value) {
    std::uint64_t known = number.load(std::memory_order_relaxed);
    while (known < value && !number.compare_exchange_weak(known, value, std::memory_order_acq_rel)) {
    }
}

// A thread that was seen to survive a fault counts as one that does for this long, as does a handler of the
// signals (look_again()): a system call for each access of a few bytes takes longer than the access.
constexpr std::chrono::milliseconds survives_for{1};

// Returns whether this thread survives that the peer truncates a file.
bool survives_faults(base::Clock::time_point now) {
    // It is initial-exec, as guard.cpp's variables are: each access of a few bytes looks at it.
    [[gnu::tls_model("initial-exec")]] thread_local constinit base::Clock::time_point survives_until{};
    if (now < survives_until) {
        return true;
    }
    const bool survives = persist::survives_faults();
    survives_until = survives ? now + survives_for : base::Clock::time_point{};
    return survives;
}

std::uint64_t result_of(const DirectAccess::Atomic &operation, std::uint64_t original) {
    using Kind = DirectAccess::Atomic::Kind;
    switch (operation.kind) {
        case Kind::Add:
            return original + operation.value;
        case Kind::CompareAndSwap:
            return original == operation.compare ? operation.value : original;
        case Kind::Store:
            break;
    }
    return operation.value;
}

constexpr std::uint64_t atomic_bytes = 8;

// `original` is a guess at first.
restartable::Outcome operate(const restartable::Look &offered, std::uint64_t *there,
                             const DirectAccess::Atomic &operation, std::uint64_t &original) {
    if (operation.kind == DirectAccess::Atomic::Kind::Store) {
        restartable::Copy copy{.to = reinterpret_cast<std::byte *>(there),
                               .from = reinterpret_cast<const std::byte *>(&operation.value),
                               .bytes = atomic_bytes};
        return restartable::copy(offered, copy);
    }
    for (;;) {
        bool replaced = false;
        const restartable::Outcome outcome =
            restartable::exchange(offered, there, original, result_of(operation, original), replaced);
        if (outcome != restartable::Outcome::Done || replaced) {
            return outcome;
        }
    }
}

}  // namespace

// Tells the peer which offer is used before it looks whether that offer still stands. The caller ends the
// access.
bool DirectAccess::begin_access(std::uint32_t key, std::uint64_t address, std::size_t bytes, unsigned right,
                                By by, Reached &reached) {
    const Board::Access access{.offer = static_cast<std::uint32_t>(number_ + 1),
                               .thread = stretch_.thread,
                               .is_call = by == By::Kernel};
    boards_.own->access.store(access.bits(), std::memory_order_seq_cst);
    if (!stands(key)) {
        return false;
    }
    const Board::Offer &offer = boards_.peers->offers[number_];
    const std::uint32_t rights = offer.rights.load(std::memory_order_relaxed);
    const std::uint64_t begin = offer.begin.load(std::memory_order_relaxed);
    const std::uint64_t length = offer.length.load(std::memory_order_relaxed);
    if ((rights & right) != right || address < begin || bytes > length || address - begin > length - bytes) {
        return false;
    }
    const std::uint64_t place = offer.place.load(std::memory_order_relaxed);
    const std::uint64_t registration = offer.registration.load(std::memory_order_relaxed);
    const Mapped *const mapped = mapped_ != nullptr ? &(*mapped_)[number_] : nullptr;
    const bool is_mapped = mapped != nullptr && mapped->memory && registration == mapped->registration &&
                           place == mapped->place && length == mapped->length && rights == mapped->rights;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the peer tells its addresses as numbers.
    void *const there = reinterpret_cast<void *>(place + (address - begin));
    reached = {.memory = {.iov_base = there, .iov_len = bytes},
               .mapped = is_mapped ? mapped->memory->at(address - begin) : nullptr,
               .durable = (rights & SOFTRDMA_ACCESS_FLUSH_PERSISTENT) != 0,
               .from_begin = address - begin,
               .to_end = length - (address - begin)};
    return true;
}

// The bytes are there before the peer learns of them.
void DirectAccess::note_written(const Reached &reached, std::size_t bytes) {
    if (reached.mapped != nullptr && (*mapped_)[number_].memory->durable() != nullptr) {
        (*mapped_)[number_].written.add(reached.from_begin, bytes);
    } else {
        peer_has_to_flush_ = true;
    }
    Board::Written &written = boards_.own->written[number_];
    raise_to(written.from, reached.to_end);
    raise_to(written.to, reached.from_begin + bytes);
}

// Returns whether this thread may touch the mapping of the offer that was found last, if there is one.
bool DirectAccess::may_use_mapping() const {
    return mapped_ != nullptr && (*mapped_)[number_].memory && survives_faults(now_);
}

// It is flat, because a few bytes take fewer instructions than to enter the functions that it calls.
[[gnu::hot, gnu::flatten]] bool DirectAccess::copy(Way way, std::uint32_t key, std::uint64_t address,
                                                   std::span<const iovec> here, std::size_t bytes) {
    if (!prepare_access()) {
        return false;
    }
    if (may_use_mapping()) {
        return copy_mapped(way, key, address, here);
    }
    return (proven_ || prove()) && copy_by_kernel(way, key, address, here, bytes);
}

// A peer that withdraws the offer waits for one part only.
bool DirectAccess::copy_mapped(Way way, std::uint32_t key, std::uint64_t address,
                               std::span<const iovec> here) {
    for (const iovec &piece : here) {
        auto *const begin = static_cast<std::byte *>(piece.iov_base);
        for (std::size_t offset = 0; offset < piece.iov_len; offset += most_mapped_bytes) {
            const std::size_t bytes = std::min(piece.iov_len - offset, most_mapped_bytes);
            if (!copy_part(way, key, address, begin + offset, bytes)) {
                return false;
            }
            address += bytes;
        }
    }
    return true;
}

bool DirectAccess::copy_part(Way way, std::uint32_t key, std::uint64_t address, std::byte *here,
                             std::size_t bytes) {
    unsigned interruptions = 0;
    while (bytes != 0 && interruptions < most_interruptions && is_there()) {
        std::size_t left = bytes;
        const restartable::Outcome outcome = copy_once(way, key, address, here, left);
        if (outcome != restartable::Outcome::Done && outcome != restartable::Outcome::Interrupted) {
            return false;
        }
        interruptions = left == bytes ? interruptions + 1 : 0;
        address += bytes - left;
        here += bytes - left;
        bytes = left;
    }
    return bytes == 0;
}

// Copies once; `bytes` gets what is left. A peer that withdraws the offer meanwhile has learnt from the board
// what was written, or the access fails.
restartable::Outcome DirectAccess::copy_once(Way way, std::uint32_t key, std::uint64_t address,
                                             std::byte *here, std::size_t &bytes) {
    const bool writes = way == Way::Write;
    auto outcome = restartable::Outcome::Refused;
    Reached reached;
    if (begin_access(key, address, bytes, right_of(way), By::Processor, reached) &&
        reached.mapped != nullptr) {
        restartable::Copy copy{
            .to = writes ? reached.mapped : here, .from = writes ? here : reached.mapped, .bytes = bytes};
        outcome = restartable::copy(offered(key), copy);
        if (writes && reached.durable) {
            note_written(reached, bytes);  // also when only some were written
        }
        bytes = copy.bytes;
        if (!stands(key)) {
            outcome = restartable::Outcome::Refused;
        }
    }
    end_access();
    return outcome;
}

bool DirectAccess::copy_by_kernel(Way way, std::uint32_t key, std::uint64_t address,
                                  std::span<const iovec> here, std::size_t bytes) {
    const long call = way == Way::Write ? SYS_process_vm_writev : SYS_process_vm_readv;
    auto outcome = restartable::Outcome::Interrupted;
    ssize_t count = 0;
    for (unsigned tries = 0; outcome == restartable::Outcome::Interrupted; ++tries) {
        if (tries == most_interruptions || !is_there()) {
            return false;
        }
        outcome = restartable::Outcome::Refused;
        Reached reached;
        if (begin_access(key, address, bytes, right_of(way), By::Kernel, reached)) {
            outcome = restartable::transfer(offered(key), call, thread_, here, reached.memory, count);
            if (way == Way::Write && reached.durable && count > 0) {
                note_written(reached, bytes);  // also when only some were written
            }
            if (outcome == restartable::Outcome::Done && !stands(key)) {
                outcome = restartable::Outcome::Refused;
            }
        }
        end_access();
    }
    if (outcome == restartable::Outcome::Done && count < 0 && count != -EFAULT) {
        BASE_LOG(Info, "a peer on this host is not accessed directly any more: %s",
                 std::strerror(static_cast<int>(-count)));
        end();
    }
    return outcome == restartable::Outcome::Done && count == static_cast<ssize_t>(bytes);
}

bool DirectAccess::atomic(std::uint32_t key, std::uint64_t address, const Atomic &operation,
                          std::uint64_t &original) {
    if (address % atomic_bytes != 0 || !prepare_access() || !may_use_mapping()) {
        return false;
    }
    const unsigned right =
        operation.kind == Atomic::Kind::Store ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC;
    auto outcome = restartable::Outcome::Interrupted;
    for (unsigned tries = 0; outcome == restartable::Outcome::Interrupted; ++tries) {
        if (tries == most_interruptions || !is_there()) {
            return false;
        }
        outcome = restartable::Outcome::Refused;
        Reached reached;
        if (begin_access(key, address, atomic_bytes, right, By::Processor, reached) &&
            reached.mapped != nullptr &&
            reinterpret_cast<std::uintptr_t>(reached.mapped) % atomic_bytes == 0) {
            outcome =
                operate(offered(key), reinterpret_cast<std::uint64_t *>(reached.mapped), operation, original);
            if (outcome == restartable::Outcome::Done && reached.durable) {
                note_written(reached, atomic_bytes);
            }
        }
        end_access();
    }
    return outcome == restartable::Outcome::Done;
}

}  // namespace soft
