// SPDX-License-Identifier: BSD-3-Clause
// cli/pool: a pool file is created whole, opened by one, and refused when it is not what was asked for.
#include "cli/pool.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

#include "../../folder.hpp"
#include "bytes.hpp"

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

// Pushes as the server does, with the content's bytes in the slot.
cli::Content commit(const cli::Pool &pool, cli::Content content, std::string_view bytes) {
    std::ranges::copy(std::as_bytes(std::span{bytes}), pool.slot(content.slot).begin());
    content.length = bytes.size();
    assert_int_equal(pool.store(content.slot, 0, bytes.size()), 0);
    assert_int_equal(pool.checksum(content.slot, bytes.size(), content.checksum), 0);
    assert_int_equal(pool.store_header(content), 0);
    assert_int_equal(pool.store_word(content), 0);
    return content;
}

void a_new_pool_is_empty_and_allocated(void **) {
    const auto pool = cli::Pool::open(pool_path(), capacity);
    assert_true(pool.has_value());
    assert_true(pool->created());
    assert_false(pool->content().has_value());
    for (unsigned slot = 0; slot < 2; ++slot) {
        assert_int_equal(pool->slot(slot).size(), cli::Layout{capacity}.content_pages());
        assert_true(
            std::ranges::all_of(pool->slot(slot), [](std::byte byte) { return byte == std::byte{0}; }));
    }
    assert_int_equal(std::filesystem::file_size(pool_path()), cli::Layout{capacity}.file_size());
    assert_int_equal(folder::count(), 1);
}

void what_is_committed_is_found_again(void **) {
    {
        const auto pool = cli::Pool::open(pool_path(), capacity);
        const auto first = commit(*pool, cli::next_content(pool->content()), "first");
        commit(*pool, cli::next_content(first), "second");
    }
    const auto pool = cli::Pool::open(pool_path(), capacity);
    assert_true(pool.has_value());
    assert_false(pool->created());
    assert_int_equal(pool->content()->sequence, 2);
    assert_int_equal(pool->content()->slot, 1);
    assert_int_equal(pool->content()->length, 6);
    assert_memory_equal(pool->slot(1).data(), "second", 6);
    std::uint32_t checksum = 0;
    assert_int_equal(pool->checksum(1, 6, checksum), 0);
    assert_int_equal(checksum, pool->content()->checksum);
}

void a_copy_is_in_the_file_once_it_is_stored(void **) {
    auto pool = cli::Pool::open(pool_path(), capacity);
    const auto first = commit(*pool, cli::next_content(pool->content()), "before");
    assert_false(pool->is_copied());
    assert_true(pool->serve_copy().has_value());
    assert_true(pool->is_copied());
    assert_int_equal(pool->slot(0).size(), cli::Layout{capacity}.content_pages());
    assert_memory_equal(pool->slot(0).data(), "before", 6);
    // Bytes that are in the copy only are no part of the content.
    std::ranges::copy(std::as_bytes(std::span{"behind", 6}), pool->slot(1).begin() + 5000);
    std::uint32_t checksum = 0;
    assert_int_equal(pool->checksum(1, capacity, checksum), ESTALE);
    assert_int_equal(pool->store(1, 4999, 100), 0);
    assert_int_equal(pool->checksum(1, capacity, checksum), 0);
    commit(*pool, cli::next_content(first), "second");
    const auto bytes = folder::read(pool_path());
    assert_string_equal(bytes.substr(cli::Layout{capacity}.content(1) + 5000, 6).c_str(), "behind");
    pool = std::unexpected{cli::Failure{}};  // closed
    assert_int_equal(cli::Pool::open(pool_path(), capacity)->content()->sequence, 2);
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
    assert_fails(refused, "was created with --size 10000; you gave 10001");
    assert_fails(cli::Pool::open(pool_path(), 3 << 20), "--size 10000; you gave 3M");
    assert_int_equal(cli::Pool::open(pool_path(), std::nullopt)->layout().capacity, capacity);
    assert_fails(cli::Pool::open(folder::path / "absent", std::nullopt), "does not exist (expected --size");
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
    std::uint32_t checksum = 0;
    assert_int_equal(pool->checksum(0, 1, checksum), ENODATA);
    assert_non_null(std::strstr(pool->fault().c_str(), "is truncated: it has 4096 bytes"));
}

// The pool looks for its file by name, because bytes in a deleted file are gone with the server.
void a_pool_that_was_deleted_is_found_out(void **) {
    const auto pool = cli::Pool::open(pool_path(), capacity);
    std::filesystem::rename(pool_path(), folder::path / "elsewhere");
    assert_string_equal(pool->fault().c_str(), "");
    std::filesystem::remove(folder::path / "elsewhere");
    assert_non_null(std::strstr(pool->fault().c_str(), "was deleted"));
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
        IN_FOLDER(what_is_committed_is_found_again),
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
