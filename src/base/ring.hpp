// SPDX-License-Identifier: BSD-3-Clause
// base/ring: a first-in first-out queue whose capacity is set once. Not thread-safe: its owner locks.
#pragma once

#include <cassert>
#include <cstddef>
#include <memory>

namespace base {

template <typename T>
class Ring {
public:
    explicit Ring(std::size_t capacity) : items_{std::make_unique<T[]>(capacity)}, capacity_{capacity} {}

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] std::size_t capacity() const { return capacity_; }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] bool full() const { return size_ == capacity_; }

    // The item `index` places behind the oldest.
    [[nodiscard]] T &at(std::size_t index) {
        assert(index < size_);
        return items_[place(index)];
    }
    [[nodiscard]] T &front() { return at(0); }
    [[nodiscard]] T &back() { return at(size_ - 1); }

    // The new youngest item, holding what its place held before. The caller has seen that it is not full().
    T &push() {
        assert(!full());
        ++size_;
        return back();
    }
    void pop() {
        assert(!empty());
        head_ = head_ + 1 == capacity_ ? 0 : head_ + 1;
        --size_;
    }
    // Takes back the youngest item.
    void pop_back() {
        assert(!empty());
        --size_;
    }
    void clear() { size_ = 0; }

private:
    [[nodiscard]] std::size_t place(std::size_t index) const {
        const std::size_t sum = head_ + index;
        return sum < capacity_ ? sum : sum - capacity_;
    }

    std::unique_ptr<T[]> items_;
    std::size_t capacity_;
    std::size_t head_ = 0;
    std::size_t size_ = 0;
};

}  // namespace base
