/* SPDX-License-Identifier: BSD-3-Clause */
/* ep_cfg: tests the values of an endpoint configuration, and their effects. */
#include <limits.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ends.h"

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_ep_cfg *cfg = anything();
    struct rpma_ep *ep = anything();
    struct sockaddr_storage address;
    int backlog = 77;
    bool flag = true;
    assert_code(rpma_ep_cfg_new(NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_delete(NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_set_backlog(NULL, 1), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_set_backlog(cfg, -1), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_get_backlog(NULL, &backlog), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_get_backlog(cfg, NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_set_v6only(NULL, true), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_get_v6only(NULL, &flag), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_get_v6only(cfg, NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_set_reuseaddr(NULL, true), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_get_reuseaddr(NULL, &flag), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_get_reuseaddr(cfg, NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_listen_cfg(NULL, ADDRESS, "1", cfg, &ep), RPMA_E_INVAL);
    assert_code(rpma_ep_listen_cfg(anything(), NULL, "1", cfg, &ep), RPMA_E_INVAL);
    assert_code(rpma_ep_listen_cfg(anything(), ADDRESS, NULL, cfg, &ep), RPMA_E_INVAL);
    assert_code(rpma_ep_listen_cfg(anything(), ADDRESS, "1", cfg, NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_get_local_addr(NULL, &address), RPMA_E_INVAL);
    assert_code(rpma_ep_get_local_addr(anything(), NULL), RPMA_E_INVAL);
    assert_int_equal(backlog, 77);
    assert_ptr_equal(ep, anything());
}

static void values(void **state) {
    (void)state;
    struct rpma_ep_cfg *cfg = NULL;
    int backlog = 77;
    bool v6only = true;
    bool reuseaddr = true;
    assert_ok(rpma_ep_cfg_delete(&cfg));
    assert_ok(rpma_ep_cfg_new(&cfg));
    assert_ok(rpma_ep_cfg_get_backlog(cfg, &backlog));
    assert_ok(rpma_ep_cfg_get_v6only(cfg, &v6only));
    assert_ok(rpma_ep_cfg_get_reuseaddr(cfg, &reuseaddr));
    assert_int_equal(backlog, 0);
    assert_false(v6only);
    assert_false(reuseaddr);
    assert_ok(rpma_ep_cfg_set_backlog(cfg, INT_MAX));
    assert_ok(rpma_ep_cfg_set_v6only(cfg, true));
    assert_ok(rpma_ep_cfg_get_backlog(cfg, &backlog));
    assert_ok(rpma_ep_cfg_get_v6only(cfg, &v6only));
    assert_ok(rpma_ep_cfg_get_reuseaddr(cfg, &reuseaddr));
    assert_int_equal(backlog, INT_MAX);
    assert_true(v6only);
    assert_false(reuseaddr);
    assert_ok(rpma_ep_cfg_set_reuseaddr(cfg, true));
    assert_ok(rpma_ep_cfg_get_reuseaddr(cfg, &reuseaddr));
    assert_true(reuseaddr);
    assert_ok(rpma_ep_cfg_delete(&cfg));
    assert_null(cfg);
}

static uint16_t port_of(const struct rpma_ep *ep) {
    struct sockaddr_storage address;
    assert_ok(rpma_ep_get_local_addr(ep, &address));
    return ntohs(((const struct sockaddr_in6 *)&address)->sin6_port); /* at the same place for IPv4 */
}

static void port_0_takes_a_free_one(void **state) {
    struct ends *ends = *state;
    assert_ok(rpma_ep_listen_cfg(ends->peer, ADDRESS, "0", NULL, &ends->ep));
    snprintf(ends->port, sizeof(ends->port), "%u", (unsigned)port_of(ends->ep));
    assert_int_not_equal(port_of(ends->ep), 0);
    ask(ends, NULL, NULL);
    answer(ends, NULL, NULL);
    await_established(ends);
}

/* Binds the wildcard address of IPv4 at the port that an endpoint has at that of IPv6. */
static int bind_v4_beside(const struct rpma_ep *ep) {
    const struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port_of(ep))};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const int result = bind(fd, (const struct sockaddr *)&v4, sizeof(v4));
    close(fd);
    return result;
}

static void v6only_leaves_ipv4_to_others(void **state) {
    struct ends *ends = *state;
    struct rpma_ep_cfg *cfg = NULL;
    assert_ok(rpma_ep_listen(ends->peer, "::", "0", &ends->ep));
    assert_int_equal(bind_v4_beside(ends->ep), -1);
    assert_ok(rpma_ep_cfg_new(&cfg));
    assert_ok(rpma_ep_cfg_set_v6only(cfg, true));
    /* Another process may have that port of IPv4, but does not have it at every try. */
    int result = -1;
    for (int i = 0; i < 50 && result != 0; ++i) {
        assert_ok(rpma_ep_shutdown(&ends->ep));
        assert_ok(rpma_ep_listen_cfg(ends->peer, "::", "0", cfg, &ends->ep));
        result = bind_v4_beside(ends->ep);
    }
    assert_ok(rpma_ep_cfg_delete(&cfg));
    assert_int_equal(result, 0);
}

/* A bound socket that shares its port leaves the port free for an
 * endpoint that shares it too, as with sockets. */
static void reuseaddr_shares_a_port(void **state) {
    struct ends *ends = *state;
    struct rpma_ep_cfg *cfg = NULL;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    const int on = 1;
    char port[6];
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(port, sizeof(port), "%u", (unsigned)ntohs(address.sin_port));
    assert_ok(rpma_ep_cfg_new(&cfg));
    assert_ok(rpma_ep_cfg_set_reuseaddr(cfg, true));
    const int result = rpma_ep_listen_cfg(ends->peer, ADDRESS, port, cfg, &ends->ep);
    assert_ok(rpma_ep_cfg_delete(&cfg));
    close(fd);
    assert_ok(result);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(values),
        cmocka_unit_test_setup_teardown(port_0_takes_a_free_one, make_peer, end_all),
        cmocka_unit_test_setup_teardown(v6only_leaves_ipv4_to_others, make_peer, end_all),
        cmocka_unit_test_setup_teardown(reuseaddr_shares_a_port, make_peer, end_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
