#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run in the kernel lab's guest: tests of the rpma command (tests/integration), in the folder that this is called from.
#   commands.sh BUILD-FOLDER STORE-FOLDER NAME...
# It prints one line a test, with the last output of a failed one. The tests repeat less often than on the host, because
# the guest is slow.
set -u
build=$(realpath "$1") stores=$(realpath "$2") integration=$(dirname "$(realpath "$0")")/../integration
shift 2
export RPMA_STORE_FOLDER RPMA_KILLS=5 RPMA_PUSHES=3
said=$(mktemp)
trap 'rm -f "$said"' EXIT
passed=0 failed=0
for name in "$@"; do
    begun=$SECONDS
    RPMA_STORE_FOLDER=$(mktemp -d -p "$stores") || exit 1
    if timeout --kill-after=5 600 bash "$integration/$name.sh" "$build/bin/rpma" "$build/tests/test_peer" >"$said" 2>&1; then
        passed=$((passed + 1))
        printf '%-20s ok after %d s: %s\n' "$name" $((SECONDS - begun)) "$(tail -n 1 "$said")"
    else
        failed=$((failed + 1))
        printf '%-20s FAILED after %d s\n' "$name" $((SECONDS - begun))
        { grep -m 1 '^FAILED' "$said"; tail -n 30 "$said"; } | sed 's/^/    /'
    fi
    rm -rf "$RPMA_STORE_FOLDER"
done
printf '%d passed, %d failed, 0 skipped\n' $passed $failed
[ $failed = 0 ]
