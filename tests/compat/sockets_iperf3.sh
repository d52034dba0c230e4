#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_iperf3.sh RPMA: iperf3 in all directions, several streams, sendfile, over rsockets.
. "$(dirname "$0")/sockets.bash" "$1" iperf3

for options in "-P 4" "-R" "--bidir" "-Z"; do
    serve server iperf3 -s -1 -p "$port"
    # shellcheck disable=SC2086 # one of them has a value
    carry iperf3 -c 127.0.0.1 -p "$port" -n 20M $options --json >client.json 2>client.out || die "iperf3 $options failed"
    ended server
    carried server.out client.out
    python3 - "$options" <<'END' || die "iperf3 $options: not all bytes came"
import json, sys
end = json.load(open("client.json"))["end"]
sent, received = end["sum_sent"]["bytes"], end["sum_received"]["bytes"]
least = 1e6 if "bidir" in sys.argv[1] else 18e6  # there, the direction that is done first ends both
sys.exit(min(sent, received) < least)
END
done
