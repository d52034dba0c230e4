// SPDX-License-Identifier: BSD-3-Clause
// verbs_preload/forward: defines a function with one line. FORWARD(2, ibv_query_device) defines
// ibv_query_device, with 2 parameters, as a call of softrdma_ibv_query_device. REFUSE(2, ibv_query_ece,
// EOPNOTSUPP) defines a function that the device does not support: it logs that and returns the failure, with
// errno set. The types come from the headers' declarations, and the compiler checks them.
#pragma once

#include <cerrno>
#include <cstddef>
#include <tuple>

#include "base/log.hpp"

namespace verbs_preload {

template <typename Function>
struct Signature;

template <typename Returned, typename... Parameters>
struct Signature<Returned(Parameters...)> {
    using Result = Returned;
    template <std::size_t index>
    using Parameter = std::tuple_element_t<index, std::tuple<Parameters...>>;
};

template <typename Function>
using Result = Signature<Function>::Result;
template <typename Function, std::size_t index>
using Parameter = Signature<Function>::template Parameter<index>;

inline void refuse(const char *name) {
    BASE_LOG(Error, "%s: the soft device does not have this call", name);
    errno = EOPNOTSUPP;
}

}  // namespace verbs_preload

// NOLINTBEGIN(cppcoreguidelines-macro-usage): only the preprocessor makes a name of a name
#define PARAMETER(name, index) [[maybe_unused]] verbs_preload::Parameter<decltype(name), index> p##index
#define PARAMETERS_0(name)
#define PARAMETERS_1(name) PARAMETER(name, 0)
#define PARAMETERS_2(name) PARAMETERS_1(name), PARAMETER(name, 1)
#define PARAMETERS_3(name) PARAMETERS_2(name), PARAMETER(name, 2)
#define PARAMETERS_4(name) PARAMETERS_3(name), PARAMETER(name, 3)
#define PARAMETERS_5(name) PARAMETERS_4(name), PARAMETER(name, 4)
#define PARAMETERS_6(name) PARAMETERS_5(name), PARAMETER(name, 5)
#define ARGUMENTS_0
#define ARGUMENTS_1 p0
#define ARGUMENTS_2 ARGUMENTS_1, p1
#define ARGUMENTS_3 ARGUMENTS_2, p2
#define ARGUMENTS_4 ARGUMENTS_3, p3
#define ARGUMENTS_5 ARGUMENTS_4, p4
#define ARGUMENTS_6 ARGUMENTS_5, p5

#define FORWARD(count, name)                                                              \
    extern "C" [[gnu::visibility("default")]] verbs_preload::Result<decltype(name)> name( \
        PARAMETERS_##count(name)) {                                                       \
        return softrdma_##name(ARGUMENTS_##count);                                        \
    }
#define REFUSE(count, name, failure)                                                      \
    extern "C" [[gnu::visibility("default")]] verbs_preload::Result<decltype(name)> name( \
        PARAMETERS_##count(name)) {                                                       \
        verbs_preload::refuse(#name);                                                     \
        return failure;                                                                   \
    }
// NOLINTEND(cppcoreguidelines-macro-usage)
