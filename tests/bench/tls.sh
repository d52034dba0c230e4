#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares the soft device over TLS 1.3 with a bare stream of OpenSSL over the same loopback, with the same cipher, by the
# median ratio of interleaved pairs: Debian's perftest over libsoftrdma-verbs.so, and the set-up of connections.
#   tls.sh [--quick] BUILD
set -u
export SOFTRDMA_SHM=off
pairs=9 writes=2000 sends=20000 bytes=$((1 << 30)) connections=1000
if [ "${1:-}" = --quick ]; then
    pairs=1 writes=100 sends=500 bytes=$((1 << 25)) connections=100
    shift
fi
build=$(realpath "$1")
for program in ib_write_bw ib_send_lat; do
    command -v $program >/dev/null || { echo "$program is not installed (utils/install-dependencies.sh compat)"; exit 77; }
done
. "$(dirname "$(realpath "$0")")/two_ends.bash"
bare=$build/bench/bench_tls
"$build/bin/rpma" keygen bench "$work/keys" || die 'no key'
secure() { RPMA_TLS=psk:$work/keys "$@"; }

block=$(for size in 16384 65536 262144 1048576; do
    echo "$("$bare" bandwidth $size $((bytes / 4))) $size"
done | sort -g | awk 'END { print $2 }')
printf 'the soft device over TLS 1.3 beside a stream of OpenSSL, 127.0.0.1; %d pairs; best block of OpenSSL %d KiB\n' $pairs $((block >> 10))
printf '%-44s %8s %8s %-5s %6s   %s\n' '' ours OpenSSL '' ratio bar
for _ in $(seq $pairs); do
    base=$("$bare" bandwidth "$block" $bytes)
    secure perftest "ib_write_bw -R -p PORT -s 1048576 -n $writes"
    echo "$(last_row 4 | awk '{ print $1 * 1048576 / 1e9 }') $(awk -v base="$base" 'BEGIN { print base / 1e9 }')" >>"$work/pairs"
done
row 'ib_write_bw -R -s 1048576' GB/s '>= 0.80'
for _ in $(seq $pairs); do
    base=$("$bare" round-trip $sends 8)
    secure perftest "ib_send_lat -R -p PORT -s 8 -n $sends"
    echo "$(last_row 6) $(awk -v base="$base" 'BEGIN { print base * 1e6 / 2 }')" >>"$work/pairs"
done
row 'ib_send_lat -R -s 8, mean / half a round trip' us '<= 1.30'
for _ in $(seq $pairs); do
    base=$("$bare" handshakes $connections)
    secure "$build/tests/test_many" $connections 128 >"$work/client" 2>&1 || die 'test_many'
    awk '/bytes a connection/ { print $(NF - 3) }' "$work/client" >"$work/memory"
    echo "$(awk '/connections a second/ { print $1 }' "$work/client") $base" >>"$work/pairs"
done
row 'connections a second / handshakes a second' '' 'reported'
printf '%-44s %8d bytes\n' 'memory of an idle connection' "$(cat "$work/memory")"
