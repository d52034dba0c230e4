// SPDX-License-Identifier: BSD-3-Clause
// cli/store/store_files: system calls on them.
#include "cli/store/store_files.hpp"

#include <dirent.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <utility>

#include "cli/files.hpp"
#include "cli/protocol/blocks.hpp"
#include "cli/random_number.hpp"

namespace cli {

namespace {

constexpr std::size_t piece_size = std::size_t{128} << 10;  // stays in the processor's cache for the checksum
constexpr std::string_view blocks_ending = ".blocks";
constexpr std::size_t identity_size = 32;
constexpr std::string_view own_fault = "cannot be looked at for a limit of this process: ";

}  // namespace

Outcome<std::vector<std::string>> names_in(int folder, Dotted dotted) {
    base::Fd again{openat(folder, ".", folder_flags)};  // with a position of its own
    DIR *const opened = again ? fdopendir(again.get()) : nullptr;
    if (opened == nullptr) {
        return failed("{}", fault_text("cannot read", errno));
    }
    (void)again.release();
    const std::unique_ptr<DIR, int (*)(DIR *)> owner{opened, closedir};
    std::vector<std::string> names;
    for (errno = 0; const dirent *const entry = readdir(opened); errno = 0) {
        if ((entry->d_name[0] == '.') == (dotted == Dotted::Yes)) {
            names.emplace_back(entry->d_name);
        }
    }
    return errno == 0 ? Outcome<std::vector<std::string>>{std::move(names)}
                      : failed("{}", fault_text("cannot read", errno));
}

int read_all(int fd, std::uint64_t length, const TakeBytes &take, const MayRead &may_read) {
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(piece_size);
    for (std::uint64_t done = 0; done < length;) {
        const std::size_t wanted = std::min<std::uint64_t>(length - done, piece_size);
        if (may_read && !may_read(wanted)) {
            return ECANCELED;
        }
        const ssize_t got = pread(fd, memory.get(), wanted, static_cast<off_t>(done));
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return got < 0 ? errno : ENODATA;
        }
        const std::span bytes{memory.get(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
        take(bytes, done);
        done += bytes.size();
    }
    return 0;
}

// FUSE and NFS return 0 and have done nothing. Before Linux 5.17 an error of the file system's journal is not
// returned; the journal has ended then, and each later fsync fails.
bool sync_all(int folder) {
    constexpr std::array<decltype(statfs::f_type), 3> known{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,
                                                            BTRFS_SUPER_MAGIC};
    struct statfs where{};
    return fstatfs(folder, &where) == 0 && std::ranges::find(known, where.f_type) != known.end() &&
           syncfs(folder) == 0;
}

bool is_full(int error) {
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

bool is_of_device(int error) {
    constexpr std::array others{ENOENT, ENOTDIR, EISDIR, ELOOP,  EEXIST, EACCES, EPERM,
                                EMLINK, ENOMEM,  EMFILE, ENFILE, EXDEV,  EROFS};
    return error != 0 && !is_full(error) && std::ranges::find(others, error) == others.end();
}

bool is_own_limit(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

std::string fault_text(const char *what, int error) {
    return is_own_limit(error) ? fmt::format("{}{}", own_fault, errno_text(error))
                               : fmt::format("{}: {}", what, errno_text(error));
}

bool is_own_fault(std::string_view fault) {
    return fault.starts_with(own_fault);
}

bool is_identity(std::string_view text) {
    return text.size() == identity_size &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string make_identity() {
    return fmt::format("{:016x}{:016x}", random_number(), random_number());
}

Outcome<std::string> read_identity(int folder, const char *name) {
    const base::Fd file{openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (!file) {
        return errno == ENOENT ? Outcome<std::string>{}
                               : failed("{} cannot be opened: {}", name, errno_text(errno));
    }
    std::string text;
    const auto take = [&text](std::span<const std::byte> bytes, std::uint64_t) {
        text.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    };
    if (const int error = read_all(file.get(), identity_size, take); error != 0 && error != ENODATA) {
        return failed("{} cannot be read: {}", name, errno_text(error));
    }
    return is_identity(text) ? Outcome<std::string>{std::move(text)}
                             : failed("{} has no identity of a store (expected 32 digits of base 16)", name);
}

// The file is whole when it gets its name.
Outcome<> write_identity(int folder, const char *name, const std::string &identity) {
    const std::string line = identity + '\n';
    const base::Fd file = unnamed_file(folder);
    int error = file ? write_all(file.get(), std::as_bytes(std::span{line}), 0) : errno;
    if (error == 0) {
        error = fsync(file.get()) == 0 ? give_name(file.get(), folder, name) : errno;
    }
    // As with a content, btrfs needs the fsync of the file with its name.
    if (error == 0 && (fsync(file.get()) != 0 || fsync(folder) != 0)) {
        error = errno;
        (void)unlinkat(folder, name, 0);
    }
    return error == 0 ? Outcome<>{} : failed("{} cannot be made: {}", name, errno_text(error));
}

Outcome<base::Fd> open_content(int store, const std::string &name, std::uint64_t sequence) {
    const base::Fd folder{openat(store, name.c_str(), folder_flags)};
    base::Fd file{folder ? openat(folder.get(), std::to_string(sequence).c_str(),
                                  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                         : -1};
    struct stat status{};
    if (!file || fstat(file.get(), &status) != 0) {
        return errno == ENOENT ? failed("{}", was_deleted)
                               : failed("{}", fault_text("cannot be opened", errno));
    }
    return S_ISREG(status.st_mode) ? Outcome<base::Fd>{std::move(file)} : failed("is no regular file");
}

Outcome<Note> read_note(int file) {
    std::array<char, longest_note + 1> text{};
    const ssize_t size = fgetxattr(file, note_attribute, text.data(), text.size());
    return size >= 0 ? decode_note({text.data(), static_cast<std::size_t>(size)})
                     : failed("{}", fault_text("has no note that can be read", errno));
}

std::string blocks_name(std::uint64_t sequence) {
    return fmt::format(".{}{}", sequence, blocks_ending);
}

std::string read_blocks(int folder, const std::string &name) {
    const base::Fd file{openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    struct stat status{};
    if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
        std::cmp_greater(status.st_size, longest_blocks)) {
        return {};
    }
    std::string text;
    const auto take = [&text](std::span<const std::byte> bytes, std::uint64_t) {
        text.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    };
    return read_all(file.get(), static_cast<std::uint64_t>(status.st_size), take) == 0 ? text : "";
}

std::uint64_t sequence_of_blocks(std::string_view file_name) {
    if (!file_name.starts_with('.') || !file_name.ends_with(blocks_ending)) {
        return 0;
    }
    return sequence_of(file_name.substr(1, file_name.size() - 1 - blocks_ending.size()));
}

}  // namespace cli
