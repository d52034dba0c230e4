// SPDX-License-Identifier: BSD-3-Clause
// base/cursor: bounded reading and writing of bytes that a peer sent or will get. An access out of bounds
// does not touch memory: it sets a flag that the caller checks once at the end.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace base {

template <std::unsigned_integral T>
[[nodiscard]] constexpr T to_order(T value, std::endian order) {
    return order == std::endian::native ? value : std::byteswap(value);
}

class Reader {
public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_{bytes} {}

    // Returns the next value, or 0 and not ok() when too few bytes are left.
    template <std::unsigned_integral T>
    [[nodiscard]] T big() {
        return take<T>(std::endian::big);
    }
    template <std::unsigned_integral T>
    [[nodiscard]] T little() {
        return take<T>(std::endian::little);
    }

    // Returns the next `size` bytes, borrowed; none and not ok() when too few are left.
    [[nodiscard]] std::span<const std::byte> bytes(std::size_t size) {
        if (size > bytes_.size()) {
            ok_ = false;
            return {};
        }
        const auto head = bytes_.first(size);
        bytes_ = bytes_.subspan(size);
        return head;
    }

    [[nodiscard]] std::size_t left() const { return bytes_.size(); }
    [[nodiscard]] bool ok() const { return ok_; }

private:
    template <std::unsigned_integral T>
    T take(std::endian order) {
        const auto raw = bytes(sizeof(T));
        if (raw.size() != sizeof(T)) {
            return 0;
        }
        T value;
        std::memcpy(&value, raw.data(), sizeof(T));
        return to_order(value, order);
    }

    std::span<const std::byte> bytes_;
    bool ok_ = true;
};

class Writer {
public:
    explicit Writer(std::span<std::byte> bytes) : bytes_{bytes} {}

    template <std::unsigned_integral T>
    void big(T value) {
        put(to_order(value, std::endian::big));
    }
    template <std::unsigned_integral T>
    void little(T value) {
        put(to_order(value, std::endian::little));
    }

    void bytes(std::span<const std::byte> source) {
        if (source.size() > bytes_.size() - used_) {
            ok_ = false;
            return;
        }
        std::ranges::copy(source, bytes_.begin() + static_cast<std::ptrdiff_t>(used_));
        used_ += source.size();
    }

    [[nodiscard]] std::size_t used() const { return used_; }
    [[nodiscard]] bool ok() const { return ok_; }

private:
    template <std::unsigned_integral T>
    void put(T value) {
        bytes(std::as_bytes(std::span{&value, 1}));
    }

    std::span<std::byte> bytes_;
    std::size_t used_ = 0;
    bool ok_ = true;
};

}  // namespace base
