#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Tests rpma perf: every operation over IPv4 and IPv6, exact counts, what it must not touch, and what ends it. No time
# is asserted.
. "$(dirname "$0")/server.bash"

head -c 3M /dev/urandom >content
head -c 3M /dev/urandom >other
start_server store
push content
push other

perf() { bounded "$rpma" perf "$address" "$@" >stdout 2>stderr || die "perf $*"; }

# check_json EACH ALL: EACH is true of each row and ALL of the whole output, and all numbers fit each other.
cat >check.py <<'END'
import json, sys
perf = json.load(open('stdout'))
for row in perf['rows']:
    for way in (row, row['tcp']):
        if way['operations'] == 0:  # a signal came before
            assert perf['interrupted'], row
            continue
        latency = way['latency_ns']
        names = ('min', 'p50', 'p90', 'p99', 'p99.9', 'p99.99', 'max')
        values = [latency[name] for name in names]
        assert values == sorted(values) and values[0] <= latency['mean'] <= values[-1], row
        assert sum(step['count'] for step in way['histogram']) == way['operations'], row
        assert all(step['from_ns'] < step['to_ns'] for step in way['histogram']), row
        assert way['seconds'] > 0 and abs(way['bytes_per_second'] / way['operations_per_second'] - row['bytes']) < 1e-3, row
    assert row['pairs'] == 0 or row['ratio_min'] <= row['ratio'] <= row['ratio_max'] and row['ratio'] > 0, row
    assert eval(sys.argv[1], {'perf': perf, 'row': row}), row
assert eval(sys.argv[2], {'perf': perf}), perf
END
check_json() { python3 check.py "$@" || die "$*: $(cat stdout)"; }

every_operation() {
    perf --count 40 --warmup 0 --size 1,4K,1M --depth 1,16 --json "$@"
    [ "$(wc -l <stdout)" -eq 1 ] || die "expected one line"
    [ ! -s stderr ] || die "perf is not quiet"
    check_json 'row["operations"] == 40 and row["tcp"]["operations"] == 40 and row["pairs"] == 9' \
        'len(perf["rows"]) == 4 * 3 * 2 + 2 and not perf["interrupted"]'
    check_json 'row["op"] != "flush" or (row["durable"] and row["memory"] in ("page cache", "DAX"))' 'True'
}
every_operation
every_operation --wait --connections 3
# One count is no multiple of the pairs, and one is less than the depth.
for count in 1 13; do
    perf --count $count --depth 16 --size 8 --json
    check_json "row['operations'] == $count and row['tcp']['operations'] == $count" 'len(perf["rows"]) == 5'
done
# Measures for a time: there is some output, the table for people.
perf --time 0.05 --warmup 0.01 --op write,flush --size 8 --depth 4 --histogram
grep -q '^op .*p99.99 .*GB/s.*x tcp$' stdout || die "expected a head: $(cat stdout)"
[ "$(grep -c '^\(write\|flush\) *8 *4 ' stdout)" -eq 2 ] || die "expected two rows: $(cat stdout)"
grep -q '^ *[0-9.]*[num]s to .*%  #' stdout || die "expected bars: $(cat stdout)"

# The committed content stays, and pushes and pulls continue.
[ "$(grep -c '^committed' server.out)" -eq 2 ] || die "perf made a commit"
[ ! -s server.err ] || die "the server complains"
pulled other
push content
pulled content

# A measurement and a push do not hinder each other.
mkfifo held
"$peer" hold 127.0.0.1 "$port" >held &
holder=$!
helpers+=($holder)
read -t 60 -r line <held || die "hold"
perf --count 10 --op write,read,send,atomic,flush --json
kill -KILL $holder
wait $holder 2>/dev/null || true

connected() { grep -qi ": [0-9A-F:]* [0-9A-F]*:$(printf %04X "$port") 01 " /proc/net/tcp; }
# start_perf OPTION...: starts a perf that runs until it is ended; returns when it is connected. Sets client.
start_perf() {
    "$rpma" perf "$address" --time 3600 "$@" >stdout 2>stderr &
    client=$!
    helpers+=($client)
    until connected; do
        kill -0 $client || die "perf ended: $(cat stderr)"
    done
}

# It ends with 0 and prints what it measured; the machine's speed decides how soon that is more than nothing.
for op in write flush send; do
    for try in $(seq 20); do
        start_perf --op $op --size 8 --warmup 0 --json
        sleep "0.$((try / 10))$((try % 10))"
        kill -INT $client
        wait $client || die "perf ended with $? when it was interrupted: $(cat stderr)"
        [ ! -s stderr ] || die "perf is not quiet"
        check_json 'row["operations"] > 0' 'perf["interrupted"] and len(perf["rows"]) <= 1'
        ! grep -q '"rows":\[\]' stdout || continue
        break
    done
    [ "$try" -lt 20 ] || die "nothing was measured in $try times"
done
push other
pulled other

# Bad arguments.
refused 'ADDRESS[:PORT] is required' "$rpma" perf
refused '127.0.0.1:0: expected' "$rpma" perf 127.0.0.1:0
refused '--op fly: expected' "$rpma" perf "$address" --op write,fly
refused '--size 0: expected' "$rpma" perf "$address" --size 0
refused '--size 65M: expected' "$rpma" perf "$address" --size 8,65M
refused '--depth 1025: expected' "$rpma" perf "$address" --depth 1025
refused '--connections' "$rpma" perf "$address" --connections 65
refused '--count' "$rpma" perf "$address" --count 0
refused '--count' "$rpma" perf "$address" --count 1 --time 1
refused '--time' "$rpma" perf "$address" --time 0
refused 'does not take 65 messages of 8 bytes' "$rpma" perf "$address" --op send --depth 65 --size 8

# The server dies, also in the middle of a write that is never answered.
for op in write read flush send atomic; do
    start_perf --op $op --size 64K
    code=0
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
    wait $client || code=$?
    [ $code -eq 7 ] || die "$op: perf ended with $code (expected 7, unreachable)"
    [ "$(wc -l <stderr)" -eq 1 ] || die "$op: expected one line: $(cat stderr)"
    refused "$address: refused: no server of a store is there" "$rpma" perf "$address"
    start_server store
    pulled other
done

# A push is taken while flushes are measured. A perf that dies leaves the server as it was.
start_perf --op flush
push other
pulled other
kill -KILL $client
wait $client 2>/dev/null || true
push content
pulled content
stop_server INT

if grep -q ' lo$' /proc/net/if_inet6 2>/dev/null; then
    listen_on='[::1]'
    start_server store6
    every_operation
    stop_server
fi
