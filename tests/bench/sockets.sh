#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares Debian's programs carried, with both ends under `rpma run --sockets`, with the same programs over TCP.
# A row has the medians of interleaved pairs, and the medians of the pairs' ratios (carried / TCP). CPU is the
# processor time of both ends for the same work. With --hosts the clients are in a network namespace of their own, as
# on another host without a card, so that every connection stays in TCP. With --table it prints the rows of
# doc/COMPATIBILITY.md. On a machine that runs other programs, `chrt -f 1 sockets.sh ...` keeps them from interfering.
#   PAIRS=9 sockets.sh [--quick] [--hosts] [--table] BUILD [PROGRAM...]
arguments=("$@")
quick='' hosts='' format='%-10s %-38s %10s %10s %-6s %6s %8s %6s  %s\n'
while [[ ${1:-} == --* ]]; do
    case $1 in
        --quick) quick=yes ;;
        --hosts) hosts=yes ;;
        --table) format='| %s | %s | %s | %s %s | %s | %s | %s | %s |\n' ;;
    esac
    shift
done
build=$(realpath "$1")
shift
all=(redis nginx memcached iperf3 haproxy postgresql sockperf node)
measured=("${@:-${all[@]}}")
here=$(realpath "$(dirname "$0")")
if [ -n "$hosts" ]; then
    . "$here/../namespaces.bash"
    within_namespaces --net -- "${arguments[@]}"
fi
for folder in /usr/lib/postgresql/*/bin; do PATH=$folder:$PATH; done
PATH=$PATH:/usr/sbin
. "$here/../compat/sockets.bash" "$build/bin/rpma" python3
there=() # what a client's command begins with
if [ -n "$hosts" ]; then
    another_host
    background+=("$other")
    link_hosts
    address=192.0.2.1
fi
kept=${#background[@]} # processes that serve every program
pairs=${PAIRS:-$([ -n "$quick" ] && echo 1 || echo 9)}
few() { echo $(($1 / $([ -n "$quick" ] && echo "$2" || echo 1))); } # few N D: N, or with --quick N / D
bar() { if [ -n "$hosts" ]; then echo '>= 0.97'; else echo ">= $1"; fi } # bar RATIO: within a host

# Each program has: the other programs that it needs; its rows, as `ROW|what it is|bar`; start_PROGRAM WAY;
# measure_PROGRAM ROW, which prints throughput, latency, and the amount of work. $port is the server's port;
# "${over[@]}" is the command that runs a client this WAY.

needs_redis=(redis-server redis-benchmark)
rows_redis=("set|SET, 50 clients (k/s, ms)|$(bar 2.0)" "get|GET, 50 clients (k/s, ms)|$(bar 2.0)"
    "ping|PING, 1 client (k/s, ms)|$(bar 5.0)")
start_redis() {
    serve "redis-$1" redis-server --bind "$address" --protected-mode no --port "$port" --save '' --dir "$work"
}
measure_redis() {
    local clients=50 requests
    requests=$(few 200000 100)
    [ "$1" != ping ] || clients=1 requests=$(few 20000 20)
    "${over[@]}" redis-benchmark -h "$address" -p "$port" -t "${1/ping/ping_mbulk}" -c $clients -n "$requests" --csv 2>client.out |
        awk -F'"' -v n="$requests" '/^"[SGP]/ { print $4 / 1000, $6, n }'
}

needs_nginx=(nginx curl wrk)
rows_nginx=("file|1 GiB by sendfile (GB/s)|$(bar 1.0)" "small|1 KiB, 32 connections (k/s, ms)|$(bar 1.0)"
    "one|1 KiB, 1 connection (k/s, ms)|$(bar 1.0)" "each1|1 KiB, a connection each, 1 client (k/s, ms)|$(bar 0.95)"
    "each50|1 KiB, a connection each, 50 clients (k/s, ms)|$(bar 0.95)" "connect|connect (k/s, ms)|$(bar 1.0)")
start_nginx() {
    mkdir -p www
    [ -s www/file ] || head -c "$(few $((1 << 30)) 16)" /dev/urandom >www/file
    head -c 1024 www/file >www/small
    chmod 755 . www
    cat >"nginx-$1.conf" <<END
worker_processes 2;
$([ "$(id -u)" -ne 0 ] || echo 'user root;') # its workers are another user otherwise, whose connections stay in TCP
daemon off;
pid $work/nginx-$1.pid;
events { worker_connections 512; }
http {
    access_log off; sendfile on; keepalive_requests 1000000000;
    client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3;
    uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
    server { listen $address:$port; root $work/www; }
}
END
    serve "nginx-$1" nginx -e "$work/nginx-$1.log" -c "$work/nginx-$1.conf"
}
measure_nginx() {
    local url=http://$address:$port/small
    case $1 in
        file)
            "${over[@]}" curl -sS -o /dev/null -w '%{speed_download} - %{size_download}\n' "http://$address:$port/file" \
                2>client.out | awk '{ print $1 / 1e9, $2, $3 / 1e9 }'
            ;;
        connect)
            "${over[@]}" curl -sS -o /dev/null -H 'Connection: close' -w '%{time_connect}\n' "$url?[1-$(few 2000 100)]" \
                2>client.out | sort -g | awk '{ all[NR] = $1 } END { t = all[int((NR + 1) / 2)]; print 0.001 / t, t * 1000, NR }'
            ;;
        small) load 32 "$url" ;;
        one) load 1 "$url" ;;
        each*) load "${1#each}" "$url" -H 'Connection: close' ;;
    esac
}
load() { # load CONNECTIONS URL [OPTION...]: wrk
    local connections=$1 url=$2
    shift 2
    "${over[@]}" wrk --latency -t1 -c"$connections" -d1 "$@" "$url" 2>client.out | awk '
        $1 == "50%" { latency = $2 ~ /us$/ ? $2 / 1000 : $2 ~ /ms$/ ? $2 + 0 : $2 * 1000 }
        /requests in/ { requests = $1 }
        /^Requests\/sec/ { print $2 / 1000, latency, requests }'
}

needs_memcached=(memcached memcslap)
rows_memcached=("set|set of 400 bytes, 8 clients (k/s)|$(bar 1.0)" "get|get of 400 bytes, 8 clients (k/s)|$(bar 1.0)")
start_memcached() { serve "memcached-$1" memcached -u "$(id -un)" -l "$address" -p "$port" -U 0 -t 2; }
measure_memcached() {
    local each
    each=$(few 5000 20)
    "${over[@]}" memcslap -s "$address:$port" -t "$1" -c 8 -e "$each" 2>client.out |
        awk -v n=$((8 * each)) '/^Time to [sg]et / { seconds = $(NF - 1) } END { print n / seconds / 1000, "-", n }'
}

needs_iperf3=(iperf3)
rows_iperf3=("1|1 stream (GB/s)|$(bar 2.5)" "R|1 stream, reverse (GB/s)|$(bar 2.5)" "8|8 streams (GB/s)|$(bar 2.5)")
start_iperf3() { serve "iperf3-$1" iperf3 -s -p "$port"; }
measure_iperf3() {
    local options=(-n "$(few 2000 20)M")
    case $1 in
        R) options+=(-R) ;;
        8) options+=(-P 8) ;;
    esac
    "${over[@]}" iperf3 -c "$address" -p "$port" -J "${options[@]}" 2>client.out | python3 -c '
import json, sys
end = json.load(sys.stdin)["end"]["sum_received"]
print(end["bits_per_second"] / 8e9, "-", end["bytes"] / 1e9)'
}

needs_haproxy=(haproxy nginx wrk)
rows_haproxy=("small|1 KiB of nginx, 32 connections (k/s, ms)|$(bar 1.0)")
start_haproxy() {
    start_nginx "$1"
    local behind=$port
    port=$(free_port)
    front_config "$behind" >"haproxy-$1"
    serve "haproxy-$1" haproxy -db -f "$work/haproxy-$1"
}
measure_haproxy() { load 32 "http://$address:$port/small"; }

needs_postgresql=(postgres initdb pgbench)
rows_postgresql=("select|pgbench -S, 8 clients (k/s, ms)|$(bar 1.0)" "write|pgbench, 8 clients (k/s, ms)|$(bar 1.0)")
start_postgresql() {
    mkdir "data-$1"
    become postgres
    [ ${#as[@]} -eq 0 ] || chown postgres "data-$1"
    export HOME=$work PGHOST=$address PGUSER=postgres PGDATABASE=postgres PGSSLMODE=disable
    "${as[@]}" initdb -D "$work/data-$1" -U postgres -A trust --no-sync >initdb.out 2>&1
    echo "host all all $address/24 trust" >>"data-$1/pg_hba.conf"
    serve "postgresql-$1" postgres -D "$work/data-$1" -p "$port" -c "listen_addresses=$address" -c unix_socket_directories= \
        -c fsync=off
    until PGPORT=$port pgbench -i -q >init.out 2>&1; do kill -0 "$server"; done
}
measure_postgresql() {
    local options=(-t "$(few 1000 50)")
    [ "$1" = write ] || options=(-S -t "$(few 4000 50)")
    PGPORT=$port "${over[@]}" pgbench -n -c 8 -j 2 "${options[@]}" 2>client.out | awk '
        /actually processed/ { split($NF, done, "/") }
        /latency average/ { latency = $4 }
        /^tps/ { print $3 / 1000, latency, done[1] }'
}

needs_sockperf=(sockperf)
rows_sockperf=("64|ping-pong of 64 bytes (k/s, ms)|$(bar 1.0)" "16384|ping-pong of 16 KiB (k/s, ms)|$(bar 1.0)")
start_sockperf() { serve "sockperf-$1" sockperf server --tcp -i "$address" -p "$port"; }
measure_sockperf() { # sockperf has a place for each message; by default for 600,000 a second, which is too few in memory
    "${over[@]}" sockperf ping-pong --tcp -i "$address" -p "$port" -m "$1" -t 1 --full-rtt --mps=5000000 2>client.out | awk '
        /Valid Duration/ { gsub(/[=;]/, " "); for (i = 1; i < NF; ++i) { if ($i == "RunTime") t = $(i + 1); if ($i == "ReceivedMessages") n = $(i + 1) } }
        /percentile 50.000/ { print n / t / 1000, $NF / 1000, n }'
}

needs_node=(node wrk)
rows_node=("small|1 KiB over HTTP, 32 connections (k/s, ms)|$(bar 1.0)")
start_node() {
    echo "const text = 'x'.repeat(1024);
          require('http').createServer((request, response) => response.end(text)).listen($port, '$address');" >"node-$1.js"
    serve "node-$1" node "$work/node-$1.js"
}
measure_node() { load 32 "http://$address:$port/"; }

# ---- what they have in common ----

# Prints the processor time, in seconds, that processes and all below them have taken.
processor_time() {
    local ids i
    read -r -a ids <<<"$1"
    for ((i = 0; i < ${#ids[@]}; i++)); do
        mapfile -t -O ${#ids[@]} ids < <(pgrep -P "${ids[i]}")
    done
    for i in "${ids[@]}"; do cat "/proc/$i/stat" 2>/dev/null || true; done |
        awk -v hertz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); ticks += $12 + $13 + $14 + $15 } END { print ticks / hertz }'
}
choose() { # choose WAY: tcp or carried
    served=(timeout 300)
    [ "$1" = tcp ] || served+=("$rpma" run --sockets --stats --device memory)
    over=("${there[@]}" "${served[@]}")
}
one() { # one PROGRAM WAY ROW: throughput, latency and processor time for a unit of work
    choose "$2"
    port=${ports[$1-$2]} TIMEFORMAT='%U %S'
    local before after
    before=$(processor_time "${servers[$1-$2]}")
    { time "measure_$1" "$3" >measured; } 2>client.time
    after=$(processor_time "${servers[$1-$2]}")
    [ "$(wc -w <measured)" -eq 3 ] || die "$1 $3 over $2: $(cat measured client.out)"
    [ "$2" = tcp ] || carried client.out
    echo "$(cat measured) $(tail -n 1 client.time) $before $after" | awk '{ print $1, $2, ($4 + $5 + $7 - $6) / $3 }'
}
median() { sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
of_pairs() { awk "{ print $1 }" pairs | median | awk '{ printf "%.3g", $1 }'; } # of_pairs EXPRESSION
row() { # row PROGRAM ROW WHAT BAR
    local latency=- ours base
    : >pairs
    for _ in $(seq "$pairs"); do
        ours=$(one "$1" carried "$2")
        base=$(one "$1" tcp "$2")
        echo "$ours $base" >>pairs
    done
    grep -q -- ' - ' pairs || latency=$(of_pairs '$2 / $5')
    # shellcheck disable=SC2059 # one of two
    printf "$format" "$1" "${3% (*}" "$(of_pairs '$1')" "$(of_pairs '$4')" "$(sed 's/.*(\([^,)]*\).*/\1/' <<<"$3")" \
        "$(of_pairs '$1 / $4')" "$latency" "$(of_pairs '$3 / ($6 > 0 ? $6 : 1e-9)')" "$4"
}

declare -A ports servers
[ "$pairs" -gt 0 ] || die "PAIRS is '$pairs' (expected 1 or more)"
printf 'programs carried beside TCP, %s; %d pairs; load of the machine %s\n' "$address" "$pairs" "$(cut -d' ' -f1-3 /proc/loadavg)"
# shellcheck disable=SC2059
printf "$format" '' '' carried TCP '' ratio latency CPU bar
for program in "${measured[@]}"; do
    declare -n needs=needs_$program rows=rows_$program
    for needed in "${needs[@]}"; do
        command -v "$needed" >/dev/null || { echo "$program: $needed is not installed"; continue 2; }
    done
    for way in tcp carried; do
        choose $way
        carried_by=("${served[@]}") port=$(free_port) first=${#background[@]}
        "start_$program" $way
        ports[$program-$way]=$port servers[$program-$way]=${background[*]:first}
    done
    for each in "${rows[@]}"; do
        IFS='|' read -r key what bar <<<"$each"
        row "$program" "$key" "$what" "$bar"
    done
    kill "${background[@]:kept}" || true
    wait "${background[@]:kept}" || true
    background=("${background[@]::kept}")
done
