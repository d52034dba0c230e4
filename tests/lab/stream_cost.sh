#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run in the kernel lab's guest: measures a 64-byte message of a stream over rxe with our librsocket and with
# librdmacm's rsockets. callgrind counts the instructions in user space of its rsend and its rrecv, with libibverbs and
# the driver. The message has arrived when rrecv is called.
#   stream_cost.sh BUILD [MESSAGES]
set -u
program=$1/bench/bench_stream_cost messages=${2:-100} bound=1.00
theirs=$(/sbin/ldconfig -p | awk '/librdmacm\.so\.1 /{ print $NF; exit }')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export RPMA_DEVICE=kernel LD_BIND_NOW=1

# A line "LINE COUNT" is a function's own cost; after "calls=" it is the cost of the called function with all that it
# calls.
count() {  # count NAME [PRELOAD]: instructions of rsend and of rrecv for a message, of both ends together
    LD_PRELOAD=${2:-} timeout --kill-after=5 "${RPMA_TEST_TIMEOUT:-120}" valgrind --tool=callgrind \
        --callgrind-out-file="$work/$1.%p" --compress-strings=no --compress-pos=no --collect-atstart=no \
        --toggle-collect=rsend --toggle-collect=rrecv "$program" 64 "$messages" "$RXE_IP" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; return 1; }
    awk -v messages="$messages" '
        /^fn=/ { function_name = substr($0, 4) }
        /^[0-9]/ { count[function_name] += $2 }
        END { printf "%.1f %.1f\n", count["rsend"] / messages, count["rrecv"] / messages }' "$work/$1".*
}
ours=$(count ours) && theirs=$(count librdmacm "$theirs") || exit 1
awk -v ours="$ours" -v theirs="$theirs" -v bound=$bound 'BEGIN {
    split(ours, our); split(theirs, their)
    printf "%-24s %10s %10s %10s   instructions over rxe\n", "a 64-byte message", "librdmacm", "ours", "ratio"
    for (i = 1; i <= 2; ++i) {
        printf "%-24s %10.1f %10.1f\n", i == 1 ? "rsend" : "rrecv", their[i], our[i]
        if (our[i] <= 0 || their[i] <= 0) exit 1
    }
    ratio = (our[1] + our[2]) / (their[1] + their[2])
    printf "%-24s %10.1f %10.1f %10.2f   bar: at most %.2f\n", "both", their[1] + their[2], our[1] + our[2], ratio, bound
    exit ratio > bound }'
