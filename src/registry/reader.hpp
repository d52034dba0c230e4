// SPDX-License-Identifier: BSD-3-Clause
// registry/reader: the rsockets of other processes. A file that another user made under this user's name, or
// that does not make sense, is left alone, and a line of the log at the level Debug says why. A file that
// nobody has locked is removed: its process is gone. Of the files of other users but root a part is read, as
// far as that takes no noticeable time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "registry/process.hpp"
#include "registry/record.hpp"

namespace registry {

// An rsocket as it was at one time. Its texts end with a zero, and have printable characters only.
struct Seen {
    uid_t user;
    ino_t space;  // the namespace of the process's number, see own_space()
    pid_t process;
    Description description;
    Live live;
};

// Calls take(rsocket) for those in the files of these users below the shared folder, until it returns false.
// Blocks for reading files in memory. A folder that is not there has none.
void read_all(const std::string &shared, const std::vector<uid_t> &users,
              const std::function<bool(const Seen &)> &take);

// Removes the files of this user's processes that are gone.
void remove_abandoned(const std::string &shared);

}  // namespace registry
