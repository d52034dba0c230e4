#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares Debian's librpma0 and our librpma on the soft device: the instructions for each 8-byte write with its
# completion. Both numbers include the device's own work. callgrind counts them, so they are reproducible. librpma0
# finds the device by libsoftrdma-verbs.so.
#   library.sh BUILD [OPERATIONS]
set -u
operations=${2:-1000}
. "$(dirname "$0")/librpma0.bash"

count() {  # count LIBRARY PRELOAD: instructions for an operation
    local port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    LD_LIBRARY_PATH=${folder[$1]} "${callgrind[@]}" --trace-children=yes env LD_PRELOAD="$2" RPMA_DEVICE=soft SOFTRDMA_SHM=off \
        "$build/bench/bench_library" "$port" "$operations" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    counted "$operations"
}
ours=$(count ours '') || exit 1
theirs=$(count librpma0 "$build/lib/softrdma/libsoftrdma-verbs.so") || exit 1
printf '%-44s %12s\n' 'an 8-byte write and its completion' instructions 'our librpma' "$ours" "Debian's librpma0" "$theirs"
awk -v ours="$ours" -v theirs="$theirs" 'BEGIN {
    printf "%-44s %12.1f   (bar: fewer than 0)\n", "ours beside it", ours - theirs
    exit ours <= 0 || theirs <= 0
}'
