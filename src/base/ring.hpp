// SPDX-License-Identifier: BSD-3-Clause
// base/ring: a first-in first-out queue whose capacity is set once. A place is not touched before an item is
// put there, and an empty ring begins at its first place again. So a ring takes only the memory for the most
// items that it had at once. It is not thread-safe: its owner locks.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace base {

template <typename T>
class Ring {
    // push() begins the lifetime of an item, and nothing ends it.
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

public:
    explicit Ring(std::size_t capacity)
        : capacity_{capacity},
          mask_{std::bit_ceil(std::max(capacity, std::size_t{1})) - 1},
          places_{std::make_unique_for_overwrite<Place[]>(places())} {}

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] std::size_t capacity() const { return capacity_; }
    // Returns the number of places: a power of two, at least capacity().
    [[nodiscard]] std::size_t places() const { return mask_ + 1; }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] bool full() const { return size_ == capacity_; }

    // Returns the item `index` places behind the oldest.
    [[nodiscard]] T &at(std::size_t index) {
        assert(index < size_);
        return places_[place(index)].item;
    }
    [[nodiscard]] const T &at(std::size_t index) const {
        assert(index < size_);
        return places_[place(index)].item;
    }
    [[nodiscard]] T &front() {
        assert(!empty());
        return places_[head_].item;
    }
    [[nodiscard]] T &back() { return at(size_ - 1); }

    // Returns the number of the place of an item that is in the ring, below places().
    [[nodiscard]] std::size_t place_of(const T &item) const {
        return static_cast<std::size_t>(reinterpret_cast<const Place *>(&item) - places_.get());
    }
    // Returns the number of the place of the oldest item, below places().
    [[nodiscard]] std::size_t front_place() const { return head_; }
    // Returns the number of the place that the next item gets.
    [[nodiscard]] std::size_t next_place() const { return place(size_); }

    // The caller has checked that the ring is not full().
    T &push(const T &item) {
        return push_made([&item] { return item; });
    }
    // Pushes the item that `make` returns, which is made in its place.
    template <typename Make>
    T &push_made(Make make) {
        assert(!full());
        Place &youngest = places_[place(size_)];
        ++size_;
        return *::new (static_cast<void *>(&youngest.item)) T(make());
    }
    void pop() { pop(1); }
    // Removes the `count` oldest items, of which there are at least so many.
    void pop(std::size_t count) {
        assert(count <= size_);
        head_ = size_ == count ? 0 : place(count);
        size_ -= count;
    }
    // Removes the youngest item.
    void pop_back() {
        assert(!empty());
        --size_;
    }
    void clear() { head_ = size_ = 0; }

private:
    union Place {
        Place() {}
        T item;
    };

    [[nodiscard]] std::size_t place(std::size_t index) const { return (head_ + index) & mask_; }

    std::size_t capacity_;
    std::size_t mask_;
    std::unique_ptr<Place[]> places_;
    std::size_t head_ = 0;
    std::size_t size_ = 0;
};

}  // namespace base
