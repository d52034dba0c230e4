#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A server counts for Prometheus, and tells in JSON, what has happened: a push, pushes that end without a commit, a pull, a
# refusal, a fault. It runs in a network namespace of its own, so the port is free.
. "$(dirname "$0")/../namespaces.bash"
within_namespaces --net -- "$@"
. "$(dirname "$0")/server.bash"
ip link set lo up
command -v promtool >/dev/null || die "no promtool (utils/install-dependencies.sh test)"

# is METRIC VALUE, and becomes METRIC VALUE: it has this value, or gets it.
is() { grep -qxF "$1 $2" metrics || die "expected $1 $2: $(grep -F "${1%%\{*}" metrics)"; }
becomes() {
    local try
    for try in $(seq 5000); do
        scraped
        ! grep -qxF "$1 $2" metrics || return 0
    done
    is "$1" "$2"
}
# told TEXT...: a line of the server's output has each of these texts, or gets them.
told() {
    local try text lines
    for try in $(seq 5000); do
        lines=$(cat server.out)
        for text in "$@"; do
            lines=$(grep -F -- "$text" <<<"$lines") || continue 2
        done
        return 0
    done
    die "the server does not tell $*: $(cat server.out)"
}

head -c 1M /dev/urandom >content
head -c 4M /dev/zero >large
start_server store --json --metrics 127.0.0.1:9100 --max-bytes 4M
metrics_port=9100
scraped
promtool check metrics <metrics >stdout 2>&1 || die "promtool: $(cat stdout)"
[ ! -s stdout ] || die "promtool: $(cat stdout)"
is rpma_pushes_total 0
is 'rpma_push_aborts_total{reason="no_room"}' 0
is rpma_free_bytes 4194304

# A scrape waits for none of the connections that came before it and ask for nothing. They end some time, so on a slow machine
# once may say nothing.
bounded python3 - <<'PYTHON' || die "a scrape waits for other connections"
import select, socket, sys
def connection(text):
    one = socket.create_connection(('127.0.0.1', 9100))
    one.sendall(text)
    return one
for _ in range(5):
    silent = [connection(b'GET /metrics HTTP/1.1\r\nX: ') for _ in range(100)]
    with connection(b'GET /metrics HTTP/1.0\r\n\r\n') as scrape, scrape.makefile('rb') as answer:
        assert b'rpma_pushes_total' in answer.read()
    ended, _, _ = select.select(silent, [], [], 0)
    for one in silent:
        one.close()
    if not ended:
        sys.exit()
sys.exit(f'{len(ended)} of {len(silent)} connections ended before the scrape had its answer')
PYTHON

push content
told '"event":"committed"' '"host":"127.0.0.1"' '"identity":null' '"name":"default"' '"sequence":1' '"time":"20'
pulled content
refused_with 6 'the server has room for 3145728 bytes' "$rpma" push large "$address"
becomes 'rpma_push_aborts_total{reason="no_room"}' 1
told '"event":"aborted"' '"reason":"no_room"' '"host":"127.0.0.1"' '"identity":null' '"time":"20' 'the store has no room'
bounded "$peer" wrong_checksum 127.0.0.1 "$port" >stdout || die "wrong_checksum"
becomes 'rpma_push_aborts_total{reason="checksum"}' 1
told '"event":"aborted"' '"reason":"checksum"'
# A client that gives up says so: by itself, or by a signal.
refused_with 3 'expected at least 2M: --min-size' "$rpma" push - "$address" --min-size 2M <content
becomes 'rpma_push_aborts_total{reason="client_left"}' 1
"$rpma" push content "$address" --rate 64K >/dev/null 2>stderr &
helpers+=($!)
becomes rpma_pushes_under_way 1
kill -INT $!
becomes 'rpma_push_aborts_total{reason="client_left"}' 2
told '"event":"aborted"' '"reason":"client_left"' 'its client closed the connection'
is 'rpma_push_aborts_total{reason="connection_lost"}' 0
refused_with 6 'has no content 9' "$rpma" pull "$address" got --sequence 9
becomes rpma_refusals_total 1
told '"event":"refused"' '"host":"127.0.0.1"' '"identity":null' '"time":"20' 'has no content 9'
becomes rpma_store_bytes 1048576
is rpma_pushes_total 1
is rpma_push_bytes_total 1048576
is rpma_pulls_total 1
is rpma_pull_bytes_total 1048576
is rpma_commit_duration_seconds_count 1
is 'rpma_commit_duration_seconds_bucket{le="+Inf"}' 1
is rpma_names 1
is rpma_contents 1
is rpma_faulty_contents 0
is 'rpma_newest_sequence{name="default"}' 1
is 'rpma_newest_bytes{name="default"}' 1048576
[ "$(date -ud "$(sed -n 's/.*"event":"committed".*"time":"\([^"]*\)".*/\1/p' server.out)" +%s)" -eq \
    "$(awk '$1 == "rpma_newest_timestamp_seconds{name=\"default\"}" { printf "%d", $2 }' metrics)" ] ||
    die "another time of the newest content: $(cat metrics)"
is rpma_free_bytes 3145728
is rpma_storage_failed 0
is 'rpma_faults{kind="deleted"}' 0
grep -q '^rpma_store_duration_seconds_count [1-9]' metrics || die "no portion: $(cat metrics)"
grep -q '^rpma_build_info{version="[1-9]' metrics || die "no version: $(cat metrics)"

mkfifo said
"$peer" stay 127.0.0.1 "$port" >said &
helpers+=($!)
read -t 60 -r line <said || die "stay"
"$peer" hold 127.0.0.1 "$port" >said &
helpers+=($!)
read -t 60 -r line <said || die "hold"
becomes rpma_pushes_under_way 1
rm store/default/1
becomes 'rpma_faults{kind="deleted"}' 1
is rpma_faulty_contents 1

# An address at which nothing can listen.
for bad in 127.0.0.1 127.0.0.1: nowhere 127.0.0.1:0 127.0.0.1:70000; do
    refused_with 2 'expected' "$rpma" serve --store other --listen 127.0.0.1:7300 --metrics "$bad"
done
for bad in '127.0.0.1:9100|Address already in use' '192.0.2.1:9100|Cannot assign requested address'; do
    refused_with 1 "--metrics ${bad%|*}: cannot listen: ${bad#*|} (expected a free port" \
        "$rpma" serve --store other --listen 127.0.0.1:7300 --metrics "${bad%|*}"
done
[ ! -e other ] || die "a server that did not start left a store"

stop_server
told '"event":"dropped"' '"host":"127.0.0.1"' '"identity":null' 'the server stops'
told '"event":"aborted"' '"reason":"server_stops"' 'the server stops; default still has content 1, which was deleted'
