#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_memcached.sh RPMA: memcached with four threads serves a client with eight carried connections at once.
. "$(dirname "$0")/sockets.bash" "$1" memcached python3

cat >client.py <<'END'
import socket, sys, threading
def expect(stream, wanted):
    got = b""  # MSG_WAITALL does not wait where there is a time-out
    while len(got) < len(wanted) and (more := stream.recv(len(wanted) - len(got))):
        got += more
    if got != wanted:
        raise RuntimeError(f"{got[:80]!r} instead of {wanted[:80]!r}")
done = threading.Barrier(9)
def use(number, failures):
    try:
        with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20) as stream:
            for i in range(200):
                value = bytes((i * number + j) % 251 for j in range(i * 20))
                stream.sendall(b"set k%d-%d 0 0 %d\r\n%b\r\n" % (number, i, len(value), value))
                expect(stream, b"STORED\r\n")
                stream.sendall(b"get k%d-%d\r\n" % (number, i))
                expect(stream, b"VALUE k%d-%d 0 %d\r\n%b\r\nEND\r\n" % (number, i, len(value), value))
            done.wait(40)
    except Exception as error:
        failures.append(error)
        done.abort()
failures = []
threads = [threading.Thread(target=use, args=(i, failures)) for i in range(8)]
for thread in threads: thread.start()
sys.stdin.read()  # the connections stay open until the test has seen them
try: done.wait(40)
except threading.BrokenBarrierError: pass
for thread in threads: thread.join()
sys.exit(str(failures) if failures else 0)
END
serve server memcached -u "$(id -un)" -l 127.0.0.1 -p "$port" -U 0 -t 4
mkfifo hold
exec 3<>hold
"${carried_by[@]}" python3 client.py "$port" <hold 3>&- >client.out 2>&1 &
client=$!
background+=("$client")
exec 3>&-
wait "$client" || die "the client failed"
python3 client.py "$port" </dev/null || die "the client failed over TCP"
stop server TERM
carried client.out
