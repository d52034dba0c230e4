// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/several: pushes to several servers, and pulls from them: a name is an atomic register of all
// (doc/REPLICATION.md).
#pragma once

#include "cli/transfer/pull.hpp"
#include "cli/transfer/push.hpp"

namespace cli {

// Commits the content on the quorum that the options say.
[[nodiscard]] Outcome<> push_to_several(const PushOptions &options);
// Pulls the newest content of a majority, and has a majority commit it.
[[nodiscard]] Outcome<> pull_from_several(const PullOptions &options);

}  // namespace cli
