// SPDX-License-Identifier: BSD-3-Clause
// persist/proc_text: the two formats, a line and a field at a time.
#include "persist/proc_text.hpp"

#include <algorithm>

#include "base/number.hpp"

namespace persist {

namespace {

// Removes and returns the text before `separator`, or all of it when there is no separator.
std::string_view take(std::string_view &text, char separator) {
    const std::size_t end = std::min(text.find(separator), text.size());
    const std::string_view head = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return head;
}

std::string_view field(std::string_view &line) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    return take(line, ' ');
}

std::optional<std::uint64_t> number(std::string_view text, int radix) {
    std::uint64_t value = 0;
    return base::read_number(text, value, radix) ? std::optional{value} : std::nullopt;
}

// "BEGIN-END PERMISSIONS OFFSET MAJOR:MINOR INODE   PATH"
std::optional<Area> area_of(std::string_view line) {
    std::string_view range = field(line);
    const auto begin = number(take(range, '-'), 16);
    const auto end = number(range, 16);
    const std::string_view permissions = field(line);
    const auto offset = number(field(line), 16);
    const auto device = device_number(field(line), 16);
    const auto inode = number(field(line), 10);
    if (!begin || !end || *begin >= *end || permissions.size() != 4 || !offset || !device || !inode) {
        return std::nullopt;
    }
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    Area area;
    area.begin = *begin;
    area.end = *end;
    area.readable = permissions[0] == 'r';
    area.stores = permissions[1] == 'w';
    area.shared = permissions[3] == 's';
    area.file = {*device, *inode};
    area.offset = *offset;
    area.path = line;
    return area;
}

// In this text, space, tab, newline, backslash and # are a backslash and three octal digits.
std::string unescaped(std::string_view text) {
    std::string plain;
    while (!text.empty()) {
        const auto code = text[0] == '\\' && text.size() >= 4 ? number(text.substr(1, 3), 8) : std::nullopt;
        plain += code ? static_cast<char>(*code) : text[0];
        text.remove_prefix(code ? 4 : 1);
    }
    return plain;
}

// "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [OPTIONAL ...] - KIND SOURCE OPTIONS"
std::optional<Mount> mount_of(std::string_view line) {
    field(line);
    field(line);
    const auto device = device_number(field(line), 10);
    field(line);
    const std::string_view point = field(line);
    const std::size_t dash = line.find(" - ");
    if (!device || point.empty() || dash == line.npos) {
        return std::nullopt;
    }
    line.remove_prefix(dash + 3);
    // This does not use field(), because a source may be empty.
    const std::string_view kind = take(line, ' ');
    const std::string_view source = take(line, ' ');
    return Mount{*device, unescaped(point), std::string{kind}, unescaped(source), unescaped(line)};
}

}  // namespace

std::optional<DeviceNumber> device_number(std::string_view text, int radix) {
    const auto major = number(take(text, ':'), radix);
    const auto minor = number(text, radix);
    if (!major || !minor) {
        return std::nullopt;
    }
    return *major << 32 | *minor;
}

std::vector<Area> areas_in(std::string_view smaps, std::uintptr_t begin, std::uintptr_t end) {
    std::vector<Area> areas;
    bool wanted = false;
    while (!smaps.empty()) {
        std::string_view line = take(smaps, '\n');
        if (auto area = area_of(line)) {
            wanted = area->begin < end && begin < area->end;
            if (wanted) {
                areas.push_back(std::move(*area));
            }
        } else if (wanted && field(line) == "VmFlags:") {
            for (auto flag = field(line); !flag.empty(); flag = field(line)) {
                areas.back().writable |= flag == "sh";
                areas.back().sync |= flag == "sf";
                areas.back().watched |= flag == "um" || flag == "uw" || flag == "ui";
            }
        }
    }
    return areas;
}

std::vector<Mount> mounts_in(std::string_view mountinfo) {
    std::vector<Mount> mounts;
    while (!mountinfo.empty()) {
        if (auto mount = mount_of(take(mountinfo, '\n'))) {
            mounts.push_back(std::move(*mount));
        }
    }
    return mounts;
}

}  // namespace persist
