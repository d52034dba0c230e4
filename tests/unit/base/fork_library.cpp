// SPDX-License-Identifier: BSD-3-Clause
// This library has the room base of its own, as librpma and libsoftrdma have theirs.
#include "fork_library.hpp"

#include "base/fork.hpp"

extern "C" [[gnu::visibility("default")]] ForkLibraryCalls fork_library_calls;
constinit ForkLibraryCalls fork_library_calls{};

namespace {

const base::ForkHook hook{base::ForkLevel::Base,
                          {.before = [] { ++fork_library_calls.before; },
                           .after_in_parent = [] { ++fork_library_calls.after_in_parent; },
                           .after_in_child = [] { ++fork_library_calls.after_in_child; }}};

}  // namespace
