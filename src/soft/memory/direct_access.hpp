// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/direct_access: accesses the memory that the peer of one connection, a process of this host, has
// offered (memory/offers). The kernel copies the bytes between the two processes (process_vm_writev(2)), and
// checks that this process may do that, and that the memory is there. Memory that the peer has mapped from a
// file is mapped here too after some accesses (memory/peer_mapping), and the processor then copies. The
// peer's process does nothing.
//
// The peer names a thread. One that is not a thread of the peer's process is not used, so that a peer that
// lies reaches neither this process nor a third one.
//
// Nothing is stored after the peer has withdrawn its offer, or is gone, whatever interrupts this thread: it
// looks again after each interruption, at the offer and at the peer, before it stores (memory/restartable).
// Where the kernel does not restart sequences, no memory is mapped, and the peer waits for the kernel's copy.
//
// A process that is gone, or runs another program, is not accessed instead of the peer: the peer names a
// thread that is not its first one, and such a thread does not outlive exec(3). The owner looks often enough
// whether the peer is still there (look_again()), so that the number of the thread has no other meaning yet.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.hpp"
#include "soft/memory/board.hpp"
#include "soft/memory/durability.hpp"
#include "soft/memory/peer_mapping.hpp"
#include "soft/memory/restartable.hpp"

namespace soft {

// It is not thread-safe: its owner locks.
class DirectAccess {
public:
    // The most bytes of one call.
    static constexpr std::size_t most_bytes = std::size_t{1} << 20;
    // The most bytes of one access to mapped memory; the kernel's copy is one access. A peer that withdraws
    // an offer waits that long, or until the access is interrupted. A store to mapped memory may wait for the
    // file system, which interrupts it.
    static constexpr std::size_t most_mapped_bytes = std::size_t{64} << 10;
    // Where the processor copies, and where the kernel does (least_bytes_beside_message()). The system call
    // takes as long as the link's copies of 64 KiB.
    static constexpr std::size_t least_mapped_bytes = std::size_t{16} << 10;
    static constexpr std::size_t least_bytes_by_kernel = std::size_t{64} << 10;
    // Looking for a mapping takes as long as some hundred accesses, so the region has to be in use.
    static constexpr unsigned uses_before_mapping = 8;
    // An access that is interrupted so often, and has got no further, goes through the link. A debugger may
    // interrupt a thread after each instruction.
    static constexpr unsigned most_interruptions = 100;

    // An operation on eight bytes.
    struct Atomic {
        enum class Kind : std::uint8_t { Add, CompareAndSwap, Store };
        Kind kind;
        std::uint64_t value;  // is added, or stored
        std::uint64_t compare = 0;
    };

    // Begins a connection with a process. The boards stay mapped until end().
    void begin(const Boards &boards, pid_t process) {
        boards_ = boards;
        process_ = process;
        proven_ = peer_has_to_flush_ = false;
        thread_ = 0;
        missed_key_ = missed_changes_ = 0;
    }
    void end() {
        boards_ = {};
        mapped_.reset();
        has_mapping_ = false;
    }

    // Returns whether the connection goes through memory, so that a peer may offer anything.
    [[nodiscard]] bool is_possible() const { return boards_.own != nullptr; }
    // Returns whether the peer may have offered the region with this key.
    [[nodiscard]] bool may_reach(std::uint32_t key) { return is_possible() && find(key); }
    // Returns whether memory of the peer is mapped here. look_again() and unmap_withdrawn() unmap it when it
    // is not offered any more.
    [[nodiscard]] bool has_mapping() const { return has_mapping_; }
    // Returns whether the kernel copies for the offer that was found last, because its memory cannot be
    // mapped here. An offer for whose mapping this process has not looked yet counts as one that is mapped.
    [[nodiscard]] bool is_copied_by_kernel() const;
    // Returns from how many bytes on an access to the offer that was found last takes less time than two
    // copies through the link, when the link has to carry a message too.
    [[nodiscard]] std::size_t least_bytes_beside_message() const {
        return is_copied_by_kernel() ? least_bytes_by_kernel : least_mapped_bytes;
    }
    // Unmaps the memory that is not offered any more.
    void unmap_withdrawn();
    // Tells the time of the next access, or one shortly before.
    void set_time(base::Clock::time_point now) { now_ = now; }
    // Looks whether the named thread is still one of the peer's process. Returns false when it is not; then
    // nothing can be reached any more.
    [[nodiscard]] bool look_again();
    // Copy bytes to or from the peer's memory, up to most_bytes. Return false when that is not possible; the
    // caller then asks the peer, which also knows how to refuse.
    [[nodiscard]] bool write(std::uint32_t key, std::uint64_t address, std::span<const iovec> from,
                             std::size_t bytes) {
        return copy(Way::Write, key, address, from, bytes);
    }
    [[nodiscard]] bool read(std::uint32_t key, std::uint64_t address, std::span<const iovec> to,
                            std::size_t bytes) {
        return copy(Way::Read, key, address, to, bytes);
    }
    // Does an atomic operation where the peer's memory is mapped, and stores the old value. Returns false
    // when that is not possible, as write() does.
    [[nodiscard]] bool atomic(std::uint32_t key, std::uint64_t address, const Atomic &operation,
                              std::uint64_t &original);

    // ---- durability ----
    // Notes for a flush of this memory all that was written since the last flush. Returns false, and notes
    // nothing, when this process cannot make all of that durable itself; then the peer has to flush. The
    // memory stays mapped as long as it is noted.
    [[nodiscard]] bool note_for_flush(std::uint32_t key, std::uint64_t address, std::size_t bytes,
                                      Durability &durability);
    // Tells that the peer places bytes, or does an atomic operation, of this connection.
    void peer_writes() { peer_has_to_flush_ = true; }
    // Tells that the peer makes durable all that was written.
    void peer_flushes();
    // Calls `call` with the key and the first address of each offer that this process could flush.
    template <typename Call>
    void for_each_to_flush(Call call) const {
        for (std::size_t number = 0; mapped_ != nullptr && number < Board::most_offers; ++number) {
            const Mapped &mapped = (*mapped_)[number];
            const Board::Offer &offer = boards_.peers->offers[number];
            const std::uint32_t key = offer.key.load(std::memory_order_acquire);
            if (key != 0 && mapped.memory != nullptr && mapped.memory->durable() != nullptr) {
                call(key, offer.begin.load(std::memory_order_relaxed));
            }
        }
    }

private:
    enum class Way : std::uint8_t { Write, Read };
    [[nodiscard]] static constexpr unsigned right_of(Way way) {
        return way == Way::Write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
    }
    // The peer's memory of one access.
    struct Reached {
        iovec memory{};
        std::byte *mapped = nullptr;  // the same memory in this process
        bool durable = false;
        std::uint64_t from_begin = 0;
        std::uint64_t to_end = 0;
    };
    // A range of an offer's bytes.
    struct Range {
        std::uint64_t begin = 0;
        std::uint64_t size = 0;

        void add(std::uint64_t first, std::uint64_t bytes) {
            const std::uint64_t end = size == 0 ? first + bytes : std::max(begin + size, first + bytes);
            begin = size == 0 ? first : std::min(begin, first);
            size = end - begin;
        }
    };
    // It keeps what an offer said when its memory was last looked for, and the mapping, if there is one.
    struct Mapped {
        std::uint64_t registration = 0;
        std::uint64_t place = 0;
        std::uint64_t length = 0;
        std::uint32_t rights = 0;
        unsigned uses = 0;
        std::shared_ptr<const PeerMapping> memory;
        Range written;  // through the mapping since the last flush, in memory that can be made durable
    };
    using AllMapped = std::array<Mapped, Board::most_offers>;
    [[nodiscard]] static bool is_of(const Mapped &mapped, const Board::Offer &offer);
    void use_mapping();
    void look_for(Mapped &mapped);
    void forget(Mapped &mapped);
    [[nodiscard]] bool find(std::uint32_t key);
    [[nodiscard]] bool prepare_access();
    // Returns whether the peer's thread was proven once.
    [[nodiscard]] bool is_known() const { return thread_ != 0; }
    [[nodiscard]] bool is_of_process() const;
    [[nodiscard]] bool prove();
    [[nodiscard]] bool is_there();
    enum class By : bool { Processor, Kernel };
    [[nodiscard]] bool begin_access(std::uint32_t key, std::uint64_t address, std::size_t bytes,
                                    unsigned right, By by, Reached &reached);
    void end_access() const { boards_.own->access.store(0, std::memory_order_release); }
    // Returns whether the offer that was found last is the one with this key, and is not withdrawn.
    [[nodiscard]] bool stands(std::uint32_t key) const {
        return boards_.peers->offers[number_].key.load(std::memory_order_seq_cst) == key;
    }
    [[nodiscard]] restartable::Look offered(std::uint32_t key) const {
        return {.place = &boards_.peers->offers[number_].key, .value = key, .stretch = stretch_};
    }
    [[nodiscard]] bool copy(Way way, std::uint32_t key, std::uint64_t address, std::span<const iovec> here,
                            std::size_t bytes);
    [[nodiscard]] bool may_use_mapping() const;
    [[nodiscard]] bool copy_mapped(Way way, std::uint32_t key, std::uint64_t address,
                                   std::span<const iovec> here);
    [[nodiscard]] bool copy_part(Way way, std::uint32_t key, std::uint64_t address, std::byte *here,
                                 std::size_t bytes);
    [[nodiscard]] restartable::Outcome copy_once(Way way, std::uint32_t key, std::uint64_t address,
                                                 std::byte *here, std::size_t &bytes);
    [[nodiscard]] bool copy_by_kernel(Way way, std::uint32_t key, std::uint64_t address,
                                      std::span<const iovec> here, std::size_t bytes);
    void note_written(const Reached &reached, std::size_t bytes);

    Boards boards_;
    bool proven_ = false;  // by the last look
    base::Clock::time_point proven_at_;
    pid_t process_ = 0;
    pid_t thread_ = 0;
    std::size_t number_ = 0;        // of the offer that was found last
    std::uint32_t missed_key_ = 0;  // a key that was not offered after this many changes
    std::uint32_t missed_changes_ = 0;
    std::unique_ptr<AllMapped> mapped_;
    bool has_mapping_ = false;
    bool peer_has_to_flush_ = false;  // bytes were written, since the last flush, that only it can flush
    base::Clock::time_point now_;
    restartable::Stretch stretch_;  // in which the peer was seen
};

}  // namespace soft
