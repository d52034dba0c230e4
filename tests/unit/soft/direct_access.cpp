// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/offers, direct_access: the two ends of one connection, whose boards are in this process. A peer
// may write anything on its board.
//     test_soft_direct_access [BOARDS]: 300,000 random boards unless told
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "../../child.hpp"
#include "../../limits.hpp"
#include "base/clock.hpp"
#include "base/fd.hpp"
#include "persist/region.hpp"
#include "soft/ground/limits.hpp"
#include "soft/memory/direct_access.hpp"
#include "soft/memory/offers.hpp"
#include "softrdma.h"

// This comes last, because it asserts.
#include "direct_ends.hpp"

namespace {

// The range that was made durable last.
std::atomic<std::uintptr_t> synced_from{0};
std::atomic<std::uintptr_t> synced_to{0};

}  // namespace

extern "C" [[gnu::visibility("default")]] int msync(void *address, std::size_t length, int flags) {
    synced_from = reinterpret_cast<std::uintptr_t>(address);
    synced_to = synced_from + length;
    return static_cast<int>(syscall(SYS_msync, address, length, flags));
}

namespace {

using test::Board;
using test::Connection;
using test::DirectAccess;
using test::everything;
using test::Memory;
using test::Offers;
using test::pattern;
using test::Registered;

constexpr std::size_t size = 4096;
constexpr std::size_t margin = 256;  // bytes around the region that nobody may touch
constexpr std::byte untouched{0xa5};

unsigned long random_boards = 300'000;

// The target has a region in the middle of its memory.
struct Target : Registered {
    explicit Target(unsigned access = everything) {
        bytes.fill(untouched);
        enter(memory(), size, 0x10000, access);
    }
    ~Target() { deregister(); }
    Target(const Target &) = delete;
    Target &operator=(const Target &) = delete;

    [[nodiscard]] std::byte *memory() { return bytes.data() + margin; }
    [[nodiscard]] bool is_untouched() const {
        return std::ranges::all_of(bytes, [](std::byte one) { return one == untouched; });
    }
    [[nodiscard]] bool margins_are_untouched() const {
        const auto is = [](std::byte one) { return one == untouched; };
        return std::all_of(bytes.begin(), bytes.begin() + margin, is) &&
               std::all_of(bytes.end() - margin, bytes.end(), is);
    }

    std::array<std::byte, size + 2 * margin> bytes{};
};

void what_is_offered_is_reached(void **) {
    Target target;
    Connection connection;
    const auto bytes = pattern();
    assert_false(connection.write(target.region.rkey, target.region.iova, bytes));
    assert_true(target.is_untouched());
    connection.offer(target.region);
    assert_true(connection.write(target.region.rkey, target.region.iova + size - bytes.size(), bytes));
    assert_memory_equal(target.memory() + size - bytes.size(), bytes.data(), bytes.size());
    std::array<std::byte, 64> read{};
    assert_true(connection.read(target.region.rkey, target.region.iova + size - bytes.size(), read));
    assert_memory_equal(read.data(), bytes.data(), bytes.size());
    assert_true(target.margins_are_untouched());
}

void nothing_else_is(void **) {
    Target target{IBV_ACCESS_REMOTE_READ};
    Target silent;
    Connection connection;
    auto bytes = pattern();
    connection.offer(target.region);
    const auto &region = target.region;
    assert_false(connection.write(region.rkey, region.iova, bytes));
    assert_false(connection.read(region.rkey, region.iova - 1, bytes));
    assert_false(connection.read(region.rkey, region.iova + size - bytes.size() + 1, bytes));
    assert_false(connection.read(region.rkey, UINT64_MAX - 8, bytes));
    assert_false(connection.read(region.rkey + 1, region.iova, bytes));
    assert_false(connection.read(0, region.iova, bytes));
    assert_false(connection.read(silent.region.rkey, silent.region.iova, bytes));
    assert_true(connection.read(region.rkey, region.iova, bytes));
    assert_true(target.is_untouched());
    assert_true(silent.is_untouched());
}

void a_right_that_is_not_granted_is_not_offered(void **) {
    Target target;
    Connection connection;
    auto bytes = pattern();
    const std::atomic<unsigned> withheld{IBV_ACCESS_REMOTE_WRITE};
    connection.offers.offer(target.region, withheld);
    assert_false(connection.write(target.region.rkey, target.region.iova, bytes));
    assert_true(connection.read(target.region.rkey, target.region.iova, bytes));
}

void nothing_is_reached_after_the_offer(void **) {
    const auto bytes = pattern();
    for (const auto withdraw :
         {+[](Connection &connection, Target &target) { connection.offers.withdraw(target.region.rkey); },
          +[](Connection &connection, Target &) { connection.offers.withdraw_all(); },
          +[](Connection &connection, Target &) { connection.offers.end(); },
          +[](Connection &, Target &target) { target.deregister(); }}) {
        Target target;
        Connection connection;
        connection.offer(target.region);
        assert_true(connection.access.may_reach(target.region.rkey));
        withdraw(connection, target);
        assert_false(connection.write(target.region.rkey, target.region.iova, bytes));
        assert_true(target.is_untouched());
    }
}

// The seventeenth region is not offered, until another one is withdrawn.
void offers_are_limited(void **) {
    std::array<std::unique_ptr<Target>, Board::most_offers + 1> targets;
    Connection connection;
    for (auto &target : targets) {
        target = std::make_unique<Target>();
        connection.offer(target->region);
    }
    const auto bytes = pattern();
    Target &last = *targets.back();
    assert_true(connection.write(targets[0]->region.rkey, targets[0]->region.iova, bytes));
    assert_false(connection.write(last.region.rkey, last.region.iova, bytes));
    targets[3].reset();
    connection.offers.withdraw_all();
    connection.offer(last.region);
    assert_true(connection.write(last.region.rkey, last.region.iova, bytes));
}

// A thread writes as fast as it can. When deregistering has returned, nothing changes any more.
void deregistering_waits_for_an_access(void **) {
    for (int round = 0; round < 50; ++round) {
        Target target;
        Connection connection;
        connection.offer(target.region);
        std::atomic<bool> begun{false};
        std::thread writer{[&] {
            const auto bytes = pattern();
            bool done = true;
            for (std::size_t number = 0; done; ++number) {
                done = connection.write(target.region.rkey, target.region.iova + number % 64 * 64, bytes);
                begun = true;
            }
        }};
        while (!begun) {
            std::this_thread::yield();
        }
        target.deregister();
        target.bytes.fill(untouched);
        writer.join();
        assert_true(target.is_untouched());
    }
}

// A process in which the named place does not hold this end's number is not the peer.
void another_process_is_not_taken_for_the_peer(void **) {
    Target target;
    Connection connection;
    const auto bytes = pattern();
    connection.offer(target.region);
    connection.target_board.peers_place = reinterpret_cast<std::uintptr_t>(&connection.target_board);
    assert_false(connection.write(target.region.rkey, target.region.iova, bytes));
    assert_false(connection.access.may_reach(target.region.rkey));
    assert_true(target.is_untouched());
}

// A peer that lies names a thread of the initiator's, and the place of the initiator's own board. The kernel
// has told which process the peer is.
void a_thread_of_another_process_is_not_reached(void **) {
    for (const pid_t process : {getppid(), 0}) {
        Target target;
        Connection connection{true, process};
        connection.offer(target.region);
        assert_false(connection.write(target.region.rkey, target.region.iova, pattern()));
        assert_true(target.is_untouched());
    }
}

void a_thread_that_is_gone_is_not_reached(void **) {
    Target target;
    Connection connection;
    std::thread{[&connection] { connection.thread = gettid(); }}.join();
    connection.offer(target.region);
    assert_false(connection.write(target.region.rkey, target.region.iova, pattern()));
    assert_true(target.is_untouched());
}

// Memory that is not mapped is refused by the kernel, and the ordinary way tells the program.
void memory_that_vanished_is_not_reached(void **) {
    Target target;
    Connection connection;
    connection.offer(target.region);
    assert_true(connection.write(target.region.rkey, target.region.iova, pattern()));
    connection.target_board.offers[0].place = 8;
    assert_false(connection.write(target.region.rkey, target.region.iova, pattern()));
}

// A pool of several pages, which is registered for persistent flush.
struct Pool : Registered {
    static constexpr std::size_t pages = 8;
    static constexpr std::size_t page = 4096;

    Pool() {
        const int file = mkostemp(name_, O_CLOEXEC);
        assert_true(file >= 0);
        assert_int_equal(ftruncate(file, pages * page), 0);
        void *const mapped = mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        assert_ptr_not_equal(mapped, MAP_FAILED);
        close(file);
        auto durable = persist::Region::open(mapped, pages * page);
        assert_true(durable.has_value());
        region.durable = std::move(*durable);
        enter(mapped, pages * page, reinterpret_cast<std::uintptr_t>(mapped),
              everything | SOFTRDMA_ACCESS_FLUSH_PERSISTENT);
    }
    ~Pool() {
        deregister();
        munmap(region.addr, pages * page);
        unlink(name_);
    }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    [[nodiscard]] std::uintptr_t address(std::size_t number) const { return region.iova + number * page; }

private:
    char name_[32] = "direct_access-XXXXXX";
};

// Makes the ranges durable that the peer of one connection wrote, as the device does.
struct Flushes {
    // Returns the pages that were made durable, from the first byte on: {0, 0} when there were none.
    std::pair<std::uintptr_t, std::uintptr_t> flush(Offers &offers) {
        offers.note_written(durability);
        return flush_noted();
    }
    std::pair<std::uintptr_t, std::uintptr_t> flush_noted() {
        synced_from = synced_to = 0;
        if (durability.begin()) {
            done.wait(false);
            done = false;
            durability.worker_is_back();
        }
        assert_int_equal(durability.error(), 0);
        return {synced_from, synced_to};
    }
    static void back(void *flushes, soft::Durability &) {
        auto &all = *static_cast<Flushes *>(flushes);
        all.done = true;
        all.done.notify_one();
    }

    std::atomic<bool> done{false};
    soft::Durability durability{back, this};
};

// The kernel copies, or the initiator has mapped the file.
void written_ranges_become_durable(void **) {
    for (const bool is_mapped : {false, true}) {
        Pool pool;
        Connection connection;
        Flushes flushes;
        const auto bytes = pattern();
        connection.offer(pool.region);
        for (unsigned use = 0; is_mapped && use < DirectAccess::uses_before_mapping; ++use) {
            assert_true(connection.write(pool.region.rkey, pool.address(1), bytes));
        }
        assert_int_equal(flushes.flush(connection.offers).second != 0, is_mapped);
        assert_true(connection.write(pool.region.rkey, pool.address(2) + 100, bytes));
        assert_true(connection.write(pool.region.rkey, pool.address(4), bytes));
        const auto [from, to] = flushes.flush(connection.offers);
        assert_true(from != 0 && from <= pool.address(2) + 100);
        assert_true(to >= pool.address(4) + bytes.size());
        assert_true(from >= pool.address(2) && to <= pool.address(5));
        assert_int_equal(flushes.flush(connection.offers).second, 0);
        assert_true(connection.write(pool.region.rkey, pool.address(7), bytes));
        assert_true(flushes.flush(connection.offers).second >= pool.address(7) + bytes.size());
        pool.deregister();
    }
}

// The range of a region that is gone by the time of the flush is the flush's too.
void ranges_of_deregistered_memory_become_durable(void **) {
    Pool pool;
    Connection connection;
    Flushes flushes;
    connection.offer(pool.region);
    assert_true(connection.write(pool.region.rkey, pool.address(3), pattern()));
    pool.deregister();
    const auto [from, to] = flushes.flush(connection.offers);
    assert_true(from != 0 && from <= pool.address(3) && to > pool.address(3));
}

// The initiator flushes itself what it has written through its mapping, and the range that it names.
void an_initiator_flushes_what_it_has_written(void **) {
    Pool pool;
    Connection connection;
    Flushes flushes;
    const auto notes = [&](std::uint64_t address, std::size_t bytes) {
        return connection.access.may_reach(pool.region.rkey) &&
               connection.access.note_for_flush(pool.region.rkey, address, bytes, flushes.durability);
    };
    connection.offer(pool.region);
    for (unsigned use = 0; use < DirectAccess::uses_before_mapping; ++use) {
        assert_true(connection.write(pool.region.rkey, pool.address(1), pattern()));
        assert_false(notes(pool.address(1), Pool::page));  // the kernel has copied
    }
    connection.access.peer_flushes();
    assert_true(connection.write(pool.region.rkey, pool.address(2), pattern()));
    assert_true(connection.write(pool.region.rkey, pool.address(4), pattern()));
    connection.access.peer_writes();
    assert_false(notes(pool.address(5), Pool::page));
    connection.access.peer_flushes();
    assert_true(connection.write(pool.region.rkey, pool.address(2), pattern()));
    assert_true(connection.write(pool.region.rkey, pool.address(4), pattern()));
    assert_false(notes(pool.address(Pool::pages - 1), Pool::page + 1));
    assert_false(notes(pool.address(0) - 1, 1));
    assert_true(notes(pool.address(5), Pool::page));
    const auto [from, to] = flushes.flush_noted();
    assert_int_equal(to - from, 4 * Pool::page);
    assert_true(notes(pool.address(7), Pool::page));
    const auto [again_from, again_to] = flushes.flush_noted();
    assert_int_equal(again_to - again_from, Pool::page);
    // The mapping stays as long as it is noted, and the target knows what was written there.
    assert_true(connection.write(pool.region.rkey, pool.address(3), pattern()));
    assert_true(notes(pool.address(3), Pool::page));
    pool.deregister();
    connection.access.unmap_withdrawn();
    const auto [last_from, last_to] = flushes.flush_noted();
    assert_int_equal(last_to - last_from, Pool::page);
    assert_false(notes(pool.address(3), Pool::page));
}

// A read of such memory is also a flush, which only the target can do.
void memory_that_can_be_durable_is_not_read(void **) {
    Pool pool;
    Connection connection;
    std::array<std::byte, 8> bytes{};
    connection.offer(pool.region);
    assert_false(connection.read(pool.region.rkey, pool.address(0), bytes));
    pool.deregister();
}

// The peer may note any range, and the target may take it in between: bytes inside the region become durable.
void noted_ranges_are_cut_to_the_region(void **) {
    Pool pool;
    Connection connection;
    Flushes flushes;
    connection.offer(pool.region);
    for (const auto &[noted_from, noted_to] :
         {std::pair<std::uint64_t, std::uint64_t>{UINT64_MAX, UINT64_MAX},
          {UINT64_MAX, 0},
          {0, 10},
          {10, 0},
          {1, 1}}) {
        connection.initiator_board.written[0].from = noted_from;
        connection.initiator_board.written[0].to = noted_to;
        const auto [from, to] = flushes.flush(connection.offers);
        if (from != to) {
            assert_true(from >= pool.address(0) && to <= pool.address(Pool::pages));
        }
    }
    pool.deregister();
}

// The number of a thread that has ended may come again for another process while the peer's socket is still
// open, because a child of the peer has it.
void the_peer_is_looked_for_again(void **) {
    Target target;
    Connection connection;
    connection.offer(target.region);
    assert_true(connection.write(target.region.rkey, target.region.iova, pattern()));
    assert_true(connection.access.look_again());
    connection.target_board.peers_place = reinterpret_cast<std::uintptr_t>(&connection.target_board);
    assert_false(connection.access.look_again());
    assert_false(connection.access.may_reach(target.region.rkey));
}

// An access of a peer that was killed in it never ends. One of a peer that is there may.
void a_peer_that_is_gone_is_not_waited_for(void **) {
    for (const bool is_gone : {false, true}) {
        Target target;
        Connection connection;
        connection.offer(target.region);
        if (is_gone) {
            connection.peer.reset();
        }
        connection.initiator_board.access = Board::Access{.offer = 1}.bits();
        Memory::instance().close(target.region);
        assert_int_equal(Offers::withdraw_region(target.region), is_gone);
        assert_false(connection.write(target.region.rkey, target.region.iova, pattern()));
        connection.initiator_board.access = 0;
        target.deregister();
    }
}

// The peer's system call waits for a page of the memory, and stores when it has that.
void a_call_that_waits_has_not_ended(void **) {
    const base::Fd watcher{static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC))};
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    if (!watcher || ioctl(watcher.get(), UFFDIO_API, &api) != 0) {
        skip();  // this user may not
    }
    void *const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    uffdio_register watched{.range = {.start = reinterpret_cast<std::uintptr_t>(memory), .len = size},
                            .mode = UFFDIO_REGISTER_MODE_MISSING,
                            .ioctls = 0};
    assert_int_equal(ioctl(watcher.get(), UFFDIO_REGISTER, &watched), 0);
    Registered target;
    target.enter(memory, size, 0x10000, everything);
    Connection connection;
    connection.offer(target.region);
    std::thread writer{[&] { (void)connection.write(target.region.rkey, target.region.iova, pattern()); }};
    uffd_msg waits{};
    assert_int_equal(read(watcher.get(), &waits, sizeof(waits)), sizeof(waits));
    Memory::instance().close(target.region);
    assert_false(Offers::withdraw_region(target.region));
    assert_int_equal(ioctl(watcher.get(), UFFDIO_UNREGISTER, &watched.range), 0);
    writer.join();
    assert_memory_equal(memory, pattern().data(), pattern().size());
    target.deregister();
    munmap(memory, size);
}

// A thread waits for the end of an access, before the memory is deregistered. Other connections go on.
void others_do_not_wait_for_the_end_of_an_access(void **) {
    const test::ChangedLimit longer{test::limits().access_timeout, std::chrono::seconds{20}};
    Target target;
    Target other;
    Connection connection;
    Connection another;
    connection.offer(target.region);
    connection.initiator_board.access = Board::Access{.offer = 1}.bits();
    Memory::instance().close(target.region);
    bool ended = false;
    std::thread deregistering{[&] { ended = Offers::withdraw_region(target.region); }};
    while (connection.target_board.offers[0].key != 0) {
        std::this_thread::yield();
    }
    another.offer(other.region);
    const bool written = another.write(other.region.rkey, other.region.iova, pattern());
    another.offers.end();
    other.deregister();
    connection.initiator_board.access = 0;
    deregistering.join();
    assert_true(written);
    assert_true(ended);  // nothing has waited until the thread gave up
    target.deregister();
}

// The connection ends while another thread waits for the end of its peer's access.
void a_connection_ends_while_its_access_is_awaited(void **) {
    const pid_t process = test::fork_child();
    if (process == 0) {
        pause();
    }
    Target target;
    auto connection = std::make_unique<Connection>(true, process);
    connection->offer(target.region);
    connection->initiator_board.access = Board::Access{.offer = 1}.bits();
    Memory::instance().close(target.region);
    std::atomic<bool> ended{false};
    std::thread deregistering{[&] {
        while (!Offers::withdraw_region(target.region)) {
        }
        ended = true;
    }};
    while (connection->target_board.offers[0].key != 0) {
        std::this_thread::yield();
    }
    connection.reset();
    assert_false(ended);
    assert_int_equal(kill(process, SIGKILL), 0);
    assert_int_equal(waitpid(process, nullptr, 0), process);
    deregistering.join();
    target.deregister();
}

// This end gives its link up first, and the peer still accesses the memory. Its board is gone then, so only
// its process tells whether it still does.
void an_end_that_gives_up_waits_for_the_peer(void **) {
    Target target;
    const pid_t process = test::fork_child();
    if (process == 0) {
        pause();
    }
    {
        Connection connection{true, process};
        connection.offer(target.region);
        (void)shutdown(connection.own.get(), SHUT_RDWR);
        connection.initiator_board.access = Board::Access{.offer = 1}.bits();
        const auto begun = base::Clock::now();
        connection.offers.end();
        assert_true(base::Clock::now() - begun >= test::limits().access_timeout);
    }
    Memory::instance().close(target.region);
    assert_false(Offers::withdraw_region(target.region));
    assert_int_equal(kill(process, SIGKILL), 0);
    assert_int_equal(waitpid(process, nullptr, 0), process);
    target.deregister();
}

// The peer says of each offer in turn that it uses it.
void a_peer_that_lies_is_waited_for_once(void **) {
    std::array<std::unique_ptr<Target>, Board::most_offers> targets;
    Connection connection;
    for (auto &target : targets) {
        target = std::make_unique<Target>();
        connection.offer(target->region);
    }
    {
        const std::jthread liar{[&](const std::stop_token &over) {
            while (!over.stop_requested()) {
                for (std::uint32_t number = 0; number < Board::most_offers; ++number) {
                    if (connection.target_board.offers[number].key == 0) {
                        connection.initiator_board.access = number + 1;
                    }
                }
            }
        }};
        const auto begun = base::Clock::now();
        connection.offers.withdraw_all();
        assert_true(base::Clock::now() - begun < 2 * test::limits().access_timeout);
    }
    connection.initiator_board.access = 0;
    for (auto &target : targets) {
        target->deregister();
    }
}

// A program registers memory, has it written, and deregisters it, and its peer never flushes.
void written_regions_that_are_durable_are_forgotten(void **) {
    Connection connection;
    std::vector<std::weak_ptr<persist::Region>> regions;
    for (int round = 0; round < 200; ++round) {
        Target target{everything | SOFTRDMA_ACCESS_FLUSH_PERSISTENT};
        const auto begin = reinterpret_cast<std::uintptr_t>(target.memory());
        auto opened = persist::Region::open_as(
            target.memory(), size, {{begin, begin + size, persist::WriteBack::CacheLines, "is DAX"}});
        assert_true(opened.has_value());
        target.region.durable = std::move(*opened);
        regions.emplace_back(target.region.durable);
        connection.offer(target.region);
        assert_true(connection.write(target.region.rkey, target.region.iova, pattern()));
        target.deregister();
        assert_true(target.region.durable.use_count() > 1);
        target.region.durable->close();
    }
    assert_true(std::ranges::count_if(regions, [](const auto &one) { return !one.expired(); }) <=
                static_cast<long>(Board::most_offers));
}

// The peer writes random numbers on its boards. The initiator's own memory stays as it is but for the
// buffer of a read, and the target withdraws its offers all the same.
void random_boards_reach_nothing_of_the_initiator(void **) {
    std::mt19937_64 random{1};
    struct {
        std::array<std::byte, margin> before;
        std::array<std::byte, 64> buffer;
        std::array<std::byte, margin> after;
    } initiator{};
    auto target = std::make_unique<Target>();
    auto connection = std::make_unique<Connection>(false);
    connection->offer(target->region);
    const auto any = [&random](auto &number) {
        number = static_cast<std::remove_reference_t<decltype(number)>::value_type>(random());
    };
    for (unsigned long number = 0; number < random_boards; ++number) {
        Board &peers = connection->target_board;
        Board::Offer &offer = peers.offers[random() % Board::most_offers];
        switch (random() % 9) {
            case 0:
                any(offer.key);
                break;
            case 1:
                any(offer.rights);
                break;
            case 2:
                any(offer.begin);
                break;
            case 3:
                any(offer.length);
                break;
            case 4:
                offer.place = random() % 4096;
                break;  // nothing is mapped there
            case 5:
                any(peers.changes);
                break;
            case 6:
                any(peers.thread);
                break;
            case 7:
                any(connection->initiator_board.written[random() % Board::most_offers].from);
                break;
            default:
                any(connection->initiator_board.written[random() % Board::most_offers].to);
                break;
        }
        const std::uint32_t key = random() % 2 == 0 ? target->region.rkey : offer.key.load();
        const std::uint64_t address = random() % 2 == 0 ? target->region.iova : offer.begin.load();
        if (random() % 2 == 0) {
            (void)connection->write(key, address, initiator.buffer);
        } else {
            (void)connection->read(key, address, initiator.buffer);
        }
        assert_true(std::ranges::all_of(initiator.before, [](std::byte one) { return one == std::byte{0}; }));
        assert_true(std::ranges::all_of(initiator.after, [](std::byte one) { return one == std::byte{0}; }));
        if (random() % 64 == 0) {
            connection = std::make_unique<Connection>(false);
            target = std::make_unique<Target>();
            connection->offer(target->region);
        }
    }
}

}  // namespace

int main(int argc, char **argv) {
    if (argc > 1) {
        random_boards = std::strtoul(argv[1], nullptr, 10);
    }
    test::limits().access_timeout = std::chrono::milliseconds{100};
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_is_offered_is_reached),
        cmocka_unit_test(nothing_else_is),
        cmocka_unit_test(a_right_that_is_not_granted_is_not_offered),
        cmocka_unit_test(nothing_is_reached_after_the_offer),
        cmocka_unit_test(offers_are_limited),
        cmocka_unit_test(deregistering_waits_for_an_access),
        cmocka_unit_test(another_process_is_not_taken_for_the_peer),
        cmocka_unit_test(a_thread_of_another_process_is_not_reached),
        cmocka_unit_test(a_thread_that_is_gone_is_not_reached),
        cmocka_unit_test(memory_that_vanished_is_not_reached),
        cmocka_unit_test(written_ranges_become_durable),
        cmocka_unit_test(ranges_of_deregistered_memory_become_durable),
        cmocka_unit_test(an_initiator_flushes_what_it_has_written),
        cmocka_unit_test(memory_that_can_be_durable_is_not_read),
        cmocka_unit_test(noted_ranges_are_cut_to_the_region),
        cmocka_unit_test(the_peer_is_looked_for_again),
        cmocka_unit_test(a_peer_that_is_gone_is_not_waited_for),
        cmocka_unit_test(a_call_that_waits_has_not_ended),
        cmocka_unit_test(others_do_not_wait_for_the_end_of_an_access),
        cmocka_unit_test(a_connection_ends_while_its_access_is_awaited),
        cmocka_unit_test(an_end_that_gives_up_waits_for_the_peer),
        cmocka_unit_test(a_peer_that_lies_is_waited_for_once),
        cmocka_unit_test(written_regions_that_are_durable_are_forgotten),
        cmocka_unit_test(random_boards_reach_nothing_of_the_initiator),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
