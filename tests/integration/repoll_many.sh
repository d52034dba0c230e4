#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Counts the instructions of an echo, of all libraries, in a process that has IDLE idle streams in its repoll: at most
# 1.3 times as many as with 10. There are so many echoes that the work the device's thread still does for the last idle
# streams, on a busy machine, does not show.
#   repoll_many.sh PROGRAM IDLE [ECHOES]        PROGRAM: build/tests/test_repoll_many
set -u
program=$1 idle=$2 echoes=${3:-2000} most=1.3
command -v valgrind >/dev/null || { echo 'valgrind is not installed (utils/install-dependencies.sh valgrind)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count() {  # count IDLE: instructions of one echo
    RPMA_DEVICE=soft valgrind --tool=callgrind --callgrind-out-file="$work/$1" --instr-atstart=no \
        "$program" "$1" "$echoes" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    grep -h '^SCALED' "$work/log" >&2
    awk -v echoes="$echoes" '/ Collected : / { printf "%.0f\n", $NF / echoes }' "$work/log"
}
# On a busy machine the work of other threads adds to a count, and never takes from it. So the script takes a count that is
# too high again, twice at most.
for _ in 1 2 3; do
    few=$(count 10) || exit 1
    many=$(count "$idle") || exit 1
    awk -v few="$few" -v many="$many" -v idle="$idle" -v most="$most" 'BEGIN {
        printf "instructions an echo: %d with 10 idle streams, %d with %d: ratio %.2f (expected: at most %.1f)\n",
            few, many, idle, many / few, most
        exit few <= 0 || many > most * few
    }' && exit 0
done
exit 1
