// SPDX-License-Identifier: BSD-3-Clause
// cli/store/store: what was committed is found again, in the memory that clients get, and one process has a
// store.
#include "cli/store/store.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "../../folder.hpp"
#include "bytes.hpp"
#include "cli/checksum.hpp"
#include "cli/protocol/blocks.hpp"

namespace {

using Owned = std::unique_ptr<cli::Store>;

std::string store_path() {
    return folder::path / "store";
}

Owned open_store(const cli::StoreOptions &options = {}) {
    auto store = cli::Store::open(store_path(), options);
    assert_true(store.has_value());
    return *std::move(store);
}

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span{text});
}

// Pushes as the server does, with room for the first half before its bytes come. Returns the sequence.
std::uint64_t push(cli::Store &store, const std::string &name, std::string_view text) {
    const auto upload = store.upload(name);
    assert_true(upload.has_value());
    const auto bytes = bytes_of(text);
    const std::size_t half = bytes.size() / 2;
    assert_true((*upload)->reserve(half).verdict == cli::Verdict::Done);
    for (const auto piece : {bytes.first(half), bytes.subspan(half)}) {
        const auto offset = static_cast<std::uint64_t>(piece.data() - bytes.data());
        const std::size_t first = piece.size() / 3;
        assert_true((*upload)->store(offset, piece.first(first), piece.subspan(first)).verdict ==
                    cli::Verdict::Done);
    }
    const cli::Request request{
        .ask = cli::Ask::Commit, .length = bytes.size(), .checksum = cli::crc32c(bytes)};
    assert_true((*upload)->commit(request, {}).verdict == cli::Verdict::Done);
    const std::uint64_t sequence = store.committed(**upload).sequence;
    (*upload)->retire();
    return sequence;
}

void assert_has(cli::Store &store, const std::string &name, std::uint64_t sequence, std::string_view text) {
    const auto download = store.download(name, sequence);
    assert_true(download.has_value());
    assert_int_equal(download->content.length, text.size());
    assert_true(std::ranges::equal(download->memory.bytes, bytes_of(text)));
}

const std::string first(10'000, 'a');
const std::string second(20'000, 'b');

void checksum_is_crc32c(void **) {
    const auto bytes = bytes_of("123456789");
    assert_int_equal(cli::crc32c(bytes), 0xe3069283);
    assert_int_equal(cli::crc32c({}), 0);
    cli::Crc32c in_pieces;
    in_pieces.update(bytes.first(4));
    in_pieces.update(bytes.subspan(4));
    assert_int_equal(in_pieces.value(), 0xe3069283);
}

void what_is_committed_is_found_again(void **) {
    for (const bool copies : {false, true}) {
        const Owned store = open_store();
        if (copies) {
            store->serve_copies();  // as behind a device of the kernel
        }
        const std::string name = copies ? "copied" : "mapped";
        assert_int_equal(push(*store, name, first), 1);
        assert_int_equal(push(*store, name, second), 2);
        assert_has(*store, name, 0, second);
        assert_has(*store, name, 1, first);
        assert_true(folder::read(folder::path / "store" / name / "2") == second);
    }
    const Owned store = open_store();
    assert_int_equal(store->names(), 2);
    assert_int_equal(store->used(), 2 * (first.size() + second.size()));
    assert_has(*store, "mapped", 0, second);
    assert_has(*store, "copied", 1, first);
}

void a_content_that_goes_stays_for_its_reader(void **) {
    const Owned store = open_store({.keep = 1, .max_bytes = 0});
    push(*store, "name", first);
    const auto reader = store->download("name", 0);
    assert_true(reader.has_value());
    push(*store, "name", second);
    assert_false(std::filesystem::exists(folder::path / "store/name/1"));
    assert_true(std::ranges::equal(reader->memory.bytes, bytes_of(first)));
    assert_int_equal(store->used(), second.size());
}

void one_opens_a_store(void **) {
    {
        const Owned store = open_store();
        assert_true(store->created());
        assert_fails(cli::Store::open(store_path(), {}), "already served");
    }
    assert_false(open_store()->created());
}

void only_a_created_store_is_discarded(void **) {
    open_store()->discard_created();
    assert_int_equal(folder::count(), 0);
    (void)open_store();
    open_store()->discard_created();
    assert_int_equal(folder::count(), 1);
    const Owned store = open_store();
    push(*store, "name", first);
    store->discard_created();
    assert_has(*store, "name", 0, first);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder::make, folder::remove)

// Pushes with a tag. Returns the answer to the tag, or else to the commit.
cli::Answer push_tagged(cli::Store &store, const cli::Tag &tag, std::string_view text) {
    const auto upload = store.upload("name");
    assert_true(upload.has_value());
    const auto bytes = bytes_of(text);
    const cli::Request request{
        .ask = cli::Ask::Commit, .length = bytes.size(), .checksum = cli::crc32c(bytes)};
    if (const auto answer = (*upload)->take_tag(tag, request); answer.verdict != cli::Verdict::Done) {
        return answer;
    }
    assert_true((*upload)->store(0, bytes, {}).verdict == cli::Verdict::Done);
    const auto answer = (*upload)->commit(request, {});
    assert_true(answer.verdict == cli::Verdict::Done);
    (void)store.committed(**upload);
    (*upload)->retire();
    return answer;
}

void the_newest_tag_stays(void **) {
    const cli::Tag tag{2, 5, 7};
    {
        const Owned store = open_store({.keep = 1});
        (void)push(*store, "name", second);  // a content from before has none
        assert_true(!store->newest_tag("name")->tag && !store->newest_tag("other")->tag);
        assert_true(push_tagged(*store, tag, first).verdict == cli::Verdict::Done);
    }
    const Owned store = open_store({.keep = 1});
    assert_true(store->newest_tag("name")->tag == tag && store->newest_tag("name")->sequence == 2);
    // Older ones are not needed, by whichever part they are older, and this one is there.
    for (const cli::Tag &older : {cli::Tag{2, 5, 6}, cli::Tag{2, 4, 9}, cli::Tag{1, 9, 9}}) {
        const auto answer = push_tagged(*store, older, second);
        assert_true(answer.verdict == cli::Verdict::Newer && answer.error == 0 && answer.sequence == 2);
    }
    const auto again = push_tagged(*store, tag, first);
    assert_true(again.verdict == cli::Verdict::Newer && again.error == EEXIST);
    assert_true(push_tagged(*store, tag, second).verdict == cli::Verdict::Different);
    assert_has(*store, "name", 0, first);
    // Neither a push without a tag nor a rollback commits after it.
    const auto upload = store->upload("name");
    assert_true((*upload)->newest_tag() == tag);
    assert_true((*upload)->commit({.ask = cli::Ask::Commit}, {}).verdict == cli::Verdict::NotDurable);
    assert_true((*upload)->roll_back(2).verdict == cli::Verdict::NotDurable);
    assert_true(push_tagged(*store, {2, 5, 8}, second).verdict == cli::Verdict::Done);
    assert_has(*store, "name", 0, second);
    // A content whose file is damaged comes again.
    assert_int_equal(truncate((store_path() + "/name/3").c_str(), 1), 0);
    assert_true(push_tagged(*store, {2, 5, 8}, second).verdict == cli::Verdict::Done);
    assert_has(*store, "name", 4, second);
}

// The tag of a content that cannot be read may have been the newest.
void a_tag_that_is_lost_is_not_forgotten(void **) {
    {
        const Owned store = open_store();
        assert_true(push_tagged(*store, {0, 1, 1}, first).verdict == cli::Verdict::Done);
        assert_true(push_tagged(*store, {0, 2, 1}, second).verdict == cli::Verdict::Done);
    }
    assert_int_equal(removexattr((store_path() + "/name/2").c_str(), "user.rpma"), 0);
    const Owned store = open_store({.keep = 1});
    const auto newest = store->newest_tag("name");
    assert_true(newest->is_lost && newest->tag == (cli::Tag{0, 1, 1}));
    // The next content with a tag has the newest one, also when it is the content that was lost.
    assert_true(push_tagged(*store, {0, 2, 1}, second).verdict == cli::Verdict::Done);
    assert_true(!store->newest_tag("name")->is_lost && store->newest_tag("name")->tag == (cli::Tag{0, 2, 1}));
    assert_has(*store, "name", 3, second);
}

// A push without a tag does not tell what there was.
void a_lost_tag_outlasts_pushes_without_one(void **) {
    {
        const Owned store = open_store();
        assert_true(push_tagged(*store, {0, 1, 1}, first).verdict == cli::Verdict::Done);
    }
    assert_int_equal(removexattr((store_path() + "/name/1").c_str(), "user.rpma"), 0);
    const Owned store = open_store({.keep = 1});
    push(*store, "name", first);
    push(*store, "name", second);
    assert_true(store->newest_tag("name")->is_lost && !store->newest_tag("name")->tag);
    assert_true(push_tagged(*store, {0, 2, 1}, first).verdict == cli::Verdict::Done);
    assert_false(store->newest_tag("name")->is_lost);
}

std::string content_of(std::size_t blocks) {
    std::string content;
    while (content.size() < blocks * cli::smallest_block) {
        content += std::to_string(content.size());
    }
    content.resize(blocks * cli::smallest_block);
    return content;
}

const std::string wanted = content_of(8);

// Begins a push of `wanted` that may go on. Returns what there is of it.
std::pair<std::unique_ptr<cli::Upload>, std::size_t> resumed(cli::Store &store, const std::string &name) {
    auto upload = store.upload(name);
    assert_true(upload.has_value());
    const std::string text = (*upload)->resume(wanted.size());
    const std::size_t there = text.empty() ? 0 : cli::decode_blocks(text)->length;
    assert_true((*upload)->reserve(wanted.size()).verdict == cli::Verdict::Done);
    return {*std::move(upload), there};
}

// Such a push is cut off after these bytes.
void cut_off(cli::Store &store, const std::string &name, std::string_view bytes) {
    const auto upload = resumed(store, name).first;
    assert_true(upload->store(0, bytes_of(bytes), {}).verdict == cli::Verdict::Done);
    upload->retire();
}

std::string partial_of(const std::string &name) {
    return store_path() + "/" + name + "/.partial";
}

// It would stay for ever, because only a commit removes it.
void what_is_left_makes_room_for_its_name(void **) {
    const Owned store = open_store({.keep = 1, .max_bytes = wanted.size() + cli::smallest_block});
    const auto leave = [&] {
        cut_off(*store, "name", content_of(2));
        assert_int_equal(store->used(), 2 * cli::smallest_block);
    };
    // It does not fit beside the content: all bytes come.
    leave();
    auto [upload, there] = resumed(*store, "name");
    assert_int_equal(there, 0);
    assert_int_equal(store->used(), wanted.size());
    upload->retire();
    upload.reset();
    // Nor beside that of a push that does not go on, whether it tells its length or not.
    leave();
    upload = *store->upload("name");
    assert_true(upload->reserve(wanted.size()).verdict == cli::Verdict::Done);
    upload.reset();
    assert_int_equal(store->used(), 0);
    leave();
    upload = *store->upload("name");
    assert_true(upload->store(0, bytes_of(wanted), {}).verdict == cli::Verdict::Done);
    upload.reset();
    assert_int_equal(store->used(), 0);
    // That of another name stays. Bytes that cannot follow are refused as such, so that others make no room
    // for them.
    leave();
    upload = *store->upload("other");
    assert_true(upload->reserve(wanted.size()).verdict == cli::Verdict::NoRoom);
    assert_true(upload->store(wanted.size(), bytes_of(wanted), {}).verdict == cli::Verdict::Different);
    upload.reset();
    // The store keeps what would not be enough for the next push that may go on.
    upload = *store->upload("name");
    assert_true(upload->reserve(wanted.size() + 2 * cli::smallest_block).verdict == cli::Verdict::NoRoom);
    upload.reset();
    assert_int_equal(store->used(), 2 * cli::smallest_block);
    // One block fits beside the content, and is used.
    cut_off(*store, "name", content_of(1));
    assert_int_equal(resumed(*store, "name").second, cli::smallest_block);
}

void what_is_left_and_damaged_goes(void **) {
    const Owned store = open_store();
    cut_off(*store, "name", content_of(4));
    auto [upload, there] = resumed(*store, "name");
    assert_int_equal(there, 4 * cli::smallest_block);
    // A power cut leaves zeros.
    assert_int_equal(truncate(partial_of("name").c_str(), cli::smallest_block + 1), 0);
    assert_int_equal(truncate(partial_of("name").c_str(), static_cast<off_t>(there)), 0);
    const auto bytes = bytes_of(wanted);
    assert_true(upload->store(there, bytes.subspan(there), {}).verdict == cli::Verdict::Different);
    assert_true(upload->store(bytes.size(), {}, {}).verdict == cli::Verdict::Different);
    upload->retire();
    upload.reset();
    // The next goes on behind the block that was good.
    auto [next, left] = resumed(*store, "name");
    assert_int_equal(left, cli::smallest_block);
    assert_true(next->store(left, bytes.subspan(left), {}).verdict == cli::Verdict::Done);
    const cli::Request request{
        .ask = cli::Ask::Commit, .length = bytes.size(), .checksum = cli::crc32c(bytes)};
    assert_true(next->commit(request, {}).verdict == cli::Verdict::Done);
    (void)store->committed(*next);
    next->retire();
    assert_has(*store, "name", 0, wanted);
    assert_false(std::filesystem::exists(partial_of("name")));
    assert_int_equal(store->used(), wanted.size());
}

// Also when its first block is another, so that none of it was used.
void less_than_is_left_is_not_left(void **) {
    const Owned store = open_store();
    cut_off(*store, "name", content_of(4));
    cut_off(*store, "name", std::string(cli::smallest_block, 'x'));
    assert_int_equal(std::filesystem::file_size(partial_of("name")), 4 * cli::smallest_block);
    cut_off(*store, "name", std::string(5 * cli::smallest_block, 'x'));
    assert_int_equal(std::filesystem::file_size(partial_of("name")), 5 * cli::smallest_block);
}

void what_is_left_has_a_name_that_counts(void **) {
    const Owned store = open_store({.max_names = 1});
    cut_off(*store, "name", content_of(1));
    assert_fails(store->upload("other"), "has 1 names, and takes no other");
    assert_int_equal(store->names(), 1);
    assert_int_equal(push(*store, "name", wanted), 1);
    assert_fails(store->upload("other"), "has 1 names, and takes no other");
}

void foreign_numbers_end_no_name(void **) {
    {
        const Owned store = open_store();
        push(*store, "name", first);
        push(*store, "last", first);
    }
    const std::filesystem::path path = store_path();
    std::filesystem::copy(path / "name/1", path / "name/18446744073709551615");
    std::filesystem::rename(path / "last/1", path / "last/9007199254740991");
    const Owned store = open_store();
    assert_int_equal(push(*store, "name", second), 2);
    assert_fails(store->upload("last"), "no sequence is left");
    // Somebody has put a file where the next content would be.
    std::filesystem::copy(path / "name/1", path / "name/3");
    const auto upload = store->upload("name");
    assert_true(upload.has_value());
    const cli::Request request{.ask = cli::Ask::Commit, .length = 0, .checksum = 0};
    assert_int_equal((*upload)->commit(request, {}).error, EEXIST);
    store->skip_sequence(**upload);
    assert_int_equal(push(*store, "name", first), 4);
    assert_has(*store, "name", 0, first);
}

// The file system may give the number of a file that somebody has deleted to the next one.
void a_deleted_content_shares_no_bytes(void **) {
    const Owned store = open_store({.keep = 1, .max_bytes = 1U << 20});
    push(*store, "name", first);
    std::filesystem::remove(folder::path / "store/name/1");
    push(*store, "name", second);
    assert_int_equal(store->used(), second.size());
    push(*store, "name", first);
    assert_int_equal(store->used(), first.size());
}

std::vector<std::string> faults_in(const std::string &path) {
    const base::Fd folder{open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    std::vector<std::string> faults;
    const auto found = [&](const cli::Listed &content) {
        if (!content.fault.empty()) {
            faults.push_back(content.name + ' ' + content.fault);
        }
    };
    assert_true(cli::check_contents(folder.get(), found, [](std::uint64_t) { return true; }).has_value());
    return faults;
}

// Wherever the folder has them.
void what_is_no_name_ends_no_check(void **) {
    const std::filesystem::path path = store_path();
    {
        const Owned store = open_store();
        for (const char *name : {"a", "b", "c", "d"}) {
            push(*store, name, first);
            std::filesystem::resize_file(path / name / "1", 5);
            folder::write(path / (std::string{"stray"} + name), "");
        }
        std::filesystem::create_symlink("a", path / "link");
    }
    assert_int_equal(faults_in(path).size(), 4);
    std::filesystem::create_directory(path / "again");
    folder::write(path / "again/.identity", "");
    const auto faults = faults_in(path);
    assert_int_equal(faults.size(), 5);
    assert_true(std::ranges::any_of(
        faults, [](const std::string &fault) { return fault.starts_with("again is a store of its own"); }));
}

void a_file_of_several_contents_counts_once(void **) {
    {
        const Owned store = open_store({.keep = 4});
        for (int i = 0; i < 4; ++i) {
            push(*store, "name", i % 2 == 0 ? first : second);
        }
        const auto upload = store->upload("name");
        assert_true((*upload)->roll_back(2).verdict == cli::Verdict::Done);
        (void)store->committed(**upload);
        (*upload)->retire();
        assert_has(*store, "name", 1, first);
        assert_int_equal(store->used(), 2 * (first.size() + second.size()));
    }
    const Owned store = open_store({.keep = 3});
    push(*store, "name", first);
    for (const std::uint64_t gone : {1UL, 3UL}) {
        assert_fails(store->download("name", gone), "has no content");
    }
    for (const std::uint64_t sequence : {2UL, 4UL, 5UL}) {
        assert_has(*store, "name", sequence, second);
    }
    assert_has(*store, "name", 6, first);
    assert_int_equal(store->used(), 2 * second.size() + first.size());
    assert_false(std::filesystem::exists(folder::path / "store/name/1"));
}

// Lets this process open so many more files while it calls this, which asserts nothing.
template <typename Call>
void with_files_left(int files, const Call &call) {
    rlimit usual{};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    std::vector<base::Fd> free;
    for (int i = 0; i <= files; ++i) {
        free.emplace_back(dup(STDIN_FILENO));
    }
    const rlimit few{static_cast<rlim_t>(free.back().get()), usual.rlim_max};
    free.clear();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    call();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
}

// They say nothing of a content: none is told as damaged, removed first, or not served any more.
void limits_of_the_process_damage_nothing(void **) {
    const Owned store = open_store({.keep = 2});
    push(*store, "name", first);
    push(*store, "name", second);
    cli::Health health;
    cli::Outcome<cli::Download> refused;
    with_files_left(0, [&] {
        store->tell(health);
        refused = store->download("name", 0);
    });
    assert_true(health.reasons.empty());
    assert_fails(refused, "limit of this process");
    bool checks = false;
    with_files_left(2, [&] {  // a check needs a third one for a content
        checks = store->start_check().has_value();
        while (checks && store->checks() == 0) {
        }
    });
    assert_true(checks);
    push(*store, "name", first);
    assert_has(*store, "name", 2, second);
    assert_has(*store, "name", 3, first);
    assert_fails(store->download("name", 1), "has no content");
}

// A folder of mail has files with numbers too. A content that has lost its note looks like one of these.
void a_file_without_a_note_stays(void **) {
    const std::filesystem::path path = store_path();
    {
        const Owned store = open_store();
        push(*store, "name", first);
        push(*store, "name", second);
    }
    assert_int_equal(removexattr((path / "name/2").c_str(), "user.rpma"), 0);
    folder::write(path / "name/3", "a mail");
    const Owned store = open_store({.keep = 2});
    for (std::uint64_t sequence = 4; sequence < 7; ++sequence) {
        assert_int_equal(push(*store, "name", first), sequence);
    }
    assert_true(folder::read(path / "name/2") == second && folder::read(path / "name/3") == "a mail");
    assert_fails(store->download("name", 2), "has no note");
    assert_fails(store->download("name", 4), "has no content");
    assert_has(*store, "name", 5, first);
    assert_has(*store, "name", 6, first);
    assert_int_equal(store->used(), 2 * first.size());
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(checksum_is_crc32c),
                                IN_FOLDER(foreign_numbers_end_no_name),
                                IN_FOLDER(what_is_no_name_ends_no_check),
                                IN_FOLDER(a_file_without_a_note_stays),
                                IN_FOLDER(limits_of_the_process_damage_nothing),
                                IN_FOLDER(a_deleted_content_shares_no_bytes),
                                IN_FOLDER(a_file_of_several_contents_counts_once),
                                IN_FOLDER(what_is_committed_is_found_again),
                                IN_FOLDER(a_content_that_goes_stays_for_its_reader),
                                IN_FOLDER(one_opens_a_store),
                                IN_FOLDER(only_a_created_store_is_discarded),
                                IN_FOLDER(the_newest_tag_stays),
                                IN_FOLDER(a_tag_that_is_lost_is_not_forgotten),
                                IN_FOLDER(a_lost_tag_outlasts_pushes_without_one),
                                IN_FOLDER(what_is_left_makes_room_for_its_name),
                                IN_FOLDER(what_is_left_and_damaged_goes),
                                IN_FOLDER(less_than_is_left_is_not_left),
                                IN_FOLDER(what_is_left_has_a_name_that_counts)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
