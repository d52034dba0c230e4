// SPDX-License-Identifier: BSD-3-Clause
// base/signature: the parameters of a function that a header declares, for macros that define another
// function of its type. PARAMETERS_2(ibv_query_device) declares p0 and p1, and ARGUMENTS_2 names them. The
// compiler checks the count.
#pragma once

#include <cstddef>
#include <tuple>

namespace base {

template <typename Returned, typename... Parameters>
struct Signature {
    using Result = Returned;
    template <std::size_t index>
    using Parameter = std::tuple_element_t<index, std::tuple<Parameters...>>;
};

// The types are deduced, because the type of a function may have attributes, which a template ignores.
template <bool never_throws, typename Returned, typename... Parameters>
Signature<Returned, Parameters...> signature_of(Returned (*)(Parameters...) noexcept(never_throws));

}  // namespace base

// NOLINTBEGIN(cppcoreguidelines-macro-usage): only the preprocessor makes a name of a name
#define SIGNATURE(name) decltype(base::signature_of(name))
#define PARAMETER(name, index) [[maybe_unused]] SIGNATURE(name)::Parameter<index> p##index
#define PARAMETERS_0(name)
#define PARAMETERS_1(name) PARAMETER(name, 0)
#define PARAMETERS_2(name) PARAMETERS_1(name), PARAMETER(name, 1)
#define PARAMETERS_3(name) PARAMETERS_2(name), PARAMETER(name, 2)
#define PARAMETERS_4(name) PARAMETERS_3(name), PARAMETER(name, 3)
#define PARAMETERS_5(name) PARAMETERS_4(name), PARAMETER(name, 4)
#define PARAMETERS_6(name) PARAMETERS_5(name), PARAMETER(name, 5)
#define PARAMETERS_7(name) PARAMETERS_6(name), PARAMETER(name, 6)
#define ARGUMENTS_0
#define ARGUMENTS_1 p0
#define ARGUMENTS_2 ARGUMENTS_1, p1
#define ARGUMENTS_3 ARGUMENTS_2, p2
#define ARGUMENTS_4 ARGUMENTS_3, p3
#define ARGUMENTS_5 ARGUMENTS_4, p4
#define ARGUMENTS_6 ARGUMENTS_5, p5
#define ARGUMENTS_7 ARGUMENTS_6, p6
// NOLINTEND(cppcoreguidelines-macro-usage)
