/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures a stream between two processes over libfabric's provider rstream, as stream.c does over rsockets,
 * and prints one number.
 *   rstream round-trip|round-trip-spinning|write SIZE COUNT BUFFER
 * Where a call gives -FI_EAGAIN it waits with poll(2), or spins. BUFFER: FI_OPT_SEND_BUF_SIZE and
 * FI_OPT_RECV_BUF_SIZE; 0: as they are. */
#include <arpa/inet.h>
#include <poll.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "stream_ends.h"

static uint32_t buffer;
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *eq;
static int descriptor;

static void begin(uint64_t flags, const char *service) {
    struct fi_info *hints = fi_allocinfo();
    struct fi_eq_attr attributes = {.wait_obj = FI_WAIT_FD};
    must(hints != NULL, "fi_allocinfo");
    hints->ep_attr->type = FI_EP_SOCK_STREAM;
    hints->fabric_attr->prov_name = strdup("rstream");
    must(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", service, flags, hints, &info) == 0, "fi_getinfo");
    fi_freeinfo(hints);
    must(fi_fabric(info->fabric_attr, &fabric, NULL) == 0, "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL) == 0, "fi_domain");
    must(fi_eq_open(fabric, &attributes, &eq, NULL) == 0, "fi_eq_open");
}

static struct fid_ep *made(struct fi_info *of) {
    struct fid_ep *ep = NULL;
    must(fi_endpoint(domain, of, &ep, NULL) == 0 && fi_ep_bind(ep, &eq->fid, 0) == 0, "fi_endpoint");
    must(buffer == 0 ||
             (fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_SEND_BUF_SIZE, &buffer, sizeof(buffer)) == 0 &&
              fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_RECV_BUF_SIZE, &buffer, sizeof(buffer)) == 0),
         "fi_setopt");
    must(fi_enable(ep) == 0, "fi_enable");
    must(spins || fi_control(&ep->fid, FI_GETWAIT, &descriptor) == 0, "fi_control");
    return ep;
}

static void expect(uint32_t wanted, struct fi_eq_cm_entry *entry) {
    uint32_t event = 0;
    must(fi_eq_sread(eq, &event, entry, sizeof(*entry), -1, 0) == sizeof(*entry) && event == wanted,
         "fi_eq_sread");
}

static void wait_for(struct fid_ep *ep, ssize_t result) {
    must(result == -FI_EAGAIN, "a call fails");
    fid_t fid = &ep->fid;
    if (!spins && fi_trywait(fabric, &fid, 1) == 0) {
        struct pollfd one = {.fd = descriptor, .events = POLLIN};
        must(poll(&one, 1, -1) == 1, "poll");
    }
}

static size_t send_some(void *end, char *from, size_t most) {
    struct fid_ep *const ep = end;
    const ssize_t put = fi_send(ep, from, most, NULL, 0, NULL);
    if (put <= 0) {
        wait_for(ep, put);
    }
    return put > 0 ? (size_t)put : 0;
}

static size_t receive_some(void *end, char *to, size_t most) {
    struct fid_ep *const ep = end;
    const ssize_t got = fi_recv(ep, to, most, NULL, 0, NULL);
    if (got <= 0) {
        wait_for(ep, got);
    }
    return got > 0 ? (size_t)got : 0;
}

static void finish(struct fid_ep *ep) {
    must(fi_close(&ep->fid) == 0 && fi_close(&eq->fid) == 0 && fi_close(&domain->fid) == 0 &&
             fi_close(&fabric->fid) == 0,
         "fi_close");
    fi_freeinfo(info);
}

static void serve(int port_to) {
    struct sockaddr_in address;
    size_t length = sizeof(address);
    struct fid_pep *pep = NULL;
    struct fi_eq_cm_entry entry;
    begin(FI_SOURCE, "0");
    must(fi_passive_ep(fabric, info, &pep, NULL) == 0 && fi_pep_bind(pep, &eq->fid, 0) == 0 &&
             fi_listen(pep) == 0 && fi_getname(&pep->fid, &address, &length) == 0,
         "fi_listen");
    tell_port(port_to, address.sin_port);
    expect(FI_CONNREQ, &entry);
    struct fid_ep *ep = made(entry.info);
    fi_freeinfo(entry.info);
    must(fi_accept(ep, NULL, 0) == 0, "fi_accept");
    expect(FI_CONNECTED, &entry);
    for (long i = 0; i < count; ++i) {
        move_all(ep, size, receive_some);
        if (returns) {
            move_all(ep, size, send_some);
        }
    }
    move_all(ep, 1, send_some);
    move_all(ep, 1, receive_some);
    must(fi_close(&pep->fid) == 0, "fi_close");
    finish(ep);
}

static void ask(int port_from) {
    char service[8];
    struct fi_eq_cm_entry entry;
    snprintf(service, sizeof(service), "%d", ntohs(told_port(port_from)));
    begin(0, service);
    struct fid_ep *ep = made(info);
    must(fi_connect(ep, info->dest_addr, NULL, 0) == 0, "fi_connect");
    expect(FI_CONNECTED, &entry);
    const double start = seconds();
    for (long i = 0; i < count; ++i) {
        move_all(ep, size, send_some);
        if (returns) {
            move_all(ep, size, receive_some);
        }
    }
    move_all(ep, 1, receive_some);
    const double time = seconds() - start;
    move_all(ep, 1, send_some);
    finish(ep);
    print_result(time);
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: rstream round-trip|round-trip-spinning|write SIZE COUNT BUFFER\n");
        return 2;
    }
    read_arguments("rstream", argv[1], argv[2], argv[3]);
    buffer = (uint32_t)strtoul(argv[4], NULL, 10);
    return run_both(serve, ask);
}
