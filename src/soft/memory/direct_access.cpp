// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/direct_access.hpp"

#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "persist/guard.hpp"
#include "softrdma.h"

namespace soft {

namespace {

// In this time the numbers of a process and of its thread that have ended do not both come again.
constexpr std::chrono::seconds proven_for{1};

}  // namespace

bool DirectAccess::find(std::uint32_t key) {
    const auto is_at = [&](std::size_t number) {
        return boards_.peers->offers[number].key.load(std::memory_order_relaxed) == key;
    };
    if (is_at(number_)) {
        return key != 0;
    }
    const std::uint32_t changes = boards_.peers->changes.load(std::memory_order_acquire);
    if (key == missed_key_ && changes == missed_changes_) {
        return false;
    }
    for (std::size_t number = 0; number < Board::most_offers; ++number) {
        if (is_at(number)) {
            number_ = number;
            return key != 0;
        }
    }
    missed_key_ = key;
    missed_changes_ = changes;
    return false;
}

// Checks that the thread which the peer names is one of a process that has this board, and that the
// kernel allows the access. Another process does not have the random number at that place.
bool DirectAccess::prove() {
    std::uint64_t number = 0;
    // The C library's function is a cancellation point.
    if (syscall(SYS_getrandom, &number, sizeof(number), GRND_NONBLOCK) != sizeof(number)) {
        end();
        return false;
    }
    boards_.own->proof.store(number, std::memory_order_seq_cst);
    thread_ = boards_.peers->thread.load(std::memory_order_acquire);
    std::uint64_t found = ~number;
    const iovec here{.iov_base = &found, .iov_len = sizeof(found)};
    const std::uint64_t place =
        boards_.peers->peers_place.load(std::memory_order_relaxed) + offsetof(Board, proof);
    const iovec there{.iov_base = reinterpret_cast<void *>(place),
                      .iov_len = sizeof(found)};  // NOLINT(performance-no-int-to-ptr)
    const ssize_t bytes = is_of_process() ? process_vm_readv(thread_, &here, 1, &there, 1, 0) : 0;
    proven_ = bytes == sizeof(found) && found == number;
    proven_at_ = now_;
    if (!proven_) {
        BASE_LOG(Info, "a peer on this host is not accessed directly, all goes through the rings: %s",
                 bytes < 0 ? std::strerror(errno) : "its process cannot be named here");
        end();
    }
    return proven_;
}

// Returns whether the thread that the peer named is still one of its process.
bool DirectAccess::is_of_process() const {
    return process_ > 0 && thread_ > 0 && tgkill(process_, thread_, 0) == 0;
}

// An access to mapped memory uses no number, so a proof is needed before the kernel's next access, and in
// time before processes have had all numbers.
bool DirectAccess::look_again() {
    if (!is_known()) {
        return true;
    }
    unmap_withdrawn();
    if (has_mapping_) {
        persist::install_guard();  // the program may have set a handler of its own since
    }
    if (!has_mapping_ || now_ - proven_at_ > proven_for) {
        return prove();
    }
    proven_ = false;
    if (!is_of_process()) {
        end();
    }
    return is_possible();
}

bool DirectAccess::is_of(const Mapped &mapped, const Board::Offer &offer) {
    return mapped.registration == offer.registration.load(std::memory_order_relaxed) &&
           mapped.place == offer.place.load(std::memory_order_relaxed) &&
           mapped.length == offer.length.load(std::memory_order_relaxed) &&
           mapped.rights == offer.rights.load(std::memory_order_relaxed);
}

// Counts a use of the offer that was found last, and looks for a mapping in time. It is not called during an
// access, for which the peer might wait. An offer that is withdrawn meanwhile does not come again with the
// same number, so its mapping is not used.
void DirectAccess::use_mapping() {
    if (mapped_ == nullptr) {
        mapped_.reset(new (std::nothrow) AllMapped);
        if (mapped_ == nullptr) {
            return;
        }
    }
    Mapped &mapped = (*mapped_)[number_];
    const Board::Offer &offer = boards_.peers->offers[number_];
    if (!is_of(mapped, offer)) {
        forget(mapped);
        mapped.registration = offer.registration.load(std::memory_order_relaxed);
        mapped.place = offer.place.load(std::memory_order_relaxed);
        mapped.length = offer.length.load(std::memory_order_relaxed);
        mapped.rights = offer.rights.load(std::memory_order_relaxed);
    }
    if (mapped.uses == uses_before_mapping) {
        return;
    }
    ++mapped.uses;
    if (mapped.uses == uses_before_mapping) {
        look_for(mapped);
    }
}

// The thread whose process was looked at is the peer's when the peer still names it afterwards. Only a
// sequence that the kernel restarts may store in a mapping.
void DirectAccess::look_for(Mapped &mapped) {
    constexpr unsigned writing = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if (!restartable::is_possible() || (!proven_ && !prove())) {
        return;
    }
    const pid_t thread = thread_;
    auto found = PeerMapping::of({.thread = thread,
                                  .place = mapped.place,
                                  .bytes = mapped.length,
                                  .writes = (mapped.rights & writing) != 0,
                                  .durable = (mapped.rights & SOFTRDMA_ACCESS_FLUSH_PERSISTENT) != 0});
    if (found != nullptr && prove() && thread_ == thread) {
        mapped.memory = std::move(found);
        has_mapping_ = true;
        // The kernel does not tell a process what it told the peer before this process opened the file.
        peer_has_to_flush_ = true;
    }
}

// The peer has learnt from the board what was written there.
void DirectAccess::forget(Mapped &mapped) {
    peer_has_to_flush_ = peer_has_to_flush_ || mapped.written.size != 0;
    mapped = {};
}

void DirectAccess::unmap_withdrawn() {
    if (!has_mapping_) {
        return;
    }
    has_mapping_ = false;
    for (std::size_t number = 0; number < Board::most_offers; ++number) {
        Mapped &mapped = (*mapped_)[number];
        const Board::Offer &offer = boards_.peers->offers[number];
        if (mapped.memory && (offer.key.load(std::memory_order_relaxed) == 0 || !is_of(mapped, offer))) {
            forget(mapped);
        }
        has_mapping_ = has_mapping_ || mapped.memory;
    }
}

bool DirectAccess::is_copied_by_kernel() const {
    const Mapped *const mapped = mapped_ != nullptr ? &(*mapped_)[number_] : nullptr;
    return mapped != nullptr && mapped->uses == uses_before_mapping && !mapped->memory &&
           is_of(*mapped, boards_.peers->offers[number_]);
}

// Prepares an access of the offer that was found last, which begins after it.
bool DirectAccess::prepare_access() {
    if (!is_known() && !prove()) {
        return false;
    }
    use_mapping();
    return is_possible();
}

// Looks whether the peer is still there, once in each stretch of the thread. This one may have been stopped
// for long, and the peer's memory may belong to another process by now.
bool DirectAccess::is_there() {
    const restartable::Stretch present = restartable::present_stretch();
    if (present.number == stretch_.number) {
        return true;
    }
    if (base::Clock::now() - proven_at_ > proven_for ? !prove() : !is_of_process()) {
        end();
        return false;
    }
    stretch_ = present;
    return true;
}

bool DirectAccess::note_for_flush(std::uint32_t key, std::uint64_t address, std::size_t bytes,
                                  Durability &durability) {
    if (!prepare_access() || peer_has_to_flush_ || !may_use_mapping()) {
        return false;
    }
    Reached reached;
    const bool may_flush =
        begin_access(key, address, bytes, SOFTRDMA_ACCESS_FLUSH_PERSISTENT, By::Processor, reached) &&
        reached.mapped != nullptr && (*mapped_)[number_].memory->durable() != nullptr;
    end_access();
    if (!may_flush) {
        return false;
    }
    (*mapped_)[number_].written.add(reached.from_begin, bytes);
    for (Mapped &mapped : *mapped_) {
        if (const Range range = std::exchange(mapped.written, {}); range.size != 0) {
            durability.note({mapped.memory, mapped.memory->durable()}, mapped.memory->at(range.begin),
                            mapped.memory->at(range.begin + range.size));
        }
    }
    return true;
}

void DirectAccess::peer_flushes() {
    peer_has_to_flush_ = false;
    if (mapped_ != nullptr) {
        for (Mapped &mapped : *mapped_) {
            mapped.written = {};
        }
    }
}

}  // namespace soft
