// SPDX-License-Identifier: BSD-3-Clause
// cli/store/store: opens a folder, reads what it has, and makes files without a name into contents.
#include "cli/store/store.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "cli/checksum.hpp"
#include "cli/files.hpp"
#include "cli/log.hpp"
#include "cli/pace.hpp"
#include "cli/store/store_files.hpp"
#include "cli/store/store_upload.hpp"
#include "cli/thread.hpp"

namespace cli {

namespace {

// The file in which clients measure. It has a name because the device makes nothing durable in a file
// without.
constexpr const char *measured_name = ".measured";
constexpr std::uint64_t measured_size = largest_message;

// Writes a zero into each page of a file between these lengths. Otherwise a page could be missing when a
// client writes it, and the device could only end the connection. Returns 0 or an errno value.
int fill(int fd, std::uint64_t from, std::uint64_t length) {
    const std::byte zero{};
    for (std::uint64_t at = from; at < length; at += page_size - at % page_size) {
        if (const int error = write_all(fd, {&zero, 1}, at); error != 0) {
            return error;
        }
    }
    return length > from ? write_all(fd, {&zero, 1}, length - 1) : 0;
}

// Allocates a file's storage from one length up to another, which is not less. Returns 0 or an errno value.
int allocate(int fd, std::uint64_t from, std::uint64_t length) {
    if (fallocate(fd, 0, static_cast<off_t>(from), static_cast<off_t>(length - from)) == 0) {
        return 0;
    }
    return errno == EOPNOTSUPP ? fill(fd, from, length) : errno;
}

// Maps a file, on persistent memory with MAP_SYNC.
Mapping map(int fd, std::size_t size) {
    Mapping mapping{size, MAP_SHARED_VALIDATE | MAP_SYNC, fd};
    return mapping ? std::move(mapping) : Mapping{size, MAP_SHARED, fd};
}

// The kind of a content that a push has removed since the caller found it. It has no fault.
constexpr const char *kind_of_pruned = "pruned";

// The rate of a check counts this for each content, beside its bytes.
constexpr std::uint64_t cost_of_look = std::uint64_t{64} << 10;

// Returns the fault of a content, and sets its note; empty without a fault, or when it ended early.
std::string check_content(int store, Listed &content, const MayRead &may_read) {
    const auto file = open_content(store, content.name, content.sequence);
    if (!file) {
        return file.error().text;
    }
    auto note = read_note(file->get());
    if (!note) {
        return note.error().text;
    }
    content.note = *std::move(note);
    struct stat status{};
    if (fstat(file->get(), &status) != 0 || std::cmp_not_equal(status.st_size, content.note.length)) {
        return fmt::format("has {} bytes (expected {})", status.st_size, content.note.length);
    }
    // Otherwise the page cache could hide what is wrong with storage.
    (void)posix_fadvise(file->get(), 0, 0, POSIX_FADV_DONTNEED);
    Crc32c found;
    const auto add = [&found](std::span<const std::byte> bytes, std::uint64_t) { found.update(bytes); };
    if (const int error = read_all(file->get(), content.note.length, add, may_read); error != 0) {
        return error == ECANCELED ? "" : fault_text("cannot be read", error);
    }
    return found.value() == content.note.checksum
               ? ""
               : fmt::format("is damaged: it has another checksum, {}", checksum_text(found.value()));
}

}  // namespace

Outcome<std::unique_ptr<Store>> Store::open(const std::string &path, const StoreOptions &options) {
    std::unique_ptr<Store> store{new Store{path}};
    store->options_ = options;
    store->space_->max_bytes = options.max_bytes;
    store->created_ = mkdir(path.c_str(), 0700) == 0;
    if (!store->created_ && errno != EEXIST) {
        return failed("store {}: cannot create it: {}", path, errno_text(errno));
    }
    store->folder_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!store->folder_) {
        return failed("store {}: cannot open: {}{}", path, errno_text(errno),
                      errno == ENOTDIR ? " (expected a folder)" : "");
    }
    if (flock(store->folder_.get(), LOCK_EX | LOCK_NB) != 0) {
        return failed("store {}: {}", path,
                      errno == EWOULDBLOCK
                          ? "is already served by another process (expected one server for each store)"
                          : errno_text(errno));
    }
    if (const auto tried = store->try_out(); !tried) {
        store->discard_created();
        return failed("store {}: {}", path, tried.error().text);
    }
    if (const auto known = store->know_itself(); !known) {
        store->discard_created();
        return failed("store {}: {}", path, known.error().text);
    }
    if (const auto read = store->read_names(); !read) {
        return failed("store {}: {}", path, read.error().text);
    }
    return store;
}

// Does what a push needs, and finds out whether the files are in persistent memory.
Outcome<> Store::try_out() {
    const base::Fd file = unnamed_file(folder_.get());
    if (!file) {
        return failed(
            "cannot make a file without a name: {} (expected a folder that this user may write, on "
            "a file system with O_TMPFILE, such as ext4, xfs or btrfs)",
            errno_text(errno));
    }
    if (fsetxattr(file.get(), note_attribute, "{}", 2, 0) != 0) {
        return failed(
            "cannot give a file an attribute: {} (expected a file system with those of users, such "
            "as ext4, xfs or btrfs)",
            errno_text(errno));
    }
    if (access("/proc/self/fd", X_OK) != 0) {
        return failed("/proc is not there, through which a file gets its name: {}", errno_text(errno));
    }
    (void)unlinkat(folder_.get(), measured_name, 0);
    measured_file_.reset(openat(folder_.get(), measured_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    const int error = measured_file_ ? allocate(measured_file_.get(), 0, page_size) : errno;
    if (error != 0) {
        return failed("cannot allocate {}: {}", measured_name, errno_text(error));
    }
    sample_ = Mapping{page_size, MAP_SHARED_VALIDATE | MAP_SYNC, measured_file_.get()};
    is_dax_ = static_cast<bool>(sample_);
    if (!is_dax_) {
        sample_ = Mapping{page_size, MAP_SHARED, measured_file_.get()};
    }
    return sample_ ? Outcome<>{} : failed("cannot map a file: {}", errno_text(errno));
}

Outcome<> Store::know_itself() {
    identity_ = TRY(read_identity(folder_.get(), identity_name));
    if (identity_.empty()) {
        identity_ = make_identity();
        return write_identity(folder_.get(), identity_name, identity_);
    }
    return {};
}

Outcome<std::string> Store::leader() const {
    return read_identity(folder_.get(), leader_name);
}

Outcome<> Store::follow(const std::string &leader) const {
    return write_identity(folder_.get(), leader_name, leader);
}

Outcome<> Store::read_names() {
    for (const std::string &name : TRY(names_in(folder_.get()))) {
        if (!is_name(name)) {
            BASE_LOG(Warning, "%s: %s is no name of a content, and is left alone", text().c_str(),
                     name.c_str());
        } else if (const auto read = read_name(name); !read) {
            BASE_LOG(Warning, "%s: %s: %s", text().c_str(), name.c_str(), read.error().text.c_str());
            const base::Lock lock{names_mutex_};
            names_[name].unread = read.error().text;
        }
        if (options_.ends()) {
            return failed("interrupted");
        }
    }
    return make_durable();
}

// A server that was killed amid a commit may have left names that are not on storage yet: that of a content,
// and that of a name's folder. Whoever lists or pulls the content relies on them. The fsync of a folder waits
// for a flush of the device, so one for each of 10,000 names would take half a minute.
Outcome<> Store::make_durable() {
    if (!sync_all(folder_.get())) {
        const base::Lock lock{names_mutex_};
        for (auto &[name, known] : names_) {
            const base::Fd folder{openat(folder_.get(), name.c_str(), folder_flags)};
            if (!known.contents.empty() && (!folder || fsync(folder.get()) != 0)) {
                known.contents.rbegin()->second.damage =
                    fmt::format("cannot be made durable: {}", errno_text(errno));
            }
        }
    }
    return fsync(folder_.get()) == 0 ? Outcome<>{} : failed("cannot be made durable: {}", errno_text(errno));
}

Outcome<> Store::read_name(const std::string &name) {
    const base::Fd folder{openat(folder_.get(), name.c_str(), folder_flags)};
    if (!folder && errno == ENOTDIR) {
        BASE_LOG(Warning, "%s: %s is no folder, and is left alone", text().c_str(), name.c_str());
        return {};
    }
    if (!folder) {
        return failed("cannot open it as a folder: {}", errno_text(errno));
    }
    const base::Lock lock{names_mutex_};
    Name &found = names_[name];
    std::set<std::uint64_t> inodes;
    for (const std::string &file_name : TRY(names_in(folder.get()))) {
        const std::uint64_t sequence = sequence_of(file_name);
        if (sequence == 0) {
            continue;  // somebody else's
        }
        if (options_.ends()) {
            return {};
        }
        found.last = std::max(found.last, sequence);
        Entry &entry = found.contents[sequence];
        const auto file = open_content(folder_.get(), name, sequence);
        struct stat status{};
        auto note = file && fstat(file->get(), &status) == 0
                        ? read_note(file->get())
                        : failed("{}", file ? errno_text(errno) : file.error().text);
        entry.inode = status.st_ino;
        if (note) {
            entry.note = *std::move(note);
            const bool is_first = inodes.insert(entry.inode).second;
            space_->used.fetch_add(is_first ? entry.note.length : 0, std::memory_order_relaxed);
        } else if (is_own_fault(note.error().text)) {
            return std::unexpected{note.error()};
        } else {
            entry.damage = note.error().text;
            entry.has_note = false;
        }
    }
    struct stat partial{};
    if (fstatat(folder.get(), partial_name, &partial, AT_SYMLINK_NOFOLLOW) == 0) {
        space_->used.fetch_add(static_cast<std::uint64_t>(partial.st_size), std::memory_order_relaxed);
    }
    // A crash may leave these of a content that is gone.
    for (const std::string &file_name : TRY(names_in(folder.get(), Dotted::Yes))) {
        const std::uint64_t sequence = sequence_of_blocks(file_name);
        if (sequence != 0 && !found.contents.contains(sequence)) {
            (void)unlinkat(folder.get(), file_name.c_str(), 0);
        }
    }
    return {};
}

std::uint64_t Store::Name::own_bytes(std::uint64_t sequence) const {
    const Entry &entry = contents.at(sequence);
    const auto shares = [&](const auto &other) {
        return other.first != sequence && entry.inode != 0 && other.second.inode == entry.inode;
    };
    return std::ranges::any_of(contents, shares) ? 0 : entry.note.length;
}

// Those with a fault go first, so that a push over a damaged content costs no good one, and then the oldest.
// Several contents are one file when one was committed again. The store keeps the first and the last name of
// a file that stays. A file without a note stays too, and is none of those that `stay` counts.
void Store::find_surplus(const std::string &name, const Name &known, StoreUpload::Options &options) const {
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::uint64_t>> files;
    for (const auto &[sequence, entry] : known.contents) {
        if (!entry.has_note) {
            continue;
        }
        files[{entry.inode, entry.inode == 0 ? sequence : 0}].push_back(sequence);
    }
    std::vector<std::uint64_t> between;
    std::vector<std::tuple<bool, std::uint64_t, std::span<const std::uint64_t>>> order;
    for (const auto &[file, sequences] : files) {
        between.insert(between.end(), sequences.begin() + 1,
                       std::max(sequences.end() - 1, sequences.begin() + 1));
        const std::uint64_t last = sequences.back();
        order.emplace_back(last_fault_of(name, last, known.contents.at(last)).empty(), last, sequences);
    }
    const auto before = [](const auto &left, const auto &right) {
        return std::pair{std::get<0>(left), std::get<1>(left)} <
               std::pair{std::get<0>(right), std::get<1>(right)};
    };
    std::ranges::sort(order, before);
    const auto surplus = [&](std::uint64_t stay) {
        std::vector<std::uint64_t> go = between;
        const std::size_t count = order.size() - std::min<std::uint64_t>(order.size(), stay);
        for (const auto &[is_good, last, sequences] : std::span{order}.first(count)) {
            go.push_back(sequences.front());
            if (sequences.size() > 1) {
                go.push_back(last);
            }
        }
        return go;
    };
    options.surplus = surplus(options_.keep - (options.replaces ? 0 : 1));
    options.surplus_of_rollback = surplus(options_.keep);
}

Store::Contents::const_iterator Store::Name::tagged() const {
    const auto order = [](const auto &left, const auto &right) {
        return std::tuple{left.second.note.tag, left.first} < std::tuple{right.second.note.tag, right.first};
    };
    const auto newest = std::ranges::max_element(contents, order);
    return newest != contents.end() && newest->second.note.tag ? newest : contents.end();
}

Outcome<Store::NewestTag> Store::newest_tag(const std::string &name) const {
    const auto known = contents_of(name).value_or(Name{});
    if (!known.unread.empty()) {
        return failed("{}: {}, so its tag is unknown", name, known.unread);
    }
    const auto newest = known.tagged();
    const bool has_tags = newest != known.contents.end();
    // Tags go up with sequences, so an earlier content has no higher one.
    const auto first = has_tags ? newest : known.contents.begin();
    const auto is_damaged = [](const auto &content) { return !content.second.damage.empty(); };
    if (std::any_of(first, known.contents.end(), is_damaged)) {
        return NewestTag{has_tags ? newest->second.note.tag : Tag{}, 0, true};
    }
    const bool is_good = has_tags && fault_of(name, newest->first, newest->second).text.empty();
    return has_tags ? NewestTag{newest->second.note.tag, is_good ? newest->first : 0, false} : NewestTag{};
}

Outcome<> check_contents(int folder, const std::function<void(const Listed &)> &found,
                         const MayRead &may_read) {
    for (const std::string &name : TRY(names_in(folder))) {
        if (!is_name(name)) {
            continue;
        }
        const base::Fd inside{openat(folder, name.c_str(), folder_flags)};
        if (!inside && (errno == ENOTDIR || errno == ENOENT)) {
            continue;  // somebody else's, or removed meanwhile
        }
        const auto files =
            inside ? names_in(inside.get()) : failed("{}", fault_text("cannot be opened as a folder", errno));
        if (!files) {
            found({name, 0, {}, files.error().text});
            continue;
        }
        std::vector<std::uint64_t> sequences;
        for (const std::string &file_name : *files) {
            if (const std::uint64_t sequence = sequence_of(file_name); sequence != 0) {
                sequences.push_back(sequence);
            }
        }
        if (sequences.empty() && faccessat(inside.get(), identity_name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
            found({name, 0, {}, "is a store of its own: was a copy made into a copy?"});
        }
        std::ranges::sort(sequences, std::greater{});
        for (const std::uint64_t sequence : sequences) {
            Listed content{name, sequence, {}, {}};
            if (!may_read(cost_of_look)) {
                return {};
            }
            content.fault = check_content(folder, content, may_read);
            if (!may_read(0)) {
                return {};
            }
            if (content.fault != was_deleted) {
                found(content);
            }
        }
    }
    return {};
}

Outcome<> Store::start_check() {
    check_ = TRY(start_thread([this] { check(); }));
    return {};
}

void Store::check() {
    Pace pace{options_.scrub_rate};
    // Waits until so many more bytes keep to the rate, and returns whether the store stays open.
    const auto may_read = [&](std::uint64_t bytes) {
        constexpr auto look = std::chrono::milliseconds{50};
        const auto then = pace.take(bytes);
        while (!stopping_.load(std::memory_order_relaxed) && Pace::Clock::now() < then) {
            std::this_thread::sleep_for(std::min<Pace::Clock::duration>(look, then - Pace::Clock::now()));
        }
        checked_bytes_.fetch_add(bytes, std::memory_order_relaxed);
        return !stopping_.load(std::memory_order_relaxed);
    };
    const auto take = [this](const Listed &content) { take_fault(content); };
    do {
        if (const auto checked = check_contents(folder_.get(), take, may_read); checked) {
            checks_.fetch_add(1, std::memory_order_relaxed);
        } else {
            BASE_LOG(Error, "%s: %s", text().c_str(), checked.error().text.c_str());
        }
        // A store of few contents is read once a second at most.
    } while (pace.rate() != 0 && may_read(pace.rate()));
}

void Store::take_fault(const Listed &content) {
    if (is_own_fault(content.fault)) {
        return;
    }
    const std::pair place{content.name, content.sequence};
    {
        const base::Lock lock{damage_mutex_};
        const bool is_known = damage_.contains(place);
        if (content.fault.empty() != is_known) {
            return;
        }
        if (is_known) {
            damage_.erase(place);
        } else {
            damage_[place] = content.fault;
        }
    }
    BASE_LOG(Error, "%s: %s: content %s %s", text().c_str(), content.name.c_str(),
             std::to_string(content.sequence).c_str(),
             content.fault.empty() ? "is good again" : content.fault.c_str());
}

Store::Fault Store::known_fault_of(const std::string &name, std::uint64_t sequence,
                                   const Entry &entry) const {
    if (!entry.damage.empty()) {
        return {"damaged", entry.damage};
    }
    const base::Lock lock{damage_mutex_};
    const auto found = damage_.find({name, sequence});
    return found != damage_.end() ? Fault{"damaged", found->second} : Fault{};
}

// Returns the fault that is known, or that the last look at the file has found; empty without one.
std::string Store::last_fault_of(const std::string &name, std::uint64_t sequence, const Entry &entry) const {
    const std::string known = known_fault_of(name, sequence, entry).text;
    const base::Lock lock{damage_mutex_};
    const auto seen = seen_.find({name, sequence});
    return known.empty() && seen != seen_.end() ? seen->second : known;
}

// Returns the fault of a content, without a look at its bytes; empty without one, and when this process's
// limits let it look at no file.
Store::Fault Store::fault_of(const std::string &name, std::uint64_t sequence, const Entry &entry) const {
    if (Fault known = known_fault_of(name, sequence, entry); !known.text.empty()) {
        return known;
    }
    Fault found = fault_of_file(name, sequence, entry.note);
    if (found.kind == "deleted" && !is_there(name, sequence)) {
        found.kind = kind_of_pruned;  // a later push has taken its place meanwhile
        return found;
    }
    if (is_own_fault(found.text)) {
        return {};
    }
    const base::Lock lock{damage_mutex_};
    if (found.text.empty()) {
        seen_.erase({name, sequence});
    } else {
        seen_[{name, sequence}] = found.text;
    }
    return found;
}

Store::Fault Store::fault_of_file(const std::string &name, std::uint64_t sequence, const Note &note) const {
    const auto file = open_content(folder_.get(), name, sequence);
    struct stat status{};
    if (!file || fstat(file->get(), &status) != 0) {
        const std::string text = file ? "cannot be read" : file.error().text;
        return {text == was_deleted ? "deleted" : "damaged", text};
    }
    if (std::cmp_not_equal(status.st_size, note.length)) {
        return {std::cmp_less(status.st_size, note.length) ? "truncated" : "damaged",
                fmt::format("has {} bytes (expected {})", status.st_size, note.length)};
    }
    return {};
}

bool Store::is_on_storage() const {
    struct statfs where{};
    return fstatfs(folder_.get(), &where) == 0 && where.f_type != TMPFS_MAGIC && where.f_type != RAMFS_MAGIC;
}

Store::~Store() {
    stopping_.store(true, std::memory_order_relaxed);
    if (check_.joinable()) {
        check_.join();
    }
    if (measured_file_) {
        (void)unlinkat(folder_.get(), measured_name, 0);
    }
}

void Store::discard_created() const {
    if (created_) {
        (void)unlinkat(folder_.get(), measured_name, 0);
        (void)unlinkat(folder_.get(), identity_name, 0);
        rmdir(path_.c_str());
    }
}

std::uint64_t Store::capacity() const {
    return options_.max_bytes != 0 ? std::min(options_.max_bytes, largest_capacity) : largest_capacity;
}

Outcome<std::span<std::byte>> Store::measured() {
    const base::Lock lock{measured_mutex_};
    if (!measured_) {
        if (const int error = allocate(measured_file_.get(), page_size, measured_size); error != 0) {
            return failed("{}: cannot allocate {} bytes to measure in: {}", text(), measured_size,
                          errno_text(error));
        }
        measured_ = is_copied_ ? Mapping{measured_size, MAP_PRIVATE | MAP_ANONYMOUS, -1}
                               : map(measured_file_.get(), measured_size);
        if (!measured_) {
            return failed("{}: cannot map {} bytes: {}", text(), measured_size, errno_text(errno));
        }
    }
    return measured_.bytes();
}

std::string Store::why_no_content(const std::string &name) const {
    if (faccessat(folder_.get(), name.c_str(), W_OK | X_OK, AT_EACCESS) == 0 || errno == ENOENT ||
        is_own_limit(errno)) {
        return {};
    }
    return fmt::format("takes no push: its folder cannot be written: {}", errno_text(errno));
}

std::uint64_t Store::tell_names(Health &health, Look look) const {
    health.capacity = capacity();
    health.store = identity_;
    health.bytes = used();
    std::uint64_t largest = 0;
    const auto last = [this] {
        const base::Lock lock{names_mutex_};
        return last_;
    }();
    for_each_name([&](const std::string &name, const Name &known) {
        ++health.names;
        health.contents += known.contents.size();
        if (!known.unread.empty()) {
            health.reasons.push_back({"damaged", name, 0, known.unread});
        }
        if (known.contents.empty()) {
            return;
        }
        const auto &[sequence, entry] = *known.contents.rbegin();
        if (last.second != 0 ? last.first == name : entry.note.time > health.last.note.time) {
            health.last = {name, sequence, entry.note, {}};
        }
        largest = std::max(largest, entry.note.length);
        const Fault found =
            look == Look::None ? known_fault_of(name, sequence, entry) : fault_of(name, sequence, entry);
        if (!found.text.empty() && found.kind != kind_of_pruned) {
            health.reasons.push_back({found.kind, name, sequence, found.text});
        }
        for (const auto &[one, content] : known.contents) {
            health.faulty += last_fault_of(name, one, content).empty() ? 0 : 1;
        }
        std::string why = look == Look::ContentsAndFolders ? why_no_content(name) : "";
        if (!why.empty()) {
            health.reasons.push_back({"damaged", name, 0, std::move(why)});
        }
    });
    return largest;
}

void Store::tell_known(Health &health) const {
    tell_names(health, Look::None);
}

void Store::tell(Health &health) const {
    const auto free = free_bytes();
    if (free) {
        health.free_bytes = *free;
    } else {
        health.reasons.push_back({"room", {}, 0, free.error().text});
    }
    const std::string why = why_no_push();
    const int error = why.empty() ? try_file() : 0;
    if (!why.empty()) {
        health.reasons.push_back({"store", {}, 0, why});
    }
    // The status tells once of a fault that all names have.
    const Look look = why.empty() && error == 0 ? Look::ContentsAndFolders : Look::Contents;
    const std::uint64_t largest = tell_names(health, look);
    // The next push is often as large as the last, and needs room beside it.
    const bool lacks = free && *free < largest;
    if (lacks) {
        health.reasons.push_back({"room",
                                  {},
                                  0,
                                  fmt::format("there is room for {} bytes, and the largest of the newest "
                                              "contents has {}",
                                              *free, largest)});
    }
    if (error != 0 && !(lacks && is_full(error))) {
        health.reasons.push_back({is_full(error) ? "room" : "store",
                                  {},
                                  0,
                                  fmt::format("{} cannot have another file: {}", text(), errno_text(error))});
    }
}

Outcome<std::uint64_t> Store::free_bytes() const {
    struct statvfs where{};
    if (fstatvfs(folder_.get(), &where) != 0) {
        return failed("the file system does not tell how much room there is: {}", errno_text(errno));
    }
    const std::uint64_t left = std::uint64_t{where.f_bavail} * where.f_frsize;
    return space_->max_bytes == 0 ? left : std::min(left, space_->left());
}

std::size_t Store::names() const {
    const base::Lock lock{names_mutex_};
    return names_.size();
}

void Store::for_each_name(const std::function<void(const std::string &, const Name &)> &look) const {
    std::string name;
    Name known;
    const auto next = [&] {
        const base::Lock lock{names_mutex_};
        const auto found = names_.upper_bound(name);
        if (found == names_.end()) {
            return false;
        }
        name = found->first;
        known = found->second;
        return true;
    };
    while (next()) {
        look(name, known);
    }
}

std::string Store::why_no_push() const {
    struct stat status{};
    if (fstat(folder_.get(), &status) != 0 || status.st_nlink == 0) {
        return fmt::format("{} was deleted", text());
    }
    struct stat now{};
    if (stat(path_.c_str(), &now) != 0) {
        return fmt::format("{} is not there any more: {}", text(), errno_text(errno));
    }
    if (now.st_dev != status.st_dev || now.st_ino != status.st_ino) {
        return fmt::format(
            "{}: another folder is there now: it was moved, or a file system was mounted over "
            "it (expected a start of the server again on the right one)",
            text());
    }
    return {};
}

// Does what a push does first. A file system that takes no change any more, as some do after an error, one
// without room for another file, and a quota say so. Returns 0 or an errno value.
int Store::try_file() const {
    const base::Fd file = unnamed_file(folder_.get());
    const int error = file ? allocate(file.get(), 0, page_size) : errno;
    return is_own_limit(error) ? 0 : error;
}

std::string Store::what_stays(const std::string &name) const {
    const base::Lock lock{names_mutex_};
    const auto *const newest = newest_of(name);
    if (newest == nullptr) {
        return fmt::format("{} still has no content", name);
    }
    const auto &[sequence, entry] = *newest;
    const std::string fault = last_fault_of(name, sequence, entry);
    return fmt::format("{} still has content {}{}", name, sequence, fault.empty() ? "" : ", which " + fault);
}

Outcome<std::unique_ptr<StoreUpload>> Store::open_upload(const std::string &name, std::uint64_t sequence) {
    base::Fd store{fcntl(folder_.get(), F_DUPFD_CLOEXEC, 0)};
    if (!store) {
        return failed("{}: cannot open it again: {}", text(), errno_text(errno));
    }
    const base::Lock lock{names_mutex_};
    for (const std::string &left : space_->take_folders()) {
        names_.try_emplace(left);
    }
    const auto found = names_.find(name);
    if (found != names_.end() && !found->second.unread.empty()) {
        return failed("{}: {}", name, found->second.unread);
    }
    if (found != names_.end() && found->second.last >= largest_sequence) {
        return failed("{}: no sequence is left", name);
    }
    StoreUpload::Options options;
    options.is_new_name = found == names_.end();
    if (options.is_new_name) {
        if (names_.size() + space_->new_names.load(std::memory_order_relaxed) >= options_.max_names) {
            return failed("the store has {} names, and takes no other (rpma serve --max-names)",
                          options_.max_names);
        }
        space_->new_names.fetch_add(1, std::memory_order_relaxed);
    }
    if (sequence == 0) {
        sequence = found != names_.end() ? found->second.last + 1 : 1;
    }
    if (found != names_.end()) {
        const Name &known = found->second;
        const auto &contents = known.contents;
        if (const auto same = contents.find(sequence); same != contents.end() && !same->second.has_note) {
            return failed("{}, so its file may be somebody else's, and is not replaced", same->second.damage);
        }
        if (const auto *const newest = known.newest(); newest != nullptr) {
            options.newest = newest->first;
            options.newest_is_good = known_fault_of(name, newest->first, newest->second).text.empty();
            options.tell_damage = [this, name, sequence = newest->first](const std::string &fault) {
                take_fault({name, sequence, {}, fault});
            };
        }
        if (const auto tagged = known.tagged(); tagged != contents.end()) {
            options.tagged = tagged->second.note;
            options.tagged_sequence = tagged->first;
            options.is_whole = known_fault_of(name, tagged->first, tagged->second).text.empty();
        }
        options.replaces = contents.contains(sequence);
        find_surplus(name, known, options);
        std::erase(options.surplus, sequence);
    }
    return std::make_unique<StoreUpload>(name, sequence, std::move(store), space_, std::move(options));
}

Listed Store::newest(const std::string &name) const {
    const base::Lock lock{names_mutex_};
    const auto *const newest = newest_of(name);
    return newest != nullptr ? Listed{name, newest->first, newest->second.note, newest->second.damage}
                             : Listed{name, 0, {}, {}};
}

std::vector<Listed> Store::newest() const {
    std::vector<Listed> all;
    const base::Lock lock{names_mutex_};
    for (const auto &[name, known] : names_) {
        if (const auto *const newest = known.newest(); newest != nullptr) {
            all.push_back({name, newest->first, newest->second.note, newest->second.damage});
        }
    }
    return all;
}

bool Store::is_newest_damaged(const std::string &name) const {
    const base::Lock lock{names_mutex_};
    const auto *const newest = newest_of(name);
    return newest != nullptr && !last_fault_of(name, newest->first, newest->second).empty();
}

std::string Store::blocks(const std::string &name, std::uint64_t sequence) const {
    const base::Fd folder{openat(folder_.get(), name.c_str(), folder_flags)};
    return folder ? read_blocks(folder.get(), blocks_name(sequence)) : "";
}

Content Store::committed(Upload &upload) {
    auto &done = static_cast<StoreUpload &>(upload);
    const std::uint64_t sequence = done.sequence();
    const base::Lock lock{names_mutex_};
    Name &name = names_[done.name()];
    if (!done.is_rollback()) {  // the file system may have given the number of a deleted file again
        for (auto &[one, entry] : name.contents) {
            entry.inode = entry.inode == done.inode() ? 0 : entry.inode;
        }
    }
    if (name.contents.contains(sequence)) {
        space_->give_back(name.own_bytes(sequence));
        const base::Lock damage_lock{damage_mutex_};
        damage_.erase({done.name(), sequence});
        seen_.erase({done.name(), sequence});
    }
    name.contents[sequence] = {.note = done.note(), .inode = done.inode(), .damage = {}};
    name.last = std::max(name.last, sequence);
    last_ = {done.name(), sequence};
    space_->used.fetch_add(name.own_bytes(sequence), std::memory_order_relaxed);
    done.give_back();
    for (const std::uint64_t gone : done.surplus()) {
        if (name.contents.contains(gone)) {
            space_->give_back(name.own_bytes(gone));
            name.contents.erase(gone);
            const base::Lock damage_lock{damage_mutex_};
            seen_.erase({done.name(), gone});
        }
    }
    return {sequence, done.note().length, done.note().checksum};
}

void Store::skip_sequence(const Upload &upload) {
    const base::Lock lock{names_mutex_};
    Name &name = names_[upload.name()];
    name.last = std::max(name.last, upload.sequence());
}

bool Store::is_fatal(const Answer &answer) {
    return (answer.verdict == Verdict::NotDurable || answer.verdict == Verdict::Unknown) &&
           is_of_device(answer.error);
}

std::string Store::list(const std::string &name) const {
    std::vector<Listed> contents;
    const auto add_once = [&](const std::string &one, const Name &known) {
        for (const auto &[sequence, entry] : known.contents) {
            Fault fault = fault_of(one, sequence, entry);
            if (fault.kind == kind_of_pruned) {
                return false;
            }
            contents.push_back({one, sequence, entry.note, std::move(fault.text)});
        }
        return true;
    };
    const auto add = [&](const std::string &one, const Name &known) {
        const std::size_t before = contents.size();
        for (bool is_done = add_once(one, known); !is_done;) {
            contents.resize(before);
            is_done = add_once(one, contents_of(one).value_or(Name{}));
        }
    };
    if (name.empty()) {
        for_each_name(add);
    } else {
        add(name, contents_of(name).value_or(Name{}));
    }
    return encode_list(contents);
}

const Store::Contents::value_type *Store::newest_of(const std::string &name) const {
    const auto found = names_.find(name);
    return found != names_.end() ? found->second.newest() : nullptr;
}

// Returns a copy of what is known of a name.
std::optional<Store::Name> Store::contents_of(const std::string &name) const {
    const base::Lock lock{names_mutex_};
    const auto found = names_.find(name);
    return found != names_.end() ? std::optional{found->second} : std::nullopt;
}

bool Store::is_there(const std::string &name, std::uint64_t sequence) const {
    const base::Lock lock{names_mutex_};
    const auto found = names_.find(name);
    return found != names_.end() && found->second.contents.contains(sequence);
}

Outcome<Download> Store::download(const std::string &name, std::uint64_t sequence) const {
    const auto known = contents_of(name);
    if (known && !known->unread.empty()) {
        return failed("{}: {}", name, known->unread);
    }
    if (!known || known->contents.empty()) {
        if (sequence != 0) {
            return failed("{} has no content {}", name, sequence);
        }
        // A client has a region also when there is no content.
        auto nothing = std::make_shared<Mapping>(page_size, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        return Download{{}, {}, {nothing->bytes(), nothing}};
    }
    const auto &contents = known->contents;
    const auto entry = sequence == 0 ? std::prev(contents.end()) : contents.find(sequence);
    if (entry == contents.end()) {
        return failed("{} has no content {} (expected one of {} to {})", name, sequence,
                      contents.begin()->first, contents.rbegin()->first);
    }
    const Note &note = entry->second.note;
    const Fault fault = fault_of(name, entry->first, entry->second);
    if (fault.kind == kind_of_pruned) {
        return download(name, sequence);
    }
    if (!fault.text.empty()) {
        return failed("{}: content {} {}", name, entry->first, fault.text);
    }
    const auto opened = open_content(folder_.get(), name, entry->first);
    if (!opened) {
        return is_there(name, entry->first)
                   ? failed("{}: content {} {}", name, entry->first, opened.error().text)
                   : download(name, sequence);
    }
    const base::Fd &file = *opened;
    const std::size_t size = std::max<std::uint64_t>(note.length, 1);
    auto mapping = std::make_shared<Mapping>();
    if (is_copied_ || note.length == 0) {
        *mapping = Mapping{size, MAP_PRIVATE | MAP_ANONYMOUS, -1};
        const auto copy = [&mapping](std::span<const std::byte> bytes, std::uint64_t offset) {
            std::ranges::copy(bytes, mapping->bytes().begin() + static_cast<std::ptrdiff_t>(offset));
        };
        if (const int error = *mapping ? read_all(file.get(), note.length, copy) : ENOMEM; error != 0) {
            return failed("{}: content {} cannot be read: {}", name, entry->first, errno_text(error));
        }
    } else {
        *mapping = Mapping{size, MAP_SHARED, file.get(), PROT_READ};
    }
    if (!*mapping) {
        return failed("{}: content {} cannot be mapped: {}", name, entry->first, errno_text(errno));
    }
    return Download{{entry->first, note.length, note.checksum}, note.tag, {mapping->bytes(), mapping}};
}

}  // namespace cli
