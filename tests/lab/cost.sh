#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run in the kernel lab's guest: measures a write and its flush to persistence with our librpma and with Debian's
# librpma0, over each of the kernel's devices. callgrind counts the instructions in user space of the posts and of
# taking the completion; ours may need at most as many. The time, with the wait, is that of the emulated processor and
# is only reported.
#   cost.sh BUILD [OPERATIONS]
set -u
operations=${2:-100}
. "$(dirname "$0")/../bench/librpma0.bash"
declare -A address=([rxe]=$RXE_IP [siw]=$SIW_IP)
port=7300

# cost DEVICE LIBRARY OPERATIONS small|large [COMMAND...]: prints the microseconds of an operation of the program, which
# COMMAND runs
cost() {
    port=$((port + 1))
    RPMA_DEVICE=kernel LD_LIBRARY_PATH=${folder[$2]} timeout --kill-after=5 "${RPMA_TEST_TIMEOUT:-300}" "${@:5}" \
        "$build/tests/test_cost" "${address[$1]}" $port "$3" "$4" 2>"$work/log" || { cat "$work/log" >&2; return 1; }
}
count() {  # count DEVICE LIBRARY: prints the instructions of a small operation
    cost "$1" "$2" "$operations" small "${callgrind[@]}" >"$work/time" && counted "$operations"
}

failed=0
printf '%-6s %14s %14s %14s\n' device librpma0 ours 'ours - theirs'
for device in rxe siw; do
    theirs=$(count $device librpma0) && ours=$(count $device ours) || exit 1
    awk -v theirs="$theirs" -v ours="$ours" -v device=$device 'BEGIN {
        printf "%-6s %14.1f %14.1f %14.1f   instructions (bar: at most 0)\n", device, theirs, ours, ours - theirs
        exit ours <= 0 || theirs <= 0 || ours > theirs }' || failed=1
done
# timed DEVICE small|large OPERATIONS WHAT: prints the median of five times of each library, taken in turn
timed() {
    local library
    rm -f "$work"/times-*
    for _ in 1 2 3 4 5; do
        for library in librpma0 ours; do
            cost "$1" $library "$3" "$2" >>"$work/times-$library" || exit 1
        done
    done
    theirs=$(sort -g "$work/times-librpma0" | sed -n 3p) ours=$(sort -g "$work/times-ours" | sed -n 3p)
    printf '%-6s %14s %14s %14s   microseconds for %s\n' "$1" "$theirs" "$ours" '' "$4"
}
for device in rxe siw; do
    timed $device small 1000 '8 bytes'
    timed $device large 50 '1 MiB'
done
exit $failed
