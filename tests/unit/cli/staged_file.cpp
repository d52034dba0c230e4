// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/staged_file: a name appears only with a whole file, and nothing else is left.
#include "cli/transfer/staged_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <string>

#include "../../folder.hpp"
#include "bytes.hpp"

namespace {

using cli::StagedFile;

constexpr auto both = {StagedFile::Until::Unnamed, StagedFile::Until::Hidden};

// Not even a process that is killed leaves a file. It may leave one on a file system
// that has no files without a name.
void a_file_has_no_name_until_publish(void **) {
    const auto path = folder::path / "file";
    const int descriptor = open(folder::path.c_str(), O_TMPFILE | O_RDWR, 0600);
    if (descriptor < 0) {
        skip();
    }
    close(descriptor);
    auto file = StagedFile::create(path, 0640);
    assert_true(file.has_value());
    assert_int_equal(folder::count(), 0);
    assert_true(file->publish().has_value());
    assert_int_equal(folder::count(), 1);
    struct stat status{};
    assert_int_equal(stat(path.c_str(), &status), 0);
    assert_int_equal(status.st_mode & 0777 & ~0640U, 0);
}

void a_new_name_appears_at_publish(void **) {
    const auto path = folder::path / std::string(NAME_MAX, 'f');  // as long as a name may be
    for (const auto until : both) {
        std::filesystem::remove(path);
        auto file = StagedFile::create(path, 0640, until);
        assert_true(file.has_value());
        assert_int_equal(write(file->fd(), "new", 3), 3);
        assert_false(std::filesystem::exists(path));
        assert_true(file->publish().has_value());
        assert_string_equal(folder::read(path).c_str(), "new");
    }
    assert_int_equal(folder::count(), 1);
}

void an_abandoned_file_leaves_nothing(void **) {
    const auto path = folder::path / "file";
    folder::write(path, "old");
    for (const auto until : both) {
        auto file = StagedFile::create(path, 0640, until);
        assert_int_equal(write(file->fd(), "new", 3), 3);
    }
    assert_string_equal(folder::read(path).c_str(), "old");
    assert_int_equal(folder::count(), 1);
}

void an_existing_file_is_replaced(void **) {
    const auto path = folder::path / "file";
    for (const auto until : both) {
        folder::write(path, "old");
        auto file = StagedFile::create(path, 0640, until);
        assert_int_equal(write(file->fd(), "new", 3), 3);
        assert_true(file->publish().has_value());
        assert_string_equal(folder::read(path).c_str(), "new");
    }
    assert_int_equal(folder::count(), 1);
}

void a_symbolic_link_is_followed(void **) {
    const auto path = folder::path / "file";
    folder::write(path, "old");
    std::filesystem::create_symlink("file", folder::path / "link");
    auto file = StagedFile::create(folder::path / "link", 0640);
    assert_int_equal(write(file->fd(), "new", 3), 3);
    assert_true(file->publish().has_value());
    assert_string_equal(folder::read(path).c_str(), "new");
    assert_true(std::filesystem::is_symlink(folder::path / "link"));
}

void a_link_to_no_file_makes_that_file(void **) {
    std::filesystem::create_directory(folder::path / "below");
    std::filesystem::create_symlink("below/next", folder::path / "link");
    std::filesystem::create_symlink("../file", folder::path / "below" / "next");
    auto file = StagedFile::create(folder::path / "link", 0640);
    assert_int_equal(write(file->fd(), "new", 3), 3);
    assert_true(file->publish().has_value());
    assert_string_equal(folder::read(folder::path / "file").c_str(), "new");
    assert_true(std::filesystem::is_symlink(folder::path / "link"));
    std::filesystem::create_symlink("circle", folder::path / "circle");
    assert_fails(StagedFile::create(folder::path / "circle", 0640), "Too many levels");
}

// In a folder such as /tmp another user's link would have this user replace a file of his own.
void a_link_of_another_user_is_not_followed_where_all_may_make_one(void **) {
    constexpr uid_t other = 65534;
    const auto file = folder::path / "file";
    const auto link = folder::path / "link";
    folder::write(file, "old");
    std::filesystem::create_symlink("file", link);
    assert_int_equal(chmod(folder::path.c_str(), 01777), 0);
    assert_true(StagedFile::create(link, 0640).has_value());
    if (lchown(link.c_str(), other, other) != 0) {
        skip();  // only root can
    }
    std::filesystem::create_symlink("link", folder::path / "own");
    for (const char *const name : {"link", "own"}) {
        assert_fails(StagedFile::create(folder::path / name, 0640), "is a symbolic link of user 65534");
    }
    assert_int_equal(chmod(folder::path.c_str(), 0777), 0);
    assert_true(StagedFile::create(link, 0640).has_value());
    assert_int_equal(chown(folder::path.c_str(), other, other), 0);
    assert_int_equal(chmod(folder::path.c_str(), 01777), 0);
    assert_true(StagedFile::create(link, 0640).has_value());
}

void bad_paths_are_refused(void **) {
    assert_fails(StagedFile::create(folder::path / "none" / "file", 0640), "No such file");
    assert_fails(StagedFile::create(folder::path / "", 0640), "name of a file");
    assert_fails(StagedFile::create("", 0640), "name of a file");
    auto file = StagedFile::create(folder::path / "file", 0640);
    std::filesystem::create_directory(folder::path / "file");
    assert_fails(file->publish(), "cannot create");
}

}  // namespace

int main() {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder::make, folder::remove)
    const CMUnitTest tests[] = {
        IN_FOLDER(a_file_has_no_name_until_publish),
        IN_FOLDER(a_new_name_appears_at_publish),
        IN_FOLDER(an_abandoned_file_leaves_nothing),
        IN_FOLDER(an_existing_file_is_replaced),
        IN_FOLDER(a_symbolic_link_is_followed),
        IN_FOLDER(a_link_to_no_file_makes_that_file),
        IN_FOLDER(a_link_of_another_user_is_not_followed_where_all_may_make_one),
        IN_FOLDER(bad_paths_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
