// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/source: a file that changes while it is pushed is found.
#include "cli/transfer/source.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <array>
#include <string>

#include "../../folder.hpp"
#include "base/fd.hpp"
#include "bytes.hpp"

namespace {

// The page is dirty already, so that the kernel sees no store in it until storage has it. The times are set
// back, because a change within a tick of the kernel's clock is none.
void a_store_in_a_mapping_is_a_change(void **) {
    const auto path = folder::path / "file";
    folder::write(path, std::string(4096, 'x'));
    const base::Fd file{open(path.c_str(), O_RDWR | O_CLOEXEC)};
    struct statfs where{};
    assert_int_equal(fstatfs(file.get(), &where), 0);
    if (where.f_type == TMPFS_MAGIC) {
        skip();
    }
    void *const place = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    assert_ptr_not_equal(place, MAP_FAILED);
    auto *const first = static_cast<volatile char *>(place);
    *first = 'a';
    constexpr std::array<timespec, 2> long_ago{timespec{.tv_sec = 1, .tv_nsec = 0},
                                               timespec{.tv_sec = 1, .tv_nsec = 0}};
    assert_int_equal(futimens(file.get(), long_ago.data()), 0);
    const auto source = cli::Source::open(path);
    assert_true(source.has_value());
    assert_true(source->check_unchanged(4096).has_value());
    *first = 'b';
    assert_false(source->check_unchanged(4096).has_value());
    munmap(place, 4096);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_store_in_a_mapping_is_a_change, folder::make, folder::remove)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
