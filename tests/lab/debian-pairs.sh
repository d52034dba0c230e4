#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run in the kernel lab's guest: Debian's librpma0 and ours at the two ends of a connection, over each of the kernel's
# devices: tests/compat/write_flush_read, one program for both, server and client as processes.
#   debian-pairs.sh LIBRARY-FOLDER
# One line a pair. Ends with 0 when all are ok, 77 without Debian's librpma-dev.
set -u
ours=$(realpath "$1")
cd "$(dirname "$0")/../compat" || exit 1
# shellcheck source=../compat/debian.sh
. ./debian.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -std=c17 write_flush_read.c -o "$work/program" "$debian_library" || exit 1

# end LIBRARY ARGUMENT...: one end, on Debian's library or ours
end() {
    local folder=${debian_library%/*}
    [ "$1" = debian ] || folder=$ours
    RPMA_DEVICE=kernel LD_LIBRARY_PATH=$folder timeout --kill-after=5 100 "$work/program" "$folder/librpma.so.0" "${@:2}"
}

failed=0
pair() {  # pair DEVICE ADDRESS SERVER CLIENT
    local verdict=ok server port
    rm -f "$work/port"
    mkfifo "$work/port"
    RPMA_TEST_ADDRESS=$2 end "$3" server >"$work/port" 2>"$work/server" &
    server=$!
    # It ends the port with a zero byte.
    IFS= read -r -d '' port <"$work/port"
    RPMA_TEST_ADDRESS=$2 end "$4" client "$port" 2>"$work/client" || verdict=FAIL
    [ $verdict = ok ] || kill $server 2>/dev/null
    wait $server || verdict=FAIL
    printf '%-4s server %-7s client %-7s %s\n' "$1" "$3" "$4" $verdict
    if [ $verdict != ok ]; then
        failed=1
        sed 's/^/    /' "$work/server" "$work/client"
    fi
}
for device in rxe siw; do
    address=$RXE_IP
    [ $device = rxe ] || address=$SIW_IP
    for server in debian ours; do
        for client in debian ours; do
            pair $device "$address" $server $client
        done
    done
done
exit $failed
