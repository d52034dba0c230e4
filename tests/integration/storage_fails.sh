#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Storage fails once during a push, on its content, its header or its commit word, and then works again: the pusher is
# told what happened, no client sees what is not durable, and no push is taken until the server is started again. The
# first argument is an rpma with storage that fails on purpose (failing_storage.cpp).
. "$(dirname "$0")/server.bash"
export RPMA_TEST_FAILURE=$work/failure RPMA_TEST_NO_REGION=$work/no_region RPMA_TEST_SLOW=$work/slow

# The server makes durable, in this order: the content, its header, the commit word.
after=([1]='nothing was committed' [2]='nothing was committed' [3]='the server has the old content or the new')
eio=(5 'Input/output error') enospc=(28 'No space left on device')

head -c 300000 /dev/urandom >first
head -c 200000 /dev/urandom >second
head -c 100000 /dev/urandom >third
for call in 1 2 3; do
    error=("${eio[@]}")
    [ $call -ne 2 ] || error=("${enospc[@]}")
    rm -f pool
    start_server pool 1M
    push first
    push second
    echo "$call ${error[0]}" >failure
    refused "the server could not make the" "$rpma" push third "$address"
    grep -qF "durable: ${error[1]}; ${after[call]}" stderr || die "failure at $call: expected ${error[1]}, ${after[call]}"
    [ ! -e failure ] || die "storage was not asked $call times"
    grep -qF "cannot make it durable: ${error[1]}; no push is taken until" server.err || die "the server does not say it"
    # The kernel reports the error only once.
    for again in 1 2; do
        refused "${error[1]}; it takes no push until it is started again" "$rpma" push third "$address"
        pulled second
    done
    [ "$(grep -c '^committed' server.out)" -eq 2 ] || die "a commit was announced: $(cat server.out)"
    stop_server
    start_server pool 1M
    if [ $call -lt 3 ]; then pulled second; else pulled second third; fi
    push third
    pulled third
    stop_server
done

# A disk is slow for a pusher that is gone: pulls do not wait for it, and the next push is told what it has to wait for.
rm -f pool
start_server pool 1M
push first
mkfifo slow
"$rpma" push second "$address" >stdout 2>stderr &
pusher=$!
exec {disk}>slow
rm slow
kill -KILL $pusher
wait $pusher 2>/dev/null || true
pulled first
refused_with 5 'the server still stores bytes of the last push' "$rpma" push third "$address"
exec {disk}>&-
bounded "$rpma" push third "$address" --wait 60 >stdout 2>stderr || die "no push after the disk is done"
pulled third
stop_server

# A client that measures flushes writes, and leaves without a flush: nobody waits until its bytes are stored.
rm -f pool
start_server pool 1M
push first
mkfifo slow
exec {disk}<>slow
bounded "$peer" measure_and_leave 127.0.0.1 "$port" || die "measure_and_leave"
bounded "$rpma" status "$address" --timeout 20 >stdout 2>stderr || die "the server waits for the disk"
pulled first
rm slow
exec {disk}>&-
push third
pulled third
stop_server

# A pusher is refused because the server has no memory for its region: it commits nothing.
rm -f pool
start_server pool 1M
push first
touch no_region
bounded "$peer" refused_commit 127.0.0.1 "$port" || die "refused_commit"
[ ! -e no_region ] || die "no region was asked for"
pulled first
stop_server
