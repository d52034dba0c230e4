// SPDX-License-Identifier: BSD-3-Clause
// cli/contents: what a server serves: contents that clients pull, and places for those that they push. A pool
// has one content, and a store has contents with names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cli/failure.hpp"
#include "cli/mapping.hpp"
#include "cli/pool_format.hpp"
#include "cli/protocol.hpp"

namespace cli {

// A client, for people.
struct Who {
    std::string host;
    std::string identity;  // of its key or certificate; empty without TLS

    [[nodiscard]] std::string text() const {
        return identity.empty() ? host : fmt::format("{} ({})", host, identity);
    }
};

// Memory for a client, and its owner, which is nothing when the contents own it themselves.
struct Memory {
    std::span<std::byte> bytes;
    std::shared_ptr<const void> owner;
};

// The place that one push writes.
class Upload {
public:
    Upload(std::string name, std::uint64_t sequence) : name_{std::move(name)}, sequence_{sequence} {}
    Upload(const Upload &) = delete;
    Upload &operator=(const Upload &) = delete;
    virtual ~Upload() = default;

    [[nodiscard]] const std::string &name() const { return name_; }
    // Returns the sequence of its commit.
    [[nodiscard]] std::uint64_t sequence() const { return sequence_; }

    // These wait for storage, and are called by one thread at a time, which need not be the server's.

    // Makes room for a content of this length, and sets the memory of all of it. Earlier memory is of the
    // same bytes.
    [[nodiscard]] virtual Answer grow(std::uint64_t length, Memory &memory) = 0;
    // Makes these bytes durable, for which there is room.
    [[nodiscard]] virtual Answer store(std::uint64_t offset, std::uint64_t length) = 0;
    // Verifies the content and commits it. No client can write any more.
    [[nodiscard]] virtual Answer commit(const Request &request, const Who &who) = 0;
    // Verifies the content of this sequence, and commits it again.
    [[nodiscard]] virtual Answer roll_back(std::uint64_t sequence) = 0;

private:
    std::string name_;
    std::uint64_t sequence_;
};

// A content that a client pulls.
struct Download {
    Content content{};  // its sequence is 0 when there is none
    Memory memory;      // of at least a byte
};

// The server's thread uses it, except where a comment says otherwise.
class Contents {
public:
    Contents() = default;
    Contents(const Contents &) = delete;
    Contents &operator=(const Contents &) = delete;
    virtual ~Contents() = default;

    // Returns its kind and its path, for people.
    [[nodiscard]] virtual std::string text() const = 0;
    // Returns the size of the largest content.
    [[nodiscard]] virtual std::uint64_t capacity() const = 0;
    // Returns whether memory is that of persistent memory, whose stores are durable once their cache lines
    // are written back.
    [[nodiscard]] virtual bool is_dax() const = 0;
    // Returns whether memory is a copy in memory, for a device that can register no page of a file.
    [[nodiscard]] virtual bool is_copied() const = 0;
    // Returns memory of the kind that clients get, in which nobody writes.
    [[nodiscard]] virtual std::span<std::byte> sample() const = 0;
    // Returns memory in which clients may measure flushes.
    [[nodiscard]] virtual Outcome<std::span<std::byte>> measured() = 0;

    // Fills in the contents' part of an answer about the status.
    virtual void tell(Offer &offer) const = 0;
    // Returns why no push is taken; empty when one is.
    [[nodiscard]] virtual std::string why_no_push() const = 0;
    // Returns whether earlier pushes, or measurements, have to end before a push or a measurement begins.
    [[nodiscard]] virtual bool is_exclusive() const = 0;
    // Returns whether the file system has no room for a push whose storage is allocated already.
    [[nodiscard]] virtual bool is_without_room() const = 0;
    // Returns the content that stays after a push without a commit, for a message.
    [[nodiscard]] virtual std::string what_stays(const std::string &name) const = 0;

    [[nodiscard]] virtual Outcome<std::unique_ptr<Upload>> upload(const std::string &name,
                                                                  Memory &memory) = 0;
    // Takes the commit of an upload into account, and returns what was committed.
    virtual Content committed(const Upload &upload) = 0;
    // Returns whether storage has failed with this errno value in such a way that no push may follow.
    [[nodiscard]] virtual bool is_fatal(int error) const = 0;
    // A sequence of 0 means the newest content.
    [[nodiscard]] virtual Outcome<Download> download(const std::string &name, std::uint64_t sequence) = 0;
    // Returns a list of the contents (cli/note); an empty name means all.
    [[nodiscard]] virtual Outcome<std::string> list(const std::string &name) const = 0;
};

}  // namespace cli
