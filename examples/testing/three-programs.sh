#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Three verbs programs, each with both of its ends here. A client that finds no server yet tries again.
set -eu
pair() {  # pair SERVER CLIENT
    rpma run --roce $1 &
    until rpma run --roce $2; do
        kill -0 $!
        sleep 0.2
    done
    wait $!
}
# It connects by rdma_cm.
pair "rping -s -a 127.0.0.1 -C 10" "rping -c -a 127.0.0.1 -C 10"
# It connects queue pairs by number.
pair "ibv_rc_pingpong -d soft_lo -g 1 -n 100" "ibv_rc_pingpong -d soft_lo -g 1 -n 100 127.0.0.1"
# It uses verbs through UCX, which may use nothing else here.
export UCX_TLS=rc UCX_NET_DEVICES=soft_lo:1 UCX_IB_GID_INDEX=1
pair "ucx_perftest -t tag_lat -n 100" "ucx_perftest -t tag_lat -n 100 127.0.0.1"
