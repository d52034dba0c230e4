#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares streams over rsockets with the kernel's TCP on the same loopback, by the median ratio of interleaved pairs.
# TCP writes blocks of the size that is best for it.
#   stream.sh [--quick] BUILD
set -eu
pairs=9 bytes=$((1 << 30)) trips=20000
if [ "${1:-}" = --quick ]; then
    pairs=1 bytes=$((1 << 24)) trips=200
    shift
fi
build=$(realpath "$1")
export RPMA_DEVICE=soft
stream() { timeout 120 "$build/bench/bench_stream" "$@"; }
median() { sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
row() {  # row WHAT UNIT BAR OURS BASE: OURS and BASE are commands that print a number
    local what=$1 unit=$2 bar=$3 ours=$4 base=$5 pair lines=
    for pair in $(seq $pairs); do
        lines+="$($ours) $($base)"$'\n'
    done
    printf '%-34s %8.4g %8.4g %-5s %6.2f   %s\n' "$what" "$(printf '%s' "$lines" | awk '{ print $1 }' | median)" \
        "$(printf '%s' "$lines" | awk '{ print $2 }' | median)" "$unit" \
        "$(printf '%s' "$lines" | awk '{ print $1 / $2 }' | median)" "$bar"
}
best() { "$build/bench/bench_tcp" bandwidth "$block" $bytes | awk '{ print $1 / 1e9 }'; }

block=$("$build/bench/bench_tcp" best-block $bytes)
printf 'rsockets over the soft device beside TCP, 127.0.0.1; %d pairs; best block of TCP %d KiB\n' $pairs $((block >> 10))
printf '%-34s %8s %8s %-5s %6s   %s\n' '' ours TCP '' ratio bar
for buffer in $((1 << 20)) 0; do
    for size in 65536 1048576; do
        if [ $buffer = 0 ]; then bar='>= 0.60' with='default buffers'; else bar='>= 0.80' with='buffers of 1 MiB'; fi
        row "writes of $((size >> 10)) KiB, $with" GB/s "$bar" "stream rsocket write $size $((bytes / size)) $buffer" best
    done
done
for kind in round-trip-spinning round-trip; do
    if [ $kind = round-trip ]; then bar='<= 1.70'; else bar='<= 1.50'; fi
    row "64 bytes, $kind" us "$bar" "stream rsocket $kind 64 $trips 0" "stream tcp $kind 64 $trips 0"
done
