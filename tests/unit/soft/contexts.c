/* SPDX-License-Identifier: BSD-3-Clause */
/* unit/soft: tests that each ibv_open_device gives a context with events of its own, and when closing frees
 * it. */
#include "endpoint.h"
#include "loopback.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

static int has_event(const struct ibv_context *context) {
    struct pollfd ready = {.fd = context->async_fd, .events = POLLIN};
    return poll(&ready, 1, 0);
}

/* A completion queue of one entry, to which two queue pairs without a connection flush. */
static void overrun(struct ibv_context *context) {
    struct ibv_pd *pd = softrdma_ibv_alloc_pd(context);
    struct ibv_cq *cq = softrdma_ibv_create_cq(context, 1, NULL, NULL, 0);
    assert_non_null(pd);
    assert_non_null(cq);
    struct ibv_qp_init_attr wanted = {
        .send_cq = cq, .recv_cq = cq, .cap = {.max_recv_wr = 2, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = softrdma_ibv_create_qp(pd, &wanted);
    assert_non_null(qp);
    struct ibv_recv_wr receives[2] = {{.wr_id = 1, .next = &receives[1]}, {.wr_id = 2}};
    struct ibv_recv_wr *bad = NULL;
    assert_int_equal(ibv_post_recv(qp, receives, &bad), 0);
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(softrdma_ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
    struct ibv_async_event event;
    assert_int_equal(has_event(context), 1);
    assert_int_equal(softrdma_ibv_get_async_event(context, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
    softrdma_ibv_ack_async_event(&event);
    assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
    assert_int_equal(softrdma_ibv_destroy_cq(cq), 0);
    assert_int_equal(softrdma_ibv_dealloc_pd(pd), 0);
}

static void each_has_its_events(void **state) {
    (void)state;
    struct ibv_context *first = open_loopback();
    struct ibv_context *second = open_loopback();
    assert_ptr_not_equal(first, second);
    assert_int_not_equal(first->async_fd, second->async_fd);
    overrun(first);
    assert_int_equal(has_event(second), 0);
    overrun(second);
    assert_int_equal(has_event(first), 0);
    assert_int_equal(softrdma_ibv_close_device(first), 0);
    overrun(second);
    assert_int_equal(softrdma_ibv_close_device(second), 0);
}

static void closing_frees_what_is_not_in_use(void **state) {
    (void)state;
    struct ibv_context *used = open_loopback();
    const int fd = used->async_fd;
    struct ibv_pd *pd = softrdma_ibv_alloc_pd(used);
    assert_non_null(pd);
    assert_int_equal(softrdma_ibv_close_device(used), 0);
    assert_int_not_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(softrdma_ibv_dealloc_pd(pd), 0);
    assert_int_equal(softrdma_ibv_close_device(used), 0);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    for (int i = 0; i < 5000; i++) { /* more than a process has descriptors */
        assert_int_equal(softrdma_ibv_close_device(open_loopback()), 0);
    }
}

/* The child has events of its own in a context that it opens. That of its parent tells it nothing, and stays
 * the parent's when the child closes it. */
static void a_child_has_its_own(void **state) {
    (void)state;
    struct ibv_context *inherited = open_loopback();
    const pid_t child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0) {
        struct ibv_async_event event;
        errno = 0;
        const bool refused = softrdma_ibv_get_async_event(inherited, &event) == -1 && errno == EINVAL;
        struct ibv_context *own = open_loopback();
        overrun(own);
        const bool closed = softrdma_ibv_close_device(own) == 0 && softrdma_ibv_close_device(inherited) == 0;
        _exit(refused && closed ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(has_event(inherited), 0);
    overrun(inherited);
    assert_int_equal(softrdma_ibv_close_device(inherited), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_its_events),
        cmocka_unit_test(closing_frees_what_is_not_in_use),
        cmocka_unit_test(a_child_has_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
