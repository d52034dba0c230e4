# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced, with BUILD as the first argument, by scripts that count instructions with our librpma and with Debian's
# librpma0: ${folder[ours]} and ${folder[librpma0]} are where LD_LIBRARY_PATH finds them. Skips where there is nothing to
# count with, or beside. $work is removed at the end.
build=$(realpath "$1")
command -v valgrind >/dev/null || { echo 'SKIPPED: valgrind is not installed (utils/install-dependencies.sh valgrind)'; exit 77; }
debian=$(ldconfig -p | awk '/librpma\.so\.0 /{ print $NF; exit }')
[ -n "$debian" ] || { echo 'SKIPPED: librpma0 is not installed (utils/install-dependencies.sh compat)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debian"
ln -s "$debian" "$work/debian/librpma.so.0"
declare -A folder=([ours]=$build/lib [librpma0]=$work/debian)

# What the dynamic linker does at the first call of a function is not counted.
export LD_BIND_NOW=1
# Put before a command: counts what it does in measured(), but for what it does in rpma_cq_wait.
callgrind=(valgrind --tool=callgrind --callgrind-out-file="$work/count" --collect-atstart=no --toggle-collect=measured
    --toggle-collect=rpma_cq_wait)
counted() {  # counted OPERATIONS: instructions for each, of the last command
    awk -v operations="$1" '/^(summary|totals):/ { count = $2 } END { printf "%.1f\n", count / operations }' "$work/count"
}
