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

// One thread, but for what says otherwise. Unlocks and unmaps at its end; nothing registered may be left
// then.
class Pool {
public:
    // Opens the pool at `path` and checks all of it but the contents' bytes (each pull checks those), or
    // creates an empty one whose storage is allocated. An existing pool has the capacity that is given, if
    // one is; a new one needs it. Locks the pool: a second open, in any process, fails until this one ends. A
    // process killed meanwhile leaves no pool or a good one. The content of an existing pool is read
    // from storage, whatever the page cache has.
    [[nodiscard]] static Outcome<Pool> open(const std::string &path, std::optional<std::uint64_t> capacity);

    [[nodiscard]] const std::string &path() const { return path_; }
    [[nodiscard]] const Layout &layout() const { return layout_; }
    [[nodiscard]] bool created() const { return created_; }
    // Mapped with MAP_SYNC: stores are durable once their cache lines are written back.
    [[nodiscard]] bool is_dax() const { return is_dax_; }
    // The file is on storage, and not in memory only.
    [[nodiscard]] bool is_on_storage() const;
    // The content that was committed when the pool was opened.
    [[nodiscard]] const std::optional<Content> &content() const { return content_; }
    // A slot's content, for remote peers.
    [[nodiscard]] std::span<std::byte> slot(unsigned slot) const;

    // From now on slots are a copy in memory, for a device that can register no page of a file: what is
    // written there is in the file once it is stored. Blocks.
    [[nodiscard]] Outcome<> serve_copy();
    [[nodiscard]] bool is_copied() const { return static_cast<bool>(copy_); }

    // Returns whether what is written here can be found again: fails when the file is not (any longer) the
    // pool that it has to be, or was deleted. Before every push.
    [[nodiscard]] Outcome<> check() const;

    // These wait for storage, in any one thread at a time, and are 0 or an errno value. After a failure what
    // the file has, and what storage has, is unknown until the pool is opened again: the kernel reports lost
    // bytes only once, and forgets that they are not written.

    // Makes bytes of a slot durable that were written before. The range is within the slot.
    [[nodiscard]] int store(unsigned slot, std::uint64_t offset, std::uint64_t length) const;
    // The checksum of the slot's first bytes, as the file has them; ESTALE when a copy has others.
    [[nodiscard]] int checksum(unsigned slot, std::uint64_t length, std::uint32_t &found) const;
    // Makes the content's bytes and its header durable; then, by the second, what is committed.
    [[nodiscard]] int store_header(const Content &content) const;
    [[nodiscard]] int store_word(const Content &content) const;

    // Removes the file when this open created it: for a server that refuses to start.
    void discard_created() const;

private:
    Pool(std::string path, Layout layout) : path_{std::move(path)}, layout_{layout} {}
    [[nodiscard]] Outcome<> create();
    [[nodiscard]] Outcome<Layout> read_layout() const;
    [[nodiscard]] Outcome<> lock(int fd) const;
    [[nodiscard]] Outcome<> map();
    [[nodiscard]] Outcome<> read_content();
    [[nodiscard]] int read(std::span<std::byte> bytes, std::uint64_t offset) const;
    [[nodiscard]] int write(std::span<const std::byte> bytes, std::uint64_t offset) const;

    std::string path_;
    Layout layout_;
    base::Fd fd_;
    Mapping mapping_;  // of the file
    Mapping copy_;     // of the file too
    std::optional<Content> content_;
    bool created_ = false;
    bool is_dax_ = false;
};

}  // namespace cli
