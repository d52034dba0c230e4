#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Tests rpma check with a server that has librdmacm's rsockets on the soft device.
. "$(dirname "$0")/server.bash"

command -v rstream >/dev/null || { echo 'rstream is not installed (group compat of utils/install-dependencies.sh)'; exit 77; }
listens() { [ -n "$(ss -Hltn "sport = :$port")" ]; }
port=$(shuf -i 20000-31999 -n 1)
while listens; do port=$(shuf -i 20000-31999 -n 1); done
SOFTRDMA_RSOCKETS=librdmacm "$rpma" run rstream -p "$port" >server.out 2>server.err &
helpers+=($!)
for _ in $(seq 500); do
    ! listens || break
    sleep 0.02
done
bounded "$rpma" check "127.0.0.1:$port" >stdout 2>stderr || die "check: $?"
for line in '^speaks +rsockets$' '^version +1$' "^library +librdmacm's" '^soft +the soft device' '^verdict .* by RDMA$'; do
    grep -qE -- "$line" stdout || die "expected $line: $(cat stdout)"
done
! grep -q '^listed' stdout || die "librdmacm's rsockets are in no registry: $(cat stdout)"
