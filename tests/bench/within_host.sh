#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares two processes of one host over the soft device through memory with what carries bytes there without it, by
# the median ratio of interleaved pairs. tests/bench/sockets.sh has redis and others, tests/bench/cost.sh the
# instructions.
#   within_host.sh [--quick] BUILD
set -u
export SOFTRDMA_SHM=on RPMA_DEVICE=soft
pairs=9 trips=50000 megabytes=8192 slow_calls=1000 flush_seconds=1
if [ "${1:-}" = --quick ]; then
    pairs=1 trips=500 megabytes=32 slow_calls=100 flush_seconds=0.05
    shift
fi
build=$(realpath "$1")
for program in ib_write_bw ib_send_lat ib_write_lat ucx_perftest; do
    command -v $program >/dev/null || { echo "$program is not installed (utils/install-dependencies.sh compat)"; exit 77; }
done
. "$(dirname "$(realpath "$0")")/two_ends.bash"
disk=$(mktemp -d -p /var/tmp)
trap 'finish; rm -rf "$disk"' EXIT
memory=$build/bench/bench_memory mib=$((1 << 20))

stream() { timeout 120 "$build/bench/bench_stream" "$@"; }
write_file() { perftest_in_files "ib_write_bw -R -p PORT -s $mib -n $megabytes -t 16" && of_mebibytes "$(last_row 4)"; }
copy() { gigabytes "$("$memory" copy $mib $((megabytes * mib)) "$disk")"; }
write_private() { perftest "ib_write_bw -R -p PORT -s $mib -n $megabytes -t 16" && of_mebibytes "$(last_row 4)"; }
writev() { gigabytes "$("$memory" writev $mib $((megabytes * mib)))"; }
write_lat_file() { perftest_in_files "ib_write_lat -R -p PORT -s 8 -n $trips" && last_row 6; }
write_lat() { perftest "ib_write_lat -R -p PORT -s 8 -n $trips" && last_row 6; }
write_lat_tcp() { SOFTRDMA_SHM=off perftest "ib_write_lat -R -p PORT -s 8 -n $slow_calls" && last_row 6; }
send_lat() { perftest "ib_send_lat -R -p PORT -s 8 -n $trips" && last_row 6; }
two_processes() { half "$("$memory" round-trip $trips 8)"; }
ucx() {
    local command='env UCX_TLS=sm UCX_NET_DEVICES=memory ucx_perftest -p PORT'
    both_ends '' "$command" "$command 127.0.0.1 -t tag_lat -s 8 -n $trips -w 200 -f" && last_row 3
}
end_server() {
    kill "$server"
    wait "$server"
    server=
}
flush() { # a write and its flush, in microseconds
    local port
    port=$(free_port)
    begin_server "$port" "$build/bin/rpma" serve --store "$disk/store" --listen "127.0.0.1:$port"
    "$build/bin/rpma" perf "127.0.0.1:$port" --op flush --size 4K --depth 1 --time "$flush_seconds" --json >"$work/client" ||
        die 'rpma perf failed'
    end_server
    rm -r "$disk/store"
    grep -o '"mean":[0-9.]*' "$work/client" | awk -F: 'NR == 1 { print $2 / 1000 }'
}
# The program sleeps in rpma_cq_wait(), as the examples do; rpma perf polls.
flush_asleep() { "$build/bench/bench_cost" flush $slow_calls "$disk" | awk '{ print $1 * 1e6 }'; }
store_and_msync() { "$memory" msync 4096 $((slow_calls * 4096)) "$disk" | awk '{ print $1 * 1e6 }'; }

# A process spins meanwhile, as perftest's server does, and an initiator that waits for its flush. The two processors may
# be of one core.
beside_spinner() {
    timeout 120 bash -c 'while :; do :; done' &
    server=$!
    "$@"
    end_server 2>/dev/null
}
copy_beside() { beside_spinner copy; }
writev_beside() { beside_spinner writev; }
store_and_msync_beside() { beside_spinner store_and_msync; }

compare() { # compare WHAT UNIT BAR OURS BASE: OURS and BASE are functions that print a figure
    local pair
    for pair in $(seq $pairs); do
        if [ $((pair % 2)) = 1 ]; then
            "$4" >"$work/ours" && "$5" >"$work/base"
        else
            "$5" >"$work/base" && "$4" >"$work/ours"
        fi || die "$1 was not measured"
        echo "$(cat "$work/ours") $(cat "$work/base")" >>"$work/pairs"
    done
    row "$1" "$2" "$3"
}
stream_ours() { stream rsocket write 65536 $((megabytes * 16)) 0; }
stream_tcp() { stream tcp write 65536 $((megabytes * 16)) 0; }
trip_ours() { stream rsocket round-trip-spinning 64 $trips 0; }
trip_tcp() { stream tcp round-trip-spinning 64 $trips 0; }

printf 'two processes of one host, through memory; %d pairs\n' $pairs
printf '%-44s %8s %8s %-5s %6s   %s\n' '' ours beside '' ratio bar
compare '1 MiB to a file, 16 at once; memcpy' GB/s '>= 0.90' write_file copy
compare '... beside a process that spins' GB/s reported write_file copy_beside
compare '1 MiB to private memory; process_vm_writev' GB/s '>= 0.90' write_private writev
compare '... beside a process that spins' GB/s reported write_private writev_beside
compare 'ib_write_lat -R, a file; two processes' us '<= 4' write_lat_file two_processes
compare 'ib_write_lat -R, private; two processes' us reported write_lat two_processes
compare 'ib_write_lat -R, private; over TCP' us '<= 0.05' write_lat write_lat_tcp
compare 'ib_send_lat -R; two processes' us '<= 8' send_lat two_processes
compare 'ib_send_lat -R; UCX, tag_lat' us reported send_lat ucx
compare 'rsocket, writes of 64 KiB; TCP' GB/s '>= 2.50' stream_ours stream_tcp
compare 'rsocket, 64 bytes there and back; TCP' us '<= 0.25' trip_ours trip_tcp
compare '4 KiB and its flush, asleep; store and msync' us '<= 1.10' flush_asleep store_and_msync
compare '4 KiB and its flush, polling; store and msync' us reported flush store_and_msync
compare '... beside a process that spins' us reported flush store_and_msync_beside
