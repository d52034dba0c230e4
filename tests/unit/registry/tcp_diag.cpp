// SPDX-License-Identifier: BSD-3-Clause
// registry/tcp_diag: tests what the kernel tells about a connection.
#include "registry/tcp_diag.hpp"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <array>

#include "base/fd.hpp"
// Last: it has macros with everyday names.
#include "../base/check.hpp"

namespace {

using NameFunction = int (*)(int, sockaddr *, socklen_t *);

sockaddr_storage name(const base::Fd &socket, NameFunction function) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    assert_int_equal(function(socket.get(), reinterpret_cast<sockaddr *>(&address), &length), 0);
    return address;
}

sockaddr_storage local_of(const base::Fd &socket) {
    return name(socket, getsockname);
}

// The listener's family, and the address that a client asks: IPv4, IPv6, and a mapped address.
void finds_the_listener(int listener_family, int family) {
    const base::Fd listener{socket(listener_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(listen(listener.get(), 1), 0);  // at the wildcard address
    sockaddr_storage address = local_of(listener);
    if (family == AF_INET) {
        const auto port = reinterpret_cast<const sockaddr_in6 &>(address).sin6_port;  // where IPv4 has it
        address = {};
        auto &v4 = reinterpret_cast<sockaddr_in &>(address);
        v4.sin_family = AF_INET;
        v4.sin_port = port;
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
        reinterpret_cast<sockaddr_in6 &>(address).sin6_addr = in6addr_loopback;
    }
    struct stat status{};
    assert_int_equal(fstat(listener.get(), &status), 0);
    const auto found = registry::tcp_socket_at(address);
    assert_true(found.has_value() && found->listens);
    assert_int_equal(found->inode, status.st_ino);
    assert_int_equal(found->user, geteuid());
}

void a_listener_of_each_family(void **) {
    finds_the_listener(AF_INET, AF_INET);
    finds_the_listener(AF_INET6, AF_INET6);
    finds_the_listener(AF_INET6, AF_INET);
}

void nobody_is_there(void **) {
    sockaddr_storage nowhere{};
    {
        const base::Fd listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        assert_int_equal(listen(listener.get(), 1), 0);
        nowhere = local_of(listener);
    }
    const auto found = registry::tcp_socket_at(nowhere);
    assert_false(found.has_value());
    assert_int_equal(found.error().number, ENOENT);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(a_listener_of_each_family),
                                cmocka_unit_test(nobody_is_there)};
    return cmocka_run_group_tests_name("registry_tcp_diag", tests, nullptr, nullptr);
}
