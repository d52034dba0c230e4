#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma.hpp costs nothing: a post through it is, instruction by instruction, the call that C makes.
#   cxx_call.sh COMPILER INCLUDE-FOLDER
set -eu
compiler=$1 include=$2
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$compiler" -std=c++23 -O2 -fno-asynchronous-unwind-tables -I"$include" -c "$here/cxx_call.cpp" -o "$work/object"

# The instructions of a function: without addresses, labels and padding, in any order, for the compiler may load
# arguments in another one.
body_of() {  # body_of FUNCTION
    objdump --disassemble="$1" --reloc --no-addresses --no-show-raw-insn "$work/object" |
        sed -n "/<$1>:/,\$p" | sed -e 1d -e "s/<$1+[^>]*>//" -e 's/ *#.*//' -e 's/j[a-z]* .*/jump/' | grep -vE 'nop|xchg +%ax,%ax|^ *$' |
        sort
}
for call in write flush send; do
    body_of ${call}_in_cxx >"$work/cxx"
    body_of ${call}_in_c >"$work/c"
    echo "rpma_$call: $(wc -l <"$work/cxx") lines of assembly from C++, $(wc -l <"$work/c") from C"
    grep -q "rpma_$call" "$work/cxx" || { echo "no call of rpma_$call in:" && cat "$work/cxx" && exit 1; }
    [ "$(wc -l <"$work/cxx")" -le "$(wc -l <"$work/c")" ] || { diff "$work/cxx" "$work/c" && exit 1; exit 1; }
done
