// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/privileges: a process that gives up its user for good, as the child of a server does. What it
// shares with processes of that user is not its own any more.
#include <sys/single_threaded.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "carry/meeting.hpp"
#include "carry/sockets.hpp"
#include "carry_preload/hand_over.hpp"

using carry::sockets;

namespace {

// The real, the effective and the saved user.
using Users = std::array<uid_t, 3>;
bool learn(Users &users) {
    return getresuid(users.data(), &users[1], &users[2]) == 0;
}

// Returns whether the process cannot become this user again. Root can become anybody.
bool has_lost(uid_t user, const Users &now) {
    constexpr uid_t root = 0;
    return std::ranges::none_of(now, [user](uid_t one) { return one == user || one == root; });
}

// Makes a call that changes the process's user. With other threads the memory stays, which they may use.
template <typename Call>
int changing_user(Call call) {
    Users before{};
    const bool is_known = learn(before);
    const int result = call();
    Users now{};
    if (result != 0 || !is_known || !learn(now) || base::is_in_parents_memory() ||
        !(has_lost(before[0], now) || has_lost(before[2], now))) {
        return result;
    }
    const int error = errno;
    const bool is_alone = __libc_single_threaded != 0 || !carry::Process::has_other_threads();
    sockets.reap();
    carry_preload::hand_over_to_others();
    if (is_alone) {
        sockets.share_no_more();
        carry::Meeting::leave_user();
    }
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
