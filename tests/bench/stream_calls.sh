#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The system calls of rsockets that exchange messages and wait for each: at most three a message, none for an eventfd. What
# a process begins and ends with is in a short exchange too, and does not count.
#   stream_calls.sh PROGRAM
set -eu
program=$(realpath "$1")
strace -o /dev/null true 2>/dev/null || { echo 'skipped: strace is not installed, or may not trace'; exit 77; }
export RPMA_DEVICE=soft
few=200 many=2200

calls() {  # calls TRIPS NAMES: how many calls of these names
    strace -f -c -U name,calls -e trace="$2" -o summary "$program" rsocket round-trip 64 "$1" 0 >/dev/null
    awk '$1 == "total" { print $2 }' summary
}
per_message() {  # per_message NAMES: thousandths of a call
    local more
    more=$(($(calls $many "$1") - $(calls $few "$1")))
    echo $((more * 1000 / (2 * (many - few))))
}

# The engine's clock, of a millisecond, does not count either, nor that it is woken now and then: under strace, and
# beside other tests, a message may take as long. A queue that is armed has a write and a read for each message.
for try in 1 2 3 4; do
    all=$(per_message '!epoll_wait,restart_syscall')
    told=$(per_message 'read,write,preadv2,readv,writev')
    echo "$all thousandths of a call a message, $told of them for eventfds"
    if [ "$all" -le 3300 ] && [ "$told" -le 250 ]; then exit 0; fi
    echo "expected at most 3 calls a message, poll, recvfrom, sendto, and none to tell of it (attempt $try)"
done
exit 1
