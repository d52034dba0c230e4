// SPDX-License-Identifier: BSD-3-Clause
// cli/staged_file: a temporary name and renameat2.
#include "cli/staged_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <random>

namespace cli {

namespace fs = std::filesystem;

namespace {

fs::path folder_of(const fs::path &path) {
    return path.has_parent_path() ? path.parent_path() : fs::path{"."};
}

}  // namespace

Outcome<StagedFile> StagedFile::create(const fs::path &path, unsigned mode) {
    StagedFile file;
    std::error_code none;
    file.path_ = fs::is_symlink(path, none) ? fs::weakly_canonical(path, none) : path;
    if (!file.path_.has_filename()) {
        return failed("{}: expected the name of a file", path.string());
    }
    // 64 random bits: a name that is taken is no case that needs a second try.
    std::random_device random;
    const std::uint64_t bits = std::uint64_t{random()} << 32 | random();
    const fs::path name =
        folder_of(file.path_) / fmt::format(".{}.{:016x}", file.path_.filename().string(), bits);
    file.fd_.reset(open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode));
    if (!file.fd_) {
        return failed("{}: cannot create a file in {}: {}", path.string(), folder_of(file.path_).string(),
                      errno_text(errno));
    }
    file.temporary_ = name;
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

Outcome<bool> StagedFile::publish(Existing existing) {
    if (fsync(fd_.get()) != 0) {
        return failed("{}: cannot make it durable: {}", path_.string(), errno_text(errno));
    }
    const unsigned flags = existing == Existing::Keep ? RENAME_NOREPLACE : 0;
    if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), flags) != 0) {
        if (existing == Existing::Keep && errno == EEXIST) {
            return false;
        }
        return failed("{}: cannot create: {}", path_.string(), errno_text(errno));
    }
    temporary_.clear();
    const base::Fd folder{open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!folder || fsync(folder.get()) != 0) {
        return failed("{}: cannot make its name durable: {}", path_.string(), errno_text(errno));
    }
    return true;
}

}  // namespace cli
