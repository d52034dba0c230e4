#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes a mistake that a user may make with the examples: `mistakes.sh EXAMPLES MISTAKE`. Each program has to end by
# itself with an error and say what is wrong.
set -u
examples=$1 mistake=$2
here=$(dirname "$(realpath "$0")")
launch=$here/../launch.sh
# shellcheck source=ports.sh
. "$here/ports.sh"
work=$(mktemp -d)
running=()
finish() {
    [ ${#running[@]} -eq 0 ] || kill "${running[@]}" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT

# expect WORD CODE COMMAND...: the command ends with this code, and its output has the word.
expect() {
    local word=$1 expected=$2 said code
    shift 2
    said=$("$launch" "$@" 2>&1)
    code=$?
    printf '%s:\n%s\n' "${1#"$examples"/}" "$said"
    if [ $code != "$expected" ]; then
        echo "exit code $code (expected: $expected)"
        exit 1
    fi
    if [[ $said != *"$word"* ]]; then
        echo "nothing about '$word' in what it said"
        exit 1
    fi
}

# The file that a program takes after address and port, if any; its folder exists, or does not.
file_of() {  # file_of PROGRAM FOLDER
    case ${1#"$examples"/} in
        03-*/client | 0[4579]-*/server | 15-*/server | 16-*/server) echo "$2/file" ;;
    esac
}

programs=("$examples"/*/server "$examples"/*/client "$examples/log/log")
servers=("$examples"/*/server)
persistent=("$examples"/05-*/server "$examples"/07-*/server "$examples"/15-*/server "$examples"/16-*/server)
case $mistake in
    no-arguments)
        for program in "${programs[@]}"; do
            expect 'usage: ' 1 "$program"
        done
        ;;
    wrong-port)
        for program in "${servers[@]}"; do
            # Programs with a file refuse the file first when the build is on tmpfs.
            [ -n "$(file_of "$program" .)" ] || expect 'no-such-port' 1 "$program" 127.0.0.1 no-such-port
        done
        expect 'no-such-port' 1 "$examples/01-connection/client" 127.0.0.1 no-such-port
        ;;
    wrong-address)
        # An address for documentation: no machine has it, and a bind sends nothing.
        expect '192.0.2.1' 1 "$examples/01-connection/server" 192.0.2.1 "$(free_port)"
        ;;
    nobody-listens)
        expect 'rejected' 1 "$examples/01-connection/client" 127.0.0.1 "$(free_port)"
        port=$(free_port)
        expect 'expected: at least 2' 1 "$examples/16-replicate-three/client" 127.0.0.1 "$port" 127.0.0.1 "$port" 127.0.0.1 "$port"
        ;;
    no-such-folder)
        for program in "${programs[@]}"; do
            file=$(file_of "$program" "$work/none")
            [ -z "$file" ] || expect "$file: No such file or directory" 1 "$program" 127.0.0.1 "$(free_port)" "$file"
        done
        ;;
    tmpfs)
        [ "$(stat --file-system --format %T /dev/shm 2>/dev/null)" = tmpfs ] || { echo 'skipped: /dev/shm is not tmpfs'; exit 77; }
        file=$(mktemp /dev/shm/rpma-example.XXXXXX)
        for program in "${persistent[@]}"; do
            # A trap of its own would lose the folder: the file goes before the verdict.
            (expect 'tmpfs' 1 "$program" 127.0.0.1 "$(free_port)" "$file") || { rm -f "$file"; exit 1; }
        done
        rm -f "$file"
        ;;
    one-of-three-is-missing)
        # This is no mistake of the user: the client has to work with two servers.
        [ "$(stat --file-system --format %T "$examples")" != tmpfs ] || { echo 'skipped: the build is on tmpfs'; exit 77; }
        rm -rf "$work" && work=$(mktemp -d -p "$examples" run.XXXXXX)
        ends=()
        for ((server = 0; server < 2; server++)); do
            port=$(free_port)
            mkfifo "$work/said$server"
            "$launch" "$examples/16-replicate-three/server" 127.0.0.1 "$port" "$work/memory$server" >"$work/said$server" &
            running+=($!)
            exec {said}<"$work/said$server"
            while read -r line <&"$said" && [[ $line != listening* ]]; do :; done
            ends+=(127.0.0.1 "$port")
        done
        expect 'server 2 is not there' 0 "$examples/16-replicate-three/client" "${ends[@]}" 127.0.0.1 "$(free_port)"
        for server in "${running[@]}"; do
            wait "$server" || { echo "a server ended with $?"; exit 1; }
        done
        running=()
        ;;
    *)
        echo "no mistake $mistake" >&2
        exit 2
        ;;
esac
