// SPDX-License-Identifier: BSD-3-Clause
// rsocket/descriptors: objects by descriptor.
//
//     segment ──► slot of a descriptor ──► holder: users, object
//
// A thread that looks for an object takes no lock, and looks once. A slot never moves, and a holder is never
// freed: it becomes another object's. The slot is one user of its holder, and each Found is one. The last
// user ends the object, and the holder waits in the list of free holders. A thread that had read the slot
// before may still add itself to the users. It then sees that the slot has changed, leaves, and has found
// nothing.
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
    struct Holder;

public:
    // find() returns it. It has an object, or nothing. The object does not end before this does, also where
    // another thread has taken it out. One thread at a time uses a Found.
    class Found {
    public:
        Found() = default;
        Found(Found &&other) noexcept : holder_{std::exchange(other.holder_, nullptr)} {}
        Found &operator=(Found &&) = delete;
        ~Found() {
            if (holder_ != nullptr) {
                holder_->leave();
            }
        }
        explicit operator bool() const { return holder_ != nullptr; }
        Object &operator*() const { return *holder_->object; }
        Object *operator->() const { return holder_->object.get(); }
        [[nodiscard]] std::shared_ptr<Object> shared() const {
            return holder_ != nullptr ? holder_->object : nullptr;
        }

    private:
        friend Descriptors;
        explicit Found(Holder &holder) : holder_{&holder} {}

        Holder *holder_ = nullptr;
    };

    constexpr Descriptors() = default;
    Descriptors(const Descriptors &) = delete;
    Descriptors &operator=(const Descriptors &) = delete;
    // No thread has a Found.
    ~Descriptors() {
        for (std::size_t i = 0; i < segments; ++i) {
            const Slot *const slots = slots_of(i);
            for (std::size_t k = 0; slots != nullptr && k < slots_in(i); ++k) {
                delete slots[k].load();
            }
        }
        for (const auto &slots : later_) {
            delete[] slots.load();
        }
        while (free_ != nullptr) {
            delete std::exchange(free_, free_->next);
        }
    }

    // Also finds nothing when another thread puts an object there, or takes it out, meanwhile.
    [[nodiscard, gnu::always_inline]] Found find(int fd) const {
        const Slot *const slot = slot_of(fd);
        Holder *const holder = slot != nullptr ? slot->load(std::memory_order_acquire) : nullptr;
        if (holder == nullptr) {
            return {};
        }
        holder->enter();
        Found found{*holder};
        if (slot->load(std::memory_order_acquire) != holder) [[unlikely]] {
            return {};
        }
        return found;
    }

    // Puts the object in the place of the one that is there, if there is one. Throws std::bad_alloc.
    void set(int fd, std::shared_ptr<Object> object) {
        Slot *slot = nullptr;
        Holder *holder = nullptr;
        {
            const base::Lock lock{mutex_};
            slot = made_slot_of(fd);
            holder = free_ != nullptr ? std::exchange(free_, free_->next) : new Holder{*this};
        }
        holder->begin(std::move(object));
        if (Holder *const before = slot->exchange(holder, std::memory_order_acq_rel)) {
            before->leave();
        }
    }

    // Takes the object out; nullptr when there is none.
    [[nodiscard]] std::shared_ptr<Object> take(int fd) {
        Slot *const slot = slot_of(fd);
        Holder *const holder = slot != nullptr ? slot->exchange(nullptr, std::memory_order_acq_rel) : nullptr;
        return holder != nullptr ? Found{*holder}.shared() : nullptr;
    }

    // Calls use(object) for each object that is there. It may miss objects that come or go meanwhile.
    template <typename Use>
    void for_each(Use use) const {
        for (std::size_t i = 0; i < segments; ++i) {
            for (std::size_t k = 0; slots_of(i) != nullptr && k < slots_in(i); ++k) {
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
    using Slot = std::atomic<Holder *>;

    struct Holder {
        explicit Holder(Descriptors &owner) : home{owner} {}

        void begin(std::shared_ptr<Object> what) {
            object = std::move(what);
            users.fetch_sub(no_object - 1, std::memory_order_release);
        }
        void enter() { users.fetch_add(1, std::memory_order_acquire); }
        void leave() {
            if (users.fetch_sub(1, std::memory_order_acq_rel) == 1) [[unlikely]] {
                end();
            }
        }
        [[gnu::noinline]] void end() {
            std::uint32_t none = 0;
            if (!users.compare_exchange_strong(none, no_object, std::memory_order_acq_rel)) {
                return;  // a thread has entered meanwhile, and ends the object when it leaves
            }
            const auto ended = std::move(object);  // not with the lock
            const base::Lock lock{home.mutex_};
            next = std::exchange(home.free_, this);
        }

        // Added to the number of users while the holder has no object. There are never as many users.
        static constexpr std::uint32_t no_object = std::uint32_t{1} << 31;

        Descriptors &home;
        std::atomic<std::uint32_t> users{no_object};
        std::shared_ptr<Object> object;
        Holder *next = nullptr;  // in the list of free holders, whose lock guards it
    };

    // Each segment is twice as long as the one before it, so that there is a slot for each descriptor. The
    // first has all that most programs use, and is always there.
    static constexpr std::uint32_t first_slots = 1024;
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
    // Returns nullptr where there was never an object, as for a negative number.
    [[nodiscard, gnu::always_inline]] const Slot *slot_of(int fd) const {
        const auto number = static_cast<std::uint32_t>(fd);
        return number < first_slots ? &first_[number] : later_slot_of(fd);
    }
    [[nodiscard]] Slot *slot_of(int fd) { return const_cast<Slot *>(std::as_const(*this).slot_of(fd)); }
    [[nodiscard]] const Slot *later_slot_of(int fd) const {
        if (fd < 0) {
            return nullptr;
        }
        const Place place = place_of(fd);
        const Slot *const slots = slots_of(place.segment);
        return slots != nullptr ? slots + place.slot : nullptr;
    }
    [[nodiscard]] const Slot *slots_of(std::size_t segment) const {
        return segment == 0 ? first_.data() : later_[segment - 1].load(std::memory_order_acquire);
    }
    [[nodiscard]] Slot *made_slot_of(int fd) REQUIRES(mutex_) {
        const std::size_t segment = place_of(fd).segment;
        if (slots_of(segment) == nullptr) {
            later_[segment - 1].store(new Slot[slots_in(segment)]{}, std::memory_order_release);
        }
        return slot_of(fd);
    }

    std::array<Slot, first_slots> first_{};
    std::array<std::atomic<Slot *>, segments - 1> later_{};  // null while not made
    base::LastingMutex mutex_;
    Holder *free_ GUARDED_BY(mutex_) = nullptr;
};

}  // namespace rsockets
