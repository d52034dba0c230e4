#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# push --resume goes on where a push was cut off: the blocks that came are not sent again, and the content is the file's also
# when that is another by now, when the server was started again, when what was left is damaged, and when there is no room
# beside it.
. "$(dirname "$0")/server.bash"
size=67108864 came=1048576 # a push is cut off within a minute
server_options=()
head -c $size /dev/urandom >file

# stored: the server has stored more than 1 MiB since it began.
stored() {
    local bytes
    scraped
    bytes=$(sed -n 's/^rpma_stored_bytes_total \([0-9]*\).*/\1/p' metrics)
    [ "${bytes:-0}" -gt $came ]
}
# begun OPTION...: a push that is slow is under way, and 1 MiB of it is stored; sets pusher.
begun() {
    start_server store --metrics METRICS "${server_options[@]}"
    "$rpma" push file "$address" --rate 1M "$@" >pusher.out 2>pusher.err &
    pusher=$!
    helpers+=($pusher)
    until stored; do kill -0 $pusher || die "the push ended: $(cat pusher.err)"; done
}
cut_off() {
    kill -KILL $pusher
    wait $pusher 2>/dev/null || true
    until grep -q 'ended without a commit' server.err; do :; done
}
# resumed FILE LEAST MOST: a push of this file that goes on sends so many bytes, and nothing is left after it.
resumed() {
    local sent
    bounded "$rpma" push --resume --json "$1" "$address" >stdout 2>stderr || die "push --resume $1"
    sent=$(python3 -c 'import json; print(json.load(open("stdout"))["sent"])')
    [ "$sent" -ge "$2" ] && [ "$sent" -le "$3" ] || die "$sent bytes were sent, expected $2 to $3"
    pulled "$1"
    while [ -e store/default/.partial ] || [ -e store/default/.partial.blocks ]; do :; done # they go after the answer
}

# Without the option nothing is left. With it the blocks are.
begun
cut_off
[ ! -e store/default ] || die "a push is left"
stop_server
begun --resume
cut_off
resumed file 1 $((size - came + 65536))
bounded "$rpma" status "$address" >stdout 2>stderr || die "status"
grep -q "^holds *1 name, $size bytes" stdout || die "the bytes of the store: $(cat stdout)"
resumed file $size $size # there is nothing to go on with
stop_server

# The server is stopped meanwhile. A push that is cut off earlier leaves what there was.
begun --resume
stop_server
wait $pusher && die "the push of a server that stopped ended with 0"
start_server store
[ "$(stat -c %s store/default/.partial)" -ge $came ] || die "too little is left"
refused 'expected a file' "$rpma" push --resume - "$address" <file
refused 'excludes' "$rpma" push --resume --incremental file "$address"
cp file other
printf x | dd of=other conv=notrunc bs=1 seek=100 2>/dev/null
resumed other 65536 $((size - came + 2 * 65536))
stop_server

# The bytes that a push has left are damaged: no content has them. The blocks before that are left to the next push.
begun --resume
cut_off
until [ -s store/default/.partial.blocks ]; do :; done
printf damaged | dd of=store/default/.partial conv=notrunc bs=1 seek=70000 2>/dev/null
refused_with 3 'the server cannot build on what it has (expected a push without --incremental, or --resume again); nothing was committed' \
    "$rpma" push --resume file "$address"
pulled other
resumed file $((size - 65536)) $((size - 65536))
stop_server

# It counts. When it leaves no room to a push of its name it goes: nothing else would remove it.
server_options=(--max-bytes $size)
rm -r store
begun --resume
cut_off
resumed file $size $size
stop_server
rm -r store
begun --resume
cut_off
stop_server
start_server store "${server_options[@]}"
refused_with 6 'the server has room for' "$rpma" push file "$address/other"
push file
pulled file
stop_server
