#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# carry_hosts.sh RPMA: a connection between two hosts, each a network namespace, goes over a device when the file `peers` of both
# has the other one's network, and otherwise stays TCP. Within a host it goes over memory.
tests=$(realpath "$(dirname "$0")/..")
# shellcheck source=../namespaces.bash
. "$tests/namespaces.bash"
within_namespaces --net --mount -- "$@"
# shellcheck source=sockets.bash
. "$tests/compat/sockets.bash" "$1" python3 ip
# /etc/rdma has the files of this test in its own mount namespace.
mount -t tmpfs tmpfs /etc/rdma || { echo 'SKIPPED, nothing was tested: no folder /etc/rdma, which rdma-core has'; exit 77; }
mkdir /etc/rdma/rsocket

cat >echo.py <<'END'
import socket, sys
listener = socket.create_server(("", int(sys.argv[1])))
print("listens", flush=True)
one, _ = listener.accept()
while said := one.recv(100, socket.MSG_WAITALL):
    one.sendall(said)
END
# Asks and gets the answers, as often as it is told, or until the file is there.
cat >ask.py <<'END'
import os, socket, sys
source = (sys.argv[5], 0) if sys.argv[5] else None
one = socket.create_connection((sys.argv[1], int(sys.argv[2])), source_address=source)
asked = 0
while not os.path.exists(sys.argv[3]) and asked != int(sys.argv[4]):
    said = (b"%d " % asked * 100)[:100]
    one.sendall(said)
    got = one.recv(100, socket.MSG_WAITALL)
    assert got == said, got
    asked += 1
END
another_host
background+=("$other")
link_hosts

# is_over: `rpma sockets` lists a connection to $port that has left TCP, perhaps for a moment.
is_over() {
    "$rpma" sockets --json | python3 -c '
import json, sys
sys.exit(not any((one["memory_bytes"] or one["device_bytes"]) and (one["peer"] or "").endswith(sys.argv[1])
                 for one in json.load(sys.stdin)["sockets"]))' ":$port"
}
source= # the client's address; the kernel's choice where there is none
# talks NAME ADDRESS ASKS SERVER'S-PREFIX...: the server's prefix says on which host it is.
talks() {
    local name=$1 address=$2 asks=$3
    shift 3
    port=$((port + 1))
    mkfifo "$name.ready"
    "$@" "${carried_by[@]}" python3 echo.py "$port" >"$name.ready" 2>"$name.server" &
    server=$!
    background+=("$server")
    read -r _ <"$name.ready"
    "${carried_by[@]}" python3 ask.py "$address" "$port" "$name.over" "$asks" "$source" 2>"$name.client" &
    client=$!
    background+=("$client")
    if [ "$asks" = -1 ]; then
        until is_over; do
            kill -0 $client 2>/dev/null || die "$name: the client ended: $(cat "$name.client")"
            sleep 0.02
        done
        : >"$name.over"
    fi
    wait $client || die "$name: the client failed: $(cat "$name.client")"
    ended "$name"
}
went_over_device() {
    grep -Eq ': 0 connections over memory, 1 over a device, .* received, 0 of them over memory, [1-9][0-9]* over a device, [0-9]+ sent, 0 of them over memory, [1-9]' "$1"
}
went_over_memory() {
    grep -Eq ': 1 connections over memory, 0 over a device, .* received, [1-9][0-9]* of them over memory, 0 over a device, [0-9]+ sent, [1-9]' "$1"
}
stayed() { grep -Eq ' 0 connections over memory, 0 over a device, 1 over TCP' "$1"; }

carried_by=(timeout 100 "$rpma" run --sockets --stats --device soft)
# Neither is asked.
talks unnamed 192.0.2.2 2000 "${there[@]}"
for end in server client; do stayed "unnamed.$end" || die "a host was asked: $(cat "unnamed.$end")"; done

# Both name the other one's network.
echo '192.0.2.0/24  # both hosts' >/etc/rdma/rsocket/peers
talks named 192.0.2.2 -1 "${there[@]}"
for end in server client; do went_over_device "named.$end" || die "nothing went over the device: $(cat "named.$end")"; done

# Within a host it is memory, at this host's own address too, and from another one of its addresses.
talks here 192.0.2.1 -1 env
ip address add 192.0.2.3/24 dev veth0
source=192.0.2.3
talks twice 192.0.2.1 -1 env
source=
for end in here.server here.client twice.server twice.client; do
    went_over_memory "$end" || die "nothing went over memory: $(cat "$end")"
done

# A device is not wanted.
carried_by=(timeout 100 "$rpma" run --sockets --stats --device memory)
talks unwanted 192.0.2.2 2000 "${there[@]}"
for end in server client; do stayed "unwanted.$end" || die "a host was asked: $(cat "unwanted.$end")"; done
