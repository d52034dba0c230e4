#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `utils/quickstart.sh` replicates a file durably, on Debian 12, without RDMA hardware. It installs what is missing,
# builds into build/, replicates a real file into a store and reads it back, then compiles one example against the result
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

# Starts a server in the background, and waits until it says that it listens. PORT in its command stands for $port, which
# becomes another one when a program has it already.
start_server() {  # start_server COMMAND...
    local tries waits log=$work/server.log
    for ((tries = 0; tries < 20; tries++)); do
        : >"$log"  # here, because the server's shell may not have emptied it yet when it is read
        "${@//PORT/$port}" >"$log" 2>&1 &
        server=$!
        for ((waits = 0; waits < 1200; waits++)); do
            ! grep -q '^listening' "$log" && kill -0 "$server" 2>/dev/null || break
            sleep 0.05
        done
        if grep -q '^listening' "$log"; then
            printf '$ %s &\n' "${*//PORT/$port}"
            cat "$log"
            return 0
        fi
        stop_server
        grep -q 'Address already in use' "$log" || break
        port=$((12000 + RANDOM % 20000))  # below those that the kernel gives out by itself
    done
    printf 'the server does not start: %s\n' "${*//PORT/$port}" >&2
    cat "$log" >&2
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
run cmake --build build --parallel "$(nproc)" --target rpma rpma_command softrdma_verbs softrdma_verbs_opened carry_preload carry_device

say "3 of 4: replicating a file of $size_mib MiB into a store, durably, and reading it back"
port=7204
file=$work/file
[ "$(stat -c %s "$file" 2>/dev/null || echo 0)" = $((size_mib << 20)) ] ||
    run dd if=/dev/urandom of="$file" bs=1M count=$size_mib status=none
rm -rf "$work"/store "$work"/example.memory  # of another run, whose version may have been another
start_server build/bin/rpma serve --store "$work/store" --listen 127.0.0.1:PORT
address=127.0.0.1:$port
run build/bin/rpma push "$file" "$address"
rm -f "$work/copy"
run build/bin/rpma pull "$address" "$work/copy"
run cmp "$file" "$work/copy"
echo 'identical'
stop_server

say '4 of 4: compiling an example against include/ and build/lib, and running it'
for program in server client; do
    run cc -std=c17 -Wall -Wextra -Iinclude -o "$work/$program" "examples/05-flush-to-persistent/$program.c" \
        -Lbuild/lib -lrpma -Wl,-rpath,"$PWD/build/lib"
done
start_server "$work/server" 127.0.0.1 PORT "$work/example.memory"
run "$work/client" 127.0.0.1 "$port"
wait "$server"
server=
tail -n +3 "$work/server.log"

cat <<DONE

== done. Now with a file of your own:
    build/bin/rpma serve --store FOLDER --listen $address     (Ctrl-C ends it)
    build/bin/rpma push FILE $address
    build/bin/rpma pull $address COPY
README.md goes on from here; utils/test.sh builds and runs the tests.
DONE
