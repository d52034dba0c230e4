// SPDX-License-Identifier: BSD-3-Clause
// cli/store/store_files: the files of a store: the name, the attribute and the bytes of a content.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "cli/failure.hpp"
#include "cli/protocol/note.hpp"

namespace cli {

// The attribute of a content's file that has its note.
inline constexpr const char *note_attribute = "user.rpma";
inline constexpr int folder_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
inline constexpr const char *was_deleted = "was deleted";

// Returns the names in a folder: those that begin with a dot, or the others.
enum class Dotted : bool { No, Yes };
[[nodiscard]] Outcome<std::vector<std::string>> names_in(int folder, Dotted dotted = Dotted::No);

// Makes all files and names on the file system of this folder durable, with one flush of the device. Returns
// false when that failed, or when the file system is none of which this is known. Blocks until also what
// others have written there is on storage.
[[nodiscard]] bool sync_all(int folder);

// Returns whether an errno value says that there is no room.
[[nodiscard]] bool is_full(int error);
// Returns whether an errno value is an error of the device. That there is no room, and the errors of one name
// or number, of the rights to it, and of this process's limits say nothing of it.
[[nodiscard]] bool is_of_device(int error);

// Returns whether an errno value tells of this process's limits, and so nothing of a file.
[[nodiscard]] bool is_own_limit(int error);

// Returns the fault of a file with which this was not possible, as "cannot be opened".
[[nodiscard]] std::string fault_text(const char *what, int error);
// Returns whether a fault tells of this process's limits.
[[nodiscard]] bool is_own_fault(std::string_view fault);

// A store has a number of its own, in this file, since it was first opened. One that follows another has the
// number of its leader's in the other file, since it was first told it.
inline constexpr const char *identity_name = ".identity";
inline constexpr const char *leader_name = ".leader";

// Returns the identity in such a file; empty when there is no file. Fails when the file has none.
[[nodiscard]] Outcome<std::string> read_identity(int folder, const char *name);
// Makes such a file, and makes it durable. There may be none before.
[[nodiscard]] Outcome<> write_identity(int folder, const char *name, const std::string &identity);
// Returns whether a text is 32 digits of base 16, as make_identity() gives them.
[[nodiscard]] bool is_identity(std::string_view text);
[[nodiscard]] std::string make_identity();

// Opens a content's file. Fails with what is wrong with it.
[[nodiscard]] Outcome<base::Fd> open_content(int store, const std::string &name, std::uint64_t sequence);
[[nodiscard]] Outcome<Note> read_note(int file);

// Calls `take` with the file's bytes up to `length`, piece by piece, and their offset, and before that
// `may_read`, if there is one, with their number. Returns 0 or an errno value, which is ENODATA when the file
// ends before, and ECANCELED when `may_read` returns false.
using TakeBytes = std::function<void(std::span<const std::byte>, std::uint64_t)>;
using MayRead = std::function<bool(std::uint64_t)>;
[[nodiscard]] int read_all(int fd, std::uint64_t length, const TakeBytes &take, const MayRead &may_read = {});

// Returns the name of the file with the checksums of a content's blocks (cli/protocol/blocks), beside that of
// the content. They can be made again, so nothing waits until they are durable.
[[nodiscard]] std::string blocks_name(std::uint64_t sequence);
// The whole blocks of a push that was cut off and may go on (rpma push --resume), and their checksums.
inline constexpr const char *partial_name = ".partial";
inline constexpr const char *partial_blocks_name = ".partial.blocks";

// Returns the checksums of blocks that are in a file with such a name, as text; empty without them. No file
// there is taken for more than it says: whoever uses the text decodes it with checks.
[[nodiscard]] std::string read_blocks(int folder, const std::string &name);

// Returns the sequence in such a name; 0 when it is none.
[[nodiscard]] std::uint64_t sequence_of_blocks(std::string_view file_name);

}  // namespace cli
