// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/direct_access, peer_mapping, mapped_object: the initiator maps the target's file itself. The
// two ends of one connection are in this process, and the kernel may not copy to or from the target's own
// mapping meanwhile.
//     test_soft_mapped_access [BOARDS]: 20,000 random boards unless told
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../../child.hpp"
#include "../../limits.hpp"
#include "base/fd.hpp"
#include "softrdma.h"

// This comes last, because it asserts.
#include "direct_ends.hpp"

namespace {

using test::Connection;
using test::DirectAccess;
using test::everything;
using test::pattern;
using test::Registered;

using namespace std::chrono_literals;

using Kind = DirectAccess::Atomic::Kind;

constexpr std::size_t word = 8;
constexpr std::size_t page = 4096;
constexpr std::size_t pages = 4;
constexpr std::size_t size = pages * page;
constexpr std::size_t reserved = 8 * size;
constexpr unsigned all_rights = everything | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint64_t iova = 0x100000;

unsigned long random_boards = 20'000;

// Returns the place of pages behind which nothing is mapped as far as a wrong length leads.
std::byte *place_for_pages() {
    void *const place = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(place, MAP_FAILED);
    return static_cast<std::byte *>(place);
}

std::byte *map_pages(int rights, int sharing, int object) {
    void *const mapped = mmap(place_for_pages(), size, rights, sharing | MAP_FIXED, object, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    return static_cast<std::byte *>(mapped);
}

// A region in a mapping of an object.
struct Mapped : Registered {
    explicit Mapped(base::Fd object, unsigned access = all_rights, int rights = PROT_READ | PROT_WRITE,
                    int sharing = MAP_SHARED)
        : file{std::move(object)}, memory{map_pages(rights, sharing, file.get())} {
        enter(memory, size, iova, access);
    }
    ~Mapped() {
        deregister();
        munmap(memory, reserved);
    }
    Mapped(const Mapped &) = delete;
    Mapped &operator=(const Mapped &) = delete;

    base::Fd file;
    std::byte *memory;
};

base::Fd memory_file() {
    base::Fd made{memfd_create("mapped_access", MFD_CLOEXEC)};
    assert_int_equal(ftruncate(made.get(), size), 0);
    return made;
}

// A file with a name in the working folder, as long as this lives.
struct Named {
    Named() {
        file.reset(mkostemp(name, O_CLOEXEC));
        assert_int_equal(ftruncate(file.get(), size), 0);
    }
    ~Named() { unlink(name); }
    Named(const Named &) = delete;
    Named &operator=(const Named &) = delete;

    char name[32] = "mapped_access-XXXXXX";
    base::Fd file;
};

// Returns how many mappings of this process have the name and the rights.
long mappings(const std::string &name, const std::string &rights = "") {
    std::ifstream maps{"/proc/self/maps"};
    long count = 0;
    for (std::string line; std::getline(maps, line);) {
        count += line.contains(name) && line.contains(rights) ? 1 : 0;
    }
    return count;
}

// Uses the offer as often as it takes until the memory is looked for.
void warm_up(Connection &connection, const Registered &target) {
    std::array<std::byte, 16> bytes{};
    for (unsigned use = 0; use < DirectAccess::uses_before_mapping; ++use) {
        (void)connection.read(target.region.rkey, iova, bytes);
    }
}

// As long as this lives, the kernel does not copy to the pages, or to and from them. The processor still
// does in the initiator's mapping.
class Forbidden {
public:
    Forbidden(void *memory, std::size_t bytes, int allowed, int afterwards = PROT_READ | PROT_WRITE)
        : memory_{memory}, bytes_{bytes}, afterwards_{afterwards} {
        assert_int_equal(mprotect(memory, bytes, allowed), 0);
    }
    ~Forbidden() { (void)mprotect(memory_, bytes_, afterwards_); }
    Forbidden(const Forbidden &) = delete;
    Forbidden &operator=(const Forbidden &) = delete;

private:
    void *memory_;
    std::size_t bytes_;
    int afterwards_;
};

// Returns whether a write, and what it says, arrive without the kernel's copy. They arrive in any case.
bool is_written_here(Connection &connection, const Mapped &target, std::size_t at) {
    const auto bytes = pattern();
    bool here = false;
    {
        const Forbidden kernel{target.memory, size, PROT_READ};
        here = connection.write(target.region.rkey, iova + at, bytes);
    }
    assert_true(here || connection.write(target.region.rkey, iova + at, bytes));
    assert_memory_equal(target.memory + at, bytes.data(), bytes.size());
    return here;
}

bool is_read_here(Connection &connection, const Mapped &target, std::size_t at, std::span<std::byte> to,
                  int rights = PROT_READ | PROT_WRITE) {
    const Forbidden kernel{target.memory, size, PROT_NONE, rights};
    return connection.read(target.region.rkey, iova + at, to);
}

void give_up_capabilities() {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, 2> none{};
    assert_int_equal(syscall(SYS_capset, &header, none.data()), 0);
}

// Runs `run` in a process that may do no more than any other.
void without_capabilities(void (*run)()) {
    const pid_t child = test::fork_child();
    if (child == 0) {
        give_up_capabilities();
        run();
        _exit(EXIT_SUCCESS);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

// The object has a path, or a descriptor of the target's, or both.
void an_object_is_mapped() {
    for (const bool has_name : {true, false}) {
        for (const bool has_descriptor : {true, false}) {
            if (!has_name && !has_descriptor) {
                continue;
            }
            Named named;
            Mapped target{has_name ? base::Fd{dup(named.file.get())} : memory_file()};
            named.file.reset();
            if (!has_descriptor) {
                target.file.reset();
            }
            Connection connection;
            connection.offer(target.region);
            warm_up(connection, target);
            assert_true(is_written_here(connection, target, size - 64));
            std::array<std::byte, 64> read{};
            assert_true(is_read_here(connection, target, size - 64, read));
            assert_memory_equal(read.data(), target.memory + size - 64, read.size());
            assert_false(connection.write(target.region.rkey, iova + size - 63, read));
            assert_false(connection.write(target.region.rkey, iova - 1, read));
        }
    }
}

void an_object_is_mapped_by_anyone(void **) {
    an_object_is_mapped();
    without_capabilities(an_object_is_mapped);
}

// Several mappings that follow each other in memory and in the file are one.
void a_region_of_several_areas_is_mapped(void **) {
    Mapped target{memory_file()};
    assert_int_equal(madvise(target.memory + page, page, MADV_DONTFORK), 0);  // splits it in three
    Connection connection;
    connection.offer(target.region);
    warm_up(connection, target);
    assert_true(is_written_here(connection, target, page - 32));
}

void other_memory_is_copied_by_the_kernel() {
    const auto is_copied = [](Mapped &target) {
        Connection connection;
        connection.offer(target.region);
        warm_up(connection, target);
        assert_false(is_written_here(connection, target, 0));
        std::uint64_t original = 0;
        assert_false(connection.access.atomic(target.region.rkey, iova, {Kind::Add, 1}, original));
    };
    Mapped private_memory{base::Fd{}, all_rights, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS};
    is_copied(private_memory);
    Mapped private_copy{memory_file(), all_rights, PROT_READ | PROT_WRITE, MAP_PRIVATE};
    is_copied(private_copy);
    Mapped holes{memory_file()};  // two areas, and the file does not go on as memory does
    assert_ptr_not_equal(
        mmap(holes.memory + page, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, holes.file.get(), 0),
        MAP_FAILED);
    is_copied(holes);
}

void other_memory_is_not_mapped(void **) {
    other_memory_is_copied_by_the_kernel();
}

// Only the kernel's own name leads to an object that has no other.
void an_object_that_nobody_may_open_is_not_mapped(void **) {
    without_capabilities([] {
        Mapped target{memory_file()};
        target.file.reset();
        Connection connection;
        connection.offer(target.region);
        warm_up(connection, target);
        assert_false(is_written_here(connection, target, 0));
    });
}

void a_region_for_reading_is_mapped_for_reading(void **) {
    Named named;
    const auto bytes = pattern();
    assert_int_equal(pwrite(named.file.get(), bytes.data(), bytes.size(), 0), bytes.size());
    Mapped target{base::Fd{open(named.name, O_RDONLY | O_CLOEXEC)}, IBV_ACCESS_REMOTE_READ, PROT_READ};
    Connection connection;
    connection.offer(target.region);
    warm_up(connection, target);
    std::array<std::byte, 64> read{};
    assert_true(is_read_here(connection, target, 0, read, PROT_READ));
    assert_memory_equal(read.data(), bytes.data(), bytes.size());
    assert_false(connection.write(target.region.rkey, iova, bytes));
    assert_int_equal(mappings(named.name), 2);
    assert_int_equal(mappings(named.name, "rw-s"), 0);
}

// A target that may only read a file offers it for writing. The initiator could write it.
void a_target_that_may_not_write_is_not_written_for(void **) {
    Named named;
    Mapped target{base::Fd{open(named.name, O_RDONLY | O_CLOEXEC)}, all_rights, PROT_READ};
    Connection connection;
    connection.offer(target.region);
    warm_up(connection, target);
    assert_int_equal(mappings(named.name), 1);
    assert_false(connection.write(target.region.rkey, iova, pattern()));
    assert_true(
        std::all_of(target.memory, target.memory + size, [](std::byte one) { return one == std::byte{}; }));
}

void atomic_operations_are_done_here(void **) {
    Mapped target{memory_file()};
    auto *const memory = reinterpret_cast<std::uint64_t *>(target.memory);
    const std::uint32_t key = target.region.rkey;
    Connection connection;
    connection.offer(target.region);
    std::uint64_t original = 0;
    for (unsigned use = 0; !connection.access.atomic(key, iova, {Kind::Add, 3}, original); ++use) {
        assert_true(use < DirectAccess::uses_before_mapping);
    }
    assert_int_equal(original, 0);
    assert_int_equal(memory[0], 3);
    assert_true(connection.access.atomic(key, iova, {Kind::CompareAndSwap, 9, 4}, original));
    assert_int_equal(original, 3);
    assert_int_equal(memory[0], 3);
    assert_true(connection.access.atomic(key, iova, {Kind::CompareAndSwap, 9, 3}, original));
    assert_int_equal(original, 3);
    assert_int_equal(memory[0], 9);
    assert_true(connection.access.atomic(key, iova + size - word, {Kind::Store, 77}, original));
    assert_int_equal(memory[size / word - 1], 77);
    assert_false(connection.access.atomic(key, iova + 4, {Kind::Add, 1}, original));
    assert_false(connection.access.atomic(key, iova + size, {Kind::Add, 1}, original));
    target.deregister();
    assert_false(connection.access.atomic(key, iova, {Kind::Add, 1}, original));
    assert_int_equal(memory[0], 9);
}

void an_atomic_operation_needs_its_right(void **) {
    Mapped target{memory_file(), everything};
    Connection connection;
    connection.offer(target.region);
    warm_up(connection, target);
    std::uint64_t original = 0;
    assert_false(connection.access.atomic(target.region.rkey, iova, {Kind::Add, 1}, original));
    assert_true(connection.access.atomic(target.region.rkey, iova, {Kind::Store, 1}, original));
}

// The program's own operations, and those of several peers, are atomic with each other.
void all_additions_count(void **) {
    constexpr std::uint64_t each = 20'000;
    Mapped target{memory_file()};
    std::array<Connection, 2> connections;
    for (Connection &connection : connections) {
        connection.offer(target.region);
        warm_up(connection, target);
    }
    std::atomic_ref<std::uint64_t> counter{*reinterpret_cast<std::uint64_t *>(target.memory)};
    {
        const auto add = [&](Connection &connection) {
            for (std::uint64_t i = 0; i < each; ++i) {
                std::uint64_t original = 0;
                assert_true(connection.access.atomic(target.region.rkey, iova, {Kind::Add, 1}, original));
            }
        };
        const std::jthread one{add, std::ref(connections[0])};
        const std::jthread other{add, std::ref(connections[1])};
        for (std::uint64_t i = 0; i < each; ++i) {
            counter.fetch_add(1);
        }
    }
    assert_int_equal(counter.load(), 3 * each);
}

void a_truncated_file_is_an_error(void **) {
    for (const bool before : {false, true}) {
        Mapped target{memory_file()};
        Connection connection;
        connection.offer(target.region);
        if (before) {
            assert_int_equal(ftruncate(target.file.get(), page), 0);
        }
        warm_up(connection, target);
        if (!before) {
            assert_true(is_written_here(connection, target, 2 * page));
            assert_int_equal(ftruncate(target.file.get(), page), 0);
        }
        std::uint64_t original = 0;
        std::array<std::byte, 64> read{};
        assert_false(connection.write(target.region.rkey, iova + 2 * page, pattern()));
        assert_false(connection.read(target.region.rkey, iova + 2 * page, read));
        assert_false(connection.access.atomic(target.region.rkey, iova + 2 * page, {Kind::Add, 1}, original));
        assert_int_equal(is_written_here(connection, target, 0), !before);
    }
}

// The kernel would end the process when the file is truncated. The thread has used the mapping before.
void a_thread_with_blocked_signals_uses_no_mapping(void **) {
    Mapped target{memory_file()};
    Connection connection;
    connection.offer(target.region);
    warm_up(connection, target);
    std::thread{[&] {
        assert_true(is_written_here(connection, target, 0));
        sigset_t all;
        sigfillset(&all);
        assert_int_equal(pthread_sigmask(SIG_BLOCK, &all, nullptr), 0);
        connection.access.set_time(base::Clock::time_point{} + 1ms);  // the mask is looked at again
        assert_false(is_written_here(connection, target, 0));
        assert_int_equal(ftruncate(target.file.get(), page), 0);
        assert_false(connection.write(target.region.rkey, iova + page, pattern()));
    }}.join();
    assert_true(is_written_here(connection, target, 0));
}

// The program sets a handler of its own when the memory is mapped already.
void a_later_handler_does_not_get_the_fault(void **) {
    Mapped target{memory_file()};
    Connection connection;
    connection.offer(target.region);
    warm_up(connection, target);
    assert_true(is_written_here(connection, target, page));
    struct sigaction own{};
    own.sa_handler = [](int) { _exit(EXIT_FAILURE); };
    struct sigaction before{};
    assert_int_equal(sigaction(SIGBUS, &own, &before), 0);
    assert_true(connection.access.look_again());
    assert_int_equal(ftruncate(target.file.get(), page), 0);
    assert_false(connection.write(target.region.rkey, iova + page, pattern()));
    assert_int_equal(sigaction(SIGBUS, &before, nullptr), 0);
}

// A program that locks its memory does not get all of the peer's file into its own.
void a_program_that_locks_its_memory_has_no_more_of_it(void **) {
    Mapped target{memory_file()};
    Connection connection;
    connection.offer(target.region);
    if (mlockall(MCL_FUTURE) != 0) {
        skip();
    }
    warm_up(connection, target);
    struct stat status{};
    assert_int_equal(fstat(target.file.get(), &status), 0);
    assert_int_equal(munlockall(), 0);
    assert_true(status.st_blocks <= static_cast<long>(page) / 512);  // the page that was read
    assert_true(is_written_here(connection, target, size - 64));
}

// A program that learns of faults, or of writes, would not learn of those in another mapping.
void watched_memory_is_not_mapped(void **) {
    const base::Fd watcher{static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY))};
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    if (!watcher || ioctl(watcher.get(), UFFDIO_API, &api) != 0) {
        skip();
    }
    Mapped target{memory_file()};
    std::fill_n(target.memory, size, std::byte{1});
    uffdio_register watched{
        .range = {.start = reinterpret_cast<std::uintptr_t>(target.memory) + size - page, .len = page},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
        .ioctls = 0};
    assert_int_equal(ioctl(watcher.get(), UFFDIO_REGISTER, &watched), 0);
    Connection connection;
    connection.offer(target.region);
    warm_up(connection, target);
    assert_false(is_written_here(connection, target, 0));
}

// The thread that looks for the object uses the frame of the one that waits for it.
void a_thread_that_is_to_end_waits_for_the_search(void **) {
    Mapped target{memory_file()};
    Connection connection;
    connection.offer(target.region);
    std::atomic<bool> done{false};
    std::thread{[&] {
        pthread_cancel(pthread_self());
        warm_up(connection, target);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
        done = true;
    }}.join();
    assert_true(done);
    assert_true(is_written_here(connection, target, 0));
}

void a_withdrawn_mapping_is_given_back(void **) {
    Mapped target{memory_file()};
    Connection connection;
    connection.offer(target.region);
    warm_up(connection, target);
    assert_true(connection.access.has_mapping());
    target.deregister();
    assert_true(connection.access.look_again());
    assert_false(connection.access.has_mapping());
}

// An access of mapped memory may wait for its file system, so a long write has several. When one fails, the
// bytes of the later ones are not touched, nor counted as written.
void a_long_write_has_several_accesses(void **) {
    constexpr std::size_t part = DirectAccess::most_mapped_bytes;
    const base::Fd file = memory_file();
    assert_int_equal(ftruncate(file.get(), 4 * part), 0);
    void *const memory = mmap(nullptr, 4 * part, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    Registered target;
    target.enter(static_cast<std::byte *>(memory), 4 * part, iova,
                 all_rights | SOFTRDMA_ACCESS_FLUSH_PERSISTENT);
    Connection connection;
    connection.offer(target.region);
    warm_up(connection, target);
    const std::vector bytes(4 * part, std::byte{0xa5});
    const Forbidden kernel{memory, 4 * part, PROT_READ};
    assert_true(connection.write(target.region.rkey, iova, std::span{bytes}.first(3 * part + 8)));
    assert_memory_equal(memory, bytes.data(), 3 * part + 8);
    assert_int_equal(connection.initiator_board.written[0].to, 3 * part + 8);
    connection.initiator_board.written[0].to = 0;
    assert_int_equal(ftruncate(file.get(), part), 0);
    assert_false(connection.write(target.region.rkey, iova, bytes));
    assert_int_equal(connection.initiator_board.written[0].to, 2 * part);
    target.deregister();
    munmap(memory, 4 * part);
}

// A thread writes as fast as it can. When deregistering has returned, nothing changes any more.
void deregistering_waits_for_an_access(void **) {
    for (int round = 0; round < 50; ++round) {
        Mapped target{memory_file()};
        Connection connection;
        connection.offer(target.region);
        warm_up(connection, target);
        assert_true(is_written_here(connection, target, 0));
        std::atomic<bool> begun{false};
        std::thread writer{[&] {
            const auto bytes = pattern();
            for (std::size_t number = 0;
                 connection.write(target.region.rkey, iova + number % 64 * bytes.size(), bytes); ++number) {
                begun = true;
            }
        }};
        while (!begun) {
            std::this_thread::yield();
        }
        target.deregister();
        std::fill_n(target.memory, size, std::byte{0xa5});
        writer.join();
        assert_true(std::all_of(target.memory, target.memory + size,
                                [](std::byte one) { return one == std::byte{0xa5}; }));
    }
}

void a_mapping_ends_with_its_offer_or_connection(void **) {
    for (const bool withdraws : {false, true}) {
        Named named;
        Mapped target{std::move(named.file)};
        Connection connection;
        connection.offer(target.region);
        warm_up(connection, target);
        assert_int_equal(mappings(named.name), 2);
        if (withdraws) {
            target.deregister();
            assert_true(connection.access.look_again());
        } else {
            connection.access.end();
        }
        assert_int_equal(mappings(named.name), 1);
    }
}

// The same memory is registered again, in another file.
void another_registration_is_mapped_anew(void **) {
    Connection connection;
    Mapped first{memory_file()};
    connection.offer(first.region);
    warm_up(connection, first);
    assert_true(is_written_here(connection, first, 0));
    first.deregister();
    const base::Fd other = memory_file();
    assert_ptr_not_equal(
        mmap(first.memory, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, other.get(), 0), MAP_FAILED);
    first.enter(first.memory, size, iova, all_rights);
    connection.offer(first.region);
    warm_up(connection, first);
    assert_true(is_written_here(connection, first, page));
}

void searches_are_limited(void **) {
    const test::ChangedLimit fewer{test::limits().most_peer_searches, 1};
    {
        Connection connection;
        Mapped first{memory_file()};
        Mapped second{memory_file()};
        for (const Mapped *target : {&first, &second}) {
            connection.offer(target->region);
            warm_up(connection, *target);
        }
        assert_true(is_written_here(connection, first, 0));
        assert_false(is_written_here(connection, second, 0));
    }
    Connection connection;
    Mapped third{memory_file()};
    connection.offer(third.region);
    warm_up(connection, third);
    assert_true(is_written_here(connection, third, 0));
}

// A process loses its record locks of a file when it closes any descriptor of that file.
void record_locks_stay(void **) {
    Named named;
    flock lock{};
    lock.l_type = F_WRLCK;
    assert_int_equal(fcntl(named.file.get(), F_SETLK, &lock), 0);
    Mapped target{base::Fd::borrowed(named.file.get())};
    {
        Connection connection;
        connection.offer(target.region);
        warm_up(connection, target);
        assert_true(is_written_here(connection, target, 0));
    }
    const pid_t child = test::fork_child();
    if (child == 0) {
        _exit(fcntl(named.file.get(), F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? EXIT_SUCCESS
                                                                                     : EXIT_FAILURE);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

void a_child_has_no_mapping(void **) {
    Named named;
    Mapped target{std::move(named.file)};
    auto connection = std::make_unique<Connection>();
    connection->offer(target.region);
    warm_up(*connection, target);
    assert_int_equal(mappings(named.name), 2);
    const pid_t child = test::fork_child();
    if (child == 0) {
        const bool has_one = mappings(named.name) == 1;
        connection->access.end();
        _exit(has_one && mappings(named.name) == 1 ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(is_written_here(*connection, target, 0));
}

// A child of fork(2) has other descriptors than its parent's thread has while it looks; they stay as they
// are.
void descriptors_stay(void **) {
    const auto open_descriptors = [] {
        unsigned count = 0;
        for (int fd = 0; fd < 256; ++fd) {
            count += fcntl(fd, F_GETFD) >= 0 ? 1U : 0U;
        }
        return count;
    };
    Mapped target{memory_file()};
    Connection connection;
    connection.offer(target.region);
    const unsigned before = open_descriptors();
    warm_up(connection, target);
    assert_true(is_written_here(connection, target, 0));
    assert_int_equal(open_descriptors(), before);
}

// The peer names a pipe, a device, a file that is too short, memory of no file, or anything.
void random_boards_reach_nothing_of_the_initiator(void **) {
    std::mt19937_64 random{1};
    Named secret;
    std::byte *const own = map_pages(PROT_READ, MAP_SHARED, secret.file.get());
    std::byte *const zero = map_pages(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    const std::array<std::uint64_t, 4> places{reinterpret_cast<std::uintptr_t>(own),
                                              reinterpret_cast<std::uintptr_t>(zero), UINT64_MAX - page, 0};
    auto target = std::make_unique<Mapped>(memory_file());
    auto connection = std::make_unique<Connection>(false);
    connection->offer(target->region);
    std::array<std::byte, 64> buffer{};
    for (unsigned long number = 0; number < random_boards; ++number) {
        test::Board::Offer &offer = connection->target_board.offers[0];
        switch (random() % 64) {
            case 0:
                offer.registration = random();
                break;
            case 1:
                offer.length = random() % 2 == 0 ? random() : random() % (2 * size);
                break;
            case 2:
                offer.place = places[random() % places.size()] + random() % (2 * page);
                break;
            case 3:
                offer.rights = static_cast<std::uint32_t>(random());
                break;
            case 4:
                assert_int_equal(ftruncate(target->file.get(), static_cast<off_t>(random() % (2 * size))), 0);
                break;
            default:
                break;
        }
        const std::uint64_t address = iova + random() % (2 * size);
        const std::uint32_t key = target->region.rkey;
        std::uint64_t original = 0;
        switch (random() % 3) {
            case 0:
                (void)connection->write(key, address, buffer);
                break;
            case 1:
                (void)connection->read(key, address, buffer);
                break;
            default:
                (void)(connection->access.may_reach(key) &&
                       connection->access.atomic(key, address & ~std::uint64_t{7}, {Kind::Add, 1}, original));
                break;
        }
        if (random() % 256 == 0) {
            connection = std::make_unique<Connection>(false);
            target = std::make_unique<Mapped>(memory_file());
            connection->offer(target->region);
        }
    }
    assert_true(std::all_of(own, own + size, [](std::byte one) { return one == std::byte{}; }));
    munmap(own, reserved);
    munmap(zero, reserved);
}

}  // namespace

int main(int argc, char **argv) {
    if (argc > 1) {
        random_boards = std::strtoul(argv[1], nullptr, 10);
    }
    if (!soft::restartable::is_possible()) {
        std::puts(
            "skipped: the kernel does not restart sequences of this process (rseq(2)), so it maps nothing");
        return 77;
    }
    const CMUnitTest tests[] = {
        cmocka_unit_test(an_object_is_mapped_by_anyone),
        cmocka_unit_test(a_region_of_several_areas_is_mapped),
        cmocka_unit_test(other_memory_is_not_mapped),
        cmocka_unit_test(an_object_that_nobody_may_open_is_not_mapped),
        cmocka_unit_test(a_region_for_reading_is_mapped_for_reading),
        cmocka_unit_test(a_target_that_may_not_write_is_not_written_for),
        cmocka_unit_test(atomic_operations_are_done_here),
        cmocka_unit_test(an_atomic_operation_needs_its_right),
        cmocka_unit_test(all_additions_count),
        cmocka_unit_test(a_truncated_file_is_an_error),
        cmocka_unit_test(a_thread_with_blocked_signals_uses_no_mapping),
        cmocka_unit_test(a_later_handler_does_not_get_the_fault),
        cmocka_unit_test(a_program_that_locks_its_memory_has_no_more_of_it),
        cmocka_unit_test(watched_memory_is_not_mapped),
        cmocka_unit_test(a_thread_that_is_to_end_waits_for_the_search),
        cmocka_unit_test(a_withdrawn_mapping_is_given_back),
        cmocka_unit_test(a_long_write_has_several_accesses),
        cmocka_unit_test(deregistering_waits_for_an_access),
        cmocka_unit_test(a_mapping_ends_with_its_offer_or_connection),
        cmocka_unit_test(another_registration_is_mapped_anew),
        cmocka_unit_test(searches_are_limited),
        cmocka_unit_test(record_locks_stay),
        cmocka_unit_test(a_child_has_no_mapping),
        cmocka_unit_test(descriptors_stay),
        cmocka_unit_test(random_boards_reach_nothing_of_the_initiator),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
