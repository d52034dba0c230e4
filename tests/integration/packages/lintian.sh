#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's lintian finds no error in the packages below the current folder, which packages.sh has made.
set -eu
command -v lintian >/dev/null || { echo 'lintian is not installed (group soak of utils/install-dependencies.sh)'; exit 77; }
as_root=()
[ "$(id -u)" -ne 0 ] || as_root=(--allow-root)
lintian "${as_root[@]}" --fail-on error packages/*.deb
