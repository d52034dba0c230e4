// SPDX-License-Identifier: BSD-3-Clause
// carry_device/spare: tests what one agent writes to the other's copy, also from a peer that lies.
#include "carry_device/spare.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "../base/check.hpp"

namespace {

using carry::Link;
using carry_device::Spare;
using carry_device::Watched;

constexpr std::size_t place_of_put = offsetof(Link, directions) + offsetof(carry::Direction, put);

// Two ends, and a third descriptor in the place of one of them.
struct Ends {
    std::unique_ptr<Link> links[2] = {std::make_unique<Link>(), std::make_unique<Link>()};
    base::Fd events{epoll_create1(EPOLL_CLOEXEC)};
    int fds[2] = {-1, -1};
    std::unique_ptr<Spare> one;
    std::unique_ptr<Spare> other;

    Ends() {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        one = std::make_unique<Spare>(Watched{events.get(), base::Fd{fds[0]}}, *links[0]);
        other = std::make_unique<Spare>(Watched{events.get(), base::Fd{fds[1]}}, *links[1]);
    }
    void says(std::uint32_t first, std::uint32_t second) const {
        const std::uint32_t words[] = {first, second};
        assert_int_equal(send(fds[0], words, sizeof(words), MSG_NOSIGNAL), sizeof(words));
    }
};

void words_and_bytes_reach_the_copy_in_order(void **) {
    const Ends ends;
    const std::uint64_t put = 0x0123456789abcdef;
    std::byte many[100'000];
    std::memset(many, 7, sizeof(many));
    ends.one->write(offsetof(Link, directions) + offsetof(carry::Direction, ring) + 3, many, sizeof(many));
    ends.one->write(place_of_put, &put, sizeof(put));
    ends.one->flush(5);
    ends.one->tell();
    // The kernel takes the bytes in parts.
    while (ends.one->settled_turn() != 5) {
        assert_true(ends.one->move());
        assert_true(ends.other->move());
    }
    assert_true(ends.links[1]->directions[0].put == put);
    assert_memory_equal(ends.links[1]->directions[0].ring + 3, many, sizeof(many));
    assert_true(ends.links[1]->directions[0].ring[2] == std::byte{0});
    assert_true(ends.other->takes_message());
    assert_false(ends.other->takes_message());
}

void an_end_is_told_after_all_that_came_before(void **) {
    const Ends ends;
    const std::uint64_t put = 9;
    ends.one->write(place_of_put, &put, sizeof(put));
    assert_true(ends.one->move());
    assert_int_equal(shutdown(ends.fds[0], SHUT_WR), 0);
    assert_false(ends.other->move());
    assert_true(ends.links[1]->directions[0].put == put);
}

void a_frame_in_two_parts_waits_for_the_second(void **) {
    const Ends ends;
    const std::uint64_t put = 11;
    ends.says(place_of_put, sizeof(put));
    assert_true(ends.other->move());
    assert_true(ends.links[1]->directions[0].put == 0);
    assert_int_equal(send(ends.fds[0], &put, sizeof(put), MSG_NOSIGNAL), sizeof(put));
    assert_true(ends.other->move());
    assert_true(ends.links[1]->directions[0].put == put);
}

void places_outside_of_the_copy_are_refused(void **) {
    constexpr std::uint32_t size = sizeof(Link);
    const std::uint32_t bad[][2] = {{size, 1},           {size - 1, 2},   {0, size + 1},
                                    {UINT32_MAX - 3, 1}, {8, UINT32_MAX}, {size + 8, 0x80000000}};
    for (const auto &words : bad) {
        const Ends ends;
        ends.says(words[0], words[1]);
        assert_false(ends.other->move());
    }
}

// A peer that asks for answers without an end, and reads none, does not fill the memory.
void answers_that_nobody_reads_have_an_end(void **) {
    const Ends ends;
    bool is_open = true;
    for (std::size_t i = 0; is_open && i < (std::size_t{8} << 20); ++i) {
        ends.says(UINT32_MAX - 1, 1);
        is_open = i % 64 != 0 || ends.other->move();
    }
    assert_false(is_open);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(words_and_bytes_reach_the_copy_in_order),
        cmocka_unit_test(an_end_is_told_after_all_that_came_before),
        cmocka_unit_test(a_frame_in_two_parts_waits_for_the_second),
        cmocka_unit_test(places_outside_of_the_copy_are_refused),
        cmocka_unit_test(answers_that_nobody_reads_have_an_end),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
