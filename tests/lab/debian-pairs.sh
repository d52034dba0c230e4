#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run in the kernel lab's guest: Debian's librpma0 and ours are at the two ends of a connection, over each of the
# kernel's devices. Server and client are processes of one program for both libraries: tests/compat/write_flush_read,
# and the example of messages whose server receives from a shared queue.
#   debian-pairs.sh BUILD-FOLDER
# It prints one line a pair. It ends with 0 when all are ok, with 77 without Debian's librpma-dev.
set -u
build=$(realpath "$1")
cd "$(dirname "$0")/../compat" || exit 1
# shellcheck source=../compat/debian.sh
. ./debian.sh
# shellcheck source=../examples/ports.sh
. ../examples/ports.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -std=c17 write_flush_read.c -o "$work/program" "$debian_library" || exit 1
messages=$build/examples/08s-messages-ping-pong-srq

folder() { if [ "$1" = debian ]; then echo "${debian_library%/*}"; else echo "$build/lib"; fi; }
end() {  # end LIBRARY PROGRAM ARGUMENT...: one end, on Debian's library or ours
    RPMA_DEVICE=kernel LD_LIBRARY_PATH=$(folder "$1") timeout --kill-after=5 100 "${@:2}"
}

# The server is ready when it has printed: for writes, its port, followed by a zero byte; for messages, that it listens.
serve() {  # serve KIND LIBRARY ADDRESS
    case $1 in
        writes) end "$2" "$work/program" "$(folder "$2")/librpma.so.0" server ;;
        messages) end "$2" "$messages/server" "$3" "$port" | stdbuf --output=0 tr '\n' '\0' ;;
    esac
}
call() {  # call KIND LIBRARY ADDRESS SAID
    case $1 in
        writes) end "$2" "$work/program" "$(folder "$2")/librpma.so.0" client "$4" ;;
        messages) end "$2" "$messages/client" "$3" "$port" ;;
    esac
}

for library in debian ours; do
    LD_LIBRARY_PATH=$(folder $library) ldd "$messages/server" | grep -qF "=> $(folder $library)/librpma.so.0" ||
        { echo "debian-pairs: $messages/server does not take librpma from $(folder $library)"; exit 1; }
done

failed=0
pair() {  # pair KIND DEVICE ADDRESS SERVER CLIENT
    local verdict=ok server port said
    port=$(free_port)
    export RPMA_TEST_ADDRESS=$3
    rm -f "$work/said"
    mkfifo "$work/said"
    serve "$1" "$4" "$3" >"$work/said" 2>"$work/server" &
    server=$!
    exec {output}<"$work/said"
    IFS= read -r -d '' said <&"$output"
    call "$1" "$5" "$3" "$said" >"$work/client" 2>&1 || verdict=FAIL
    [ $verdict = ok ] || kill $server 2>/dev/null
    wait $server || verdict=FAIL
    exec {output}<&-
    printf '%-4s %-8s server %-7s client %-7s %s\n' "$2" "$1" "$4" "$5" $verdict
    if [ $verdict != ok ]; then
        failed=1
        sed 's/^/    /' "$work/server" "$work/client"
    fi
}
set -o pipefail
for device in rxe siw; do
    address=$RXE_IP
    [ $device = rxe ] || address=$SIW_IP
    for kind in writes messages; do
        for server in debian ours; do
            for client in debian ours; do
                pair $kind $device "$address" $server $client
            done
        done
    done
done
exit $failed
