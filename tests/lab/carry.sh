#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run as root inside the kernel lab's guest: Redis and nginx, unmodified, as TCP connections between two addresses, whose bytes go
# over the kernel's device that serves these.
#   carry.sh BUILD-FOLDER DEVICE ADDRESS
nginx=$(command -v nginx || echo /usr/sbin/nginx)
. "$(dirname "$0")/../compat/sockets.bash" "$(realpath "$1")/bin/rpma" redis-server redis-cli "$nginx" curl
device=$2 address=$3
interface=net_${device%0}
# Clients of the first address have the second one from here on.
second=${address%.*}.9
ip address add "$second/24" dev "$interface"
ip route replace local "$address" dev "$interface" table local proto kernel scope host src "$second"
# Within a host it would be memory.
export RPMA_CARRY_AFTER=1 RPMA_CARRY_DEVICE=kernel
carried_by=(timeout 300 "$rpma" run --sockets --stats)
# went_over FILE: the process that wrote the file had bytes over the device, in both directions.
went_over() {
    grep -Eq 'bytes received, 0 of them over memory, [1-9][0-9]* over a device, [0-9]+ sent, 0 of them over memory, [1-9]' "$1" ||
        die "$1: nothing went over $device: $(tail -n 3 "$1")"
}

# goes_over: `rpma sockets` lists a connection that is over the device.
goes_over() { "$rpma" sockets --json | grep -q '"link": *"device"'; }

# Both ends meet in the background, while the client's commands go to and fro. The commands go on until they have met.
serve redis redis-server --bind "$address" --port "$port" --protected-mode no --save '' --dir "$work"
value=$(head -c 3000 /dev/urandom | base64 -w0)
for ((i = 0; i < 200; i++)); do printf 'set key%s %s\nget key%s\n' $i "$i$value" $i; done >commands
for ((i = 0; i < 200; i++)); do printf 'OK\n%s\n' "$i$value"; done >expected
mkfifo asked
carry redis-cli -h "$address" -p "$port" <asked >answered 2>client.out &
client=$!
background+=($client)
exec {asks}>asked
rounds=1
cat commands >&$asks
until goes_over || [ $rounds = 50 ]; do
    cat commands >&$asks
    rounds=$((rounds + 1))
done
{ cat commands && echo 'shutdown nosave'; } >&$asks
exec {asks}>&-
wait $client || die "redis-cli failed"
ended redis
for ((i = 0; i <= rounds; i++)); do cat expected; done | cmp -n "$(((rounds + 1) * $(stat -c %s expected)))" answered - ||
    die "Redis has another value"
went_over redis.out
went_over client.out
echo "redis over $device: ok"

# One connection has many requests.
port=$(free_port)
mkdir www
head -c 100K /dev/urandom >www/file
nginx_config "$address" off
serve nginx "$nginx" -e "$work/nginx.log" -c "$work/nginx.conf"
# The client takes the next file when the one before is there.
for ((i = 0; i < 60; i++)); do printf 'url = "http://%s:%s/file"\noutput = "got.%s"\n' "$address" "$port" $i; done >urls
carry curl -sS --config urls 2>curl.out || die "curl failed"
for ((i = 0; i < 60; i++)); do cmp "got.$i" www/file || die "a file changed"; done
stop nginx QUIT
grep -q 'bytes received, 0 of them over memory, [1-9][0-9]* over a device' curl.out || die "nginx sent nothing over $device"
echo "nginx over $device: ok"
