// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/direct_access: see the header.
#include "soft/memory/direct_access.hpp"

#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "softrdma.h"

namespace soft {

namespace {

void raise_to(std::atomic<std::uint64_t> &number, std::uint64_t value) {
    std::uint64_t known = number.load(std::memory_order_relaxed);
    while (known < value && !number.compare_exchange_weak(known, value, std::memory_order_acq_rel)) {
    }
}

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
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number)) {
        boards_ = {};
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
    const bool is_peers = process_ > 0 && thread_ > 0 && tgkill(process_, thread_, 0) == 0;
    const ssize_t bytes = is_peers ? process_vm_readv(thread_, &here, 1, &there, 1, 0) : 0;
    proven_ = bytes == sizeof(found) && found == number;
    if (!proven_) {
        BASE_LOG(Info, "a peer on this host is not accessed directly, all goes through the rings: %s",
                 bytes < 0 ? std::strerror(errno) : "its process cannot be named here");
        boards_ = {};
    }
    return proven_;
}

// Tells the peer which offer is used before it looks whether that offer still stands. The caller ends the
// access.
bool DirectAccess::begin_access(std::uint32_t key, std::uint64_t address, std::size_t bytes, unsigned right,
                                Reached &reached) {
    const Board::Offer &offer = boards_.peers->offers[number_];
    boards_.own->accesses.store(static_cast<std::uint32_t>(number_ + 1), std::memory_order_seq_cst);
    if (offer.key.load(std::memory_order_seq_cst) != key) {
        return false;
    }
    const std::uint32_t rights = offer.rights.load(std::memory_order_relaxed);
    const std::uint64_t begin = offer.begin.load(std::memory_order_relaxed);
    const std::uint64_t length = offer.length.load(std::memory_order_relaxed);
    if ((rights & right) != right || address < begin || bytes > length || address - begin > length - bytes) {
        return false;
    }
    const std::uint64_t place = offer.place.load(std::memory_order_relaxed) + (address - begin);
    reached = {.memory = {.iov_base = reinterpret_cast<void *>(place),  // NOLINT(performance-no-int-to-ptr)
                          .iov_len = bytes},
               .durable = (rights & SOFTRDMA_ACCESS_FLUSH_PERSISTENT) != 0,
               .from_begin = address - begin,
               .to_end = length - (address - begin)};
    return true;
}

// The bytes are there before the peer learns of them.
void DirectAccess::note_written(const Reached &reached, std::size_t bytes) const {
    Board::Written &written = boards_.own->written[number_];
    raise_to(written.from, reached.to_end);
    raise_to(written.to, reached.from_begin + bytes);
}

bool DirectAccess::copy(Way way, std::uint32_t key, std::uint64_t address, std::span<const iovec> here,
                        std::size_t bytes) {
    if (!proven_ && !prove()) {
        return false;
    }
    const bool writes = way == Way::Write;
    Reached reached;
    ssize_t count = 0;
    if (begin_access(key, address, bytes, writes ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ,
                     reached)) {
        const auto call = writes ? process_vm_writev : process_vm_readv;
        count = call(thread_, here.data(), here.size(), &reached.memory, 1, 0);
        if (writes && reached.durable && count > 0) {
            note_written(reached, bytes);  // also when only a part was written
        }
    }
    end_access();
    if (count < 0 && errno != EFAULT) {
        BASE_LOG(Info, "a peer on this host is not accessed directly any more: %s", std::strerror(errno));
        boards_ = {};
    }
    return count == static_cast<ssize_t>(bytes);
}

}  // namespace soft
