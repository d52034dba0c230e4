// SPDX-License-Identifier: BSD-3-Clause
// What becomes durable before a persistent flush is answered, whatever a peer sends between. The one call
// that makes a file's pages durable, msync, is this program's.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "soft/wire/rdmap.hpp"

// Last, as it wants.
#include "device.hpp"

namespace {

std::atomic<std::uintptr_t> watched{0};
std::atomic<int> synced{0};  // calls that covered the watched byte

}  // namespace

extern "C" [[gnu::visibility("default")]] int msync(void *address, std::size_t length, int flags) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    if (watched >= begin && watched - begin < length) {
        ++synced;
    }
    return static_cast<int>(syscall(SYS_msync, address, length, flags));
}

namespace {

using namespace soft::wire;
using test::Ends;
using test::fpdu;
using test::pattern;

constexpr std::size_t pool_bytes = 4096;

// Mapped memory of a file in the current folder, which goes with the object.
class Pool {
public:
    Pool() {
        const int file = mkostemp(name_.data(), O_CLOEXEC);
        assert_true(file >= 0);
        assert_int_equal(ftruncate(file, pool_bytes), 0);
        address = mmap(nullptr, pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        assert_ptr_not_equal(address, MAP_FAILED);
    }
    ~Pool() {
        (void)munmap(address, pool_bytes);
        (void)unlink(name_.c_str());
    }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    void *address = nullptr;

private:
    std::string name_ = "durable-XXXXXX";
};

// A send that nobody waits for yet is kept. What its header says of keys and offsets is the peer's, and no
// record of what was written.
void a_kept_send_hides_no_write(void **state) {
    auto &[device, peer, other] = *static_cast<Ends *>(*state);
    const Pool pool;
    ibv_mr *const region =
        softrdma_ibv_reg_mr_iova2(device.mr->pd, pool.address, pool_bytes, 0,
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                      SOFTRDMA_ACCESS_FLUSH_PERSISTENT);
    if (region == nullptr) {
        assert_int_equal(errno, EOPNOTSUPP);
        skip();  // built on a file system that is not durable
    }
    watched = reinterpret_cast<std::uintptr_t>(pool.address);
    (void)device.establish(peer, {.soft_operations = true, .ird = 4, .ord = 4});
    peer.send(fpdu({.opcode = Opcode::Write, .stag = region->rkey, .offset = 0}, pattern(8, 1)));
    peer.send(fpdu({.opcode = Opcode::Send, .stag = region->rkey, .msn = 1}, pattern(pool_bytes + 1, 2)));
    synced = 0;
    peer.send(fpdu({.opcode = Opcode::FlushRequest, .msn = 1},
                   encode(FlushRequest{
                       .stag = region->rkey, .offset = 0, .length = 0, .level = FlushLevel::Persistent})));
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::FlushResponse);
    assert_true(synced > 0);
    assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {test_of_ends(a_kept_send_hides_no_write)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
