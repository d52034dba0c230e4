// SPDX-License-Identifier: BSD-3-Clause
#include "base/watched_mutex.hpp"

#include <cstdlib>
#include <string_view>

namespace base {

// Valgrind's tools come with a library that is preloaded, and that has the name of the tool.
bool is_watched_for_races() {
#ifdef __SANITIZE_THREAD__
    return true;
#else
    static const bool once = [] {
        const char *const preloads = std::getenv("LD_PRELOAD");
        const std::string_view names = preloads != nullptr ? preloads : "";
        return names.find("/vgpreload_helgrind") != std::string_view::npos ||
               names.find("/vgpreload_drd") != std::string_view::npos;
    }();
    return once;
#endif
}

}  // namespace base
