#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma check --store reads the bytes of every content, of a store that is served or not, that cannot be written, or is
# another user's. It changes nothing.
. "$(dirname "$0")/server.bash"

# checked COUNT [COMMAND...]: the store is good, and has so many contents.
checked() {
    bounded "${@:2}" "$rpma" check --store store >stdout 2>stderr || die "check: $*"
    [ "$(grep -c crc32c stdout)" -eq "$1" ] || die "expected $1 contents: $(cat stdout)"
}
state() { find store -printf '%p %s %m %T@ %C@\n' | sort; }

head -c 3M /dev/urandom >first
head -c 2M /dev/urandom >second
start_server store
checked 0
grep -qx 'no contents' stdout || die "a new store has a content: $(cat stdout)"
push first
push second
push first "$address/other"
checked 3 # while it is served
stop_server
checked 3
grep -Eq '^default +2 .* 2097152 +crc32c:[0-9a-f]{8} ' stdout || die "no row of the second content: $(cat stdout)"
bounded "$rpma" check --store store --json >stdout || die "check --json"
grep -q '"good":true' stdout || die "no JSON: $(cat stdout)"

# A store that cannot be written, as in a backup; one that may only be read.
if unshare --map-root-user --mount true; then
    checked 3 unshare --map-root-user --mount sh -c 'mount --bind . . && mount -o remount,bind,ro . && cd "$PWD" && exec "$@"' sh
fi
chmod -R a-w store
without=()
[ "$(id -u)" -ne 0 ] || without=(setpriv --bounding-set=-dac_override --inh-caps=-dac_override)
checked 3 "${without[@]}"
chmod -R u+w store

# One content is damaged, and one is deleted: the others are good.
printf '\0\377' | dd of=store/default/1 bs=1 seek=5000 conv=notrunc status=none
before=$(state)
refused_with 1 'store store: 1 of 3 contents are not good' "$rpma" check --store store
grep -q '^default *1 .*FAULT: is damaged: it has another checksum, crc32c:' stdout || die "the check does not say it: $(cat stdout)"
[ "$(grep -c FAULT stdout)" -eq 1 ] || die "another content is not good: $(cat stdout)"
refused_with 1 'contents are not good' "$rpma" check --store store --json
grep -q '"good":false' stdout || die "no JSON: $(cat stdout)"
[ "$(state)" = "$before" ] || die "check changed the store"
rm store/default/1
checked 2

mkdir wrong
refused_with 1 'store wrong: is none: it has no content and no file .identity: No such file' "$rpma" check --store wrong --json
refused_with 1 'store absent: cannot open: No such file' "$rpma" check --store absent
refused_with 1 'store first: cannot open: Not a directory' "$rpma" check --store first
