// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/destination: decides between file and stream, and writes to it.
#include "cli/transfer/destination.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "base/number.hpp"

namespace cli {

namespace {

namespace fs = std::filesystem;

constexpr int wait_ms = 1000;
constexpr std::size_t stream_piece = 4096;  // a pipe that is writable takes this much without blocking
constexpr unsigned most_links = 16;

// Returns the number in /proc/self/fd/NUMBER.
int number_in(const fs::path &path) {
    const std::string folder = path.parent_path().string();
    if (folder != "/proc/self/fd" && folder != "/dev/fd" && folder != fmt::format("/proc/{}/fd", getpid())) {
        return -1;
    }
    const std::string name = path.filename().string();
    int number = -1;
    return base::read_number(name, number) ? number : -1;
}

// Returns the descriptor of this process that the path leads to, such as 1 for /dev/stdout, and -1 for a
// file.
int descriptor_of(fs::path path) {
    std::error_code error;
    for (unsigned links = 0; links < most_links; ++links) {
        if (const int number = number_in(path); number >= 0) {
            return number;
        }
        const fs::path target = fs::read_symlink(path, error);
        if (error) {
            break;
        }
        path = (path.parent_path() / target).lexically_normal();
    }
    return -1;
}

// Gives the new file the rights of the one that it replaces. Another user's file grants nobody more than a
// new one does: he may have made it for that.
bool keep_rights(int file, const struct stat &replaced) {
    struct stat status{};
    if (fstat(file, &status) != 0) {
        return false;
    }
    const mode_t most = replaced.st_uid == status.st_uid ? ACCESSPERMS : status.st_mode;
    return fchmod(file, replaced.st_mode & most & ACCESSPERMS) == 0;
}

}  // namespace

Outcome<Destination> Destination::open(const std::string &path) {
    Destination destination;
    destination.path_ = path == "-" ? "standard output" : path;
    destination.descriptor_ = path == "-" ? STDOUT_FILENO : descriptor_of(path);
    if (destination.descriptor_ >= 0) {
        const int flags = fcntl(destination.descriptor_, F_GETFL);
        if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
            return failed("{}: cannot write: {}", destination.path_, errno_text(EBADF));
        }
        return destination;
    }
    struct stat status{};
    const bool exists = stat(path.c_str(), &status) == 0;
    if (exists && !S_ISREG(status.st_mode)) {
        return failed("{}: expected a regular file or none", path);
    }
    destination.file_.emplace(TRY(StagedFile::create(path, 0666)));
    if (exists && !keep_rights(destination.file_->fd(), status)) {
        return failed("{}: cannot set its rights: {}", path, errno_text(errno));
    }
    return destination;
}

Outcome<> Destination::write(std::span<const std::byte> bytes, std::uint64_t offset, const Waiting &waiting) {
    while (!bytes.empty()) {
        ssize_t written = -1;
        if (file_) {
            written = pwrite(file_->fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        } else {
            pollfd writable{descriptor_, POLLOUT, 0};
            if (poll(&writable, 1, wait_ms) == 0) {
                TRY(waiting());
                continue;
            }
            written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), stream_piece));
        }
        if (written < 0 && errno != EINTR && errno != EAGAIN) {
            return failed("{}: cannot write: {}", path_, errno_text(errno));
        }
        const std::size_t progress = written > 0 ? static_cast<std::size_t>(written) : 0;
        bytes = bytes.subspan(progress);
        offset += progress;
    }
    return {};
}

// A clone cannot change while it is compared.
std::optional<Source> Destination::begin_as_old() {
    old_.reset(file_ ? ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1);
    is_cloned_ = old_ && ioctl(file_->fd(), FICLONE, old_.get()) == 0;
    if (!old_) {
        return std::nullopt;
    }
    auto old = Source::of(is_cloned_ ? file_->fd() : old_.get(), path_);
    return old ? std::optional{*std::move(old)} : std::nullopt;
}

Outcome<> Destination::keep(std::span<const std::byte> bytes, std::uint64_t offset) {
    return is_cloned_ ? Outcome<>{} : write(bytes, offset, {});
}

Outcome<> Destination::cut(std::uint64_t length) {
    return !file_ || ftruncate(file_->fd(), static_cast<off_t>(length)) == 0
               ? Outcome<>{}
               : failed("{}: cannot write: {}", path_, errno_text(errno));
}

Outcome<> Destination::publish(std::uint64_t length) {
    TRY(cut(length));
    return file_ ? file_->publish() : Outcome<>{};
}

}  // namespace cli
