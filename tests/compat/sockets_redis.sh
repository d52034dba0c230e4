#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_redis.sh RPMA: tests Redis carried: values, pub/sub, pipelining, persistence, 100 clients, a replica.
. "$(dirname "$0")/sockets.bash" "$1" redis-server redis-cli redis-benchmark

cli() { carry redis-cli -p "$port" "$@" 2>>client.out; }
says() { # says EXPECTED COMMAND...
    local expected=$1 said
    shift
    said=$(cli "$@")
    [ "$said" = "$expected" ] || die "redis-cli $*: '$said' instead of '$expected'"
}

serve server redis-server --port "$port" --save '' --dir "$work" --repl-diskless-sync-delay 0
says OK set key value
says value get key

# A value of 100 KB is compared byte for byte, and many commands are sent at once.
head -c 100000 /dev/urandom | base64 -w0 >large
says OK -x set large <large
cli get large | cmp - <(cat large && echo) || die "a large value changed"
seq 1000 | sed 's/.*/set n:& &/' | cli --pipe | grep -q 'errors: 0, replies: 1000' || die "pipelining"
says 1000 get n:1000

# Pub/sub: the subscriber is connected when a publish has one receiver.
"${carried_by[@]}" redis-cli -p "$port" subscribe news >subscriber.out 2>&1 &
subscriber=$!
background+=("$subscriber")
for ((i = 0; i < 500; i++)); do
    [ "$(cli publish news hello)" != 1 ] || break
    sleep 0.02
done
for ((i = 0; i < 500; i++)); do
    ! grep -q hello subscriber.out || break
    sleep 0.02
done
grep -q hello subscriber.out || die "the subscriber heard nothing"
kill "$subscriber"

# A child of the server writes the file while clients continue.
says 'Background saving started' bgsave
carry redis-benchmark -p "$port" -t set,get -n 4000 -c 100 -P 4 -q >benchmark.out 2>&1 || die "redis-benchmark failed"
[ "$(grep -c 'requests per second' benchmark.out)" -eq 2 ] || die "redis-benchmark did not finish"
for ((i = 0; i < 500; i++)); do
    [ ! -s dump.rdb ] || break
    sleep 0.02
done
[ -s dump.rdb ] || die "nothing was saved"

# A second server becomes its replica, and has the same values.
first=$server first_port=$port
port=$(free_port)
serve replica redis-server --port "$port" --save '' --dir "$work" --dbfilename replica.rdb --replicaof 127.0.0.1 "$first_port"
for ((i = 0; i < 500; i++)); do
    [ "$(cli get n:1000)" != 1000 ] || break
    sleep 0.02
done
says 1000 get n:1000
cli get large | cmp - <(cat large && echo) || die "the replica has another value"
cli shutdown nosave || true
ended replica
port=$first_port server=$first
cli shutdown nosave || true
ended server
carried server.out replica.out client.out benchmark.out
