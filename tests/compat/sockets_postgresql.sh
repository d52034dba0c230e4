#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_postgresql.sh RPMA: PostgreSQL runs carried; its postmaster accepts and its children serve. The test
# runs psql, COPY of 20000 rows, a query that is cancelled, pgbench with 50 clients, and TLS; psql also connects over
# TCP.
programs=$(echo /usr/lib/postgresql/*/bin)
PATH=${programs##* }:$PATH
. "$(dirname "$0")/sockets.bash" "$1" postgres initdb psql pgbench openssl

# The server does not run as root. Its user does not reach the build: here by this path, and by none when the build is
# below /root.
mkdir -m 700 closed
ln -s "${rpma%/*}" closed/bin
carried_by=("${carried_by[@]/#"$rpma"/"$work/closed/bin/rpma"}")
rpma=$work/closed/bin/rpma
become postgres
mkdir data
[ ${#as[@]} -eq 0 ] || chown postgres data
"${as[@]}" initdb -D "$work/data" -U postgres -A trust --no-sync >initdb.out 2>&1 || die "initdb failed"
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout key -out certificate 2>openssl.out
install -m 600 key data/server.key
install -m 600 certificate data/server.crt
[ ${#as[@]} -eq 0 ] || chown postgres data/server.*
export HOME=$work PGHOST=127.0.0.1 PGPORT=$port PGUSER=postgres PGDATABASE=postgres PGSSLMODE=disable

serve server postgres -D "$work/data" -p "$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c ssl=on \
    -c max_connections=80 -c fsync=off
for ((i = 0; i < 500; i++)); do
    ! psql -Atc 'select 1' >tcp.out 2>&1 || break
    sleep 0.02
done
[ "$(cat tcp.out)" = 1 ] || die "psql over TCP: $(cat tcp.out)"

query() { carry psql -At -v ON_ERROR_STOP=1 "$@" 2>>client.out; }
seq 20000 | sed 's/.*/&\trow & of the table/' >rows
query -c 'create table t (i int, s text)' >created.out || die "create failed"
query -c 'copy t from stdin' <rows >copied.out || die "COPY in failed"
query -c 'copy (select * from t order by i) to stdout' | cmp - rows || die "COPY out gives other rows"
[ "$(PGSSLMODE=require query -c "select version from pg_stat_ssl where pid = pg_backend_pid()")" = TLSv1.3 ] || die "no TLS"

# psql sends the cancellation over a connection of its own when it is interrupted.
"${carried_by[@]}" psql -c 'select pg_sleep(40)' >cancelled.out 2>&1 &
psql=$!
background+=("$psql")
for ((i = 0; i < 500; i++)); do
    [ "$(psql -Atc "select count(*) from pg_stat_activity where query like '%pg_sleep(40)' and state = 'active'")" != 1 ] || break
    sleep 0.02
done
kill -INT "$(pgrep -P "$psql")"
! wait "$psql" || die "the query was not cancelled"
grep -q 'canceling statement due to user request' cancelled.out || die "the query ended otherwise"

carry pgbench -i -q >init.out 2>&1 || die "pgbench -i failed"
carry pgbench -n -S -c 50 -j 2 -t 40 >pgbench.out 2>&1 || die "pgbench failed"
grep -q 'actually processed: 2000/2000' pgbench.out || die "pgbench did not finish"
carried client.out init.out pgbench.out
stop server INT
