#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A capture of everything that a push, a pull and a refused push put on the network shows none of their bytes when they
# use TLS: no content, no start-up frame and so no private data. Without TLS the same capture shows both. The network is
# a namespace of its own.
set -eu
. "$(dirname "$0")/../namespaces.bash"
within_namespaces --net -- "$@"
. "$(dirname "$0")/server.bash"
ip link set lo up
export SOFTRDMA_SHM=off

secret='a line that nobody on the way may read'
refusal='may not push'
# A request and a reply begin with it.
frame='MPA ID Re'
for _ in $(seq 4096); do echo "$secret"; done >content

# Captures into the file until a datagram with the word END comes, and fails when a packet was lost.
cat >capture.py <<'PYTHON'
import os
import socket
import struct
import sys

SOL_PACKET, PACKET_STATISTICS, SO_RCVBUFFORCE, ETH_P_ALL = 263, 6, 33, 3
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
for option in (socket.SO_RCVBUF, SO_RCVBUFFORCE):
    try:
        packets.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
    except PermissionError:
        pass
packets.bind(('lo', 0))
with open(sys.argv[1], 'wb') as file:
    os.write(1, b'ready\n')
    while True:
        packet = packets.recv(1 << 17)
        file.write(packet)
        if packet.endswith(b'END OF CAPTURE'):
            break
seen, lost = struct.unpack('II', packets.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
sys.exit(f'{lost} of {seen} packets were lost' if lost else 0)
PYTHON

# captured FILE COMMAND...: runs the command while everything is captured.
captured() {
    local ready
    mkfifo ready.fifo
    python3 capture.py "$1" >ready.fifo &
    local capture=$!
    helpers+=($capture)
    read -t 60 -r ready <ready.fifo || die "no capture"
    rm ready.fifo
    "${@:2}"
    printf 'END OF CAPTURE' >/dev/udp/127.0.0.1/9
    wait $capture || die "the capture"
}

use() {  # use [OPTION...]: a push, a pull, and a push that is refused when there are keys
    bounded "$rpma" push content "$address" "$@" >stdout 2>stderr || die "push"
    bounded "$rpma" pull "$address" got "$@" >stdout 2>stderr || die "pull"
    cmp got content || die "pull gave another content"
    [ $# -eq 0 ] || refused_with 6 "$refusal" "$rpma" push content "$address" --psk reader
}

# shows TEXT FILE: the capture has the text.
shows() { LC_ALL=C grep -qaF -- "$1" "$2"; }

start_server clear
captured clear.packets use
stop_server
shows "$secret" clear.packets || die "the capture of a connection without TLS does not show the content"
shows "$frame" clear.packets || die "the capture of a connection without TLS does not show the start-up"

make_keys writer reader
start_server secure --psk keys --allow push=writer,pull=writer,pull=reader
captured secure.packets use --psk writer
stop_server
[ "$(stat -c %s secure.packets)" -gt $((2 * $(stat -c %s content))) ] || die "the capture does not have both transfers"
shows writer secure.packets || die "the capture does not show the identity, which is in the clear"
for text in "$secret" "$frame" "$refusal" 'nobody on'; do
    ! shows "$text" secure.packets || die "the capture shows '$text'"
done
# Encrypted bytes cannot be made smaller. A tenth is headers and the handshake.
[ "$(gzip -c secure.packets | wc -c)" -gt $(($(stat -c %s secure.packets) * 8 / 10)) ] || die "the capture is not random"
