// SPDX-License-Identifier: BSD-3-Clause
// carry_device/copy: tests what two ends' copies have when they go on over TCP, without a device.
#include "carry_device/copy.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cstdint>

#include "../base/check.hpp"

namespace {

using carry::Link;
using carry_device::Copy;
using carry_device::Watched;

// Both ends of a link that has lost its device.
struct Ends {
    base::Fd events{epoll_create1(EPOLL_CLOEXEC)};
    base::Fd bell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    Copy joiner{0, {.ends = {}, .side = 0}, {}, bell.get()};
    Copy maker{0, {.ends = {}, .side = 1}, {}, bell.get()};

    Ends(Link::State of_joiner, Link::State of_maker) {
        joiner.link().state = of_joiner;
        maker.link().state = of_maker;
        joiner.lose_device();
        maker.lose_device();
    }
    void go_on() {
        int fds[2] = {-1, -1};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        joiner.go_on(Watched{events.get(), base::Fd{fds[0]}});
        maker.go_on(Watched{events.get(), base::Fd{fds[1]}});
        // Each end has pushed before it hears the other one, and pushes again after it.
        for (int i = 0; i < 4; ++i) {
            (void)joiner.hear();
            (void)maker.hear();
            joiner.push();
            maker.push();
        }
    }
};

void the_joiner_learns_that_the_link_is_open(void **) {
    Ends ends{Link::Joined, Link::Open};
    ends.go_on();
    assert_int_equal(ends.joiner.link().state, Link::Open);
    assert_int_equal(ends.maker.link().state, Link::Open);
}

void the_maker_may_open_the_link_later(void **) {
    Ends ends{Link::Joined, Link::Joined};
    ends.go_on();
    assert_int_equal(ends.joiner.link().state, Link::Joined);
    ends.maker.link().state = Link::Open;
    ends.joiner.push();
    ends.maker.push();
    (void)ends.joiner.hear();
    (void)ends.maker.hear();
    assert_int_equal(ends.joiner.link().state, Link::Open);
    assert_int_equal(ends.maker.link().state, Link::Open);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_joiner_learns_that_the_link_is_open),
        cmocka_unit_test(the_maker_may_open_the_link_later),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
