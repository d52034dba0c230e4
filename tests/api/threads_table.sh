#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# threads_table.sh LIBRARY: every function that the library exports is in the table of doc/THREADS.md, once, and the table
# names none that librpma.h does not declare.
set -eu
library=$1
cd "$(dirname "$0")/../.."
named=$(grep '^| `' doc/THREADS.md | cut -d '|' -f 2 | grep -o 'rpma_[a-z0-9_]*')
exported=$(nm --dynamic --defined-only "$library" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }')
result=0
say() {
    echo "$*"
    result=1
}

[ "$(wc -w <<<"$exported")" -ge 84 ] || say 'the library exports too few functions to be librpma'
for function in $exported; do
    [ "$(grep -cx "$function" <<<"$named")" = 1 ] || say "$function is not in doc/THREADS.md exactly once"
done
for function in $named; do
    grep -q "\\b$function\\b" include/librpma.h || say "$function of doc/THREADS.md is not in librpma.h"
done
exit $result
