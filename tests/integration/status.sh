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
for line in 'version *[1-9]' 'uptime *[0-9]* seconds' 'capacity *contents of up to 3145728 bytes' 'room *2097152 bytes for the next push' 'clients *0' \
    'pushes *none under way' 'durable *yes' "last *default: content 1, 1048576 bytes, crc32c:[0-9a-f]*, from 127.0.0.1.*, 20[0-9-]*T[0-9:]*Z" 'health *ok'; do
    grep -q "^$line" stdout || die "expected $line: $(cat stdout)"
done
status '"names":1,"contents":1,"bytes":1048576,' --json
grep -q '"pushes":\[\].*"last":{.*"host":"127.0.0.1".*"name":"default",.*"reasons":\[\]' stdout || die "JSON: $(cat stdout)"

mkfifo held
"$peer" hold 127.0.0.1 "$port" >held &
holder=$!
helpers+=($holder)
read -t 60 -r line <held || die "hold"
status '^pushes *default from 127.0.0.1 for [0-9]* seconds'
grep -q '^clients *1' stdout || die "expected a client: $(cat stdout)"
status '"pushes":\[{"host":"127.0.0.1",.*"name":"default","seconds":' --json
kill -KILL $holder
wait $holder 2>/dev/null || true
push content
status '^holds *1 name, 2097152 bytes'

# The status tells a person on call: the next push of this size has room, and after this one it has none.
bounded "$rpma" push content "$address/other" >stdout 2>stderr || die "push"
refused_with 6 "$address: room: there is room for 0 bytes, and the largest of the newest contents has 1048576" "$rpma" status "$address"
refused_with 6 'there is room for 0 bytes' "$rpma" status "$address" --json
grep -q '"reasons":\[{"kind":"room","name":null,' stdout || die "JSON: $(cat stdout)"
[ ! -s server.err ] || ! grep -q status server.err || die "the server complains: $(cat server.err)"
rm store/default/2
truncate -s 1000 store/other/1
refused_with 6 '; and 2 more' "$rpma" status "$address" --json
for kind in room deleted truncated; do
    grep -q "\"kind\":\"$kind\"" stdout || die "no $kind: $(cat stdout)"
done
stop_server

# The last commit is found again by a server that starts; no other name is taken than there may be.
start_server store --max-names 2
refused_with 6 '2 names, and takes no other (rpma serve --max-names)' "$rpma" push content "$address/third"
push content "$address/other"
head -c 1M /dev/urandom >later
push later
bounded "$rpma" rollback "$address" >stdout 2>stderr || die "rollback"
status '^last *default: content 3, 1048576 bytes'
stop_server
refused_with 7 'no server of a store is there' "$rpma" status "$address"
