#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rdma_core.sh BUILD: runs rdma-core's own tests (tests/compat/rdma_core.py) over rxe, and then over the soft device that
# looks like a card of RoCE: none that passes over rxe fails there. Some want huge pages, which the guest can reserve.
set -eu
echo 32 >/proc/sys/vm/nr_hugepages
build=$1
suite=$(dirname "$0")/../compat/rdma_core.py
passed=$(mktemp)
IFS=. read -r a b c d <<<"$RXE_IP"
gid=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "$a" "$b" "$c" "$d")
index=$(grep -lx "$gid" /sys/class/infiniband/rxe0/ports/1/gids/* | head -n 1)
"$suite" --kernel rxe0 "${index##*/}" "$RXE_IP" "$passed"
SOFTRDMA_ROCE=1 LD_PRELOAD=$PWD/$build/lib/softrdma/libsoftrdma-verbs.so "$suite" --beside "$passed"
