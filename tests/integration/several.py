#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""several.py RPMA PEER [FIRST_SEED HISTORIES [cut]]: a name on three servers is one atomic register. First come the cases
one by one, then random histories of several clients, while servers and clients are killed and stopped. A checker says of
each history whether it is that of a register, and finds what a reader does that writes nothing back. With `cut` only the
histories come: each server is in a network namespace of its own, and its network is cut too."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

RPMA, PEER = (os.path.abspath(path) for path in sys.argv[1:3])
LONGEST = 120  # seconds; no command takes longer, or it hangs


class Server:
    """A server of a store, which is killed and started again on its port."""

    def __init__(self, name, options=()):
        self.store = name
        self.options = options
        self.process = None
        self.port = 0
        self.start()

    def start(self):
        for _ in range(50):
            port = self.port
            if port == 0:
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    port = free.getsockname()[1]
            with open(f"{self.store}.err", "a") as log:
                self.process = subprocess.Popen(
                    [RPMA, "serve", "--store", self.store, "--listen", f"127.0.0.1:{port}", *self.options],
                    stdout=subprocess.PIPE, stderr=log, text=True)
            for line in self.process.stdout:
                if line.startswith("listening"):
                    self.port = port
                    return
            self.process.wait()
        fail(f"server {self.store} does not start: {open(self.store + '.err').read()}")

    def kill(self):
        self.process.kill()  # also when it has ended
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    @property
    def where(self):
        return f"127.0.0.1:{self.port}"


class FarServer(Server):
    """A server in a network namespace of its own, between which and the clients there is one link."""

    def __init__(self, name, number):
        self.number = number
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        ip("link", "add", f"far{number}", "type", "veth", "peer", "name", "near", "netns", str(self.holder.pid))
        ip("address", "add", f"10.99.{number}.1/24", "dev", f"far{number}")
        ip("link", "set", f"far{number}", "up")
        for words in (("address", "add", f"10.99.{number}.2/24", "dev", "near"), ("link", "set", "near", "up"),
                      ("link", "set", "lo", "up")):
            self.ip(*words)
        self.down = None
        super().__init__(name)

    def ip(self, *words):
        subprocess.run([*self.inside(), "ip", *words], check=True)

    def inside(self):
        return ["nsenter", "--net", "--target", str(self.holder.pid)]

    def start(self):
        with open(f"{self.store}.err", "a") as log:
            self.process = subprocess.Popen([*self.inside(), RPMA, "serve", "--store", self.store, "--listen", self.where],
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        for line in self.process.stdout:
            if line.startswith("listening"):
                return
        fail(f"server {self.store} does not start: {open(self.store + '.err').read()}")

    def cut(self, near):
        """Takes one end of its link down: the clients have no route then, or their packets are lost."""
        self.down = near
        if near:
            self.ip("link", "set", "near", "down")
        else:
            ip("link", "set", f"far{self.number}", "down")

    def mend(self):
        if self.down:
            self.ip("link", "set", "near", "up")
        else:
            ip("link", "set", f"far{self.number}", "up")

    @property
    def where(self):
        return f"10.99.{self.number}.2:7204"


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def fail(text):
    print(f"FAILED: {text}", file=sys.stderr)
    sys.exit(1)


def rpma(*words):
    return subprocess.run([RPMA, *words], capture_output=True, text=True, timeout=LONGEST)


def done(*words):
    result = rpma(*words)
    if result.returncode != 0:
        fail(f"{words} ended with {result.returncode}: {result.stdout}{result.stderr}")
    return result.stdout


def refused(code, text, *words):
    result = rpma(*words)
    if result.returncode != code or text not in result.stderr or result.stderr.count("\n") != 1:
        fail(f"{words} ended with {result.returncode}, expected {code} and \"{text}\": {result.stdout}{result.stderr}")
    return result.stdout


def newest(server, name="default"):
    """The newest content of a server, as `rpma list` has it."""
    return json.loads(done("list", f"{server.where}/{name}", "--json"))["contents"][-1]


def write(name, text):
    with open(name, "w") as file:
        file.write(text)
    return name


def read(name):
    with open(name) as file:
        return file.read()


@contextlib.contextmanager
def held(server):
    """Another push of the name is under way there, which never ends."""
    holder = subprocess.Popen([PEER, "hold", "127.0.0.1", str(server.port)], stdout=subprocess.PIPE)
    holder.stdout.readline()
    try:
        yield
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


# ---- The checker.


def violation(history):
    """Returns what shows that a history is none of a register; None when it is one. An operation is (kind, value, begin,
    end), and every push has another value. The end is None when it is unknown whether, and when, a push happened.

    A cluster is a push with the pulls of its value. Between the first end and the last begin of its operations the
    register has this value, when the first end comes first; otherwise all are at once, and the value may come and go
    between the last begin and the first end. The history is one of a register when no two clusters need the register
    at the same time, and none has to come and go while another needs it (Gibbons and Korach, 1997)."""
    forever = float("inf")
    clusters = {None: [("push", None, -2.0, -1.0)]}  # a pull of nothing
    for operation in history:
        if operation[0] == "push":
            clusters[operation[1]] = [operation]
    for operation in history:
        if operation[0] == "pull":
            if operation[1] not in clusters:
                return f"{operation} got what nobody pushed"
            if operation[3] < clusters[operation[1]][0][2]:
                return f"{operation} got what was pushed later"
            clusters[operation[1]].append(operation)
    needed, short = [], []
    for value, operations in clusters.items():
        if len(operations) == 1 and operations[0][3] is None:
            continue  # nobody saw it
        first_end = min(forever if end is None else end for _, _, _, end in operations)
        last_begin = max(begin for _, _, begin, _ in operations)
        (needed if first_end < last_begin else short).append(
            (min(first_end, last_begin), max(first_end, last_begin), value))
    needed.sort(key=lambda zone: zone[0])
    for one, next_one in zip(needed, needed[1:]):
        if next_one[0] < one[1]:
            return f"the register has {one[2]!r} and {next_one[2]!r} at once"
    for begin, end, value in short:
        for one in needed:
            if one[0] < begin and end < one[1]:
                return f"{value!r} comes and goes while the register has {one[2]!r}"
    return None


def test_checker():
    register = [("push", "a", 0, 1), ("push", "b", 2, 9), ("pull", "a", 3, 4), ("pull", "b", 5, 6), ("push", "c", 7, None)]
    for history in (register, register + [("pull", "c", 8, 10)], register + [("pull", "c", 8, 10), ("pull", "c", 11, 12)],
                    [("pull", None, 0, 1), ("push", "a", 0, 3), ("pull", "a", 2, 4)]):
        if violation(history):
            fail(f"the checker refuses {history}: {violation(history)}")
    for extra in ([("pull", "a", 7, 8)], [("pull", "x", 7, 8)], [("pull", None, 7, 8)], [("pull", "c", 2, 3)],
                  [("pull", "c", 8, 10), ("pull", "b", 11, 12)], [("push", "d", 10, 11), ("pull", "b", 12, 13)],
                  [("push", "d", 10, 11), ("pull", "d", 12, 13), ("push", "e", 12.2, 12.3), ("pull", "d", 14, 15)]):
        if not violation(register + extra):
            fail(f"the checker takes {register + extra}")


# ---- Clients of the register that note what they do.


class Clients:
    def __init__(self, servers, name="default"):
        self.servers = servers
        self.name = name
        self.history = []
        self.lock = threading.Lock()
        self.counts = {}

    def note(self, *operation):
        with self.lock:
            self.history.append(operation)

    def run(self, words, patience=None):
        """Runs a command, and kills it after so many seconds, if any. Returns its exit code, None when it was killed, and
        what it says."""
        process = subprocess.Popen([RPMA, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            code = None
            _, text = process.communicate(timeout=LONGEST if patience is None else patience)
            code = process.returncode
            if code not in (0, 1, 3, 4, 5, 6, 7):
                fail(f"{words} ended with {code}: {text}")
        except subprocess.TimeoutExpired:
            if patience is None:
                fail(f"{words} hangs")
            process.kill()
            _, text = process.communicate()
        with self.lock:
            self.counts[words[0], code] = self.counts.get((words[0], code), 0) + 1
        return code, text

    def where(self):
        return [f"{server.where}/{self.name}" for server in self.servers]

    def push(self, value, *options, patience=None):
        file = write(f"{value}.value", value)
        begin = time.monotonic()
        code, _ = self.run(["push", file, *self.where(), *options], patience)
        end = time.monotonic()
        if code == 0:
            self.note("push", value, begin, end)
        elif code in (None, 4):
            self.note("push", value, begin, None)  # otherwise it says that nothing was committed
        return code

    def pull(self, file, *options, patience=None):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)
        begin = time.monotonic()
        code, text = self.run(["pull", *self.where(), file, *options], patience)
        end = time.monotonic()
        if code == 0:
            self.note("pull", read(file), begin, end)
        elif code == 1 and "nothing was pushed" in text:
            self.note("pull", None, begin, end)
        return code

    def pull_without_write_back(self, file):
        """A planted defect: the newest content of a majority, and no more."""
        begin = time.monotonic()
        found = []
        for server in self.servers:
            result = rpma("list", f"{server.where}/{self.name}", "--json")
            if result.returncode == 0:
                epoch, number, writer = json.loads(result.stdout)["contents"][-1]["tag"].split(".")
                found.append(((int(epoch), int(number), writer), server))
        if len(found) < 2:
            fail("no majority")
        done("pull", f"{max(found, key=lambda one: one[0])[1].where}/{self.name}", file)
        self.note("pull", read(file), begin, time.monotonic())


# ---- The cases.


def test_cases(servers):
    a, b, c = servers
    where = [server.where for server in servers]
    one, two, three = (write(name, name * 1000) for name in ("one", "two", "three"))

    refused(6, "nothing was pushed to these servers yet", "pull", *where, "got")
    table = done("push", one, *where, "--quorum", "3", "--label", "first")
    if len(re.findall(r"^127\.0\.0\.1:\d+ +committed +1$", table, re.M)) != 3:
        fail(f"expected three rows: {table}")
    if len({newest(server)["tag"] for server in servers}) != 1 or not newest(a)["tag"].startswith("0.1."):
        fail("the servers have several tags")
    done("pull", *where, "got")
    if read("got") != read(one):
        fail("another content")

    # One server is not there. It gets the content from a pull, which needs it for its majority.
    c.kill()
    summary = json.loads(done("push", two, *where, "--label", "second", "--json"))
    if [row["result"] for row in summary["servers"]] != ["committed", "committed", "failed"] or summary["committed"] != 2:
        fail(f"expected two of three: {summary}")
    if f"{c.where}: " not in summary["servers"][2]["reason"]:
        fail(f"the reason names no server: {summary}")
    refused(7, "default: 2 of 3 servers answer (expected 3)", "push", three, *where, "--quorum", "3")
    c.start()
    a.kill()
    if newest(c)["label"] != "first":
        fail("the server that was away has the content already")
    done("pull", *where, "got")
    if read("got") != read(two) or newest(c)["tag"] != newest(b)["tag"] or newest(c)["label"] != "second":
        fail(f"no write-back: {newest(c)}")

    # A minority decides nothing.
    b.kill()
    before = newest(c)
    for words in (("push", three, *where), ("pull", *where, "got")):
        out = refused(7, "default: 1 of 3 servers answer (expected 2): ", *words)
        if out.count("failed") != 2 or out.count("unchanged") != 1:
            fail(f"expected a row for each server: {out}")
    if newest(c) != before or read("got") != read(two):
        fail("a minority changed something")
    a.start()
    b.start()

    # What makes no register.
    for words, text in (((*where, "--quorum", "1"), "--quorum 1: expected 2 to 3 of 3 servers"),
                        ((*where, "--quorum", "4"), "--quorum 4: expected 2 to 3 of 3 servers"),
                        ((where[0], where[0]), "is there twice"),
                        ((where[0], f"127.1:{a.port}", where[1], "--quorum", "3"), "two of the addresses lead to one server"),
                        ((where[0], f"{where[1]}/other"), "(expected one name)"),
                        ((*where, "--if-sequence", "1"), "each of several has its own sequences")):
        refused(2, text, "push", three, *words)
    twice = (where[0], f"127.1:{a.port}", where[1])
    told = rpma("push", three, *[f"{server}/twice" for server in twice])
    if told.returncode != 0 or "committed on 2 of 3 servers" not in told.stderr or "leads to the same server as" not in told.stderr:
        fail(f"two addresses of one server: {told}")
    b.kill()
    refused(2, "two of the addresses lead to one server", "push", three, *[f"{server}/twice" for server in twice])
    b.start()
    refused(2, "expected a file", "push", "-", *where)
    refused(2, "expected a file", "pull", *where, "-")
    refused(2, "expected a file", "pull", *where, "/dev/stdout")
    refused(2, "each of several has its own sequences", "pull", *where, "got", "--sequence", "1")
    refused(6, "default is kept on several servers", "push", three, where[0])
    refused(6, "default is kept on several servers, where no content is committed again", "rollback", where[0])
    refused(1, "fe80::1: needs its interface", "push", write("[three]", "3"), "[fe80::1]", "[fe80::1]:1", "--label", "[x]")
    done("push", "[three]", f"{where[0]}/alone", "--quorum", "1", "--label", "[x]")
    if newest(a, "alone")["label"] != "[x]":
        fail("another label")
    done("pull", f"{where[0]}/alone", "[four]")
    if read("[four]") != "3":
        fail("another content")
    done("pull", where[0], "got")  # that of this server

    # A content that was truncated is none, and comes back with its tag from a pull that its server answers in time.
    os.truncate(f"{a.store}/default/{newest(a)['sequence']}", 1)
    for _ in range(100):
        done("pull", *where, "got")
        if read("got") != read(two):
            fail("another content")
        if not newest(a)["fault"]:
            break
    if newest(a)["fault"] or newest(a)["tag"] != newest(b)["tag"]:
        fail(f"a truncated content stays: {newest(a)}")

    # A server that is stopped is left behind.
    c.process.send_signal(signal.SIGSTOP)
    done("push", three, *where)
    done("pull", *where, "got")
    c.process.send_signal(signal.SIGCONT)
    if read("got") != read(three):
        fail("another content")

    # An epoch fences lower ones, also after all servers have started again.
    done("push", one, *where, "--epoch", "5", "--quorum", "3")
    for server in servers:
        server.kill()
        server.start()
    for words in (("--epoch", "4"), ()):
        refused(6, "default: a server has a content of epoch 5, which fences epoch", "push", two, *where, *words)
    done("push", two, *where, "--epoch", "5")
    done("push", three, *where, "--epoch", "7")
    # A server that did not hear of it is not needed: a majority did.
    refused(6, "which fences epoch 5", "push", two, *where, "--epoch", "5")
    done("pull", *where, "got")
    if read("got") != read(three):
        fail("a writer that is fenced has written")


def test_writers(servers):
    """Several writers at once: each succeeds, and one is the last everywhere."""
    clients = Clients(servers, "writers")
    threads = [threading.Thread(target=clients.push, args=(f"writer{i}", "--wait", "60", "--quorum", "3")) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if clients.counts != {("push", 0): 4}:
        fail(f"expected four pushes: {clients.counts}")
    clients.pull("last")
    if why := violation(clients.history):
        fail(f"{why}: {clients.history}")
    if len({newest(server, "writers")["tag"] for server in servers}) != 1:
        fail("the servers have several newest contents")


def test_write_back(servers, writes_back):
    """A push that reached one server only: once a pull has given it, every later pull does."""
    clients = Clients(servers)
    pull = clients.pull if writes_back else clients.pull_without_write_back
    a, b, c = servers
    kind = "good" if writes_back else "bad"
    clients.push(f"{kind}-old", "--epoch", "9", "--quorum", "3")
    with held(b), held(c):
        if clients.push(f"{kind}-new", "--epoch", "9", "--wait", "0") != 4:
            fail("a push that one of three servers committed is not unknown")
    c.kill()
    pull("got")
    c.start()
    a.kill()
    pull("got")
    a.start()
    why = violation(clients.history)
    if writes_back and why:
        fail(f"{why}: {clients.history}")
    if not writes_back and not why:
        fail(f"the checker does not find that nothing is written back: {clients.history}")


def test_a_server_that_goes(servers):
    """The server with the newest content goes while it gives that. A shorter one, of the others, is pulled and written back."""
    a, b, c = servers
    where = [server.where for server in servers]
    epoch = ("--epoch", "9")
    done("push", write("old", "old"), *where, *epoch, "--quorum", "3")
    c.kill()
    done("push", write("short", "short"), *where, *epoch)
    c.start()
    with held(b), held(c):
        if rpma("push", write("long", "long" * 5_000_000), *where, *epoch, "--wait", "0").returncode != 4:
            fail("a push that one of three servers committed is not unknown")
    pull = subprocess.Popen([RPMA, "pull", *where, "got", "--rate", "4M"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def has_begun():
        for fd in os.listdir(f"/proc/{pull.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if os.stat(f"/proc/{pull.pid}/fd/{fd}").st_size > 1_000_000:
                    return True
        return pull.poll() is not None

    while not has_begun():
        pass
    a.kill()
    _, text = pull.communicate(timeout=LONGEST)
    a.start()
    if pull.returncode != 0 or read("got") != "short" or newest(c)["tag"] != newest(b)["tag"]:
        fail(f"a pull whose server went ended with {pull.returncode}: {text}")


def test_a_long_label(servers):
    """A server that tells a longer label than there is: the pull cuts it, and writes the content back."""
    a, b, c = servers
    where = [f"{server.where}/labelled" for server in servers]
    c.kill()
    done("push", write("labelled", "labelled"), *where, "--label", "short")
    for server in (a, b):
        server.kill()
        file = f"{server.store}/labelled/1"
        note = json.loads(os.getxattr(file, "user.rpma"))
        os.setxattr(file, "user.rpma", json.dumps({**note, "label": "x" * 1000}).encode())
    b.start()
    c.start()
    done("pull", *where, "got")
    a.start()
    if read("got") != "labelled" or newest(c, "labelled")["label"] != "x" * 64:
        fail(f"another content or label: {newest(c, 'labelled')}")


def test_what_differs(servers):
    """A pull receives the blocks that differ from the file, from the server that it asks, and the content is written back."""
    where = [f"{server.where}/blocks" for server in servers]
    file = write("blocks", "block" * 60_000)
    servers[2].kill()
    done("push", file, *where, "--incremental")
    servers[2].start()
    with open(write("got", read(file)), "r+") as got:
        got.seek(100_000)
        got.write("other")
    pull = json.loads(done("pull", *where, "got", "--incremental", "--json"))
    if pull["received"] != 65536 or read("got") != read(file) or newest(servers[2], "blocks")["tag"] != pull["tag"]:
        fail(f"a pull of what differs: {pull}")


def test_no_commit():
    """The servers tell their tags, and then none commits: they have no room, are busy, or are killed while the bytes come."""
    servers = [Server(f"small{i}", ("--max-bytes", "16M")) for i in range(3)]
    try:
        where = [server.where for server in servers]
        refused(6, "committed on 0 of 3 servers (expected 2); nothing was committed: ", "push", write("large", "large" * 4_000_000), *where)
        with held(servers[0]), held(servers[1]), held(servers[2]):
            refused(5, "committed on 0 of 3 servers (expected 2); nothing was committed: ", "push", write("small", "small"), *where,
                    "--wait", "0")
        push = subprocess.Popen([RPMA, "push", write("slow", "slow" * 1_000_000), *where, "--rate", "64K"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for server in servers:
            while push.poll() is None and not json.loads(done("status", server.where, "--json"))["pushes"]:
                pass
        for server in servers:
            server.kill()
        _, text = push.communicate(timeout=LONGEST)
        if push.returncode != 3 or "committed on 0 of 3 servers (expected 2); nothing was committed: " not in text:
            fail(f"a push whose servers were killed ended with {push.returncode}: {text}")
    finally:
        for server in servers:
            server.kill()


def test_a_damaged_server(servers):
    """The newest content of one server is damaged, and another server is away: the third gives it, whichever is asked first."""
    a, b, c = servers
    epoch = ("--epoch", "10")
    for number, order in enumerate(((a, b, c), (b, a, c), (c, a, b))):
        text = f"damaged{number} " * 1000
        where = [server.where for server in order]
        done("push", write("whole", text), *where, *epoch, "--quorum", "3")
        c.kill()
        os.truncate(f"{a.store}/default/{newest(a)['sequence']}", number)
        table = done("pull", *where, "got")
        if read("got") != text or newest(a)["fault"] or newest(a)["tag"] != newest(b)["tag"]:
            fail(f"a pull from {where}, of which the first two are a damaged one and a good one: {table} {newest(a)}")
        c.start()
    # A content whose bytes alone are wrong is found by the pull. Its server takes it for good, so it makes no majority.
    c.kill()
    with open(f"{a.store}/default/{newest(a)['sequence']}", "r+") as content:
        content.write("changed")
    out = refused(7, "could not be written back to a majority; got was not written", "pull", *[server.where for server in servers], "got")
    if "Connection refused" not in out:
        fail(f"expected why the third server gives nothing: {out}")
    c.start()
    done("pull", *[server.where for server in servers], "got")
    if read("got") != text:
        fail("another content")
    done("push", "whole", *[server.where for server in servers], *epoch, "--quorum", "3")


def test_a_lost_tag(servers):
    """The newest content of a server has lost its attribute, and with it its tag. The server counts in no majority until the next
    push or pull has it commit a content."""
    a, b, c = servers
    where = [f"{server.where}/lost" for server in servers]

    def lose(server, name="lost"):
        server.kill()
        os.removexattr(f"{server.store}/{name}/{newest_before[server]}", "user.rpma")
        server.start()

    def agree(text):
        for server in servers:
            newest_before[server] = newest(server, "lost")["sequence"]
        if len({newest(server, "lost")["tag"] for server in servers}) != 1:
            fail("the servers have several tags")
        done("pull", *where, "got")
        if read("got") != text:
            fail("another content")

    newest_before = {}
    for text in ("1", "2"):
        done("push", write("lost", text), *where, "--quorum", "3")
    agree("2")
    lose(c)
    done("pull", *where, "got")
    agree("2")
    lose(c)
    done("push", write("lost", "3"), *where, "--quorum", "3")
    agree("3")
    # It takes the place of no server that is away.
    lose(c)
    a.kill()
    for words in (("push", "lost", *where), ("pull", *where, "got")):
        out = refused(7, "lost: 1 of 3 servers answer (expected 2): ", *words)
        if f"{c.where}: a content of lost has lost its tag" not in out or out.count("lost its tag") != 2:
            fail(f"expected the reason: {out}")
    a.start()
    # When all servers answer, a push goes on without the tags that are lost.
    lose(b)
    refused(6, "lost: 1 of 3 servers answer (expected 2): ", "pull", *where, "got")
    done("push", write("lost", "4"), *where)
    agree("4")
    for text in ("1", "2"):
        done("push", write("lost", text), f"{where[0]}-alone", "--quorum", "1")
    newest_before[a] = 2
    lose(a, "lost-alone")
    refused(6, "lost-alone is kept on several servers", "push", "lost", f"{where[0]}-alone")
    done("push", write("lost", "3"), f"{where[0]}-alone", "--quorum", "1")
    done("pull", f"{where[0]}-alone", "got")
    if read("got") != "3":
        fail("another content")


def test_rights():
    """A client that may only push pushes. One that may only pull gets what a majority has, and writes nothing back."""
    for name in ("writer", "reader"):
        done("keygen", name, f"{name}.key")
    write("keys", read("writer.key") + read("reader.key"))
    os.chmod("keys", 0o600)
    servers = [Server(f"kept{i}", ("--psk", "keys", "--allow", "push=writer,pull=reader")) for i in range(3)]
    try:
        where = [server.where for server in servers]
        done("push", write("first", "first"), *where, "--psk", "writer.key", "--quorum", "3")
        servers[2].kill()
        done("push", write("second", "second"), *where, "--psk", "writer.key")
        servers[2].start()
        done("pull", *where, "got", "--psk", "reader.key")
        if read("got") != "second":
            fail("another content")
        servers[0].kill()
        refused(7, "could not be written back to a majority; other was not written", "pull", *where, "other", "--psk", "reader.key")
        servers[0].start()
        if os.path.exists("other") or len(os.listdir("kept2/default")) != 1:
            fail("a client that may not push has changed something")
    finally:
        for server in servers:
            server.kill()


# ---- Random histories.


def random_history(seed, servers, clients_count=4, operations=5):
    """Clients that push and pull, and kill, stop and cut off servers between that. At most one server is away."""
    clients = Clients(servers, f"seed{seed}")
    chaos = threading.Lock()
    away = []  # what brings a server back
    ways = [(lambda server: (server.kill, server.start)), (lambda server: (server.stop, server.go_on))]
    if isinstance(servers[0], FarServer):
        ways += [(lambda server: (lambda: server.cut(True), server.mend)), (lambda server: (lambda: server.cut(False), server.mend))]

    def come_back():
        while away:
            away.pop()()

    def disturb(dice):
        with chaos:
            come_back()
            go, back = dice.choice(ways)(dice.choice(servers))
            go()
            away.append(back)

    def work(number):
        dice = random.Random(f"{seed} {number}")
        for i in range(operations):
            if dice.random() < 0.4:
                disturb(dice)
            patience = dice.uniform(0.0, 0.2) if dice.random() < 0.25 else None  # it is killed then
            options = ("--timeout", "2", "--wait", "2")
            if dice.random() < 0.5:
                clients.push(f"{seed}-{number}-{i}", *options, patience=patience)
            else:
                clients.pull(f"got{number}", *options, patience=patience)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    come_back()
    clients.pull("got")  # the last, of all
    why = violation(clients.history)
    print(f"seed {seed}: {clients.counts}")
    if why:
        fail(f"seed {seed}: {why}: {sorted(clients.history, key=lambda operation: operation[2])}")
    return clients.counts


def main():
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    test_checker()
    if subprocess.run(["stat", "-f", "-c", "%T", "."], capture_output=True, text=True).stdout.strip() in ("tmpfs", "ramfs"):
        print("skipped: the build folder is in memory, where nothing is durable")
        sys.exit(77)
    cuts = len(sys.argv) > 5
    if cuts and "RPMA_TEST_INSIDE" not in os.environ:
        os.environ["RPMA_TEST_INSIDE"] = "1"
        os.environ["SOFTRDMA_SHM"] = "off"  # no byte travels beside the network
        options = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"] + (["--map-root-user"] if os.getuid() != 0 else [])
        veth = "ip link add probe0 type veth peer name probe1"
        for probe, why in ("true", "no namespaces here: run it as root"), (veth, "no pairs of veth here"):
            if subprocess.run(["unshare", *options, "sh", "-c", probe]).returncode != 0:
                print(f"SKIPPED, nothing was tested: {why}")
                sys.exit(77)
        os.execvp("unshare", ["unshare", *options, sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory(dir=".") as work:
        os.chdir(work)
        servers = [FarServer(name, number) if cuts else Server(name) for number, name in enumerate("abc")]
        try:
            if not cuts:
                test_cases(servers)
                test_writers(servers)
                test_write_back(servers, True)
                test_write_back(servers, False)
                test_a_server_that_goes(servers)
                test_a_damaged_server(servers)
                test_a_lost_tag(servers)
                test_a_long_label(servers)
                test_what_differs(servers)
                test_no_commit()
                test_rights()
            ended = {}
            for seed in range(first, first + count):
                for what, times in random_history(seed, servers).items():
                    ended[what] = ended.get(what, 0) + times
            if count and (not ended.get(("push", 0)) or not ended.get(("pull", 0))):
                fail(f"no push or no pull succeeded: {ended}")
        finally:
            for server in servers:
                server.kill()
            os.chdir("..")


main()
