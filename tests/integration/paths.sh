#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Connections of MPTCP between two network namespaces with two networks: each network fails and comes back in turn, in
# one of three ways, while a program writes, flushes and reads, a stream is echoed and a push runs. No operation fails, no
# byte differs. Only the first form runs by default.
#
#     paths.sh RPMA TEST_PEER SOCKET_END PATHS                    a few failures
#     paths.sh RPMA TEST_PEER SOCKET_END PATHS FAILURES SEED      so many of each connection, in an order by the seed
#     paths.sh RPMA TEST_PEER SOCKET_END PATHS silence            both networks fail: takes some minutes
#     paths.sh RPMA TEST_PEER SOCKET_END PATHS push MIB           a push of so much, while one network and then the other fails
#     paths.sh RPMA TEST_PEER SOCKET_END PATHS bond FAILURES      prints the pauses of so many failures of each kind, with
#                                                                 MPTCP and with TCP over a bond of the two networks
. "$(dirname "$0")/../namespaces.bash"
within_namespaces --net -- "$@"
. "$(dirname "$0")/server.bash"
. "$(dirname "$0")/ends.bash"
paths=$4
failures=${5:-}
seed=${6:-}
RANDOM=${seed:-1}
export SOFTRDMA_MPTCP=on

# The server's namespace; this is the client's. A network N has the addresses 10.77.N.1 here and 10.77.N.2 there.
another_host
helpers+=("$other")
at_server=("${there[@]}")
for number in 1 2; do
    ip link add near$number address 02:00:00:00:0$number:01 type veth peer name far$number \
        address 02:00:00:00:0$number:02 netns "$other" ||
        { echo 'SKIPPED, nothing was tested: no pairs of veth here'; exit 77; }
    ip address add 10.77.$number.1/24 dev near$number
    "${at_server[@]}" ip address add 10.77.$number.2/24 dev far$number
    ip link set near$number up
    "${at_server[@]}" ip link set far$number up
done
ip link set lo up
"${at_server[@]}" ip link set lo up
"${at_server[@]}" ip mptcp endpoint add 10.77.2.2 dev far2 signal && ip mptcp limits set add_addr_accepted 4 subflows 4 &&
    "${at_server[@]}" ip mptcp limits set add_addr_accepted 4 subflows 4 ||
    { echo 'SKIPPED, nothing was tested: no MPTCP here'; exit 77; }

# fail NUMBER WAY and mend NUMBER WAY: a network. Packets to a neighbour's wrong address are dropped.
fail() {
    case $2 in
    link) ip link set near$1 down ;;
    packets)
        ip neighbour replace 10.77.$1.2 lladdr 02:00:00:00:00:99 dev near$1 nud permanent
        "${at_server[@]}" ip neighbour replace 10.77.$1.1 lladdr 02:00:00:00:00:99 dev far$1 nud permanent
        ;;
    address) ip address delete 10.77.$1.1/24 dev near$1 ;;
    loss)  # without a message to anyone, also below a bond; the kernel has to have netem
        tc qdisc add dev near$1 root netem loss 100%
        "${at_server[@]}" tc qdisc add dev far$1 root netem loss 100%
        ;;
    esac
}
mend() {
    case $2 in
    link) ip link set near$1 up ;;
    packets)
        ip neighbour replace 10.77.$1.2 lladdr 02:00:00:00:0$1:02 dev near$1 nud permanent
        "${at_server[@]}" ip neighbour replace 10.77.$1.1 lladdr 02:00:00:00:0$1:01 dev far$1 nud permanent
        ;;
    address) ip address add 10.77.$1.1/24 dev near$1 ;;
    loss)
        tc qdisc delete dev near$1 root
        "${at_server[@]}" tc qdisc delete dev far$1 root
        ;;
    esac
}

# start_client KIND PORT: a client that does as `tell` says, which sets answer.
start_client() {
    rm -f commands answers
    mkfifo commands answers
    SOFTRDMA_MPTCP=$here_is "$paths" "$1" 10.77.1.2 "$2" <commands >answers 2>stderr &
    helpers+=($!)
    exec {orders}>commands {told}<answers
}
tell() {
    echo "$*" >&$orders
    read -t 240 -r -u $told answer || die "$*: no answer"
}
more() {
    tell more 50
    [[ $answer = 'done 50 '* ]] || die "expected 50 operations: $answer"
    [ "${answer##* }" -le $longest ] || longest=${answer##* }
}

# start_connection KIND: a server there, and a client of it.
start_connection() {
    local server=("$paths" serve 10.77.1.2)
    [ "$1" = write ] || server=("$end_program" echo 0.0.0.0)
    : >said
    "${at_server[@]}" env SOFTRDMA_MPTCP=$there_is "${server[@]}" >said 2>server.err &
    pid=$!
    helpers+=("$pid")
    until_said '^port '
    start_client "$1" "$(sed -n 's/^port //p' said)"
    longest=0
    more
}
stop_connection() {
    exec {orders}>&- {told}<&-
    kill -KILL "$pid" 2>/dev/null || true  # it may have ended with the connection
    wait "$pid" 2>/dev/null || true
}
here_is=on there_is=on

# push_through MIB NETWORK...: a push of so much, from a pipe. While it runs each of these networks in turn fails, and comes
# back. Prints how long the longest MiB took.
push_through() {
    local mib=$1 whole=$rpma part begin spent longest_us=0 network='' try
    shift
    local step=$((mib / (2 * $# + 1)))
    head -c "${mib}M" /dev/urandom >content
    printf '#!/bin/sh\nexec nsenter --net=/proc/%s/ns/net "%s" "$@"\n' "$other" "$rpma" >there
    chmod +x there
    rpma=$PWD/there
    listen_on=0.0.0.0
    SOFTRDMA_MPTCP=on start_server store
    rpma=$whole
    address=10.77.1.2:$port
    mkfifo feed
    SOFTRDMA_MPTCP=on timeout --kill-after=5 600 "$rpma" push - "$address" <feed >stdout 2>stderr &
    pid=$!
    exec {feed}>feed
    for ((part = 0; part < mib; part++)); do
        if ((part > 0 && step > 0 && part % step == 0)); then
            if [ -n "$network" ]; then
                mend $network packets
                network=
            elif [ $# -gt 0 ]; then
                for try in $(seq 1000); do
                    [ "$(ss -Htn state established "( dport = :$port )" | wc -l)" -lt 2 ] || break
                    [ $try -lt 1000 ] || die "the push has one path"
                    sleep 0.02
                done
                network=$1
                shift
                fail $network packets
            fi
        fi
        begin=${EPOCHREALTIME/./}
        dd if=content bs=1M skip=$part count=1 status=none >&$feed || die "the push ends early"
        spent=$((${EPOCHREALTIME/./} - begin))
        [ $spent -le $longest_us ] || longest_us=$spent
    done
    exec {feed}>&-
    wait $pid || die "push"
    [ -z "$network" ] || mend $network packets
    [ $# = 0 ] || die "network $1 did not fail"
    echo "push: $mib MiB, the longest MiB took $((longest_us / 1000)) ms"
    pulled content
    stop_server
}
if [ "$failures" = push ]; then
    push_through "$seed" 1 2
    exit 0
fi

# make_bond MONITOR [OPTION...]: the two networks become one, with the addresses that network 1 had. With the monitor
# arp_ip_target each end looks for the other's address.
make_bond() {
    local at=() end=near own=10.77.1.1 other=10.77.1.2 number
    local monitor=$1
    shift
    for _ in here there; do
        "${at[@]}" ip link add bond type bond mode active-backup "$@" "$monitor" \
            "$([ "$monitor" = arp_ip_target ] && echo $other || echo 100)" || return 1
        for number in 1 2; do
            "${at[@]}" ip address flush dev $end$number
            "${at[@]}" ip link set $end$number down
            "${at[@]}" ip link set $end$number master bond
        done
        "${at[@]}" ip address add $own/24 dev bond
        "${at[@]}" ip link set bond up
        at=("${at_server[@]}") end=far own=10.77.1.2 other=10.77.1.1
    done
}
remove_bond() {
    ip link delete bond
    "${at_server[@]}" ip link delete bond
}

# measure WHAT WAY COUNT: prints the longest operation after each of so many failures of one network or the other.
measure() {
    local kind failure pauses until
    for kind in write stream; do
        start_connection $kind
        pauses=
        for ((failure = 0; failure < $3; failure++)); do
            for ((until = SECONDS + 4; SECONDS < until;)); do more; done  # both networks carry bytes again
            fail $((failure % 2 + 1)) "$2"
            longest=0
            more
            pauses+=$longest$'\n'
            mend $((failure % 2 + 1)) "$2"
        done
        stop_connection
        echo "$1, $2, $kind: the longest of 50 operations took $(sort -n <<<"${pauses%$'\n'}" | tr '\n' ' ')ms"
    done
}
if [ "$failures" = bond ]; then
    measure MPTCP link "$seed"
    measure MPTCP loss "$seed"
    here_is=off there_is=off
    make_bond miimon || { echo 'SKIPPED, nothing was tested: no bonds here'; exit 77; }
    measure 'TCP over a bond with miimon 100' link "$seed"
    remove_bond
    make_bond arp_ip_target arp_interval 100 arp_validate all
    measure 'TCP over a bond with arp_interval 100' loss "$seed"
    exit 0
fi

if [ "$failures" = silence ]; then
    for there_is in on off; do
        for kind in write stream; do
            start_connection $kind
            fail 1 packets
            fail 2 packets
            tell until-lost
            echo "$kind, MPTCP there is $there_is: $answer ms"
            [[ $answer = "lost 110 "* ]] || die "expected ETIMEDOUT (110): $answer"
            mend 1 packets
            mend 2 packets
            stop_connection
        done
    done
    exit 0
fi

# With one end alone that uses MPTCP, the connection is plain TCP. `auto` is on where the path manager has something to do.
for there_is in off on; do
    start_connection write
    [[ $answer = *' -1 '* ]] || die "expected no MPTCP: $answer"
    stop_connection
    here_is=off
done
here_is=auto there_is=auto
start_connection write
tell paths 2
stop_connection

# A network namespace, or a kernel, without MPTCP: the connection is plain TCP, and the log says so once, at info.
here_is=on there_is=on
if { echo 0 >/proc/sys/net/mptcp/enabled; } 2>/dev/null; then
    RPMA_LOG=stderr:info start_connection write
    [[ $answer = *' -1 '* ]] || die "expected no MPTCP: $answer"
    [ "$(grep -c 'connections use TCP and no MPTCP: net.mptcp.enabled is 0' stderr)" = 1 ] || die "not said once: $(cat stderr)"
    stop_connection
    echo 1 >/proc/sys/net/mptcp/enabled
else
    echo 'net.mptcp.enabled cannot be written here: a network without MPTCP was left out'
fi

SOFTRDMA_MPTCP=on bounded "$rpma" devices --json >stdout
grep -q '"mptcp":true' stdout || die "devices, on: $(cat stdout)"
SOFTRDMA_MPTCP=off bounded "$rpma" devices --json >stdout
! grep -q '"mptcp":true' stdout || die "devices, off: $(cat stdout)"

ways=(link packets address)
for kind in write stream; do
    start_connection $kind
    if [ $kind = write ]; then
        tell paths 2
    else
        for try in $(seq 1000); do
            bounded "$rpma" sockets --json >stdout
            ! grep -q '"paths":2' stdout || break
            [ $try -lt 1000 ] || die "sockets: $(cat stdout)"
        done
    fi
    most=$([ $kind = write ] && echo 2 || echo 1)
    for ((failure = 0; failure < ${failures:-$most}; failure++)); do
        way=${ways[failure % 3]} network=$((failure % 2 + 1))
        [ -z "$seed" ] || way=${ways[RANDOM % 3]} network=$((1 + RANDOM % 2))
        fail $network $way
        more
        mend $network $way
        more
    done
    echo "$kind: $failure failures of a network, the longest operation took $longest ms"
    stop_connection
done

push_through 8 1
