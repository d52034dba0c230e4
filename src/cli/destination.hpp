// SPDX-License-Identifier: BSD-3-Clause
// cli/destination: where a pulled content goes: a file that appears whole, or a stream.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "cli/failure.hpp"
#include "cli/staged_file.hpp"

namespace cli {

// One thread.
class Destination {
public:
    // Called now and then while a stream takes nothing.
    using Waiting = std::function<Outcome<>()>;

    // A stream when the path is `-`, or leads to a descriptor of this process (/dev/stdout): that is written
    // to as it is, for a file behind it is its opener's. Else a regular file, or none yet; a new file has the
    // rights of the one that it replaces.
    [[nodiscard]] static Outcome<Destination> open(const std::string &path);

    [[nodiscard]] bool is_stream() const { return !file_.has_value(); }
    [[nodiscard]] bool is_standard_output() const { return descriptor_ == 1; }

    // The bytes at an offset of the content; a stream takes them from the first to the last. Blocks.
    [[nodiscard]] Outcome<> write(std::span<const std::byte> bytes, std::uint64_t offset,
                                  const Waiting &waiting);
    // The content is whole, and has this length. Blocks for storage.
    [[nodiscard]] Outcome<> publish(std::uint64_t length);

private:
    Destination() = default;

    std::string path_;
    std::optional<StagedFile> file_;
    int descriptor_ = -1;  // a stream's
};

}  // namespace cli
