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

// Looks until the link has given its peer up, or for too long.
void look_until_given_up(soft::Link &link) {
    const auto until = base::Clock::now() + std::chrono::seconds{30};
    while (link.look_at_peer() != base::Clock::time_point::max()) {
        assert_true(base::Clock::now() < until);
    }
}

void assert_timed_out(soft::Link &link) {
    const soft::Link::Ready ready = link.ready();
    assert_true(ready.readable && ready.writable && ready.ended);
    std::byte byte;
    const iovec piece{.iov_base = &byte, .iov_len = 1};
    const auto got = link.receive({&piece, 1});
    assert_true(got.state == soft::Link::Received::State::Failed);
    assert_int_equal(got.error, ETIMEDOUT);
    assert_int_equal(link.failure(), ETIMEDOUT);
    assert_int_equal(test::send(link, test::Bytes(1)).error, ETIMEDOUT);
}

// The peer's keep-alives would come after 2 hours.
void a_peer_of_mptcp_that_is_silent_is_given_up(void **) {
    const auto [here, there] = test::multipath_links(std::chrono::milliseconds{20});
    assert_true(here->paths() == 1U && there->paths() == 1U);
    look_until_given_up(*here);
    assert_timed_out(*here);
}

// The kernel of a peer that reads nothing acknowledges probes for ever. What came before is received all the
// same.
void a_peer_of_mptcp_that_takes_nothing_is_given_up(void **) {
    const auto [here, there] = test::multipath_links(std::chrono::milliseconds{20});
    const test::Bytes block(std::size_t{1} << 20);
    assert_int_equal(test::send(*there, test::Bytes(1)).bytes, 1);
    while (here->ready().writable) {
        (void)test::send(*here, block);
    }
    look_until_given_up(*here);
    test::Bytes came;
    assert_int_equal(test::receive(*here, came, 2).bytes, 1);
    assert_timed_out(*here);
}

void a_peer_of_mptcp_that_takes_all_is_not_given_up(void **) {
    const auto [here, there] = test::multipath_links();
    assert_int_equal(test::send(*here, test::Bytes(1)).bytes, 1);
    assert_true(here->look_at_peer() > base::Clock::now());
    test::Bytes came;
    assert_int_equal(test::receive(*there, came, 1).bytes, 1);
    assert_int_equal(here->failure(), 0);
}

void other_links_have_no_paths(void **) {
    const auto [here, there] = test::tcp_links();
    assert_false(here->paths().has_value());
    assert_true(here->look_at_peer() == base::Clock::time_point::max());
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
        cmocka_unit_test(a_peer_of_mptcp_that_is_silent_is_given_up),
        cmocka_unit_test(a_peer_of_mptcp_that_takes_nothing_is_given_up),
        cmocka_unit_test(a_peer_of_mptcp_that_takes_all_is_not_given_up),
        cmocka_unit_test(other_links_have_no_paths),
        fixture_test(a_look_that_finds_nothing_gives_the_room_back),
        fixture_test(a_user_that_does_not_read_keeps_the_room),
        fixture_test(a_user_that_reads_on_looks_once_more),
        fixture_test(room_that_is_kept_is_something_to_receive),
    };
    int failed = cmocka_run_group_tests(own_tests, nullptr, nullptr);
    failed += test::run_link_contract("TcpLink", test::tcp_links);
    failed += test::run_link_contract("MultipathLink", [] { return test::multipath_links(); });
    failed += test::run_link_contract("TlsLink on MultipathLink",
                                      [] { return test::tls_over(test::multipath_links()); });
    failed += test::run_link_contract("FaultyLink on TcpLink", unpleasant_tcp_links);
    failed += test::run_link_contract("MemoryLink", [] { return test::memory_links(); });
    failed += test::run_link_contract("FaultyLink on MemoryLink", unpleasant_memory_links);
    failed += test::run_link_contract("MemoryLink with small rings", test::small_memory_links);
    failed += test::run_link_contract("TlsLink", test::tls_links);
    failed += test::run_link_contract("FaultyLink on TlsLink", unpleasant_tls_links);
    failed += test::run_link_contract("TlsLink on FaultyLink", tls_over_small_steps);
    return failed;
}
