/* SPDX-License-Identifier: BSD-3-Clause */
/* compat: writedata ADDRESS: libfabric's verbs provider writes remote data with a number (fi_writedata),
 * between two connected endpoints of this process. It has that on a device of RoCE only. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../require.h"

enum { SIZE = 4096, PATIENCE_MS = 30000, ROUNDS = 100 };

static void check(int64_t error, const char *what) {
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", what, fi_strerror(error < 0 ? (int)-error : (int)error));
        exit(EXIT_FAILURE);
    }
}
#define CHECK(call) check((call), #call)

static struct fid_fabric *fabric;
static struct fid_eq *events;

struct end {
    struct fid_domain *domain;
    struct fid_ep *endpoint;
    struct fid_cq *completions;
    struct fid_mr *region;
    char bytes[SIZE];
};

static void open_end(struct end *end, struct fi_info *info) {
    CHECK(fi_domain(fabric, info, &end->domain, NULL));
    CHECK(fi_endpoint(end->domain, info, &end->endpoint, NULL));
    struct fi_cq_attr completions = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    CHECK(fi_cq_open(end->domain, &completions, &end->completions, NULL));
    CHECK(fi_ep_bind(end->endpoint, &events->fid, 0));
    CHECK(fi_ep_bind(end->endpoint, &end->completions->fid, FI_TRANSMIT | FI_RECV));
    CHECK(fi_enable(end->endpoint));
    CHECK(fi_mr_reg(end->domain, end->bytes, SIZE, FI_WRITE | FI_REMOTE_WRITE | FI_RECV | FI_SEND, 0, 0, 0,
                    &end->region, NULL));
}

static void close_end(struct end *end) {
    CHECK(fi_close(&end->endpoint->fid));
    CHECK(fi_close(&end->region->fid));
    CHECK(fi_close(&end->completions->fid));
    CHECK(fi_close(&end->domain->fid));
}

/* Returns the info of a request. */
static struct fi_info *expect_event(uint32_t wanted) {
    struct fi_eq_cm_entry entry;
    uint32_t event = 0;
    const ssize_t size = fi_eq_sread(events, &event, &entry, sizeof(entry), PATIENCE_MS, 0);
    if (size < 0) {
        check(size, "fi_eq_sread");
    }
    REQUIRE(event == wanted);
    return entry.info;
}

static struct fi_cq_data_entry expect_completion(const struct end *end) {
    struct fi_cq_data_entry entry = {0};
    const ssize_t count = fi_cq_sread(end->completions, &entry, 1, NULL, PATIENCE_MS);
    if (count < 0) {
        check(count, "fi_cq_sread");
    }
    REQUIRE(count == 1);
    return entry;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s ADDRESS\n", argv[0]);
        return 2;
    }
    struct fi_info *const hints = fi_allocinfo();
    REQUIRE(hints != NULL);
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_RX_CQ_DATA;
    hints->ep_attr->type = FI_EP_MSG;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->domain_attr->cq_data_size = sizeof(uint32_t);
    hints->fabric_attr->prov_name = strdup("verbs");
    struct fi_info *passive = NULL;
    CHECK(fi_getinfo(FI_VERSION(1, 17), argv[1], "0", FI_SOURCE, hints, &passive));
    CHECK(fi_fabric(passive->fabric_attr, &fabric, NULL));
    struct fi_eq_attr attributes = {.wait_obj = FI_WAIT_FD};
    CHECK(fi_eq_open(fabric, &attributes, &events, NULL));
    struct fid_pep *listener = NULL;
    CHECK(fi_passive_ep(fabric, passive, &listener, NULL));
    CHECK(fi_pep_bind(listener, &events->fid, 0));
    CHECK(fi_listen(listener));
    char address[64];
    size_t size = sizeof(address);
    CHECK(fi_getname(&listener->fid, address, &size));

    static struct end from, to;
    hints->dest_addr = malloc(size);
    REQUIRE(hints->dest_addr != NULL);
    memcpy(hints->dest_addr, address, size);
    hints->dest_addrlen = size;
    hints->addr_format = passive->addr_format;
    struct fi_info *active = NULL;
    CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &active));
    open_end(&from, active);
    CHECK(fi_connect(from.endpoint, address, NULL, 0));
    struct fi_info *const request = expect_event(FI_CONNREQ);
    open_end(&to, request);
    CHECK(fi_accept(to.endpoint, NULL, 0));
    (void)expect_event(FI_CONNECTED);
    (void)expect_event(FI_CONNECTED);

    for (uint32_t round = 0; round < ROUNDS; ++round) {
        memset(from.bytes, (int)round, SIZE);
        CHECK(fi_recv(to.endpoint, to.bytes, SIZE, fi_mr_desc(to.region), 0, NULL));
        CHECK(fi_writedata(from.endpoint, from.bytes, SIZE, fi_mr_desc(from.region), round, 0,
                           (uintptr_t)to.bytes, fi_mr_key(to.region), NULL));
        const struct fi_cq_data_entry arrived = expect_completion(&to);
        REQUIRE((arrived.flags & (FI_REMOTE_CQ_DATA | FI_RMA)) == (FI_REMOTE_CQ_DATA | FI_RMA));
        REQUIRE(arrived.data == round);
        REQUIRE(memcmp(from.bytes, to.bytes, SIZE) == 0);
        (void)expect_completion(&from);
    }
    close_end(&from);
    close_end(&to);
    CHECK(fi_close(&listener->fid));
    CHECK(fi_close(&events->fid));
    CHECK(fi_close(&fabric->fid));
    fi_freeinfo(request);
    fi_freeinfo(active);
    fi_freeinfo(passive);
    fi_freeinfo(hints);
    printf("%d writes with their numbers\n", ROUNDS);
    return 0;
}
