// SPDX-License-Identifier: BSD-3-Clause
// cli/store/upload: what one push writes, as those see it that have it written and committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cli/protocol/protocol.hpp"

namespace cli {

// A client, for people.
struct Who {
    std::string host;
    std::string identity;  // of its key or certificate; empty without TLS

    [[nodiscard]] std::string text() const {
        return identity.empty() ? host : fmt::format("{} ({})", host, identity);
    }
};

// Memory for a client, and its owner.
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

    // Returns how many bytes have room, of which some are not stored yet. Any thread may call it.
    [[nodiscard]] virtual std::uint64_t room() const { return 0; }
    // Returns the newest tag of its name. A push without a tag commits only where there is none.
    [[nodiscard]] virtual Tag newest_tag() const { return {}; }

    // These wait for storage, and are called by one thread at a time, which need not be the server's.

    // Has the new content of this length begin as the newest one, of which bytes that are passed over stay.
    // It returns the checksums of that one's blocks (cli/protocol/blocks), and empty text when all bytes must
    // come. Once, before any byte.
    [[nodiscard]] virtual std::string begin_as_newest(std::uint64_t) { return {}; }
    // As begin_as_newest(), of what the last push that may go on has left. This one may go on too.
    [[nodiscard]] virtual std::string resume(std::uint64_t) { return {}; }
    // Makes room for a content of this length, before its bytes come.
    [[nodiscard]] virtual Answer reserve(std::uint64_t length) = 0;
    // Takes the content's next bytes, which are in two pieces, from memory in which a client may write
    // meanwhile. The bytes between those before and the offset are those of the newest content.
    [[nodiscard]] virtual Answer store(std::uint64_t offset, std::span<const std::byte> first,
                                       std::span<const std::byte> rest) = 0;
    // Gives the content its tag, before any byte. The answer is Newer, and the push ends, when the store has
    // the content of this tag or of a later one.
    [[nodiscard]] virtual Answer take_tag(const Tag &, const Request &) { return {Verdict::Different}; }
    // Verifies the content, makes it durable, and commits it.
    [[nodiscard]] virtual Answer commit(const Request &request, const Who &who) = 0;
    // Verifies the content of this sequence, and commits it again.
    [[nodiscard]] virtual Answer roll_back(std::uint64_t sequence) = 0;
    // Removes the files that a commit has made superfluous; the client has its answer by then. Without a
    // commit it leaves the bytes of a push that may go on.
    virtual void retire() {}

private:
    std::string name_;
    std::uint64_t sequence_;
};

}  // namespace cli
