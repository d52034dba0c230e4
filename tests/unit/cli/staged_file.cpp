// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/staged_file: a name appears only with a whole file, and nothing else is left.
#include "cli/transfer/staged_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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
    const auto path = folder::path / "file";
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
        IN_FOLDER(a_file_has_no_name_until_publish), IN_FOLDER(a_new_name_appears_at_publish),
        IN_FOLDER(an_abandoned_file_leaves_nothing), IN_FOLDER(an_existing_file_is_replaced),
        IN_FOLDER(a_symbolic_link_is_followed),      IN_FOLDER(bad_paths_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
