#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the cases of test_interop between two providers, over the loopback:
#   interop-pair.sh PROGRAM SERVER-PROVIDER CLIENT-PROVIDER ADDRESS [FILE]
# It prints one line for each case: its name, then "ok", or "FAIL" and the output of each end. It ends with 0 when all
# are ok. FILE is the server's durable memory; without it, and on tmpfs, which cannot be durable, the server takes plain
# memory.
set -u
program=$1 server_provider=$2 client_provider=$3 address=$4 file=${5:-}
if [ -n "$file" ] && [ "$(stat --file-system --format %T "$(dirname "$file")")" = tmpfs ]; then
    echo "$(dirname "$file") is on tmpfs: without a durable file" >&2
    file=
fi
work=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT

mkfifo "$work/listening"
"$program" server "$server_provider" "$address" 0 ${file:+"$file"} >"$work/listening" &
server=$!
exec 3<"$work/listening"
read -r word port <&3 || exit 1
[ "$word" = listening ] || exit 1
cat <&3 >"$work/server" &
reader=$!
"$program" client "$client_provider" "$address" "$port" >"$work/client"
client_code=$?
[ $client_code = 0 ] || [ $client_code = 1 ] || kill "$server"
wait "$server"
server_code=$?
server=
wait "$reader"

# shellcheck disable=SC2016
awk '
    function verdict(role, name) { return (role, name) in said ? said[role, name] : "FAIL says nothing" }
    { said[$1, $2] = $3 == "ok" ? "ok" : substr($0, length($1 $2) + 3); if (!($2 in seen)) { seen[$2]; order[++count] = $2 } }
    END {
        for (i = 1; i <= count; i++) {
            client = verdict("client", order[i]); server = verdict("server", order[i])
            good = client == "ok" && server == "ok"
            printf "%-22s %s\n", order[i], good ? "ok" : "FAIL client: " client "; server: " server
        }
    }' "$work/client" "$work/server"
[ $client_code = 0 ] && [ $server_code = 0 ]
