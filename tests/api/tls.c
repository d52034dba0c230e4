/* SPDX-License-Identifier: BSD-3-Clause */
/* tls: tests keys and certificates of one connection and of one endpoint, with and without RPMA_TLS. The
 * environment has the tests' own: RPMA_TEST_KEYS, and RPMA_TEST_CERTIFICATES, with the identity test. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ends.h"

static char keys[4096];  /* a file of the test: one line, whose identity is lone */
static char text[4100];  /* it as rpma_conn_cfg_set_tls takes it */
static const char *all;  /* the tests' keys */
static const char *x509; /* the tests' certificates */

static void write_keys(const char *identity) {
    FILE *const file = fopen(keys, "w");
    assert_non_null(file);
    assert_int_equal(fchmod(fileno(file), S_IRUSR | S_IWUSR), 0);
    assert_true(fprintf(file, "%s:00112233445566778899aabbccddeeff\n", identity) > 0);
    assert_int_equal(fclose(file), 0);
}

static int make_keys(void **state) {
    (void)state;
    char folder[3500];
    assert_non_null(getcwd(folder, sizeof(folder)));
    snprintf(keys, sizeof(keys), "%s/lone.keys", folder);
    snprintf(text, sizeof(text), "psk:%s", keys);
    write_keys("lone");
    all = getenv("RPMA_TEST_KEYS");
    x509 = getenv("RPMA_TEST_CERTIFICATES");
    assert_non_null(all);
    assert_non_null(x509);
    return 0;
}

static bool is_tls_required(void) {
    return getenv("RPMA_TLS") != NULL;
}

static void values(void **state) {
    (void)state;
    struct rpma_conn_cfg *cfg = NULL;
    struct rpma_ep_cfg *ep_cfg = NULL;
    const char *got = anything();
    const char *wrong[] = {"", "psk", "psk:keys", "psk:", "x509:x509", "none", "tls:/keys", " psk:/keys"};
    assert_ok(rpma_conn_cfg_new(&cfg));
    assert_ok(rpma_ep_cfg_new(&ep_cfg));
    assert_code(rpma_conn_cfg_set_tls(NULL, text), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_tls(NULL, &got), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_tls(cfg, NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_set_tls(NULL, text), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_get_tls(NULL, &got), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_get_tls(ep_cfg, NULL), RPMA_E_INVAL);
    assert_ptr_equal(got, anything());
    assert_ok(rpma_conn_cfg_get_tls(cfg, &got));
    assert_null(got);
    assert_ok(rpma_ep_cfg_get_tls(ep_cfg, &got));
    assert_null(got);
    assert_ok(rpma_conn_cfg_set_tls(cfg, "x509:/a"));
    assert_ok(rpma_ep_cfg_set_tls(ep_cfg, "psk:/b"));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        assert_code(rpma_conn_cfg_set_tls(cfg, wrong[i]), RPMA_E_INVAL);
        assert_code(rpma_ep_cfg_set_tls(ep_cfg, wrong[i]), RPMA_E_INVAL);
    }
    assert_ok(rpma_conn_cfg_get_tls(cfg, &got));
    assert_string_equal(got, "x509:/a");
    assert_ok(rpma_ep_cfg_get_tls(ep_cfg, &got));
    assert_string_equal(got, "psk:/b");
    assert_ok(rpma_conn_cfg_set_tls(cfg, NULL));
    assert_ok(rpma_conn_cfg_get_tls(cfg, &got));
    assert_null(got);
    assert_ok(rpma_conn_cfg_delete(&cfg));
    assert_ok(rpma_ep_cfg_delete(&ep_cfg));
}

/* Listens with these keys or certificates; NULL: those of RPMA_TLS. */
static struct rpma_ep *listen_with(const struct ends *ends, const char *tls, char port[6]) {
    struct rpma_ep_cfg *cfg = NULL;
    struct rpma_ep *ep = NULL;
    choose_port(port);
    assert_ok(rpma_ep_cfg_new(&cfg));
    assert_ok(rpma_ep_cfg_set_tls(cfg, tls));
    assert_ok(rpma_ep_listen_cfg(ends->peer, ADDRESS, port, cfg, &ep));
    assert_ok(rpma_ep_cfg_delete(&cfg));
    return ep;
}

/* How a connection of this host goes on after the handshake of TLS. */
static const char *way_of_tls(void) {
    const char *memory = getenv("SOFTRDMA_SHM");
    return memory != NULL && strcmp(memory, "off") == 0 ? "tls" : "memory";
}

static void expect_way(const struct rpma_conn *conn, const char *way, const char *identity) {
    const char *got = NULL;
    assert_ok(rpma_conn_get_link(conn, &got));
    assert_string_equal(got, way);
    assert_ok(rpma_conn_get_identity(conn, &got));
    assert_string_equal(got, identity);
}

/* Makes a connection, each end with its own keys or certificates, and writes over it. */
static void connect_with(struct ends *ends, const char *of_endpoint, const char *of_request,
                         const char *identity) {
    ends->ep = listen_with(ends, of_endpoint, ends->port);
    assert_ok(rpma_conn_cfg_set_tls(ends->cfg, of_request));
    ask(ends, ends->cfg, NULL);
    answer(ends, NULL, NULL);
    await_established(ends);
    expect_way(ends->client, way_of_tls(), identity);
    expect_way(ends->server, way_of_tls(), identity);
    struct rpma_mr_local *near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC);
    struct rpma_mr_remote *far = remote_of(ends, reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_DST));
    memset(ends->near, 'a', BUFFER_SIZE);
    assert_ok(rpma_write(ends->client, far, 0, near, 0, BUFFER_SIZE, RPMA_F_COMPLETION_ALWAYS, NULL));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
}

static void one_connection_has_its_own_key(void **state) {
    connect_with(*state, text, text, "lone");
}

static void one_connection_has_certificates(void **state) {
    connect_with(*state, x509, x509, "test");
}

/* The endpoint has more keys than RPMA_TLS, or its own, and another endpoint beside it has others. */
static void two_endpoints_have_different_keys(void **state) {
    struct ends *ends = *state;
    char port[6];
    struct rpma_ep *other = listen_with(ends, all, port);
    connect_with(ends, text, text, "lone");
    assert_ok(rpma_conn_delete(&ends->client));
    assert_ok(rpma_conn_delete(&ends->server));
    assert_ok(rpma_ep_shutdown(&ends->ep));
    ends->ep = other;
    memcpy(ends->port, port, sizeof(port));
    assert_ok(rpma_conn_cfg_set_tls(ends->cfg, all));
    ask(ends, ends->cfg, NULL);
    answer(ends, ends->cfg, NULL);
    await_established(ends);
    expect_way(ends->client, way_of_tls(), "test");
}

/* Asks with these keys or certificates, and expects the error with which that fails. */
static void ask_in_vain(struct ends *ends, const char *of_request, int expected) {
    enum rpma_conn_event event = RPMA_CONN_ESTABLISHED;
    int error = 0;
    assert_ok(rpma_conn_cfg_set_tls(ends->cfg, of_request));
    ask(ends, ends->cfg, NULL);
    assert_ok(rpma_conn_next_event(ends->client, &event));
    assert_int_not_equal(event, RPMA_CONN_ESTABLISHED);
    assert_ok(rpma_conn_get_error(ends->client, &error));
    assert_string_equal(strerror(error), strerror(expected));
}

static void expect_refusal(struct ends *ends, const char *of_endpoint, const char *of_request, int expected) {
    ends->ep = listen_with(ends, of_endpoint, ends->port);
    ask_in_vain(ends, of_request, expected);
}

static void a_peer_is_known_while_the_file_has_its_key(void **state) {
    struct ends *ends = *state;
    bool known = false;
    ends->ep = listen_with(ends, text, ends->port);
    assert_ok(rpma_conn_cfg_set_tls(ends->cfg, text));
    ask(ends, ends->cfg, NULL);
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_code(rpma_conn_req_check_identity(NULL, &known), RPMA_E_INVAL);
    assert_code(rpma_conn_req_check_identity(ends->request, NULL), RPMA_E_INVAL);
    assert_ok(rpma_conn_req_check_identity(ends->request, &known));
    assert_true(known);
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    await_established(ends);
    const struct rpma_conn *several[] = {ends->server, ends->client, ends->server};
    bool all_known[] = {false, false, false};
    assert_ok(rpma_conn_check_identities(several, 3, all_known));
    assert_true(all_known[0] && all_known[1] && all_known[2]);
    write_keys("another");
    assert_ok(rpma_conn_check_identities(several, 3, all_known));
    assert_false(all_known[0] || all_known[1] || all_known[2]);
    assert_code(rpma_conn_check_identities(NULL, 1, all_known), RPMA_E_INVAL);
    assert_code(rpma_conn_check_identities(several, 0, all_known), RPMA_E_INVAL);
    assert_code(rpma_conn_check_identities(several, 3, NULL), RPMA_E_INVAL);
    several[1] = NULL;
    assert_code(rpma_conn_check_identities(several, 3, all_known), RPMA_E_INVAL);
    assert_code(rpma_conn_check_identity(NULL, &known), RPMA_E_INVAL);
    assert_code(rpma_conn_check_identity(ends->server, NULL), RPMA_E_INVAL);
    assert_ok(rpma_conn_check_identity(ends->server, &known));
    assert_false(known);
    assert_int_equal(unlink(keys), 0);
    assert_code(rpma_conn_check_identity(ends->server, &known), RPMA_E_PROVIDER);
    assert_code(rpma_conn_check_identities(several, 1, &known), RPMA_E_PROVIDER);
    write_keys("lone");
    assert_ok(rpma_conn_check_identity(ends->server, &known));
    assert_true(known);
}

static void another_key_is_refused(void **state) {
    expect_refusal(*state, all, text, EACCES);
}

static void a_key_is_no_certificate(void **state) {
    expect_refusal(*state, x509, text, EACCES);
}

/* Without RPMA_TLS these speak MPA, and with it the tests' key. */
static void an_endpoint_with_a_key_refuses_those_without(void **state) {
    expect_refusal(*state, text, NULL, is_tls_required() ? EACCES : ECONNRESET);
}

static void a_request_with_a_key_refuses_an_endpoint_without(void **state) {
    expect_refusal(*state, NULL, text, is_tls_required() ? EACCES : ECONNRESET);
}

/* RPMA_TLS, or nothing, is not what the configuration of the answer asks for. */
static void a_request_that_came_with_another_is_not_accepted(void **state) {
    struct ends *ends = *state;
    ends->ep = listen_with(ends, NULL, ends->port);
    ask(ends, NULL, NULL);
    assert_ok(rpma_conn_cfg_set_tls(ends->cfg, text));
    assert_code(rpma_ep_next_conn_req(ends->ep, ends->cfg, &ends->request), RPMA_E_INVAL);
    assert_null(ends->request);
    await_event(ends->client, RPMA_CONN_REJECTED);
}

static void an_adopted_request_has_no_keys_of_its_own(void **state) {
    struct ends *ends = *state;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_ok(rpma_conn_cfg_set_tls(ends->cfg, text));
    assert_code(rpma_conn_req_adopt(ends->peer, fds[0], ends->cfg, &ends->request), RPMA_E_NOSUPP);
    assert_null(ends->request);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

static void a_file_that_is_not_there_is_told(void **state) {
    struct ends *ends = *state;
    ends->ep = listen_with(ends, text, ends->port);
    ask_in_vain(ends, "psk:/no/such/file", ENOENT);
    struct rpma_ep_cfg *cfg = NULL;
    struct rpma_ep *ep = NULL;
    assert_ok(rpma_ep_cfg_new(&cfg));
    const char *missing[] = {"x509:/no/such/file", "psk:/no/such/file"};
    for (int i = 0; i < 2; ++i) {
        assert_ok(rpma_ep_cfg_set_tls(cfg, missing[i]));
        assert_code(rpma_ep_listen_cfg(ends->peer, ADDRESS, "0", cfg, &ep), RPMA_E_PROVIDER);
        assert_null(ep);
    }
    assert_ok(rpma_ep_cfg_delete(&cfg));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test_setup_teardown(one_connection_has_its_own_key, make_peer, end_all),
        cmocka_unit_test_setup_teardown(one_connection_has_certificates, make_peer, end_all),
        cmocka_unit_test_setup_teardown(two_endpoints_have_different_keys, make_peer, end_all),
        cmocka_unit_test_setup_teardown(a_peer_is_known_while_the_file_has_its_key, make_peer, end_all),
        cmocka_unit_test_setup_teardown(another_key_is_refused, make_peer, end_all),
        cmocka_unit_test_setup_teardown(a_key_is_no_certificate, make_peer, end_all),
        cmocka_unit_test_setup_teardown(an_endpoint_with_a_key_refuses_those_without, make_peer, end_all),
        cmocka_unit_test_setup_teardown(a_request_with_a_key_refuses_an_endpoint_without, make_peer, end_all),
        cmocka_unit_test_setup_teardown(a_request_that_came_with_another_is_not_accepted, make_peer, end_all),
        cmocka_unit_test_setup_teardown(an_adopted_request_has_no_keys_of_its_own, make_peer, end_all),
        cmocka_unit_test_setup_teardown(a_file_that_is_not_there_is_told, make_peer, end_all),
    };
    return cmocka_run_group_tests(tests, make_keys, NULL);
}
