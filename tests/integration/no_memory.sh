#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The server may have little more memory than it has: clients for which there is none are refused or ended, and hear why.
# The server lives, and serves the others.
. "$(dirname "$0")/server.bash"

head -c 1M /dev/urandom >content
start_server store
push content
push content # the first one made what the server keeps
limit_server() { prlimit --pid "$server" --as="$1:"; }
before=$(ulimit -Sv)
# has_kib COUNT: the server may have so much more.
has_kib() { limit_server $((($(awk '/^VmSize/ { print $2 }' "/proc/$server/status") + $1) * 1024)); }
lives() {
    kill -0 "$server" 2>/dev/null || die "the server ended: $*"
    limit_server "$before"
    pulled content
    push content
}

# A crowd of pushes, of which each needs a window of 16 MiB, and which nobody ends.
mkfifo source
exec 9<>source
has_kib 20480
crowd=()
for ((i = 0; i < 24; i++)); do
    timeout --kill-after=5 60 "$rpma" push - "$address/crowd$i" --allow-empty <source 9>&- >/dev/null 2>crowd$i.err &
    crowd+=($!)
done
helpers+=("${crowd[@]}")
# shellcheck disable=SC2016
timeout 60 bash -c 'until [ "$(cat crowd*.err | wc -l)" -ge 12 ]; do kill -0 "$1" || exit; done' - "$server" || die "no push is refused"
grep -hqi 'allocate memory\|memory for' crowd*.err || die "no push hears of memory: $(cat crowd*.err)"
exec 9>&-
code=0
for pid in "${crowd[@]}"; do
    wait "$pid" || code=$?
done
[ $code -ne 0 ] || die "no push was refused"
lives "a crowd of pushes"

stop_server
