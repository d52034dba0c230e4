#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `utils/quickstart.sh` replicates a file durably, on Debian 12, without RDMA hardware. It installs what is missing,
# builds into build/, replicates a real file into a pool and reads it back, then compiles one example against the result
# and runs it. It may be run again at any time; Ctrl-C leaves no process behind.
set -eu
cd "$(dirname "$0")/.."

work=$PWD/build/quickstart
size_mib=64
server=

say() { printf '\n== %s\n' "$*"; }
run() {
    printf '$ %s\n' "$*"
    "$@"
}

stop_server() {
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap stop_server EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# True when a process listens on this TCP port; an RDMA port of the soft device is one.
is_listening() {  # is_listening PORT
    local port
    port=$(printf '%04X' "$1")
    awk -v port=":$port\$" '$4 == "0A" && $2 ~ port { found = 1 } END { exit !found }' /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# Prints the first port from this one on without a listener.
free_port() {  # free_port PORT
    local port=$1
    while is_listening "$port"; do port=$((port + 1)); done
    echo "$port"
}

# Starts a server in the background and waits until it listens.
start_server() {  # start_server PORT COMMAND...
    local port=$1 waits
    shift
    printf '$ %s &\n' "$*"
    "$@" >"$work/server.log" 2>&1 &
    server=$!
    for ((waits = 0; waits < 200; waits++)); do
        is_listening "$port" && return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    echo "the server does not listen on port $port; it said:" >&2
    cat "$work/server.log" >&2
    return 1
}

say '1 of 4: installing what is missing'
utils/install-dependencies.sh build

say '2 of 4: building (programs in build/bin, libraries in build/lib)'
mkdir -p "$work"
if [ ! -e build/build.ninja ] && [ ! -e build/Makefile ]; then
    # This builds without the tests, which utils/test.sh adds in the same folder.
    echo '$ cmake --preset release -DRPMA_TESTS=OFF'
    cmake --preset release -DRPMA_TESTS=OFF >"$work/configure.log" 2>&1 || { cat "$work/configure.log"; exit 1; }
fi
run cmake --build build --parallel "$(nproc)" --target rpma rpma_command softrdma_verbs

say "3 of 4: replicating a file of $size_mib MiB into a pool, durably, and reading it back"
port=$(free_port 7204)
file=$work/file
[ "$(stat -c %s "$file" 2>/dev/null || echo 0)" = $((size_mib << 20)) ] ||
    run dd if=/dev/urandom of="$file" bs=1M count=$size_mib status=none
start_server "$port" build/bin/rpma serve --pool "$work/pool" --size ${size_mib}M --listen "127.0.0.1:$port"
cat "$work/server.log"
run build/bin/rpma push "$file" "127.0.0.1:$port"
rm -f "$work/copy"
run build/bin/rpma pull "127.0.0.1:$port" "$work/copy"
run cmp "$file" "$work/copy"
echo 'identical'
stop_server

say '4 of 4: compiling an example against include/ and build/lib, and running it'
for program in server client; do
    run cc -std=c17 -Wall -Wextra -Iinclude -o "$work/$program" "examples/05-flush-to-persistent/$program.c" \
        -Lbuild/lib -lrpma -Wl,-rpath,"$PWD/build/lib"
done
port=$(free_port $((port + 1)))
start_server "$port" "$work/server" 127.0.0.1 "$port" "$work/example.pool"
run "$work/client" 127.0.0.1 "$port"
wait "$server"
server=
cat "$work/server.log"

cat <<DONE

== done. Now with a file of your own:
    build/bin/rpma serve --pool POOL --size 1G          (Ctrl-C ends it)
    build/bin/rpma push FILE 127.0.0.1:7204
    build/bin/rpma pull 127.0.0.1:7204 COPY
README.md goes on from here; utils/test.sh builds and runs the tests.
DONE
