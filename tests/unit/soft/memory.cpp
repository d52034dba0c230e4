// SPDX-License-Identifier: BSD-3-Clause
// soft/memory: tests that keys cannot be guessed or used again, that every fault
// is found, and that deregistering waits.
#include "soft/memory/memory.hpp"

#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "soft/ground/limits.hpp"
#include "soft/memory/invalidated_keys.hpp"
#include "soft/memory/window.hpp"
#include "softrdma.h"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace {

using soft::Access;
using soft::Fault;
using soft::InvalidatedKeys;
using soft::KeySource;
using soft::Memory;
using soft::MemoryRegion;
using soft::Pin;
using soft::ProtectionDomain;

constexpr std::size_t size = 4096;
constexpr unsigned everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

ProtectionDomain domain;
ProtectionDomain other_domain;
std::array<std::byte, size> bytes;

Memory &memory() {
    return Memory::instance();
}

void describe(MemoryRegion &region, unsigned access = everything) {
    region.pd = &domain;
    region.domain = &domain;
    region.addr = bytes.data();
    region.length = bytes.size();
    region.iova = reinterpret_cast<std::uintptr_t>(bytes.data());
    region.access = access;
}

// This region is registered while it lives.
struct Registered : MemoryRegion {
    explicit Registered(unsigned rights = everything) {
        describe(*this, rights);
        assert_true(memory().insert(*this).has_value());
    }
    ~Registered() { memory().erase(*this); }
    Registered(const Registered &) = delete;
    Registered &operator=(const Registered &) = delete;
};

Access access_to(const MemoryRegion &region) {
    return {
        .by = {&domain}, .key = region.rkey, .address = region.iova, .length = size, .rights = everything};
}

void assert_fault(const Access &access, Fault fault) {
    const auto pin = memory().pin(access);
    assert_false(pin.has_value());
    assert_int_equal(pin.error(), fault);
}

// Peers may read it by this key.
soft::MemoryWindow *window_over(MemoryRegion &region) {
    soft::MemoryWindow *const window = soft::MemoryWindow::alloc(domain, IBV_MW_TYPE_1).value();
    const ibv_mw_bind_info all{
        .mr = &region, .addr = region.iova, .length = size, .mw_access_flags = IBV_ACCESS_REMOTE_READ};
    assert_true(window->bind({&domain}, all, 0).has_value());
    return window;
}

void a_window_whose_end_waits_for_an_access_stops_no_other(void **) {
    Registered region{everything | IBV_ACCESS_MW_BIND};
    soft::MemoryWindow *const window = window_over(region);
    const Access access{.by = {&domain, 1},
                        .key = window->rkey,
                        .address = region.iova,
                        .length = size,
                        .rights = IBV_ACCESS_REMOTE_READ};
    std::atomic<bool> is_gone{false};
    std::thread ends;
    {
        const auto pin = memory().pin(access);
        assert_true(pin.has_value());
        ends = std::thread{[&] { is_gone = soft::MemoryWindow::dealloc(window).has_value(); }};
        while (memory().pin(access).has_value()) {
            std::this_thread::yield();
        }
        assert_true(soft::MemoryWindow::dealloc(window_over(region)).has_value());
        assert_false(is_gone);
    }
    ends.join();
    assert_true(is_gone);
}

void a_pin_is_the_region(void **) {
    const Registered region;
    const auto pin = memory().pin(access_to(region));
    assert_true(pin.has_value());
    assert_ptr_equal(&pin->region(), static_cast<const MemoryRegion *>(&region));
    assert_ptr_equal(pin->region().at(region.iova + 5), bytes.data() + 5);
    assert_int_equal(region.lkey, region.rkey);
}

// Checks the published test vector.
void keys_are_a_ciphers(void **) {
    constexpr KeySource::Secret secret{0x0100, 0x0908, 0x1110, 0x1918};
    assert_int_equal(KeySource::encrypted(0x6574694c, secret), 0xa86842f2);
}

// A peer cannot guess keys even when it knows all earlier ones: two processes, or a
// process and its child, have different keys.
void keys_are_not_guessed(void **) {
    constexpr std::size_t count = 1024;
    KeySource one;
    KeySource other;
    KeySource child = one;
    child.renew();
    std::set<std::uint32_t> keys;
    std::set<std::uint32_t> upper_halves;
    std::set<std::uint32_t> lower_halves;
    for (std::size_t i = 0; i < count; ++i) {
        for (KeySource *const source : {&one, &other, &child}) {
            const std::uint32_t key = source->next();
            keys.insert(key);
            upper_halves.insert(key >> 16);
            lower_halves.insert(key & 0xffff);
        }
    }
    // 3072 keys are drawn from 2^32, and their halves from 65536. Seven or more repetitions of a key do not
    // occur, and more than half of the halves differ.
    assert_true(keys.size() > 3 * count - 7);
    assert_true(upper_halves.size() > 3 * count / 2 && lower_halves.size() > 3 * count / 2);
}

void keys_of_regions_are_all_over(void **) {
    constexpr std::size_t count = 64;
    std::vector<std::unique_ptr<Registered>> regions;
    std::set<std::uint32_t> slots;
    for (std::size_t i = 0; i < count; ++i) {
        regions.push_back(std::make_unique<Registered>());
        slots.insert(regions.back()->rkey >> 16);
        assert_true(regions.back()->rkey > 0xffff);  // 0, 1 and what siw gives its first regions are nobody's
    }
    // If the device gave out the slots in a row, they would be 32 or 64 neighbours.
    assert_true(*slots.rbegin() - *slots.begin() > 2 * count);
}

void other_keys_are_nobodys(void **) {
    const Registered region;
    Access access = access_to(region);
    for (unsigned bit = 0; bit < 32; ++bit) {
        access.key = region.rkey ^ (1U << bit);
        assert_fault(access, Fault::InvalidKey);
    }
    for (const std::uint32_t key : {0U, 1U, 0x100U, 0xffffU, 0xffff0000U, 0xffffffffU}) {
        access.key = key;
        assert_fault(access, Fault::InvalidKey);
    }
}

void a_stale_key_is_refused(void **) {
    constexpr int generations = 200'000;
    MemoryRegion region;
    describe(region);
    assert_true(memory().insert(region).has_value());
    const Access stale = access_to(region);
    memory().erase(region);
    assert_fault(stale, Fault::InvalidKey);
    for (int again = 0; again < generations; ++again) {
        assert_true(memory().insert(region).has_value());
        assert_int_not_equal(region.rkey, stale.key);
        memory().erase(region);
    }
    assert_fault(stale, Fault::InvalidKey);
}

void bounds(void **) {
    const Registered region;
    Access access = access_to(region);
    for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{size}}) {
        access.length = length;
        access.address = region.iova;
        assert_true(memory().pin(access).has_value());
        access.address = region.iova + size - length;
        assert_true(memory().pin(access).has_value());
        access.address = region.iova + size - length + 1;
        assert_fault(access, Fault::Bounds);
        access.address = region.iova - 1;
        assert_fault(access, Fault::Bounds);
    }
    access.address = region.iova;
    for (const std::uint64_t length : {std::uint64_t{size + 1}, std::uint64_t{1} << 32}) {
        access.length = length;
        assert_fault(access, Fault::Bounds);
    }
    access.address = 0;
    access.length = 1;
    assert_fault(access, Fault::Bounds);
}

void wrap(void **) {
    const Registered region;
    Access access = access_to(region);
    access.length = UINT64_MAX;
    assert_fault(access, Fault::Wrap);
    access.address = UINT64_MAX - 7;
    access.length = 16;
    assert_fault(access, Fault::Wrap);
}

// Peers use the address that the program gave, and the bytes are at another one.
void an_address_of_its_own(void **) {
    MemoryRegion region;
    describe(region);
    region.iova = 0x10000;
    assert_true(memory().insert(region).has_value());
    Access access = access_to(region);
    {
        const auto pin = memory().pin(access);
        assert_true(pin.has_value());
        assert_ptr_equal(pin->region().at(0x10010), bytes.data() + 0x10);
    }
    access.address = reinterpret_cast<std::uintptr_t>(bytes.data());
    assert_fault(access, Fault::Bounds);
    memory().erase(region);
}

void rights(void **) {
    static constexpr unsigned kinds[] = {IBV_ACCESS_LOCAL_WRITE,           IBV_ACCESS_REMOTE_WRITE,
                                         IBV_ACCESS_REMOTE_READ,           SOFTRDMA_ACCESS_FLUSH_GLOBAL,
                                         SOFTRDMA_ACCESS_FLUSH_PERSISTENT, 0};
    for (const unsigned given : kinds) {
        const Registered region{given};
        for (const unsigned needed : kinds) {
            Access access = access_to(region);
            access.rights = needed;
            if (needed == given || needed == 0) {
                assert_true(memory().pin(access).has_value());
            } else {
                assert_fault(access, Fault::Access);
            }
        }
        Access access = access_to(region);
        access.rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;  // all of them are needed
        assert_fault(access, Fault::Access);
    }
}

void another_protection_domain(void **) {
    const Registered region;
    Access access = access_to(region);
    access.by.pd = &other_domain;
    assert_fault(access, Fault::ProtectionDomain);
    access.by.pd = nullptr;
    assert_fault(access, Fault::ProtectionDomain);
}

// Only the queue pair's own peer reaches the region. No other peer reaches it, or learns that it exists.
// The program uses the region as before.
void another_queue_pair(void **) {
    MemoryRegion region;
    describe(region);
    region.queue_pair = 7;
    assert_true(memory().insert(region).has_value());
    Access access = access_to(region);
    assert_true(memory().pin(access).has_value());
    access.by.queue_pair = 7;
    assert_true(memory().pin(access).has_value());
    assert_true(memory().registration_for(access.by, region.rkey).has_value());
    for (const std::uint64_t other : {std::uint64_t{6}, std::uint64_t{8}, std::uint64_t{1} << 32 | 7}) {
        access.by.queue_pair = other;
        assert_fault(access, Fault::QueuePair);
        assert_false(memory().registration_for(access.by, region.rkey).has_value());
    }
    memory().erase(region);
}

void faults_have_their_codes(void **) {
    using namespace soft::wire;
    const struct {
        Fault fault;
        TerminateCode read;
        TerminateCode write;
    } codes[] = {{Fault::InvalidKey, terminate::invalid_stag, terminate::tagged_invalid_stag},
                 {Fault::Bounds, terminate::bounds, terminate::tagged_bounds},
                 {Fault::Access, terminate::access, terminate::access},
                 {Fault::ProtectionDomain, terminate::invalid_stag, terminate::tagged_invalid_stag},
                 {Fault::QueuePair, terminate::invalid_stag, terminate::tagged_invalid_stag},
                 {Fault::QueuePairAccess, terminate::access, terminate::access},
                 {Fault::Wrap, terminate::wrap, terminate::tagged_wrap}};
    std::set<std::string> texts;
    for (const auto &line : codes) {
        assert_true(soft::rdmap_code(line.fault) == line.read);
        assert_true(soft::tagged_code(line.fault) == line.write);
        texts.insert(soft::text_of(line.fault));
    }
    assert_int_equal(texts.size(), std::size(codes));
    assert_int_equal(texts.count(""), 0);
}

void the_table_is_bounded(void **) {
    std::vector<MemoryRegion> regions(soft::limits::max_mr);
    std::size_t count = 0;
    for (MemoryRegion &region : regions) {
        describe(region);
        if (!memory().insert(region)) {
            break;
        }
        ++count;
    }
    assert_int_equal(count, soft::limits::max_mr);
    MemoryRegion one_more;
    describe(one_more);
    const auto refused = memory().insert(one_more);
    assert_false(refused.has_value());
    assert_int_equal(refused.error().number, ENOMEM);
    assert_true(memory().pin(access_to(regions.front())).has_value());
    assert_true(memory().pin(access_to(regions.back())).has_value());
    memory().erase(regions.back());
    assert_true(memory().insert(one_more).has_value());
    memory().erase(one_more);
    regions.pop_back();
    for (const MemoryRegion &region : regions) {
        memory().erase(region);
    }
}

void erasing_waits_for_pins(void **) {
    MemoryRegion region;
    describe(region);
    assert_true(memory().insert(region).has_value());
    const Access access = access_to(region);
    auto first = memory().pin(access);
    auto second = memory().pin(access);
    assert_true(first.has_value() && second.has_value());
    std::atomic<bool> erased{false};
    std::thread owner{[&] {
        memory().erase(region);
        erased.store(true);
    }};
    // Erasing has begun when there are no new pins.
    while (memory().pin(access).has_value()) {
        std::this_thread::yield();
    }
    const bool early = erased.load();
    {
        const Pin gone = std::move(*first);
    }
    const bool still_early = erased.load();
    const bool same_region = &second->region() == &region;
    {
        const Pin gone = std::move(*second);
    }
    owner.join();
    assert_false(early || still_early);
    assert_true(same_region);
    assert_true(erased.load());
}

// A connection gives a key back once. It does not touch the keys of
// another connection, which are `others` here.
void a_key_is_given_back_once(void **) {
    const Registered region;
    const Registered other;
    const Registered local{IBV_ACCESS_LOCAL_WRITE};
    InvalidatedKeys keys;
    const InvalidatedKeys others;
    assert_true(keys.add({&domain}, region.rkey));
    assert_false(keys.empty());
    assert_true(keys.contains({&domain}, region.rkey));
    assert_false(keys.contains({&domain}, other.rkey));
    assert_false(others.contains({&domain}, region.rkey));
    assert_false(keys.add({&domain}, region.rkey));
    assert_false(keys.add({&domain}, local.rkey));
    assert_false(keys.add({&domain}, region.rkey ^ 1));
    assert_false(keys.add({&other_domain}, other.rkey));
    assert_true(keys.add({&domain}, other.rkey));
    assert_int_equal(keys.size(), 2);
}

void keys_of_regions_that_are_gone_are_forgotten(void **) {
    const Registered kept;
    InvalidatedKeys keys;
    assert_true(keys.add({&domain}, kept.rkey));
    for (int turn = 0; turn < 1000; ++turn) {
        const Registered region;
        assert_true(keys.add({&domain}, region.rkey));
        assert_true(keys.contains({&domain}, kept.rkey));
    }
    assert_in_range(keys.size(), 1, 4);
}

// Sanitizers check here that no thread uses a region after erase() has returned.
void threads(void **) {
    constexpr int turns = 2000;
    constexpr int readers = 3;
    std::atomic<std::uint32_t> key{0};
    std::atomic<bool> stop{false};
    std::atomic<unsigned> wrong{0};
    std::vector<std::thread> pinning;
    for (int i = 0; i < readers; ++i) {
        pinning.emplace_back([&] {
            while (!stop.load()) {
                const auto pin = memory().pin({.by = {&domain},
                                               .key = key.load(),
                                               .address = 0x1000,
                                               .length = 8,
                                               .rights = everything});
                if (pin && (pin->region().length != 8 || pin->region().at(0x1000) == nullptr)) {
                    ++wrong;
                }
                if (!pin && pin.error() != Fault::InvalidKey) {
                    ++wrong;
                }
            }
        });
    }
    bool inserted = true;
    for (int turn = 0; turn < turns; ++turn) {
        auto block = std::make_unique<std::uint64_t>(0);
        auto region = std::make_unique<MemoryRegion>();
        describe(*region);
        region->addr = block.get();
        region->length = 8;
        region->iova = 0x1000;
        inserted = inserted && memory().insert(*region).has_value();
        key.store(region->rkey);
        memory().erase(*region);
    }
    stop.store(true);
    for (std::thread &thread : pinning) {
        thread.join();
    }
    assert_true(inserted);
    assert_int_equal(wrong.load(), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(a_pin_is_the_region),
                                cmocka_unit_test(a_window_whose_end_waits_for_an_access_stops_no_other),
                                cmocka_unit_test(keys_are_a_ciphers),
                                cmocka_unit_test(keys_are_not_guessed),
                                cmocka_unit_test(keys_of_regions_are_all_over),
                                cmocka_unit_test(other_keys_are_nobodys),
                                cmocka_unit_test(a_stale_key_is_refused),
                                cmocka_unit_test(bounds),
                                cmocka_unit_test(wrap),
                                cmocka_unit_test(an_address_of_its_own),
                                cmocka_unit_test(rights),
                                cmocka_unit_test(another_protection_domain),
                                cmocka_unit_test(another_queue_pair),
                                cmocka_unit_test(faults_have_their_codes),
                                cmocka_unit_test(the_table_is_bounded),
                                cmocka_unit_test(a_key_is_given_back_once),
                                cmocka_unit_test(keys_of_regions_that_are_gone_are_forgotten),
                                cmocka_unit_test(erasing_waits_for_pins),
                                cmocka_unit_test(threads)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
