#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""stopped_reader.py RPMA: whoever reads the output of a server stops, and the server goes on. It keeps the lines for a reader
that goes on too, and its end does not wait for one that does not."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

RPMA = os.path.abspath(sys.argv[1])
LONGEST = 60  # seconds; nothing takes longer, or it hangs
PUSHES = 40


class Server:
    """Its output goes to pipes of a page, which nobody reads after its start."""

    def __init__(self, store):
        for _ in range(50):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.address = f"127.0.0.1:{free.getsockname()[1]}"
            self.process = subprocess.Popen(
                [RPMA, "serve", "--store", store, "--json", "--listen", self.address], bufsize=0,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "RPMA_LOG": "stderr:debug"})
            for pipe in (self.process.stdout, self.process.stderr):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
            if b"listening" in self.process.stdout.readline():
                return
            self.process.communicate(timeout=LONGEST)
        raise SystemExit("FAILED: no server")

    def end(self):
        self.process.send_signal(signal.SIGTERM)

    def has_ended(self):
        code = self.process.wait(timeout=LONGEST)
        if code != 0:
            raise SystemExit(f"FAILED: the server ended with {code}")


def push(server, name):
    subprocess.run([RPMA, "push", "content", f"{server.address}/{name}"], check=True, timeout=LONGEST, stdout=subprocess.DEVNULL)


def main():
    with tempfile.TemporaryDirectory(dir=".") as folder:
        os.chdir(folder)
        with open("content", "wb") as content:
            content.write(b"content")
        server = Server("store")
        try:
            for number in range(PUSHES):
                push(server, f"name{number}")
            # Both readers go on, and get all lines.
            server.end()
            out, err = server.process.communicate(timeout=LONGEST)
            server.has_ended()
            committed = [json.loads(line)["name"] for line in out.splitlines()]
            if committed != [f"name{number}" for number in range(PUSHES)]:
                raise SystemExit(f"FAILED: these commits are told: {committed}")
            if err.count(b"\n") < PUSHES or b"are lost" in err:
                raise SystemExit("FAILED: lines of the log are lost")
            server = Server("store")
            for number in range(PUSHES):
                push(server, f"name{number}")
            server.end()
            server.has_ended()
        finally:
            server.process.kill()
            server.process.wait()
            os.chdir("..")


if __name__ == "__main__":
    main()
