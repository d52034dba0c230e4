// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/numbers: calls of libc's that give the program a new number.
#include "carry_preload/fresh.hpp"

using carry_preload::fresh;

#include "base/new_descriptors.hpp"
