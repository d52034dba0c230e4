// SPDX-License-Identifier: BSD-3-Clause
// registry/reader: files that other processes write, read without trust.
#include "registry/reader.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/own_user.hpp"
#include "registry/user_folder.hpp"

namespace registry {

namespace {

using Records = std::vector<Record>;

// A file in a user's folder.
struct FilePlace {
    const UserFolder &folder;
    const char *file;

    [[nodiscard]] std::string text() const { return folder.path + "/" + file; }
};

base::Fd remove(const FileName &name, const FilePlace &place) {
    const bool removed = unlinkat(place.folder.fd.get(), place.file, 0) == 0;
    BASE_LOG(Debug, "%s is %s: process %d is gone or does not have it", place.text().c_str(),
             removed ? "removed" : "ignored", name.process);
    return {};
}

// Opens a file that a process of the user whose name it has has locked. A file that was left behind is
// removed.
base::Fd open_file(const FileName &name, const FilePlace &place, std::size_t &bytes) {
    struct stat status{};
    if (fstatat(place.folder.fd.get(), place.file, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return {};  // it is gone already
    }
    if (status.st_uid != name.user) {
        BASE_LOG(Debug, "%s is ignored: expected a file of user %u, and it is one of user %u",
                 place.text().c_str(), name.user, status.st_uid);
        return {};
    }
    if (!S_ISREG(status.st_mode)) {
        return remove(name, place);
    }
    base::Fd file{openat(place.folder.fd.get(), place.file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
    if (!file || fstat(file.get(), &status) != 0 || status.st_uid != name.user) {
        BASE_LOG(Debug, "%s is ignored: %s", place.text().c_str(), std::strerror(errno));
        return {};
    }
    if (!is_locked(file.get())) {
        return remove(name, place);
    }
    bytes = static_cast<std::size_t>(status.st_size);
    if (bytes < first_file_bytes || bytes > most_file_bytes || bytes % sizeof(Record) != 0) {
        BASE_LOG(Debug, "%s is ignored: it has %zu bytes (expected records of %zu bytes, %zu bytes or more)",
                 place.text().c_str(), bytes, sizeof(Record), first_file_bytes);
        return {};
    }
    return file;
}

// The user's own processes and root's are trusted.
bool is_trusted(uid_t user) {
    return base::is_own_user(user) || user == 0;
}

// The reader reads only so much of the files of other users: they may have made as many as they like.
class Allowance {
public:
    // Returns whether so many bytes of a file of the user may be read.
    [[nodiscard]] bool take(uid_t user, std::size_t bytes) {
        if (is_trusted(user)) {
            return true;
        }
        std::size_t &of_user = of_user_[user];
        if (of_user + bytes > most_of_user || of_all_ + bytes > most_of_all) {
            return false;
        }
        of_user += bytes;
        of_all_ += bytes;
        return true;
    }

private:
    static constexpr std::size_t most_of_user = std::size_t{4} << 20;
    static constexpr std::size_t most_of_all = std::size_t{32} << 20;
    std::map<uid_t, std::size_t> of_user_;
    std::size_t of_all_ = 0;
};

bool read_records(const base::Fd &file, Records &records) {
    const std::size_t bytes = records.size() * sizeof(Record);
    return pread(file.get(), records.data(), bytes, 0) == static_cast<ssize_t>(bytes);
}

bool has_header(const FilePlace &place, const Records &records) {
    const auto header = std::bit_cast<Header>(records.front());
    const Header expected;
    if (header.magic == expected.magic && header.version == expected.version &&
        header.record_bytes == expected.record_bytes) {
        return true;
    }
    BASE_LOG(Debug, "%s is ignored: it is not of version %u (its version is %u, with records of %u bytes)",
             place.text().c_str(), expected.version, header.version, header.record_bytes);
    return false;
}

// The writer may be anywhere in a description. One that is the same in both readings was whole.
bool is_whole(const Record &first, const Record &second) {
    using Bytes = std::array<std::byte, sizeof(Description)>;
    return second.sequence % 2 == 0 && first.sequence == second.sequence && first.used == second.used &&
           std::bit_cast<Bytes>(first.description) == std::bit_cast<Bytes>(second.description);
}

template <std::size_t size>
void make_printable(std::array<char, size> &text) {
    text.back() = '\0';
    for (char &letter : text) {
        letter = letter == '\0' || (letter >= ' ' && letter <= '~') ? letter : '?';
    }
}

// Two readings of all records. A record that changes in each of many pairs of readings is left out.
bool read_file(const FileName &name, const FilePlace &place, Allowance &allowance,
               const std::function<bool(const Seen &)> &take) {
    std::size_t bytes = 0;
    const base::Fd file = open_file(name, place, bytes);
    if (!file) {
        return true;
    }
    if (!allowance.take(name.user, bytes)) {
        BASE_LOG(Debug, "%s is ignored: user %u has too many such files", place.text().c_str(), name.user);
        return true;
    }
    Records first(bytes / sizeof(Record));
    Records second(first.size());
    if (!read_records(file, second) || !has_header(place, second)) {
        return true;
    }
    std::vector<bool> told(first.size());
    constexpr int most_readings = 16;
    bool is_complete = false;
    for (int reading = 0; reading < most_readings && !is_complete; ++reading) {
        first.swap(second);
        if (!read_records(file, second)) {
            return true;  // it was cut off
        }
        is_complete = true;
        for (std::size_t index = 1; index < second.size(); ++index) {
            if (told[index]) {
                continue;
            }
            if (!is_whole(first[index], second[index])) {
                is_complete = false;
                continue;
            }
            told[index] = true;
            if (second[index].used == 0) {
                continue;
            }
            Seen seen{.user = name.user,
                      .space = name.space,
                      .process = name.process,
                      .description = second[index].description,
                      .live = second[index].live};
            make_printable(seen.description.device);
            make_printable(seen.description.reason);
            if (!take(seen)) {
                return false;
            }
        }
    }
    return true;
}

// Calls use(name, place) for each file of the user until it returns false. Returns whether it never did. An
// untrusted user may have made any number of files, so of those only some are looked at.
bool for_files(const std::string &shared, uid_t user,
               const std::function<bool(const FileName &, const FilePlace &)> &use) {
    constexpr std::size_t most_names = 4096;
    for (const UserFolder &folder : folders_of(shared, user)) {
        base::Fd again{openat(folder.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
        const std::unique_ptr<DIR, int (*)(DIR *)> opened{again ? fdopendir(again.get()) : nullptr, closedir};
        if (opened == nullptr) {
            BASE_LOG(Debug, "%s cannot be read: %s", folder.path.c_str(), std::strerror(errno));
            continue;
        }
        (void)again.release();  // closedir closes it
        std::size_t names = 0;
        while (const dirent *entry = readdir(opened.get())) {
            if (++names > most_names && !is_trusted(user)) {
                BASE_LOG(Debug, "%s has too many files: the others are ignored", folder.path.c_str());
                break;
            }
            const auto name = parse_file_name(entry->d_name);
            if (name && name->user == user && !use(*name, {folder, entry->d_name})) {
                return false;
            }
        }
    }
    return true;
}

}  // namespace

void read_all(const std::string &shared, const std::vector<uid_t> &users,
              const std::function<bool(const Seen &)> &take) {
    Allowance allowance;
    for (const uid_t user : users) {
        const bool goes_on = for_files(shared, user, [&](const FileName &name, const FilePlace &place) {
            return read_file(name, place, allowance, take);
        });
        if (!goes_on) {
            return;
        }
    }
}

void remove_abandoned(const std::string &shared) {
    (void)for_files(shared, geteuid(), [](const FileName &name, const FilePlace &place) {
        std::size_t bytes = 0;
        (void)open_file(name, place, bytes);
        return true;
    });
}

}  // namespace registry
