#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The file system of a pool needs room for the pages that a push writes, as one does that copies on write, and has none:
# the push ends, the pool keeps its content, and the server says why. A tmpfs with a hole in the pool stands for it.
if [ -z "${RPMA_TEST_INSIDE:-}" ]; then
    unshare=(unshare --mount)
    [ "$(id -u)" = 0 ] || unshare+=(--map-root-user)
    "${unshare[@]}" true || { echo 'SKIPPED, nothing was tested: no namespaces here: run it as root'; exit 77; }
    RPMA_TEST_INSIDE=1 exec "${unshare[@]}" bash "$0" "$@"
fi
. "$(dirname "$0")/server.bash"

mkdir small
mount -t tmpfs -o size=4M none small
export RPMA_POOL_FOLDER=$work/small
head -c 500K /dev/urandom >content
start_server pool 1M --volatile
push content
fallocate --punch-hole --offset $((16384 + (1 << 20))) --length $((1 << 20)) small/pool
head -c 8M /dev/zero >small/others 2>/dev/null || true
refused_with 3 'nothing was committed' "$rpma" push content "$address"
grep -q 'a page of a file cannot be had, because the file was truncated or its file system has no room, at offset' server.err ||
    die "the device does not say it"
grep -q 'a push from 127.0.0.1 ended without a commit: .*; the file system of the pool is full, and if it copies on write, no push has room; the pool still has content 1$' server.err ||
    die "the server does not say it"
pulled content
rm small/others
push content
stop_server
umount small
