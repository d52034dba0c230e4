#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma serve, push and pull give identical bytes, over IPv4 and IPv6, into durable and volatile stores.
. "$(dirname "$0")/server.bash"

head -c 64M /dev/urandom >64M
: >./0
printf x >./1
for size in 4095 4096 4097 1048576 1048577; do
    head -c $size 64M >$size
done

start_server store
memory='page cache$\|DAX'
grep -q "^memory *\\($memory\\)" server.out || die "expected a store whose memory is: $memory"
grep -q '^holds *0 names, 0 bytes$' server.out || die "expected an empty store: $(cat server.out)"
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
bounded "$rpma" list "$address" >/dev/null || die "list" # after it, what has to go is gone
[ "$(ls "${RPMA_STORE_FOLDER:-.}/store/default")" = "$(printf '10\n8\n9')" ] || die "expected the last three contents"
stop_server INT

# The pushed content is there after a restart.
start_server store
grep -q '^holds *1 name, 134217728 bytes$' server.out || die "the store forgot: $(cat server.out)"
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
grep -q '"portions":64,' push.json || die "expected that each MiB was stored by itself"

# The command prints nothing into the file that got the number of a closed descriptor.
bounded "$rpma" pull "$address" got --verbose <&- >&- 2>&- || true
cmp 64M got || die "a pull without standard output and error"
bounded "$rpma" push 64M "$address" --verbose <&- >&- 2>&- || true
pulled 64M

# A pull keeps the rights of the file it replaces, follows a link, and leaves no other file.
mkdir destination
echo old >destination/file
chmod 600 destination/file
ln -s file destination/link
bounded "$rpma" pull "$address" destination/link >stdout
cmp 64M destination/file
[ "$(stat -c %a destination/file)" = 600 ] || die "the rights changed"
[ "$(ls -A destination | wc -l)" -eq 2 ] || die "something is left behind: $(ls -A destination)"
# Another user's file grants nobody more than a new one, and not more than it did.
if [ "$(id -u)" -eq 0 ]; then
    for rights in 666:644 600:600; do
        chown 65534 destination/file
        chmod "${rights%:*}" destination/file
        (umask 022 && bounded "$rpma" pull "$address" destination/file >stdout) || die "pull over a file of another user"
        [ "$(stat -c '%u %a' destination/file)" = "0 ${rights#*:}" ] || die "its rights: $(stat -c '%u %a' destination/file)"
    done
fi
stop_server
# The rest is about the soft device.
[ "${RPMA_DEVICE:-}" != kernel ] || exit 0

if grep -q ' lo$' /proc/net/if_inet6 2>/dev/null; then
    listen_on='[::1]'
    start_server store6
    push 4097
    pulled 4097
    stop_server
    unset listen_on
fi

# A tmpfs has attributes since Linux 6.6.
if [ "$(stat -f -c %T /dev/shm)" = tmpfs ] && has_attributes /dev/shm; then
    memory_store=$(mktemp -u /dev/shm/rpma-test.XXXXXX)
    refused 'is not durable here' "$rpma" serve --store "$memory_store" --listen "$address"
    grep -qF "is a file on tmpfs" stderr || die "expected the reason"
    [ ! -e "$memory_store" ] || die "the refused store is left behind"
    start_server "$memory_store" --volatile
    trap 'rm -rf "$memory_store"; clean_up' EXIT
    grep -q '^memory *not durable' server.out || die "expected a warning: $(cat server.out)"
    push 4097
    grep -q '^durable *NO' stdout || die "expected a warning"
    pulled 4097
    stop_server
    rm -r "$memory_store"
fi

bounded "$rpma" devices | grep -Eq '^soft_lo +soft +iWARP +active .* 127\.0\.0\.1( |$)' || die "devices"
bounded "$rpma" devices --json | grep -q '"name":"soft_lo"' || die "devices --json"
bounded "$rpma" serve --help | grep -q 'no authentication and no encryption' || die "the help does not warn"
