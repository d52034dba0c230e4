#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures small operations a second, in millions, beside what carries the same bytes without the device, by the median
# ratio of pairs by turns: perftest on one queue pair with 128 requests outstanding. TCP is one connection whose two ends
# sleep, with 1, 16 or 64 messages in one call.
#   rate.sh [--quick] BUILD
set -u
export RPMA_DEVICE=soft
pairs=9 operations=2000000
if [ "${1:-}" = --quick ]; then
    pairs=1 operations=10000
    shift
fi
build=$(realpath "$1")
for program in ib_write_bw ib_send_bw ucx_perftest; do
    command -v $program >/dev/null || { echo "$program is not installed (utils/install-dependencies.sh compat)"; exit 77; }
done
. "$(dirname "$(realpath "$0")")/two_ends.bash"

millions() { awk -v rate="$1" -v of="$2" 'BEGIN { print rate / of / 1e6 }'; }
write_tcp() { SOFTRDMA_SHM=off perftest "ib_write_bw -R -p PORT -s 8 -n $operations -t 128" && last_row 5; }
send_tcp() { SOFTRDMA_SHM=off perftest "ib_send_bw -R -p PORT -s 64 -n $operations -t 128 -r 512" && last_row 5; }
write_private() { SOFTRDMA_SHM=on perftest "ib_write_bw -R -p PORT -s 8 -n $operations -t 128" && last_row 5; }
write_file() { SOFTRDMA_SHM=on perftest_in_files "ib_write_bw -R -p PORT -s 8 -n $operations -t 128" && last_row 5; }
tcp() { millions "$("$build/bench/bench_tcp" bandwidth $(($1 * $2)) $((operations * $1)))" "$1"; }  # tcp BYTES A_CALL
tcp_1() { tcp 8 1; }
tcp_16() { tcp 8 16; }
tcp_64() { tcp 8 64; }
tcp_64_of_64() { tcp 64 64; }
writev() { millions "$("$build/bench/bench_memory" writev 8 $((operations * 8)))" 8; }
ucx_put() {  # ucx_put TRANSPORTS DEVICE
    local command="env UCX_TLS=$1 UCX_NET_DEVICES=$2 ucx_perftest -p PORT"
    both_ends '' "$command" "$command 127.0.0.1 -t ucp_put_bw -s 8 -n $operations -f" && millions "$(last_row 8)" 1
}
ucx_put_tcp() { ucx_put tcp lo; }
ucx_put_memory() { ucx_put sm memory; }

compare() { # compare WHAT BAR OURS BASE: OURS and BASE are functions that print a figure
    local pair
    for pair in $(seq $pairs); do
        if [ $((pair % 2)) = 1 ]; then
            "$3" >"$work/ours" && "$4" >"$work/base"
        else
            "$4" >"$work/base" && "$3" >"$work/ours"
        fi || die "$1 was not measured"
        echo "$(cat "$work/ours") $(cat "$work/base")" >>"$work/pairs"
    done
    row "$1" M/s "$2"
}
printf 'small operations a second, 128 outstanding, 127.0.0.1; %d pairs\n' $pairs
printf '%-44s %8s %8s %-5s %6s   %s\n' '' ours beside '' ratio bar
compare '8-byte writes over TCP; TCP, 1 a call' reported write_tcp tcp_1
compare '... TCP, 16 a call' reported write_tcp tcp_16
compare '... TCP, 64 a call' reported write_tcp tcp_64
compare "... UCX's put over TCP" '>= 5' write_tcp ucx_put_tcp
compare '64-byte sends over TCP; TCP, 64 a call' reported send_tcp tcp_64_of_64
compare '8-byte writes, private; process_vm_writev' reported write_private writev
compare "... UCX's put, memory" reported write_private ucx_put_memory
compare "8-byte writes, a file; UCX's put, memory" reported write_file ucx_put_memory
