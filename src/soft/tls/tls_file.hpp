// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_file: reads the files of TLS that RPMA_TLS names. Such a file belongs to root or to the
// user of the process. Nobody else may write it, and nobody else may read one that has a secret.
#pragma once

#include <string.h>
#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace soft {

// Overwrites the characters when it ends, because they may be keys.
struct SecretText {
    SecretText() = default;
    SecretText(const SecretText &) = delete;
    SecretText &operator=(const SecretText &) = delete;
    ~SecretText() { explicit_bzero(text.data(), text.size()); }

    std::string text;
};

// Reads the file, and logs why when it cannot be used. Fails with EACCES when it is another user's, or when
// others may use it in a way that they may not; with EINVAL when it is no file, or is larger than 1 MiB; or
// as open(2) does. Throws std::bad_alloc.
enum class Readers : std::uint8_t { Owner, Everybody };
[[nodiscard]] base::Result<void> read_tls_file(const char *file, Readers readers, SecretText &all);

// Returns the text without the blanks at both of its ends.
[[nodiscard]] std::string_view without_blanks(std::string_view text);

// Takes the first line off the text, and returns it without the blanks around it. A comment, which begins
// with #, counts as an empty line.
[[nodiscard]] std::string_view take_line(std::string_view &text);

// Tells one state of a file from another. All files that cannot be found have the same.
struct FileStamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    std::int64_t changed_ns = 0;

    [[nodiscard]] static FileStamp of(const char *file);
    // Returns whether a later change gives another stamp, because the clock of files has gone on since the
    // last one.
    [[nodiscard]] bool is_settled() const;

    friend bool operator==(const FileStamp &, const FileStamp &) = default;
};

}  // namespace soft
