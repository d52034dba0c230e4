#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# RPMA_LOG has the effect on the command that it has on other programs of librpma, and a line at the level info says which
# link a connection has, and why.
. "$(dirname "$0")/server.bash"

# The environment of the whole suite may keep connections on TCP.
unset SOFTRDMA_SHM

start_server store

# logged VALUE PATTERN: with this RPMA_LOG a line of standard error has the pattern.
logged() {
    RPMA_LOG=$1 bounded "$rpma" status "$address" >stdout 2>stderr || die "status with RPMA_LOG=$1"
    grep -q "$2" stderr || die "RPMA_LOG=$1: expected a line with \"$2\""
}

logged stderr:info "connection with $address: queue pair [0-9]*, link memory"
logged stderr:debug "connection with $address: queue pair [0-9]* has ended"
SOFTRDMA_SHM=off logged stderr:info "connection with $address, which is on this host, stays on TCP: SOFTRDMA_SHM says so"
SOFTRDMA_SHM=off logged stderr:info "connection with $address: queue pair [0-9]*, link tcp"

RPMA_LOG=file:log:info bounded "$rpma" status "$address" >stdout 2>stderr || die "status with a file"
[ ! -s stderr ] || die "lines for a file on standard error"
grep -q "link memory" log || die "no line in the file: $(cat log)"

for value in stderr none; do
    RPMA_LOG=$value bounded "$rpma" status "$address" >stdout 2>stderr || die "status with RPMA_LOG=$value"
    [ ! -s stderr ] || die "a line with RPMA_LOG=$value"
done
