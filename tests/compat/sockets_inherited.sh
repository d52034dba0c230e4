#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_inherited.sh RPMA: programs get a carried connection by exec, as inetd(8) gives it, or by SCM_RIGHTS.
. "$(dirname "$0")/sockets.bash" "$1" python3 bash

cat >server.py <<'END'
import os, socket, subprocess, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=16)
services = [
    ["cat"],
    ["sh", "-c", "read line; echo \"$line from sh\""],
    ["bash", "-c", "read line; printf '%s from bash' \"$line\"; exec 0</dev/null; cat; echo"],
    [sys.executable, "-c", "print(input(), 'from python')"],
    ["sh", "-c", "exec cat <&2 >&2"],
]
for service in services:
    one, _ = listener.accept()
    subprocess.run(service, stdin=one, stdout=one, stderr=one if "2" in service[-1] else None)
    one.close()

# The connection has been used here before.
one, _ = listener.accept()
assert one.recv(1) == b"1"
subprocess.run(["cat"], stdin=one, stdout=one)
one.close()

# Another process gets an accepted connection that blocks, and a nonblocking one.
here, there = socket.socketpair()
worker = subprocess.Popen([sys.executable, "worker.py", str(there.fileno())], pass_fds=[there.fileno()])
there.close()
for blocks in True, False:
    one, _ = listener.accept()
    one.setblocking(blocks)
    socket.send_fds(here, [b"1" if blocks else b"0"], [one.fileno()])
    one.close()
here.close()
assert worker.wait() == 0
END
cat >worker.py <<'END'
import os, selectors, socket, sys
parent = socket.socket(fileno=int(sys.argv[1]))
while True:
    said, fds, _, _ = socket.recv_fds(parent, 1, 4)
    if not said:
        break
    assert os.get_blocking(fds[0]) == (said == b"1")
    with socket.socket(fileno=fds[0]) as one, selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ)
        got = b""
        while selector.select(20):
            more = one.recv(1000)
            if not more:
                break
            got += more
        one.setblocking(True)
        one.sendall(got + b" from a worker")
END
cat >client.py <<'END'
import socket, sys
port = int(sys.argv[1])
def ask(said):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.sendall(said)
        one.shutdown(socket.SHUT_WR)
        got = b""
        while more := one.recv(1000):
            got += more
        return got
for said, wanted in [(b"for cat\n" * 3000, b"for cat\n" * 3000), (b"one\n", b"one from sh\n"),
                     (b"one\n", b"one from bash\n"), (b"one\n", b"one from python\n"), (b"all\n", b"all\n"),
                     (b"1rest", b"rest"), (b"blocks", b"blocks from a worker"), (b"does not", b"does not from a worker")]:
    got = ask(said)
    assert got == wanted, (wanted, got)
END
serve server python3 server.py "$port"
carry python3 client.py "$port" >client.out 2>&1 || die "the client got something else: $(tail -n 5 client.out)"
carried client.out
ended server
