/* SPDX-License-Identifier: BSD-3-Clause */
#include "rstream.h"

struct fi_eq_err_entry last_error;
char last_reason[256];

struct fi_info *wanted_info(void) {
    struct fi_info *hints = fi_allocinfo();
    assert_non_null(hints);
    hints->ep_attr->type = FI_EP_SOCK_STREAM;
    hints->caps = FI_MSG;
    hints->fabric_attr->prov_name = strdup("rstream");
    return hints;
}

void open_ends(struct ends *ends, const char *host) {
    struct fi_info *hints = wanted_info();
    memset(ends, 0, sizeof(*ends));
    assert_int_equal(fi_getinfo(RSTREAM_API, host, "0", FI_SOURCE | FI_NUMERICHOST, hints, &ends->info), 0);
    fi_freeinfo(hints);
    assert_int_equal(fi_fabric(ends->info->fabric_attr, &ends->fabric, NULL), 0);
    assert_int_equal(fi_domain(ends->fabric, ends->info, &ends->domain, NULL), 0);
    struct fi_eq_attr attributes = {.wait_obj = FI_WAIT_FD};
    assert_int_equal(fi_eq_open(ends->fabric, &attributes, &ends->eq, NULL), 0);
    assert_int_equal(fi_passive_ep(ends->fabric, ends->info, &ends->pep, NULL), 0);
    assert_int_equal(fi_pep_bind(ends->pep, &ends->eq->fid, 0), 0);
    assert_int_equal(fi_listen(ends->pep), 0);
    size_t size = sizeof(ends->address);
    assert_int_equal(fi_getname(&ends->pep->fid, &ends->address, &size), 0);
    assert_int_not_equal(((struct sockaddr_in *)&ends->address)->sin_port, 0);
}

void close_ends(struct ends *ends) {
    if (ends->pep != NULL) {
        assert_int_equal(fi_close(&ends->pep->fid), 0);
    }
    assert_int_equal(fi_close(&ends->eq->fid), 0);
    assert_int_equal(fi_close(&ends->domain->fid), 0);
    assert_int_equal(fi_close(&ends->fabric->fid), 0);
    fi_freeinfo(ends->info);
}

struct fid_ep *make_endpoint(struct ends *ends, struct fi_info *info) {
    struct fid_ep *ep = NULL;
    assert_int_equal(fi_endpoint(ends->domain, info, &ep, NULL), 0);
    assert_int_equal(fi_ep_bind(ep, &ends->eq->fid, 0), 0);
    assert_int_equal(fi_enable(ep), 0);
    return ep;
}

int next_event(struct ends *ends, struct fi_eq_cm_entry *entry) {
    uint32_t event = 0;
    const ssize_t got = fi_eq_sread(ends->eq, &event, entry, sizeof(*entry), -1, 0);
    if (got == (ssize_t)sizeof(*entry)) {
        return (int)event;
    }
    assert_int_equal(got, -FI_EAVAIL);
    last_error = (struct fi_eq_err_entry){.err_data = last_reason, .err_data_size = sizeof(last_reason)};
    assert_int_equal(fi_eq_readerr(ends->eq, &last_error, 0), sizeof(last_error));
    return -1;
}

struct fi_info *wait_for_request(struct ends *ends) {
    struct fi_eq_cm_entry entry = {0};
    assert_int_equal(next_event(ends, &entry), FI_CONNREQ);
    assert_ptr_equal(entry.fid, &ends->pep->fid);
    assert_non_null(entry.info);
    return entry.info;
}

void connect_pair(struct ends *ends, struct pair *pair) {
    if (pair->client == NULL) {
        pair->client = make_endpoint(ends, ends->info);
    }
    assert_int_equal(fi_connect(pair->client, &ends->address, NULL, 0), 0);
    struct fi_info *request = wait_for_request(ends);
    pair->server = make_endpoint(ends, request);
    fi_freeinfo(request);
    assert_int_equal(fi_accept(pair->server, NULL, 0), 0);
    const struct fid *connected[2] = {NULL, NULL};
    for (int i = 0; i < 2; ++i) {
        struct fi_eq_cm_entry entry = {0};
        assert_int_equal(next_event(ends, &entry), FI_CONNECTED);
        connected[i] = entry.fid;
    }
    assert_true((connected[0] == &pair->client->fid && connected[1] == &pair->server->fid) ||
                (connected[1] == &pair->client->fid && connected[0] == &pair->server->fid));
}

void close_pair(struct pair *pair) {
    assert_int_equal(fi_close(&pair->client->fid), 0);
    assert_int_equal(fi_close(&pair->server->fid), 0);
}

int descriptor_of(fid_t fid) {
    int fd = -1;
    assert_int_equal(fi_control(fid, FI_GETWAIT, &fd), 0);
    assert_true(fd >= 0);
    return fd;
}

bool is_readable(int fd) {
    struct pollfd descriptor = {.fd = fd, .events = POLLIN};
    return poll(&descriptor, 1, 0) == 1;
}

static void wait_for(struct fid_ep *ep) {
    struct pollfd descriptor = {.fd = descriptor_of(&ep->fid), .events = POLLIN};
    assert_int_equal(poll(&descriptor, 1, -1), 1);
}

ssize_t receive_some(struct fid_ep *to, void *bytes, size_t size) {
    ssize_t got = fi_recv(to, bytes, size, NULL, 0, NULL);
    while (got == -FI_EAGAIN) {
        wait_for(to);
        got = fi_recv(to, bytes, size, NULL, 0, NULL);
    }
    return got;
}

void receive_all(struct fid_ep *to, void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t got = receive_some(to, (char *)bytes + done, size - done);
        assert_true(got > 0);
        done += (size_t)got;
    }
}

void send_all(struct fid_ep *from, const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t put = fi_send(from, (const char *)bytes + done, size - done, NULL, 0, NULL);
        if (put == -FI_EAGAIN) {
            wait_for(from);
            continue;
        }
        assert_true(put > 0);
        done += (size_t)put;
    }
}
