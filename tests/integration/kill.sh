#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kill -9 ends the server or the client at random moments of a push: afterwards the store opens, and holds the old
# content or the new, and the new one when push said so. RPMA_KILLS: how many (default 10); RPMA_SEED: repeats a run's
# choices.
. "$(dirname "$0")/server.bash"

kills=${RPMA_KILLS:-10}
seed=${RPMA_SEED:-$((RANDOM * 32768 + RANDOM))}
echo "seed $seed, $kills kills"
RANDOM=$seed

head -c 32M /dev/urandom >a
# Some blocks of the other differ, for pushes that send only those.
head -c 30000001 a >b
for block in 1 7 200; do
    head -c 64K /dev/urandom | dd of=b bs=64K seek=$block iflag=fullblock conv=notrunc status=none
done
start_server store
push a
push b
old=b new=a
# The longest time from the start of a push to the kill. It is adjusted after each push, so that about as many kills
# come before the commit as after it, and most near it.
window_us=100000
kept=0 committed=0

for i in $(seq "$kills"); do
    delay_us=$((RANDOM * window_us / 32768))
    how=()
    [ $((RANDOM % 2)) -eq 0 ] || how=(--incremental)
    "$rpma" push $new "$address" "${how[@]}" >push.out 2>push.err &
    client=$!
    sleep "$(printf '%d.%06d' $((delay_us / 1000000)) $((delay_us % 1000000)))"
    if [ $((RANDOM % 2)) -eq 0 ]; then
        victim=server
        kill -KILL "$server"
        wait "$server" 2>/dev/null || true
    else
        victim=client
        kill -KILL $client 2>/dev/null || true
    fi
    code=0
    wait $client 2>/dev/null || code=$?
    if [ $victim = server ]; then
        [ $code -eq 0 ] || [ "$(wc -l <push.err)" -eq 1 ] || die "push ended with $code: $(cat push.err)"
        start_server store
    else
        kill -0 "$server" || die "the server ended"
    fi
    pulled $old $new
    if [ $code -eq 0 ] && [ "$found" != $new ]; then
        die "push said that it committed, but the old content is there (kill $i, seed $seed)"
    fi
    if [ "$found" = $new ]; then
        committed=$((committed + 1))
        window_us=$((window_us * 8 / 10 + 1000))
        new=$old
        old=$found
    else
        kept=$((kept + 1))
        [ $window_us -gt 20000000 ] || window_us=$((window_us * 12 / 10))
    fi
done
echo "$kills kills (at last within $((window_us / 1000)) ms): old content $kept times, new content $committed times"
push $new
pulled $new
bounded "$rpma" check --store "${RPMA_STORE_FOLDER:-.}/store" >stdout || die "a content is damaged: $(cat stdout)"
stop_server
