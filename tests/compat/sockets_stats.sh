#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_stats.sh RPMA: the figures of `rpma run --sockets --stats` go to standard error or to a file, and never to a
# peer: a server that inetd(8) or vsftpd start has its connection on descriptor 2.
. "$(dirname "$0")/sockets.bash" "$1" python3

cat >server.py <<'END'
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
one, _ = listener.accept()
one.recv(3)
if os.fork() == 0:
    for number in 0, 1, 2:
        os.dup2(one.fileno(), number)
    one.close()
    listener.close()
    os.write(1, b"bye\n")
    os._exit(0)
one.close()
os.wait()
END
# The peer is the kernel's, so that no process but the server's has figures to tell.
talk() {  # talk NAME: the server NAME says only what the program wrote
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'hi\n' >&3
    [ "$(timeout 20 cat <&3)" = bye ] || die 'the peer got more than the bytes that the program wrote'
    exec 3<&-
    ended "$1"
}
serve server python3 server.py "$port"
talk server
grep -q '^rpma run --sockets: python3\[.* over TCP' server.out || die 'the server itself says nothing of its connection'

# A file gets a line from each process, also from one that has no name for it any more, behind what it has.
echo before >figures
port=$(free_port)
carried_by=(timeout 50 "$rpma" run --sockets --stats=figures --device memory)
cat >elsewhere.py <<'END'
import os, sys
os.chdir("/")
exec(open(sys.argv[2]).read())
END
serve elsewhere python3 elsewhere.py "$port" "$PWD/server.py"
talk elsewhere
[ ! -s elsewhere.out ] || die 'the figures are on standard error too'
sed -n 1p figures | grep -qx before || die 'the file lost what it had'
[ "$(grep -c '^rpma run --sockets: python3\[' figures)" -eq 2 ] || die "the file has: $(cat figures)"

code=0
"$rpma" run --sockets --stats=absent/figures true 2>errors || code=$?
[ $code -eq 1 ] || die "ended with $code"
grep -q "cannot open absent/figures for the figures of --stats: No such file or directory" errors || die "says: $(cat errors)"
