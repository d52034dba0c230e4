#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Many names are pushed at once, while a pull reads a content that the store removes meanwhile.
. "$(dirname "$0")/server.bash"

head -c 16M /dev/urandom >a
head -c 15000001 /dev/urandom >b
start_server store
push a

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
bounded "$rpma" list "$address" >/dev/null || die "list" # after it, what has to go is gone
[ "$(ls "${RPMA_STORE_FOLDER:-.}/store/default" | wc -l)" -eq 3 ] || die "the content that is read was kept"
cat beginning <(head -c $((16777216 - 1000)) <&"$slow") | cmp - a || die "a content changed while it was read"
wait $puller || die "the pull of a content that goes"
exec {slow}<&-
stop_server
