#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A server ends in the middle of a push: the exit code says whether the content may be there.
. "$(dirname "$0")/server.bash"

head -c 1M /dev/urandom >old
mkfifo source

# begin_push: starts a push, which is admitted and waits for what is written to descriptor `input`.
begin_push() {
    "$rpma" push - "$address" --allow-empty <source >stdout 2>stderr &
    pusher=$!
    helpers+=("$pusher")
    exec {input}>source
    local try
    for try in $(seq 200); do
        ! bounded "$rpma" status "$address" 2>/dev/null | grep -q '^pushes *.* from' || return 0
        kill -0 "$pusher" || die "the push ended"
    done
    die "the push is not admitted"
}

# ends_with CODE TEXT: the push ends with this code and one line.
ends_with() {
    local code=0
    exec {input}>&-
    wait "$pusher" || code=$?
    [ $code -eq "$1" ] || die "the push ended with $code, expected $1"
    [ "$(wc -l <stderr)" -eq 1 ] || die "expected one line"
    grep -q "$2" stderr || die "expected \"$2\""
}

# go_on: more content comes. The push may have ended without having read all of it.
go_on() { head -c 512K /dev/urandom 2>/dev/null 1>&"$input" || true; }

kill_server() {
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
    server=
}

# The server ends in order, or is killed, before the commit: the content is not committed.
start_server store
push old
begin_push
stop_server
go_on
ends_with 3 'the server ended the connection: the server is being stopped; nothing was committed$'

start_server store
begin_push
kill_server
go_on
ends_with 3 '; nothing was committed$'
start_server store
pulled old

# The commit is sent and not answered: the result is unknown. The content is empty, so that only the commit is sent. The server may
# be killed before the push has sent it; then the next one shows it.
for try in $(seq 50); do
    begin_push
    kill -STOP "$server"
    exec {input}>&-
    kill_server
    code=0
    wait "$pusher" || code=$?
    [ $code -eq 3 ] || break
    start_server store
done
exec {input}>/dev/null
ends_with 4 'the server has the old content or the new, which is content 2, crc32c:00000000$'
: >empty
start_server store
pulled old empty

stop_server
