#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_varnish.sh RPMA: varnish, whose first process listens and whose second one has the connections, stands in front of nginx and
# keeps its files; curl, siege with and without keep-alive, and lftp ask it, and curl over TCP.
varnishd=$(command -v varnishd || echo /usr/sbin/varnishd)
nginx=$(command -v nginx || echo /usr/sbin/nginx)
. "$(dirname "$0")/sockets.bash" "$1" "$varnishd" "$nginx" siege curl lftp

mkdir www home
head -c 3M /dev/urandom >www/file
echo hello >www/small
chmod 755 . www
nginx_config 127.0.0.1 on
serve nginx "$nginx" -e "$work/nginx.log" -c "$work/nginx.conf"
behind=$port
port=$(free_port)
serve varnish "$varnishd" -F -j none -a "127.0.0.1:$port" -b "127.0.0.1:$behind" -n "$work/varnish" -s malloc,64m
url=http://127.0.0.1:$port
for _ in 1 2 3; do
    carry curl -sS --max-time 20 "$url/file" 2>>curl.out | cmp - www/file || die "curl got something else"
done
curl -sS --max-time 20 "$url/file" | cmp - www/file || die "curl over TCP got something else"
export HOME=$work/home
for connection in close keep-alive; do
    printf 'connection = %s\nverbose = false\nlimit = 64\n' "$connection" >"siege.$connection"
    carry siege -R "siege.$connection" -b -c 16 -r 50 "$url/small" >"siege.$connection.out" 2>&1 || die "siege failed"
    grep -Eq '"?failed_transactions"?:[[:space:]]*0[,[:space:]]|Failed transactions:[[:space:]]+0$' "siege.$connection.out" ||
        die "siege, $connection: $(cat "siege.$connection.out")"
done
carry lftp -c "set net:max-retries 2; get $url/file -o got" >lftp.out 2>&1 || die "lftp failed"
cmp got www/file || die "a file changed"
carried curl.out siege.close.out siege.keep-alive.out lftp.out
