// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/staged_file: makes a file without a name, and gives it a hidden one and then its own.
#include "cli/transfer/staged_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <random>

#include "cli/files.hpp"

namespace cli {

namespace fs = std::filesystem;

namespace {

fs::path folder_of(const fs::path &path) {
    return path.has_parent_path() ? path.parent_path() : fs::path{"."};
}

// Returns whether a link in this folder may be followed, as open(2) decides where fs.protected_symlinks is 1
// (proc(5)): in a folder where everybody may make names, another user's link leads to a file of his choice.
bool may_follow(const fs::path &link, const struct stat &status) {
    struct stat folder{};
    constexpr mode_t shared = S_ISVTX | S_IWOTH;
    return status.st_uid == geteuid() ||
           (stat(folder_of(link).c_str(), &folder) == 0 &&
            ((folder.st_mode & shared) != shared || status.st_uid == folder.st_uid));
}

// Returns the path to which a symbolic link leads, which need not exist, and any other path as it is.
Outcome<fs::path> followed(const fs::path &path) {
    constexpr int most_links = 40;  // as open(2)
    fs::path end = path;
    for (int links = 0;; ++links) {
        struct stat status{};
        if (lstat(end.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) {
            return end;
        }
        if (links == most_links) {
            return failed("{}: {}", path.string(), errno_text(ELOOP));
        }
        if (!may_follow(end, status)) {
            return failed(
                "{}: {} is a symbolic link of user {}, in a folder where every user may make one "
                "(expected a file, or a link of your own)",
                path.string(), end.string(), status.st_uid);
        }
        std::error_code error;
        const fs::path target = fs::read_symlink(end, error);
        if (error) {
            return failed("{}: {}", path.string(), errno_text(error.value()));
        }
        end = end.parent_path() / target;
    }
}

}  // namespace

// The name has 64 random bits, so that a second try is not needed. Of a long name it has the beginning.
fs::path StagedFile::hidden_name() const {
    std::random_device random;
    const std::uint64_t bits = std::uint64_t{random()} << 32 | random();
    const std::string beginning = path_.filename().string().substr(0, NAME_MAX - 2 - 2 * sizeof(bits));
    return folder_of(path_) / fmt::format(".{}.{:016x}", beginning, bits);
}

Outcome<StagedFile> StagedFile::create(const fs::path &path, unsigned mode, Until until) {
    StagedFile file;
    std::error_code none;
    file.path_ = TRY(followed(path));
    if (!file.path_.has_filename()) {
        return failed("{}: expected the name of a file", path.string());
    }
    // The file gets its name through /proc.
    if (until == Until::Unnamed && fs::exists("/proc/self/fd", none)) {
        file.fd_ = unnamed_file(AT_FDCWD, folder_of(file.path_).c_str(), mode);
    }
    if (!file.fd_) {
        const fs::path name = file.hidden_name();
        file.fd_.reset(open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode));
        if (!file.fd_) {
            return failed("{}: cannot create a file in {}: {}", path.string(), folder_of(file.path_).string(),
                          errno_text(errno));
        }
        file.temporary_ = name;
    }
    return file;
}

StagedFile::StagedFile(StagedFile &&other) noexcept
    : fd_{std::move(other.fd_)},
      path_{std::move(other.path_)},
      temporary_{std::exchange(other.temporary_, {})} {}

StagedFile::~StagedFile() {
    if (!temporary_.empty()) {
        unlink(temporary_.c_str());
    }
}

// Gives a file without a name a hidden one. Returns 0 or an errno value.
int StagedFile::hide() {
    if (!temporary_.empty()) {
        return 0;
    }
    const fs::path name = hidden_name();
    const int error = give_name(fd_.get(), AT_FDCWD, name.string());
    if (error == 0) {
        temporary_ = name;
    }
    return error;
}

// Most bytes are on storage before the file has any name, so a process that is killed rarely leaves one.
// btrfs makes nothing durable of a file without a name, so storage is asked again before the name is that of
// the path.
Outcome<> StagedFile::publish() {
    const auto not_durable = [this] {
        return failed("{}: cannot make it durable: {}", path_.string(), errno_text(errno));
    };
    if (fsync(fd_.get()) != 0) {
        return not_durable();
    }
    if (const int error = hide(); error != 0) {
        return failed("{}: cannot create: {}", path_.string(), errno_text(error));
    }
    if (fsync(fd_.get()) != 0) {
        return not_durable();
    }
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
        return failed("{}: cannot create: {}", path_.string(), errno_text(errno));
    }
    temporary_.clear();
    const base::Fd folder{open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!folder || fsync(folder.get()) != 0) {
        return failed("{}: cannot make its name durable: {}", path_.string(), errno_text(errno));
    }
    return {};
}

}  // namespace cli
