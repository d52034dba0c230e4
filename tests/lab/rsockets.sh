#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run as root inside the kernel lab's guest: Debian's rstream over the kernel's device that serves an address, with our
# librsocket in the place of librdmacm's rsockets at one end, and then at the other.
#   rsockets.sh BUILD-FOLDER ADDRESS
# One line a run: whose end is ours, which transfers, ok or FAIL. Ends with 0 when all are ok.
set -u
build=$1 address=$2
ours=$(realpath "$build/lib/librsocket.so.1")
export RPMA_DEVICE=kernel RPMA_LOG=stderr:notice
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
port=7471 failed=0

# siw has its listeners in TCP too, rxe has not: the connection manager knows of both.
listening() { rdma resource show cm_id | grep -q "LISTEN.*:$port"; }

run() {  # run END "RSTREAM'S OPTIONS"
    local server client code=0 preload_server=() preload_client=() options
    read -r -a options <<<"$2"
    case $1 in
        server) preload_server=("LD_PRELOAD=$ours") ;;
        client) preload_client=("LD_PRELOAD=$ours") ;;
    esac
    timeout 60 env "${preload_server[@]}" rstream -b "$address" -p $port "${options[@]}" >"$work/server" 2>&1 &
    server=$!
    until listening; do
        kill -0 $server 2>/dev/null || break
        sleep 0.02
    done
    timeout 60 env "${preload_client[@]}" rstream -s "$address" -p $port "${options[@]}" >"$work/client" 2>&1 || code=$?
    client=$code
    wait $server || code=$?
    printf '%-8s %-28s %s\n' "$1" "$2" "$([ $code = 0 ] && echo ok || echo "FAIL (client $client, $code)")"
    if [ $code != 0 ]; then
        failed=1
        tail -n 20 "$work/server" "$work/client"
    fi
    port=$((port + 1))
}

for end in server client; do
    run $end "-T b -T v -S 3000 -I 5 -C 20"
    run $end "-T n -T v -S 65536 -I 3 -C 10"
    run $end "-T b -T v -S 1048576 -I 1 -C 3"
done
exit $failed
