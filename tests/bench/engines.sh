#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures what a process that sleeps serves with several engines (SOFTRDMA_ENGINES): 2 and 4 processes write to it over
# the loopback's TCP. The times are of processors, with the kernel's work. The instructions are those of the target's
# engines for one write, without the kernel's (callgrind); they do not depend on the machine. The last table tells what
# a machine with more processors could do.
#   engines.sh [--quick] PROGRAM        PROGRAM: build/bench/bench_engines
set -u
export RPMA_DEVICE=soft SOFTRDMA_SHM=off
rounds=5 small=8000000 large=80000 counted=20000
if [ "${1:-}" = --quick ]; then
    rounds=1 small=100000 large=2000 counted=2000
    shift
fi
program=$1
command -v valgrind >/dev/null || { echo 'valgrind is not installed (utils/install-dependencies.sh valgrind)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

measure() {  # measure ENGINES INITIATORS OPERATIONS BYTES DEPTH: the median round by operations a second
    local round
    for round in $(seq $rounds); do
        SOFTRDMA_ENGINES=$1 "$program" "${@:2}" >>"$work/rounds" || return 1
    done
    sort -g "$work/rounds" | awk '{ all[NR] = $0 } END { print all[int((NR + 1) / 2)] }'
    rm "$work/rounds"
}
printf '%d processors for all processes; of %d rounds the one with the median of operations a second\n' "$(nproc)" $rounds
printf '%-22s %7s %12s %14s %14s   %s\n' writes engines operations/s 'initiator, ns' 'engines, ns' 'share of each, %'
for kind in "8 128 $small" "65536 16 $large"; do
    read -r bytes depth operations <<<"$kind"
    for initiators in 2 4; do
        for engines in 1 2 4; do
            [ $engines -le $initiators ] || continue
            line=$(measure $engines $initiators $((operations / initiators)) "$bytes" "$depth") || exit 1
            echo "$bytes $initiators $engines $line" >>"$work/measured"
            read -r rate initiator target _ shares <<<"$line"
            printf '%-22s %7d %12.0f %14.0f %14.0f   %s\n' "$bytes bytes, $initiators peers" $engines "$rate" "$initiator" "$target" "$shares"
        done
    done
done

echo
for engines in 1 2; do
    line=$(SOFTRDMA_ENGINES=$engines valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file="$work/calls.%p" \
        "$program" 2 $counted 8 128 2>"$work/log") || { cat "$work/log" >&2; exit 1; }
    read -r _ _ _ process _ <<<"$line"
    # Thread 1 is the program's.
    awk -v engines=$engines -v operations=$((2 * counted)) -v kept="$work/counted" '
        /^(summary|totals):/ && FILENAME !~ /-0*1$/ { count[FILENAME] = $2 }
        END {
            for (thread in count) {
                all += count[thread]
                most = count[thread] > most ? count[thread] : most
            }
            printf "8 bytes, 2 peers, engines: %d. Instructions: %.0f, share of each in %%:", engines, all / operations
            for (thread in count) if (count[thread] > all / 100) printf " %.1f", 100 * count[thread] / all
            print ""
            print most >>kept
        }' "$work/calls.$process"-*
done
awk '{ most[NR] = $1 } END {
    printf "two engines beside one, in operations for the instructions of one processor: %.2f (bar: 1.7)\n", most[1] / most[2]
    exit most[1] < 1.7 * most[2]
}' "$work/counted"
missed=$?

echo
echo 'What follows for a target with so many processors, and an engine on each, in operations a second. Assumed are: for an'
echo 'engine the time of 4 peers and 1 engine; for a peer that of 4 peers and 4 engines, because peers poll, and so also count'
echo 'the time for which they wait; 4 peers for each engine, with processors of other hosts and equal work; no lock that two'
echo 'engines share, as the code has it; no limit of the network or of the memory; the work of the network interface elsewhere.'
echo 'On the right the same for 2 such peers only, which may leave one engine idle: two engines beside one.'
awk '
    $2 == 4 && $3 == 1 { target[$1] = $6 }
    $2 == 4 && $3 == 4 { initiator[$1] = $5 }
    function rate(engines, peers, bytes,    served, sent) {
        served = engines * 1e9 / target[bytes]
        sent = peers * 1e9 / initiator[bytes]
        return served < sent ? served : sent
    }
    END {
        processors = split("1 2 4 8 64", count, " ")
        printf "%-14s", "writes"
        for (i = 1; i <= processors; i++) printf " %11d", count[i]
        print "   2 peers"
        for (bytes in target) {
            printf "%-14s", bytes " bytes"
            for (i = 1; i <= processors; i++) printf " %11.0f", rate(count[i], 4 * count[i], bytes)
            printf "   %.2f\n", rate(2, 2, bytes) / rate(1, 2, bytes)
        }
    }' "$work/measured"
exit $missed
