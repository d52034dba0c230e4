#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Tests what rpma check HOST:PORT says of servers of every kind, and what its question costs their programs.
. "$(dirname "$0")/server.bash"
. "$(dirname "$0")/ends.bash"

# speaks REGEX...: the server can be used, and the output matches each REGEX.
speaks() {
    bounded "$rpma" check "127.0.0.1:$port" >stdout 2>stderr || die "check: $?"
    local line
    for line in "$@"; do
        grep -qE -- "$line" stdout || die "expected $line: $(cat stdout)"
    done
}

# The program of an rsocket has a client that ends in order, with and without checksums, and goes on.
start_end echo
speaks '^speaks +rsockets$' '^mpa +revision 2$' '^crc +off$' '^soft +the soft device' '^version +1$' '^library +librsocket$' \
    '^listed ' '^verdict +streams of rsockets go to it by RDMA$'
until_said '^ended 0$'
SOFTRDMA_CRC=1 start_end echo ::1
bounded "$rpma" check "[::1]:$port" --json >stdout 2>stderr || die "check: $?"
for fact in '"speaks":"rsockets"' '"crc":true' '"mpa":2' '"version":1' '"good":true'; do
    grep -qF "$fact" stdout || die "expected $fact: $(cat stdout)"
done
until_said '^ended 0$'
! grep -q broke said || die "the server's stream broke: $(cat said)"

# A TCP server that speaks first gets no bytes from rpma check, unless an option asks for it.
start_end banner
refused_with 6 'plain TCP: it speaks first, "SSH-2.0-OpenSSH_9.2"' "$rpma" check "127.0.0.1:$port"
grep -q '^speaks *tcp$' stdout || die "$(cat stdout)"
until_said '^ended 0$'
refused_with 6 'it answers a request for RDMA with "SSH-2.0-OpenSSH_9.2"' "$rpma" check "127.0.0.1:$port" --at-once

# What `rpma run --sockets` would do with a connection to a server outside it, and to one that it runs.
start_end banner
refused_with 6 'it speaks first' "$rpma" check "127.0.0.1:$port"
grep -q "^carried *in TCP: .*\[$pid\] does not run under rpma run --sockets$" stdout || die "$(cat stdout)"
# A program with ThreadSanitizer cannot be carried.
if ! grep -q __tsan_init "$end_program"; then
    outside=$end_program
    end_program=carried_end
    carried_end() { exec "$rpma" run --sockets --device memory "$outside" "$@"; }
    start_end banner
    refused_with 6 'it speaks first' "$rpma" check "127.0.0.1:$port"
    grep -q "^carried *over memory, .*\[$pid\] runs under rpma run --sockets$" stdout || die "$(cat stdout)"
    end_program=$outside
fi

start_end silent
refused_with 6 'no answer for 0.5 seconds: plain TCP, or an rsocket' "$rpma" check "127.0.0.1:$port" --timeout 0.5
refused_with 6 'no answer for 0.5 seconds' "$rpma" check "127.0.0.1:$port" --timeout 0.5 --json
grep -q '"speaks":"tcp"' stdout || die "$(cat stdout)"
start_end answers
refused_with 6 'plain TCP: it answers a request for RDMA with "-ERR"' "$rpma" check "127.0.0.1:$port"
start_end closes
refused_with 6 'plain TCP: it closes the connection' "$rpma" check "127.0.0.1:$port"
# A server with keys speaks TLS alone. Without a key the command tells that much.
"$rpma" keygen host keys || die "keygen"
start_server store --psk keys
refused_with 6 'it speaks TLS; with --psk FILE or --x509 FILE' "$rpma" check "$address"
grep -q '^speaks *tls$' stdout || die "$(cat stdout)"
bounded "$rpma" check "$address" --psk keys >stdout 2>stderr || die "check --psk: $?"
grep -q '^tls *TLS 1.3' stdout || die "$(cat stdout)"
stop_server

start_end markers
refused_with 6 'it speaks iWARP and wants markers of MPA' "$rpma" check "127.0.0.1:$port"
grep -q '^speaks *iwarp$' stdout || die "$(cat stdout)"

# An rsocket whose program is stopped is told from TCP, on this machine.
start_end echo
kill -STOP "$pid"
refused_with 6 'an rsocket whose program does not accept its clients' "$rpma" check "127.0.0.1:$port" --timeout 0.5
stop_end

# No server listens at the port any more; there is no such host; the argument is no address.
refused_with 7 "127.0.0.1:$port: no program listens there" "$rpma" check "127.0.0.1:$port"
refused_with 7 'absent.invalid: unknown host' "$rpma" check absent.invalid:7204
refused_with 2 'expected a port from 1 to 65535' "$rpma" check 127.0.0.1:0
refused_with 2 'HOST:PORT, --store, --psk or --x509 is required' "$rpma" check
refused_with 2 'excludes' "$rpma" check 127.0.0.1:7204 --store store

# A server of ours refuses clients of rsockets, and is asked as its own client asks.
start_server store
speaks '^speaks +rpma$' '^verdict +rpma serve, of version 4: rpma push and pull work$'
[ ! -s server.err ] || die "the server warns of a check"
stop_server
