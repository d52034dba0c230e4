#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run as root inside the kernel lab's guest: runs Redis and nginx, unmodified, over rsockets and the kernel's device
# that serves an address, with one connection to each. nginx is one process: with a kernel's device a child of fork
# cannot use its parent's listener.
#   sockets.sh BUILD-FOLDER DEVICE ADDRESS
nginx=$(command -v nginx || echo /usr/sbin/nginx)
. "$(dirname "$0")/../compat/sockets.bash" "$(realpath "$1")/bin/rpma" redis-server redis-cli "$nginx" curl
device=$2 address=$3
over_rsockets=(timeout 50 "$rpma" run --sockets --stats --device kernel)
# rxe's listeners are not in TCP: the connection manager knows them.
listening() { rdma resource show cm_id | grep -q "LISTEN.*:$1"; }

# The client continues until it is told to end: it sets a value of 30 KB, and reads it while the stream is listed.
serve redis redis-server --bind "$address" --port "$port" --protected-mode no --save '' --dir "$work"
value=$(head -c 30000 /dev/urandom | base64 -w0)
mkfifo asked
"${over_rsockets[@]}" redis-cli -h "$address" -p "$port" <asked >answered 2>client.out &
client=$!
background+=("$client")
exec {ask}>asked
echo "set key $value" >&"$ask"
listed redis-server redis-cli
printf '%s\n' 'get key' 'shutdown nosave' >&"$ask"
exec {ask}>&-
wait "$client" || die "redis-cli failed"
ended redis
printf 'OK\n%s\n' "$value" | cmp - answered || die "Redis has another value"
carried redis.out client.out
echo "redis over $device: ok"

# The client's output pipe is full while the stream is listed.
port=$(free_port)
mkdir www
head -c 2M /dev/urandom >www/file
nginx_config "$address" on
serve nginx "$nginx" -e "$work/nginx.log" -c "$work/nginx.conf"
mkfifo got
"${over_rsockets[@]}" curl -sS --max-time 40 "http://$address:$port/file" >got 2>curl.out &
client=$!
background+=("$client")
exec {get}<got
listed nginx curl
cmp - www/file <&"$get" || die "a file changed"
wait "$client" || die "curl failed"
stop nginx QUIT
carried curl.out
grep -q 'rpma run --sockets: nginx.* 1 connections over rsockets, 0 over TCP' nginx.log || die "nginx carried nothing"
echo "nginx over $device: ok"
