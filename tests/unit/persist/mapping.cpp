// SPDX-License-Identifier: BSD-3-Clause
// persist/mapping: tests the verdict on samples of /proc (those of DAX come from a guest with an emulated
// NVDIMM), and on real memory of this machine.
#include "persist/mapping.hpp"

#include <errno.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/utsname.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "base/fd.hpp"
#include "memory.hpp"
#include "persist/proc_text.hpp"

namespace {

using persist::WriteBack;

constexpr const char *mountinfo =
    "26 31 0:6 / /dev rw,relatime - devtmpfs d rw,size=972244k,mode=755,inode64\n"
    "31 1 0:26 / / rw,relatime - overlay o rw,lowerdir=/lower,upperdir=/ov/u,workdir=/ov/w,uuid=on\n"
    "33 26 0:30 / /dev/shm rw,relatime shared:3 - tmpfs t rw,inode64\n"
    "38 31 259:0 / /mnt/pm rw,relatime - ext4 /dev/pmem0 rw,dax=always\n"
    "nonsense\n"
    "39 31 254:16 / /mnt/with\\040space rw shared:7 master:2 - xfs /dev/vdb rw\n"
    "40 31 0:41 /sub /mnt/btrfs rw,relatime - btrfs /dev/vdc rw,subvol=/sub\n"
    "41 31 0:42 / /mnt/ramdisk rw - ext4 /dev/ram0 rw\n"
    "42 31 0:43 / /mnt/nfs rw - nfs4 server:/export rw\n"
    "43 31 0:44 / /mnt/novel rw - novelfs novel rw\n"
    "44 31 0:45 / /mnt/over rw - overlay o rw,lowerdir=/l,upperdir=/dev/shm/u,workdir=/dev/shm/w\n"
    "45 31 0:46 / /mnt/hasty rw - overlay o rw,lowerdir=/l,upperdir=/mnt/pm/u,workdir=/mnt/pm/w,volatile\n"
    "46 31 0:47 / /mnt/pm/hidden rw - tmpfs none rw\n"
    "47 31 254:32 / /mnt/pm/hidden rw - ext4 /dev/vdd rw\n"
    "48 31 0:48 / /mnt/huge rw - hugetlbfs  rw\n";

std::string area(const char *header, const char *flags) {
    return std::string{header} +
           "\nSize:                  8 kB\nRss:                   4 kB\nVmFlags: " + flags + " \n";
}

constexpr const char *no_sysfs = "no-sysfs";

bool yes(const std::string &path) {
    return path == "/dev/dax0.1";
}

// Returns the one mapping of one page of `smaps`, which begins at 0x1000.
persist::Mapping judged(const std::string &smaps) {
    const auto mappings = persist::mappings_in(smaps, mountinfo, 0x1000, 0x1000, yes, no_sysfs);
    assert_true(mappings.has_value());
    assert_int_equal(mappings->size(), 1);
    return mappings->front();
}

constexpr const char *shared_flags = "rd wr sh mr mw me ms sd";

void expect(WriteBack write_back, const char *rest_of_header, const char *word,
            const char *flags = shared_flags) {
    const auto mapping = judged(area((std::string{"1000-2000 "} + rest_of_header).c_str(), flags));
    if (mapping.write_back != write_back || mapping.text.find(word) == std::string::npos) {
        fail_msg("%s: write-back %d, text '%s', expected %d and '%s'", rest_of_header,
                 static_cast<int>(mapping.write_back), mapping.text.c_str(), static_cast<int>(write_back),
                 word);
    }
}

void knows_dax(void **) {
    expect(WriteBack::CacheLines, "rw-s 00000000 103:00 12                        /mnt/pm/a",
           "/mnt/pm/a is DAX on ext4", "rd wr sh mr mw me ms sf sd hg");
    // Without MAP_SYNC the file system must be told too.
    expect(WriteBack::PageCache, "rw-s 00000000 103:00 13                        /mnt/pm/b", "ext4",
           "rd wr sh mr mw me ms sd hg");
    expect(WriteBack::CacheLines, "rw-s 00000000 00:06 116                        /dev/dax0.1", "devdax",
           "rd wr sh mr mw me ms sd hg");
    // The name of a device is not enough.
    expect(WriteBack::Volatile, "rw-s 00000000 00:06 117                        /dev/dax9.1", "devtmpfs");
}

void knows_storage(void **) {
    expect(WriteBack::PageCache, "rw-s 00000000 fe:10 7 /mnt/with space/a  b",
           "/mnt/with space/a  b is page cache on xfs");
    expect(WriteBack::PageCache, "rw-s 00000000 00:2b 7 /mnt/nfs/a", "nfs4");
    // No mount has this device number, so the path decides: the longest whole component comes first.
    expect(WriteBack::PageCache, "rw-s 00000000 00:99 7 /mnt/btrfs/a", "btrfs");
    expect(WriteBack::PageCache, "rw-s 00000000 00:99 7 /mnt/btrfs2/a", "overlay");
    expect(WriteBack::PageCache, "rw-s 00000000 00:99 7 /mnt/with space/a", "xfs");
    // The upper of two mounts on one point counts.
    expect(WriteBack::PageCache, "rw-s 00000000 00:99 7 /mnt/pm/hidden/a", "ext4");
    expect(WriteBack::PageCache, "rw-s 00000000 00:1a 7 /tmp/x", "overlay");
}

void knows_what_is_lost(void **) {
    expect(WriteBack::Volatile, "rw-p 00000000 00:00 0", "anonymous", "rd wr mr mw me ac");
    expect(WriteBack::Volatile, "rw-p 00000000 00:00 0                          [heap]", "[heap]",
           "rd wr mr mw me ac");
    expect(WriteBack::Volatile, "rw-p 00000000 103:00 14                        /mnt/pm/c", "MAP_SHARED",
           "rd wr mr mw me ac sd hg");
    expect(WriteBack::Volatile, "r--s 00000000 103:00 14                        /mnt/pm/c", "reading only",
           "rd mr me ms sd");
    expect(WriteBack::Volatile, "rw-s 00000000 00:1e 2 /dev/shm/pool", "tmpfs");
    expect(WriteBack::Volatile, "rw-s 00000000 00:30 2 /mnt/huge/pool", "hugetlbfs");
    expect(WriteBack::Volatile, "rw-s 00000000 00:2a 2 /mnt/ramdisk/pool", "lives in memory");
    expect(WriteBack::Volatile, "rw-s 00000000 00:2c 2 /mnt/novel/pool", "novelfs");
    expect(WriteBack::Volatile, "rw-s 00000000 00:2d 2 /mnt/over/pool", "overlay");
    expect(WriteBack::Volatile, "rw-s 00000000 00:2e 2 /mnt/hasty/pool", "overlay");
    expect(WriteBack::Volatile, "rw-s 00000000 00:01 5 /memfd:pool (deleted)", "without a file");
    expect(WriteBack::Volatile, "rw-s 00000000 00:01 5 /dev/zero (deleted)", "without a file");
    expect(WriteBack::Volatile, "rw-s 00000000 00:01 5 /SYSV00000000 (deleted)", "without a file");
    expect(WriteBack::Volatile, "rw-s 00000000 103:00 5 /mnt/pm/a (deleted)", "deleted file");
    // MAP_SYNC does not make memory durable.
    expect(WriteBack::Volatile, "rw-s 00000000 00:2a 2 /mnt/ramdisk/pool", "lives in memory",
           "rd wr sh ms sf");
}

void needs_a_mount(void **) {
    const auto mappings =
        persist::mappings_in(area("1000-2000 rw-s 0 08:01 5 /a", shared_flags), "", 0x1000, 1, yes, no_sysfs);
    assert_true(mappings.has_value());
    assert_int_equal(mappings->at(0).write_back, WriteBack::Volatile);
    assert_non_null(strstr(mappings->at(0).text.c_str(), "unknown"));
}

void finds_the_range(void **) {
    const std::string smaps = area("1000-3000 rw-s 0 103:00 5 /mnt/pm/a", shared_flags) +
                              area("3000-4000 rw-s 0 103:00 6 /mnt/pm/b", "rd wr sh ms sf") +
                              area("5000-6000 rw-p 0 00:00 0", "rd wr");
    const auto in = [&smaps](uintptr_t address, size_t length) {
        return persist::mappings_in(smaps, mountinfo, address, length, yes, no_sysfs);
    };
    assert_int_equal(in(0x1000, 0x3000)->size(), 2);
    assert_int_equal(in(0x2fff, 2)->size(), 2);
    assert_int_equal(in(0x2fff, 1)->size(), 1);
    assert_int_equal(in(0x3000, 1)->at(0).write_back, WriteBack::CacheLines);
    assert_int_equal(in(0x2fff, 1)->at(0).write_back, WriteBack::PageCache);
    assert_int_equal(in(0x3000, 1)->at(0).begin, 0x3000);
    assert_int_equal(in(0x3000, 1)->at(0).end, 0x4000);
    assert_int_equal(in(0x3800, 0)->size(), 1);
    for (const auto &[address, length] : {std::pair<uintptr_t, size_t>{0x0, 0x1000},
                                          {0xfff, 2},
                                          {0x3000, 0x1001},
                                          {0x3000, 0x3000},
                                          {0x4000, 1},
                                          {0x6000, 1},
                                          {0x3000, SIZE_MAX}}) {
        const auto mappings = in(address, length);
        assert_false(mappings.has_value());
        assert_int_equal(mappings.error().number, EFAULT);
    }
}

// Lines that are cut anywhere, and nonsense, give areas or none, never a wrong one.
void survives_any_text(void **) {
    const std::string whole = area("1000-2000 rw-s 00000000 103:00 12   /mnt/pm/a", "rd wr sh ms sf");
    for (size_t size = 0; size < whole.size(); ++size) {
        for (const auto &found : persist::areas_in(std::string_view{whole}.substr(0, size), 0, SIZE_MAX)) {
            assert_int_equal(found.begin, 0x1000);
            assert_int_equal(found.end, 0x2000);
        }
        assert_true(persist::mounts_in(std::string_view{mountinfo}.substr(size)).size() <= 14);
    }
    for (const char *const text :
         {"", "\n\n", "-", "2000-1000 rw-p 0 0:0 0", "1-zz rw-p 0 0:0 0", "VmFlags: sh\n", "1-2 rw 0 0:0 0",
          "1-2 rw-p 0 0 0", "11111111111111111-2 rw-p 0 0:0 0"}) {
        assert_true(persist::areas_in(text, 0, SIZE_MAX).empty());
    }
    for (const char *const text : {"", " ", "1 2 3", "1 2 3:4 / /", "1 2 x:4 / / rw - ext4 a b"}) {
        assert_true(persist::mounts_in(text).empty());
    }
}

// ---- Real memory.

struct Bytes {
    char *address;
    size_t length;
};

WriteBack only(Bytes bytes, const char *word) {
    const auto mappings = persist::mappings_of(bytes.address, bytes.length);
    assert_true(mappings.has_value());
    assert_int_equal(mappings->size(), 1);
    if (mappings->at(0).text.find(word) == std::string::npos) {
        fail_msg("'%s' does not say '%s'", mappings->at(0).text.c_str(), word);
    }
    assert_true(mappings->at(0).begin <= reinterpret_cast<uintptr_t>(bytes.address));
    return mappings->at(0).write_back;
}

void real_memory_without_a_file(void **) {
    char *memory = map_anonymous(page);
    assert_int_equal(only({memory, page}, "anonymous"), WriteBack::Volatile);
    munmap(memory, page);

    memory = map_anonymous(page, MAP_SHARED);
    assert_int_equal(only({memory, page}, "/dev/zero"), WriteBack::Volatile);
    munmap(memory, page);

    const int fd = memfd_create("pool", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, page), 0);
    memory = map(fd, page);
    assert_int_equal(only({memory, page}, "memfd:pool"), WriteBack::Volatile);
    munmap(memory, page);
    close(fd);

    const int id = shmget(IPC_PRIVATE, page, IPC_CREAT | 0600);
    assert_true(id >= 0);
    memory = static_cast<char *>(shmat(id, nullptr, 0));
    shmctl(id, IPC_RMID, nullptr);
    assert_int_equal(only({memory, page}, "without a file"), WriteBack::Volatile);
    shmdt(memory);

    char on_stack = 0;
    assert_true(persist::mappings_of(&on_stack, 1).has_value());
    assert_int_equal(persist::mappings_of(&on_stack, 1)->at(0).write_back, WriteBack::Volatile);
}

void real_files(void **) {
    if (!on_storage()) {
        skip();
    }
    const int fd = new_file("mapping", 2 * page);
    char *memory = map(fd, 2 * page);
    assert_int_equal(only({memory, 2 * page}, "/mapping is page cache on"), WriteBack::PageCache);
    assert_int_equal(only({memory + 5, 10}, "/mapping is page cache on"), WriteBack::PageCache);
    unlink("mapping");
    assert_int_equal(only({memory, page}, "deleted"), WriteBack::Volatile);
    munmap(memory, 2 * page);
    memory = map(fd, page, MAP_PRIVATE);
    memory[0] = 1;
    assert_int_equal(only({memory, page}, "private"), WriteBack::Volatile);
    munmap(memory, page);
    close(fd);
}

void real_file_for_reading(void **) {
    close(new_file("mapping-read", page));
    const int fd = open("mapping-read", O_RDONLY | O_CLOEXEC);
    void *const memory = mmap(nullptr, page, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(only({static_cast<char *>(memory), page}, "reading only"), WriteBack::Volatile);
    munmap(memory, page);
    close(fd);
    unlink("mapping-read");
}

// The memory is of a file, then of no file, and then there is a hole.
void real_neighbours(void **) {
    if (!on_storage()) {
        skip();
    }
    char *const memory = map_anonymous(4 * page, MAP_SHARED);
    const int fd = new_file("mapping-neighbour", page);
    assert_ptr_equal(mmap(memory, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), memory);
    assert_int_equal(munmap(memory + 2 * page, page), 0);
    const auto two = persist::mappings_of(memory + page - 8, 16);
    assert_true(two.has_value());
    assert_int_equal(two->size(), 2);
    assert_int_equal(two->at(0).write_back, WriteBack::PageCache);
    assert_int_equal(two->at(1).write_back, WriteBack::Volatile);
    assert_int_equal(two->at(0).end, two->at(1).begin);
    for (const size_t length : {2 * page + 1, 4 * page}) {
        const auto hole = persist::mappings_of(memory, length);
        assert_false(hole.has_value());
        assert_int_equal(hole.error().number, EFAULT);
    }
    munmap(memory, 4 * page);
    close(fd);
    unlink("mapping-neighbour");
}

void memory_that_may_only_be_read_is_not_writable(void **) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void *const pages = mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    const auto begin = reinterpret_cast<std::uintptr_t>(pages);
    assert_true(persist::is_writable(begin, 3 * page));
    assert_true(persist::is_writable(begin + 5, 1));
    assert_int_equal(mprotect(static_cast<char *>(pages) + 2 * page, page, PROT_READ), 0);
    assert_true(persist::is_writable(begin, 2 * page));
    assert_false(persist::is_writable(begin, 2 * page + 1));
    assert_false(persist::is_writable(begin + 2 * page, page));
    assert_int_equal(munmap(pages, 3 * page), 0);
}

// A write to one page of a file keeps the kernel from mapping the pages around it as one large page.
void a_question_whether_memory_is_writable_writes_nothing(void **) {
    utsname system;
    int major = 0;
    int minor = 0;
    assert_int_equal(uname(&system), 0);
    assert_int_equal(std::sscanf(system.release, "%d.%d", &major, &minor), 2);
    if (std::pair{major, minor} < std::pair{6, 11}) {
        print_message("Linux %s cannot be asked without a write\n", system.release);
        skip();
    }
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void *const pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    const auto begin = reinterpret_cast<std::uintptr_t>(pages);
    assert_true(persist::is_writable(begin, 2 * page));
    std::array<unsigned char, 2> resident{};
    assert_int_equal(mincore(pages, 2 * page, resident.data()), 0);
    assert_int_equal(resident[0] | resident[1], 0);
    assert_int_equal(munmap(pages, 2 * page), 0);
}

// The page in the middle of three is a file's.
void knows_which_memory_is_of_a_file(void **) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void *const pages = mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    const base::Fd file{memfd_create("page", MFD_CLOEXEC)};
    assert_int_equal(ftruncate(file.get(), static_cast<off_t>(page)), 0);
    void *const middle = static_cast<std::byte *>(pages) + page;
    assert_ptr_equal(mmap(middle, page, PROT_READ, MAP_SHARED | MAP_FIXED, file.get(), 0), middle);
    const auto begin = reinterpret_cast<std::uintptr_t>(pages);
    assert_false(persist::is_of_file(begin, page));
    assert_true(persist::is_of_file(begin, page + 1));
    assert_true(persist::is_of_file(begin + page, 1));
    assert_true(persist::is_of_file(begin + 2 * page - 1, 2));
    assert_false(persist::is_of_file(begin + 2 * page, page));
    assert_int_equal(munmap(pages, 3 * page), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(knows_dax),
                                cmocka_unit_test(knows_storage),
                                cmocka_unit_test(knows_what_is_lost),
                                cmocka_unit_test(needs_a_mount),
                                cmocka_unit_test(finds_the_range),
                                cmocka_unit_test(survives_any_text),
                                cmocka_unit_test(real_memory_without_a_file),
                                cmocka_unit_test(real_files),
                                cmocka_unit_test(real_file_for_reading),
                                cmocka_unit_test(real_neighbours),
                                cmocka_unit_test(knows_which_memory_is_of_a_file),
                                cmocka_unit_test(memory_that_may_only_be_read_is_not_writable),
                                cmocka_unit_test(a_question_whether_memory_is_writable_writes_nothing)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
