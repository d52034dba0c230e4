// SPDX-License-Identifier: BSD-3-Clause
// stream/iomaps: direct placement. An end maps memory of its own at an offset, and tells its peer by writing
// a slot of the peer's list; the peer then writes there without the end's help.
//
//      program ── map ──► OwnMaps ──── slot, and a word about it ────► PeerMaps ◄── write_at ── program
//      memory ◄────────────────────────── bytes ─────────────────────────────────────────────────┘
//
// A slot of length 0 says that the mapping is gone. librdmacm does not say so; it uses the slot again.
#pragma once

#include <algorithm>
#include <cerrno>
#include <deque>
#include <iterator>
#include <optional>
#include <ranges>
#include <vector>

#include "stream/owned.hpp"
#include "stream/wire.hpp"

namespace stream {

// The mappings of the peer, as its slots tell them. The peer is not trusted: whatever it says, we write to
// the peer and nowhere else, and keep no more mappings than we have slots.
class PeerMaps {
public:
    explicit PeerMaps(std::uint32_t slots) : slots_{slots} {}

    // Takes a slot that the peer has written. Returns false when there is no such slot, or no such memory.
    [[nodiscard]] bool set(std::uint32_t index, const Slot &slot) {
        const KeyedMemory &memory = slot.memory;
        if (index >= slots_ || (memory.length != 0 && (memory.address == 0 || !is_memory(slot)))) {
            return false;
        }
        std::erase_if(maps_, [&](const PeerMap &map) { return map.index == index; });
        if (memory.length != 0) {
            maps_.push_back({.index = index, .slot = slot});
        }
        return true;
    }

    // Finds the byte at an offset: where it is, and how many bytes follow it there. Where mappings overlap
    // the youngest counts: the peer may have ended the others.
    [[nodiscard]] std::optional<KeyedMemory> find(std::uint64_t offset) const {
        std::uint64_t end = UINT64_MAX;
        for (const PeerMap &map : std::views::reverse(maps_)) {
            const auto &[begin, memory] = map.slot;
            if (offset < begin) {
                end = std::min(end, begin);
            } else if (offset - begin < memory.length) {
                const std::uint64_t skip = offset - begin;
                const std::uint64_t left = std::min(memory.length - skip, end - offset);
                return KeyedMemory{.address = memory.address + skip,
                                   .key = memory.key,
                                   .length = static_cast<std::uint32_t>(left)};
            }
        }
        return std::nullopt;
    }

private:
    struct PeerMap {
        std::uint32_t index;
        Slot slot;
    };
    [[nodiscard]] static bool is_memory(const Slot &slot) {
        return stream::is_memory(slot.offset, slot.memory.length) &&
               stream::is_memory(slot.memory.address, slot.memory.length);
    }

    std::uint32_t slots_;
    // The youngest is the last.
    std::vector<PeerMap> maps_;
};

// Keeps what the program has mapped, and which of that the peer does not know yet. News of one slot are told
// once, as it is when they are told. The peer may read a slot while it is written: one that it has is emptied
// first, and keeps its other fields then, so that a part of the new one is empty or inside of what is mapped.
class OwnMaps {
public:
    // slots is how many the peer's list has.
    explicit OwnMaps(std::uint32_t slots) : slots_{slots} {}

    [[nodiscard]] bool has_slot() const { return !free_.empty() || told_.size() < slots_; }
    // slot is what the peer is told; without one the peer is not told of the mapping. The caller has seen
    // that a slot is free.
    void add(void *begin, std::size_t bytes, Memory memory, const std::optional<Slot> &slot) {
        OwnMap &map = maps_.emplace_back(
            OwnMap{.begin = begin, .bytes = bytes, .memory = std::move(memory), .index = {}});
        if (slot) {
            if (free_.empty()) {
                free_.push_back(static_cast<std::uint32_t>(told_.size()));
                told_.emplace_back();
            }
            map.index = free_.back();
            free_.pop_back();
            change(*map.index, *slot);
        }
    }
    // Ends the oldest mapping of exactly this memory. Fails with EINVAL when there is none, and with EBUSY
    // when the peer may still write there; then it stays until a later call.
    [[nodiscard]] base::Result<void> remove(const void *begin, std::size_t bytes) {
        const auto found = std::ranges::find_if(
            maps_, [&](const OwnMap &map) { return map.begin == begin && map.bytes == bytes; });
        if (found == maps_.end()) {
            return base::failure(EINVAL);
        }
        if (!deregister(found->memory)) {
            return base::failure(EBUSY);
        }
        const auto index = found->index;
        maps_.erase(found);
        if (index) {
            free_.push_back(*index);
            Slot empty = told_[*index].slot;
            empty.memory.length = 0;
            change(*index, empty);
        }
        return {};
    }
    [[nodiscard]] bool empty() const { return maps_.empty(); }
    // Ends all mappings. The peer is not told. Fails with EBUSY when the peer may still write into some;
    // these stay until a later call.
    [[nodiscard]] base::Result<void> clear() {
        news_.clear();
        for (auto map = maps_.begin(); map != maps_.end();) {
            map = deregister(map->memory) ? maps_.erase(map) : std::next(map);
        }
        return maps_.empty() ? base::Result<void>{} : base::failure(EBUSY);
    }

    [[nodiscard]] bool has_news() const { return !news_.empty(); }
    struct News {
        std::uint32_t index;
        Slot slot;
    };
    // Takes the oldest news, which then count as told. The caller has seen that there are some.
    [[nodiscard]] News take_news() {
        const std::uint32_t index = news_.front();
        Told &told = told_[index];
        if (told.known.memory.length != 0 && told.slot.memory.length != 0) {
            told.known.memory.length = 0;
            return {.index = index, .slot = told.known};
        }
        news_.pop_front();
        told.is_news = false;
        told.known = told.slot;
        return {.index = index, .slot = told.slot};
    }

private:
    struct OwnMap {
        void *begin;
        std::size_t bytes;
        Memory memory;
        std::optional<std::uint32_t> index;
    };
    struct Told {
        Slot slot;
        Slot known;
        bool is_news = false;
    };

    // Returns false when the peer may still write there; then the memory stays registered.
    [[nodiscard]] static bool deregister(Memory &memory) {
        rpma_mr_local *left = memory.release();
        (void)rpma_mr_dereg(&left);
        memory.reset(left);
        return left == nullptr;
    }
    void change(std::uint32_t index, const Slot &slot) {
        Told &told = told_[index];
        if (!told.is_news) {
            news_.push_back(index);
        }
        told.slot = slot;
        told.is_news = true;
    }

    std::uint32_t slots_;
    std::vector<OwnMap> maps_;
    // told_ has the peer's slots that were ever used; free_ those that are free again, news_ those that are
    // to be told.
    std::vector<Told> told_;
    std::vector<std::uint32_t> free_;
    std::deque<std::uint32_t> news_;
};

}  // namespace stream
