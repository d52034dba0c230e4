// SPDX-License-Identifier: BSD-3-Clause
// cli/source: what a push reads: a file, which must not change meanwhile, or standard input.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/fd.hpp"
#include "cli/failure.hpp"

namespace cli {

// Read once from its beginning to its end, by plain reads: a mapping would end the process when the file is
// truncated under it. One thread.
class Source {
public:
    // Called now and then while standard input gives less than is read, with the bytes that it gave.
    using Waiting = std::function<Outcome<>(std::size_t)>;

    // A regular file, or standard input when the path is `-`.
    [[nodiscard]] static Outcome<Source> open(const std::string &path);

    [[nodiscard]] const std::string &name() const { return name_; }
    // None of a stream, until it has ended.
    [[nodiscard]] std::optional<std::uint64_t> size() const;

    // The next bytes, as many as fit; fewer only at the end.
    [[nodiscard]] Outcome<std::size_t> read(std::span<std::byte> bytes, const Waiting &waiting) const;

    // Fails when a file's size or times are not those of open, or so many bytes are not all of it.
    [[nodiscard]] Outcome<> check_unchanged(std::uint64_t length) const;

private:
    std::string name_;
    base::Fd fd_;  // none: standard input
    struct stat status_{};
};

}  // namespace cli
