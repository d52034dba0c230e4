#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# verbs_program.sh [-k] [-n TIMES] [-r TRIES] [-e REGEX] [-l FILTER] [-o END] [-x END:LIBRARY] [-c SIZE]
#                  PRELOAD SERVER [CLIENT]
# Runs programs of Debian, unmodified, over the soft device; with -o only the server or only the client has it, and the
# other end has the kernel's. SERVER and CLIENT are command lines in which PORT stands for a free port, the same in
# both. The client runs TIMES times, once the server listens at that port, TCP or UDP, or there is a listening socket
# that FILTER of ss(8) finds; with -r it may fail and try again. Every program must end with 0 within 100 seconds; with
# -k the server does not end by itself, and is ended after the client. Without a CLIENT, only SERVER runs, and need not
# listen. A line of the last program's output must match REGEX.
#
# With -x the library is preloaded before PRELOAD at that end, which is server, client or both. With -c the programs run
# in a folder with `file`, of SIZE random bytes, and in the end `copy` there must be the same.
#
# perftest's server listens a second time for its second connection, and its client does not wait for that; when it is
# refused, it crashes in its retry. Real devices take so long to find an address that this does not happen with them.
# Here both ends then start again, at most twice. They also do so when one of them could not compare its two clocks
# ("Correlation coefficient r^2"), because it lost its processor meanwhile.
set -eu
arguments=("$@")
endless=
times=1
expected=
filter=
tries=1
limit_s=100
soft=both
extra=
copied=
while getopts kn:r:e:l:o:x:c: option; do
    case $option in
        k) endless=1 ;;
        n) times=$OPTARG ;;
        e) expected=$OPTARG ;;
        l) filter=$OPTARG ;;
        r) tries=$OPTARG ;;
        o) soft=$OPTARG ;;
        x) extra=$OPTARG ;;
        c) copied=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
preload=$1 server_command=$2 client_command=${3:-}

for command in "$server_command" "$client_command"; do
    program=${command%% *}
    [ -z "$program" ] || command -v "$program" >/dev/null || {
        echo "$program is not installed (group compat of utils/install-dependencies.sh)"
        exit 77
    }
done
listening() { [ -n "$(ss -Hltun "$1")" ]; }
# The port is below those that the kernel assigns.
port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
while listening "sport = :$port"; do port=$((port + 1)); done
server_command=${server_command//PORT/$port}
client_command=${client_command//PORT/$port}

work=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
run() {  # run COMMAND FILE: in this process's place
    local words preloaded=()
    read -r -a words <<<"$1"
    [ $soft != both ] && [ $soft != "$2" ] || preloaded=("LD_PRELOAD=$preload")
    case $extra in
        both:* | "$2":*) preloaded=("LD_PRELOAD=${extra#*:} $preload") ;;
    esac
    exec timeout "$limit_s" env "${preloaded[@]}" "${words[@]}" >"$2" 2>&1 </dev/null
}
begin_anew_after_race() {  # where a client of perftest was refused, or an end of it could not compare its clocks
    local races=$((${RPMA_RACES:-0} + 1))
    if [ $races -gt 2 ] ||
        ! grep -qsE 'Event: RDMA_CM_EVENT_REJECTED; error: -111|Correlation coefficient r\^2' server client; then
        return
    fi
    cd /
    finish
    RPMA_RACES=$races exec "$0" "${arguments[@]}"
}
fail() {
    tail -n 40 server client 2>/dev/null || true
    echo "$1"
    exit 1
}

cd "$work"
[ -z "$copied" ] || head -c "$copied" /dev/urandom >file
run "$server_command" server &
server=$!
last=server
if [ -n "$client_command" ]; then
    last=client
    until listening "${filter:-sport = :$port}"; do
        kill -0 $server 2>/dev/null || fail "'$server_command' ended before it listened"
        sleep 0.02
    done
    for _ in $(seq "$times"); do
        try=1
        until (run "$client_command" client); do
            status=$?
            begin_anew_after_race
            [ $try -lt "$tries" ] || fail "'$client_command' ended with $status"
            try=$((try + 1))
        done
    done
fi
if [ -n "$endless" ]; then
    kill $server || fail "'$server_command' has ended"
    wait $server || true
else
    wait $server || {
        status=$?
        server=
        begin_anew_after_race
        fail "'$server_command' ended with $status"
    }
fi
server=
tail -n 40 server client 2>/dev/null || true
[ -z "$copied" ] || cmp file copy || fail "what was copied is not the same"
[ -z "$expected" ] || grep -qE -e "$expected" $last || fail "no line of '$last' has '$expected'"
