#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run as root inside the kernel lab's guest: runs Debian's rstream over the kernel's device that serves an address, with
# our librsocket in the place of librdmacm's rsockets at one end, and then at the other.
#   rsockets.sh BUILD-FOLDER ADDRESS
# Then ours finds that no program listens, and that its peer was killed, within a second, and a thread connects to itself.
# Over rxe datagrams go both ways too, /etc/rdma/rsocket/devices takes the device away, and peers speak TCP. It prints
# one line a run: which end is ours, what happened, ok or FAIL. It ends with 0 when all are ok.
set -u
build=$1 address=$2
ours=$(realpath "$build/lib/librsocket.so.1")
export RPMA_DEVICE=kernel RPMA_LOG=stderr:notice
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
port=7471 failed=0

# siw's listeners are in TCP too, rxe's are not: the connection manager knows both.
listening() { rdma resource show cm_id | grep -q "LISTEN.*:$port"; }

run() {  # run END "RSTREAM'S OPTIONS"
    local server code=0 preload_server=() preload_client=() options
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
    wait $server || code=$?
    verdict "$1" "$2" $code
}

verdict() {  # verdict END WHAT CODE
    printf '%-8s %-32s %s\n' "$1" "$2" "$([ "$3" = 0 ] && echo ok || echo "FAIL ($3)")"
    if [ "$3" != 0 ]; then
        failed=1
        tail -n 20 "$work/server" "$work/client"
    fi
    port=$((port + 1))
}

nobody_listens() {
    local code=0
    : >"$work/server"
    LD_PRELOAD=$ours timeout 20 rstream -T b -s "$address" -p $port >"$work/client" 2>&1
    grep -q 'rconnect: Connection refused' "$work/client" || code=1
    verdict client "nobody listens" $code
}

peer_is_killed() {
    local server client code=0
    rstream -T b -b "$address" -p $port -S 64 -I 1 -C 100000000 >"$work/server" 2>&1 &
    server=$!
    until listening; do
        kill -0 $server 2>/dev/null || break
        sleep 0.02
    done
    LD_PRELOAD=$ours timeout 30 rstream -T b -s "$address" -p $port -S 64 -I 1 -C 100000000 >"$work/client" 2>&1 &
    client=$!
    # Both ends.
    until [ "$(rdma resource show cm_id | grep -c "CONNECT .*:$port")" = 2 ]; do
        kill -0 $client 2>/dev/null || break
        sleep 0.02
    done
    { kill -KILL $server && wait $server; } 2>/dev/null
    wait $client
    grep -q 'Connection reset by peer' "$work/client" || code=1
    verdict client "its peer is killed" $code
}

# Only the thread that waits can continue the connection that it began.
one_thread() {
    local code=0
    : >"$work/server"
    "$build/tests/test_one_thread" "$address" 100 >"$work/client" 2>&1 || code=$?
    verdict both "in one thread" $code
}

in_udp() { [ -n "$(ss -Hlun "sport = :$port")" ]; }
sent_packets() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }

# A hundred datagrams go each way, with ours at both ends: librdmacm's client ends with ENOENT here. All but the few
# that the ends exchange by UDP, to find each other, go through the device.
datagrams() {
    local server sent code=0
    begin_server in_udp env LD_PRELOAD="$ours" udpong -b "$address" -p $port
    sent=$(sent_packets)
    LD_PRELOAD=$ours timeout 30 udpong -s "$address" -p $port -T e -C 100 >"$work/client" 2>&1 || code=$?
    grep -qE '^custom .* 200 ' "$work/client" || code=1
    echo "packets through the device: $(($(sent_packets) - sent))" >>"$work/client"
    [ $(($(sent_packets) - sent)) -ge 190 ] || code=1
    { kill $server && wait $server; } 2>/dev/null
    verdict both "datagrams" $code
}

in_tcp() { [ -n "$(ss -Hltn "sport = :$port")" ]; }
in_both() { in_tcp && listening; }

begin_server() {  # begin_server IS-THERE COMMAND...: it is, when IS-THERE says so
    local is_there=$1
    shift
    : >"$work/client"
    timeout 30 "$@" >"$work/server" 2>&1 &
    server=$!
    until $is_there || ! kill -0 $server 2>/dev/null; do sleep 0.02; done
}

# In the table the soft device serves the interface, and then a device that does not exist.
devices_table() {
    local server code=0
    mkdir -p /etc/rdma/rsocket
    echo 'net_rxe soft' >/etc/rdma/rsocket/devices
    begin_server in_tcp env RPMA_DEVICE=auto LD_PRELOAD="$ours" rstream -b "$address" -p $port
    in_tcp && ! listening || code=1
    { kill $server && wait $server; } 2>/dev/null
    verdict server "the table says soft" $code
    echo 'net_rxe rxe1' >/etc/rdma/rsocket/devices
    code=0
    RPMA_DEVICE=auto LD_PRELOAD=$ours timeout 30 rstream -b "$address" -p $port >"$work/server" 2>&1
    grep -q 'rlisten: Cannot assign requested address' "$work/server" || code=1
    verdict server "the table says rxe1" $code
    rm /etc/rdma/rsocket/devices
}

# A listener at the device's address is not in TCP, one at a wildcard address is, beside the device's. The kernel's
# connection manager finds no server in TCP.
peers_speak_tcp() {
    local server code=0 short=(-T v -S 64 -I 1 -C 1)
    begin_server listening env LD_PRELOAD="$ours" rstream -b "$address" -p $port
    timeout 20 rstream -T s -T b -s "$address" -p $port >"$work/client" 2>&1
    grep -q 'rconnect: Connection refused' "$work/client" || code=1
    { kill $server && wait $server; } 2>/dev/null
    verdict server "a client of TCP at the address" $code
    code=0
    begin_server in_both env RPMA_DEVICE=auto LD_PRELOAD="$ours" rstream -p $port "${short[@]}"
    timeout 20 rstream -s "$address" -p $port "${short[@]}" >"$work/client" 2>&1 || code=$?
    wait $server || code=$?
    verdict server "a client of RDMA at a wildcard" $code
    code=0
    begin_server in_tcp rstream -T s -b "$address" -p $port
    LD_PRELOAD=$ours timeout 20 rstream -T b -s "$address" -p $port >"$work/client" 2>&1
    grep -q 'rconnect: Connection refused' "$work/client" || code=1
    { kill $server && wait $server; } 2>/dev/null
    verdict client "a server of TCP" $code
}

for end in server client; do
    run $end "-T b -T v -S 3000 -I 5 -C 20"
    run $end "-T n -T v -S 65536 -I 3 -C 10"
    run $end "-T b -T v -S 1048576 -I 1 -C 3"
done
nobody_listens
peer_is_killed
one_thread
if [ "$address" = "${RXE_IP:-}" ]; then
    datagrams
    devices_table
    peers_speak_tcp
fi
exit $failed
