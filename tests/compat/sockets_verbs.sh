#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_verbs.sh RPMA: a program that uses sockets and verbs has both preloads: qperf agrees on a test over TCP
# connections, which are carried, and measures over queue pairs of librdmacm, which are the soft device's, over TCP.
. "$(dirname "$0")/sockets.bash" "$1" qperf
carried_by=("${carried_by[@]:0:2}" "$rpma" run "${carried_by[@]:2}")
# Its server tells the port before it listens there, so a quick client is refused. That server then waits for the client
# for ever and serves no other: the next try has a server of its own.
for try in $(seq 20); do
    serve server qperf -lp "$port"
    ! carry qperf -lp "$port" -cm1 -t 1 127.0.0.1 rc_rdma_write_lat >client.out 2>&1 || break
    [ "$try" -lt 20 ] || die "qperf failed"
    server=$(pgrep -P "$server")
    kill -KILL "$server" $(pgrep -P "$server")
    port=$(free_port)
done
grep -q 'latency *=' client.out || die "qperf measured nothing"
carried client.out
