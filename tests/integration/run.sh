#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma run becomes the program, and says as a shell does that it cannot.
. "$(dirname "$0")/server.bash"

bounded "$rpma" run true || die "run true"
bounded "$rpma" run -- true || die "run -- true"
[ "$(bounded "$rpma" run -- echo -- -n)" = '-- -n' ] || die "the program's arguments changed"
code=0
bounded "$rpma" run sh -c 'exit 42' || code=$?
[ $code -eq 42 ] || die "ended with $code, expected the program's 42"
refused_with 2 'PROGRAM is required' "$rpma" run
refused_with 2 'PROGRAM is required' "$rpma" run --
refused_with 127 'cannot run absent-program: No such file' "$rpma" run absent-program
: >data
refused_with 126 'cannot run ./data: Permission denied' "$rpma" run ./data
refused_with 126 'cannot run .: ' "$rpma" run .
