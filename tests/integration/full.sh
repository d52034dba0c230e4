#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The file system of a store is full: a push is told so when it asks for room. Where the file system cannot allocate, so
# that a page is not there when it is written, the push ends, and the server says why. The store keeps its contents, and
# takes pushes when there is room again. A tmpfs stands for the disk. The first argument is an rpma whose file systems
# cannot allocate on purpose (failing_storage.cpp).
if [ -z "${RPMA_TEST_INSIDE:-}" ]; then
    unshare=(unshare --mount)
    [ "$(id -u)" = 0 ] || unshare+=(--map-root-user)
    "${unshare[@]}" true || { echo 'SKIPPED, nothing was tested: no namespaces here: run it as root'; exit 77; }
    RPMA_TEST_INSIDE=1 exec "${unshare[@]}" bash "$0" "$@"
fi
. "$(dirname "$0")/server.bash"

mkdir small
mount -t tmpfs -o size=4M none small
has_attributes small || { echo 'SKIPPED, nothing was tested: a tmpfs has no attributes here (Linux 6.6 has)'; exit 77; }
export RPMA_STORE_FOLDER=$work/small RPMA_TEST_NO_ALLOCATION=$work/no_allocation
head -c 1M /dev/urandom >content
start_server store --volatile
push content
head -c 8M /dev/zero >small/others 2>/dev/null || true
refused_with 6 'refused: the server has no room: No space left on device; nothing was committed' "$rpma" push content "$address"
pulled content
touch no_allocation
refused_with 3 'nothing was committed' "$rpma" push content "$address"
grep -q 'a page of a file cannot be had, because the file was truncated or its file system has no room, at offset' server.err ||
    die "the device does not say it"
grep -q 'a push from 127.0.0.1 ended without a commit: .*; default still has content 1$' server.err || die "the server does not say it"
pulled content
rm small/others
push content
rm no_allocation
push content
pulled content
stop_server
umount small
