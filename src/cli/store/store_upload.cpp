// SPDX-License-Identifier: BSD-3-Clause
// cli/store/store_upload: writes the file, beside it the checksums of its blocks, and gives them their names.
#include "cli/store/store_upload.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "cli/files.hpp"
#include "cli/log.hpp"
#include "cli/store/store_files.hpp"

namespace cli {

namespace {

// A content that replaces another one has this name first.
constexpr const char *replacement_name = ".replacement";

// A file system that has ended after an error lets nothing be written any more. What was written is lost
// then.
int error_of_sync() {
    return errno == EROFS ? EIO : errno;
}

Answer not_stored(int error) {
    return {is_full(error) ? Verdict::NoRoom : Verdict::NotDurable, error};
}

// Writes a file of checksums of blocks. Nobody relies on it, so a failure leaves none.
void write_blocks(int folder, const char *name, const Blocks &blocks) {
    const std::string text = encode_blocks(blocks);
    (void)unlinkat(folder, name, 0);
    const base::Fd file{openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
    if (!file || write_all(file.get(), std::as_bytes(std::span{text}), 0) != 0) {
        (void)unlinkat(folder, name, 0);
    }
}

}  // namespace

bool Space::take(std::uint64_t bytes) {
    std::uint64_t before = used.load(std::memory_order_relaxed);
    do {
        if (max_bytes != 0 && (before > max_bytes || bytes > max_bytes - before)) {
            return false;
        }
    } while (!used.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
    return true;
}

std::uint64_t Space::left() const {
    const std::uint64_t now = used.load(std::memory_order_relaxed);
    return max_bytes > now ? max_bytes - now : 0;
}

void Space::add_folder(const std::string &name) {
    const base::Lock lock{folders_mutex};
    new_folders.push_back(name);
}

std::vector<std::string> Space::take_folders() {
    const base::Lock lock{folders_mutex};
    return std::exchange(new_folders, {});
}

StoreUpload::~StoreUpload() {
    space_->give_back(taken_);
    if (options_.is_new_name) {
        space_->new_names.fetch_sub(1, std::memory_order_relaxed);
    }
}

// Returns 0 or an errno value.
int StoreUpload::make_file() {
    if (!file_) {
        file_ = unnamed_file(store_.get());
    }
    return file_ ? 0 : errno;
}

// The newest content is not taken when it is known to be damaged, or when its file, its note and the
// checksums beside it do not fit each other. Its bytes are verified when a block is taken.
std::optional<StoreUpload::Base> StoreUpload::open_newest(std::uint64_t length) const {
    auto file = options_.newest != 0 && options_.newest_is_good
                    ? open_content(store_.get(), name(), options_.newest)
                    : failed("{}", "");
    const auto note = file ? read_note(file->get()) : failed("{}", "");
    struct stat status{};
    if (!note || fstat(file->get(), &status) != 0 || std::cmp_not_equal(status.st_size, note->length)) {
        return std::nullopt;
    }
    const base::Fd folder{openat(store_.get(), name().c_str(), folder_flags)};
    std::string text = folder ? read_blocks(folder.get(), blocks_name(options_.newest)) : "";
    auto blocks = decode_blocks(text);
    if (!blocks || blocks->length != note->length || blocks->checksum() != note->checksum ||
        blocks_in(length, blocks->block_size) > most_blocks) {
        return std::nullopt;
    }
    return Base{*std::move(file), false, false, std::move(text), *std::move(blocks)};
}

std::string StoreUpload::begin_as_newest(std::uint64_t length) {
    if (summer_ || end_ != 0 || make_file() != 0) {
        return {};
    }
    base_ = open_newest(length);
    const std::size_t size = base_ ? base_->blocks.block_size : block_size_for(length);
    if (size != 0) {
        summer_.emplace(size);
    }
    if (!base_) {
        return {};
    }
    base_->is_cloned = ioctl(file_.get(), FICLONE, base_->file.get()) == 0;
    return std::move(base_->text);
}

// Returns nothing when the files of what is left do not fit each other. The bytes are verified when a block
// is taken.
std::optional<StoreUpload::Base> StoreUpload::open_partial(std::uint64_t length) const {
    const base::Fd folder{openat(store_.get(), name().c_str(), folder_flags)};
    base::Fd file{folder ? openat(folder.get(), partial_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                         : -1};
    struct stat status{};
    if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
        return std::nullopt;
    }
    std::string text = read_blocks(folder.get(), partial_blocks_name);
    auto blocks = decode_blocks(text);
    if (!blocks || std::cmp_not_equal(status.st_size, blocks->length) ||
        blocks_in(length, blocks->block_size) > most_blocks) {
        return std::nullopt;
    }
    return Base{std::move(file), true, false, std::move(text), *std::move(blocks)};
}

std::string StoreUpload::resume(std::uint64_t length) {
    if (summer_ || end_ != 0 || make_file() != 0) {
        return {};
    }
    base_ = open_partial(length);
    if (base_ && reserve(length).verdict != Verdict::Done) {
        base_.reset();  // there is no room beside it, and the client's reserve() removes it
    }
    const std::size_t size = base_ ? base_->blocks.block_size : block_size_for(length);
    if (size != 0) {
        summer_.emplace(size);
        may_resume_ = true;
    }
    return base_ ? std::move(base_->text) : "";
}

// Returns whether there was something. One of fewer bytes than `least` stays.
bool StoreUpload::remove_partial(int folder, std::uint64_t least) {
    struct stat status{};
    const bool is_there = fstatat(folder, partial_name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (is_there && std::cmp_less(status.st_size, least)) {
        return false;
    }
    const bool is_removed = is_there && unlinkat(folder, partial_name, 0) == 0;
    if (is_removed) {
        space_->give_back(static_cast<std::uint64_t>(status.st_size));
    }
    (void)unlinkat(folder, partial_blocks_name, 0);
    return is_removed;
}

bool StoreUpload::drop_partial(std::uint64_t least) {
    const base::Fd folder{openat(store_.get(), name().c_str(), folder_flags)};
    const base::Lock lock{space_->partial_mutex};
    return folder && remove_partial(folder.get(), least);
}

// Makes room of what an earlier push of the name has left, if that is enough beside what is left: it would
// stay for ever if it kept this one from its commit. A push that builds on it needs it.
bool StoreUpload::makes_room(std::uint64_t bytes, std::uint64_t left) {
    return (!base_ || !base_->is_partial) && drop_partial(bytes - std::min(bytes, left));
}

bool StoreUpload::take(std::uint64_t bytes) {
    return space_->take(bytes) || (makes_room(bytes, space_->left()) && space_->take(bytes));
}

// Leaves the whole blocks to the next push that may go on. Less than there was before is not left.
void StoreUpload::leave_partial() {
    const Blocks blocks = summer_->ended();
    const bool is_less = base_ && blocks.length <= base_->blocks.length;
    if (error_ != 0 || blocks.length == 0 || is_less ||
        ftruncate(file_.get(), static_cast<off_t>(blocks.length)) != 0) {
        return;
    }
    const base::Lock lock{space_->partial_mutex};
    if (mkdirat(store_.get(), name().c_str(), 0700) == 0) {
        space_->add_folder(name());
    }
    const base::Fd folder{openat(store_.get(), name().c_str(), folder_flags)};
    if (!folder) {
        return;
    }
    remove_partial(folder.get());
    if (give_name(file_.get(), folder.get(), partial_name) == 0) {
        taken_ -= blocks.length;  // the store takes its bytes
        write_blocks(folder.get(), partial_blocks_name, blocks);
    }
}

// The file system may not be able to allocate. Then the bytes that do not fit tell of it. A file that has
// another's bytes already is not allocated, because it would lose what it shares.
Answer StoreUpload::reserve(std::uint64_t length) {
    if (const int error = make_file(); error != 0) {
        return not_stored(error);
    }
    if (length <= taken_) {
        return {};
    }
    const std::uint64_t more = length - taken_;
    if (!take(more)) {
        return {Verdict::NoRoom, 0, taken_ + space_->left()};
    }
    const bool allocates = !base_ || !base_->is_cloned;
    const auto allocate = [&] {
        const bool done =
            !allocates ||
            fallocate(file_.get(), 0, static_cast<off_t>(taken_), static_cast<off_t>(more)) == 0 ||
            errno == EOPNOTSUPP;
        const int failure = done ? 0 : errno;
        if (!done) {
            // ext4 keeps what it has allocated.
            (void)ftruncate(file_.get(), static_cast<off_t>(std::max(taken_.load(), end_)));
        }
        return failure;
    };
    int error = allocate();
    if (struct statvfs where{}; is_full(error) && fstatvfs(store_.get(), &where) == 0 &&
                                makes_room(more, std::uint64_t{where.f_bavail} * where.f_frsize)) {
        error = allocate();
    }
    if (error != 0) {
        space_->give_back(more);
        return not_stored(error);
    }
    taken_ = length;
    return {};
}

Answer StoreUpload::store(std::uint64_t offset, std::span<const std::byte> first,
                          std::span<const std::byte> rest) {
    if (error_ != 0) {
        return {Verdict::NotDurable, error_};
    }
    if (const int error = make_file(); error != 0) {
        error_ = error;
        return not_stored(error);
    }
    if (!follows(offset)) {
        return {Verdict::Different};
    }
    const std::uint64_t end = offset + first.size() + rest.size();
    const std::uint64_t more = end > taken_ ? end - taken_ : 0;
    if (more != 0 && !take(more)) {
        return {Verdict::NoRoom, 0, taken_ + space_->left()};
    }
    taken_ += more;
    int error = pass_to(offset);
    if (error == EINVAL) {
        const std::uint64_t unused = taken_ - std::max(taken_ - more, end_);
        space_->give_back(unused);
        taken_ -= unused;
        return {Verdict::Different};
    }
    for (const auto bytes : {first, rest}) {
        error = error == 0 ? add(bytes) : error;
    }
    if (error != 0) {
        error_ = error;
        if (is_full(error)) {
            (void)drop_partial();  // the next push has its room
        }
        return not_stored(error);
    }
    start_write_back();
    return {};
}

// Appends bytes to what is decided. Each piece is copied first, because the client may change the window
// meanwhile: the checksums are those of the bytes in the file. Returns 0 or an errno value.
int StoreUpload::add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const auto piece = std::span{*piece_}.first(std::min(bytes.size(), piece_->size()));
        std::ranges::copy(bytes.first(piece.size()), piece.begin());
        if (const int error = write_all(file_.get(), piece, end_); error != 0) {
            return error;
        }
        found_.update(piece);
        if (summer_) {
            summer_->update(piece);
        }
        end_ += piece.size();
        bytes = bytes.subspan(piece.size());
    }
    return 0;
}

// Returns whether bytes at this offset follow those that are decided, perhaps behind some of the newest
// content: whole blocks of it, and its last one only as the last of this one.
bool StoreUpload::follows(std::uint64_t offset) const {
    if (offset == end_) {
        return true;
    }
    if (offset < end_ || !base_ || offset > base_->blocks.length) {
        return false;
    }
    const std::size_t block_size = base_->blocks.block_size;
    return end_ % block_size == 0 && (offset % block_size == 0 || offset == base_->blocks.length);
}

// Takes the bytes up to this offset, which follows, from the newest content. Returns EINVAL when that is
// damaged, 0, or another errno value.
int StoreUpload::pass_to(std::uint64_t offset) {
    if (offset == end_) {
        return 0;
    }
    const std::size_t block_size = base_->blocks.block_size;
    const Crc32c::Behind behind_block{block_size};
    while (end_ < offset) {
        const std::size_t block = end_ / block_size;
        const std::size_t size = base_->blocks.size_of(block);
        if (const int error = take_block(block, size); error != 0) {
            give_up_base(error, end_);
            return error;
        }
        const BlockSum &sum = base_->blocks.sums[block];
        found_.append(sum.checksum, size == block_size ? behind_block : Crc32c::Behind{size});
        summer_->add(sum, size);
        end_ += size;
    }
    return 0;
}

// Reads and verifies a block of the base, and copies it unless the new file has it already. Returns 0 or an
// errno value, which is EINVAL when the block is damaged, or storage cannot read it.
int StoreUpload::take_block(std::size_t block, std::size_t size) const {
    const std::uint64_t begin = block * base_->blocks.block_size;
    Crc32c found;
    for (std::size_t done = 0; done < size;) {
        const std::size_t wanted = std::min(size - done, piece_->size());
        const ssize_t got =
            pread(base_->file.get(), piece_->data(), wanted, static_cast<off_t>(begin + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 && errno == ENOMEM ? ENOMEM : EINVAL;
        }
        const auto piece = std::span{*piece_}.first(static_cast<std::size_t>(got));
        const int error = base_->is_cloned ? 0 : write_all(file_.get(), piece, begin + done);
        if (error != 0) {
            return error;
        }
        found.update(piece);
        done += piece.size();
    }
    return found.value() == base_->blocks.sums[block].checksum ? 0 : EINVAL;
}

// Takes an error at a block of the base into account. The blocks before it are left to the next push instead
// of those of a partial, which has the room then too. A content that is damaged is not taken again.
void StoreUpload::give_up_base(int error, std::uint64_t offset) {
    if (base_->is_partial && (error == EINVAL || is_full(error))) {
        (void)drop_partial();
        base_.reset();
    } else if (error == EINVAL) {
        options_.tell_damage(
            fmt::format("is damaged: its block at {} cannot be read, or has another checksum", offset));
    }
}

// Has the kernel begin to write what is there to storage, so that the commit does not wait for all of it. An
// error of that comes from the fsync of the commit.
void StoreUpload::start_write_back() {
    constexpr std::uint64_t portion = std::uint64_t{8} << 20;
    if (end_ - written_back_ >= portion) {
        (void)sync_file_range(file_.get(), static_cast<off_t>(written_back_),
                              static_cast<off_t>(end_ - written_back_), SYNC_FILE_RANGE_WRITE);
        written_back_ = end_;
    }
}

// Returns whether the content of the newest tag is there, as far as that shows without a look at its bytes.
bool StoreUpload::has_tagged() const {
    const auto file =
        options_.is_whole ? open_content(store_.get(), name(), options_.tagged_sequence) : failed("{}", "");
    struct stat status{};
    return file && fstat(file->get(), &status) == 0 && std::cmp_equal(status.st_size, options_.tagged.length);
}

// No other push of the name commits while this one is under way, so the newest tag stays. A content whose
// file is damaged may come again.
Answer StoreUpload::take_tag(const Tag &tag, const Request &request) {
    const Note &newest = options_.tagged;
    if (tag == newest.tag && (request.length != newest.length || request.checksum != newest.checksum)) {
        return {Verdict::Different};
    }
    if (tag < newest.tag || (tag == newest.tag && has_tagged())) {
        return {Verdict::Newer, tag == newest.tag ? EEXIST : 0, newest.tag.epoch};
    }
    tag_ = tag;
    return {};
}

Answer StoreUpload::commit(const Request &request, const Who &who) {
    if (newest_tag() && !tag_) {
        return {Verdict::NotDurable, EPERM};
    }
    return commit_as(
        {request.length, request.checksum, time_text(), who.host, who.identity, request.label, tag_});
}

Answer StoreUpload::commit_as(const Note &note) {
    if (const int error = error_ != 0 ? error_ : make_file(); error != 0) {
        return {Verdict::NotDurable, error};
    }
    if (!follows(note.length) || note.length > std::max(room(), end_)) {
        return {Verdict::Different};
    }
    if (const int error = pass_to(note.length); error != 0) {
        return error == EINVAL ? Answer{Verdict::Different} : Answer{Verdict::NotDurable, error};
    }
    if (note.checksum != found_.value()) {
        return {Verdict::Different};
    }
    note_ = note;
    const std::string text = encode_note(note_);
    if (ftruncate(file_.get(), static_cast<off_t>(note.length)) != 0 ||
        fsetxattr(file_.get(), note_attribute, text.data(), text.size(), XATTR_CREATE) != 0) {
        return {Verdict::NotDurable, errno};
    }
    if (fsync(file_.get()) != 0) {
        return {Verdict::NotDurable, error_of_sync()};
    }
    return publish();
}

// Gives the file of the earlier content another name. Its note stays that of its push.
Answer StoreUpload::roll_back(std::uint64_t sequence) {
    if (newest_tag()) {
        return {Verdict::NotDurable, EPERM};  // it would be older than what other servers have
    }
    may_resume_ = false;  // the file is the earlier content's
    auto file = open_content(store_.get(), name(), sequence);
    if (!file) {
        return {Verdict::NotDurable, ENOENT};
    }
    file_ = *std::move(file);
    auto note = read_note(file_.get());
    Crc32c found;
    const auto add = [&found](std::span<const std::byte> bytes, std::uint64_t) { found.update(bytes); };
    if (!note || read_all(file_.get(), note->length, add) != 0 || found.value() != note->checksum) {
        return {Verdict::Different};
    }
    note_ = *std::move(note);
    rolled_back_ = sequence;
    options_.surplus = options_.surplus_of_rollback;
    return publish();
}

// Beside the checksums of contents that are gone, those of this one come, as far as they are known.
void StoreUpload::retire() {
    if (!std::exchange(committed_, false)) {
        if (std::exchange(may_resume_, false)) {
            leave_partial();
        }
        return;
    }
    const base::Fd folder{openat(store_.get(), name().c_str(), folder_flags)};
    if (!folder) {
        return;
    }
    const std::string own = blocks_name(sequence());
    if (rolled_back_ != 0) {
        (void)linkat(folder.get(), blocks_name(rolled_back_).c_str(), folder.get(), own.c_str(), 0);
    } else if (summer_) {
        write_blocks(folder.get(), own.c_str(), summer_->finish());
    }
    {
        const base::Lock lock{space_->partial_mutex};
        remove_partial(folder.get());
    }
    // One that stays after a crash goes with the next push.
    for (const std::uint64_t sequence : options_.surplus) {
        if (unlinkat(folder.get(), std::to_string(sequence).c_str(), 0) != 0 && errno != ENOENT) {
            BASE_LOG(Warning, "%s: content %s cannot be removed: %s", name().c_str(),
                     std::to_string(sequence).c_str(), errno_text(errno));
        }
        (void)unlinkat(folder.get(), blocks_name(sequence).c_str(), 0);
    }
}

// The content has its name, but storage has not made it durable, with this errno value. The next push of the
// name has the same sequence, so the name goes again; storage may bring it back after a crash when it has not
// made that durable either. What a device does after an error is unknown.
Answer StoreUpload::take_name_away(int folder, int error) const {
    const bool is_gone = !is_of_device(error) &&
                         unlinkat(folder, std::to_string(sequence()).c_str(), 0) == 0 && fsync(folder) == 0;
    return {is_gone ? Verdict::NotDurable : Verdict::Unknown, error};
}

// Gives the file its name, in the place of the one that has it when it replaces that. Returns 0 or an errno
// value.
int StoreUpload::name_content(int folder) const {
    const std::string name = std::to_string(sequence());
    if (!options_.replaces) {
        return give_name(file_.get(), folder, name);
    }
    (void)unlinkat(folder, replacement_name, 0);  // a crash may leave it
    const int error = give_name(file_.get(), folder, replacement_name);
    return error != 0 || renameat(folder, replacement_name, folder, name.c_str()) == 0 ? error : errno;
}

Answer StoreUpload::publish() {
    // Without a content the folder may be that of a partial, whose name nobody has made durable.
    const bool is_new = mkdirat(store_.get(), name().c_str(), 0700) == 0;
    const auto not_durable = [&](int error) -> Answer {
        if (is_new) {
            const base::Lock lock{space_->partial_mutex};
            (void)unlinkat(store_.get(), name().c_str(),
                           AT_REMOVEDIR);  // it would be a name without a content
        }
        return {Verdict::NotDurable, error};
    };
    if ((!is_new && errno != EEXIST) || ((is_new || options_.newest == 0) && fsync(store_.get()) != 0)) {
        return not_durable(errno);
    }
    const base::Fd folder{openat(store_.get(), name().c_str(), folder_flags)};
    if (!folder) {
        return not_durable(errno);
    }
    struct stat status{};
    if (fstat(file_.get(), &status) != 0) {
        return not_durable(errno);
    }
    inode_ = status.st_ino;
    may_resume_ = false;  // the file may be a content from here on, also when nobody knows
    if (const int error = name_content(folder.get()); error != 0) {
        return not_durable(error);
    }
    // btrfs makes nothing durable of a file without a name, and with its folder only that there is a file.
    // Only now, with a name, its fsync says that its bytes and its attribute are on storage.
    if (fsync(file_.get()) != 0 || fsync(folder.get()) != 0) {
        return take_name_away(folder.get(), error_of_sync());
    }
    committed_ = true;
    return {Verdict::Done, 0, sequence()};
}

}  // namespace cli
