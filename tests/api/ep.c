/* SPDX-License-Identifier: BSD-3-Clause */
/* ep: tests listening, and the requests that arrive. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>

#include "ends.h"

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_peer *const peer = anything();
    struct rpma_ep *ep = anything();
    struct rpma_conn_req *request = anything();
    int fd = -7;
    assert_code(rpma_ep_listen(NULL, ADDRESS, "1", &ep), RPMA_E_INVAL);
    assert_code(rpma_ep_listen(peer, NULL, "1", &ep), RPMA_E_INVAL);
    assert_code(rpma_ep_listen(peer, ADDRESS, NULL, &ep), RPMA_E_INVAL);
    assert_code(rpma_ep_listen(peer, ADDRESS, "1", NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_shutdown(NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_get_fd(NULL, &fd), RPMA_E_INVAL);
    assert_code(rpma_ep_get_fd(ep, NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_next_conn_req(NULL, NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_ep_next_conn_req(ep, NULL, NULL), RPMA_E_INVAL);
    assert_ptr_equal(ep, anything());
    assert_ptr_equal(request, anything());
    assert_int_equal(fd, -7);
}

static void cannot_listen(struct ends *ends, const char *address, const char *port) {
    struct rpma_ep *ep = anything();
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_ep_listen(ends->peer, address, port, &ep), RPMA_E_PROVIDER);
    assert_ptr_equal(ep, anything());
    assert_true(logged(address, port, NULL));
}

static void places_that_cannot_be_listened_at(void **state) {
    struct ends *ends = *state;
    char port[6];
    choose_port(port);
    cannot_listen(ends, ADDRESS, ends->port); /* in use */
    cannot_listen(ends, "192.0.2.1", port);   /* RFC 5737: nobody's address */
    cannot_listen(ends, ADDRESS, "65536");
    cannot_listen(ends, ADDRESS, "99999999999");
}

/* A peer is on one device, and other devices serve this machine's other addresses. */
static void address_of_another_device(void **state) {
    struct ends *ends = *state;
    struct ifaddrs *all = NULL;
    char address[INET_ADDRSTRLEN] = "";
    char port[6];
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *one = all; one != NULL && address[0] == '\0'; one = one->ifa_next) {
        if (one->ifa_addr != NULL && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_UP) != 0 &&
            (one->ifa_flags & IFF_LOOPBACK) == 0) {
            inet_ntop(AF_INET, &((const struct sockaddr_in *)one->ifa_addr)->sin_addr, address,
                      sizeof(address));
        }
    }
    freeifaddrs(all);
    if (address[0] == '\0') {
        skip();
    }
    choose_port(port);
    cannot_listen(ends, address, port);
    assert_true(logged("another device", "soft_lo", NULL));
}

static void port_is_free_again(void **state) {
    struct ends *ends = *state;
    struct rpma_ep *none = NULL;
    assert_ok(rpma_ep_shutdown(&ends->ep));
    assert_null(ends->ep);
    assert_ok(rpma_ep_shutdown(&none));
    assert_ok(rpma_ep_listen(ends->peer, ADDRESS, ends->port, &ends->ep));
}

static void no_request_is_no_event(void **state) {
    struct ends *ends = *state;
    struct rpma_conn_req *request = anything();
    int fd = -1;
    assert_ok(rpma_ep_get_fd(ends->ep, &fd));
    make_non_blocking(fd);
    assert_code(rpma_ep_next_conn_req(ends->ep, NULL, &request), RPMA_E_NO_EVENT);
    assert_ptr_equal(request, anything());
    assert_int_equal(logged_lines(), 0);
}

static void request_makes_the_fd_readable(void **state) {
    struct ends *ends = *state;
    int fd = -1;
    assert_ok(rpma_ep_get_fd(ends->ep, &fd));
    make_non_blocking(fd);
    ask(ends, NULL, NULL);
    await_readable(fd);
    answer(ends, NULL, NULL);
    await_established(ends);
    assert_code(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request), RPMA_E_NO_EVENT);
}

/* A peer whose request this side cannot serve does not wait. */
static void request_that_cannot_be_served_is_rejected(void **state) {
    struct ends *ends = *state;
    struct rpma_conn_req *request = anything();
    ask(ends, NULL, NULL);
    assert_ok(rpma_conn_cfg_set_sq_size(ends->cfg, UINT32_MAX));
    assert_code(rpma_ep_next_conn_req(ends->ep, ends->cfg, &request), RPMA_E_PROVIDER);
    assert_ptr_equal(request, anything());
    await_event(ends->client, RPMA_CONN_REJECTED);
}

static void connection_outlives_its_endpoint(void **state) {
    struct ends *ends = *state;
    ask(ends, NULL, NULL);
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_ok(rpma_ep_shutdown(&ends->ep));
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    await_established(ends);
}

/* The device sees IPv4 addresses on an IPv6 socket. */
static void ipv4_client_of_an_endpoint_for_both(void **state) {
    struct ends *ends = *state;
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    choose_port(ends->port);
    assert_ok(rpma_ep_listen(ends->peer, "::", ends->port, &ends->ep));
    ask(ends, NULL, NULL);
    answer(ends, NULL, NULL);
    await_established(ends);
}

#define WITH_ENDPOINT(test) cmocka_unit_test_setup_teardown(test, make_endpoint, end_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        WITH_ENDPOINT(places_that_cannot_be_listened_at),
        WITH_ENDPOINT(address_of_another_device),
        WITH_ENDPOINT(port_is_free_again),
        WITH_ENDPOINT(no_request_is_no_event),
        WITH_ENDPOINT(request_makes_the_fd_readable),
        WITH_ENDPOINT(request_that_cannot_be_served_is_rejected),
        WITH_ENDPOINT(connection_outlives_its_endpoint),
        cmocka_unit_test_setup_teardown(ipv4_client_of_an_endpoint_for_both, make_peer, end_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
