// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/fresh: numbers that are closed: by the program, or behind the library's back, by a raw system
// call for instance.
#pragma once

#include "base/fork.hpp"
#include "carry/sockets.hpp"
#include "carry/waits.hpp"

namespace carry_preload {

// Takes the result of a call of libc's that makes a descriptor, and returns it. Where the number was a
// socket's, the program has closed that.
inline int fresh(int made) {
    if (made >= 0 && carry::sockets.at(made) != nullptr) {
        carry::epolls::closed(made, false);
        carry::sockets.forget(made);
    }
    return made;
}

// Closes a descriptor of any kind by calling by_kernel().
template <typename Close>
int close_any(int fd, Close by_kernel) {
    const bool has_more_numbers = carry::sockets.has_more_numbers(fd);
    if (carry::epolls::concerns(fd, carry::sockets.at(fd), has_more_numbers) &&
        !base::is_in_parents_memory()) {
        carry::epolls::closed(fd, has_more_numbers);
    }
    return carry::sockets.close(fd, by_kernel);
}

}  // namespace carry_preload
