#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma run becomes the program, and reports as a shell does when it cannot.
. "$(dirname "$0")/server.bash"

bounded "$rpma" run true || die "run true"
bounded "$rpma" run -- true || die "run -- true"
[ "$(bounded "$rpma" run -- echo -- -n)" = '-- -n' ] || die "the program's arguments changed"
code=0
bounded "$rpma" run sh -c 'exit 42' || code=$?
[ $code -eq 42 ] || die "ended with $code, expected the program's 42"
[ "$(bounded "$rpma" run --psk keys sh -c 'echo "$RPMA_TLS"')" = "psk:$PWD/keys" ] || die "run --psk"
refused_with 2 'PROGRAM is required' "$rpma" run
refused_with 2 'PROGRAM is required' "$rpma" run --
refused_with 127 'cannot run absent-program: No such file' "$rpma" run absent-program
: >data
refused_with 126 'cannot run ./data: Permission denied' "$rpma" run ./data
refused_with 126 'cannot run .: ' "$rpma" run .
[ -z "$(bounded "$rpma" run true 2>&1)" ] || die "says something of a program that it reaches"

# A program with the privileges of its file's owner ignores the environment. A file system may give no such privileges,
# and only root can give a file to another owner.
as_nobody() { setpriv --reuid=65534 --clear-groups "$@"; }
chmod 711 .
install -m 4755 "$(command -v id)" owner
install -m 4755 "$rpma" privileged
cp owner others
! chown 65534 others 2>stderr || ! chmod 4755 others || findmnt -no OPTIONS -T . | grep -q nosuid || {
    bounded "$rpma" run ./others >stdout 2>stderr || die "run ./others"
    grep -q '^rpma run: ./others gets privileges of its own, ' stderr || die "does not say that nothing is preloaded: $(cat stderr)"
}
if [ "$(as_nobody ./owner -u 2>stderr)" = 0 ]; then
    RPMA_DEVICE=hardware as_nobody ./privileged devices >stdout 2>stderr || die "believes RPMA_DEVICE: $(cat stderr)"
    grep -q '^soft_lo' stdout || die "devices: $(cat stdout)"
    RPMA_DEVICE=hardware SOFTRDMA_FAULTS=drop=x as_nobody ./privileged status 127.0.0.1:1 >stdout 2>stderr &&
        die "nobody serves there"
    ! grep -qE 'RPMA_DEVICE|SOFTRDMA' stderr || die "believes the environment: $(cat stderr)"
fi
