#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# records.sh TEST_RECORDS: tests what the program of the power cut finds when nothing is lost, when an acknowledged
# record is lost, and when one byte of a record is lost.
set -eu
program=$1
rm -f ring
records() {  # records LAST COUNT
    RPMA_DEVICE=soft "$program" ring 127.0.0.1 pages ring 0 1 "$@" >found
}
expect() { grep -qxF "$1" found || { echo "expected '$1', found:"; cat found; exit 1; }; }
loses() {  # loses LAST
    if records "$1" 1; then echo "a loss before $1 was not found"; cat found; exit 1; fi
}

records 0 100
expect 'ring 100'
records 100 1
expect 'ring: committed 100, acknowledged at least 100: all there'
expect 'ring 101'
loses 102
expect 'ring: committed 101, acknowledged at least 102: LOST'

# Record 90 is in slot 90 % 64; the slots have 4088 bytes each and follow the page of the committed number.
printf '\377\377' | dd of=ring conv=notrunc bs=1 seek=$((4096 + 90 % 64 * 4088 + 2000)) status=none
loses 101
expect 'ring: record 90 is not as it was written: number 90, checksum wrong'
expect 'ring: committed 101, acknowledged at least 101: LOST'
