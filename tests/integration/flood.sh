#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A client that sends without end, or that takes what others need, does not keep the server from the others.
. "$(dirname "$0")/server.bash"

head -c 1M /dev/urandom >content
start_server store
push content
mkfifo said

# others: the server answers others.
others() { bounded "$rpma" status "$address" --timeout 20 >stdout 2>stderr || die "no answer beside $1"; }
# flooding MODE: a client of this kind is at work; sets pid.
flooding() {
    "$peer" "$1" 127.0.0.1 "$port" >said &
    pid=$!
    helpers+=($pid)
    read -t 60 -r line <said || die "$1"
}

# Messages that ask nothing.
flooding flood
for again in 1 2 3; do others flood; done
push content
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true

# Requests on the baseline of a client that measures and has ended its connection: the server ends the baseline too.
flooding flood_baseline
others flood_baseline
wait "$pid" || die "the server keeps the baseline of a client that is gone"

# Each of many clients that ask for the status gets it, and nobody waits for them.
flooding status_crowd
others status_crowd
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true

pulled content
stop_server
