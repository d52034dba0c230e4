// SPDX-License-Identifier: BSD-3-Clause
#include "registry/user_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/own_user.hpp"

namespace registry {

namespace {

// So many names are looked at for each user. Who makes them all first keeps the user out, as who fills the
// file system does.
constexpr unsigned most_names = 16;

std::string path_of(const std::string &shared, uid_t user, unsigned number) {
    const std::string first = shared + "/rsockets-" + std::to_string(user);
    return number == 0 ? first : first + "-" + std::to_string(number);
}

// Opens a folder of the user. Another one is nothing.
std::optional<UserFolder> open_of(std::string path, uid_t user) {
    struct stat status{};
    if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != user) {
        return std::nullopt;
    }
    base::Fd fd{open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (!fd || fstat(fd.get(), &status) != 0 || status.st_uid != user) {
        return std::nullopt;
    }
    return UserFolder{.path = std::move(path), .fd = std::move(fd)};
}

bool is_own(const UserFolder &folder) {
    struct stat status{};
    return fstat(folder.fd.get(), &status) == 0 && base::is_own_file(folder.fd.get(), status);
}

}  // namespace

std::vector<UserFolder> folders_of(const std::string &shared, uid_t user) {
    std::vector<UserFolder> folders;
    for (unsigned number = 0; number < most_names; ++number) {
        if (auto folder = open_of(path_of(shared, user, number), user)) {
            folders.push_back(*std::move(folder));
        }
    }
    return folders;
}

base::Result<UserFolder> own_folder(const std::string &shared) {
    constexpr mode_t readable = S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH;
    const uid_t user = geteuid();
    for (const bool makes : {false, true}) {
        for (unsigned number = 0; number < most_names; ++number) {
            std::string path = path_of(shared, user, number);
            if (makes && mkdir(path.c_str(), readable) != 0 && errno != EEXIST) {
                return base::last_failure();
            }
            auto folder = open_of(std::move(path), user);
            if (folder && is_own(*folder) && fchmod(folder->fd.get(), readable) == 0) {
                return *std::move(folder);
            }
        }
    }
    return base::failure(EPERM);
}

}  // namespace registry
