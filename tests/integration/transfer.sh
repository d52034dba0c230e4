#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma serve, push and pull give identical bytes, over IPv4 and IPv6, into durable and volatile pools.
. "$(dirname "$0")/server.bash"

head -c 64M /dev/urandom >64M
: >./0
printf x >./1
for size in 4095 4096 4097 1048576 1048577; do
    head -c $size 64M >$size
done

start_server pool 64M
memory='page cache$\|DAX'
grep -q "^memory *\\($memory\\)" server.out || die "expected a pool whose memory is: $memory"
grep -q '^holds *nothing yet' server.out || die "expected an empty pool"
for file in 0 1 4095 4096 4097 1048576 1048577 64M 0; do
    push "$file"
    grep -q "^bytes *$(stat -c %s "$file")$" stdout || die "the summary of $file"
    grep -q '^durable *yes' stdout || die "expected a push that is durable"
    [ ! -s stderr ] || die "push is not quiet"
    pulled "$file"
    [ ! -s stderr ] || die "pull is not quiet"
done
[ "$(grep -c '^committed' server.out)" -eq 9 ] || die "expected 9 commits: $(cat server.out)"
push 64M
stop_server INT

# The pushed content is there after a restart.
start_server pool 64M
grep -q '^holds *content 10, 67108864 bytes' server.out || die "the pool forgot: $(cat server.out)"
pulled 64M

# The output is JSON, and its numbers fit each other.
bounded "$rpma" push 64M "$address" --json >push.json
bounded "$rpma" pull "$address" got --json >pull.json
for file in push.json pull.json; do
    [ "$(wc -l <$file)" -eq 1 ] || die "$file has not one line"
    grep -q '"bytes":67108864,' $file || die "$file"
    grep -q '"sequence":11[,}]' $file || die "$file"
done
[ "$(grep -o 'crc32c:[0-9a-f]*' push.json)" = "$(grep -o 'crc32c:[0-9a-f]*' pull.json)" ] || die "the checksums differ"
grep -q '"flushes":\([4-9]\|[1-9][0-9]\),' push.json || die "expected four flushes of content at least"

# A pull keeps the rights of the file it replaces, follows a link, and leaves no other file.
mkdir destination
echo old >destination/file
chmod 600 destination/file
ln -s file destination/link
bounded "$rpma" pull "$address" destination/link >stdout
cmp 64M destination/file
[ "$(stat -c %a destination/file)" = 600 ] || die "the rights changed"
[ "$(ls -A destination | wc -l)" -eq 2 ] || die "something is left behind: $(ls -A destination)"
stop_server
# The rest is about the soft device.
[ "${RPMA_DEVICE:-}" != kernel ] || exit 0

if grep -q ' lo$' /proc/net/if_inet6 2>/dev/null; then
    listen_on='[::1]'
    start_server pool6 1M
    push 4097
    pulled 4097
    stop_server
    unset listen_on
fi

if [ "$(stat -f -c %T /dev/shm)" = tmpfs ]; then
    memory_pool=$(mktemp -u /dev/shm/rpma-test.XXXXXX)
    refused 'is not durable here' "$rpma" serve --pool "$memory_pool" --size 1M --listen "$address"
    grep -qF "$memory_pool is a file on tmpfs" stderr || die "expected the reason"
    [ ! -e "$memory_pool" ] || die "the refused pool is left behind"
    start_server "$memory_pool" 1M --volatile
    trap 'rm -f "$memory_pool"; clean_up' EXIT
    grep -q '^memory *not durable' server.out || die "expected a warning: $(cat server.out)"
    push 4097
    grep -q '^durable *NO' stdout || die "expected a warning"
    pulled 4097
    stop_server
    rm "$memory_pool"
fi

bounded "$rpma" devices | grep -Eq '^soft_lo +soft +iWARP +active .* 127\.0\.0\.1( |$)' || die "devices"
bounded "$rpma" devices --json | grep -q '"name":"soft_lo"' || die "devices --json"
bounded "$rpma" serve --help | grep -q 'no authentication and no encryption' || die "the help does not warn"
