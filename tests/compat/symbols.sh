#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# symbols.sh LIBRARY: the library has what programs linked to Debian's librpma look for: the same soname, every symbol
# under the same version node, and no other symbol under that node.
set -eu
cd "$(dirname "$0")"
. ./debian.sh
ours=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

soname() { objdump -p "$1" | awk '$1 == "SONAME" { print $2 }'; }
[ "$(soname "$ours")" = "$(soname "$debian_library")" ] || {
    echo "soname $(soname "$ours"), Debian's is $(soname "$debian_library")"
    exit 1
}

exported "$debian_library" >"$work/debian"
exported "$ours" >"$work/ours"
nodes=$(sed 's/.*@//' "$work/debian" | sort -u)
: >"$work/ours-under-debian-nodes"
for node in $nodes; do
    { grep "@$node\$" "$work/ours" || true; } >>"$work/ours-under-debian-nodes"
done
LC_ALL=C sort -o "$work/ours-under-debian-nodes" "$work/ours-under-debian-nodes"
if ! diff "$work/debian" "$work/ours-under-debian-nodes"; then
    echo "'<' is missing, '>' is too much under ${nodes//$'\n'/, }"
    exit 1
fi
# Functions that have been added since have a node of their own.
if grep -v '@@LIBRPMA_[0-9.]*$' "$work/ours"; then
    echo 'these are exported without a version node of librpma'
    exit 1
fi
echo "$(wc -l <"$work/debian") symbols under ${nodes//$'\n'/, }, as in librpma0 $debian_version"
