// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/descriptors: what each of the process's descriptors is.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
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
class Descriptors {
public:
    // Those above are Kind::Other for good. Linux gives out 1048576 unless /proc/sys/fs/nr_open was raised.
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
    // False: it is not of the kind `before` any more.
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

    // Makes `number` another number of what `fd` is, if that is an rsocket or a repoll. Returns number.
    int duplicated(int fd, int number);
    // librsocket knows one number of an rsocket or repoll: this one.
    [[nodiscard]] int first_of(int again) const {
        return std::atomic_ref{firsts_[static_cast<std::size_t>(again)]}.load(std::memory_order_relaxed);
    }
    [[nodiscard]] bool has_duplicates(int first) const {
        return std::atomic_ref{more_[static_cast<std::size_t>(first)]}.load(std::memory_order_relaxed) != 0;
    }
    // Takes away a number of an rsocket or repoll, which librsocket knows as `first`. Returns whether it was
    // the last.
    [[nodiscard]] bool take_away(int first);

private:
    mutable std::array<Kind, most> kinds_{};  // of pages that are there when they are used
    mutable std::array<int, most> firsts_{};
    mutable std::array<int, most> more_{};  // numbers beside the one, for the first
};

inline constinit Descriptors descriptors;

// In inherited.cpp: what a descriptor of Kind::Inherited becomes when the program uses it.
[[nodiscard]] Kind adopted(int fd);

// Whether the descriptor is an rsocket's. Then it becomes the number that librsocket knows. One of this
// library's own becomes a number that is no descriptor: for the program, which may have closed it, it is
// none.
[[nodiscard]] inline bool is_rsocket(int &fd) {
    Kind kind = descriptors.kind(fd);
    if (kind == Kind::Inherited) {
        kind = adopted(fd);
    }
    if (kind == Kind::RsocketAgain) {
        fd = descriptors.first_of(fd);
    } else if (kind == Kind::Own) {
        fd = std::numeric_limits<int>::max();
    }
    return kind == Kind::Rsocket || kind == Kind::RsocketAgain;
}

// The same for a repoll's.
[[nodiscard]] inline bool is_repoll(int &fd) {
    const Kind kind = descriptors.kind(fd);
    if (kind == Kind::RepollAgain) {
        fd = descriptors.first_of(fd);
    }
    return kind == Kind::Repoll || kind == Kind::RepollAgain;
}

// Does what the program wants of close(2).
int close_any(int fd);

// Calls use(fd) for each descriptor of this process, also for this library's. False: it cannot know them.
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
