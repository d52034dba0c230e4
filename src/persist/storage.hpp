// SPDX-License-Identifier: BSD-3-Clause
// persist/storage: tells whether files outlive the machine's memory, from the text of mountinfo and, for the
// layers below a block device (a loop device's file, a mapped device's parts), from the tree of sysfs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "persist/proc_text.hpp"

namespace persist {

class Storage {
public:
    // sys: where sysfs is mounted.
    Storage(std::vector<Mount> mounts, std::string sys) : mounts_{std::move(mounts)}, sys_{std::move(sys)} {}

    // Returns the mount that holds the file of a mapping; nullptr when there is none.
    [[nodiscard]] const Mount *mount_of(const Area &area) const;

    // Returns the reason why files on a mount are lost with the memory of this machine, beginning with the
    // mount's kind; empty when no reason is known. Reads /sys. Any thread may call it.
    [[nodiscard]] std::string why_lost(const Mount &mount) const { return why_lost(mount, most_layers); }

private:
    static constexpr int most_layers = 16;

    [[nodiscard]] const Mount *mount_above(std::string_view path) const;
    [[nodiscard]] std::string why_lost(const Mount &mount, int layers) const;
    [[nodiscard]] std::string why_upper_lost(const Mount &overlay, int layers) const;
    [[nodiscard]] std::string why_device_lost(DeviceNumber device, int layers) const;
    [[nodiscard]] std::string why_loop_lost(const std::string &name, const std::string &folder,
                                            int layers) const;

    std::vector<Mount> mounts_;
    std::string sys_;
};

}  // namespace persist
