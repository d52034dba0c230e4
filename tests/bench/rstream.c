/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures a stream between two processes over libfabric's provider rstream, as stream.c does over rsockets,
 * and prints one number.
 *   rstream round-trip|round-trip-spinning|write SIZE COUNT BUFFER
 * Where a call gives -FI_EAGAIN it waits with poll(2), or spins. BUFFER: FI_OPT_SEND_BUF_SIZE and
 * FI_OPT_RECV_BUF_SIZE; 0: as they are. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

static size_t size;
static long count;
static uint32_t buffer;
static bool spins;
static char *bytes;
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *eq;
static int descriptor;

static void must(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "rstream: %s\n", what);
        exit(1);
    }
}

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

static void send_all(struct fid_ep *ep, size_t wanted) {
    for (size_t sent = 0; sent < wanted;) {
        const ssize_t put = fi_send(ep, bytes + sent, wanted - sent, NULL, 0, NULL);
        if (put <= 0) {
            wait_for(ep, put);
        }
        sent += put > 0 ? (size_t)put : 0;
    }
}

static void receive_all(struct fid_ep *ep, size_t wanted) {
    for (size_t received = 0; received < wanted;) {
        const ssize_t got = fi_recv(ep, bytes + received, wanted - received, NULL, 0, NULL);
        if (got <= 0) {
            wait_for(ep, got);
        }
        received += got > 0 ? (size_t)got : 0;
    }
}

static void finish(struct fid_ep *ep) {
    must(fi_close(&ep->fid) == 0 && fi_close(&eq->fid) == 0 && fi_close(&domain->fid) == 0 &&
             fi_close(&fabric->fid) == 0,
         "fi_close");
    fi_freeinfo(info);
}

static void serve(int port_to, bool returns) {
    struct sockaddr_in address;
    size_t length = sizeof(address);
    struct fid_pep *pep = NULL;
    struct fi_eq_cm_entry entry;
    begin(FI_SOURCE, "0");
    must(fi_passive_ep(fabric, info, &pep, NULL) == 0 && fi_pep_bind(pep, &eq->fid, 0) == 0 &&
             fi_listen(pep) == 0 && fi_getname(&pep->fid, &address, &length) == 0,
         "fi_listen");
    must(write(port_to, &address.sin_port, sizeof(address.sin_port)) == sizeof(address.sin_port), "write");
    expect(FI_CONNREQ, &entry);
    struct fid_ep *ep = made(entry.info);
    fi_freeinfo(entry.info);
    must(fi_accept(ep, NULL, 0) == 0, "fi_accept");
    expect(FI_CONNECTED, &entry);
    for (long i = 0; i < count; ++i) {
        receive_all(ep, size);
        if (returns) {
            send_all(ep, size);
        }
    }
    send_all(ep, 1);
    receive_all(ep, 1);
    must(fi_close(&pep->fid) == 0, "fi_close");
    finish(ep);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void ask(int port_from, bool returns) {
    in_port_t port = 0;
    char service[8];
    struct fi_eq_cm_entry entry;
    must(read(port_from, &port, sizeof(port)) == sizeof(port), "read");
    snprintf(service, sizeof(service), "%d", ntohs(port));
    begin(0, service);
    struct fid_ep *ep = made(info);
    must(fi_connect(ep, info->dest_addr, NULL, 0) == 0, "fi_connect");
    expect(FI_CONNECTED, &entry);
    const double start = seconds();
    for (long i = 0; i < count; ++i) {
        send_all(ep, size);
        if (returns) {
            receive_all(ep, size);
        }
    }
    receive_all(ep, 1);
    const double time = seconds() - start;
    send_all(ep, 1);
    finish(ep);
    printf("%.4g\n", returns ? time / (double)count * 1e6 : (double)size * (double)count / time / 1e9);
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: rstream round-trip|round-trip-spinning|write SIZE COUNT BUFFER\n");
        return 2;
    }
    const bool returns = strcmp(argv[1], "write") != 0;
    spins = strcmp(argv[1], "round-trip-spinning") == 0;
    size = strtoul(argv[2], NULL, 10);
    count = strtol(argv[3], NULL, 10);
    buffer = (uint32_t)strtoul(argv[4], NULL, 10);
    bytes = malloc(size > 0 ? size : 1);
    must(bytes != NULL && size > 0 && count > 0, "SIZE and COUNT");
    memset(bytes, 'x', size);
    int port[2];
    must(pipe(port) == 0, "pipe");
    const pid_t server = fork();
    if (server == 0) {
        serve(port[1], returns);
        exit(0);
    }
    ask(port[0], returns);
    int status = 0;
    must(waitpid(server, &status, 0) == server && status == 0, "the server");
    return 0;
}
