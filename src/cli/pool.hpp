// SPDX-License-Identifier: BSD-3-Clause
// cli/pool: a pool file, locked and mapped by the one server that serves it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/fd.hpp"
#include "cli/failure.hpp"
#include "cli/mapping.hpp"
#include "cli/pool_format.hpp"

namespace cli {

// Locks a pool, or says who has it. A server has LOCK_EX, a check LOCK_SH or, when it may write, LOCK_EX. The
// lock ends with the descriptor.
[[nodiscard]] Outcome<> lock_pool(int fd, const std::string &path, int kind);

// One thread uses it, except where a comment says otherwise. The destructor unlocks and unmaps; no
// registration may be left then.
class Pool {
public:
    // Opens the pool at `path` and checks it, except the contents' bytes (each pull checks those), or creates
    // an empty one whose storage is allocated. A new pool needs a capacity; the capacity of an existing one
    // must be the given one, if there is one. Locks the pool: a second open, in any process, fails until this
    // one ends. A process that is killed meanwhile leaves no pool or a good one. The content of an existing
    // pool is read from storage, and not from the page cache.
    [[nodiscard]] static Outcome<Pool> open(const std::string &path, std::optional<std::uint64_t> capacity);

    [[nodiscard]] const std::string &path() const { return path_; }
    [[nodiscard]] const Layout &layout() const { return layout_; }
    [[nodiscard]] bool created() const { return created_; }
    // Returns whether the pool is mapped with MAP_SYNC, so that stores are durable once their cache lines are
    // written back.
    [[nodiscard]] bool is_dax() const { return is_dax_; }
    // Returns whether the file is on storage, and not only in memory.
    [[nodiscard]] bool is_on_storage() const;
    // Returns the content that was committed when the pool was opened.
    [[nodiscard]] const std::optional<Content> &content() const { return content_; }
    // Returns the content of the other slot, as its header says; none when the header is no good one.
    [[nodiscard]] const std::optional<Content> &other_content() const { return other_content_; }
    // Reads the content's bytes, and returns their fault; empty when they are what was committed. Blocks.
    [[nodiscard]] std::string fault_of(const Content &content) const;
    // Returns the memory of a slot's content, for remote peers.
    [[nodiscard]] std::span<std::byte> slot(unsigned slot) const;

    // Makes the slots a copy in memory, for a device that can register no page of a file. Bytes that are
    // written there reach the file when they are stored. Blocks.
    [[nodiscard]] Outcome<> serve_copy();
    [[nodiscard]] bool is_copied() const { return static_cast<bool>(copy_); }

    // Returns the reason why written bytes could not be found again: the file is no longer this pool, or was
    // deleted. Returns an empty text without one. It is asked before every push.
    [[nodiscard]] std::string fault() const;

    // Returns whether the file system has no room for a push. Only one that copies on write needs any,
    // because all storage of the pool is allocated.
    [[nodiscard]] bool is_without_room() const;

    // These wait for storage, in one thread at a time, and return 0 or an errno value. After a failure the
    // contents of the file and of storage are unknown until the pool is opened again, because the kernel
    // reports lost bytes only once, and forgets that they are not written.

    // Makes earlier written bytes of a slot durable. The range is within the slot.
    [[nodiscard]] int store(unsigned slot, std::uint64_t offset, std::uint64_t length) const;
    // Computes the checksum of the slot's first bytes in the file. Returns ESTALE when a copy has other
    // bytes.
    [[nodiscard]] int checksum(unsigned slot, std::uint64_t length, std::uint32_t &found) const;
    // The first makes the content's bytes and its header durable; then the second makes the commit word
    // durable.
    [[nodiscard]] int store_header(const Content &content) const;
    [[nodiscard]] int store_word(const Content &content) const;

    // Removes the file if this open created it, for a server that refuses to start.
    void discard_created() const;

private:
    Pool(std::string path, Layout layout) : path_{std::move(path)}, layout_{layout} {}
    [[nodiscard]] Outcome<> create();
    [[nodiscard]] Outcome<Layout> read_layout() const;
    [[nodiscard]] Outcome<> map();
    [[nodiscard]] Outcome<> read_content();
    [[nodiscard]] int read(std::span<std::byte> bytes, std::uint64_t offset) const;

    std::string path_;
    Layout layout_;
    base::Fd fd_;
    Mapping mapping_;  // of the file
    Mapping copy_;     // of the file too
    std::optional<Content> content_;
    std::optional<Content> other_content_;
    bool created_ = false;
    bool is_dax_ = false;
};

}  // namespace cli
