#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Pulls run while pushes follow each other without a pause: every pull gives one whole content.
. "$(dirname "$0")/server.bash"

pushes=${RPMA_PUSHES:-10}
head -c 16M /dev/urandom >a
head -c 15000001 /dev/urandom >b
start_server store
push a

(
    for i in $(seq "$pushes"); do
        bounded "$rpma" push b "$address" && bounded "$rpma" push a "$address"
    done
) >pushes.out 2>pushes.err &
pusher=$!
helpers+=($pusher)
pulls=0
while kill -0 $pusher 2>/dev/null; do
    pulled a b
    pulls=$((pulls + 1))
done
wait $pusher || die "a push failed: $(cat pushes.err)"
[ ! -s pushes.err ] || die "a push complained: $(cat pushes.err)"
pulled a
[ $pulls -ge 2 ] || die "only $pulls pulls during $pushes pairs of pushes"
echo "$pulls pulls during $((2 * pushes)) pushes"
stop_server
