#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares Debian's perftest over libsoftrdma-verbs.so with raw TCP on the same loopback, by the median ratio of
# interleaved pairs, as between hosts: SOFTRDMA_SHM=off. It also runs UCX's put and libfabric's ping-pong over TCP, where
# they are installed.
#   programs.sh [--quick] BUILD
set -u
export SOFTRDMA_SHM=off
pairs=9 writes=20000 sends=20000 bytes=$((1 << 30))
if [ "${1:-}" = --quick ]; then
    pairs=1 writes=500 sends=500 bytes=$((1 << 26))
    shift
fi
build=$(realpath "$1")
for program in ib_write_bw ib_send_lat ib_write_lat; do
    command -v $program >/dev/null || { echo "$program is not installed (utils/install-dependencies.sh compat)"; exit 77; }
done
tcp=$build/bench/bench_tcp
. "$(dirname "$(realpath "$0")")/two_ends.bash"

block=$("$tcp" best-block $bytes) || die 'no baseline'
printf 'perftest over the soft device beside raw TCP, 127.0.0.1; %d pairs; best block of TCP %d KiB\n' $pairs $((block >> 10))
printf '%-44s %8s %8s %-5s %6s   %s\n' '' ours TCP '' ratio bar
for _ in $(seq $pairs); do
    base=$("$tcp" bandwidth "$block" $bytes)
    perftest "ib_write_bw -R -p PORT -s 65536 -n $writes"
    echo "$(last_row 4 | awk '{ print $1 * 1048576 / 1e9 }') $(awk -v base="$base" 'BEGIN { print base / 1e9 }')" >>"$work/pairs"
done
row 'ib_write_bw -R -s 65536' GB/s '>= 0.95'
for program in ib_send_lat ib_write_lat; do
    for _ in $(seq $pairs); do
        base=$("$tcp" round-trip $sends 8)
        perftest "$program -R -p PORT -s 8 -n $sends"
        echo "$(last_row 6) $(awk -v base="$base" 'BEGIN { print base * 1e6 / 2 }')" >>"$work/pairs"
    done
    if [ $program = ib_send_lat ]; then bar='<= 1.30'; else bar=reported; fi
    row "$program -R -s 8, mean / half a round trip" us "$bar"
done
if command -v ucx_perftest >/dev/null; then
    common='env UCX_TLS=tcp UCX_NET_DEVICES=lo ucx_perftest -p PORT'
    both_ends '' "$common" "$common 127.0.0.1 -t ucp_put_bw -s 65536 -n $writes -f"
    printf '%-44s %8.2f %8s GB/s\n' 'UCX over TCP, ucp_put_bw of 64 KiB' "$(last_row 6 | awk '{ print $1 * 1048576 / 1e9 }')" ''
fi
if command -v fi_pingpong >/dev/null; then
    both_ends '' "fi_pingpong -p tcp -e msg -B PORT -S 8 -I $sends" "fi_pingpong -p tcp -e msg -P PORT -S 8 -I $sends 127.0.0.1"
    printf '%-44s %8.2f %8s us\n' 'libfabric over TCP, fi_pingpong of 8 bytes' "$(awk '/^8 / { print $(NF - 1) }' "$work/client")" ''
fi
