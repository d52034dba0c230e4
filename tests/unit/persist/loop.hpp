// SPDX-License-Identifier: BSD-3-Clause
// A test makes a real loop device with ext4 here. The calling thread mounts it, and no other process sees the
// mount. Include this header after the headers that cmocka needs.
#pragma once

#include <linux/loop.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <string>

// Last, as it wants.
#include "memory.hpp"

// Moves the calling thread into a mount namespace of its own, and returns whether it can mount a loop device
// there. When it cannot, this prints the reason, and the test skips.
inline bool can_mount_loop() {
    const bool can = geteuid() == 0 && access("/dev/loop-control", R_OK | W_OK) == 0 &&
                     system("command -v mkfs.ext4 >/dev/null") == 0 && unshare(CLONE_NEWNS) == 0 &&
                     mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    if (!can) {
        print_message("SKIPPED: a loop device needs root, /dev/loop-control and mkfs.ext4\n");
    }
    return can;
}

class LoopMount {
public:
    // The file of the device lies in the folder `backing`, and the device is mounted at ./mounted.
    explicit LoopMount(const char *backing) : name_{std::string{backing} + "/rpma-loop-XXXXXX"} {
        const int file = mkostemp(name_.data(), O_CLOEXEC);
        assert_true(file >= 0);
        assert_int_equal(ftruncate(file, 4 << 20), 0);
        assert_int_equal(system(("mkfs.ext4 -q -F " + name_).c_str()), 0);
        const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
        const std::string path = "/dev/loop" + std::to_string(ioctl(control, LOOP_CTL_GET_FREE));
        close(control);
        const int loop = open(path.c_str(), O_RDWR | O_CLOEXEC);
        assert_true(loop >= 0);
        loop_config config{};
        config.fd = static_cast<__u32>(file);
        config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
        assert_int_equal(ioctl(loop, LOOP_CONFIGURE, &config), 0);
        (void)mkdir("mounted", 0700);
        assert_int_equal(mount(path.c_str(), "mounted", "ext4", 0, nullptr), 0);
        close(loop);
        close(file);
    }
    ~LoopMount() {
        (void)umount2("mounted", MNT_DETACH);
        (void)unlink(name_.c_str());
        (void)rmdir("mounted");
    }
    LoopMount(const LoopMount &) = delete;
    LoopMount &operator=(const LoopMount &) = delete;

private:
    std::string name_;
};
