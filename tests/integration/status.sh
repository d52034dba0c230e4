#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma status prints what a server holds, and which client pushes since when; it makes no client wait.
. "$(dirname "$0")/server.bash"

status() { # status TEXT [OPTION...]
    bounded "$rpma" status "$address" "${@:2}" >stdout 2>stderr || die "status"
    grep -q -- "$1" stdout || die "expected $1: $(cat stdout)"
}

head -c 1M /dev/urandom >content
start_server store --max-bytes 3M
status '^holds *0 names, 0 bytes'
push content
status '^holds *1 name, 1048576 bytes'
for line in 'capacity *contents of up to 3145728 bytes' 'clients *0' 'push *none under way' 'storage *ok'; do
    grep -q "^$line" stdout || die "expected $line: $(cat stdout)"
done
status '"names":1,"bytes":1048576,' --json
grep -q '"pusher":null' stdout || die "a pusher: $(cat stdout)"

mkfifo held
"$peer" hold 127.0.0.1 "$port" >held &
holder=$!
helpers+=($holder)
read -t 60 -r line <held || die "hold"
status '^push *from 127.0.0.1 for [0-9]* seconds'
grep -q '^clients *1' stdout || die "expected a client: $(cat stdout)"
status '"pusher":"127.0.0.1","pushing_seconds":' --json
kill -KILL $holder
wait $holder 2>/dev/null || true
push content
status '^holds *1 name, 2097152 bytes'
[ ! -s server.err ] || ! grep -q status server.err || die "the server complains: $(cat server.err)"
stop_server
refused_with 7 'no server of a store is there' "$rpma" status "$address"
