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

// One thread. Unlocks and unmaps at its end; nothing registered may be left then.
class Pool {
public:
    // Opens the pool at `path` and checks all of it but the contents' bytes (each pull checks those), or
    // creates an empty one whose storage is allocated. An existing pool must have this capacity. Locks it: a
    // second open, in any process, fails until this one ends. A process killed meanwhile leaves no pool or a
    // good one.
    [[nodiscard]] static Outcome<Pool> open(const std::string &path, std::uint64_t capacity);

    [[nodiscard]] const Layout &layout() const { return layout_; }
    [[nodiscard]] bool created() const { return created_; }
    // Mapped with MAP_SYNC: stores are durable once their cache lines are written back.
    [[nodiscard]] bool is_dax() const { return is_dax_; }
    // The file is on storage, and not in memory only.
    [[nodiscard]] bool is_on_storage() const;
    // What remote peers get.
    [[nodiscard]] std::span<std::byte> region() const {
        return copy_ ? copy_.bytes() : mapping_.bytes().subspan(page_size);
    }

    // From now on the region is a copy in memory, for a device that can register no page of a file: what is
    // written there is in the file, and durable, once it is stored. Blocks.
    [[nodiscard]] Outcome<> serve_copy();
    [[nodiscard]] bool is_copied() const { return static_cast<bool>(copy_); }
    // Makes bytes of the copy durable, from an offset in the region on. The range may be a peer's. Blocks.
    // Any thread.
    [[nodiscard]] Outcome<> store(std::uint64_t offset, std::uint64_t length) const;

    // What is committed now; read through the file, because a mapping of a file that somebody truncates ends
    // the process.
    [[nodiscard]] Outcome<std::optional<Content>> content() const;

    // Whether what is written here can be found again: fails when the file is not (any longer) the pool that
    // it has to be, or was deleted. Before every push.
    [[nodiscard]] Outcome<> check() const;

    // Makes the commit word durable, as it is now. Before every push: one that died right after its commit
    // was seen may have left the word in the page cache only, and the next overwrites what the word on
    // storage still names. Blocks.
    [[nodiscard]] Outcome<> make_commit_durable() const;

    // Removes the file when this open created it: for a server that refuses to start.
    void discard_created() const;

private:
    Pool(std::string path, Layout layout) : path_{std::move(path)}, layout_{layout} {}
    [[nodiscard]] Outcome<> create();
    [[nodiscard]] Outcome<> lock(int fd) const;
    [[nodiscard]] Outcome<> map();

    std::string path_;
    Layout layout_;
    base::Fd fd_;
    Mapping mapping_;
    Mapping copy_;
    bool created_ = false;
    bool is_dax_ = false;
};

}  // namespace cli
