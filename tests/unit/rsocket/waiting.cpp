// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: tests what a thread sleeps on.
#include <arpa/inet.h>

#include <string_view>

#include "rsocket/configuration.hpp"
#include "rsocket/socket.hpp"
// check.hpp comes last, because it has macros with everyday names.
#include "../base/check.hpp"

namespace {

class NeverWoken final : public stream::Sleeper {
public:
    void wake() override {}
};

base::Fd tcp_socket() {
    return base::Fd{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
}

// The engine reads the TCP socket of a stream, so that a thread that waits for that
// socket alone may sleep for ever.
void an_accepted_socket_is_waited_for_in_the_device(void **) {
    const base::Fd listener = tcp_socket();
    const base::Fd client = tcp_socket();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto *const name = reinterpret_cast<sockaddr *>(&address);
    assert_int_equal(bind(listener.get(), name, length), 0);
    assert_int_equal(listen(listener.get(), 1), 0);
    assert_int_equal(getsockname(listener.get(), name, &length), 0);
    assert_int_equal(connect(client.get(), name, length), 0);
    constexpr std::string_view request = "MPA ID Req Frame";
    assert_int_equal(send(client.get(), request.data(), request.size(), 0), request.size());
    const auto accepted = std::make_shared<rsockets::Socket>(
        base::Fd{accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)},
        rsockets::Socket::State::Accepted, rsockets::configuration().settings, true);

    const auto waiter = rsockets::Waiter::of_this_thread();
    assert_true(waiter.has_value());
    rsockets::Sleep sleep{*waiter};
    assert_true(accepted->begin_wait(sleep, POLLIN).has_value());
    const auto shard = accepted->advance();
    assert_non_null(shard.get());
    NeverWoken other;
    std::vector<int> descriptors;
    {
        const base::Lock lock{shard->mutex()};
        assert_true(shard->begin_wait(other, descriptors).has_value());
        shard->end_wait(other);
    }
    assert_true(descriptors.empty());  // this thread has them
    accepted->end_wait(sleep);
    accepted->close();
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(an_accepted_socket_is_waited_for_in_the_device),
    };
    return cmocka_run_group_tests_name("rsocket_waiting", tests, nullptr, nullptr);
}
