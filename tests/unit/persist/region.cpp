// SPDX-License-Identifier: BSD-3-Clause
// persist/region: tests which memory can be durable, how it becomes durable, and memory that vanishes.
#include "persist/region.hpp"

#include <errno.h>
#include <libpmem2.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <thread>

#include "base/log.hpp"
#include "memory.hpp"

namespace {

using persist::Region;
using persist::WriteBack;

// This is the log of the test so far.
std::string logged;

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is librpma's log function.
__attribute__((format(printf, 5, 6))) void keep_log(int, const char *, int, const char *, const char *format,
                                                    ...) {
    va_list arguments;
    va_start(arguments, format);
    char text[1024];
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    logged += text;
}

int forget_log(void **) {
    logged.clear();
    base::set_log_sink(keep_log);
    return 0;
}

// Returns a region of memory that the room treats as DAX, which this machine need not have.
std::unique_ptr<Region> as_dax(char *memory, size_t size) {
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    auto region = Region::open_as(memory, size, {{begin, begin + size, WriteBack::CacheLines, "is DAX"}});
    assert_true(region.has_value());
    return std::move(*region);
}

int error_of(const base::Result<void> &result) {
    return result ? 0 : result.error().number;
}

void persists_a_file(void **) {
    if (!on_storage()) {
        skip();
    }
    const int fd = new_file("region", 4 * page);
    char *const memory = map(fd, 4 * page);
    {
        const auto region = Region::open(memory + 100, 3 * page);
        assert_true(region.has_value());
        assert_non_null((*region)->worker());
        memset(memory + 100, 'x', 3 * page);
        assert_int_equal(error_of((*region)->persist(memory + 100, 3 * page)), 0);
        assert_int_equal(error_of((*region)->persist(memory + page - 1, 2)), 0);
        assert_int_equal(error_of((*region)->persist(memory + 100 + 3 * page, 0)), 0);
        // The ranges are outside, by a byte and by wrapping round.
        assert_int_equal(error_of((*region)->persist(memory + 99, 1)), EINVAL);
        assert_int_equal(error_of((*region)->persist(memory + 100, 3 * page + 1)), EINVAL);
        assert_int_equal(error_of((*region)->persist(memory + 200, SIZE_MAX - 50)), EINVAL);
        // A mistake of the caller leaves the region usable.
        assert_int_equal(error_of((*region)->persist(memory + 100, 1)), 0);
    }
    munmap(memory, 4 * page);
    close(fd);
    unlink("region");
}

void refuses_what_cannot_be_durable(void **) {
    char *const memory = map_anonymous(page);
    const auto region = Region::open(memory, page);
    assert_false(region.has_value());
    assert_int_equal(region.error().number, EOPNOTSUPP);
    assert_non_null(strstr(logged.c_str(), "anonymous memory; map a file"));
    munmap(memory, page);

    logged.clear();
    const auto gone = Region::open(memory, page);
    assert_false(gone.has_value());
    assert_int_equal(gone.error().number, EFAULT);
    assert_non_null(strstr(logged.c_str(), "not all of it is mapped"));
}

void refuses_one_bad_part_of_two(void **) {
    if (!on_storage()) {
        skip();
    }
    char *const memory = map_anonymous(2 * page);
    const int fd = new_file("region-part", page);
    assert_ptr_equal(mmap(memory, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), memory);
    assert_true(Region::open(memory, page).has_value());
    assert_int_equal(Region::open(memory, page + 1).error().number, EOPNOTSUPP);
    munmap(memory, 2 * page);
    close(fd);
    unlink("region-part");
}

void persists_two_files_under_one_range(void **) {
    if (!on_storage()) {
        skip();
    }
    char *const memory = map_anonymous(2 * page);
    const int first = new_file("region-first", page);
    const int second = new_file("region-second", page);
    assert_ptr_equal(mmap(memory, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, first, 0), memory);
    assert_ptr_equal(mmap(memory + page, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, second, 0),
                     memory + page);
    {
        const auto region = Region::open(memory, 2 * page);
        assert_true(region.has_value());
        memory[page - 1] = memory[page] = 'x';
        assert_int_equal(error_of((*region)->persist(memory + page - 1, 2)), 0);
        // Only the part that the caller asks for counts.
        assert_int_equal(ftruncate(second, 0), 0);
        assert_int_equal(error_of((*region)->persist(memory, page)), 0);
        assert_int_equal(error_of((*region)->persist(memory + page - 1, 2)), EFAULT);
    }
    munmap(memory, 2 * page);
    close(first);
    close(second);
    unlink("region-first");
    unlink("region-second");
}

void reports_a_truncated_file(void **) {
    if (!on_storage()) {
        skip();
    }
    const int fd = new_file("region-truncated", 2 * page);
    char *const memory = map(fd, 2 * page);
    {
        const auto region = Region::open(memory, 2 * page);
        assert_true(region.has_value());
        memory[page] = 'x';
        assert_int_equal(ftruncate(fd, page), 0);
        assert_int_equal(error_of((*region)->persist(memory, page)), 0);
        assert_int_equal(error_of((*region)->persist(memory, 2 * page)), EFAULT);
        assert_non_null(strstr(logged.c_str(), "region-truncated"));
        // The region stays broken, because lost bytes do not come back.
        assert_int_equal(ftruncate(fd, 2 * page), 0);
        assert_int_equal(error_of((*region)->persist(memory, 1)), EFAULT);
    }
    munmap(memory, 2 * page);
    close(fd);
    unlink("region-truncated");
}

void reports_unmapped_pages(void **) {
    if (!on_storage()) {
        skip();
    }
    const int fd = new_file("region-unmapped", page);
    char *const memory = map(fd, page);
    {
        const auto region = Region::open(memory, page);
        assert_true(region.has_value());
        munmap(memory, page);
        VALGRIND_DISABLE_ERROR_REPORTING;
        assert_int_equal(error_of((*region)->persist(memory, 8)), ENOMEM);
        VALGRIND_ENABLE_ERROR_REPORTING;
    }
    close(fd);
    unlink("region-unmapped");
}

void flushes_cache_lines(void **) {
    char *const memory = map_anonymous(16 * page, MAP_SHARED);
    {
        const auto region = as_dax(memory, 16 * page);
        assert_null(region->worker());
        memset(memory, 'x', 16 * page);
        assert_int_equal(error_of(region->persist(memory, 16 * page)), 0);
        assert_int_equal(error_of(region->persist(memory + 61, 8)), 0);
        // Regions may overlap, and libpmem2 refuses that of its maps.
        const auto inner = as_dax(memory + page, page);
        const auto across = as_dax(memory + page + 8, 2 * page);
        assert_int_equal(error_of(inner->persist(memory + page, page)), 0);
        assert_int_equal(error_of(across->persist(memory + page + 8, 2 * page)), 0);
        std::thread other{[&region, memory] {
            for (int round = 0; round < 1000; ++round) {
                assert_int_equal(error_of(region->persist(memory, 64)), 0);
            }
        }};
        for (int round = 0; round < 1000; ++round) {
            assert_int_equal(error_of(region->persist(memory, 64)), 0);
        }
        other.join();
    }
    munmap(memory, 16 * page);
}

// The program may have mapped its pool through libpmem2 itself.
void lives_beside_libpmem2(void **) {
    const int fd = new_file("region-pmem2", 16 * page);
    pmem2_config *config = nullptr;
    pmem2_source *source = nullptr;
    pmem2_map *programs_map = nullptr;
    assert_int_equal(pmem2_config_new(&config), 0);
    assert_int_equal(pmem2_source_from_fd(&source, fd), 0);
    assert_int_equal(pmem2_config_set_required_store_granularity(config, PMEM2_GRANULARITY_PAGE), 0);
    assert_int_equal(pmem2_map_new(&programs_map, config, source), 0);
    char *const memory = static_cast<char *>(pmem2_map_get_address(programs_map));
    {
        const auto region = as_dax(memory, page);
        memory[0] = 'x';
        assert_int_equal(error_of(region->persist(memory, 1)), 0);
    }
    assert_int_equal(pmem2_map_delete(&programs_map), 0);
    pmem2_source_delete(&source);
    pmem2_config_delete(&config);
    close(fd);
    unlink("region-pmem2");
}

void reports_cache_lines_that_vanished(void **) {
    const int fd = new_file("region-lines", 2 * page);
    char *const memory = map(fd, 2 * page);
    {
        const auto truncated = as_dax(memory, 2 * page);
        assert_int_equal(ftruncate(fd, page), 0);
        assert_int_equal(error_of(truncated->persist(memory, page)), 0);
        VALGRIND_DISABLE_ERROR_REPORTING;
        assert_int_equal(error_of(truncated->persist(memory, 2 * page)), EFAULT);
        const auto unmapped = as_dax(memory, page);
        munmap(memory, 2 * page);
        assert_int_equal(error_of(unmapped->persist(memory, 8)), EFAULT);
        VALGRIND_ENABLE_ERROR_REPORTING;
    }
    close(fd);
    unlink("region-lines");
}

// A region that waits for a slow device does not delay regions of another device, or of none.
void waits_for_its_own_device(void **) {
    char *const memory = map_anonymous(2 * page);
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    const auto on = [&](persist::DeviceNumber device, size_t at) {
        return *Region::open_as(
            memory + at, page,
            {{begin + at, begin + at + page, WriteBack::PageCache, "", {.device = device, .inode = 1}}});
    };
    assert_ptr_equal(on(1, 0)->worker(), &persist::Worker::of(1));
    assert_ptr_equal(on(1, page)->worker(), on(1, 0)->worker());
    assert_ptr_not_equal(on(2, 0)->worker(), on(1, 0)->worker());
    munmap(memory, 2 * page);
}

void takes_an_empty_range(void **) {
    char byte = 0;
    const auto region = Region::open_as(&byte, 0, {});
    assert_true(region.has_value());
    assert_null((*region)->worker());
    assert_int_equal(error_of((*region)->persist(&byte, 0)), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test_setup(persists_a_file, forget_log),
                                cmocka_unit_test_setup(refuses_what_cannot_be_durable, forget_log),
                                cmocka_unit_test_setup(refuses_one_bad_part_of_two, forget_log),
                                cmocka_unit_test_setup(persists_two_files_under_one_range, forget_log),
                                cmocka_unit_test_setup(reports_a_truncated_file, forget_log),
                                cmocka_unit_test_setup(reports_unmapped_pages, forget_log),
                                cmocka_unit_test_setup(flushes_cache_lines, forget_log),
                                cmocka_unit_test_setup(lives_beside_libpmem2, forget_log),
                                cmocka_unit_test_setup(reports_cache_lines_that_vanished, forget_log),
                                cmocka_unit_test_setup(waits_for_its_own_device, forget_log),
                                cmocka_unit_test_setup(takes_an_empty_range, forget_log)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
