#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs one example, server and client: `run-pair.sh FOLDER TIMES [PMEM-PATH]`, FOLDER with the two programs. Both have to
# end with 0. RPMA_VALGRIND=1 runs both under memcheck.
set -u
folder=$1 times=$2 path=${3:-}
here=$(dirname "$(realpath "$0")")
launch=$here/../launch.sh
# shellcheck source=ports.sh
. "$here/ports.sh"

if [ -n "$path" ] && [ "$(stat --file-system --format %T .)" = tmpfs ]; then
    echo "skipped: $PWD is on tmpfs, which cannot be durable; build on a disk to run this"
    exit 77
fi
work=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT
mkfifo "$work/said"

# Starts the server on a free port and returns when it says that it listens. False when it ended before that.
start_server() {
    local line
    port=$(free_port)
    "$launch" "$folder/server" 127.0.0.1 "$port" ${path:+"$path"} >"$work/said" 2>"$work/errors" &
    server=$!
    exec 3<"$work/said"
    while read -r line <&3; do
        echo "server: $line"
        [[ $line == listening* ]] && return 0
    done
    wait "$server"
    server=
    cat "$work/errors"
    return 1
}

rm -f ${path:+"$path"}
for ((time = 1; time <= times; time++)); do
    for ((attempt = 1; attempt <= 5; attempt++)); do
        start_server && break
    done
    [ -n "$server" ] || { echo 'the server does not start'; exit 1; }

    "$launch" "$folder/client" 127.0.0.1 "$port"
    client_code=$?
    # The rest of what the server says, until it has ended; a client that failed may have left it waiting for one.
    [ $client_code = 0 ] || kill "$server"
    sed 's/^/server: /' <&3
    exec 3<&-
    wait "$server"
    server_code=$?
    server=
    cat "$work/errors"
    echo "exit codes: server $server_code, client $client_code"
    [ $client_code = 0 ] && [ $server_code = 0 ] || exit 1
done
