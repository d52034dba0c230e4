#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `readme.sh RPMA README`: the commands of the README work as they stand there, one after the other. They run in a network
# of their own, because they use the default port.
. "$(dirname "$0")/../namespaces.bash"
within_namespaces --net -- "$@"
readme=$(realpath "$2")
. "$(dirname "$0")/server.bash"
ip link set lo up
mapfile -t commands < <(sed -n 's|^    build/bin/\(rpma .*\)|\1|p' "$readme")
[ ${#commands[@]} -ge 5 ] || die "the README has ${#commands[@]} commands"
for command in "${commands[@]}"; do
    command=${command//\/var\/tmp/$work}
    command=${command/README.md/$readme}
    echo "$command"
    read -r -a words <<<"${command#rpma }"
    if [ "${words[-1]}" = '&' ]; then
        unset 'words[-1]'
        "$rpma" "${words[@]}" >server.out 2>server.err &
        server=$!
        for ((i = 0; i < 3000; i++)); do
            ! grep -q '^listening' server.out && kill -0 "$server" || break
            sleep 0.01
        done
        grep -q '^listening' server.out || die "the server does not listen"
    else
        [ "${words[0]}" != perf ] || words+=(--time 0.1)
        bounded "$rpma" "${words[@]}" >stdout 2>stderr || die "$command"
    fi
done
cmp copy "$readme" || die "the copy differs"
stop_server
