#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares streams over libfabric's provider with rsockets on the same loopback, by the median ratio of interleaved
# pairs. The buffers have the same sizes: rsetsockopt doubles what it is given, as setsockopt(2) does.
#   rstream.sh [--quick] BUILD
set -eu
pairs=9 bytes=$((1 << 30)) trips=20000
if [ "${1:-}" = --quick ]; then
    pairs=1 bytes=$((1 << 24)) trips=200
    shift
fi
build=$(realpath "$1")
export RPMA_DEVICE=soft FI_PROVIDER=rstream FI_PROVIDER_PATH=$build/lib/libfabric
median() { sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
row() {  # row WHAT UNIT BAR BUFFER ARGUMENT...: the size of the buffers, and the other arguments of both programs
    local what=$1 unit=$2 bar=$3 buffer=$4 pair lines=
    shift 4
    for pair in $(seq $pairs); do
        lines+="$(timeout 120 "$build/bench/bench_rstream" "$@" "$buffer") $(timeout 120 "$build/bench/bench_stream" rsocket "$@" $((buffer / 2)))"$'\n'
    done
    printf '%-34s %8.4g %8.4g %-5s %6.2f   %s\n' "$what" "$(printf '%s' "$lines" | awk '{ print $1 }' | median)" \
        "$(printf '%s' "$lines" | awk '{ print $2 }' | median)" "$unit" \
        "$(printf '%s' "$lines" | awk '{ print $1 / $2 }' | median)" "$bar"
}

printf 'rstream beside rsockets, over the soft device, 127.0.0.1; %d pairs\n' $pairs
printf '%-34s %8s %8s %-5s %6s   %s\n' '' rstream rsocket '' ratio bar
for buffer in $((1 << 20)) 32768; do
    for size in 4096 65536 1048576; do
        row "writes of $((size >> 10)) KiB, buffers of $((buffer >> 10)) KiB" GB/s '>= 0.95' $buffer write $size $((bytes / size))
    done
done
for kind in round-trip-spinning round-trip; do
    row "64 bytes, $kind" us '<= 1.05' 0 $kind 64 $trips
done
