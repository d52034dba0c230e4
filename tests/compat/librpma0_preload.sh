#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# librpma0_preload.sh PRELOAD C-COMPILER: write_flush_read with Debian's librpma itself, which finds the soft device behind
# the names of libibverbs and librdmacm.
set -eu
preload=$1
compiler=$2
cd "$(dirname "$0")"
. ./debian.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$compiler" -std=c17 -Wall -Wextra -Werror write_flush_read.c -o "$work/program" "$debian_library"
# The program itself looks that this librpma is the one it runs with.
timeout 50 env -u LD_LIBRARY_PATH LD_PRELOAD="$preload" "$work/program" "$debian_library"
