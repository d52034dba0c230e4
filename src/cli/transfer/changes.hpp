// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/changes: the blocks in which a file and a content differ, of which alone the bytes travel.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "cli/protocol/blocks.hpp"
#include "cli/transfer/destination.hpp"
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

// Returns the checksums of the blocks of the content that a session pulls, which has this length and
// checksum; nothing when the server does not know them.
[[nodiscard]] Outcome<std::optional<Blocks>> blocks_of(Session &session, std::uint64_t length,
                                                       std::uint32_t checksum);

// Returns the parts of a content in which it differs from another one, whose blocks have the same size.
[[nodiscard]] std::vector<Session::Range> differing(const Blocks &content, const Blocks &other);

// Has a destination keep the blocks of the old file with which it begins that the content has too, whose
// blocks have these checksums. Returns the other parts of the content, which have to come.
[[nodiscard]] Outcome<std::vector<Session::Range>> take_same(Session &session, Destination &destination,
                                                             const Source &old, const Blocks &content,
                                                             bool show_progress);

}  // namespace cli
