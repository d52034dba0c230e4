#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The file system of a store is full, or lets no file be so large: a push is told so when it asks for room, also where the
# file system cannot allocate. The store keeps its contents, and takes pushes when there is room again. A tmpfs stands for the disk. The first argument is an rpma whose file systems
# cannot allocate on purpose (failing_storage.cpp).
. "$(dirname "$0")/../namespaces.bash"
within_namespaces --mount -- "$@"
. "$(dirname "$0")/server.bash"

mkdir small
mount -t tmpfs -o size=4M none small
has_attributes small || { echo 'SKIPPED, nothing was tested: a tmpfs has no attributes here (Linux 6.6 has)'; exit 77; }
export RPMA_STORE_FOLDER=$work/small RPMA_TEST_NO_ALLOCATION=$work/no_allocation
head -c 1M /dev/urandom >content
start_server store --volatile
push content
head -c 8M /dev/zero >small/others 2>/dev/null || true
for way in allocated written; do
    refused_with 6 'refused: the server has no room: No space left on device (the file system of its store has less than the push needs, or no inode; rpma status tells); nothing was committed' \
        "$rpma" push content "$address"
    grep -q 'a push from 127.0.0.1 ended without a commit: .*; default still has content 1$' server.err || die "the server does not say it"
    pulled content
    touch no_allocation
done
refused_with 6 'there is room for ' "$rpma" status "$address"
rm small/others
push content
rm no_allocation
push content
pulled content
stop_server
# An earlier push has left bytes that fill it; they go. Without allocation its push is told too late, and the next one has the room.
for way in allocated written; do
    rm -r small/store
    mkdir -p small/store/default
    head -c 3500K /dev/zero >small/store/default/.partial
    start_server store --volatile
    [ $way = allocated ] || refused_with 6 'the server has no room: No space left on device' "$rpma" push content "$address"
    push content
    pulled content
    stop_server
    touch no_allocation
done
rm no_allocation
printf '#!/bin/sh\nulimit -f 512\nexec "%s" "$@"\n' "$rpma" >limited
chmod +x limited
whole=$rpma
rpma=$PWD/limited
start_server limited_store --volatile
rpma=$whole
for way in allocated written; do
    refused_with 6 'File too large (its user, or its file system, may have no file so large: ulimit -f); nothing was committed' \
        "$rpma" push content "$address"
    touch no_allocation
done
head -c 100K content >less
push less
pulled less
stop_server
umount small
