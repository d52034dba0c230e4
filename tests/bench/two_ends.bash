# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced, with $build set, by scripts that run a server and a client of Debian's programs on the loopback. $work is
# removed at the end.
work=$(mktemp -d)
server=
longest=120  # seconds that a server may run
races=0
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
die() {
    cat "$work"/server "$work"/client >&2
    echo "${0##*/}: $1" >&2
    exit 1
}

. "${BASH_SOURCE[0]%/*}/../ports.bash"
begin_server() {  # begin_server PORT COMMAND...: returns when it listens there; its process is $server
    local port=$1 tries=0
    shift
    timeout $longest "$@" >"$work/server" 2>&1 </dev/null &
    server=$!
    until listening "$port"; do
        if ! kill -0 $server 2>/dev/null || [ $((tries += 1)) -gt 3000 ]; then die "'$*' does not listen"; fi
        sleep 0.02
    done
}
both_ends() {  # both_ends PRELOAD SERVER CLIENT: the client's output in $work/client; PORT is a free port
    local port words
    port=$(free_port)
    read -r -a words <<<"${2//PORT/$port}"
    begin_server "$port" env LD_PRELOAD="$1" "${words[@]}"
    read -r -a words <<<"${3//PORT/$port}"
    if ! LD_PRELOAD=$1 timeout 120 "${words[@]}" >"$work/client" 2>&1 </dev/null; then
        # perftest has a race with itself: see tests/compat/verbs_program.sh.
        grep -q 'Event: RDMA_CM_EVENT_REJECTED; error: -111' "$work/client" || die "'$3' failed"
        [ $((races += 1)) -le 20 ] || die "'$3' was refused too often"
        kill $server
        wait $server
        both_ends "$@"
        return
    fi
    wait $server || die "'$2' failed"
    server=
}
perftest() { both_ends "$build/lib/softrdma/libsoftrdma-verbs.so" "$1" "$1 127.0.0.1"; }
perftest_in_files() {  # perftest_in_files COMMAND: each end has its memory in a file
    local file
    for file in from to; do truncate --size=64M "$work/$file"; done
    both_ends "$build/lib/softrdma/libsoftrdma-verbs.so" "$1 --mmap=$work/to" "$1 --mmap=$work/from 127.0.0.1"
}
gigabytes() { awk -v rate="$1" 'BEGIN { print rate / 1e9 }'; }
half() { awk -v seconds="$1" 'BEGIN { print seconds * 1e6 / 2 }'; }  # a round trip's, in microseconds
of_mebibytes() { awk -v rate="$1" 'BEGIN { print rate * 1048576 / 1e9 }'; }  # perftest's MB and UCX's are MiB
last_row() { awk -v column="$1" '/^ *[0-9]/ { value = $column } END { print value }' "$work/client"; }

median() { sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
row() {  # row WHAT UNIT BAR: of the lines `ours baseline` of $work/pairs
    awk -v what="$1" -v unit="$2" -v bar="$3" -v ours="$(awk '{ print $1 }' "$work/pairs" | median)" \
        -v base="$(awk '{ print $2 }' "$work/pairs" | median)" -v ratio="$(awk '{ print $1 / $2 }' "$work/pairs" | median)" \
        'BEGIN { printf "%-44s %8.2f %8.2f %-5s %6.2f   %s\n", what, ours, base, unit, ratio, bar }'
    rm "$work/pairs"
}
