// SPDX-License-Identifier: BSD-3-Clause
// carry_device/spare: frames of a place and its bytes. Both ends have the same Link, so these are as in
// memory.
#include "carry_device/spare.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace carry_device {

namespace {

// Other threads read the words of the link meanwhile, each as a whole.
void store(std::byte *to, const std::byte *from, std::size_t size) {
    const auto store_as = [&]<typename Word>(Word) {
        Word word = 0;
        std::memcpy(&word, from, sizeof(word));
        std::atomic_ref{*reinterpret_cast<Word *>(to)}.store(word, std::memory_order_seq_cst);
        to += sizeof(word);
        from += sizeof(word);
        size -= sizeof(word);
    };
    while (size != 0) {
        const auto place = reinterpret_cast<std::uintptr_t>(to);
        if (place % sizeof(std::uint64_t) == 0 && size >= sizeof(std::uint64_t)) {
            store_as(std::uint64_t{});
        } else if (place % sizeof(std::uint32_t) == 0 && size >= sizeof(std::uint32_t)) {
            store_as(std::uint32_t{});
        } else {
            store_as(std::uint8_t{});
        }
    }
}

bool is_for_later() {
    return errno == EAGAIN || errno == EINTR;
}

}  // namespace

void Spare::add(const Head &head, const void *bytes) {
    const auto *const words = reinterpret_cast<const std::byte *>(&head);
    out_.insert(out_.end(), words, words + sizeof(head));
    if (bytes != nullptr) {
        const auto *const first = static_cast<const std::byte *>(bytes);
        out_.insert(out_.end(), first, first + head.size);
    }
}

void Spare::write(std::size_t offset, const void *bytes, std::size_t size) {
    add({.offset = static_cast<std::uint32_t>(offset), .size = static_cast<std::uint32_t>(size)}, bytes);
}

void Spare::flush(std::uint32_t turn) {
    add({.offset = Flush, .size = turn}, nullptr);
}

void Spare::tell() {
    add({.offset = Tell, .size = 0}, nullptr);
}

bool Spare::move() {
    const bool is_open = receive_some();
    const bool is_right = apply();
    return send_some() && is_open && is_right;
}

bool Spare::send_some() {
    while (sent_ != out_.size()) {
        const ssize_t bytes =
            send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (bytes < 0) {
            return is_for_later();
        }
        sent_ += static_cast<std::size_t>(bytes);
    }
    out_.clear();
    sent_ = 0;
    return true;
}

bool Spare::receive_some() {
    constexpr std::size_t piece = std::size_t{16} << 10;
    for (;;) {
        const std::size_t before = in_.size();
        in_.resize(before + piece);
        const ssize_t bytes = recv(fd_.get(), in_.data() + before, piece, MSG_DONTWAIT);
        in_.resize(before + static_cast<std::size_t>(bytes > 0 ? bytes : 0));
        if (bytes <= 0) {
            return bytes < 0 && is_for_later();
        }
        if (!apply()) {
            return false;
        }
    }
}

bool Spare::apply() {
    auto *const copy = reinterpret_cast<std::byte *>(&link_);
    std::size_t at = 0;
    bool is_right = true;
    while (is_right && in_.size() - at >= sizeof(Head)) {
        Head head{};
        std::memcpy(&head, in_.data() + at, sizeof(head));
        const std::size_t bytes = head.offset < Tell ? head.size : 0;
        is_right = out_.size() - sent_ <= most_owed &&
                   (bytes == 0 ||
                    (head.offset <= sizeof(carry::Link) && bytes <= sizeof(carry::Link) - head.offset));
        if (!is_right || in_.size() - at - sizeof(head) < bytes) {
            break;
        }
        at += sizeof(head);
        if (head.offset == Tell) {
            has_message_ = true;
        } else if (head.offset == Flush) {
            add({.offset = Flushed, .size = head.size}, nullptr);
        } else if (head.offset == Flushed) {
            settled_ = head.size;
        } else {
            store(copy + head.offset, in_.data() + at, bytes);
            at += bytes;
        }
    }
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(at));
    return is_right;
}

bool Spare::is_quiet() const {
    int unacknowledged = 0;
    return sent_ == out_.size() && ioctl(fd_.get(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
}

}  // namespace carry_device
