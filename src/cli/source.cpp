// SPDX-License-Identifier: BSD-3-Clause
// cli/source: reads the content of a push.
#include "cli/source.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace cli {

namespace {

constexpr std::chrono::milliseconds wait{1000};

}  // namespace

// Opens without blocking, in case the file is a FIFO, which is refused afterwards.
Outcome<Source> Source::open(const std::string &path) {
    Source source;
    source.name_ = path;
    if (path == "-") {
        source.name_ = "standard input";
        return source;
    }
    source.fd_.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!source.fd_ || fstat(source.fd_.get(), &source.status_) != 0) {
        return failed("{}: cannot open: {}", path, errno_text(errno));
    }
    if (!S_ISREG(source.status_.st_mode)) {
        return failed("{}: expected a regular file, or - for standard input", path);
    }
    return source;
}

std::optional<std::uint64_t> Source::size() const {
    return fd_ ? std::optional{static_cast<std::uint64_t>(status_.st_size)} : std::nullopt;
}

Outcome<std::size_t> Source::read(std::span<std::byte> bytes, const Waiting &waiting) const {
    using Clock = std::chrono::steady_clock;
    std::size_t done = 0;
    auto told = Clock::now();
    while (done < bytes.size()) {
        pollfd readable{STDIN_FILENO, POLLIN, 0};
        if (!fd_ && (poll(&readable, 1, wait.count()) <= 0 || Clock::now() - told > wait)) {
            TRY(waiting(done));
            told = Clock::now();
            continue;
        }
        const auto rest = bytes.subspan(done);
        const ssize_t got = ::read(fd_ ? fd_.get() : STDIN_FILENO, rest.data(), rest.size());
        if (got < 0 && errno != EINTR && errno != EAGAIN) {
            return failed("{}: cannot read: {}", name_, errno_text(errno));
        }
        if (got == 0) {
            break;
        }
        done += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    return done;
}

Outcome<> Source::check_unchanged(std::uint64_t length) const {
    if (!fd_) {
        return {};
    }
    const auto same = [](const timespec &left, const timespec &right) {
        return left.tv_sec == right.tv_sec && left.tv_nsec == right.tv_nsec;
    };
    struct stat now{};
    if (fstat(fd_.get(), &now) != 0 || now.st_size != status_.st_size ||
        std::cmp_not_equal(length, status_.st_size) || !same(now.st_mtim, status_.st_mtim) ||
        !same(now.st_ctim, status_.st_ctim)) {
        return failed("{}: changed while it was read (expected it to stay the same)", name_);
    }
    return {};
}

}  // namespace cli
