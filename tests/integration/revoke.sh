#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# At SIGHUP rpma serve ends the connections of the clients whose key its file does not have any more, or whose
# certificate it would not let in, and no others.
. "$(dirname "$0")/server.bash"

make_keys a b c
head -c 1M /dev/urandom >content
start_server served --psk keys --idle-limit 3600 --push-lease 3600
bounded "$rpma" push --psk a content "$address" >stdout 2>stderr || die "push"

# connect_as IDENTITY MODE: a client that stays; sets pid.
mkfifo said
way=psk
connect_as() {
    RPMA_TLS=$way:$PWD/$1 bounded "$peer" "$2" 127.0.0.1 "$port" >said &
    pid=$!
    helpers+=($pid)
    read -t 60 -r line <said || die "$2 as $1"
}
# clients: how many the server has, as it says.
clients() {
    bounded "$rpma" status --json "--$way" b "$address" >stdout 2>stderr || die "status"
    sed -n 's/.*"clients":\([0-9]*\).*/\1/p' stdout
}
# told TEXT: waits for the line in the server's log.
told() {
    local try
    for try in $(seq 2000); do
        ! grep -qF -- "$1" server.err || return 0
        "$rpma" keygen someone >again || die "keygen"
    done
    die "the server does not say: $1"
}

connect_as a stay
puller=$pid
connect_as a talk
pusher=$pid
connect_as b stay
other=$pid
[ "$(clients)" -eq 3 ] || die "expected three clients: $(cat stdout)"

# A change of the file alone ends nothing, and no signal ends a connection whose identity is there.
kill -HUP "$server"
told 'SIGHUP: ended 0 connections, 3 stay'
cat b c >keys
[ "$(clients)" -eq 3 ] || die "a change of the file ended a connection"

# A file that cannot be used ends nothing either.
chmod 644 keys
kill -HUP "$server"
told 'SIGHUP: the files of TLS cannot be used, as the line before says: every connection stays, and no client gets a new one'
chmod 600 keys
[ "$(clients)" -eq 3 ] || die "a file that cannot be used ended a connection"

# The identity a is gone: its pull and its push end, and the other client stays.
kill -HUP "$server"
told 'SIGHUP: ended 2 connections, 1 stay'
wait "$puller" || die "the pull of the identity that is gone"
wait "$pusher" || die "the push of the identity that is gone"
[ "$(grep -c '127.0.0.1 (a)\( ended without a commit\)\?: the identity a is not let in any more' server.err)" -eq 2 ] ||
    die "the server does not say which clients it drops"
[ "$(clients)" -eq 1 ] || die "expected one client: $(cat stdout)"
kill -0 "$other" || die "another client ended"
refused_with 7 'the server does not know the key identity a' "$rpma" push --psk a content "$address"
bounded "$rpma" push --psk c content "$address" >stdout 2>stderr || die "push after the other push ended"

# It can be told again.
cat c >keys
kill -HUP "$server"
told 'SIGHUP: ended 1 connections, 0 stay'
wait "$other" || die "the last client"

# A file that cannot be used is told also when no client is there, and it lets nobody in.
: >server.err
echo nonsense >keys
kill -HUP "$server"
told 'SIGHUP: the files of TLS cannot be used, as the line before says'
told "TLS: $PWD/keys, line 1: expected IDENTITY:KEY"
refused_with 7 'the server cannot go on with TLS' "$rpma" push --psk c content "$address"
cat c >keys
kill -HUP "$server"
told 'SIGHUP: ended 0 connections, 0 stay'
bounded "$rpma" push --psk c content "$address" >stdout 2>stderr || die "push with the file repaired"
stop_server

# The same with certificates: the client a is not listed any more.
rm a b c keys
way=x509
"$(dirname "$peer")/test_certificates" . store a b || die "certificates"
cat store >plain
printf 'client a\nclient b\n' >>store
start_server served --x509 store --idle-limit 3600
connect_as a stay
puller=$pid
connect_as b stay
other=$pid
kill -HUP "$server"
told 'SIGHUP: ended 0 connections, 2 stay'
{ cat plain && echo 'client b'; } >store
kill -HUP "$server"
told 'SIGHUP: ended 1 connections, 1 stay'
wait "$puller" || die "the pull of the client that is not listed"
grep -qF 'dropped a client from 127.0.0.1 (a): the identity a is not let in any more' server.err ||
    die "the server does not say which client it drops"
[ "$(clients)" -eq 1 ] || die "expected one client: $(cat stdout)"
stop_server
wait "$other" || die "the client that stays"

# Without keys the signal ends the server, as it ends any process that does not ignore it.
start_server served
if (((0x$(awk '/^SigIgn/ { print $2 }' "/proc/$server/status") & 1) == 0)); then
    kill -HUP "$server"
    code=0
    wait "$server" || code=$?
    server=
    [ $code -eq 129 ] || die "ended with $code, expected the signal's 129"
fi
