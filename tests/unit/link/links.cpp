// SPDX-License-Identifier: BSD-3-Clause
// soft/link: each link keeps the contract, and MemoryLink takes little memory.
#include <sys/stat.h>

#include "faulty_link.hpp"
#include "soft/link/shared_rings.hpp"
#include "tls_links.hpp"
// This comes last, because it asserts.
#include "../base/fixture.hpp"

namespace {

// Takes and gives a few bytes at once, and nothing every other time. That is legal, and as unpleasant as a
// link can be.
test::Links unpleasant(test::Links links) {
    constexpr test::LinkFaults faults{.most = 1000, .delays = true};
    return {.here = std::make_unique<test::FaultyLink>(std::move(links.here), faults),
            .there = std::make_unique<test::FaultyLink>(std::move(links.there), faults)};
}

test::Links unpleasant_tcp_links() {
    return unpleasant(test::tcp_links());
}

test::Links unpleasant_memory_links() {
    return unpleasant(test::memory_links());
}

test::Links unpleasant_tls_links() {
    return unpleasant(test::tls_links());
}

// The link below takes and gives a few bytes at once.
test::Links tls_over_small_steps() {
    constexpr test::LinkFaults faults{.most = 1000};
    test::Links links = test::tcp_links();
    links.here = std::make_unique<test::FaultyLink>(std::move(links.here), faults);
    links.there = std::make_unique<test::FaultyLink>(std::move(links.there), faults);
    return test::tls_over(std::move(links));
}

// Messages that are received before the next one is sent take the first pages of the ring again and again,
// however many there are.
void a_few_bytes_at_a_time_take_little_memory(void **) {
    base::Fd file;
    const auto [here, there] = test::memory_links(&file);
    const test::Bytes message(300, std::byte{1});
    for (int number = 0; number < 10000; ++number) {
        assert_int_equal(test::send(*here, message).bytes, message.size());
        test::Bytes arrived;
        while (arrived.size() < message.size()) {
            (void)test::receive(*there, arrived, message.size());
        }
        assert_true(there->rest());  // the room of the bytes is the sender's again
    }
    struct stat memory = {};
    assert_int_equal(fstat(file.get(), &memory), 0);
    constexpr blkcnt_t block = 512;
    assert_in_range(memory.st_blocks * block, 1, 3 * 4096);
}

// The sender of a full ring sends no more, so the receiver has no other cause to give it the room of the
// bytes that it has received.
struct Emptied : test::Links {
    Emptied() : Links{test::small_memory_links()} {
        const test::Bytes bytes(soft::SharedRings::small_ring);
        assert_int_equal(test::send(*here, bytes).bytes, bytes.size());
        test::Bytes arrived;
        assert_int_equal(test::receive(*there, arrived, 2 * bytes.size()).bytes, bytes.size());
        assert_false(here->ready().writable);
    }
};

void a_look_that_finds_nothing_gives_the_room_back(Emptied &links) {
    assert_false(links.there->look().value());
    assert_true(links.here->ready().writable);
}

void a_user_that_does_not_read_keeps_the_room(Emptied &links) {
    (void)links.there->want({.ended = true});
    assert_false(links.there->look().value());
    assert_true(links.there->rest());
    assert_false(links.here->ready().writable);
    assert_true(links.here->undelivered());
}

void a_user_that_reads_on_looks_once_more(Emptied &links) {
    (void)links.there->want({.ended = true});
    assert_true(links.there->rest());
    assert_false(links.there->want({.readable = true}));
    assert_true(links.there->rest());
    assert_true(links.here->ready().writable);
}

void room_that_is_kept_is_something_to_receive(Emptied &links) {
    assert_true(links.there->ready().readable);
    std::byte byte;
    const iovec piece{.iov_base = &byte, .iov_len = 1};
    assert_int_equal(links.there->receive({&piece, 1}).bytes, 0);
    assert_false(links.there->ready().readable);
    assert_true(links.here->ready().writable);
}

}  // namespace

int main() {
    const CMUnitTest own_tests[] = {
        cmocka_unit_test(a_few_bytes_at_a_time_take_little_memory),
        fixture_test(a_look_that_finds_nothing_gives_the_room_back),
        fixture_test(a_user_that_does_not_read_keeps_the_room),
        fixture_test(a_user_that_reads_on_looks_once_more),
        fixture_test(room_that_is_kept_is_something_to_receive),
    };
    int failed = cmocka_run_group_tests(own_tests, nullptr, nullptr);
    failed += test::run_link_contract("TcpLink", test::tcp_links);
    failed += test::run_link_contract("FaultyLink on TcpLink", unpleasant_tcp_links);
    failed += test::run_link_contract("MemoryLink", [] { return test::memory_links(); });
    failed += test::run_link_contract("FaultyLink on MemoryLink", unpleasant_memory_links);
    failed += test::run_link_contract("MemoryLink with small rings", test::small_memory_links);
    failed += test::run_link_contract("TlsLink", test::tls_links);
    failed += test::run_link_contract("FaultyLink on TlsLink", unpleasant_tls_links);
    failed += test::run_link_contract("TlsLink on FaultyLink", tls_over_small_steps);
    return failed;
}
