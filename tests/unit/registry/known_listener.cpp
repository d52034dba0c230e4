// SPDX-License-Identifier: BSD-3-Clause
// registry/known_listener: tests which listening sockets are taken for rsockets.
#include "registry/known_listener.hpp"

#include <arpa/inet.h>
#include <sys/stat.h>

#include "base/fd.hpp"
#include "memory_folder.hpp"
// Last: it has macros with everyday names.
#include "../base/check.hpp"

namespace {

using registry::Book;
using registry::Entry;
using registry::State;

union Name {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
    sockaddr_storage all;
};

Name name_of(const char *host, in_port_t port) {
    Name name{};
    if (inet_pton(AF_INET, host, &name.v4.sin_addr) == 1) {
        name.v4.sin_family = AF_INET;
        name.v4.sin_port = port;
    } else {
        assert_int_equal(inet_pton(AF_INET6, host, &name.v6.sin6_addr), 1);
        name.v6.sin6_family = AF_INET6;
        name.v6.sin6_port = port;
    }
    return name;
}

struct Listener {
    base::Fd fd;
    in_port_t port = 0;
    std::uint64_t inode = 0;
};

Listener listener_at(const char *host) {
    Name name = name_of(host, 0);
    Listener made;
    made.fd.reset(socket(name.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t length = sizeof(name);
    assert_int_equal(bind(made.fd.get(), &name.any, length), 0);
    assert_int_equal(listen(made.fd.get(), 1), 0);
    assert_int_equal(getsockname(made.fd.get(), &name.any, &length), 0);
    made.port = name.v4.sin_port;  // at the same place in both
    struct stat status{};
    assert_int_equal(fstat(made.fd.get(), &status), 0);
    made.inode = status.st_ino;
    return made;
}

bool is_known(const char *host, in_port_t port) {
    const Name name = name_of(host, port);
    return registry::is_known_listener(name.all, folder::path);
}

Entry list(Book &book, const Listener &listener, State state = State::Listening) {
    Entry entry = book.add();
    entry.describe({.state = state, .inode = listener.inode});
    return entry;
}

void a_listed_listener_is_known_at_its_address(void **) {
    Book book{folder::path};
    const Listener listener = listener_at("127.0.0.1");
    assert_false(is_known("127.0.0.1", listener.port));
    {
        const Entry entry = list(book, listener);
        assert_true(is_known("127.0.0.1", listener.port));
        assert_true(is_known("::ffff:127.0.0.1", listener.port));
        assert_true(is_known("0.0.0.0", listener.port));
        assert_false(is_known("127.0.0.2", listener.port));
        assert_false(is_known("127.0.0.1", 1));
        assert_false(is_known("::1", listener.port));
    }
    assert_false(is_known("127.0.0.1", listener.port));
}

// The kernel's look-up would find a wildcard listener for any machine's address.
void a_wildcard_listener_is_known_at_this_machines_addresses(void **) {
    Book book{folder::path};
    const Listener listener = listener_at("::");
    const Entry entry = list(book, listener);
    assert_true(is_known("::1", listener.port));
    assert_true(is_known("127.0.0.2", listener.port));
    assert_false(is_known("192.0.2.1", listener.port));
    assert_false(is_known("2001:db8::1", listener.port));
}

void another_socket_in_its_place_is_not_known(void **) {
    Book book{folder::path};
    const Listener listener = listener_at("127.0.0.1");
    Listener other = listener_at("127.0.0.1");
    const Entry entry = list(book, other);
    assert_false(is_known("127.0.0.1", listener.port));
    const Entry no_listener = list(book, listener, State::Fresh);
    assert_false(is_known("127.0.0.1", listener.port));
}

// A user cannot declare another user's socket an rsocket.
void another_users_word_is_not_believed(void **) {
    if (geteuid() != 0) {
        skip();
    }
    Book book{folder::path};
    const Listener listener = listener_at("127.0.0.1");
    const Entry entry = list(book, listener);
    assert_true(is_known("127.0.0.1", listener.port));
    // Root's word is believed of every user's, the other way round nothing is.
    assert_int_equal(fchown(listener.fd.get(), 12345, 12345), 0);
    assert_true(is_known("127.0.0.1", listener.port));
    assert_int_equal(fchown(listener.fd.get(), 0, 0), 0);
    assert_int_equal(chown(memory_folder::file().c_str(), 12345, 12345), 0);
    assert_false(is_known("127.0.0.1", listener.port));
}

// As an rsocket that listens on the kernel's RDMA devices only: its socket has the port, and does not listen.
void a_listener_that_is_none_in_tcp_is_known_by_its_address(void **) {
    Book book{folder::path};
    const Listener socket = listener_at("127.0.0.1");
    const in_port_t port = socket.port;
    assert_int_equal(shutdown(socket.fd.get(), SHUT_RD), 0);
    Entry entry = book.add();
    registry::Description description{.state = State::Listening, .mode = registry::Mode::Rdma};
    description.local.v4 = name_of("127.0.0.1", port).v4;
    entry.describe(description);
    assert_true(is_known("127.0.0.1", port));
    assert_true(is_known("::ffff:127.0.0.1", port));
    assert_false(is_known("127.0.0.2", port));
    assert_false(is_known("127.0.0.1", 1));
    assert_false(is_known("::1", port));
    description.local.v6 = name_of("::", port).v6;
    entry.describe(description);
    assert_true(is_known("127.0.0.2", port));
    assert_true(is_known("::1", port));
    assert_false(is_known("192.0.2.1", port));
    description.mode = registry::Mode::None;
    entry.describe(description);
    assert_false(is_known("127.0.0.1", port));
}

// siw listens in TCP for the rsocket, with a socket of its own.
void a_device_that_listens_in_tcp_is_known_by_its_users_list(void **) {
    Book book{folder::path};
    const Listener of_device = listener_at("127.0.0.1");
    Entry entry = book.add();
    registry::Description description{.state = State::Listening, .mode = registry::Mode::Rdma};
    description.local.v4 = name_of("127.0.0.1", of_device.port).v4;
    entry.describe(description);
    assert_true(is_known("127.0.0.1", of_device.port));
    description.mode = registry::Mode::None;  // it would listen in TCP itself
    entry.describe(description);
    assert_false(is_known("127.0.0.1", of_device.port));
}

void an_address_of_another_family_is_not_known(void **) {
    Name name = name_of("127.0.0.1", 7);
    name.any.sa_family = AF_UNIX;
    assert_false(registry::is_known_listener(name.all, folder::path));
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_listed_listener_is_known_at_its_address, memory_folder::make,
                                        folder::remove),
        cmocka_unit_test_setup_teardown(a_wildcard_listener_is_known_at_this_machines_addresses,
                                        memory_folder::make, folder::remove),
        cmocka_unit_test_setup_teardown(another_socket_in_its_place_is_not_known, memory_folder::make,
                                        folder::remove),
        cmocka_unit_test_setup_teardown(another_users_word_is_not_believed, memory_folder::make,
                                        folder::remove),
        cmocka_unit_test_setup_teardown(a_listener_that_is_none_in_tcp_is_known_by_its_address,
                                        memory_folder::make, folder::remove),
        cmocka_unit_test_setup_teardown(a_device_that_listens_in_tcp_is_known_by_its_users_list,
                                        memory_folder::make, folder::remove),
        cmocka_unit_test_setup_teardown(an_address_of_another_family_is_not_known, memory_folder::make,
                                        folder::remove),
    };
    return cmocka_run_group_tests_name("registry_known_listener", tests, nullptr, nullptr);
}
