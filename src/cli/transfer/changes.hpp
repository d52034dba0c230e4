// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/changes: sends the blocks of a file that differ from those of the newest content.
#pragma once

#include <functional>

#include "cli/protocol/blocks.hpp"
#include "cli/transfer/session.hpp"
#include "cli/transfer/source.hpp"

namespace cli {

// Has the server store the blocks of a source that differ from the content with which its push begins, whose
// blocks have these checksums; it takes the others from that content. The source has a size. `content` gets
// its length and checksum, and the number of bytes that were sent is returned; `wait` is called with that of
// each part.
using Sent = std::function<Outcome<>(std::uint64_t)>;
[[nodiscard]] Outcome<std::uint64_t> send_changes(Session &session, const Source &source,
                                                  const Blocks &newest, Content &content, const Sent &wait,
                                                  bool show_progress);

}  // namespace cli
