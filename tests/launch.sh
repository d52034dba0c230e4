#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs one program: as it is, or under Valgrind's memcheck when RPMA_VALGRIND=1, where any error and any definite or
# indirect leak is exit code 99. Valgrind runs one thread at a time. With the fair scheduler a thread that looks for
# something in a loop does not keep the device's thread from running for seconds.
set -eu
if [ "${RPMA_VALGRIND:-0}" != 1 ]; then
    exec "$@"
fi
exec valgrind --fair-sched=try --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite,indirect \
    --show-leak-kinds=definite,indirect --num-callers=30 "$@"
