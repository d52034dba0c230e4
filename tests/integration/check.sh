#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Tests what rpma check finds in pools that are good, cut off and damaged, and the one thing that it repairs.
. "$(dirname "$0")/server.bash"

checked() { # checked TEXT [OPTION...]
    bounded "$rpma" check --pool pool "${@:2}" >stdout 2>stderr || die "check: expected $1"
    grep -q -- "$1" stdout || die "expected $1: $(cat stdout)"
}
damage() { printf '\0\377' | dd of=pool bs=1 seek="$1" conv=notrunc status=none; }

head -c 3M /dev/urandom >first
head -c 2M /dev/urandom >second
start_server pool 3M
refused_with 1 'is already served' "$rpma" check --pool pool
stop_server
checked '^verdict *good: nothing was committed yet'
[ "$(grep -c '^slot [01] *empty$' stdout)" -eq 2 ] || die "a new pool's slots are not empty: $(cat stdout)"
checked '"empty":true' --json
# A server waits for no check, and says that it is one. Two checks do not wait for each other.
exec {checks}<pool
flock --shared "$checks"
refused_with 1 'pool pool: is being checked by another process' "$rpma" serve --pool pool --size 3M --listen 127.0.0.1:7204
refused_with 1 'pool pool: is being checked by another process' "$rpma" check --pool pool --use-other-slot
checked '^verdict *good'
exec {checks}<&-
start_server pool 3M
push first
push second
stop_server
checked '^slot 0 *content 1, 3145728 bytes, crc32c:........: good$'
grep -q '^slot 1 *content 2, 2097152 bytes, crc32c:........: good (committed)$' stdout || die "slot 1: $(cat stdout)"
checked '"good":true' --json

# The committed content is damaged: nothing is changed unless it is asked for, and then the content before is there.
cp pool good
damage 3170000 # of content 2
before=$(sha256sum <pool)
refused_with 1 'slot 0 has content 1, which --use-other-slot commits' "$rpma" check --pool pool
[ "$(sha256sum <pool)" = "$before" ] || die "check changed the pool"
checked '^verdict *repaired: content 1 is committed' --use-other-slot
checked '^verdict *good'
start_server pool 3M
pulled first
push second
pulled second
stop_server

# A pool that cannot be written, as in a backup, is checked all the same.
cp good pool
if unshare --map-root-user --mount true; then
    unshare --map-root-user --mount sh -c 'mount --bind . . && mount -o remount,bind,ro . && cd "$PWD" && exec "$@"' sh \
        "$rpma" check --pool pool >stdout 2>stderr || die "check of a pool on a read-only mount"
    grep -q '^verdict *good$' stdout || die "read-only: $(cat stdout)"
fi
chmod 400 pool
without=()
[ "$(id -u)" -ne 0 ] || without=(setpriv --bounding-set=-dac_override --inh-caps=-dac_override)
"${without[@]}" "$rpma" check --pool pool >stdout 2>stderr || die "check of a pool that may only be read"
grep -q '^verdict *good$' stdout || die "mode 400: $(cat stdout)"
refused_with 1 'pool pool: cannot open it to write, as --use-other-slot does: Permission denied' "${without[@]}" "$rpma" check --pool pool --use-other-slot
chmod 600 pool

# The header of the committed content is damaged, and then the other slot, which the pool does not need.
cp good pool
damage 12288
refused_with 1 'is damaged: the header of slot 1' "$rpma" check --pool pool
checked 'repaired: content 1' --use-other-slot
cp good pool
damage 20000
before=$(sha256sum <pool)
checked '^verdict *good$' --use-other-slot
[ "$(sha256sum <pool)" = "$before" ] || die "check changed a good pool"

# The pool has no other content to offer; then the file is no pool.
damage 3170000
before=$(sha256sum <pool)
refused_with 1 'no good content either' "$rpma" check --pool pool --use-other-slot
[ "$(sha256sum <pool)" = "$before" ] || die "check changed a pool that it cannot repair"
refused_with 1 'is not an rpma pool' "$rpma" check --pool first
refused_with 1 'No such file' "$rpma" check --pool absent
truncate -s 8192 pool
refused_with 1 'has 8192 bytes' "$rpma" check --pool pool
