// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/privileges: a process that gives up its user for good, as the child of a server does. What it
// shares with processes of that user is not its own any more.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "carry/meeting.hpp"
#include "carry/sockets.hpp"
#include "carry_preload/hand_over.hpp"

namespace {

// Makes a call that changes the process's user.
template <typename Call>
int changing_user(Call call) {
    const uid_t before = geteuid();
    const int result = call();
    std::array<uid_t, 3> now{};
    if (result != 0 || base::is_in_parents_memory() || getresuid(now.data(), &now[1], &now[2]) != 0 ||
        std::ranges::find(now, before) != now.end()) {
        return result;
    }
    const int error = errno;
    carry_preload::hand_over_to_others();
    carry::Meeting::leave_user();
    errno = error;
    return result;
}

}  // namespace

INTERPOSED(1, setuid)(uid_t user) noexcept {
    return changing_user([&] { return LIBC(setuid)(user); });
}

INTERPOSED(1, seteuid)(uid_t user) noexcept {
    return changing_user([&] { return LIBC(seteuid)(user); });
}

INTERPOSED(2, setreuid)(uid_t real, uid_t effective) noexcept {
    return changing_user([&] { return LIBC(setreuid)(real, effective); });
}

INTERPOSED(3, setresuid)(uid_t real, uid_t effective, uid_t saved) noexcept {
    return changing_user([&] { return LIBC(setresuid)(real, effective, saved); });
}
