#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run in the kernel lab's guest: runs test programs over the kernel's device that serves an address; with
# RPMA_DEVICE=soft in the environment, over the soft device.
#   programs.sh ADDRESS PROGRAM...      a PROGRAM may be followed by arguments, in one word with it
# A program's output is printed when one of its tests failed. The last line is `N passed, N failed, N skipped`, counting
# tests; a program that does not end by its tests counts as one failed test.
set -u
address=$1
shift
passed=0 failed=0 skipped=0
said=$(mktemp)
trap 'rm -f "$said" "$said.part"' EXIT
# Counts the tests with this result of cmocka.
count() { sed -n "s/^\[ *$1 *\] \([a-z_0-9]*\)$/\1/p" "$said" | sort -u | wc -l; }

for program in "$@"; do
    code=0 broken=0 after='' begun=$SECONDS
    read -r -a command <<<"$program"
    : >"$said"
    while :; do
        CONFORMANCE_AFTER=$after RPMA_DEVICE=${RPMA_DEVICE:-kernel} RPMA_TEST_ADDRESS=$address \
            timeout --kill-after=5 "${RPMA_TEST_TIMEOUT:-300}" stdbuf --output=L "${command[@]}" >"$said.part" 2>&1 || code=$?
        cat "$said.part" >>"$said"
        grep -q '^\[==========\] [0-9]* test(s) run' "$said.part" && break
        # A test ended the program. The conformance suite continues after that test.
        code=${code/#0/1} broken=$((broken + 1))
        last=$(sed -n 's/^\[ RUN *\] //p' "$said.part" | tail -n 1)
        [[ ${command[0]} == *test_conformance && -n $last && $last != "$after" ]] || break
        after=$last
    done
    bad=$(($(count FAILED) + $(count ERROR) + broken))
    printf '%-28s exit code %d after %d s\n' "${command[0]##*/}" "$code" $((SECONDS - begun))
    # Prints the kernel's own errors, after which a device may not work any more. A slow guest may lose its processor
    # for a while: that is no error.
    dmesg --read-clear | grep -m 1 -A 12 'BUG: kernel\|BUG: unable\|Oops' | sed 's/^/    kernel: /'
    passed=$((passed + $(count OK)))
    skipped=$((skipped + $(count SKIPPED)))
    failed=$((failed + bad))
    if [ $code = 0 ]; then
        sed -n 's/^SKIPPED: /    &/p' "$said"
    else
        sed 's/^/    /' "$said"
    fi
done
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed = 0 ]
