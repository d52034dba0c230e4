#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_python.sh RPMA: Python's http.server, carried, with a thread or a child for each connection, serves curl
# carried and over TCP; then asyncio runs at both ends.
. "$(dirname "$0")/sockets.bash" "$1" python3 curl

head -c 3M /dev/urandom >file
cat >server.py <<'END'
import http.server, signal, socketserver, sys
class Forking(socketserver.ForkingMixIn, http.server.HTTPServer):
    pass
class Threading(http.server.ThreadingHTTPServer):
    pass
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
server = {"Threading": Threading, "Forking": Forking}[sys.argv[1]]
server(("127.0.0.1", int(sys.argv[2])), http.server.SimpleHTTPRequestHandler).serve_forever()
END
cat >echo.py <<'END'
import asyncio, sys
async def handle(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def client(port, number):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = bytes((i * 7 + number) % 251 for i in range(300000))
    writer.write(sent)
    writer.write_eof()
    assert await reader.read() == sent
    writer.close()
async def main(port):
    server = await asyncio.start_server(handle, "127.0.0.1", port)
    await asyncio.gather(*[client(port, i) for i in range(10)])
    server.close()
asyncio.run(main(int(sys.argv[1])))
END

fetch() { curl -sS --max-time 20 "http://127.0.0.1:$port/file" | cmp - file; }

serve server python3 server.py Threading "$port"
for _ in 1 2 3; do
    carry curl -sS --max-time 20 "http://127.0.0.1:$port/file" 2>>curl.out | cmp - file || die "curl got something else"
done
carried curl.out
fetch || die "curl over TCP got something else"
stop server TERM

port=$(free_port)
serve children python3 server.py Forking "$port"
carry curl -sS --max-time 20 "http://127.0.0.1:$port/file" 2>child.out | cmp - file || die "a child sent something else"
carried child.out
fetch || die "a child sent something else over TCP"
stop children TERM

# Only the client is carried: its connection stays in TCP.
port=$(free_port)
timeout 50 python3 server.py Threading "$port" >plain.out 2>&1 &
background+=("$!")
until listening "$port"; do sleep 0.02; done
carry curl -sS --max-time 20 "http://127.0.0.1:$port/file" 2>tcp.out | cmp - file || die "curl got something else over TCP"

port=$(free_port)
carry python3 echo.py "$port" >echo.out 2>&1 || die "asyncio failed"
carried echo.out
