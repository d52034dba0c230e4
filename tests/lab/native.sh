#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run in the kernel lab's guest: tests flush and atomic write as rxe's own operations, which need the rdma-core of a
# later Debian. It also tests that an end without that, or with Debian's librpma0, is served as before.
#   native.sh FOLDER BUILD      of utils/lab/newer-rdma; of cmake
# It prints one line a pair, then the results of librpma's tests of such operations. It ends with 0 when all are ok.
set -u
newer=$1 build=$(realpath "$2") here=$(dirname "$(realpath "$0")")
system=$(realpath "$(/sbin/ldconfig -p | awk '/libc\.so\.6 .*x86-64/ { print $NF; exit }')")
system=${system%/*}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# with newer|older COMMAND...: runs the command on the same machine with these libraries
with() {
    if [ "$1" = newer ]; then
        # shellcheck disable=SC2016  # for the shell inside
        unshare --mount bash -c 'mount -t overlay -o "lowerdir=$0$1:$1" overlay "$1" && shift && exec "$@"' "$newer" "$system" "${@:2}"
    else
        "${@:2}"
    fi
}
# end newer|older ours|debian ARGUMENT...: runs one end with this librpma
end() {
    local folder=$build/lib
    [ "$2" = ours ] || folder=$system
    with "$1" env RPMA_DEVICE=kernel "LD_LIBRARY_PATH=$folder" timeout --kill-after=5 100 "$build/tests/test_native" "${@:3}"
}

failed=0
pair() {  # pair SERVER-LIBRARIES LIBRPMA MEMORY CLIENT-LIBRARIES LIBRPMA NATIVE-OPERATION...
    local verdict=ok server port=0
    # shellcheck disable=SC2206  # MEMORY may be two words
    local memory=($3)
    rm -f "$work/port"
    mkfifo "$work/port"
    end "$1" "$2" serve "$RXE_IP" "${memory[@]}" >"$work/port" 2>"$work/server" &
    server=$!
    read -r port <"$work/port"
    end "$4" "$5" push "$RXE_IP" "$port" "${@:6}" 2>"$work/client" || verdict=FAIL
    [ $verdict = ok ] || kill $server 2>/dev/null
    wait $server || verdict=FAIL
    printf 'server %-5s %-6s %-20s client %-5s %-6s native: %-20s %s\n' "${@:1:5}" "${*:6}" $verdict
    if [ $verdict != ok ]; then
        failed=1
        sed 's/^/    /' "$work/server" "$work/client"
    fi
}
pair newer ours "$DAX_DEVICE" newer ours flush atomic_write
# The driver of rdma-core 44 has atomic write.
pair newer ours "$DAX_DEVICE" older ours atomic_write
pair older ours "$DAX_DEVICE" newer ours
# rxe registers only persistent memory for flush to persistence.
pair newer ours memory newer ours
# librpma 1.3 flushes natively and does not say so. It does not let peers read memory that is registered for flush.
pair newer ours "$DAX_DEVICE" newer debian flush atomic_write
pair newer debian "$DAX_DEVICE readable" newer ours
# librpma 1.2 has no native flush.
pair newer ours "$DAX_DEVICE" older debian
pair older debian "$DAX_DEVICE" newer ours

# Native operations are posted together with others.
cd "$build" || exit 1
with newer "$here/programs.sh" "$RXE_IP" tests/test_api_post || failed=1
exit $failed
