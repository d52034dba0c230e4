#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run on the host: pushes records (test_records) into durable memory in the kernel lab's guest, over the soft device, kills
# the guest's QEMU with SIGKILL at a random moment, starts it again on the same images, and checks that all that was
# acknowledged is there.
#   power-cut.sh fsdax|disk TEST_RECORDS
#       fsdax: a file on the NVDIMM, mapped with DAX; disk: a file on the guest's disk, in its page cache
# RPMA_CUTS: how many (default 5); RPMA_SEED: repeats a run's choices. What QEMU was given by the guest survives in the
# host's memory: what the guest had only in its own caches does not, and that is what this can tell.
set -u
kind=$1
records=$(realpath "$2")
run=$(dirname "$(realpath "$0")")/../../utils/lab/run
cuts=${RPMA_CUTS:-5}
seed=${RPMA_SEED:-$((RANDOM * 32768 + RANDOM))}
RANDOM=$((seed % 32768))
case $kind in
    fsdax) file='$PMEM_DIR/ring' ;;
    disk) file=/var/tmp/ring ;;
    *) echo "power-cut: '$kind' is neither fsdax nor disk" >&2; exit 2 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
guest() { "$run" --pmem "$work/pmem" --disk "$work/disk" --pidfile "$work/pid" "$@"; }
noted() { tr -d '\r' <"$work/notes" | grep -E '^[0-9]+$' | tail -n 1; }

echo "seed $seed, $cuts cuts"
last=0
for ((cut = 1; cut <= cuts; cut++)); do
    rm -f "$work/pid"
    : >"$work/notes"
    # As long as it takes to start, and to be acknowledged something.
    guest --timeout 900 "RPMA_DEVICE=soft $records push $file $seed" >"$work/notes" 2>"$work/errors" &
    job=$!
    while kill -0 $job 2>/dev/null && [ -z "$(noted)" ]; do sleep 0.1; done
    delay_ms=$((RANDOM * 3000 / 32768))
    sleep "$((delay_ms / 1000)).$(printf '%03d' $((delay_ms % 1000)))"
    if ! kill -0 $job 2>/dev/null || [ ! -s "$work/pid" ]; then
        code=0
        wait $job || code=$?
        [ $code != 77 ] || { cat "$work/errors"; exit 77; }
        echo "cut $cut: the pusher ended by itself with $code:"
        cat "$work/notes" "$work/errors"
        exit 1
    fi
    kill -KILL "$(<"$work/pid")"
    wait $job
    # The last line may be half of a number, which is a smaller one: less is asked then, never more.
    note=$(noted)
    last=${note:-$last}
    if ! guest --timeout 900 "$records check $file $seed $last" >"$work/verdict" 2>&1; then
        cat "$work/verdict"
        echo "cut $cut, seed $seed: records were lost"
        exit 1
    fi
    echo "cut $cut after $delay_ms ms: $(tail -n 1 "$work/verdict")"
done
