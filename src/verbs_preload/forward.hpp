// SPDX-License-Identifier: BSD-3-Clause
// verbs_preload/forward: defines a function with one line. FORWARD(2, ibv_query_device) defines
// ibv_query_device, with 2 parameters, as a call of softrdma_ibv_query_device. REFUSE(2, ibv_query_ece,
// EOPNOTSUPP) defines a function that the device does not support: it logs that and returns the failure, with
// errno set. The types come from the headers' declarations, and the compiler checks them.
#pragma once

#include <cerrno>

#include "base/log.hpp"
#include "base/signature.hpp"

namespace verbs_preload {

inline void refuse(const char *name) {
    BASE_LOG(Error, "%s: the soft device does not have this call", name);
    errno = EOPNOTSUPP;
}

}  // namespace verbs_preload

// NOLINTBEGIN(cppcoreguidelines-macro-usage): only the preprocessor makes a name of a name
#define FORWARD(count, name)                                                                           \
    extern "C" [[gnu::visibility("default")]] SIGNATURE(name)::Result name(PARAMETERS_##count(name)) { \
        return softrdma_##name(ARGUMENTS_##count);                                                     \
    }
#define REFUSE(count, name, failure)                                                                   \
    extern "C" [[gnu::visibility("default")]] SIGNATURE(name)::Result name(PARAMETERS_##count(name)) { \
        verbs_preload::refuse(#name);                                                                  \
        return failure;                                                                                \
    }
// NOLINTEND(cppcoreguidelines-macro-usage)
