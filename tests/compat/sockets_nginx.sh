#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_nginx.sh RPMA: nginx with four workers runs carried: wrk asks it with and without keep-alive, it is
# reloaded under load, and it sends a large file by sendfile; curl asks it over TCP too.
nginx=$(command -v nginx || echo /usr/sbin/nginx)
. "$(dirname "$0")/sockets.bash" "$1" "$nginx" wrk curl

mkdir www
echo hello >www/small
head -c 64M /dev/urandom >www/large
# Workers that root starts run as the user nobody.
chmod 755 . www
cat >nginx.conf <<END
worker_processes 4;
daemon off;
pid $work/nginx.pid;
error_log $work/workers.out notice;
events { worker_connections 512; }
http {
    access_log off;
    sendfile on;
    keepalive_requests 1000000;
    client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3;
    uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
    server { listen 127.0.0.1:$port; root $work/www; }
}
END
serve server "$nginx" -e "$work/workers.out" -c "$work/nginx.conf"
url=http://127.0.0.1:$port

carry curl -sS --max-time 30 "$url/large" 2>curl.out | cmp - www/large || die "a large file changed"
curl -sS --max-time 30 "$url/large" | cmp - www/large || die "a large file changed over TCP"
carry wrk -t2 -c32 -d1 "$url/small" >wrk.out 2>&1 || die "wrk failed"
carry wrk -t2 -c16 -d1 -H 'Connection: close' "$url/small" >close.out 2>&1 || die "wrk failed without keep-alive"
"${carried_by[@]}" wrk -t2 -c16 -d1 "$url/small" >reload.out 2>&1 &
wrk=$!
background+=("$wrk")
kill -HUP "$(cat nginx.pid)"
wait "$wrk" || die "wrk failed while nginx reloaded"
for file in wrk.out close.out reload.out; do
    ! grep -q -e 'Non-2xx' "$file" || die "$file: other answers"
    grep -Eq '[1-9][0-9]* requests in' "$file" || die "$file: no answers"
done
! grep -q 'Socket errors' wrk.out || die "wrk had errors"
stop server QUIT
carried curl.out wrk.out close.out reload.out
! grep -E '\[(emerg|alert|crit)\]' workers.out || die "nginx complains"
