// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/destination: the destination of a pulled content: a file that appears complete, or a stream.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "cli/failure.hpp"
#include "cli/transfer/source.hpp"
#include "cli/transfer/staged_file.hpp"

namespace cli {

// One thread uses it, unless a function says otherwise.
class Destination {
public:
    // It is called at intervals while a stream takes nothing.
    using Waiting = std::function<Outcome<>()>;

    // Opens a destination. It is a stream when the path is `-`, or leads to a descriptor of this process
    // (/dev/stdout). The process that opened such a descriptor owns the file behind it, so the stream is
    // written as it is. Any other path is a regular file, which need not exist; a new file has the
    // permissions of the one that it replaces.
    [[nodiscard]] static Outcome<Destination> open(const std::string &path);

    [[nodiscard]] bool is_stream() const { return !file_.has_value(); }
    [[nodiscard]] bool is_standard_output() const { return descriptor_ == 1; }

    // Returns the file that has the bytes before they are published; -1 for a stream.
    [[nodiscard]] int file() const { return file_ ? file_->fd() : -1; }

    // Writes bytes at an offset of the content; a stream takes them from the first to the last. Blocks.
    [[nodiscard]] Outcome<> write(std::span<const std::byte> bytes, std::uint64_t offset,
                                  const Waiting &waiting);

    // Has a new file begin as a clone of the one that it replaces, where the file system can do that. Returns
    // the bytes of that one, of which keep() gets those that stay; nothing when there is none, or it cannot
    // be read.
    [[nodiscard]] std::optional<Source> begin_as_old();
    // Has bytes that are in the old file at this offset stay. Any thread may call it. Blocks.
    [[nodiscard]] Outcome<> keep(std::span<const std::byte> bytes, std::uint64_t offset);

    // Cuts a file to this length. Nothing happens to a stream.
    [[nodiscard]] Outcome<> cut(std::uint64_t length);
    // Publishes the complete content, which has this length. Blocks for storage.
    [[nodiscard]] Outcome<> publish(std::uint64_t length);

private:
    Destination() = default;

    std::string path_;
    std::optional<StagedFile> file_;
    int descriptor_ = -1;     // of a stream
    base::Fd old_;            // the file that is replaced
    bool is_cloned_ = false;  // the new one began as it
};

}  // namespace cli
