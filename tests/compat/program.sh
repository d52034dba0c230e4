#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# program.sh LIBRARY C-COMPILER [OPTION...]: write_flush_read, compiled and linked against Debian's librpma, runs on our
# library by LD_LIBRARY_PATH alone. A library that was built with a sanitizer needs the options.
set -eu
library=$1
compiler=$2
shift 2
cd "$(dirname "$0")"
. ./debian.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$compiler" -std=c17 -Wall -Wextra -Werror write_flush_read.c -o "$work/program" "$@" "$debian_library"
# The program contains nothing of our library.
if readelf --dynamic "$work/program" | grep -E 'RPATH|RUNPATH'; then
    echo 'the program looks for libraries in places of its own'
    exit 1
fi
LD_LIBRARY_PATH=${library%/*} "$work/program" "${library%/*}/librpma.so.0"
