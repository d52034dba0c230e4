// SPDX-License-Identifier: BSD-3-Clause
// cli/page_cache: makes reads return the bytes of storage, where the page cache may have others.
#pragma once

#include <string>

#include "cli/failure.hpp"

namespace cli {

// Makes later reads of the file return the bytes of storage. A page whose write failed stays in the page
// cache with the new bytes and counts as written, so a later reader would take it for durable. The file is on
// storage, open for reading and writing, and not mapped; no other process writes to it. Blocks. Fails when a
// page can neither be dropped from the page cache nor be read past it. `path` is for the failure's text.
[[nodiscard]] Outcome<> forget_cached(int fd, const std::string &path);

}  // namespace cli
