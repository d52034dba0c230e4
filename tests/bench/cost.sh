#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures what librpma adds to the verbs that it calls: the instructions for each 8-byte write with its completion.
# callgrind counts them, so the numbers are reproducible. They include the device's own work in the thread that posts and
# polls. The thread that receives does not count, nor do the kernel's instructions.
#   cost.sh PROGRAM [OPERATIONS]        PROGRAM: build/bench/bench_cost
set -u
program=$1 operations=${2:-1000}
command -v valgrind >/dev/null || { echo 'valgrind is not installed (utils/install-dependencies.sh valgrind)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count() {  # count WAY MEMORY [VIA]: instructions for an operation; MEMORY is a value of SOFTRDMA_SHM, measured_VIA does it
    RPMA_DEVICE=soft SOFTRDMA_SHM=$2 valgrind --tool=callgrind --callgrind-out-file="$work/$1" --collect-atstart=no \
        --toggle-collect="measured_${3:-$1}" "$program" "$1" "$operations" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    awk -v operations="$operations" '/^(summary|totals):/ { count = $2 } END { printf "%.1f\n", count / operations }' "$work/$1"
}
librpma=$(count librpma off) || exit 1
verbs=$(count verbs off) || exit 1
rings=$(count verbs rings) || exit 1
memory=$(count peer on verbs) || exit 1
operations=$(((operations + 127) / 128 * 128))
burst=$(count burst off) || exit 1
arrival=$(count arrival off) || exit 1
printf '%-44s %10s\n' "an 8-byte write and its completion" instructions "ibv_post_send + ibv_poll_cq" "$verbs" \
    "rpma_write + rpma_cq_get_wc" "$librpma" "ibv_post_send + ibv_poll_cq through rings" "$rings" \
    "ibv_post_send + ibv_poll_cq, shared memory" "$memory" "one of 128 over TCP, posted and polled" "$burst" \
    "the same at the target, placed" "$arrival"
awk -v librpma="$librpma" -v verbs="$verbs" -v memory="$memory" -v rings="$rings" \
    -v burst="$burst" -v arrival="$arrival" 'BEGIN {
    printf "%-44s %10.1f   (bar: at most 60)\n", "librpma adds", librpma - verbs
    exit librpma <= 0 || verbs <= 0 || memory <= 0 || rings <= 0 || burst <= 0 || arrival <= 0
}'
