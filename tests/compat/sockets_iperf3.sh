#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_iperf3.sh RPMA: runs iperf3 carried: in all directions, with several streams, and with sendfile.
. "$(dirname "$0")/sockets.bash" "$1" iperf3

for options in "-P 4" "-R" "--bidir" "-Z"; do
    serve server iperf3 -s -1 -p "$port"
    # shellcheck disable=SC2086 # one of them has a value
    carry iperf3 -c 127.0.0.1 -p "$port" -n 20M $options --json >client.json 2>client.out || die "iperf3 $options failed"
    ended server
    carried server.out client.out
    python3 - "$options" <<'END' || die "iperf3 $options: bytes are missing"
import json, sys
end = json.load(open("client.json"))["end"]
sent, received = end["sum_sent"]["bytes"], end["sum_received"]["bytes"]
# The client ends the test when it has written 20 MB. The server then stops reading, and does not count the bytes that
# the buffers of four streams still hold.
least = 18e6 if "-R" in sys.argv[1] else 1e6
sys.exit(min(sent, received) < least)
END
done
