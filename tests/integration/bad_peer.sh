#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Peers that are not ours, or behave badly, fail. The server and its content stay as they were.
. "$(dirname "$0")/server.bash"

head -c 3M /dev/urandom >content
start_server store
push content

unharmed() {
    kill -0 "$server" || die "the server ended"
    pulled content
    push content
}

# The bytes are no MPA request: no bytes, a few, many, and a good beginning with nonsense after it.
for size in 0 1 19 20 21 1000 100000; do
    exec {tcp}<>"/dev/tcp/127.0.0.1/$port"
    head -c $size /dev/urandom 1>&"$tcp" 2>/dev/null || true
    exec {tcp}<&-
done
exec {tcp}<>"/dev/tcp/127.0.0.1/$port"
{ printf 'MPA ID Req Frame\0\2\377\377' && head -c 70000 /dev/urandom; } 1>&"$tcp" 2>/dev/null || true
exec {tcp}<&-
unharmed

# Connections that never say anything do not keep others out.
for i in 1 2 3 4 5 6 7 8; do
    exec {tcp}<>"/dev/tcp/127.0.0.1/$port"
done
unharmed

# Clients of librpma, but not of the command's protocol.
bounded "$peer" no_hello 127.0.0.1 "$port" || die "no_hello"
bounded "$peer" bad_hello 127.0.0.1 "$port" || die "bad_hello"
bounded "$peer" other_version 127.0.0.1 "$port" || die "other_version"
unharmed
grep -q 'is no rpma client' server.err || die "the server does not say whom it rejected"
# For many of them the server prints some lines, and a count of the others when the interval is over. These are 24, which
# may take several intervals.
before=$(grep -c 'is no rpma client' server.err)
bounded "$peer" bad_hellos 127.0.0.1 "$port" || die "bad_hellos"
[ "$(grep -c 'is no rpma client' server.err)" -lt $((before + 24)) ] || die "the server says the same again and again"

# A pusher has a made-up key, the key of another name's pusher, or writes beyond its room; a puller writes, also with the
# key of a pusher; a request is no request, gives a tag too late, asks for room that is none or too often, commits what did not arrive, is
# missing, or cannot be done, while the others are answered in order.
# The first is told of; later the server counts some lines instead of printing them.
for crime in wrong_checksum bad_key out_of_bounds write_as_puller others_key others_key_as_pusher bad_request late_tag bad_room store_nothing roll_back_to_nothing no_commit ask_in_order; do
    bounded "$peer" $crime 127.0.0.1 "$port" || die "$crime"
    unharmed
done
grep -q 'the bytes that arrived have another checksum' server.err || die "the server does not say why there was no commit"

# A pusher that writes into what it has committed.
head -c 1000 /dev/zero | tr '\0' a >thousand
bounded "$peer" write_after_commit 127.0.0.1 "$port" || die "write_after_commit"
pulled thousand
push content

# The server takes one push at a time; a dead pusher makes room.
mkfifo held
"$peer" hold 127.0.0.1 "$port" >held &
holder=$!
helpers+=($holder)
read -t 60 -r line <held || die "hold"
refused 'another push is under way, from 127.0.0.1 for ' "$rpma" push content "$address"
pulled content
kill -KILL $holder
wait $holder 2>/dev/null || true
unharmed

# The peers of the clients are no servers of ours.
for kind in garbage silent; do
    rm -f ports
    mkfifo ports
    "$peer" ${kind}_server >ports &
    helpers+=($!)
    read -t 60 -r other <ports || die "${kind}_server"
    refused "127.0.0.1:$other" "$rpma" pull "127.0.0.1:$other" got --timeout 2
    refused "127.0.0.1:$other" "$rpma" push content "127.0.0.1:$other" --timeout 2
done
stop_server
grep -Eq '^rpma: [0-9TZ:-]+ and [0-9]+ more like this in the last [0-9]+ s: rejected a peer at 127.0.0.1: it is no rpma client' server.err ||
    die "the server does not say how many more it rejected"
