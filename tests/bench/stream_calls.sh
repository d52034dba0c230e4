#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Counts the system calls of rsockets over TCP that exchange messages and wait for each: at most three a message, and none for an
# eventfd. A wait in a repoll sleeps without other system calls before and after it (the engine's clock counts there).
# The calls at the start and the end of a process are in a short exchange too, and are subtracted.
#   stream_calls.sh PROGRAM
set -eu
program=$(realpath "$1")
strace -o /dev/null true 2>/dev/null || { echo 'skipped: strace is not installed, or may not trace'; exit 77; }
export RPMA_DEVICE=soft SOFTRDMA_SHM=off
few=200 many=2200

calls() {  # calls KIND TRIPS NAMES: how many calls of these names
    strace -f -c -U name,calls -e trace="$3" -o summary "$program" rsocket "$1" 64 "$2" 0 >/dev/null
    awk '$1 == "total" { print $2 }' summary
}
per_message() {  # per_message KIND NAMES: thousandths of a call
    local more
    more=$(($(calls "$1" $many "$2") - $(calls "$1" $few "$2")))
    echo $((more * 1000 / (2 * (many - few))))
}

# The engine's clock, of a millisecond, and its occasional wakeups do not count either: under strace, and beside other
# tests, a message may take as long. A queue that is armed has a write and a read for each message.
for try in 1 2 3 4; do
    all=$(per_message round-trip '!epoll_wait,restart_syscall')
    told=$(per_message round-trip 'read,write,preadv2,readv,writev')
    in_set=$(per_message round-trip-set 'epoll_wait')
    echo "$all thousandths of a call a message, $told of them for eventfds; $in_set of epoll_wait beside a wait in a repoll"
    if [ "$all" -le 3300 ] && [ "$told" -le 250 ] && [ "$in_set" -le 1200 ]; then exit 0; fi
    echo "expected at most 3 calls a message, poll, recvfrom, sendto, and none to tell of it, nor to look into a repoll's set"
    echo "that poll has looked into (attempt $try)"
done
exit 1
