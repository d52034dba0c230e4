#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures bandwidth and latency over the size, and the cost of many connections, of the soft device through memory and
# over TCP, beside what carries bytes on one host without it: memcpy(), process_vm_writev(), TCP, UCX and libfabric. Each
# figure is the median of the rounds, and a round measures everything once. Prints a table in Markdown for each kind, and
# makes FOLDER/bandwidth.svg, latency.svg and connections.svg when a folder is given.
#   sizes.sh [--quick] BUILD [FOLDER]
set -u
rounds=5 connections='10 100 1000 10000'
bandwidth_sizes='8 64 512 4096 32768 262144 1048576 4194304' latency_sizes='8 64 512 4096 32768'
# A figure takes this many bytes or calls at most.
most_bytes=$((1 << 29)) most_calls=20000
if [ "${1:-}" = --quick ]; then
    rounds=1 connections=100 bandwidth_sizes='8 1048576' latency_sizes='8' most_bytes=$((1 << 24)) most_calls=300
    shift
fi
build=$(realpath "$1")
folder=${2:-}
here=$(dirname "$(realpath "$0")")
for program in ib_write_bw ib_send_lat ucx_perftest fi_pingpong; do
    command -v $program >/dev/null || { echo "$program is not installed (utils/install-dependencies.sh compat)"; exit 77; }
done
. "$here/two_ends.bash"
memory=$build/bench/bench_memory tcp=$build/bench/bench_tcp

calls_for() {  # calls_for SIZE: as many as move most_bytes, at least 200
    local calls=$((most_bytes / $1))
    [ $calls -le $most_calls ] || calls=$most_calls
    [ $calls -ge 200 ] || calls=200
    echo $calls
}
note() { echo "$2 $3" >>"$work/$1"; }                                       # note SERIES SIZE FIGURE

ucx() { both_ends '' "env UCX_TLS=$1 UCX_NET_DEVICES=$2 ucx_perftest -p PORT" \
    "env UCX_TLS=$1 UCX_NET_DEVICES=$2 ucx_perftest -p PORT 127.0.0.1 -t $3 -s $4 -n $5 -w 200 -f"; }
fabric() { both_ends '' "fi_pingpong -p $1 -e $2 -B PORT -S $3 -I $4" "fi_pingpong -p $1 -e $2 -P PORT -S $3 -I $4 127.0.0.1"; }
fabric_microseconds() { awk '$NF ~ /^[0-9.]+$/ && NF == 8 { value = $(NF - 1) } END { print value }' "$work/client"; }

bandwidth_of() {  # bandwidth_of SIZE
    local calls
    calls=$(calls_for "$1")
    note memcpy "$1" "$(gigabytes "$("$memory" copy "$1" $(($1 * calls)) "$work")")"
    note process_vm_writev "$1" "$(gigabytes "$("$memory" writev "$1" $(($1 * calls)))")"
    SOFTRDMA_SHM=on perftest "ib_write_bw -R -p PORT -s $1 -n $calls"
    note write_memory "$1" "$(of_mebibytes "$(last_row 4)")"
    # 16 writes are under way. The first ones make the files' pages, so there are more writes.
    SOFTRDMA_SHM=on perftest_in_files "ib_write_bw -R -p PORT -s $1 -n $((8 * calls)) -t 16"
    note write_file "$1" "$(of_mebibytes "$(last_row 4)")"
    ucx sm memory ucp_put_bw "$1" "$calls"
    note ucx_memory "$1" "$(of_mebibytes "$(last_row 6)")"
    note tcp "$1" "$(gigabytes "$("$tcp" bandwidth "$1" $(($1 * calls)))")"
    SOFTRDMA_SHM=off perftest "ib_write_bw -R -p PORT -s $1 -n $calls"
    note write_tcp "$1" "$(of_mebibytes "$(last_row 4)")"
    ucx tcp lo ucp_put_bw "$1" "$calls"
    note ucx_tcp "$1" "$(of_mebibytes "$(last_row 6)")"
}

latency_of() {  # latency_of SIZE
    local calls
    calls=$(calls_for "$1")
    note two_processes "$1" "$(half "$("$memory" round-trip "$calls" "$1")")"
    SOFTRDMA_SHM=on perftest "ib_send_lat -R -p PORT -s $1 -n $calls"
    note send_memory "$1" "$(last_row 6)"
    SOFTRDMA_SHM=on perftest "ib_write_lat -R -p PORT -s $1 -n $calls"
    note write_memory_latency "$1" "$(last_row 6)"
    SOFTRDMA_SHM=on perftest_in_files "ib_write_lat -R -p PORT -s $1 -n $calls"
    note write_file_latency "$1" "$(last_row 6)"
    ucx sm memory tag_lat "$1" "$calls"
    note ucx_memory_latency "$1" "$(last_row 3)"
    fabric shm rdm "$1" "$calls"
    note libfabric_memory "$1" "$(fabric_microseconds)"
    note tcp_latency "$1" "$(half "$("$tcp" round-trip "$calls" "$1")")"
    SOFTRDMA_SHM=off perftest "ib_send_lat -R -p PORT -s $1 -n $calls"
    note send_tcp "$1" "$(last_row 6)"
    ucx tcp lo tag_lat "$1" "$calls"
    note ucx_tcp_latency "$1" "$(last_row 3)"
    fabric tcp msg "$1" "$calls"
    note libfabric_tcp "$1" "$(fabric_microseconds)"
}

# Its memory is not measured here: what the process has once counts for much beside few connections.
connections_of() {  # connections_of COUNT: an 8-byte write on one, and on each in turn
    local way most_kib=64
    for way in on off; do
        SOFTRDMA_SHM=$way "$build/tests/test_many" "$1" $most_kib >"$work/client" 2>&1 || die "test_many $1 with SOFTRDMA_SHM=$way"
        note "turn_$way" 1 "$(awk '/^write of/ { print $5 }' "$work/client")"
        note "turn_$way" "$1" "$(awk '/^write of/ { print $10 }' "$work/client")"
    done
}

of_size() { awk -v size="$1" '$1 == size { print $2 }' "$work/$2" | median; }  # of_size SIZE SERIES

size_text() {  # size_text BYTES
    if [ "$1" -ge 1048576 ]; then echo "$(($1 / 1048576)) MiB"
    elif [ "$1" -ge 1024 ]; then echo "$(($1 / 1024)) KiB"
    else echo "$1 B"; fi
}
# table NAME FIRST FORMAT ROWS SERIES=TITLE...: prints the medians, and leaves them for the picture.
table() {
    local name=$1 first=$2 format=$3 rows=$4 column row line
    shift 4
    { printf 'row'; printf '\t%s' "${@#*=}"; printf '\n'; } >"$work/$name.tsv"
    { printf '| %s |' "$first"; printf ' %s |' "${@#*=}"; printf '\n|---|'; printf -- '---|%.0s' "$@"; printf '\n'; }
    for row in $rows; do
        line=$row
        printf '| %s |' "$(if [ "$first" = size ]; then size_text "$row"; else echo "$row"; fi)"
        for column in "${@%%=*}"; do
            median=$(of_size "$row" "$column")
            printf " $format |" "$median"
            line+=$'\t'$median
        done
        printf '\n'
        echo "$line" >>"$work/$name.tsv"
    done
    printf '\n'
    [ -z "$folder" ] || "$here/picture.py" "$work/$name.tsv" "$folder/$name.svg" || die "no picture $name.svg"
}

for round in $(seq $rounds); do
    echo "round $round of $rounds" >&2
    for size in $bandwidth_sizes; do bandwidth_of "$size"; done
    for size in $latency_sizes; do latency_of "$size"; done
done
for count in $connections; do
    echo "$count connections" >&2
    connections_of "$count"
done

echo "Bandwidth in GB/s (10^9 bytes a second):"
echo
table bandwidth size '%.3g' "$bandwidth_sizes" memcpy=memcpy process_vm_writev=process_vm_writev 'write_memory=write, memory' \
    'write_file=write, file' 'ucx_memory=UCX put, memory' tcp=TCP 'write_tcp=write, TCP' 'ucx_tcp=UCX put, TCP'
echo "A write of 1 MiB to a file has $(awk -v ours="$(of_size 1048576 write_file)" -v copy="$(of_size 1048576 memcpy)" \
    'BEGIN { printf "%.2f", ours / copy }') of memcpy's rate (bar: at least 0.9)."
echo
echo "Latency in microseconds, half a round trip; both ends spin:"
echo
table latency size '%.3g' "$latency_sizes" 'two_processes=two processes' 'write_file_latency=write, file' \
    'write_memory_latency=write, memory' 'send_memory=send, memory' 'ucx_memory_latency=UCX tag, memory' \
    'libfabric_memory=libfabric, memory' tcp_latency=TCP 'send_tcp=send, TCP' \
    'ucx_tcp_latency=UCX tag, TCP' 'libfabric_tcp=libfabric, TCP'
echo "Many connections: microseconds of an 8-byte write and its completion, on each connection in turn:"
echo
table connections connections '%.3g' "1 $connections" 'turn_on=write, memory' 'turn_off=write, TCP'
