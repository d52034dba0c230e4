# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced, by scripts that run in namespaces of their own.
# within_namespaces OPTION... -- ARGUMENT...: runs the script again, with these arguments, in those namespaces that the
# options of unshare(1) name; returns there. Where there are none, the script ends, and says that it tested nothing.
within_namespaces() {
    local options=()
    if [ -n "${RPMA_TEST_INSIDE:-}" ]; then
        unset RPMA_TEST_INSIDE
        return
    fi
    [ "$(id -u)" = 0 ] || options=(--map-root-user)
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    unshare "${options[@]}" true || { echo 'SKIPPED, nothing was tested: no namespaces here: run it as root'; exit 77; }
    RPMA_TEST_INSIDE=1 exec unshare "${options[@]}" bash "$0" "$@"
}
