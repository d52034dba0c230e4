#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_haproxy.sh RPMA: haproxy with two threads runs in front of Python's http.server: curl asks it carried,
# and its own connection to the server is carried; then curl asks over TCP.
haproxy=$(command -v haproxy || echo /usr/sbin/haproxy)
. "$(dirname "$0")/sockets.bash" "$1" "$haproxy" python3 curl

head -c 3M /dev/urandom >file
serve behind python3 -u -m http.server -b 127.0.0.1 "$port"
behind=$port
port=$(free_port)
front_config "$behind" >config
serve front "$haproxy" -db -f config
for _ in 1 2 3; do
    carry curl -sS --max-time 20 "http://127.0.0.1:$port/file" 2>>curl.out | cmp - file || die "curl got something else"
done
curl -sS --max-time 20 "http://127.0.0.1:$port/file" | cmp - file || die "curl over TCP got something else"
carried curl.out
stop front USR1
