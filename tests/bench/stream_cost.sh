#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Counts the instructions of a 64-byte message of a stream in librsocket, librpma and what they call, without
# the device's.
#   stream_cost.sh PROGRAM [MESSAGES]        PROGRAM: build/bench/bench_stream_cost
set -u
program=$1 messages=${2:-200} bound=400
command -v valgrind >/dev/null || { echo 'valgrind is not installed (utils/install-dependencies.sh valgrind)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A line "LINE COUNT" is a function's own cost; after "calls=" it is the cost of the called function with all that it
# calls.
count() {  # count CALL: instructions for a message
    RPMA_DEVICE=soft timeout --kill-after=5 "${RPMA_TEST_TIMEOUT:-60}" valgrind --tool=callgrind \
        --callgrind-out-file="$work/$1.%p" --compress-strings=no --compress-pos=no --collect-atstart=no \
        --toggle-collect="$1" "$program" 64 "$messages" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    awk -v messages="$messages" '
        /^ob=/ { device = /libsoftrdma/ }
        /^cob=/ { called_device = /libsoftrdma/ }
        /^calls=/ {
            getline
            if (called_device && !device) count -= $2
            called_device = 0
            next
        }
        /^[0-9]/ { count += $2 }
        END { printf "%.1f\n", count / messages }' "$work/$1".*
}
sent=$(count rsend) || exit 1
received=$(count rrecv) || exit 1
printf '%-44s %10s\n' "a 64-byte message, without the device" instructions rsend "$sent" rrecv "$received"
awk -v sent="$sent" -v bound="$bound" 'BEGIN {
    printf "expected of rsend: at most %d\n", bound
    exit sent <= 0 || sent > bound
}'
