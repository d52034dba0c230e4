// SPDX-License-Identifier: BSD-3-Clause
// rsocket/descriptors: objects by descriptor.
//
//     segment ──► slot of a descriptor ──► entry: users, object
//
// A thread that looks for an object takes no lock. A slot never moves, and an entry is never freed: it
// becomes another object's. The slot is one user of its entry, and each Found is one. The last user ends the
// object, and an entry without users gets none: it then waits in the list of free entries.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "base/mutex.hpp"

namespace rsockets {

// Any number of threads may call everything but the destructor.
template <typename Object>
class Descriptors {
    struct Entry;

public:
    // The result of find(): an object, or nothing. The object does not end before this does, also where
    // another thread has taken it out. One thread at a time uses a Found.
    class Found {
    public:
        Found() = default;
        Found(Found &&other) noexcept : entry_{std::exchange(other.entry_, nullptr)} {}
        Found &operator=(Found &&) = delete;
        ~Found() {
            if (entry_ != nullptr) {
                entry_->leave();
            }
        }
        explicit operator bool() const { return entry_ != nullptr; }
        Object &operator*() const { return *entry_->object; }
        Object *operator->() const { return entry_->object.get(); }
        [[nodiscard]] std::shared_ptr<Object> shared() const {
            return entry_ != nullptr ? entry_->object : nullptr;
        }

    private:
        friend Descriptors;
        explicit Found(Entry &entry) : entry_{&entry} {}

        Entry *entry_ = nullptr;
    };

    Descriptors() = default;
    Descriptors(const Descriptors &) = delete;
    Descriptors &operator=(const Descriptors &) = delete;
    // Nobody has a Found.
    ~Descriptors() {
        for (std::size_t i = 0; i < segments_.size(); ++i) {
            Slot *const slots = segments_[i];
            for (std::size_t k = 0; slots != nullptr && k < slots_in(i); ++k) {
                delete slots[k].load();
            }
            delete[] slots;
        }
        while (free_ != nullptr) {
            delete std::exchange(free_, free_->next);
        }
    }

    [[nodiscard]] Found find(int fd) const {
        const Slot *const slot = fd >= 0 ? slot_of(fd) : nullptr;
        Entry *entry = slot != nullptr ? slot->load(std::memory_order_acquire) : nullptr;
        while (entry != nullptr) {
            if (entry->enter()) {
                Found found{*entry};
                if (slot->load(std::memory_order_acquire) == entry) {
                    return found;
                }  // the entry had become another object's before the thread entered
            }
            entry = slot->load(std::memory_order_acquire);
        }
        return {};
    }

    // Puts the object in the place of the one that is there, if there is one. std::bad_alloc.
    void set(int fd, std::shared_ptr<Object> object) {
        Slot *slot = nullptr;
        Entry *entry = nullptr;
        {
            const base::Lock lock{mutex_};
            slot = made_slot_of(fd);
            entry = free_ != nullptr ? std::exchange(free_, free_->next) : new Entry{*this};
        }
        entry->begin(std::move(object));
        if (Entry *const before = slot->exchange(entry, std::memory_order_acq_rel)) {
            before->leave();
        }
    }

    // Takes the object out; nullptr when there is none.
    [[nodiscard]] std::shared_ptr<Object> take(int fd) {
        Slot *const slot = fd >= 0 ? slot_of(fd) : nullptr;
        Entry *const entry = slot != nullptr ? slot->exchange(nullptr, std::memory_order_acq_rel) : nullptr;
        return entry != nullptr ? Found{*entry}.shared() : nullptr;
    }

    // Calls use(object) for each object that is there; those that come or go meanwhile it may miss.
    template <typename Use>
    void for_each(Use use) const {
        for (std::size_t i = 0; i < segments_.size(); ++i) {
            for (std::size_t k = 0; segments_[i] != nullptr && k < slots_in(i); ++k) {
                if (const Found found = find(static_cast<int>(slots_in(i) + k - slots_in(0)))) {
                    use(*found);
                }
            }
        }
    }

    // Called around fork(2), behind it in parent and child: no other thread changes the lists meanwhile.
    void before_fork() { mutex_.take(); }
    void after_fork() { mutex_.leave(); }

private:
    using Slot = std::atomic<Entry *>;

    struct Entry {
        explicit Entry(Descriptors &owner) : home{owner} {}

        void begin(std::shared_ptr<Object> what) {
            object = std::move(what);
            users.store(1, std::memory_order_release);
        }
        // False: the object has ended, or is about to.
        [[nodiscard]] bool enter() {
            std::uint32_t before = users.load(std::memory_order_relaxed);
            while (before != 0) {
                if (users.compare_exchange_weak(before, before + 1, std::memory_order_acquire,
                                                std::memory_order_relaxed)) {
                    return true;
                }
            }
            return false;
        }
        void leave() {
            if (users.fetch_sub(1, std::memory_order_acq_rel) == 1) {
                end();
            }
        }
        [[gnu::noinline]] void end() {
            const auto ended = std::move(object);  // not with the lock
            const base::Lock lock{home.mutex_};
            next = std::exchange(home.free_, this);
        }

        Descriptors &home;
        std::atomic<std::uint32_t> users{0};
        std::shared_ptr<Object> object;
        Entry *next = nullptr;  // in the list of free entries, whose lock guards it
    };

    // Each segment is twice as long as the one before it, so that there is a slot for each descriptor.
    static constexpr std::uint32_t first_slots = 64;
    static constexpr int segments = std::numeric_limits<int>::digits - std::countr_zero(first_slots) + 1;
    [[nodiscard]] static constexpr std::size_t slots_in(std::size_t segment) {
        return std::size_t{first_slots} << segment;
    }
    struct Place {
        std::size_t segment;
        std::size_t slot;
    };
    [[nodiscard]] static Place place_of(int fd) {
        const std::uint32_t number = static_cast<std::uint32_t>(fd) + first_slots;
        const auto segment = static_cast<std::size_t>(std::bit_width(number) - std::bit_width(first_slots));
        return {.segment = segment, .slot = number - slots_in(segment)};
    }
    [[nodiscard]] Slot *slot_of(int fd) const {
        const Place place = place_of(fd);
        Slot *const slots = segments_[place.segment].load(std::memory_order_acquire);
        return slots != nullptr ? slots + place.slot : nullptr;
    }
    [[nodiscard]] Slot *made_slot_of(int fd) REQUIRES(mutex_) {
        const Place place = place_of(fd);
        if (segments_[place.segment] == nullptr) {
            segments_[place.segment].store(new Slot[slots_in(place.segment)]{}, std::memory_order_release);
        }
        return slot_of(fd);
    }

    std::array<std::atomic<Slot *>, segments> segments_{};
    base::Mutex mutex_;
    Entry *free_ GUARDED_BY(mutex_) = nullptr;
};

}  // namespace rsockets
