// SPDX-License-Identifier: BSD-3-Clause
// cli/run/executable: the first bytes of a file say what the program is (elf(5)).
#include "cli/run/executable.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/text.hpp"

namespace cli {

namespace {

constexpr int most_interpreters = 5;      // of scripts that run scripts, as with execve(2)
constexpr std::size_t most_headers = 64;  // programs have about a dozen
constexpr std::size_t most_notes_bytes = 4096;

// Returns the program's path; empty when there is no such file.
std::string path_of(const std::string &program) {
    if (program.contains('/')) {
        return program;
    }
    const char *const path = std::getenv("PATH");
    std::string_view left = path != nullptr ? path : "/bin:/usr/bin";
    while (true) {
        const std::string_view folder = left.substr(0, left.find(':'));
        std::string one = fmt::format("{}/{}", folder.empty() ? "." : folder, program);
        if (access(one.c_str(), X_OK) == 0) {
            return one;
        }
        if (folder.size() == left.size()) {
            return {};
        }
        left.remove_prefix(folder.size() + 1);
    }
}

// Reads the items that there are, at most `most`.
template <typename Item>
std::vector<Item> read_items(const base::Fd &file, std::size_t most, std::size_t offset) {
    std::vector<Item> items(most);
    const ssize_t count = pread(file.get(), items.data(), most * sizeof(Item), static_cast<off_t>(offset));
    items.resize(count > 0 ? static_cast<std::size_t>(count) / sizeof(Item) : 0);
    return items;
}

// Returns whether a segment of notes has a note of Go's linker.
bool has_note_of_go(const base::Fd &file, const ElfW(Phdr) & segment) {
    const auto bytes =
        read_items<char>(file, std::min<std::size_t>(segment.p_filesz, most_notes_bytes), segment.p_offset);
    const auto padded = [](std::size_t size) { return (size + 3) / 4 * 4; };
    std::string_view left{bytes.data(), bytes.size()};
    ElfW(Nhdr) note{};
    while (left.size() > sizeof(note)) {
        std::memcpy(&note, left.data(), sizeof(note));
        left.remove_prefix(sizeof(note));
        if (left.starts_with(std::string_view{"Go\0\0", 4})) {
            return true;
        }
        left.remove_prefix(std::min(left.size(), padded(note.n_namesz) + padded(note.n_descsz)));
    }
    return false;
}

// Returns whether the file gains privileges; ld.so(8) then takes only libraries of the system's folders.
bool gains_privileges(const base::Fd &file) {
    struct stat status{};
    struct statvfs folder{};
    if (fstat(file.get(), &status) != 0 || fstatvfs(file.get(), &folder) != 0 ||
        (folder.f_flag & ST_NOSUID) != 0) {
        return false;
    }
    constexpr mode_t group = S_ISGID | S_IXGRP;
    return ((status.st_mode & S_ISUID) != 0 && status.st_uid != getuid()) ||
           ((status.st_mode & group) == group && status.st_gid != getgid()) ||
           (getuid() != 0 && fgetxattr(file.get(), "security.capability", nullptr, 0) > 0);
}

// Returns the reason for a file in ELF, whose header this is.
std::string why_not(const base::Fd &file, const ElfW(Ehdr) & header) {
    ElfW(Ehdr) own{};
    const base::Fd self{open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    (void)pread(self.get(), &own, sizeof(own), 0);
    if (header.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] || header.e_machine != own.e_machine) {
        return "is for another kind of processor";
    }
    if (gains_privileges(file)) {
        return "gets privileges of its own, with which ld.so(8) preloads nothing";
    }
    const auto segments =
        read_items<ElfW(Phdr)>(file, std::min<std::size_t>(header.e_phnum, most_headers), header.e_phoff);
    if (std::ranges::any_of(segments, [&](const ElfW(Phdr) & one) {
            return one.p_type == PT_NOTE && has_note_of_go(file, one);
        })) {
        return "is written in Go, whose programs make system calls without libc";
    }
    const bool is_dynamic =
        std::ranges::any_of(segments, [](const ElfW(Phdr) & one) { return one.p_type == PT_INTERP; });
    return is_dynamic ? "" : "is linked statically";
}

}  // namespace

std::string why_not_preloaded(const std::string &program) {
    std::string path = path_of(program);
    for (int i = 0; i < most_interpreters; ++i) {
        const base::Fd file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
        if (!file) {
            break;
        }
        const auto begin = read_items<char>(file, sizeof(ElfW(Ehdr)) + 256, 0);
        std::string_view text{begin.data(), begin.size()};
        if (text.starts_with("#!")) {
            text = text.substr(2, text.find('\n') - 2);
            path = base::take_word(text);
            continue;
        }
        ElfW(Ehdr) header{};
        if (!text.starts_with(ELFMAG) || text.size() < sizeof(header)) {
            break;
        }
        std::memcpy(&header, text.data(), sizeof(header));
        const std::string why = why_not(file, header);
        return why.empty() ? why : fmt::format("{} {}", path, why);
    }
    return {};
}

}  // namespace cli
