#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Pulls run while pushes follow each other without a pause: every pull gives one whole content.
. "$(dirname "$0")/server.bash"

pushes=${RPMA_PUSHES:-10}
head -c 16M /dev/urandom >a
head -c 15000001 /dev/urandom >b
start_server store
push a

(
    for i in $(seq "$pushes"); do
        bounded "$rpma" push b "$address" && bounded "$rpma" push a "$address"
    done
) >pushes.out 2>pushes.err &
pusher=$!
helpers+=($pusher)
pulls=0
while kill -0 $pusher 2>/dev/null; do
    pulled a b
    pulls=$((pulls + 1))
done
wait $pusher || die "a push failed: $(cat pushes.err)"
[ ! -s pushes.err ] || die "a push complained: $(cat pushes.err)"
pulled a
[ $pulls -ge 2 ] || die "only $pulls pulls during $pushes pairs of pushes"
echo "$pulls pulls during $((2 * pushes)) pushes"

# Pushes of many names, and a pull of a content that goes while it is read.
mkfifo reader
bounded "$rpma" pull "$address" - <>reader >reader 2>/dev/null &
puller=$!
exec {slow}<reader
head -c 1000 <&"$slow" >beginning
names=()
for name in $(seq 12); do
    bounded "$rpma" push b "$address/n$name" >/dev/null 2>"stderr.$name" &
    names+=($!)
done
for pid in "${names[@]}"; do
    wait "$pid" || die "a push of one name among many: $(cat stderr.*)"
done
for i in 1 2 3; do
    push b
done
[ "$(ls "${RPMA_STORE_FOLDER:-.}/store/default" | wc -l)" -eq 3 ] || die "the content that is read was kept"
cat beginning <(head -c $((16777216 - 1000)) <&"$slow") | cmp - a || die "a content changed while it was read"
wait $puller || die "the pull of a content that goes"
exec {slow}<&-
stop_server
