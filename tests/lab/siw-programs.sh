#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run as root inside the kernel lab's guest: runs the examples, the rpma command, and rping and perftest of Debian, with
# the soft device at one end and the kernel's soft-iWARP at the other.
#   siw-programs.sh BUILD-FOLDER [ADDRESS]      ADDRESS (default $SIW_IP) is the one that siw serves
# It prints one line a run: what, client->server, ok or FAIL. It ends with 0 when all are ok. Examples with a durable
# file run only with the soft device as server, because siw registers no page of such a file; the rpma command makes
# its files durable by message there.
set -u
build=$1 address=${2:-${SIW_IP:?no address that siw serves}}
here=$(dirname "$(realpath "$0")")
# shellcheck source=store.bash
. "$here/store.bash"
# shellcheck source=../examples/ports.sh
. "$here/../examples/ports.sh"
preload=$(realpath "$build/lib/softrdma/libsoftrdma-verbs.so")
failed=0

report() {  # report WHAT CLIENT SERVER CODE
    local verdict=ok
    if [ "$4" != 0 ]; then
        verdict=FAIL
        failed=1
    fi
    printf '%-26s %-16s %s\n' "$1" "$2->$3" "$verdict"
    [ "$4" = 0 ] || tail -n 15 "$work/server.log" "$work/client.log"
}

# Starts a server and returns when it says that it listens.
start() {  # start PROVIDER COMMAND...
    local line
    rm -f "$work/said"
    mkfifo "$work/said"
    RPMA_DEVICE=$1 timeout 900 "${@:2}" >"$work/said" 2>"$work/server.log" &
    server=$!
    background=("$server")
    exec 3<"$work/said"
    while read -r line <&3; do
        echo "$line" >>"$work/server.log"
        case $line in *listening*)
            cat <&3 >>"$work/server.log" &
            exec 3<&-
            return 0
            ;;
        esac
    done
    return 1
}

example() {  # example NAME CLIENT SERVER [PATH]
    local code=0 port
    port=$(free_port)
    : >"$work/client.log"
    start "$3" "$build/examples/$1/server" "$address" "$port" ${4:+"$4"} || code=1
    [ $code != 0 ] || RPMA_DEVICE=$2 timeout 60 "$build/examples/$1/client" "$address" "$port" >"$work/client.log" 2>&1 ||
        code=1
    [ $code = 0 ] || kill "$server" 2>/dev/null
    wait "$server" || code=1
    report "$1" "$2" "$3" $code
}

# Pushes, pulls and compares twice: the second content replaces the first.
rpma_command() {  # rpma_command CLIENT SERVER STORE
    local code=0 port
    port=$(free_port)
    : >"$work/client.log"
    start "$2" "$build/bin/rpma" serve --store "$3" --listen "$address:$port" || code=1
    for content in first second; do
        [ $code = 0 ] || break
        head -c 20000001 /dev/urandom >"$work/$content"
        {
            RPMA_DEVICE=$1 timeout 300 "$build/bin/rpma" push "$work/$content" "$address:$port" &&
                RPMA_DEVICE=$1 timeout 300 "$build/bin/rpma" pull "$address:$port" "$work/pulled" &&
                cmp "$work/$content" "$work/pulled"
        } >>"$work/client.log" 2>&1 || code=1
    done
    kill "$server" 2>/dev/null
    wait "$server" || { echo "the server ended with $?" >>"$work/server.log"; code=1; }
    report "rpma push, pull" "$1" "$2" $code
    rm -rf "$3"
}

# The programs are Debian's, unmodified: the preload library gives the soft device to one end.
debian() {  # debian CLIENT SERVER "PROGRAM AND COMMON OPTIONS" "SERVER'S OPTIONS" "CLIENT'S OPTIONS"
    local code=0 soft=client
    [ "$2" = kernel ] || soft=server
    : >"$work/client.log"
    bash "$here/../compat/verbs_program.sh" -o $soft "$preload" "$3 $4" "$3 $5" >"$work/server.log" 2>&1 || code=$?
    report "${3%% *}" "$1" "$2" $code
}
device_of() { [ "$1" = soft ] && echo "soft_$(interface)" || rdma link show | sed -n "s,^link \([^/]*\)/.* netdev $(interface) .*,\1,p"; }
interface() { ip -oneline address show to "$address" | awk '{ print $2; exit }'; }

for pair in "soft kernel" "kernel soft"; do
    read -r client server_device <<<"$pair"
    for name in 01-connection 02-read-to-volatile 08-messages-ping-pong; do
        example $name "$client" "$server_device"
    done
    debian "$client" "$server_device" "rping -a $address -p PORT -V -C 10" -s -c
    for test in "ib_write_bw -n 200" "ib_read_bw -n 200" "ib_send_lat -n 100"; do
        debian "$client" "$server_device" "$test -R -F -p PORT" "-d $(device_of "$server_device")" \
            "-d $(device_of "$client") $address"
    done
done
for name in 04-write-to-persistent 05-flush-to-persistent; do
    example $name kernel soft "$store/$name"
done
rpma_command kernel soft "$store/contents"
rpma_command soft kernel "$store/contents"
exit $failed
