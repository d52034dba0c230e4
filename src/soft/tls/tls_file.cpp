// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/tls_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/own_user.hpp"

namespace soft {

namespace {

constexpr std::size_t most_file_bytes = std::size_t{1} << 20;

// Returns whether systemd has put this file there for this process (systemd.exec(5), LoadCredential=). Where
// its file system has access control lists, systemd lets the process's user read it by such a list, which
// stat(2) shows as a right of the group.
bool is_credential(const char *file, const struct stat &found) {
    const char *const folder = secure_getenv("CREDENTIALS_DIRECTORY");
    return folder != nullptr && found.st_uid == 0 &&
           std::filesystem::path{file}.parent_path() == std::filesystem::path{folder};
}

// Returns why the open file may not be used, or nothing.
base::Result<void> allowed(const char *file, int opened, const struct stat &found, Readers readers) {
    if (!S_ISREG(found.st_mode)) {
        BASE_LOG_PEER(Error, "TLS: %s is not a file: no connection is made", file);
        return base::failure(EINVAL);
    }
    if (found.st_uid != 0 && !base::is_own_file(opened, found)) {
        BASE_LOG_PEER(Error, "TLS: %s belongs to user %u, not to this one or root: no connection is made",
                      file, found.st_uid);
        return base::failure(EACCES);
    }
    const bool is_secret = readers == Readers::Owner;
    mode_t forbidden = is_secret ? S_IRWXG | S_IRWXO : S_IWGRP | S_IWOTH;
    if (is_credential(file, found)) {
        forbidden &= ~static_cast<mode_t>(S_IRGRP);
    }
    if ((found.st_mode & forbidden) != 0) {
        BASE_LOG_PEER(Error,
                      "TLS: others than its owner may %s %s (mode %04o): no connection is made until you "
                      "chmod %s it",
                      is_secret ? "use" : "write", file, found.st_mode & 07777U, is_secret ? "600" : "go-w");
        return base::failure(EACCES);
    }
    if (found.st_size < 0 || static_cast<std::size_t>(found.st_size) > most_file_bytes) {
        BASE_LOG_PEER(Error, "TLS: %s has more than %zu bytes: no connection is made", file, most_file_bytes);
        return base::failure(EINVAL);
    }
    return {};
}

base::Result<void> cannot_read(const char *file) {
    const auto failed = base::last_failure();
    BASE_LOG_PEER(Error, "TLS: %s: %s: no connection is made", file, std::strerror(failed.error().number));
    return failed;
}

}  // namespace

base::Result<void> read_tls_file(const char *file, Readers readers, SecretText &all) {
    const base::Fd opened{open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
    struct stat found{};
    if (!opened || fstat(opened.get(), &found) != 0) {
        return cannot_read(file);
    }
    if (const auto may = allowed(file, opened.get(), found, readers); !may) {
        return may;
    }
    all.text.resize(static_cast<std::size_t>(found.st_size));
    const ssize_t count = ::read(opened.get(), all.text.data(), all.text.size());
    if (count < 0) {
        return cannot_read(file);
    }
    all.text.resize(static_cast<std::size_t>(count));
    return {};
}

std::string_view without_blanks(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
    const std::size_t last = text.find_last_not_of(blanks);
    return last == std::string_view::npos ? std::string_view{} : text.substr(begin, last + 1 - begin);
}

std::string_view take_line(std::string_view &text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = without_blanks(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    return line.starts_with('#') ? std::string_view{} : line;
}

namespace {

constexpr std::int64_t second_ns = 1'000'000'000;

std::int64_t nanoseconds(const timespec &time) {
    return std::int64_t{time.tv_sec} * second_ns + time.tv_nsec;
}

}  // namespace

FileStamp FileStamp::of(const char *file) {
    struct stat found{};
    if (stat(file, &found) != 0) {
        return {};
    }
    return {.device = found.st_dev,
            .inode = found.st_ino,
            .size = found.st_size,
            .changed_ns = nanoseconds(found.st_ctim)};
}

bool FileStamp::is_settled() const {
    timespec now{};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return changed_ns < nanoseconds(now) - second_ns;
}

}  // namespace soft
