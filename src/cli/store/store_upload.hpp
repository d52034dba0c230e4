// SPDX-License-Identifier: BSD-3-Clause
// cli/store/store_upload: a push into a store: a file without a name, which becomes a content at its commit.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "cli/checksum.hpp"
#include "cli/protocol/blocks.hpp"
#include "cli/protocol/note.hpp"
#include "cli/store/upload.hpp"

namespace cli {

// The bytes that a store has, and will have.
struct Space {
    std::uint64_t max_bytes = 0;
    std::atomic<std::uint64_t> used{0};       // relaxed: it publishes nothing else
    std::atomic<std::uint64_t> new_names{0};  // of pushes that are under way; relaxed too
    base::Mutex partial_mutex;                // of what pushes leave, and of its bytes in `used`
    base::Mutex folders_mutex;                // held for no disk
    // The names whose folders were made for what a push has left. They count as names from then on.
    std::vector<std::string> new_folders GUARDED_BY(folders_mutex);

    // Takes as many more bytes, or returns false when there is no room for them.
    [[nodiscard]] bool take(std::uint64_t bytes);
    void give_back(std::uint64_t bytes) { used.fetch_sub(bytes, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t left() const;
    void add_folder(const std::string &name);
    [[nodiscard]] std::vector<std::string> take_folders();
};

class StoreUpload final : public Upload {
public:
    struct Options {
        bool is_new_name = false;
        std::uint64_t newest = 0;                        // the content before this one; 0 without one
        std::vector<std::uint64_t> surplus;              // the contents that go when this one comes
        std::vector<std::uint64_t> surplus_of_rollback;  // the same, when this one is an earlier one again
        Note tagged;                                     // that of the newest tag, if there is one
        std::uint64_t tagged_sequence = 0;               // of its content
        bool is_whole = true;        // as far as is known without a look at its file, that is good
        bool newest_is_good = true;  // as far as is known without a look at its file
        bool replaces = false;       // there is a content of its sequence
        // Takes what is wrong with the newest content. Any thread may call it.
        std::function<void(const std::string &)> tell_damage;
    };

    // `store` is the folder of the store.
    StoreUpload(std::string name, std::uint64_t sequence, base::Fd store, std::shared_ptr<Space> space,
                Options options)
        : Upload{std::move(name), sequence},
          store_{std::move(store)},
          space_{std::move(space)},
          options_{std::move(options)} {}
    ~StoreUpload() override;

    // The content that was committed.
    [[nodiscard]] const Note &note() const { return note_; }
    [[nodiscard]] std::uint64_t inode() const { return inode_; }
    [[nodiscard]] bool is_rollback() const { return rolled_back_ != 0; }
    // The store has taken the bytes of the content that was committed into account.
    void give_back() { space_->give_back(taken_.exchange(0)); }
    [[nodiscard]] const std::vector<std::uint64_t> &surplus() const { return options_.surplus; }
    [[nodiscard]] std::uint64_t room() const override { return taken_.load(std::memory_order_relaxed); }
    [[nodiscard]] Tag newest_tag() const override { return options_.tagged.tag; }

    [[nodiscard]] std::string begin_as_newest(std::uint64_t length) override;
    [[nodiscard]] std::string resume(std::uint64_t length) override;
    [[nodiscard]] Answer reserve(std::uint64_t length) override;
    [[nodiscard]] Answer store(std::uint64_t offset, std::span<const std::byte> first,
                               std::span<const std::byte> rest) override;
    [[nodiscard]] Answer take_tag(const Tag &tag, const Request &request) override;
    [[nodiscard]] Answer commit(const Request &request, const Who &who) override;
    // As commit(), with the note that another server has of the content.
    [[nodiscard]] Answer commit_as(const Note &note);
    [[nodiscard]] Answer roll_back(std::uint64_t sequence) override;
    void retire() override;

private:
    // The content, or what is left of a push, of which the new one has the blocks that do not come.
    struct Base {
        base::Fd file;
        bool is_partial;  // it is what is left of a push
        bool is_cloned;   // the new file had all its bytes from the beginning
        std::string text;
        Blocks blocks;
    };

    [[nodiscard]] int make_file();
    [[nodiscard]] bool has_tagged() const;
    [[nodiscard]] std::optional<Base> open_newest(std::uint64_t length) const;
    [[nodiscard]] std::optional<Base> open_partial(std::uint64_t length) const;
    bool remove_partial(int folder, std::uint64_t least = 0) REQUIRES(space_->partial_mutex);
    bool drop_partial(std::uint64_t least = 0);
    [[nodiscard]] bool makes_room(std::uint64_t bytes, std::uint64_t left);
    [[nodiscard]] bool take(std::uint64_t bytes);
    void leave_partial();
    [[nodiscard]] int add(std::span<const std::byte> bytes);
    [[nodiscard]] bool follows(std::uint64_t offset) const;
    [[nodiscard]] int pass_to(std::uint64_t offset);
    [[nodiscard]] int take_block(std::size_t block, std::size_t size) const;
    void give_up_base(int error, std::uint64_t offset);
    void start_write_back();
    [[nodiscard]] Answer take_name_away(int folder, int error) const;
    [[nodiscard]] int name_content(int folder) const;
    [[nodiscard]] Answer publish();

    base::Fd store_;
    base::Fd file_;  // has no name; made by the first request, because storage may take long for it
    std::shared_ptr<Space> space_;
    Options options_;
    static constexpr std::size_t piece_bytes = std::size_t{256} << 10;
    std::unique_ptr<std::array<std::byte, piece_bytes>> piece_ =
        std::make_unique_for_overwrite<std::array<std::byte, piece_bytes>>();
    std::atomic<std::uint64_t> taken_{0};  // of the space; relaxed
    std::uint64_t end_ = 0;                // of the bytes that are decided
    std::uint64_t written_back_ = 0;       // those that storage has, or is about to have
    Crc32c found_;                         // of the bytes that are decided
    std::optional<Base> base_;
    std::optional<BlockSummer> summer_;  // for a client that may ask for them at its next push
    // The errno value of the first failure to write. The push is over then.
    int error_ = 0;
    Tag tag_;
    Note note_;
    std::uint64_t inode_ = 0;
    std::uint64_t rolled_back_ = 0;  // the content that was committed again
    bool committed_ = false;         // what is surplus may go
    bool may_resume_ = false;        // after it was cut off
};

}  // namespace cli
