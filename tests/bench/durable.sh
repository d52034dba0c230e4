#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures how long 4 KiB take from one process to another, one piece at a time, until the sender knows that they are in
# the other's memory, and until it knows that they are on storage: with `rpma perf`, through memory within the host and
# over TCP as between hosts, beside programs that write the bytes to a TCP socket. Prints a table in Markdown, and makes
# FOLDER/durable.svg when a folder is given. A figure is the median of the rounds, each of which measures everything once.
#   durable.sh [--quick] BUILD [FOLDER]
set -u
rounds=9 seconds=1 calls=2000
if [ "${1:-}" = --quick ]; then
    rounds=1 seconds=0.05 calls=20
    shift
fi
build=$(realpath "$1")
folder=${2:-}
here=$(dirname "$(realpath "$0")")
. "$here/two_ends.bash"
disk=$(mktemp -d -p /var/tmp)
memory=$(mktemp -d -p /dev/shm)
trap 'finish; rm -rf "$disk" "$memory"' EXIT

# Prints the median latency of a write and its flush, and that of the same bytes and an answer over TCP, in microseconds.
write_and_flush() {  # write_and_flush on|off FOLDER [OPTION]: through memory, or not; with the store in the folder
    local port
    port=$(free_port)
    rm -rf "$2/store"
    SOFTRDMA_SHM=$1 RPMA_DEVICE=soft begin_server "$port" \
        "$build/bin/rpma" serve --store "$2/store" --listen "127.0.0.1:$port" "${@:3}"
    SOFTRDMA_SHM=$1 RPMA_DEVICE=soft timeout 120 "$build/bin/rpma" perf "127.0.0.1:$port" --op flush --size 4K --depth 1 \
        --time "$seconds" --json >"$work/client" || die 'rpma perf failed'
    kill "$server"
    wait "$server"
    server=
    grep -o '"p50":[0-9.]*' "$work/client" | awk -F: '{ printf "%s ", $2 / 1000 }'
}
for _ in $(seq $rounds); do
    read -r visible answered <<<"$(write_and_flush on "$memory" --volatile)"
    read -r visible_tcp _ <<<"$(write_and_flush off "$memory" --volatile)"
    read -r durable _ <<<"$(write_and_flush on "$disk")"
    read -r durable_tcp _ <<<"$(write_and_flush off "$disk")"
    stored=$("$build/bench/bench_tcp" stored $calls 4096 "$disk" | awk '{ print $1 * 1e6 }')
    [ -n "$visible$visible_tcp$durable$durable_tcp$stored" ] || die 'not everything was measured'
    echo "$visible $visible_tcp $answered $durable $durable_tcp $stored" >>"$work/rounds"
done
of() { awk -v column="$1" '{ print $column }' "$work/rounds" | median | awk '{ printf "%.3g", $1 }'; }  # of COLUMN
{
    printf 'in the memory of the other process\t\n'
    printf 'rpma, within a host\t%s\n' "$(of 1)"
    printf 'rpma, over TCP\t%s\n' "$(of 2)"
    printf 'TCP, and an answer\t%s\n' "$(of 3)"
    printf 'on storage\t\n'
    printf 'rpma, within a host\t%s\n' "$(of 4)"
    printf 'rpma, over TCP\t%s\n' "$(of 5)"
    printf 'TCP, pwrite, fdatasync, and an answer\t%s\n' "$(of 6)"
} >"$work/durable.tsv"
printf '| 4 KiB, until the sender knows that they are | us |\n|---|---|\n'
awk -F '\t' '{ printf $2 == "" ? "| **%s** | |\n" : "| %s | %s |\n", $1, $2 }' "$work/durable.tsv"
[ -z "$folder" ] || python3 "$here/bars.py" "$work/durable.tsv" "$folder/durable.svg" 'microseconds, 4 KiB, one at a time'
