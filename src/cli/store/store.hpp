// SPDX-License-Identifier: BSD-3-Clause
// cli/store/store: a folder of plain files, which the one server that serves it has locked. A content is the
// file NAME/SEQUENCE. It is written without a name, and gets its name when it is whole and durable; after
// that nobody writes it again. What is known of a content beside its bytes is in an attribute of its file
// (cli/protocol/note).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "cli/mapping.hpp"
#include "cli/protocol/health.hpp"
#include "cli/protocol/note.hpp"
#include "cli/protocol/protocol.hpp"
#include "cli/store/store_files.hpp"
#include "cli/store/store_upload.hpp"
#include "cli/store/upload.hpp"

namespace cli {

struct StoreOptions {
    std::uint64_t keep = 3;       // contents of each name
    std::uint64_t max_bytes = 0;  // of all contents, and of pushes that are under way; 0 is no limit
    std::uint64_t max_names = 10'000;
    std::uint64_t scrub_rate =
        0;  // bytes for each second; 0 reads all contents once, as fast as storage gives
    // Whether the opening is to end, which may take long. It is asked for each content.
    std::function<bool()> ends = [] { return false; };
};

// Reads the bytes of every content below the folder of a store from storage, and compares them with the
// checksum that they had at their commit. The newest content of a name comes first. `found` gets each
// content, with its fault if it has one. Before it reads bytes it calls `may_read` with their number, and
// ends early when that returns false. It needs no lock: a content never changes, and one that is removed
// meanwhile is left out. Blocks.
[[nodiscard]] Outcome<> check_contents(int folder, const std::function<void(const Listed &)> &found,
                                       const MayRead &may_read);

// A content that a client pulls.
struct Download {
    Content content{};  // its sequence is 0 when there is none
    Tag tag{};
    Memory memory;  // of at least a byte
};

// One thread uses it, except for the uploads that it gives, and where a comment says otherwise.
class Store {
public:
    // A content that has its name.
    struct Entry {
        Note note;
        std::uint64_t inode = 0;  // several contents of a name have one when one was committed again
        std::string damage;       // what was wrong with the file when the store was opened; empty without
        bool has_note = true;     // otherwise the file may be somebody else's, and no push removes it
    };

    // Opens the store at `path`, or creates an empty one. Locks it: a second open, in any process, fails
    // until this one ends. Reads the note of each content, and not its bytes. Fails when the file system has
    // no files without a name, or no attributes, and when the options say that it ends.
    [[nodiscard]] static Outcome<std::unique_ptr<Store>> open(const std::string &path,
                                                              const StoreOptions &options);
    Store(const Store &) = delete;
    Store &operator=(const Store &) = delete;
    ~Store();

    // Starts to check the bytes of all contents, in a thread of its own, with a rate again and again. A fault
    // that it finds is logged, and the content is not served any more, until it is found to be good.
    [[nodiscard]] Outcome<> start_check();

    // Makes memory of clients a copy in memory, for a device that can register no page of a file.
    void serve_copies() { is_copied_ = true; }
    // Returns whether the files are on storage, and not only in memory.
    [[nodiscard]] bool is_on_storage() const;
    [[nodiscard]] bool created() const { return created_; }
    [[nodiscard]] std::size_t names() const;
    // Returns how many bytes the check has read, and how often it has read all contents.
    [[nodiscard]] std::uint64_t checked_bytes() const {
        return checked_bytes_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t checks() const { return checks_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t used() const { return space_->used.load(std::memory_order_relaxed); }
    // Removes the folder if this open created it, for a server that refuses to start.
    void discard_created() const;

    // Returns its kind and its path, for people.
    [[nodiscard]] std::string text() const { return "store " + path_; }
    // Returns the identity of the store that it follows; empty when it has followed none.
    [[nodiscard]] Outcome<std::string> leader() const;
    // Has it follow the store of this identity from now on, durably. It has followed none before.
    [[nodiscard]] Outcome<> follow(const std::string &leader) const;
    // Returns the path of the file that has that identity, for people.
    [[nodiscard]] std::string leader_file() const { return fmt::format("{}/{}", path_, leader_name); }
    // Returns the size of the largest content.
    [[nodiscard]] std::uint64_t capacity() const;
    // Returns whether memory is that of persistent memory, whose stores are durable once their cache lines
    // are written back.
    [[nodiscard]] bool is_dax() const { return is_dax_; }
    // Returns whether memory of clients is a copy.
    [[nodiscard]] bool is_copied() const { return is_copied_; }
    // Returns memory of a file of the store, in which nobody writes.
    [[nodiscard]] std::span<std::byte> sample() const { return sample_.bytes(); }
    // Returns memory of a file of the store, or a copy, in which clients may measure flushes. The first call
    // allocates it. Any thread may call it.
    [[nodiscard]] Outcome<std::span<std::byte>> measured();

    // Fills in the store's part. Looks at a file of each name, in any thread.
    void tell(Health &health) const;
    // Fills in what is known without a look at a file, in any thread.
    void tell_known(Health &health) const;
    // Returns how many bytes the next push may have. Fails when the file system does not tell. Any thread may
    // call it.
    [[nodiscard]] Outcome<std::uint64_t> free_bytes() const;
    // Returns whether there is such a name.
    [[nodiscard]] bool has(const std::string &name) const { return contents_of(name).has_value(); }
    // Returns why no push is taken; empty when one is.
    [[nodiscard]] std::string why_no_push() const;
    // Returns the content that stays after a push without a commit, for a message, with the fault that the
    // last look at its file found. Looks at no file.
    [[nodiscard]] std::string what_stays(const std::string &name) const;

    // The upload of another name may be committed meanwhile, and not one of the same name. Looks at no file.
    [[nodiscard]] Outcome<std::unique_ptr<Upload>> upload(const std::string &name) {
        return open_upload(name, 0);
    }
    // Returns an upload of the content that has this sequence on another server, for a thread that alone
    // commits contents of the name. It replaces one of this sequence.
    [[nodiscard]] Outcome<std::unique_ptr<StoreUpload>> replica(const std::string &name,
                                                                std::uint64_t sequence) {
        return open_upload(name, sequence);
    }
    // Takes the commit of an upload into account, and returns what was committed. The thread of a replica may
    // call it.
    Content committed(Upload &upload);
    // The sequence of an upload has a file that is not known here. The next push has a later one.
    void skip_sequence(const Upload &upload);
    // Returns whether storage has failed in such a way that no push may follow. Each push has a file of its
    // own, so only an error of the device itself concerns the next one.
    [[nodiscard]] static bool is_fatal(const Answer &answer);
    struct NewestTag {
        Tag tag;
        std::uint64_t sequence = 0;  // of its content; 0 when that is gone
        bool is_lost = false;        // there was a newer one, perhaps
    };
    // Returns the newest tag of a name that is known; one of 0 without one. Looks at a file, in any thread.
    [[nodiscard]] Outcome<NewestTag> newest_tag(const std::string &name) const;
    // Returns the newest content of a name as it was committed, without a look at its file. Its sequence is 0
    // when there is none. Any thread may call it.
    [[nodiscard]] Listed newest(const std::string &name) const;
    // Returns the newest content of each name that has one, in the same way.
    [[nodiscard]] std::vector<Listed> newest() const;
    // Returns whether the newest content of a name has a fault, as far as that is known without a look at its
    // file. Any thread may call it.
    [[nodiscard]] bool is_newest_damaged(const std::string &name) const;
    // Returns the checksums of a content's blocks as text (cli/protocol/blocks); empty without them. Any
    // thread may call it.
    [[nodiscard]] std::string blocks(const std::string &name, std::uint64_t sequence) const;
    // A sequence of 0 means the newest content. Opens it, in any thread.
    [[nodiscard]] Outcome<Download> download(const std::string &name, std::uint64_t sequence) const;
    // Returns a list of the contents (cli/protocol/note); an empty name means all. Looks at each file, in any
    // thread.
    [[nodiscard]] std::string list(const std::string &name) const;

private:
    [[nodiscard]] int try_file() const;
    using Contents = std::map<std::uint64_t, Entry>;  // by sequence
    struct Name {
        Contents contents;
        std::uint64_t last = 0;  // the highest sequence that was used
        std::string unread;      // why its folder could not be read; nothing is known of its contents then

        // Returns the newest content; nullptr without one.
        [[nodiscard]] const Contents::value_type *newest() const {
            return contents.empty() ? nullptr : &*contents.rbegin();
        }
        // Returns the newest content with a tag; the end without one.
        [[nodiscard]] Contents::const_iterator tagged() const;
        // Returns the bytes of a content that no other content shares with it.
        [[nodiscard]] std::uint64_t own_bytes(std::uint64_t sequence) const;
    };

    explicit Store(std::string path) : path_{std::move(path)} {}
    // A sequence of 0 means the one after the last.
    [[nodiscard]] Outcome<std::unique_ptr<StoreUpload>> open_upload(const std::string &name,
                                                                    std::uint64_t sequence);
    [[nodiscard]] Outcome<> try_out();
    [[nodiscard]] Outcome<> know_itself();
    [[nodiscard]] Outcome<> read_names();
    [[nodiscard]] Outcome<> read_name(const std::string &name);
    // Finds the contents of a name that go when the upload with these options is committed.
    void find_surplus(const std::string &name, const Name &known, StoreUpload::Options &options) const;
    [[nodiscard]] Outcome<> make_durable();
    // In a thread of its own: compares the bytes of all contents with their checksums.
    void check();
    void take_fault(const Listed &content);
    struct Fault {
        std::string kind;  // as in Health
        std::string text;  // empty without one
    };
    // Looks at no file.
    [[nodiscard]] Fault known_fault_of(const std::string &name, std::uint64_t sequence,
                                       const Entry &entry) const;
    [[nodiscard]] std::string last_fault_of(const std::string &name, std::uint64_t sequence,
                                            const Entry &entry) const;
    [[nodiscard]] Fault fault_of(const std::string &name, std::uint64_t sequence, const Entry &entry) const;
    [[nodiscard]] Fault fault_of_file(const std::string &name, std::uint64_t sequence,
                                      const Note &note) const;
    // Returns why the folder of a name takes no other content, as far as its rights tell; empty when it does.
    [[nodiscard]] std::string why_no_content(const std::string &name) const;
    // Tells what is known, and with a look the faults of the files of each newest content, and of the folders
    // of names. Returns the largest length of these contents.
    enum class Look : std::uint8_t { None, Contents, ContentsAndFolders };
    std::uint64_t tell_names(Health &health, Look look) const;
    [[nodiscard]] std::optional<Name> contents_of(const std::string &name) const;
    // Returns the newest content of a name; nullptr without one.
    [[nodiscard]] const Contents::value_type *newest_of(const std::string &name) const REQUIRES(names_mutex_);
    [[nodiscard]] bool is_there(const std::string &name, std::uint64_t sequence) const;
    // Calls `look` with a copy of each name and its contents, one after the other, without the lock.
    void for_each_name(const std::function<void(const std::string &, const Name &)> &look) const;

    std::string path_;
    StoreOptions options_;
    base::Fd folder_;
    std::string identity_;  // since it was first opened
    bool created_ = false;
    bool is_dax_ = false;
    bool is_copied_ = false;
    mutable base::Mutex names_mutex_;
    std::map<std::string, Name> names_ GUARDED_BY(names_mutex_);
    // The last commit since the start, by name and sequence.
    std::pair<std::string, std::uint64_t> last_ GUARDED_BY(names_mutex_);
    std::shared_ptr<Space> space_ = std::make_shared<Space>();
    base::Fd measured_file_;
    mutable base::Mutex damage_mutex_;
    // The check of the bytes has found these faults, by name and sequence.
    std::map<std::pair<std::string, std::uint64_t>, std::string> damage_ GUARDED_BY(damage_mutex_);
    // And the last look at their files these.
    mutable std::map<std::pair<std::string, std::uint64_t>, std::string> seen_ GUARDED_BY(damage_mutex_);
    std::atomic<bool> stopping_{false};  // relaxed, as the next two: it publishes nothing else
    std::atomic<std::uint64_t> checked_bytes_{0};
    std::atomic<std::uint64_t> checks_{0};
    std::thread check_;
    Mapping sample_;
    base::Mutex measured_mutex_;
    Mapping measured_ GUARDED_BY(measured_mutex_);  // once a client measures
};

}  // namespace cli
