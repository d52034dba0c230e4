// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/fresh: numbers that the program closed behind the library's back, by a raw system call for
// instance.
#pragma once

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

}  // namespace carry_preload
