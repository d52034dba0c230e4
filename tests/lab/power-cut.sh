#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run on the host: in the kernel lab's guest, clients push records (test_records) into durable memory of five kinds at
# once; at a random moment SIGKILL ends QEMU, and with it the cache of the guest's disk. The guest is started again on
# the same images: every acknowledged record of each kind has to be there before the clients continue.
#   power-cut.sh TEST_RECORDS                  RPMA_CUTS: how many (default 5)
#   power-cut.sh TEST_RECORDS msync LIBRARY    the page cache only, with LIBRARY (lying_msync) preloaded
#   power-cut.sh TEST_RECORDS flush            the page cache only, and a kernel that does not flush its disk
# With a fault the test passes when records are lost, within three cuts. RPMA_SEED repeats the choices.
set -u
records=$(realpath "$1")
fault=${2:-}
run=$(dirname "$(realpath "$0")")/../../utils/lab/run
seed=${RPMA_SEED:-$((RANDOM * 32768 + RANDOM))}
RANDOM=$((seed % 32768))

# Each has the arguments of test_records before the seed; the guest sets the variables. On devdax each has its own 2 MiB.
# shellcheck disable=SC2016
declare -A ring_of=(
    [soft-fsdax]='127.0.0.1 dax $PMEM_DIR/ring 0'
    [soft-devdax]='127.0.0.1 dax $DAX_DEVICE 0'
    [soft-pages]='127.0.0.1 pages /var/tmp/ring 0'
    [rxe-devdax]='$RXE_IP dax $DAX_DEVICE 2097152'
    [siw-devdax]='$SIW_IP dax $DAX_DEVICE 4194304'
)
kinds=(soft-fsdax soft-devdax soft-pages rxe-devdax siw-devdax)
cuts=${RPMA_CUTS:-5} before='' preload=''
[ -z "$fault" ] || { kinds=(soft-pages) cuts=3; }
case $fault in
    '') ;;
    msync) preload="LD_PRELOAD=$(realpath "$3")" ;;
    flush) before='echo write through >/sys/block/vda/queue/write_cache' ;;
    *) echo "power-cut: no fault '$fault'" >&2; exit 2 ;;
esac
declare -A last
for kind in "${kinds[@]}"; do
    last[$kind]=0
done

work=$(mktemp -d)
job=
end_guest() {
    [ ! -s "$work/pid" ] || kill -KILL "$(<"$work/pid")"
    wait $job
    rm -f "$work/pid"
} 2>/dev/null
trap 'end_guest; rm -rf "$work"' EXIT
trap 'exit 143' TERM INT

# start [COUNT]: starts a guest in which each kind prints what it has, and then pushes; the output goes to $work/notes.
start() {
    local i kind device commands=$before
    for i in "${!kinds[@]}"; do
        kind=${kinds[i]} device=kernel
        [[ $kind != soft-* ]] || device=soft
        commands+="
RPMA_DEVICE=$device $preload $records $kind ${ring_of[$kind]} $((seed + i)) ${last[$kind]} $* &"
    done
    for kind in "${kinds[@]}"; do
        commands+='
wait -n || exit'
    done
    : >"$work/notes"
    "$run" --timeout 900 --pmem "$work/pmem" --disk "$work/disk" --pidfile "$work/pid" "$commands" \
        >"$work/notes" 2>"$work/errors" &
    job=$!
}
noted() { tr -d '\r' <"$work/notes" | sed -n "s/^$1 \([0-9][0-9]*\)$/\1/p" | sort -n | tail -n 1; }  # noted KIND
pushed() {  # succeeds when each kind has an acknowledged record since the start
    awk -v kinds=${#kinds[@]} '$2 ~ /^[0-9]/ && !seen[$1]++ { kinds-- } END { exit kinds > 0 }' "$work/notes"
}
found() { tr -d '\r' <"$work/notes" | grep '^[a-z-]*: '; }

# Prints why a guest ended with an error, and ends the test: with success when a fault had to lose records.
explain() {  # explain CODE CUT
    if [ "$1" = 77 ]; then
        cat "$work/errors"
        exit 77
    fi
    found
    if grep -q ': LOST' "$work/notes"; then
        echo "cut $2 of seed $seed: records were lost"
        [ -z "$fault" ] || { echo "as they must be with the fault '$fault'"; exit 0; }
        exit 1
    fi
    echo "the start after cut $2 of seed $seed ended with $1:"
    tail -n 40 "$work/notes" "$work/errors"
    exit 1
}

echo "seed $seed, $cuts cuts of ${kinds[*]}${fault:+, with the fault $fault}"
for ((cut = 1; cut <= cuts; cut++)); do
    start
    # The random delay begins when each kind pushes.
    while kill -0 $job 2>/dev/null && ! pushed; do sleep 0.5; done
    delay_ms=$((RANDOM * 3000 / 32768))
    sleep "$((delay_ms / 1000)).$(printf '%03d' $((delay_ms % 1000)))"
    if ! kill -0 $job 2>/dev/null; then
        code=0
        wait $job || code=$?
        explain $code $((cut - 1))
    fi
    end_guest
    line=
    for kind in "${kinds[@]}"; do
        # The last line may be the beginning of a number, which is smaller: the test then requires fewer records, never
        # more.
        note=$(noted "$kind")
        [ "${note:-0}" -le "${last[$kind]}" ] || last[$kind]=$note
        line+=", $kind ${last[$kind]}"
    done
    echo "cut $cut, $delay_ms ms after all pushed; acknowledged${line#,}"
done
start 0
code=0
wait $job || code=$?
[ $code = 0 ] || explain $code $cuts
found
[ -z "$fault" ] || { echo "no record was lost in $cuts cuts with the fault '$fault': this test can tell nothing"; exit 1; }
