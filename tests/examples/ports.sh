# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced by the scripts beside it: a TCP port for a server.

# Prints a port that no socket uses. It is below the ports that the kernel assigns, so that no other socket gets it
# meanwhile. Two tests at a time may still draw the same port: a test that finds it taken draws again.
free_port() {
    local port used
    used=$(awk 'FNR > 1 { sub(/.*:/, "", $2); print $2 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null)
    while :; do
        port=$((12000 + RANDOM % 20000))
        grep -qixF "$(printf '%04X' $port)" <<<"$used" || break
    done
    echo $port
}
