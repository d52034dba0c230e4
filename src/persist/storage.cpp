// SPDX-License-Identifier: BSD-3-Clause
// persist/storage: follows a mount down to the storage that holds the bytes.
#include "persist/storage.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

namespace persist {

namespace {

namespace fs = std::filesystem;

constexpr const char *in_memory = ", which lives in memory";

DeviceNumber number_of(dev_t device) {
    return DeviceNumber{major(device)} << 32 | minor(device);
}

std::optional<DeviceNumber> block_device_at(const std::string &path) {
    struct stat status;
    if (::stat(path.c_str(), &status) != 0 || !S_ISBLK(status.st_mode)) {
        return std::nullopt;
    }
    return number_of(status.st_rdev);
}

// Returns the first line of a file, or "" when there is none.
std::string first_line(const fs::path &path) {
    std::ifstream file{path};
    std::string line;
    std::getline(file, line);
    return line;
}

// Returns the device number of a file system on one block device, or that of its source when the kernel gives
// the file system another number (btrfs).
std::optional<DeviceNumber> device_below(const Mount &mount) {
    if (mount.device >> 32 != 0) {
        return mount.device;
    }
    return mount.source.starts_with("/dev/") ? block_device_at(mount.source) : std::nullopt;
}

}  // namespace

// Returns the mount whose point is the longest prefix of `path`; among equals the last, which hides the
// others.
const Mount *Storage::mount_above(std::string_view path) const {
    const Mount *best = nullptr;
    for (const Mount &mount : mounts_) {
        const std::string_view point = mount.point == "/" ? "" : std::string_view{mount.point};
        const bool above =
            path.starts_with(point) && (path.size() == point.size() || path[point.size()] == '/');
        if (above && (best == nullptr || mount.point.size() >= best->point.size())) {
            best = &mount;
        }
    }
    return best;
}

// Searches by device number, or by path when the kernel shows another number in smaps than in mountinfo
// (btrfs, overlay).
const Mount *Storage::mount_of(const Area &area) const {
    const auto found = std::ranges::find(mounts_, area.file.device, &Mount::device);
    return found != mounts_.end() ? &*found : mount_above(area.path);
}

std::string Storage::why_lost(const Mount &mount, int layers) const {
    if (mount.is_one_of("tmpfs", "ramfs", "rootfs", "hugetlbfs", "devtmpfs") ||
        mount.source.starts_with("/dev/ram") || mount.source.starts_with("/dev/zram")) {
        return mount.kind + in_memory;
    }
    if (mount.kind == "overlay") {
        return why_upper_lost(mount, layers);
    }
    const auto device = device_below(mount);
    const std::string why = device ? why_device_lost(*device, layers) : "";
    return why.empty() ? "" : mount.kind + " on " + why;
}

// An overlay writes to its upper folder, and not durably when it is mounted "volatile". In a container the
// upper folder may be out of view; it then counts as on storage.
std::string Storage::why_upper_lost(const Mount &overlay, int layers) const {
    const std::string options = "," + overlay.options + ",";
    if (options.find(",volatile,") != options.npos) {
        return "overlay" + std::string{in_memory};
    }
    const std::size_t at = options.find(",upperdir=");
    const std::size_t path = at + std::string_view{",upperdir="}.size();
    const Mount *const upper =
        at == options.npos ? nullptr : mount_above(options.substr(path, options.find(',', path) - path));
    const std::string why = upper != nullptr && layers > 0 ? why_lost(*upper, layers - 1) : "";
    return why.empty() ? "" : "overlay on " + why;
}

std::string Storage::why_device_lost(DeviceNumber device, int layers) const {
    constexpr DeviceNumber loop_major = 7;
    const std::string number = std::to_string(device >> 32) + ":" + std::to_string(device & 0xffffffff);
    if (layers == 0) {
        return "device " + number + ", below more devices than are looked through";
    }
    std::error_code error;
    fs::path folder = fs::canonical(sys_ + "/dev/block/" + number, error);
    if (error) {
        return device >> 32 == loop_major ? "a loop device whose file is not known (mount /sys)" : "";
    }
    if (fs::exists(folder / "partition", error)) {
        folder = folder.parent_path();
    }
    const std::string name = folder.filename();
    if (name.starts_with("ram") || name.starts_with("zram")) {
        return name + in_memory;
    }
    if (name.starts_with("loop")) {
        return why_loop_lost(name, folder, layers - 1);
    }
    for (const auto &part : fs::directory_iterator{folder / "slaves", error}) {
        const auto below = device_number(first_line(part.path() / "dev"), 10);
        const std::string why = below ? why_device_lost(*below, layers - 1) : "";
        if (!why.empty()) {
            return std::string{name}.append(" on ").append(why);
        }
    }
    return "";
}

std::string Storage::why_loop_lost(const std::string &name, const std::string &folder, int layers) const {
    const std::string file = first_line(folder + "/loop/backing_file");
    if (file.empty()) {
        return name + ", a loop device whose file is not known";
    }
    if (file.ends_with(" (deleted)")) {
        return name + " over " + file + ", which nobody can open again";
    }
    const std::string on = name + " over " + file + " on ";
    const auto device = block_device_at(file);
    const Mount *const mount = mount_above(file);
    if (!device && mount == nullptr) {
        return on + "an unknown file system";
    }
    const std::string why = device ? why_device_lost(*device, layers) : why_lost(*mount, layers);
    return why.empty() ? "" : on + why;
}

}  // namespace persist
