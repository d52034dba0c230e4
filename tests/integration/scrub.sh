#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A server with --scrub-rate finds out that a content was damaged while it served, and that it is good again. A transfer
# keeps to --rate.
. "$(dirname "$0")/server.bash"
store=${RPMA_STORE_FOLDER:-.}/store

head -c 1M /dev/urandom >file
start_server store --scrub-rate 50M
push file
push file "$address/other"
# turns STATE: waits until the status is bad, or good.
turns() {
    local code=1
    while [ $code -ne "$1" ]; do
        code=0
        bounded "$rpma" status "$address" >stdout 2>stderr || code=$?
        kill -0 "$server" || die "the server ended"
    done
}
printf '\0\377\0' | dd of="$store/default/1" bs=1 seek=500000 conv=notrunc,fsync status=none
turns 6
grep -q 'default: content 1 is damaged: it has another checksum' stderr || die "expected the content: $(cat stderr)"
grep -q 'default: content 1 is damaged' server.err || die "the server does not say it: $(cat server.err)"
refused_with 6 'is damaged' "$rpma" pull "$address" got
pulled file "$address/other"
dd if=file of="$store/default/1" conv=notrunc,fsync status=none
turns 0
grep -q 'default: content 1 is good again' server.err || die "the server does not say it: $(cat server.err)"
pulled file
stop_server

# Without it each content is read once, and a rate that is none is refused.
refused_with 2 'expected' "$rpma" serve --store store --listen "$address" --scrub-rate fast
refused_with 2 '--rate 63K: expected at least 64K' "$rpma" push file "$address" --rate 63K
refused_with 2 'expected' "$rpma" pull "$address" got --rate fast

# 1 MiB at 800 KiB a second takes longer than a second, each way.
start_server store
at_least() { # at_least MILLISECONDS COMMAND...
    local begun
    begun=$(date +%s%N)
    bounded "${@:2}" >stdout 2>stderr || die "${*:2}"
    [ $((($(date +%s%N) - begun) / 1000000)) -ge "$1" ] || die "faster than its rate: ${*:2}"
}
at_least 1000 "$rpma" push file "$address/slow" --rate 800K
at_least 1000 "$rpma" pull "$address/slow" got --rate 800K
cmp got file || die "other bytes"
head -c 1M /dev/urandom >file
bounded "$rpma" push file "$address/slow" --incremental >stdout 2>stderr || die "push --incremental"
head -c 1M /dev/urandom >file
at_least 1000 "$rpma" push file "$address/slow" --incremental --rate 800K
pulled file "$address/slow"
stop_server
