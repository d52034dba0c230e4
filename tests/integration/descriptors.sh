#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# File descriptors run out at the client or at the server: each says so, and continues when it has some again.
tests=$(realpath "$(dirname "$0")/..")
. "$(dirname "$0")/server.bash"

head -c 1M /dev/urandom >content
start_server store
descriptors() { find "/proc/$server/fd" -mindepth 1 | wc -l; }
idle=$(descriptors)
push content

# The client has from too few for its device to enough for a push. It always says that it has too few descriptors. One
# of the limits stops it at rdma_connect.
cannot_connect=0
for ((limit = 7; limit < 40; limit++)); do
    code=0
    (ulimit -n $limit && exec timeout --kill-after=5 120 "$rpma" push content "$address") >stdout 2>stderr || code=$?
    [ $code -ne 0 ] || break
    [ "$(wc -l <stderr)" -eq 1 ] || die "$limit descriptors: expected one line"
    grep -qiF 'too many open files' stderr || die "$limit descriptors: the push does not say that they are too few"
    grep -qiF "$address: cannot connect: too many open files" stderr && cannot_connect=1
done
[ $code -eq 0 ] || die "no push with $limit descriptors"
[ $cannot_connect -eq 1 ] || die "no limit stops a push at its connection"

# The process is told what it lacks, and no address, when it has no device because of that. Root may have any number of
# threads, so another user has none.
refused_with 1 'rpma: this process cannot use an RDMA device: ' prlimit --nofile=7 "$rpma" status "$address"
grep -q 'this process may have 7 (ulimit -n)' stderr || die "the limit is not named"
as=()
one=$rpma
if [ "$(id -u)" -eq 0 ]; then
    place=$(mktemp -d /tmp/rpma-descriptors.XXXXXX)
    trap 'clean_up; rm -rf "$place"' EXIT
    chmod 755 "$place"
    words=$("$tests/other_user.sh" "$rpma" "$place/own" nobody) || die "nobody cannot run rpma"
    mapfile -t as <<<"$words"
    one=$place/own/bin/rpma
fi
refused_with 1 "rpma: this process cannot use an RDMA device: cannot start the soft device's thread: " \
    "${as[@]}" prlimit --nproc=1 "$one" status "$address"
grep -q 'ulimit -u' stderr || die "the limit is not named"

# The server can accept no socket. The client waits, and the server tries again and says so once.
limit_server() { prlimit --pid "$server" --nofile="$1:"; }
before=$(ulimit -Sn)
: >server.err
limit_server 3
refused_with 7 'no answer for 1 seconds' "$rpma" push content "$address" --timeout 1
grep -qi 'cannot accept connections, .*: too many open files' server.err || die "the server does not say that it cannot accept"
[ "$(grep -c 'cannot accept' server.err)" -eq 1 ] || die "the server says it again and again"
limit_server "$before"
push content

# The server has only the descriptor that its device keeps for this: the client gets the reason of the rejection. With a
# few more, the server accepts the socket and has none left for the connection: the client gets the reason too, and the
# server prints it. Later clients are accepted. The server first gives back the descriptors of the clients before, or those
# would be free under the limit.
for ((ends = SECONDS + 60; $(descriptors) != idle; )); do
    [ $SECONDS -lt $ends ] || die "$(descriptors) descriptors without a client, expected $idle"
done
used=0
while [ -e "/proc/$server/fd/$used" ]; do used=$((used + 1)); done
told=0
for ((limit = used; limit < used + 30; limit++)); do
    limit_server "$limit"
    code=0
    bounded "$rpma" push content "$address" --timeout 1 >stdout 2>stderr || code=$?
    [ $code -ne 0 ] || break
    # The server has none for the connection, for the push's file, or for the folder of the name.
    [ $code -eq 7 ] || [ $code -eq 6 ] || [ $code -eq 3 ] || die "a push ended with $code"
    grep -qiE "$address: refused: no connection with .*: it is out of file descriptors|: too many open files" stderr ||
        die "$limit descriptors: the push does not say that they are too few: $(cat stderr)"
    told=$((told + 1))
done
[ $code -eq 0 ] || die "no push with $limit descriptors at the server"
[ $told -gt 0 ] || die "no client hears that the server has no descriptors"
grep -qi 'rejected a client.*: too many open files' server.err || die "no limit has the server itself reject a client"
limit_server "$before"
push content
pulled content
stop_server
