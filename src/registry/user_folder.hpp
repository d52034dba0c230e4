// SPDX-License-Identifier: BSD-3-Clause
// registry/user_folder: the folder with the registry's files of one user. So nobody looks at the names that
// other users give to files in the shared folder. They may have made the user's folder too, under any of its
// names; the owner tells whose it is.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace registry {

struct UserFolder {
    std::string path;
    base::Fd fd;
};

// Opens the folders of the user below the shared one, one under each name that is the user's. It has several
// when somebody else has had the first names for a time.
[[nodiscard]] std::vector<UserFolder> folders_of(const std::string &shared, uid_t user);

// Opens the folder for new files of this process's user, and makes it when there is none. Others may read it.
// Fails with EPERM when other users have all its names.
[[nodiscard]] base::Result<UserFolder> own_folder(const std::string &shared);

}  // namespace registry
