// SPDX-License-Identifier: BSD-3-Clause
// base/at_exit: work at the end of the process, among the destructors of static objects.
#pragma once

namespace base {

// A static object of this type calls `run` when the process ends, or when its library is unloaded.
template <auto run>
class AtExit {
public:
    AtExit() = default;
    AtExit(const AtExit &) = delete;
    AtExit &operator=(const AtExit &) = delete;
    ~AtExit() { run(); }
};

}  // namespace base
