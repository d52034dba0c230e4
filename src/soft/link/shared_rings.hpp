// SPDX-License-Identifier: BSD-3-Clause
// soft/link/shared_rings: the memory that the two ends of a memory link have mapped: a ring of bytes for each
// direction, with the counters of its sender and its receiver. An end does not trust anything that the other
// may write.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace soft {

class SharedRings {
public:
    // The bytes that can wait in one direction: a power of two between these. A sender that fills a ring
    // sleeps, so a large one has room for the window of a stream (1 MiB) and more. Its pages take memory when
    // they are used. A process that has `most_large` of these memories makes the next ones with small rings,
    // so that 10,000 of them take at most 1.6 GB.
    static constexpr std::size_t large_ring = std::size_t{2} << 20;
    static constexpr std::size_t small_ring = std::size_t{64} << 10;
    static constexpr int most_large = 64;

    enum class End : std::uint32_t { None, Finished, Abandoned };
    // One direction. Each cache line has one writer.
    struct Direction {
        alignas(64) std::atomic<std::uint64_t> written{0};  // bytes so far; the sender writes it
        // The byte that lies at the beginning of the ring, counted like `written`. While the ring is empty
        // the sender moves it to the next byte. So few bytes at a time take few pages of the memory, and the
        // processor's cache has these. The sender writes it before the bytes.
        std::atomic<std::uint64_t> first{0};
        std::atomic<End> end{End::None};                 // the sender writes it, after the bytes
        alignas(64) std::atomic<std::uint64_t> used{0};  // bytes so far; the receiver writes it
        std::atomic<bool> closed{false};                 // the receiver writes it, and takes no more bytes
    };
    // An end sets these bits when it wants a bell for the events; the end that rings clears them.
    static constexpr std::uint32_t wants_bytes = 1;
    static constexpr std::uint32_t wants_room = 2;
    struct Bell {
        alignas(64) std::atomic<std::uint32_t> wanted{0};
    };
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<End>::is_always_lock_free);

    // The guest writes it, so that the maker knows the guest to be the peer.
    using Password = std::array<std::uint64_t, 2>;

    // The bytes of an end that the link does not use (Link::shared_pieces()).
    static constexpr std::size_t piece_bytes = 1024;

    // The end that made the memory sends in the first direction, the other end in the second.
    enum class Side : std::uint8_t { Maker, Guest };

    SharedRings() = default;
    // Makes the memory and maps it; how large it is depends on how many such memories the process has. Fails
    // with EMFILE, ENFILE or ENOMEM.
    [[nodiscard]] static base::Result<SharedRings> make();
    // Maps the memory that the peer has made. Fails with EPROTO when it is not such memory, or the peer could
    // truncate it.
    [[nodiscard]] static base::Result<SharedRings> join(base::Fd file);
    SharedRings(SharedRings &&other) noexcept { *this = std::move(other); }
    SharedRings &operator=(SharedRings &&other) noexcept {
        std::swap(file_, other.file_);
        std::swap(memory_, other.memory_);
        std::swap(ring_bytes_, other.ring_bytes_);
        std::swap(side_, other.side_);
        std::swap(peers_process_, other.peers_process_);
        std::swap(expected_, other.expected_);
        return *this;
    }
    SharedRings(const SharedRings &) = delete;
    SharedRings &operator=(const SharedRings &) = delete;
    ~SharedRings();

    // Returns the descriptor of the memory, for the peer, until it is closed here.
    [[nodiscard]] int file() const { return file_.get(); }
    void close_file() { file_.reset(); }

    // Returns the bytes that can wait in one direction.
    [[nodiscard]] std::size_t ring_bytes() const { return ring_bytes_; }
    [[nodiscard]] Direction &outgoing() const { return memory_->directions[index()]; }
    [[nodiscard]] Direction &incoming() const { return memory_->directions[1 - index()]; }
    [[nodiscard]] Bell &own_bell() const { return memory_->bells[index()]; }
    [[nodiscard]] Bell &peers_bell() const { return memory_->bells[1 - index()]; }
    // These return the bytes of a ring from a byte on, up to `most` and to the end of the ring. `distance` is
    // how far that byte is behind the first one.
    [[nodiscard]] std::span<std::byte> outgoing_bytes(std::uint64_t distance, std::size_t most) const {
        return bytes_of(index(), distance, most);
    }
    [[nodiscard]] std::span<std::byte> incoming_bytes(std::uint64_t distance, std::size_t most) const {
        return bytes_of(1 - index(), distance, most);
    }

    // The guest writes the password before its first byte and before its end. The maker expects one.
    void write_password(const Password &password) const;
    void expect_password(const Password &password) { expected_ = password; }
    // Returns whether the maker may take what the guest has written. It is always true where nothing is
    // expected.
    [[nodiscard]] bool has_right_password() const { return !expected_ || has_password(*expected_); }

    // The process of the other end; 0 when it has no number here.
    void set_peers_process(pid_t process) { peers_process_ = process; }
    [[nodiscard]] pid_t peers_process() const { return peers_process_; }
    // The pieces for the users of the two ends.
    [[nodiscard]] std::span<std::byte> own_piece() const { return piece_of(index()); }
    [[nodiscard]] std::span<std::byte> peers_piece() const { return piece_of(1 - index()); }

private:
    // The two rings are behind it. The first begins in the same page, so that an idle connection has two
    // pages. The pieces are for the users of the two ends.
    struct Layout {
        std::array<Direction, 2> directions;
        std::array<Bell, 2> bells;
        std::array<std::atomic<std::uint64_t>, 2> password{};
        alignas(64) std::array<std::array<std::byte, piece_bytes>, 2> pieces;
    };

    SharedRings(base::Fd file, void *memory, std::size_t ring_bytes, Side side);
    [[nodiscard]] static std::size_t memory_bytes(std::size_t ring_bytes) {
        return sizeof(Layout) + 2 * ring_bytes;
    }
    [[nodiscard]] std::size_t index() const { return side_ == Side::Maker ? 0 : 1; }
    [[nodiscard]] std::span<std::byte> bytes_of(std::size_t ring, std::uint64_t distance,
                                                std::size_t most) const {
        const std::size_t at = distance & (ring_bytes_ - 1);
        auto *const rings = reinterpret_cast<std::byte *>(memory_ + 1);
        return {rings + ring * ring_bytes_ + at, std::min(most, ring_bytes_ - at)};
    }
    [[nodiscard]] std::span<std::byte> piece_of(std::size_t end) const { return memory_->pieces[end]; }
    [[nodiscard]] bool has_password(const Password &password) const;

    base::Fd file_;
    Layout *memory_ = nullptr;
    std::size_t ring_bytes_ = 0;
    Side side_ = Side::Maker;
    pid_t peers_process_ = 0;
    std::optional<Password> expected_;
    // The memories that this process has mapped.
    static std::atomic<int> mapped_memories;
};

}  // namespace soft
