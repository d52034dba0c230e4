# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced by the tests of this folder: finds Debian's librpma, which ours replaces. Ends the test as skipped when it is
# not installed.

debian_version=$(dpkg-query -W -f '${Version}' librpma-dev 2>/dev/null || true)
case $debian_version in
    1.[0-3].*) ;;
    *)
        echo "Debian's librpma-dev (1.0 to 1.3) is not installed, but '$debian_version': nothing to compare with"
        exit 77
        ;;
esac
debian_header=$(dpkg -L librpma-dev | grep '/librpma\.h$')
debian_library=$(dpkg -L librpma-dev | grep '/librpma\.so$')

# Prints the functions that a library exports, with their version nodes: NAME@@NODE, one a line, sorted.
exported() {
    nm --dynamic --defined-only --with-symbol-versions "$1" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort
}
