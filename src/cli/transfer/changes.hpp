// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/changes: sends the blocks of a file that differ from those of the newest content.
#pragma once

#include "cli/protocol/blocks.hpp"
#include "cli/transfer/session.hpp"
#include "cli/transfer/source.hpp"

namespace cli {

// Has the server store the blocks of a source that differ from the newest content, whose blocks have these
// checksums; it takes the others from that content. The source has a size. `content` gets its length and
// checksum, and the bytes that were sent are returned.
[[nodiscard]] Outcome<std::uint64_t> send_changes(Session &session, const Source &source,
                                                  const Blocks &newest, Content &content, bool show_progress);

}  // namespace cli
