#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# librpma0_preload.sh PRELOAD LIBRARY C-COMPILER: runs write_flush_read with Debian's librpma itself, which finds the
# soft device by the names of libibverbs and librdmacm. The other end has our LIBRARY, in either role.
set -eu
preload=$1
ours=${2%/*}
compiler=$3
cd "$(dirname "$0")"
. ./debian.sh
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT

"$compiler" -std=c17 -Wall -Wextra -Werror write_flush_read.c -o "$work/program" "$debian_library"

# run WHOSE [ROLE...]: the program itself checks that it runs with this librpma.
run() {
    whose=$1
    shift
    case $whose in
        debian) exec timeout 50 env -u LD_LIBRARY_PATH LD_PRELOAD="$preload" "$work/program" "$debian_library" "$@" ;;
        ours) exec timeout 50 env RPMA_DEVICE=soft LD_LIBRARY_PATH="$ours" "$work/program" "$ours/librpma.so.0" "$@" ;;
    esac
}

(run debian)
for pair in 'debian ours' 'ours debian'; do
    read -r serves asks <<<"$pair"
    echo "the server with $serves, the client with $asks:"
    mkfifo "$work/port.$serves"
    run "$serves" server >"$work/port.$serves" &
    server=$!
    port=$(head -c 6 "$work/port.$serves" | tr -d '\0')
    (run "$asks" client "$port")
    wait "$server"
    server=
done
