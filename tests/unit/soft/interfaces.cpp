// SPDX-License-Identifier: BSD-3-Clause
// The addresses of this machine change during these tests. They run in a network of their own, which has only
// the loopback interface, and that is down. They skip where the process may not make such a network.
#include "soft/ground/interfaces.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "../../child.hpp"
#include "base/fd.hpp"
#include "soft/device/device.hpp"
#include "softrdma.h"

// These come last, because they assert.
#include "datagram_end.hpp"
#include "own_network.hpp"

namespace {

using test::ipv4;
using test::set_address;
using test::set_up;

soft::Device *device_at(const char *text) {
    const sockaddr_in address = ipv4(text);
    return soft::device_of(reinterpret_cast<const sockaddr &>(address)).value();
}

void what_changes_is_seen_at_once(void **) {
    assert_true(soft::local_addresses().value()->empty());
    assert_true(soft::devices().empty());
    set_up(true);
    assert_int_equal(soft::devices().size(), 1);
    assert_non_null(device_at("127.0.0.1"));
    assert_null(device_at("192.0.2.1"));
    set_address("192.0.2.1");
    assert_ptr_equal(device_at("192.0.2.1"), soft::devices().front());
    set_address("192.0.2.2");
    assert_null(device_at("192.0.2.1"));
    set_up(false);
    assert_true(soft::devices().empty());
    set_up(true);
}

// The address is set as `ip address add 192.0.2.4 dev lo label lo:1` does it.
void an_address_with_a_label_is_its_interfaces(void **) {
    set_address("192.0.2.4", "lo:1");
    assert_int_equal(soft::devices().size(), 1);
    assert_ptr_equal(device_at("192.0.2.4"), soft::devices().front());
    assert_string_equal(soft::devices().front()->name, "soft_lo");
}

void datagrams_come_to_an_address_that_was_not_there(void **) {
    set_address("127.0.0.1");
    const auto end = std::make_unique<test::DatagramEnd>();
    set_address("192.0.2.5", "lo:2");
    end->post_receive(0);
    end->send("to the new one", end->handle_to(test::gid_of("192.0.2.5")), end->qp->qp_num);
    assert_string_equal(end->next_message().text.c_str(), "to the new one");
}

// No route leads to a group here, so the id's own address selects the interface.
void an_id_that_is_bound_needs_no_route_to_a_group(void **) {
    set_address("127.0.0.1");
    sockaddr_in here = ipv4("127.0.0.1");
    sockaddr_in group = ipv4("239.255.77.5");
    for (const bool bound : {false, true}) {
        rdma_cm_id *id = nullptr;
        assert_int_equal(softrdma_rdma_create_id(nullptr, &id, nullptr, RDMA_PS_UDP), 0);
        assert_int_equal(softrdma_rdma_resolve_addr(id, bound ? reinterpret_cast<sockaddr *>(&here) : nullptr,
                                                    reinterpret_cast<sockaddr *>(&group), 1000),
                         bound ? 0 : -1);
        assert_int_equal(softrdma_rdma_destroy_id(id), 0);
    }
}

void what_does_not_change_is_not_asked_for(void **) {
    const auto before = soft::local_addresses().value();
    assert_ptr_equal(soft::local_addresses().value().get(), before.get());
}

// A child gets its own news of the kernel, and takes none from its parent.
void a_child_misses_nothing(void **) {
    assert_null(device_at("192.0.2.3"));
    const pid_t child = test::fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        const bool known_before = device_at("192.0.2.3") != nullptr;
        set_address("192.0.2.3");
        _exit(!known_before && device_at("192.0.2.3") != nullptr ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_non_null(device_at("192.0.2.3"));
}

std::mutex log_lock;
std::string log_text;

void note(int, const char *, int, const char *, const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    const std::scoped_lock lock{log_lock};
    log_text += line;
}

bool has_logged(const char *text) {
    const std::scoped_lock lock{log_lock};
    return log_text.find(text) != std::string::npos;
}

// With an address of the loopback interface, all of its network is local (AnyIP): TCP connects, though no
// interface has the address.
void a_request_to_nobodys_address_is_refused(void **) {
    set_address("192.0.2.1");
    softrdma_set_log(note, 2);
    rdma_event_channel *const events = softrdma_rdma_create_event_channel();
    assert_non_null(events);
    rdma_cm_id *listener = nullptr;
    assert_int_equal(softrdma_rdma_create_id(events, &listener, nullptr, RDMA_PS_TCP), 0);
    assert_int_equal(softrdma_rdma_listen(listener, 1), 0);
    rdma_cm_id *client = nullptr;
    assert_int_equal(softrdma_rdma_create_id(nullptr, &client, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in there = ipv4("192.0.2.77");
    there.sin_port = softrdma_rdma_get_src_port(listener);
    assert_int_equal(softrdma_rdma_resolve_addr(client, nullptr, reinterpret_cast<sockaddr *>(&there), 1000),
                     0);
    assert_int_equal(softrdma_rdma_resolve_route(client, 1000), 0);
    ibv_qp_init_attr sizes{};
    sizes.qp_type = IBV_QPT_RC;
    assert_int_equal(softrdma_rdma_create_qp(client, nullptr, &sizes), 0);
    assert_int_equal(softrdma_rdma_connect(client, nullptr), -1);
    assert_int_equal(errno, ECONNREFUSED);
    assert_int_equal(fcntl(events->fd, F_SETFL, O_NONBLOCK), 0);
    rdma_cm_event *event = nullptr;
    assert_int_equal(softrdma_rdma_get_cm_event(events, &event), -1);
    assert_int_equal(errno, EAGAIN);
    assert_true(has_logged("192.0.2.77:"));
    softrdma_set_log(nullptr, 2);
    softrdma_rdma_destroy_qp(client);
    assert_int_equal(softrdma_rdma_destroy_id(client), 0);
    assert_int_equal(softrdma_rdma_destroy_id(listener), 0);
    softrdma_rdma_destroy_event_channel(events);
}

}  // namespace

int main() {
    if (!test::enter_own_network()) {
        return test::skipped;
    }
    const CMUnitTest tests[] = {cmocka_unit_test(what_changes_is_seen_at_once),
                                cmocka_unit_test(an_address_with_a_label_is_its_interfaces),
                                cmocka_unit_test(datagrams_come_to_an_address_that_was_not_there),
                                cmocka_unit_test(an_id_that_is_bound_needs_no_route_to_a_group),
                                cmocka_unit_test(what_does_not_change_is_not_asked_for),
                                cmocka_unit_test(a_child_misses_nothing),
                                cmocka_unit_test(a_request_to_nobodys_address_is_refused)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
