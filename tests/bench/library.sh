#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's librpma0 and our librpma on the soft device: instructions for each 8-byte write with its completion, the
# device's own work in both. callgrind counts, so the figures are reproducible. librpma0 has the device from
# libsoftrdma-verbs.so.
#   library.sh BUILD [OPERATIONS]
set -u
build=$(realpath "$1") operations=${2:-1000}
command -v valgrind >/dev/null || { echo 'valgrind is not installed (utils/install-dependencies.sh valgrind)'; exit 77; }
debian=$(ldconfig -p | awk '/librpma\.so\.0 /{ print $NF; exit }')
[ -n "$debian" ] || { echo 'librpma0 is not installed (utils/install-dependencies.sh compat)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count() {  # count NAME FOLDER PRELOAD: instructions for an operation with the librpma of FOLDER
    local port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    LD_LIBRARY_PATH=$2 valgrind --tool=callgrind --callgrind-out-file="$work/$1" --collect-atstart=no \
        --toggle-collect=measured --trace-children=yes env LD_PRELOAD="$3" RPMA_DEVICE=soft \
        "$build/bench/bench_library" "$port" "$operations" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    awk -v operations="$operations" '/^(summary|totals):/ { count = $2 } END { printf "%.1f\n", count / operations }' "$work/$1"
}
mkdir "$work/debian"
ln -s "$debian" "$work/debian/librpma.so.0"
ours=$(count ours "$build/lib" '') || exit 1
theirs=$(count theirs "$work/debian" "$build/lib/softrdma/libsoftrdma-verbs.so") || exit 1
printf '%-44s %12s\n' 'an 8-byte write and its completion' instructions 'our librpma' "$ours" "Debian's librpma0" "$theirs"
awk -v ours="$ours" -v theirs="$theirs" 'BEGIN {
    printf "%-44s %12.1f   (bar: fewer than 0)\n", "ours beside it", ours - theirs
    exit ours <= 0 || theirs <= 0
}'
