// SPDX-License-Identifier: BSD-3-Clause
// verbs/extended: tests native operations of kernel devices, on a queue pair with the layout of rdma-core 45.
#include "verbs/extended.hpp"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "verbs/native.hpp"

extern "C" {
#include <cmocka.h>
}

namespace {

using verbs::native_atomic_write;
using verbs::native_flush;

// This is struct ibv_qp_ex of rdma-core 45: the members that rdma-core 44 has, and one more.
struct QueuePair45 {
    alignas(ibv_qp_ex) std::byte as_of_44[offsetof(ibv_qp_ex, wr_atomic_write) + sizeof(void *)];
    void (*wr_flush)(ibv_qp_ex *, std::uint32_t, std::uint64_t, std::size_t, std::uint8_t, std::uint8_t);
};
#if UINTPTR_MAX == UINT64_MAX
// Programs that were compiled against later headers find the function at this offset on such machines.
static_assert(offsetof(QueuePair45, wr_flush) == 352 && sizeof(QueuePair45) == 360);
#endif

struct Posted {
    int started;
    int completed;
    std::uint32_t rkey;
    std::uint64_t address;
    std::size_t length;
    int type;
    int level;
    char bytes[8];
};
Posted posted;
QueuePair45 memory;
int completion_result;

ibv_qp_ex *queue_pair() {
    return reinterpret_cast<ibv_qp_ex *>(&memory);
}

int make_queue_pair(void **) {
    posted = {};
    memory = {};
    completion_result = 0;
    queue_pair()->wr_start = [](ibv_qp_ex *) { ++posted.started; };
    queue_pair()->wr_complete = [](ibv_qp_ex *) {
        ++posted.completed;
        return completion_result;
    };
    queue_pair()->wr_atomic_write = [](ibv_qp_ex *, std::uint32_t rkey, std::uint64_t address,
                                       const void *source) {
        posted.rkey = rkey;
        posted.address = address;
        std::memcpy(posted.bytes, source, sizeof(posted.bytes));
    };
    memory.wr_flush = [](ibv_qp_ex *, std::uint32_t rkey, std::uint64_t address, std::size_t length,
                         std::uint8_t type, std::uint8_t level) {
        posted.rkey = rkey;
        posted.address = address;
        posted.length = length;
        posted.type = type;
        posted.level = level;
    };
    return 0;
}

void library_is_known_by_its_name(void **) {
    using verbs::extended::has_flush;
    assert_true(has_flush("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.45.0"));
    assert_true(has_flush("/usr/lib64/libibverbs.so.1.15.61.0"));
    assert_true(has_flush("libibverbs.so.1.14.100"));
    assert_true(has_flush("libibverbs.so.1.14.2404mlnx51.0"));
    assert_false(has_flush("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0"));
    assert_false(has_flush("/opt/libibverbs.so.9.9/libibverbs.so.1.8.28.0"));
    for (const char *name :
         {"", "libibverbs.so", "libibverbs.so.", "libibverbs.so.1", "libibverbs.so.1.14",
          "libibverbs.so.1.14.", "libibverbs.so.1.14.x", "libibverbs.so.1.14.-45",
          "libibverbs.so.1.14.99999999999999999999", "/usr/bin/program", "libmlx5.so.1.24.45.0"}) {
        assert_false(has_flush(name));
    }
}

void device_has_what_its_bits_say(void **) {
    using verbs::extended::device_operations;
    constexpr std::uint64_t global = std::uint64_t{1} << 38;
    constexpr std::uint64_t persistent = std::uint64_t{1} << 39;
    constexpr std::uint64_t atomic_write = std::uint64_t{1} << 40;
    ibv_device_attr_ex attributes{};
    assert_int_equal(device_operations(attributes, true), 0);
    // A device with only one kind of flush has no native flush.
    attributes.device_cap_flags_ex = global;
    assert_int_equal(device_operations(attributes, true), 0);
    attributes.device_cap_flags_ex = persistent;
    assert_int_equal(device_operations(attributes, true), 0);
    attributes.device_cap_flags_ex = global | persistent;
    assert_int_equal(device_operations(attributes, true), native_flush);
    assert_int_equal(device_operations(attributes, false), 0);
    attributes.device_cap_flags_ex = global | persistent | atomic_write;
    assert_int_equal(device_operations(attributes, true), native_flush | native_atomic_write);
    assert_int_equal(device_operations(attributes, false), native_atomic_write);
}

void queue_pair_is_asked_for_them(void **) {
    using verbs::extended::send_operations;
    assert_int_equal(send_operations(0), 0);
    assert_int_equal(send_operations(native_flush), 1 << 11);
    assert_int_equal(send_operations(native_flush | native_atomic_write), (1 << 11) | (1 << 12));
}

void queue_pair_has_what_it_was_given(void **) {
    using verbs::extended::queue_pair_operations;
    assert_int_equal(queue_pair_operations(nullptr, true), 0);
    assert_int_equal(queue_pair_operations(queue_pair(), true), native_flush | native_atomic_write);
    // After the end of an older library's queue pair there is other memory.
    assert_int_equal(queue_pair_operations(queue_pair(), false), native_atomic_write);
    memory.wr_flush = nullptr;
    assert_int_equal(queue_pair_operations(queue_pair(), true), native_atomic_write);
    queue_pair()->wr_atomic_write = nullptr;
    assert_int_equal(queue_pair_operations(queue_pair(), true), 0);
}

int post_flush(verbs::Remote remote, std::uint32_t length, verbs::Flush flush, unsigned flags,
               std::uint64_t wr_id) {
    ibv_sge extent{.addr = 0, .length = length, .lkey = 0};
    return verbs::extended::post(queue_pair(), verbs::flush_request(&extent, remote, flush, flags, wr_id));
}

void flush_is_posted(void **) {
    constexpr verbs::Remote remote{.address = 0x1234567890, .rkey = 77};
    assert_int_equal(post_flush(remote, 4096, verbs::Flush::Persistent, IBV_SEND_SIGNALED, 42), 0);
    assert_int_equal(posted.started, 1);
    assert_int_equal(posted.completed, 1);
    assert_int_equal(queue_pair()->wr_id, 42);
    assert_int_equal(queue_pair()->wr_flags, IBV_SEND_SIGNALED);
    assert_int_equal(posted.rkey, 77);
    assert_int_equal(posted.address, 0x1234567890);
    assert_int_equal(posted.length, 4096);
    assert_int_equal(posted.type, 2);   // persistent
    assert_int_equal(posted.level, 0);  // the range, not the region
    completion_result = ENOMEM;
    assert_int_equal(post_flush(remote, 1, verbs::Flush::Visibility, 0, 43), ENOMEM);
    assert_int_equal(queue_pair()->wr_flags, 0);
    assert_int_equal(posted.type, 1);  // global visibility
}

void atomic_write_is_posted(void **) {
    constexpr verbs::Remote remote{.address = 64, .rkey = 78};
    const char bytes[] = "ABCDEFG";
    ibv_sge source{.addr = reinterpret_cast<std::uintptr_t>(bytes), .length = 8, .lkey = 0};
    assert_int_equal(
        verbs::extended::post(queue_pair(), verbs::atomic_write_request(
                                                &source, remote, IBV_SEND_SIGNALED | IBV_SEND_FENCE, 44)),
        0);
    assert_int_equal(posted.started, 1);
    assert_int_equal(posted.completed, 1);
    assert_int_equal(queue_pair()->wr_id, 44);
    assert_int_equal(queue_pair()->wr_flags, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    assert_int_equal(posted.rkey, 78);
    assert_int_equal(posted.address, 64);
    assert_memory_equal(posted.bytes, "ABCDEFG", 8);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(library_is_known_by_its_name),
        cmocka_unit_test(device_has_what_its_bits_say),
        cmocka_unit_test(queue_pair_is_asked_for_them),
        cmocka_unit_test_setup(queue_pair_has_what_it_was_given, make_queue_pair),
        cmocka_unit_test_setup(flush_is_posted, make_queue_pair),
        cmocka_unit_test_setup(atomic_write_is_posted, make_queue_pair),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
