// SPDX-License-Identifier: BSD-3-Clause
// cli/pool: a pool file is created whole, opened by one, and refused when it is not what was asked for.
#include "cli/pool.hpp"

#include <algorithm>
#include <string>

#include "bytes.hpp"
#include "folder.hpp"

namespace {

constexpr std::uint64_t capacity = 10'000;

std::string pool_path() {
    return folder::path / "pool";
}

void create_pool() {
    assert_true(cli::Pool::open(pool_path(), capacity).has_value());
}

// Overwrites bytes of the file.
void patch(std::uint64_t offset, std::string_view bytes) {
    std::fstream file{pool_path(), std::ios::binary | std::ios::in | std::ios::out};
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
}

void a_new_pool_is_empty_and_allocated(void **) {
    const auto pool = cli::Pool::open(pool_path(), capacity);
    assert_true(pool.has_value());
    assert_true(pool->created());
    assert_int_equal(pool->region().size(), cli::Layout{capacity}.region_size());
    assert_false(pool->content().value().has_value());
    assert_true(std::ranges::all_of(pool->region(), [](std::byte byte) { return byte == std::byte{0}; }));
    assert_int_equal(std::filesystem::file_size(pool_path()), cli::Layout{capacity}.file_size());
    assert_int_equal(folder::count(), 1);
}

void what_is_written_is_found_again(void **) {
    const cli::Content content{.sequence = 3, .slot = 1, .length = 5, .checksum = 9};
    {
        const auto pool = cli::Pool::open(pool_path(), capacity);
        const auto region = pool->region();
        std::ranges::copy(content.header(),
                          region.begin() + static_cast<std::ptrdiff_t>(cli::Layout::header(1)));
        std::ranges::copy(content.word(), region.begin());
        assert_true(pool->make_commit_durable().has_value());
        assert_int_equal(pool->content().value().value().sequence, 3);
    }
    const auto pool = cli::Pool::open(pool_path(), capacity);
    assert_true(pool.has_value());
    assert_false(pool->created());
    assert_int_equal(pool->content().value().value().length, 5);
}

void a_copy_is_in_the_file_once_it_is_stored(void **) {
    const cli::Content content{.sequence = 4, .slot = 0, .length = 5, .checksum = 9};
    auto pool = cli::Pool::open(pool_path(), capacity);
    std::ranges::copy(std::as_bytes(std::span{"before", 6}), pool->region().begin() + 20'000);
    assert_false(pool->is_copied());
    assert_true(pool->serve_copy().has_value());
    assert_true(pool->is_copied());
    const auto region = pool->region();
    assert_int_equal(region.size(), cli::Layout{capacity}.region_size());
    assert_memory_equal(region.data() + 20'000, "before", 6);
    std::ranges::copy(content.header(), region.begin() + static_cast<std::ptrdiff_t>(cli::Layout::header(0)));
    std::ranges::copy(content.word(), region.begin());
    assert_false(pool->content().value().has_value());
    assert_true(pool->store(cli::Layout::header(0), sizeof(cli::SlotHeader)).has_value());
    assert_false(pool->content().value().has_value());
    assert_true(pool->make_commit_durable().has_value());
    assert_int_equal(pool->content().value().value().sequence, 4);
    assert_true(pool->store(region.size(), 0).has_value());
    assert_fails(pool->store(region.size(), 1), "a range within");
    assert_fails(pool->store(1, region.size()), "a range within");
    assert_fails(pool->store(UINT64_MAX, 2), "a range within");
}

void one_opens_a_pool(void **) {
    {
        const auto pool = cli::Pool::open(pool_path(), capacity);
        assert_fails(cli::Pool::open(pool_path(), capacity), "already served");
    }
    assert_true(cli::Pool::open(pool_path(), capacity).has_value());
}

void another_capacity_is_refused(void **) {
    create_pool();
    const auto refused = cli::Pool::open(pool_path(), capacity + 1);
    assert_fails(refused, "up to 10000 bytes");
    assert_fails(refused, "--size 10001");
    assert_fails(cli::Pool::open(folder::path / "huge", cli::largest_capacity + 1), "too large");
}

void foreign_files_are_refused_and_untouched(void **) {
    for (const std::string &bytes : {std::string{}, std::string{"RPMAPOO"}, std::string(100'000, 'x')}) {
        folder::write(pool_path(), bytes);
        assert_fails(cli::Pool::open(pool_path(), capacity), "not an rpma pool");
        assert_true(folder::read(pool_path()) == bytes);
    }
    assert_fails(cli::Pool::open(folder::path, capacity), "directory");
    assert_fails(cli::Pool::open("/dev/null", capacity), "regular file");
}

void damaged_pools_are_refused(void **) {
    const auto refused = [](auto damage, std::string_view text) {
        std::filesystem::remove(pool_path());
        create_pool();
        damage();
        assert_fails(cli::Pool::open(pool_path(), capacity), text);
    };
    refused([] { std::filesystem::resize_file(pool_path(), 4096); }, "truncated");
    refused([] { std::filesystem::resize_file(pool_path(), cli::Layout{capacity}.file_size() - 1); },
            "truncated");
    refused([] { std::filesystem::resize_file(pool_path(), cli::Layout{capacity}.file_size() + 1); },
            "damaged");
    refused([] { patch(8, "\2"); }, "version 2");
    refused([] { patch(16, "\1"); }, "damaged superblock");
    refused([] { patch(4096, "\7"); }, "slot 1 is damaged");
}

void a_pool_that_shrinks_is_an_error_not_a_crash(void **) {
    const auto pool = cli::Pool::open(pool_path(), capacity);
    std::filesystem::resize_file(pool_path(), 4096);
    assert_fails(pool->content(), "truncated");
    assert_fails(pool->check(), "truncated");
}

// By its name: what is written to a deleted file is gone with the server.
void a_pool_that_was_deleted_is_found_out(void **) {
    const auto pool = cli::Pool::open(pool_path(), capacity);
    std::filesystem::rename(pool_path(), folder::path / "elsewhere");
    assert_true(pool->check().has_value());
    std::filesystem::remove(folder::path / "elsewhere");
    assert_fails(pool->check(), "was deleted");
}

void only_a_created_pool_is_discarded(void **) {
    create_pool();
    cli::Pool::open(pool_path(), capacity)->discard_created();
    assert_true(std::filesystem::exists(pool_path()));
    std::filesystem::remove(pool_path());
    cli::Pool::open(pool_path(), capacity)->discard_created();
    assert_int_equal(folder::count(), 0);
}

}  // namespace

int main() {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder::make, folder::remove)
    const CMUnitTest tests[] = {
        IN_FOLDER(a_new_pool_is_empty_and_allocated),
        IN_FOLDER(what_is_written_is_found_again),
        IN_FOLDER(a_copy_is_in_the_file_once_it_is_stored),
        IN_FOLDER(one_opens_a_pool),
        IN_FOLDER(another_capacity_is_refused),
        IN_FOLDER(foreign_files_are_refused_and_untouched),
        IN_FOLDER(damaged_pools_are_refused),
        IN_FOLDER(a_pool_that_shrinks_is_an_error_not_a_crash),
        IN_FOLDER(a_pool_that_was_deleted_is_found_out),
        IN_FOLDER(only_a_created_pool_is_discarded),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
