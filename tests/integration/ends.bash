# SPDX-License-Identifier: BSD-3-Clause
# Sourced behind server.bash, with the path of socket_end as the third argument of the script: ends of connections.
end_program=$3

# start_end KIND [ADDRESS]: a server in the background; returns when it listens. Sets pid and port; what it says goes on to
# the file `said`.
start_end() {
    : >said
    "$end_program" "$1" "${2:-127.0.0.1}" >said 2>server.err &
    pid=$!
    helpers+=("$pid")
    until_said '^port '
    port=$(sed -n 's/^port //p' said)
}

# until_said REGEX: waits for a line of the last end that was started.
until_said() {
    local try
    for try in $(seq 1000); do
        ! grep -q "$1" said || return 0
        kill -0 "$pid" 2>/dev/null || die "the end has gone"
        sleep 0.02
    done
    die "expected $1 in: $(cat said)"
}

stop_end() {
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
}
