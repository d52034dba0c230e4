#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma serve listens at several addresses and at all addresses of this machine.
. "$(dirname "$0")/server.bash"

head -c 1M /dev/urandom >content
all='0.0.0.0'
others=()
if grep -q ' lo$' /proc/net/if_inet6 2>/dev/null; then
    all='[::]'
    others=('[::1]')
fi
listen_on=0.0.0.0
start_server store
grep -q "^listening *\\(.*, \\)\\?127.0.0.1:$port" server.out || die "expected each address: $(cat server.out)"
address=127.0.0.1:$port
push content
pulled content
stop_server

# Two addresses and one that is meant by two.
for listen_on in 127.0.0.1 "$all"; do
    start_server store --listen "127.0.0.2:$((20000 + RANDOM % 10000))"
    grep -q '^listening *.*127.0.0.2:' server.out || die "expected the second address: $(cat server.out)"
    second=$(sed -n 's/^listening.*\(127.0.0.2:[0-9]*\)$/\1/p' server.out)
    for at in 127.0.0.1:"$port" "$second"; do
        bounded "$rpma" pull "$at" got >stdout 2>stderr || die "pull $at"
        cmp got content
    done
    [ "$listen_on" != '[::]' ] || for at in "${others[@]}"; do
        bounded "$rpma" pull "$at:$port" got >stdout 2>stderr || die "pull $at"
    done
    # The server takes one push at a time, at whichever address it comes.
    rm -f held
    mkfifo held
    "$peer" hold 127.0.0.1 "$port" >held &
    holder=$!
    helpers+=($holder)
    read -t 60 -r line <held || die "hold"
    refused 'another push is under way' "$rpma" push content "$second"
    kill -KILL $holder
    wait $holder 2>/dev/null || true
    stop_server
done
unset listen_on
