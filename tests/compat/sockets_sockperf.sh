#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_sockperf.sh RPMA: runs sockperf's ping-pong carried: it checks every byte of every answer, and none is
# missing.
. "$(dirname "$0")/sockets.bash" "$1" sockperf

serve server sockperf server --tcp -i 127.0.0.1 -p "$port"
"${carried_by[@]}" sockperf ping-pong --tcp -i 127.0.0.1 -p "$port" -m 4096 -t 1 --data-integrity >client.out 2>&1 &
client=$!
background+=("$client")
wait "$client" || die "the client failed"
grep -q 'SentMessages=\([1-9][0-9]*\); ReceivedMessages=\1$' client.out || die "not every message was answered"
! grep -qi 'integrity test failed' client.out || die "an answer had other bytes"
# It may get the signal just before it waits, and then waits.
while [ -n "$(pgrep -P "$server")" ]; do
    kill -INT "$(pgrep -P "$server")" 2>/dev/null || true
    sleep 0.1
done
ended server
carried server.out client.out
