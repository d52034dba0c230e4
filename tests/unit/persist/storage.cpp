// SPDX-License-Identifier: BSD-3-Clause
// persist/storage: tests which storage is below file systems and block devices, in trees like sysfs that the
// test makes, and on a real loop device.
#include "persist/storage.hpp"

#include <errno.h>
#include <string.h>

#include <filesystem>
#include <fstream>

#include "persist/mapping.hpp"

// Last, as it wants.
#include "loop.hpp"

namespace {

namespace fs = std::filesystem;
using persist::WriteBack;

constexpr const char *mountinfo =
    "31 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "32 31 0:30 / /dev/shm rw - tmpfs t rw\n"
    "33 31 7:0 / /mnt/over-tmpfs rw - ext4 /dev/loop0 rw\n"
    "34 31 7:1 / /mnt/over-disk rw - ext4 /dev/loop1 rw\n"
    "35 31 7:2 / /mnt/deleted rw - ext4 /dev/loop2 rw\n"
    "36 31 7:3 / /mnt/over-loop rw - xfs /dev/loop3 rw\n"
    "37 31 259:7 / /mnt/part rw - ext4 /dev/loop0p1 rw\n"
    "38 31 253:0 / /mnt/crypt rw - ext4 /dev/mapper/crypt rw\n"
    "39 31 253:1 / /mnt/mirror rw - ext4 /dev/mapper/mirror rw\n"
    "40 31 252:0 / /mnt/zram rw - ext4 /dev/disk/by-id/z rw\n"
    "41 31 1:0 / /mnt/ram rw - ext4 /dev/disk/by-id/r rw\n"
    "42 31 7:9 / /mnt/detached rw - ext4 /dev/loop9 rw\n"
    "43 31 7:5 / /mnt/itself rw - ext4 /dev/loop5 rw\n"
    "44 31 0:50 / /mnt/merged rw - overlay o rw,lowerdir=/l,upperdir=/mnt/over-loop/u,workdir=/w\n"
    "45 31 259:0 / /mnt/nvme rw - ext4 /dev/nvme0n1 rw\n"
    "46 31 7:6 / /mnt/bare rw - ext4 /dev/loop6 rw\n";

const fs::path tree = "sysfs";

// Makes a device of the tree with its content: pairs of a path below its folder and a text.
void device(const std::string &number, const std::string &folder,
            std::initializer_list<std::pair<const char *, const char *>> files = {}) {
    fs::create_directories(tree / "devices" / folder);
    fs::create_directories(tree / "dev/block");
    fs::create_directory_symlink("../../devices/" + folder, tree / "dev/block" / number);
    std::ofstream{tree / "devices" / folder / "dev"} << number << '\n';
    for (const auto &[name, text] : files) {
        fs::create_directories((tree / "devices" / folder / name).parent_path());
        std::ofstream{tree / "devices" / folder / name} << text << '\n';
    }
}

void part_of(const std::string &folder, const std::string &part) {
    fs::create_directories(tree / "devices" / folder / "slaves");
    fs::create_directory_symlink("../../" + part, tree / "devices" / folder / "slaves" / part);
}

int make_tree(void **) {
    fs::remove_all(tree);
    device("8:1", "sda/sda1", {{"partition", "1"}});
    device("259:0", "nvme0n1");
    device("7:0", "loop0", {{"loop/backing_file", "/dev/shm/disk"}});
    device("259:7", "loop0/loop0p1", {{"partition", "1"}});
    device("7:1", "loop1", {{"loop/backing_file", "/var/disk"}});
    device("7:2", "loop2", {{"loop/backing_file", "/var/disk (deleted)"}});
    device("7:3", "loop3", {{"loop/backing_file", "/mnt/over-tmpfs/disk"}});
    device("7:5", "loop5", {{"loop/backing_file", "/mnt/itself/disk"}});
    device("7:6", "loop6");
    device("252:0", "zram0", {{"backing_dev", "none"}});
    device("1:0", "ram0");
    device("253:0", "dm-0");
    part_of("dm-0", "nvme0n1");
    device("253:1", "dm-1");
    part_of("dm-1", "nvme0n1");
    part_of("dm-1", "loop3");
    return 0;
}

int remove_tree(void **) {
    fs::remove_all(tree);
    return 0;
}

std::string why_lost(const char *point) {
    const persist::Storage storage{persist::mounts_in(mountinfo), tree};
    for (const persist::Mount &mount : persist::mounts_in(mountinfo)) {
        if (mount.point == point) {
            return storage.why_lost(mount);
        }
    }
    fail_msg("no mount %s", point);
    return "";
}

void expect(const char *point, const char *why) {
    assert_string_equal(why_lost(point).c_str(), why);
}

void knows_disks(void **) {
    for (const char *const point : {"/", "/mnt/over-disk", "/mnt/crypt", "/mnt/nvme"}) {
        expect(point, "");
    }
}

void looks_below_loop_devices(void **) {
    const char *const over_tmpfs = "ext4 on loop0 over /dev/shm/disk on tmpfs, which lives in memory";
    expect("/mnt/over-tmpfs", over_tmpfs);
    expect("/mnt/part", over_tmpfs);
    expect("/mnt/deleted", "ext4 on loop2 over /var/disk (deleted), which nobody can open again");
    expect("/mnt/over-loop",
           ("xfs on loop3 over /mnt/over-tmpfs/disk on " + std::string{over_tmpfs}).c_str());
    expect("/mnt/detached", "ext4 on a loop device whose file is not known (mount /sys)");
    expect("/mnt/bare", "ext4 on loop6, a loop device whose file is not known");
}

void looks_below_mapped_devices(void **) {
    assert_non_null(strstr(why_lost("/mnt/mirror").c_str(), "ext4 on dm-1 on loop3 over "));
}

void knows_disks_in_memory(void **) {
    expect("/mnt/zram", "ext4 on zram0, which lives in memory");
    expect("/mnt/ram", "ext4 on ram0, which lives in memory");
    assert_non_null(strstr(why_lost("/mnt/merged").c_str(), "overlay on xfs on loop3 over "));
}

// No real tree is like that; the search ends in any case.
void ends_where_devices_do_not(void **) {
    assert_non_null(strstr(why_lost("/mnt/itself").c_str(), "more devices than are looked through"));
}

// ---- A real loop device, mounted where no other process sees it.

void real_loop_device(const char *backing, WriteBack expected, const char *word) {
    const LoopMount mounted{backing};
    const int fd = new_file("mounted/file", page);
    char *const memory = map(fd, page);
    const auto mappings = persist::mappings_of(memory, page);
    munmap(memory, page);
    close(fd);
    assert_true(mappings.has_value());
    if (mappings->at(0).write_back != expected || mappings->at(0).text.find(word) == std::string::npos) {
        fail_msg("%s: %s", backing, mappings->at(0).text.c_str());
    }
}

void real_loop_devices(void **) {
    if (!on_storage() || !can_mount_loop()) {
        skip();
    }
    real_loop_device(".", WriteBack::PageCache, "page cache on ext4");
    real_loop_device("/dev/shm", WriteBack::Volatile, "tmpfs, which lives in memory");
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(knows_disks),
                                cmocka_unit_test(looks_below_loop_devices),
                                cmocka_unit_test(looks_below_mapped_devices),
                                cmocka_unit_test(knows_disks_in_memory),
                                cmocka_unit_test(ends_where_devices_do_not),
                                cmocka_unit_test(real_loop_devices)};
    return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
