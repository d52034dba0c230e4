#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""carry_listed.py RPMA: `rpma sockets` shows the connections that `rpma run --sockets` carries: their bytes, those of them
that went through memory, and why a connection stays in TCP. `--stats` adds them up, with the reasons for which they came back."""
import json
import os
import socket
import subprocess
import sys


def ends():
    """Runs carried: tells its numbers at each step, and waits for a line."""
    def pause(word):
        print(word, client.fileno(), flush=True)
        sys.stdin.readline()

    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    pause("fresh")
    for _ in range(1000):
        client.sendall(b"x" * 100)
        assert len(server.recv(100, socket.MSG_WAITALL)) == 100
        server.sendall(b"y" * 10)
        assert len(client.recv(10, socket.MSG_WAITALL)) == 10
    pause("carried")
    server.send(b"!", socket.MSG_OOB)
    client.shutdown(socket.SHUT_WR)
    pause("shut")
    client.close()
    server.close()
    pause("closed")


def main(rpma):
    command = [rpma, "run", "--sockets", "--stats", "--device", "memory", sys.executable, os.path.abspath(__file__), "--ends"]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def at(step):
        """Returns the client's row when the program has come to the step, or None."""
        word, fd = program.stdout.readline().split()
        assert word == step, (word, step)
        listed = json.loads(subprocess.run([rpma, "sockets", "--json"], stdout=subprocess.PIPE, check=True, timeout=20).stdout)
        program_rows = [row for row in listed["sockets"] if row["process"] == program.pid]
        rows = [row for row in program_rows if str(row["fd"]) == fd]
        print(step, rows)
        program.stdin.write("\n")
        program.stdin.flush()
        assert len(rows) < 2
        return rows[0] if rows else None

    assert at("fresh") is None, "a connection that nobody uses costs a record"
    carried = at("carried")
    assert (carried["mode"], carried["link"], carried["state"], carried["reason"]) == ("carried", "memory", "established", None)
    assert (carried["sent_bytes"], carried["received_bytes"], carried["turns_back"]) == (100_000, 10_000, 0)
    assert 100_000 < carried["memory_bytes"] < 110_000 and carried["device_bytes"] == 0
    shut = at("shut")
    assert shut["reason"] == "the program shuts it down" and shut["turns_back"] == 1
    assert at("closed") is None
    _, figures = program.communicate(timeout=20)
    assert program.returncode == 0
    assert ": 2 connections over memory, 0 over a device, 0 over TCP; 110000 bytes received" in figures, figures
    assert figures.endswith("; 2 turns back to TCP (urgent data: 1)\n"), figures


if __name__ == "__main__":
    ends() if sys.argv[1] == "--ends" else main(os.path.abspath(sys.argv[1]))
