// SPDX-License-Identifier: BSD-3-Clause
// All earlier writes become durable before the device answers a persistent flush, even
// when a peer sends other messages in between. This program replaces msync, the one call
// that makes the pages of a file durable.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "soft/wire/rdmap.hpp"

// These come last, because they assert.
#include "../persist/loop.hpp"
#include "device.hpp"

namespace {

std::atomic<std::uintptr_t> watched{0};
std::atomic<int> synced{0};  // calls that covered the watched byte
std::atomic<int> error{0};   // of the next of them

}  // namespace

extern "C" [[gnu::visibility("default")]] int msync(void *address, std::size_t length, int flags) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    if (watched >= begin && watched - begin < length) {
        ++synced;
        if (const int told = error.exchange(0); told != 0) {
            errno = told;
            return -1;
        }
    }
    return static_cast<int>(syscall(SYS_msync, address, length, flags));
}

namespace {

using namespace soft::wire;
using test::Bytes;
using test::Device;
using test::Ends;
using test::fpdu;
using test::pattern;
using test::Peer;

constexpr std::size_t pool_bytes = 4096;

// This is mapped memory of a file in the current folder. The file stays, so
// that no other file gets its inode number.
class Pool {
public:
    explicit Pool(const std::string &folder = ".") : name_{folder + "/durable-XXXXXX"} {
        const int file = mkostemp(name_.data(), O_CLOEXEC);
        assert_true(file >= 0);
        assert_int_equal(ftruncate(file, pool_bytes), 0);
        address = mmap(nullptr, pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        assert_ptr_not_equal(address, MAP_FAILED);
    }
    ~Pool() { (void)munmap(address, pool_bytes); }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    void *address = nullptr;

    // Registers the file for everything that a peer may do. Returns null
    // on a file system that is not durable.
    [[nodiscard]] ibv_mr *registered(const Device &device) const {
        ibv_mr *const region =
            softrdma_ibv_reg_mr_iova2(device.mr->pd, address, pool_bytes, 0,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                          IBV_ACCESS_REMOTE_READ | SOFTRDMA_ACCESS_FLUSH_PERSISTENT);
        assert_true(region != nullptr || errno == EOPNOTSUPP);
        watched = reinterpret_cast<std::uintptr_t>(address);
        synced = 0;
        return region;
    }

private:
    std::string name_;
};

// Returns a persistent flush that names no range: it flushes what the connection wrote.
Bytes flush_of_all(std::uint32_t msn) {
    return fpdu({.opcode = Opcode::FlushRequest, .msn = msn},
                encode(FlushRequest{.stag = 0, .offset = 0, .length = 0, .level = FlushLevel::Persistent}));
}

// Writes 8 bytes at the beginning of the region, and waits until they are placed. It uses message number 1.
void write_and_wait(Peer &peer, const ibv_mr &region) {
    peer.send(fpdu({.opcode = Opcode::Write, .stag = region.rkey, .offset = 0}, pattern(8, 1)));
    peer.send(fpdu({.opcode = Opcode::ReadRequest, .msn = 1}, encode(ReadRequest{})));
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::ReadResponse);
}

// The device keeps a send that has no receive yet. The keys and offsets in its header come from the peer, and
// do not record what was written.
void a_kept_send_hides_no_write(Ends &ends) {
    auto &[device, peer, other] = ends;
    const Pool pool;
    ibv_mr *const region = pool.registered(device);
    if (region == nullptr) {
        skip();
    }
    (void)device.establish(peer, {.soft_operations = true, .ird = 4, .ord = 4});
    peer.send(fpdu({.opcode = Opcode::Write, .stag = region->rkey, .offset = 0}, pattern(8, 1)));
    peer.send(fpdu({.opcode = Opcode::Send, .stag = region->rkey, .msn = 1}, pattern(pool_bytes + 1, 2)));
    peer.send(flush_of_all(1));
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::FlushResponse);
    assert_true(synced > 0);
    assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
}

// When the peer asks, the memory of a deregistered region may belong to another object. So a peer's writes
// into a region are durable before the region is gone.
void a_deregistered_region_is_durable(Ends &ends) {
    auto &[device, peer, other] = ends;
    const Pool pool;
    ibv_mr *const region = pool.registered(device);
    if (region == nullptr) {
        skip();
    }
    (void)device.establish(peer, {.soft_operations = true, .ird = 4, .ord = 4});
    write_and_wait(peer, *region);
    assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
    assert_int_equal(synced, 1);
    assert_ptr_equal(
        mmap(pool.address, pool_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        pool.address);
    peer.send(flush_of_all(2));
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::FlushResponse);
    assert_int_equal(synced, 1);
}

void a_deregistered_region_that_is_lost_fails_the_flush(Ends &ends) {
    auto &[device, peer, other] = ends;
    const Pool pool;
    ibv_mr *const region = pool.registered(device);
    if (region == nullptr) {
        skip();
    }
    (void)device.establish(peer, {.soft_operations = true, .ird = 4, .ord = 4});
    write_and_wait(peer, *region);
    error = EIO;
    assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
    peer.send(flush_of_all(2));
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::Terminate);
}

// Deregistering does not wait for storage when no peer wrote, or when the peers have flushed their writes.
void deregistering_what_is_durable_waits_for_nothing(Ends &ends) {
    auto &[device, peer, other] = ends;
    const Pool pool;
    ibv_mr *const unwritten = pool.registered(device);
    if (unwritten == nullptr) {
        skip();
    }
    (void)device.establish(peer, {.soft_operations = true, .ird = 4, .ord = 4});
    ibv_mr *const region = pool.registered(device);
    write_and_wait(peer, *region);
    peer.send(flush_of_all(2));
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::FlushResponse);
    synced = 0;
    assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
    assert_int_equal(softrdma_ibv_dereg_mr(unwritten), 0);
    assert_int_equal(synced, 0);
}

// More regions come and go than the device remembers ranges, and the bytes of one are lost.
void many_regions_come_and_go(Ends &ends) {
    auto &[device, peer, other] = ends;
    const Pool lost;
    const Pool pool;
    ibv_mr *region = lost.registered(device);
    if (region == nullptr) {
        skip();
    }
    (void)device.establish(peer, {.soft_operations = true, .ird = 4, .ord = 4});
    for (std::uint32_t round = 1; round <= 40; ++round) {
        peer.send(fpdu({.opcode = Opcode::Write, .stag = region->rkey, .offset = 0}, pattern(8, 1)));
        peer.send(fpdu({.opcode = Opcode::ReadRequest, .msn = round}, encode(ReadRequest{})));
        assert_true(peer.receive_fpdu().segment.opcode == Opcode::ReadResponse);
        error = round == 1 ? EIO : 0;
        assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
        region = pool.registered(device);
    }
    assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
    peer.send(flush_of_all(41));
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::Terminate);
}

// The flush waits for both devices, in turn.
void two_devices_are_durable(Ends &ends) {
    auto &[device, peer, other] = ends;
    if (!on_storage() || !can_mount_loop()) {
        skip();
    }
    {
        const LoopMount mounted{"."};
        const Pool here;
        const Pool there{"mounted"};
        ibv_mr *const first = here.registered(device);
        ibv_mr *const second = there.registered(device);
        (void)device.establish(peer, {.soft_operations = true, .ird = 4, .ord = 4});
        peer.send(fpdu({.opcode = Opcode::Write, .stag = second->rkey, .offset = 0}, pattern(8, 1)));
        write_and_wait(peer, *first);
        peer.send(flush_of_all(2));
        assert_true(peer.receive_fpdu().segment.opcode == Opcode::FlushResponse);
        assert_int_equal(synced, 1);
        watched = reinterpret_cast<std::uintptr_t>(here.address);
        peer.send(fpdu({.opcode = Opcode::Write, .stag = second->rkey, .offset = 0}, pattern(8, 1)));
        peer.send(fpdu({.opcode = Opcode::Write, .stag = first->rkey, .offset = 0}, pattern(8, 1)));
        error = EIO;
        peer.send(flush_of_all(3));
        assert_true(peer.receive_fpdu().segment.opcode == Opcode::Terminate);
        assert_int_equal(softrdma_ibv_dereg_mr(first), 0);
        assert_int_equal(softrdma_ibv_dereg_mr(second), 0);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(a_kept_send_hides_no_write),
                                fixture_test(a_deregistered_region_is_durable),
                                fixture_test(a_deregistered_region_that_is_lost_fails_the_flush),
                                fixture_test(deregistering_what_is_durable_waits_for_nothing),
                                fixture_test(many_regions_come_and_go),
                                fixture_test(two_devices_are_durable)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
