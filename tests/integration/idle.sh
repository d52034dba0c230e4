#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Clients that make no progress do not keep their places for ever: the server ends a push and a pull. An address gets no
# more than its part of the places, and the other clients are told why they get none.
. "$(dirname "$0")/server.bash"

head -c 1M /dev/urandom >content
start_server store --push-lease 3 --idle-limit 3
push content
mkfifo said source
# The source of a push pauses. The client says that it is there, and is told why its push ends.
"$rpma" push - "$address" <source >stdout 2>paused.err &
paused=$!
helpers+=($paused)
exec {input}>source
head -c 100000 content 1>&"$input"
code=0
wait $paused || code=$?
exec {input}>&-
[ $code -eq 3 ] || die "a push that pauses ended with $code"
grep -q 'the server ended the connection: the transfer made no progress for 3 seconds (.*); nothing was committed$' paused.err ||
    die "the client is not told why its push ended: $(cat paused.err)"
# One client claims again and again to have come further, one stores a byte at a time, and one asks for what is refused.
for pusher in talk trickle claim; do
    "$peer" $pusher 127.0.0.1 "$port" >said &
    held=$!
    helpers+=($held)
    read -t 60 -r line <said || die "$pusher"
    refused 'another push is under way, from 127.0.0.1 for ' "$rpma" push content "$address"
    for try in $(seq 20); do
        ! bounded "$rpma" push content "$address" >stdout 2>stderr || break
        grep -q 'another push is under way' stderr || die "expected to wait for the other push"
    done
    [ "$try" -lt 20 ] || die "a pusher that only does this ($pusher) blocks others"
    wait $held || die "a pusher that only does this ($pusher) stays" # and it has `said` open until its end
done
# shellcheck disable=SC2016
timeout 60 bash -c 'until [ "$(grep -c "$1" server.err)" -eq 4 ]; do :; done' - \
    'a push from 127.0.0.1.* ended without a commit: it stored too little for 3 seconds; default still has content' ||
    die "the pushers were not ended"
"$peer" commit_and_stay 127.0.0.1 "$port" >said &
helpers+=($!)
read -t 60 -r line <said || die "commit_and_stay"
push content
bounded "$peer" ask_often 127.0.0.1 "$port" || die "a client that asks often is dropped"
bounded "$peer" idle 127.0.0.1 "$port" || die "an idle pull is not ended"
pulled content
stop_server

# A push has reserved room, and makes progress. It keeps the room for the beginning, and from those who would not find
# enough there; another push gets it after that, because it is filled too slowly.
truncate -s 5M other
truncate -s 64M larger
# hoarding: a push has reserved 60 MiB of the 64; sets held. Fails when there is no room.
hoarding() {
    rm said
    mkfifo said  # the one that holds room has the other
    "$peer" hoard 127.0.0.1 "$port" >said &
    held=$!
    helpers+=($held)
    read -t 60 -r line <said
}
start_server store --max-bytes 64M
hoarding || die "hoard"
refused 'the server has room for ' "$rpma" push other "$address/other"
kill -KILL $held
wait $held 2>/dev/null || true
stop_server
start_server store --max-bytes 64M --push-lease 3 --metrics METRICS
hoarding || die "hoard"
begun=$SECONDS
while [ $((SECONDS - begun)) -lt 5 ]; do
    refused 'the server has room for ' "$rpma" push larger "$address/other"
done
kill -0 $held || die "a push lost its room to one that found no room"
until bounded "$rpma" push other "$address/other" >stdout 2>stderr; do
    grep -q 'the server has room for ' stderr || die "expected to wait for room"
    kill -0 $held || die "a push that fills its room slowly is ended for nobody"
done
wait $held || die "hoard"
[ "$(metric 'rpma_push_aborts_total{reason="too_slow"}')" = 1 ] || die "the push ended for another reason"
pulled content
stop_server
# Pushes that are equally slow end each other until one has long enough. It would fill its room in 250 leases.
start_server fresh --max-bytes 64M --push-lease 3
hoarding || die "hoard"
for _ in 1 2; do
    slow=$held
    begun=$SECONDS
    until hoarding; do [ $((SECONDS - begun)) -lt 60 ] || die "a push that fills its room slowly keeps it"; done
    wait $slow || die "hoard"
done
begun=$SECONDS
while [ $((SECONDS - begun)) -lt 5 ]; do
    refused 'the server has room for ' "$rpma" push other "$address/other"
    kill -0 $held || die "pushes that are equally slow end each other without end"
done
kill -KILL $held
wait $held 2>/dev/null || true
stop_server

start_server store
"$peer" crowd 127.0.0.1 "$port" >said &
crowd=$!
helpers+=($crowd)
read -t 120 -r line <said || die "crowd"
refused 'clients from 127.0.0.1 are connected, no more are taken from there' "$rpma" pull "$address" got
kill -KILL $crowd
wait $crowd 2>/dev/null || true
for try in $(seq 100); do
    ! bounded "$rpma" pull "$address" got >stdout 2>stderr || break
done
[ "$try" -lt 100 ] || die "no pull after the crowd is gone"
stop_server
