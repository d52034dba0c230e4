// SPDX-License-Identifier: BSD-3-Clause
// librpma/post_flags: what all posts share.
#pragma once

#include "librpma/api.hpp"

namespace librpma {

// Of RPMA_F_ flags only the bit that asks for a completion in any case matters; errors complete anyway.
inline unsigned send_flags(int flags) {
    constexpr int always = RPMA_F_COMPLETION_ALWAYS & ~RPMA_F_COMPLETION_ON_ERROR;
    return (flags & always) != 0 ? IBV_SEND_SIGNALED : 0;
}

// number: what a post returned, an errno value. Out of the callers' way: it is rare.
[[nodiscard]] int refused_post(int number);

// The return code for what a post returned.
inline int posted(int number) {
    if (number != 0) [[unlikely]] {
        return refused_post(number);
    }
    return 0;
}

}  // namespace librpma
