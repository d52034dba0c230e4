#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""carry_names.py RPMA: connections of `rpma run --sockets` go through memory also when another user has made the names first
that their user's table would have in /dev/shm. Where there can be no table, --stats and `rpma sockets` say so. What is no link
is not opened."""
import ctypes
import json
import os
import socket
import struct
import subprocess
import sys

OTHER = 65534
SHARED = "/dev/shm"
ROUNDS = 1000


def server():
    """Runs carried, in a process of its own: two processes have to find the same table."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    one, _ = listener.accept()
    while received := one.recv(100, socket.MSG_WAITALL):
        one.sendall(received)


def client(port):
    """Runs carried: tells its descriptor when it has used the connection, and waits for a line."""
    with socket.create_connection(("127.0.0.1", port)) as one:
        for _ in range(ROUNDS):
            one.sendall(b"x" * 100)
            assert one.recv(100, socket.MSG_WAITALL) == b"x" * 100
        print(one.fileno(), flush=True)
        sys.stdin.readline()


def carried(rpma, *arguments):
    command = [rpma, "run", "--sockets", "--device", "memory", "--stats", sys.executable, os.path.abspath(__file__)]
    return subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def talk(rpma):
    """Returns the client's row of `rpma sockets`, and its line of --stats."""
    one = carried(rpma, "--server")
    other = carried(rpma, "--client", one.stdout.readline().strip())
    fd = other.stdout.readline().strip()
    listed = subprocess.run([rpma, "sockets", "--json"], stdout=subprocess.PIPE, check=True, timeout=20).stdout
    rows = [row for row in json.loads(listed)["sockets"] if (row["process"], str(row["fd"])) == (other.pid, fd)]
    _, figures = other.communicate("\n", timeout=20)
    one.communicate(timeout=20)
    assert (one.returncode, other.returncode) == (0, 0), figures
    print(rows, figures, end="")
    return rows, figures


def goes_over_memory(rpma):
    _, figures = talk(rpma)
    assert " 1 connections over memory, 0 over a device, 0 over TCP;" in figures, figures


def stays_in_tcp(rpma):
    rows, figures = talk(rpma)
    assert " 0 connections over memory, 0 over a device, 1 over TCP (its user has no table in /dev/shm: 1);" in figures, figures
    return rows


def tell_place(table, place):
    """Writes this place of a link beside each name without one in the table (src/carry/meeting.cpp), and returns how many there are."""
    slot = struct.Struct("=QQ")
    with open(table, "r+b", 0) as file:
        names = [at for at, (name, known) in enumerate(slot.iter_unpack(file.read())) if name != 0 and known == 0]
        for at in names:
            file.seek(at * slot.size + slot.size // 2)
            file.write(struct.pack("=Q", place))
    return len(names)


def opens_only_links(rpma, table):
    """The descriptor of another process that a carried one takes for that of a link is a file of the program."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"{SHARED}/programs", "w+b") as file:
        events = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        in_open = 0x20
        assert libc.inotify_add_watch(events, file.name.encode(), in_open) >= 0
        listener = socket.create_server(("127.0.0.1", 0))
        client = carried(rpma, "--client", str(listener.getsockname()[1]))
        one, _ = listener.accept()
        told = 0
        for _ in range(ROUNDS):
            one.sendall(one.recv(100, socket.MSG_WAITALL))
            told = told or tell_place(table, os.getpid() << 32 | file.fileno())
        client.stdout.readline()
        _, figures = client.communicate("\n", timeout=20)
        assert told == 1 and "(the link of its other end cannot be mapped: 1)" in figures, (told, figures)
        opened = True
        try:
            os.read(events, 4096)
        except BlockingIOError:
            opened = False
        assert not opened, "a file of the program was opened"
    os.unlink(file.name)


def as_other(use):
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(OTHER, OTHER, OTHER)
        os.setresuid(OTHER, OTHER, OTHER)
        use()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def mount(size):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=1777,size={size}", "tmpfs", SHARED], check=True)


def main(rpma):
    first = f"{SHARED}/rpma-carry-{os.geteuid()}"
    if os.environ.get("RPMA_TEST_INSIDE") is None:
        os.environ["RPMA_TEST_INSIDE"] = "1"
        unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
        if subprocess.run([*unshare, "true"]).returncode != 0:
            print("SKIPPED, nothing was tested: no namespaces here: run it as root")
            sys.exit(77)
        os.execvp("unshare", [*unshare, sys.executable, os.path.abspath(__file__), rpma])

    mount("64m")
    goes_over_memory(rpma)
    assert sorted(os.listdir(SHARED)) == [os.path.basename(first), f"rsockets-{os.geteuid()}"], os.listdir(SHARED)
    opens_only_links(rpma, f"{first}/table")

    # Of a folder that others may read, of a file and of a link the name counts as little as of another user's.
    if sum(int(line.split()[2]) for line in open("/proc/self/uid_map")) > OTHER:
        mount("64m")
        as_other(lambda: (os.mkdir(first, 0o700), os.mkdir(first + "-1", 0o777), os.symlink("/tmp", first + "-2"), open(first + "-3", "w")))
        os.mkdir(first + "-4")
        for _ in range(2):
            goes_over_memory(rpma)
        assert sorted(os.listdir(first + "-5")) == ["table"], os.listdir(SHARED)
        # The others' names are gone, and the table stays the one that running processes have.
        os.rmdir(first)
        goes_over_memory(rpma)
        assert not os.path.exists(first)
        # Each process would look at all names that another user makes, so it looks at 4096.
        mount("64m")
        as_other(lambda: [os.mkdir(name) for name in [first, *(f"{first}-{number}" for number in range(1, 4096))]])
        stays_in_tcp(rpma)
        os.rmdir(f"{first}-4095")
        goes_over_memory(rpma)
        assert os.listdir(f"{first}-4095") == ["table"]

    mount("4k")
    with open(f"{SHARED}/full", "wb", 0) as full:
        full.write(bytes(4096))
    rows = stays_in_tcp(rpma)
    assert rows == [], "the registry has no room either"


if __name__ == "__main__":
    if sys.argv[1] == "--server":
        server()
    elif sys.argv[1] == "--client":
        client(int(sys.argv[2]))
    else:
        main(os.path.abspath(sys.argv[1]))
