#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma sockets lists the rsockets of a server and of its client, as a table and in JSON, while they live and no longer.
. "$(dirname "$0")/server.bash"
. "$(dirname "$0")/ends.bash"

# has PID STATE NAME=VALUE...: the only rsocket of a process in that state. VALUE may be >NUMBER; "None" is JSON's null.
has() {
    bounded "$rpma" sockets --json >stdout 2>stderr || die "sockets --json"
    python3 -c '
import json, sys
pid, state = int(sys.argv[1]), sys.argv[2]
rows = [row for row in json.load(sys.stdin)["sockets"] if row["process"] == pid and row["state"] == state]
if len(rows) != 1:
    sys.exit("%d rsockets" % len(rows))
for expected in sys.argv[3:]:
    name, value = expected.split("=", 1)
    got = rows[0][name]
    if not (got > int(value[1:]) if value.startswith(">") else str(got) == value):
        sys.exit("%s: %s" % (expected, got))' "$@" <stdout >stderr 2>&1 || die "process $1, $2: $(cat stderr)"
}

# start_client BYTES: starts a client of the last server; returns when the server has read its bytes. Sets client; its
# input is $input.
start_client() {
    : >said
    rm -f client.in
    mkfifo client.in
    "$end_program" client 127.0.0.1 "$port" "$1" <client.in >said 2>server.err &
    client=$! pid=$client
    helpers+=("$client")
    exec {input}>client.in
    until_said '^connected'
}

start_end echo
listener=$pid server_port=$port
has "$listener" listening type=stream "local=127.0.0.1:$port" peer=None mode=None sent_bytes=None

link=memory
if [ "${SOFTRDMA_SHM-on}" = off ]; then link=tcp; fi
if [ -n "${RPMA_TLS-}" ]; then link=tls; fi
start_client 10000
for process in "$client" "$listener"; do
    has "$process" established mode=rdma device=soft_lo "link=$link" sent_bytes=10000 received_bytes=10000 "shard=$process" \
        "user=$(id -u)" reason=None 'window_bytes=>10000' 'credits=>100'
done
has "$client" established "peer=127.0.0.1:$server_port"
has "$listener" established "local=127.0.0.1:$server_port"

bounded "$rpma" sockets >stdout 2>stderr || die "sockets"
grep -qE '^PID +PROGRAM +USER +FD +TYPE +STATE +MODE +DEVICE +LINK +LOCAL +PEER ' stdout || die "the titles: $(head -1 stdout)"
grep -qE "^$listener +test_socket_end +$(id -u) +[0-9]+ +stream +listening +- +- +- +127.0.0.1:$server_port +- " stdout ||
    die "the listener: $(cat stdout)"
grep -qE "^$client .* established +rdma +soft_lo .* 127.0.0.1:$server_port +10000 +10000 " stdout ||
    die "the client: $(cat stdout)"

# It prints again and again, until the reader closes the pipe.
bounded "$rpma" sockets --watch 0.1 --json | head -3 >stdout || true
[ "$(grep -c "\"process\":$client" stdout)" -eq 3 ] || die "expected three lists: $(cat stdout)"

# A killed process has no rsockets in the list, and the files that it left are removed.
kill -KILL "$client"
wait "$client" 2>/dev/null || true
exec {input}>&-
kill -KILL "$listener"
wait "$listener" 2>/dev/null || true
bounded "$rpma" sockets --json >stdout 2>stderr || die "sockets --json"
! grep -qE "\"process\":($client|$listener)," stdout || die "rsockets of dead processes: $(cat stdout)"
[ -z "$(find /dev/shm/rsockets-* \( -name "rsocket-*-$client-*" -o -name "rsocket-*-$listener-*" \))" ] ||
    die "files of dead processes: $(ls /dev/shm/rsockets-*)"

refused_with 2 'expected a number from 0.1 to 3600' "$rpma" sockets --watch 0
refused_with 2 'more: unknown argument' "$rpma" sockets more
