// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/descriptor_kinds: the kind of each of the process's descriptors.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace socket_preload {

enum class Kind : std::uint8_t {
    Other,  // libc's
    Rsocket,
    Repoll,
    RsocketAgain,  // a duplicate (dup(2)) of another's descriptor
    RepollAgain,
    Own,        // this library's, of which the program knows nothing
    Inherited,  // a TCP socket that this process has not made, and not used
};

// One byte a descriptor, so that a call that concerns no rsocket pays one load. Any number of threads.
class DescriptorKinds {
public:
    // Numbers above are always Kind::Other. Linux gives out 1048576 unless /proc/sys/fs/nr_open was
    // raised.
    static constexpr std::size_t most = std::size_t{1} << 20;

    [[nodiscard]] Kind kind(int fd) const {
        const auto index = static_cast<std::size_t>(fd);  // negative: larger than all
        return index < most ? std::atomic_ref{kinds_[index]}.load(std::memory_order_relaxed) : Kind::Other;
    }
    void set(int fd, Kind kind) {
        const auto index = static_cast<std::size_t>(fd);
        if (index < most) {
            std::atomic_ref{kinds_[index]}.store(kind, std::memory_order_relaxed);
        }
    }
    // Returns false when it is not of the kind `before` any more.
    [[nodiscard]] bool change(int fd, Kind before, Kind after) {
        return std::atomic_ref{kinds_[static_cast<std::size_t>(fd)]}.compare_exchange_strong(before, after);
    }
    // Returns fd, which is of this kind, or -1.
    int set_if_made(int fd, Kind kind) {
        if (fd >= 0) {
            set(fd, kind);
        }
        return fd;
    }

    // librsocket knows one number of an rsocket or repoll: this one.
    [[nodiscard]] int first_of(int again) const {
        return std::atomic_ref{firsts_[static_cast<std::size_t>(again)]}.load(std::memory_order_relaxed);
    }
    [[nodiscard]] bool has_duplicates(int first) const {
        return std::atomic_ref{more_[static_cast<std::size_t>(first)]}.load(std::memory_order_relaxed) != 0;
    }
    // Returns the number that librsocket knows of an rsocket or a repoll; -1: fd is neither.
    [[nodiscard]] int first_of_carried(int fd) const {
        switch (kind(fd)) {
            case Kind::Rsocket:
            case Kind::Repoll:
                return fd;
            case Kind::RsocketAgain:
            case Kind::RepollAgain:
                return first_of(fd);
            default:
                return -1;
        }
    }
    // From now on `number` is another number of the rsocket or repoll that librsocket knows as `first`.
    // again is RsocketAgain or RepollAgain.
    void add(int first, int number, Kind again) {
        std::atomic_ref{more_[static_cast<std::size_t>(first)]}.fetch_add(1);
        std::atomic_ref{firsts_[static_cast<std::size_t>(number)]}.store(first, std::memory_order_relaxed);
        set(number, again);
    }
    // Takes away a number of an rsocket or repoll, which librsocket knows as `first`. Returns whether it was
    // the last.
    [[nodiscard]] bool take_away(int first) {
        const std::atomic_ref more{more_[static_cast<std::size_t>(first)]};
        if (more.fetch_sub(1) != 0) {
            return false;
        }
        more.store(0);
        return true;
    }

private:
    mutable std::array<Kind, most> kinds_{};  // of pages that are there when they are used
    mutable std::array<int, most> firsts_{};
    mutable std::array<int, most> more_{};  // numbers beside the one, for the first
};

inline constinit DescriptorKinds descriptors;

// Calls use(fd) for each descriptor of this process, also for this library's. Returns false
// when it cannot know them.
template <typename Use>
bool for_open_descriptors(Use use) {
    const std::unique_ptr<DIR, int (*)(DIR *)> folder{opendir("/proc/self/fd"), closedir};
    while (const dirent *entry = folder != nullptr ? readdir(folder.get()) : nullptr) {
        const std::string_view name{entry->d_name};
        int fd = -1;  // of the two entries that are folders
        std::from_chars(name.data(), name.data() + name.size(), fd);
        if (fd >= 0 && fd != dirfd(folder.get())) {
            use(fd);
        }
    }
    return folder != nullptr;
}

}  // namespace socket_preload
