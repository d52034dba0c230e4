// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/source: the source of a push: a file, which must not change meanwhile, standard input, or the
// output of a program.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "cli/failure.hpp"

namespace cli {

// It is read from its beginning to its end, with plain reads, because a mapping would end the process
// when the file is truncated. One thread uses it.
class Source {
public:
    // It is called at intervals while a stream gives fewer bytes than are wanted, with the number that it
    // gave.
    using Waiting = std::function<Outcome<>(std::size_t)>;

    // Reads an open file, from its beginning; the descriptor outlives the source. `name` is for messages.
    [[nodiscard]] static Outcome<Source> of(int file, const std::string &name);

    // Opens a regular file, or standard input when the path is `-`.
    [[nodiscard]] static Outcome<Source> open(const std::string &path);

    // Starts a program, whose standard output is read. It ends with the source, unless it has ended before:
    // it gets SIGTERM, and SIGKILL when that is not enough. Without a terminal it has a process group, which
    // gets these signals; a terminal signals the processes of its own. The process has no other thread.
    [[nodiscard]] static Outcome<Source> run(const std::vector<std::string> &program);

    [[nodiscard]] const std::string &name() const { return name_; }
    // Returns the size; none for a stream that has not ended.
    [[nodiscard]] std::optional<std::uint64_t> size() const;

    // Reads the next bytes, as many as fit. It reads fewer only at the end.
    [[nodiscard]] Outcome<std::size_t> read(std::span<std::byte> bytes, const Waiting &waiting);

    // Reads all of these bytes of a file. Any thread may call it.
    [[nodiscard]] Outcome<> read_at(std::span<std::byte> bytes, std::uint64_t offset) const;

    // Fails when a file's size or times have changed since open, or its length is not `length`.
    [[nodiscard]] Outcome<> check_unchanged(std::uint64_t length) const;

    // Waits for the program, after its last byte, and fails when it did not end with 0.
    [[nodiscard]] Outcome<> finish(const Waiting &waiting);

private:
    // The process of the program.
    struct Program {
        pid_t pid = -1;
        bool leads = false;  // its process group
        base::Fd fd;         // of the process (pidfd_open(2)); empty when there is none, or it has ended

        Program() = default;
        Program(Program &&) = default;
        Program &operator=(Program &&) = delete;
        ~Program();
        void send(int signal) const;
    };

    std::string name_;
    Program program_;
    base::Fd fd_;  // closed before the program is waited for
    bool is_stream_ = false;
    std::uint64_t position_ = 0;  // in a file: processes that share the descriptor each have their own
    struct stat status_{};
};

}  // namespace cli
