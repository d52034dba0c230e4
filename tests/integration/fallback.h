/* SPDX-License-Identifier: BSD-3-Clause */
/* fallback: test_fallback and the ends that it starts share these declarations. */
#ifndef FALLBACK_H
#define FALLBACK_H 1

#include <stdint.h>

/* A behaviour is what client and server do with a connection. When one end speaks, the other answers; then
 * the client ends. */
enum behaviour {
    ClientFirst,
    ServerFirst,
    ClientGarbage, /* speaks first, and neither HTTP nor MPA */
    ServerGarbage,
    ClientLikeKey, /* speaks first, and like the key of MPA, without its last letter */
    ServerLikeKey,
    Silent,     /* the client closes */
    HalfClosed, /* the client ends its direction, and the server closes */
    BEHAVIOURS
};

/*
 * An end is `PROGRAM rsockets|tcp 4|6 [PORT...]`, a client where there is a port for each behaviour. On its
 * standard output a server writes its ports, as uint16_t in the order of the behaviours; then both write a
 * report for each behaviour.
 */
struct report {
    int good;   /* every byte was right */
    int mode;   /* RDMA_MODE_; -1: the socket does not tell */
    int reason; /* RDMA_REASON_ */
    double milliseconds;
};

#endif
