// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/staged_file: a file that appears under its name complete and durable, or not at all.
#pragma once

#include <filesystem>
#include <string>

#include "base/fd.hpp"
#include "cli/failure.hpp"

namespace cli {

// Until it is published it has no name, and the kernel removes it when the process ends in any way. For an
// instant of that, and on a file system without such files (O_TMPFILE) always, it has a hidden name in the
// same folder, which the destructor removes. One thread uses it.
class StagedFile {
public:
    enum class Until { Unnamed, Hidden };  // publish; Unnamed becomes Hidden where it has to

    // Creates an empty file that may become `path`. A symbolic link at `path` is followed, unless another
    // user made it in a folder where every user may.
    [[nodiscard]] static Outcome<StagedFile> create(const std::filesystem::path &path, unsigned mode,
                                                    Until until = Until::Unnamed);

    StagedFile(StagedFile &&other) noexcept;
    StagedFile &operator=(StagedFile &&) = delete;
    ~StagedFile();

    [[nodiscard]] int fd() const { return fd_.get(); }

    // Makes the bytes durable, gives the file its name in place of a file that has it, and makes the name
    // durable. Blocks for storage.
    [[nodiscard]] Outcome<> publish();

private:
    StagedFile() = default;
    [[nodiscard]] std::filesystem::path hidden_name() const;
    [[nodiscard]] int hide();

    base::Fd fd_;
    std::filesystem::path path_;
    std::filesystem::path temporary_;  // empty when there is nothing to remove
};

}  // namespace cli
