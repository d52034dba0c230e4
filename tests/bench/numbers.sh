#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares Debian's perftest between queue pairs by number with the same between ids of rdma_cm (-R), over TCP and in
# memory, by the median ratio of interleaved pairs. UC by number has nothing more to do than rdma_cm's queue pairs; on RC a
# completion says that the peer has the bytes, which costs an acknowledgement. The last row has a write and its completion,
# one at a time, beside a round trip of raw TCP.
#   numbers.sh [--quick] BUILD
set -u
pairs=9 count=20000 round_trips=20000
if [ "${1:-}" = --quick ]; then
    pairs=1 count=500 round_trips=500
    shift
fi
build=$(realpath "$1")
for program in ib_write_bw ib_read_bw ib_send_lat; do
    command -v $program >/dev/null || { echo "$program is not installed (utils/install-dependencies.sh compat)"; exit 77; }
done
. "$(dirname "$(realpath "$0")")/two_ends.bash"

printf 'perftest by number beside rdma_cm; %d pairs; load %s\n' $pairs "$(cut -d ' ' -f 1-3 /proc/loadavg)"
printf '%-44s %8s %8s %-5s %6s   %s\n' '' number -R '' ratio bar
compare() {  # compare WHAT UNIT BAR COLUMN COMMAND [TYPE]
    local number
    for _ in $(seq $pairs); do
        perftest "$5 -d soft_lo -p PORT ${6:-}"
        number=$(last_row "$4")
        perftest "$5 -R -p PORT"
        echo "$number $(last_row "$4")" >>"$work/pairs"
    done
    row "$1" "$2" "$3"
}
export SOFTRDMA_SHM=off
compare 'TCP: ib_write_bw -s 65536 -c UC' MiB/s '>= 0.97' 4 "ib_write_bw -s 65536 -n $count" '-c UC'
compare 'TCP: ib_write_bw -s 65536' MiB/s '>= 0.90' 4 "ib_write_bw -s 65536 -n $count"
compare 'TCP: ib_read_bw -s 65536' MiB/s '>= 0.97' 4 "ib_read_bw -s 65536 -n $count"
compare 'TCP: ib_send_lat -s 8 -c UC' us '<= 1.03' 6 "ib_send_lat -s 8 -n $count" '-c UC'
compare 'TCP: ib_send_lat -s 8' us reported 6 "ib_send_lat -s 8 -n $count"
for _ in $(seq $pairs); do
    perftest "ib_write_bw -d soft_lo -p PORT -s 8 -n $count -t 1 -Q 1"
    rate=$(last_row 5)
    base=$("$build/bench/bench_tcp" round-trip $round_trips 8)
    echo "$(awk -v rate="$rate" 'BEGIN { print 1 / rate }') $(awk -v base="$base" 'BEGIN { print base * 1e6 }')" >>"$work/pairs"
done
row 'TCP: a write and its completion / a round trip' us '<= 1.0'
unset SOFTRDMA_SHM
compare 'memory: ib_write_bw -s 65536' MiB/s '>= 0.97' 4 "ib_write_bw -s 65536 -n $count"
compare 'memory: ib_send_lat -s 8' us '<= 1.03' 6 "ib_send_lat -s 8 -n $count"
