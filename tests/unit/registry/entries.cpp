// SPDX-License-Identifier: BSD-3-Clause
// registry: tests what other processes see of a process's rsockets, whatever happens to the process and its
// files.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "../../child.hpp"
#include "../base/logged.hpp"
#include "base/fd.hpp"
#include "memory_folder.hpp"
// Last: it has macros with everyday names.
#include "../base/check.hpp"

static bool has_no_memory = false;

// In place of the C library's, whose needs memory.
extern "C" DIR *fdopendir(int fd) {
    if (has_no_memory) {
        errno = ENOMEM;
        return nullptr;
    }
    static const auto real = reinterpret_cast<decltype(&fdopendir)>(dlsym(RTLD_NEXT, "fdopendir"));
    return real(fd);
}

namespace {

using memory_folder::seen;
using registry::Book;
using registry::Description;
using registry::Entry;
using registry::Record;
using registry::State;
using test::logged;

// Other processes can read a description, so no byte of it may be an earlier byte of this process's memory.
static_assert(Description{}.peer.v6.sin6_scope_id == 0);

int begin(void **) {
    test::keep_log(base::LogLevel::Debug);
    return memory_folder::make();
}

int end(void **) {
    test::end_log();
    return folder::remove();
}

Entry listed(Book &book, int fd) {
    Entry entry = book.add();
    entry.describe({.state = State::Listening, .fd = fd});
    return entry;
}

void an_rsocket_is_seen_from_its_description_to_its_end(void **) {
    Book book{folder::path};
    assert_int_equal(memory_folder::count(), 0);
    {
        Entry entry = book.add();
        assert_int_equal(seen().size(), 0);
        Description description{.state = State::Connected, .fd = 7, .inode = 42};
        std::strcpy(description.device.data(), "soft_lo");
        entry.describe(description);
        entry.live()->sent_bytes += 1000;
        const auto all = seen();
        assert_int_equal(all.size(), 1);
        assert_int_equal(all[0].process, getpid());
        assert_int_equal(all[0].user, geteuid());
        assert_int_equal(all[0].description.fd, 7);
        assert_int_equal(all[0].description.inode, 42);
        assert_string_equal(all[0].description.device.data(), "soft_lo");
        assert_int_equal(all[0].live.sent_bytes, 1000);
    }
    assert_int_equal(seen().size(), 0);
    // The next entry begins empty.
    const Entry next = listed(book, 8);
    assert_int_equal(seen()[0].live.sent_bytes, 0);
    book.remove_files();
    assert_int_equal(memory_folder::count(), 0);
}

void there_is_room_for_thousands(void **) {
    Book book{folder::path};
    std::vector<Entry> entries;
    for (int fd = 0; fd < 5000; ++fd) {
        entries.push_back(listed(book, fd));
        assert_true(bool{entries.back()});
    }
    std::vector<bool> found(entries.size());
    for (const auto &one : seen()) {
        found.at(static_cast<std::size_t>(one.description.fd)) = true;
    }
    assert_true(std::ranges::all_of(found, [](bool is) { return is; }));
    assert_int_equal(memory_folder::count(), 7);
}

void where_no_file_can_be_made_there_is_no_entry(void **) {
    Book book{folder::path / "absent"};
    Entry entry = listed(book, 1);
    assert_false(bool{entry});
    assert_null(entry.live());
    assert_true(logged.contains("cannot make a file for the registry"));
    logged.clear();
    assert_false(bool{listed(book, 1)});
    assert_true(logged.empty());
}

// Starts a process that reports on a pipe, and then calls `then`.
template <typename Then>
pid_t process_that(Then then) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = test::fork_child();
    if (child == 0) {
        then(ends[1]);
        _exit(1);
    }
    close(ends[1]);
    char byte = 0;
    const ssize_t got = read(ends[0], &byte, 1);
    close(ends[0]);
    return got == 1 ? child : -child;
}

void a_killed_process_leaves_nothing(void **) {
    Book book{folder::path};
    const Entry ours = listed(book, 1);
    const pid_t child = process_that([](int pipe) {
        Book own{folder::path};
        const Entry entry = listed(own, 2);
        (void)!write(pipe, "", 1);
        pause();
    });
    assert_true(child > 0);
    assert_int_equal(seen().size(), 2);
    assert_int_equal(memory_folder::count(), 2);
    assert_int_equal(kill(child, SIGKILL), 0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
    // Its parent has not asked for it yet.
    assert_int_equal(seen().size(), 1);
    assert_int_equal(memory_folder::count(), 1);
    assert_int_equal(waitpid(child, nullptr, 0), child);
    assert_int_equal(seen().size(), 1);
    assert_true(logged.contains("is removed: process " + std::to_string(child)));
}

void a_new_process_removes_what_others_left(void **) {
    const pid_t child = process_that([](int pipe) {
        Book own{folder::path};
        const Entry entry = listed(own, 2);
        (void)!write(pipe, "", 1);
        _exit(0);
    });
    assert_int_equal(waitpid(child, nullptr, 0), child);
    assert_int_equal(memory_folder::count(), 1);
    Book book{folder::path};
    const Entry ours = listed(book, 1);
    assert_int_equal(memory_folder::count(), 1);
    assert_int_equal(seen()[0].process, getpid());
}

// Another process that looks at just that moment takes a file that nobody has locked for one that was left
// behind.
void a_file_has_its_name_when_it_is_in_use(void **) {
    std::atomic<bool> is_over{false};
    std::thread other{[&] {
        while (!is_over) {
            registry::remove_abandoned(folder::path);
        }
    }};
    constexpr int books = 2000;
    int found = 0;
    for (int i = 0; i < books; ++i) {
        Book book{folder::path};
        const Entry entry = listed(book, i);
        found += static_cast<int>(seen().size());
    }
    is_over = true;
    other.join();
    assert_int_equal(found, books);
}

void a_program_that_is_replaced_by_another_has_no_rsockets(void **) {
    int still_open[2];
    assert_int_equal(pipe(still_open), 0);
    const pid_t child = process_that([&](int) {
        Book own{folder::path};
        const Entry entry = listed(own, 2);
        close(still_open[1]);
        dup2(still_open[0], STDIN_FILENO);
        execlp("cat", "cat", nullptr);
    });
    assert_true(child < 0);  // the pipe was closed by exec
    // exec gives up the memory after it has closed the pipe.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{30};
    while (!seen().empty()) {
        assert_true(std::chrono::steady_clock::now() < until);
    }
    assert_int_equal(memory_folder::count(), 0);
    close(still_open[0]);
    close(still_open[1]);
    assert_int_equal(waitpid(-child, nullptr, 0), -child);
}

void a_forked_child_has_a_file_of_its_own(void **) {
    Book book{folder::path};
    Entry inherited = listed(book, 1);
    book.before_fork();
    const pid_t child = process_that([&](int pipe) {
        book.after_fork_in_child();
        const bool is_none = !inherited && inherited.live() == nullptr;
        inherited = Entry{};
        const Entry own = listed(book, 2);
        if (is_none && own) {
            (void)!write(pipe, "", 1);
        }
        pause();
    });
    book.after_fork_in_parent();
    assert_true(child > 0);
    const auto all = seen();
    assert_int_equal(all.size(), 2);
    for (const auto &one : all) {
        assert_int_equal(one.description.fd, one.process == child ? 2 : 1);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, nullptr, 0), child);
    assert_int_equal(seen().size(), 1);
}

// The parent's file goes when the parent is killed, though its child lives on.
void a_child_does_not_keep_its_parents_file(void **) {
    int stay[2];
    assert_int_equal(pipe2(stay, O_CLOEXEC), 0);
    const pid_t parent = process_that([&](int pipe) {
        Book own{folder::path};
        const Entry entry = listed(own, 2);
        own.before_fork();
        if (fork() == 0) {
            own.after_fork_in_child();
            char byte = 0;
            close(stay[1]);
            (void)!write(pipe, "", 1);
            _exit(read(stay[0], &byte, 1) == 0 ? 0 : 1);  // at the end of the test
        }
        own.after_fork_in_parent();
        pause();
    });
    assert_true(parent > 0);
    assert_int_equal(seen().size(), 1);
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(waitpid(parent, nullptr, 0), parent);
    assert_int_equal(seen().size(), 0);
    assert_int_equal(memory_folder::count(), 0);
    close(stay[0]);
    close(stay[1]);
}

// The lock tells of a process of another namespace too. A file that has only been left there goes.
void a_file_of_another_process_namespace_stays_while_it_is_in_use(void **) {
    Book book{folder::path};
    const Entry entry = listed(book, 1);
    const std::filesystem::path file = memory_folder::file();
    auto name = registry::parse_file_name(file.filename().string());
    assert_true(name.has_value());
    assert_int_equal(name->space, registry::own_space());
    ++name->space;
    std::filesystem::create_hard_link(file, memory_folder::of() / name->text());
    ++name->space;
    std::filesystem::copy_file(file, memory_folder::of() / name->text());
    registry::remove_abandoned(folder::path);
    const auto all = seen();
    assert_int_equal(all.size(), 2);
    assert_true(std::ranges::any_of(all, [&](const auto &one) { return one.space + 1 == name->space; }));
    assert_int_equal(memory_folder::count(), 2);
}

// Asserts that our file is ignored for this reason after `change` has modified it.
template <typename Change>
void ignored_after(const char *why, Change change) {
    Book book{folder::path};
    const Entry entry = listed(book, 1);
    assert_int_equal(seen().size(), 1);
    logged.clear();
    change(memory_folder::file());
    assert_int_equal(seen().size(), 0);
    if (!logged.contains(why)) {
        fail_msg("expected \"%s\" in: %s", why, logged.c_str());
    }
    // The end of the entry is written to the file, which needs its size again.
    std::filesystem::resize_file(memory_folder::file(), registry::first_file_bytes);
}

void files_that_make_no_sense_are_ignored(void **) {
    ignored_after("it has 16128 bytes", [](const auto &file) { std::filesystem::resize_file(file, 16128); });
    ignored_after("it has 0 bytes", [](const auto &file) { std::filesystem::resize_file(file, 0); });
    ignored_after("it has 33554432 bytes",
                  [](const auto &file) { std::filesystem::resize_file(file, 33554432); });
    const auto with_byte = [](std::size_t at, char value) {
        return [=](const auto &file) {
            std::string bytes = folder::read(file);
            bytes[at] = value;
            // In place: the process has the file in its memory still.
            std::fstream{file, std::ios::in | std::ios::out | std::ios::binary} << bytes;
        };
    };
    ignored_after("not of version 1 (its version is 2", with_byte(8, 2));
    ignored_after("not of version 1", with_byte(0, 'x'));
    ignored_after("with records of 254 bytes", [&](const auto &file) {
        with_byte(12, '\xfe')(file);
        with_byte(13, 0)(file);
    });
}

// Nor is anything else that the process does not have in its memory: it has the name of a file that is gone.
void what_only_has_the_name_is_removed(void **) {
    Book book{folder::path};
    const Entry entry = listed(book, 1);
    const std::string file = memory_folder::file();
    const std::string name = file + "1";  // of another inode
    for (const int kind : {0, 1, 2}) {
        if (kind == 0) {
            std::filesystem::create_symlink(file, name);
        } else if (kind == 1) {
            assert_int_equal(mkfifo(name.c_str(), 0644), 0);
        } else {
            folder::write(name, folder::read(file));
        }
        logged.clear();
        assert_int_equal(seen().size(), 1);
        assert_true(logged.contains(name + " is removed"));
        assert_int_equal(memory_folder::count(), 1);
    }
}

constexpr uid_t another_user = 12345;

// The name is one of a process that is gone, and yet nothing but the owner is looked at.
void another_users_file_is_ignored(void **) {
    if (geteuid() != 0) {
        skip();
    }
    ignored_after("expected a file of user 0, and it is one of user 12345", [](const auto &file) {
        const std::string false_file = file.string() + "1";
        folder::write(false_file, "");
        for (const std::string &path : {file.string(), false_file}) {
            assert_int_equal(chown(path.c_str(), another_user, another_user), 0);
        }
        registry::remove_abandoned(folder::path);
        assert_int_equal(memory_folder::count(), 2);
        std::filesystem::remove(false_file);
    });
}

// The names in the shared folder are anybody's. Nobody reads them.
void names_in_the_shared_folder_are_not_looked_at(void **) {
    Book book{folder::path};
    const Entry entry = listed(book, 1);
    folder::write(folder::path / memory_folder::file().filename(), folder::read(memory_folder::file()));
    logged.clear();
    assert_int_equal(seen().size(), 1);
    registry::remove_abandoned(folder::path);
    assert_true(logged.empty());
    assert_int_equal(folder::count(), 2);
}

void a_folder_that_cannot_be_read_is_closed(void **) {
    Book book{folder::path};
    const Entry entry = listed(book, 1);
    const auto descriptors = [] {
        return std::ranges::distance(std::filesystem::directory_iterator{"/proc/self/fd"});
    };
    const auto before = descriptors();
    has_no_memory = true;
    assert_int_equal(seen().size(), 0);
    has_no_memory = false;
    assert_true(logged.contains(memory_folder::of().string() + " cannot be read: Cannot allocate memory"));
    assert_int_equal(descriptors(), before);
    assert_int_equal(seen().size(), 1);
}

void a_part_is_looked_at_of_another_users_names(void **) {
    constexpr int many = 5000;
    if (geteuid() != 0) {
        skip();
    }
    const std::filesystem::path others = memory_folder::of(another_user);
    std::filesystem::create_directory(others);
    assert_int_equal(chown(others.c_str(), another_user, another_user), 0);
    for (int number = 1; number <= many; ++number) {
        const registry::FileName name{.user = another_user, .space = 1, .process = number, .inode = 1};
        const std::filesystem::path file = others / name.text();
        folder::write(file, "");
        assert_int_equal(chown(file.c_str(), another_user, another_user), 0);
    }
    registry::read_all(folder::path, {another_user}, [](const auto &) { return true; });
    assert_true(logged.contains(others.string() + " has too many files"));
    const auto left = std::ranges::distance(std::filesystem::directory_iterator{others});
    assert_true(left > 0 && left < many);
}

// The owner tells whose a folder is, and not its name, which another user may have had first.
void another_users_folder_is_passed_over(void **) {
    if (geteuid() != 0) {
        skip();
    }
    const auto squat = [](const std::filesystem::path &path) {
        std::filesystem::create_directory(path);
        assert_int_equal(chown(path.c_str(), another_user, another_user), 0);
    };
    squat(memory_folder::of());
    std::filesystem::create_symlink("/", memory_folder::of().string() + "-1");
    Book book{folder::path};
    const Entry entry = listed(book, 1);
    assert_true(bool{entry});
    assert_true(std::filesystem::is_directory(memory_folder::of().string() + "-2"));
    assert_int_equal(seen().size(), 1);
    std::filesystem::remove(memory_folder::of());
    assert_int_equal(seen().size(), 1);
    Book next{folder::path};
    const Entry other = listed(next, 2);
    assert_int_equal(seen().size(), 2);
    assert_false(std::filesystem::exists(memory_folder::of()));

    folder::remove();
    memory_folder::make();
    squat(memory_folder::of());
    for (int number = 1; number < 16; ++number) {
        squat(memory_folder::of().string() + "-" + std::to_string(number));
    }
    Book late{folder::path};
    assert_false(bool{listed(late, 1)});
    assert_true(logged.contains("cannot make a file for the registry of rsockets: Operation not permitted"));
}

// Another user may have made any number of records.
void a_part_is_read_of_another_users_files(void **) {
    constexpr int many = 20'000;
    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(chmod(folder::path.c_str(), 01777), 0);
    const pid_t child = process_that([](int pipe) {
        // The child of another user has to be told anew that it ends with its parent.
        if (seteuid(another_user) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
            return;
        }
        Book own{folder::path};
        std::vector<Entry> entries;
        for (int fd = 0; fd < many; ++fd) {
            entries.push_back(listed(own, fd));
        }
        (void)!write(pipe, "", 1);
        pause();
    });
    assert_true(child > 0);
    const std::size_t read = seen().size();
    assert_true(read > 1000 && read < many);
    assert_true(logged.contains("user 12345 has too many such files"));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, nullptr, 0), child);
}

void a_record_that_is_never_whole_is_left_out(void **) {
    Book book{folder::path};
    const Entry one = listed(book, 1);
    const Entry two = listed(book, 2);
    const base::Fd file{open(memory_folder::file().c_str(), O_RDWR | O_CLOEXEC)};
    const std::uint32_t odd = 77;
    assert_int_equal(pwrite(file.get(), &odd, sizeof(odd), sizeof(Record)), sizeof(odd));
    const auto all = seen();
    assert_int_equal(all.size(), 1);
    assert_int_equal(all[0].description.fd, 2);
}

void texts_of_others_are_printable(void **) {
    Book book{folder::path};
    Entry entry = book.add();
    Description description;
    description.reason.fill('\x1b');
    entry.describe(description);
    const auto all = seen();
    assert_int_equal(all.size(), 1);
    assert_string_equal(all[0].description.reason.data(), std::string(63, '?').c_str());
}

void a_description_is_seen_as_a_whole(void **) {
    Book book{folder::path};
    std::vector<Entry> entries;
    for (int fd = 0; fd < 50; ++fd) {
        entries.push_back(listed(book, 0));
    }
    std::atomic<bool> ends{false};
    std::thread writer{[&] {
        for (unsigned round = 1; !ends.load(); ++round) {
            Description description;
            std::memset(static_cast<void *>(&description.inode), static_cast<int>(round % 128),
                        sizeof(description) - offsetof(Description, inode));
            description.reason.back() = '\0';
            entries[round % entries.size()].describe(description);
        }
    }};
    bool torn = false;
    std::size_t found = 0;
    for (int reading = 0; reading < 200; ++reading) {
        for (const auto &one : seen()) {
            const auto byte = static_cast<unsigned char>(one.description.inode);
            const auto *const last = reinterpret_cast<const unsigned char *>(&one.description.peer);
            torn = torn || byte != last[0] || byte != last[sizeof(one.description.peer) - 1];
            ++found;
        }
    }
    ends = true;
    writer.join();
    assert_false(torn);
    assert_true(found > 200);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_rsocket_is_seen_from_its_description_to_its_end, begin, end),
        cmocka_unit_test_setup_teardown(there_is_room_for_thousands, begin, end),
        cmocka_unit_test_setup_teardown(where_no_file_can_be_made_there_is_no_entry, begin, end),
        cmocka_unit_test_setup_teardown(a_killed_process_leaves_nothing, begin, end),
        cmocka_unit_test_setup_teardown(a_new_process_removes_what_others_left, begin, end),
        cmocka_unit_test_setup_teardown(a_file_has_its_name_when_it_is_in_use, begin, end),
        cmocka_unit_test_setup_teardown(a_program_that_is_replaced_by_another_has_no_rsockets, begin, end),
        cmocka_unit_test_setup_teardown(a_forked_child_has_a_file_of_its_own, begin, end),
        cmocka_unit_test_setup_teardown(a_child_does_not_keep_its_parents_file, begin, end),
        cmocka_unit_test_setup_teardown(a_file_of_another_process_namespace_stays_while_it_is_in_use, begin,
                                        end),
        cmocka_unit_test_setup_teardown(files_that_make_no_sense_are_ignored, begin, end),
        cmocka_unit_test_setup_teardown(what_only_has_the_name_is_removed, begin, end),
        cmocka_unit_test_setup_teardown(another_users_file_is_ignored, begin, end),
        cmocka_unit_test_setup_teardown(names_in_the_shared_folder_are_not_looked_at, begin, end),
        cmocka_unit_test_setup_teardown(a_folder_that_cannot_be_read_is_closed, begin, end),
        cmocka_unit_test_setup_teardown(a_part_is_looked_at_of_another_users_names, begin, end),
        cmocka_unit_test_setup_teardown(another_users_folder_is_passed_over, begin, end),
        cmocka_unit_test_setup_teardown(a_part_is_read_of_another_users_files, begin, end),
        cmocka_unit_test_setup_teardown(a_record_that_is_never_whole_is_left_out, begin, end),
        cmocka_unit_test_setup_teardown(texts_of_others_are_printable, begin, end),
        cmocka_unit_test_setup_teardown(a_description_is_seen_as_a_whole, begin, end),
    };
    return cmocka_run_group_tests_name("registry_entries", tests, nullptr, nullptr);
}
