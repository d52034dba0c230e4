#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Run in the kernel lab's guest: power cuts of a store at random moments of pushes, incremental pushes, pushes that are
cut off and go on, rollbacks, the removal of old contents, and pulls to a file beside it, on ext4, xfs and btrfs. device
mapper's log-writes records each write and flush of the disk below, and the moments at which a client had its answer. A power
cut is then a disk that has all that was flushed by a moment of the record, and any of the writes after that. It is mounted:
the contents that were acknowledged have to be there, each content has to be what was pushed, and the file of the pulls has
to be the content of the last one, or of the one that was under way. One of two faults has to be found: an fsync that does
nothing for what has a name, or for files.
    store-cuts.py BUILD-FOLDER     RPMA_CUTS: how many (default 20); RPMA_SEED: repeats a run's choices"""

import ctypes
import fcntl
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading

BUILD = os.path.abspath(sys.argv[1])
RPMA = f"{BUILD}/bin/rpma"
LYING = f"{BUILD}/tests/liblying_fsync.so"
CUTS = int(os.environ.get("RPMA_CUTS") or 20)
SEED = int(os.environ.get("RPMA_SEED") or random.randrange(1 << 31))
KEEP = 2
COMMANDS = 3  # of each of two clients, in a record; the third removes a content
WHERE = "127.0.0.1:7206"
BLOCK = 64 << 10  # of an incremental push
SIZES = {"ext4": 64, "xfs": 320, "btrfs": 256}  # MiB; mkfs.xfs makes no smaller one
MKFS = {"ext4": ["-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"], "xfs": ["-q", "-K"], "btrfs": ["-q", "-K"]}
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8  # flags of a record's entries
MAGIC = 0x6A736677736872
os.environ.update(DM_DISABLE_UDEV="1", RPMA_DEVICE="soft", PATH=os.environ["PATH"] + ":/usr/sbin:/sbin")
libc = ctypes.CDLL(None, use_errno=True)


class Bad(Exception):
    """A cut has lost a content, or made a false one."""


def call(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"FAILED: seed {SEED}: {' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def mount(device, kind, options=""):
    if libc.mount(device.encode(), b"mnt", kind.encode(), 0, options.encode()) != 0:
        raise Bad(f"{kind} cannot be mounted: {os.strerror(ctypes.get_errno())}")


def unmount():
    if libc.umount2(b"mnt", 0) != 0:
        raise SystemExit(f"FAILED: seed {SEED}: umount: {os.strerror(ctypes.get_errno())}")


class Loop:
    """A block device whose bytes are those of a file."""

    def __init__(self, path, mib=None):
        self.path = path
        if mib:
            with open(path, "wb") as file:
                file.truncate(mib << 20)
        self.device = call("losetup", "--find", "--show", path)

    def __enter__(self):
        return self.device

    def __exit__(self, *_):
        call("losetup", "--detach", self.device)


class Server:
    def __init__(self, lie=""):
        environment = dict(os.environ, **({"LD_PRELOAD": LYING, "RPMA_LIE": lie} if lie else {}))
        self.errors = open("server.err", "w+")
        self.process = subprocess.Popen([RPMA, "serve", "--store", "mnt/store", "--keep", str(KEEP), "--listen", WHERE],
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment)
        for line in self.process.stdout:
            if line.startswith("listening"):
                return
        self.errors.seek(0)
        raise Bad(f"no server: {self.errors.read()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Client(threading.Thread):
    """Changes one name by commands of rpma, one after the other, and has the record note each that has ended."""

    def __init__(self, name, chance, commands, mark):
        super().__init__()
        self.name_of_contents, self.chance, self.commands, self.mark = name, chance, commands, mark
        self.contents = {}  # what each sequence has when it has a content: bytes and label
        self.newest = b""
        self.failure = None

    def run(self):
        try:
            for number in range(1, self.commands + 1):
                self.do(number)
                self.mark(f"{self.name_of_contents}/{number}")
                call(RPMA, "pull", f"{WHERE}/{self.name_of_contents}", self.copy(), *self.chance.choice(((), ("--incremental",))))
                self.mark(f"{self.name_of_contents}={number}")
        except BaseException as failure:  # pylint: disable=broad-except
            self.failure = failure

    def do(self, number):
        name = f"{WHERE}/{self.name_of_contents}"
        kind = self.chance.choice(("push", "incremental", "incremental", "resume", "rollback")) if number > 1 else "incremental"
        if kind == "rollback" and number > 2:
            self.contents[number] = self.contents[number - 2]
            call(RPMA, "rollback", name)
        else:
            least = 8 * BLOCK if kind == "resume" else 1
            changed = self.changed() if kind == "incremental" else self.chance.randbytes(self.chance.randrange(least, 12 * BLOCK))
            label = f"{self.name_of_contents}-{number}"
            self.contents[number] = (changed, label)
            with open(f"{self.name_of_contents}.new", "wb") as file:
                file.write(changed)
            if kind == "resume":
                self.cut_off(file.name, name)
            call(RPMA, "push", file.name, name, "--wait", "60", "--label", label, *([f"--{kind}"] if kind in ("incremental", "resume") else []))
        self.newest = self.contents[number][0]

    def copy(self):
        """The file that each pull replaces, on the same disk."""
        return f"mnt/{self.name_of_contents}"

    def cut_off(self, file, name):
        """Ends a push at a random moment. Its rate lets it take longer."""
        with subprocess.Popen([RPMA, "push", "--resume", "--rate", "64K", file, name], stdout=subprocess.DEVNULL) as push:
            try:
                push.wait(self.chance.uniform(0.2, 2))
            except subprocess.TimeoutExpired:
                push.kill()
        assert push.returncode == -signal.SIGKILL, push.returncode

    def changed(self):
        """Returns the newest content with some of its bytes changed, and another length."""
        new = bytearray(self.newest) or bytearray(self.chance.randbytes(8 * BLOCK))
        for _ in range(2):
            at = self.chance.randrange(len(new))
            new[at : at + 100] = self.chance.randbytes(100)
        return bytes(new[: self.chance.randrange(len(new) // 2, len(new))]) + self.chance.randbytes(self.chance.randrange(BLOCK))


class Record:
    """What a store did to the disk below it."""

    def __init__(self, kind, chance, clients, commands, lie="", options=""):
        self.kind = kind
        with Loop("disk", SIZES[kind]) as disk, Loop("log", 512) as log:
            call(f"mkfs.{kind}", *MKFS[kind], disk)
            call("cp", "--sparse=always", "disk", "base")
            sectors = os.path.getsize("disk") // 512
            call("dmsetup", "create", "--addnodeoncreate", "rpma_log", "--table", f"0 {sectors} log-writes {disk} {log}")
            mount("/dev/mapper/rpma_log", kind, options)

            def mark(text):
                call("dmsetup", "message", "rpma_log", "0", "mark", text)

            self.clients = [Client(name, random.Random(chance.random()), commands, mark) for name in clients]
            with Server(lie):
                for client in self.clients:
                    client.start()
                for client in self.clients:
                    client.join()
            unmount()
            call("dmsetup", "remove", "rpma_log")
            for client in self.clients:
                if client.failure:
                    raise client.failure
            self.read_log()

    def read_log(self):
        self.entries = []  # (sector, bytes, flags), or (0, text, MARK)
        with open("log", "rb") as log:
            magic, _, count, sector_size = struct.unpack("<QQQI", log.read(28))
            assert magic == MAGIC and sector_size == 512, (magic, sector_size)
            log.seek(512)
            for _ in range(count):
                head = log.read(512)
                sector, sectors, flags, length = struct.unpack_from("<QQQQ", head)
                if flags & MARK:
                    self.entries.append((0, head[32 : 32 + length].rstrip(b"\0").decode(), MARK))
                else:
                    self.entries.append((sector, b"" if flags & DISCARD else log.read(sectors * 512), flags))
        self.marks = [i for i, entry in enumerate(self.entries) if entry[2] == MARK and re.search("[/=]", entry[1])]
        assert len(self.marks) == 2 * sum(client.commands for client in self.clients), self.marks

    def moments(self, chance, count):
        """Returns so many indexes of entries. Half of them are right behind an answer: a later write may hide a loss."""
        any_moment = [chance.randrange(len(self.entries)) for _ in range(count // 2)]
        return sorted(any_moment + [chance.choice(self.marks) for _ in range(count - count // 2)])

    def disk_after(self, moment, chance):
        """Makes the file `cut` the bytes of a disk whose power went after this entry. A write is on it that was flushed, or
        was forced; of the others any."""
        flushed = max((i for i in range(moment + 1) if self.entries[i][2] & FLUSH), default=-1)
        call("cp", "--sparse=always", "base", "cut")
        with open("cut", "r+b") as cut:
            portion = chance.random()  # of the writes that were not flushed
            for i, (sector, data, flags) in enumerate(self.entries[: moment + 1]):
                if flags != MARK and data and (i <= flushed or flags & FUA or chance.random() < portion):
                    os.pwrite(cut.fileno(), data, sector * 512)

    def number(self, text, moment):
        """Returns the number in the last mark up to an entry that begins with the text; 0 without one."""
        marks = (self.entries[i][1] for i in self.marks if i <= moment)
        return max((int(mark[len(text) :]) for mark in marks if mark.startswith(text)), default=0)

    def check(self, moment):
        """Compares the mounted store with what was acknowledged before this entry."""
        for client in self.clients:
            name = client.name_of_contents
            acknowledged = self.number(f"{name}/", moment)
            folder = f"mnt/store/{name}"
            files = os.listdir(folder) if os.path.isdir(folder) else []
            found = {int(file) for file in files if file.isdigit()}
            newest = max(found, default=0)
            if newest < acknowledged:
                raise Bad(f"LOST: {name} has content {acknowledged}, and is at {newest}: {files}")
            if newest > acknowledged + 1:
                raise Bad(f"FALSE: {name} has content {newest}, of which nobody was told at {acknowledged}")
            for sequence in range(max(newest - KEEP, 0) + 1, newest + 1):
                if sequence not in found:
                    raise Bad(f"LOST: {name} keeps {KEEP} contents, and {sequence} of {newest} is not there: {files}")
            for sequence in found:
                expected, label = client.contents[sequence]
                path = f"{folder}/{sequence}"
                with open(path, "rb") as file:
                    data = file.read()
                note = json.loads(os.getxattr(path, "user.rpma"))
                if data != expected or note["label"] != label or note["bytes"] != len(expected):
                    raise Bad(f"FALSE: {name}: content {sequence} has {len(data)} bytes ({digest(data)}), expected "
                              f"{len(expected)} ({digest(expected)}); its note is {note}; acknowledged were {acknowledged}")
            pulled = self.number(f"{name}=", moment)
            copies = [client.contents[sequence][0] for sequence in (pulled, pulled + 1) if sequence in client.contents]
            try:
                with open(client.copy(), "rb") as file:
                    data = file.read()
                if data not in copies:
                    raise Bad(f"FALSE: a pull of {name} has left {len(data)} bytes ({digest(data)}) after pull {pulled}")
            except FileNotFoundError:
                if pulled != 0:
                    raise Bad(f"LOST: the file of pull {pulled} of {name} is not there") from None
            strangers = [file for file in files if not re.fullmatch(r"[0-9]+|\.([0-9]+\.blocks|partial(\.blocks)?)", file)]
            if strangers:
                raise Bad(f"{name} has {strangers}")

    def go_on(self, chance):
        """A server takes the store, gives what it has, and takes pushes that build on it."""
        with Server():
            for client in self.clients:
                name = f"{WHERE}/{client.name_of_contents}"
                if glob.glob(f"mnt/store/{client.name_of_contents}/[0-9]*"):
                    call(RPMA, "pull", name, "got")
                    with open("got", "rb") as got:
                        client.newest = got.read()
                    if client.newest not in [content for content, _ in client.contents.values()]:
                        raise Bad(f"FALSE: a pull of {name} gives {len(client.newest)} bytes")
                client.chance = chance
                for option in ("--resume", "--incremental"):
                    client.newest = client.changed()
                    with open("new", "wb") as file:
                        file.write(client.newest)
                    push = (RPMA, "push", "new", name, option)
                    # What a push has left may be damaged. This one commits nothing then, and the next does not build on it.
                    if option != "--resume" or subprocess.run(push, capture_output=True, check=False).returncode == 3:
                        call(*push)
                    call(RPMA, "pull", name, "got")
                    with open("got", "rb") as got:
                        if got.read() != client.newest:
                            raise Bad(f"FALSE: a push {option} of {name} after the cut is another content")
            call(RPMA, "check", "--store", "mnt/store")

    def cut(self, device, moment, chance, goes_on):
        self.disk_after(moment, chance)
        mount(device, self.kind)
        try:
            self.check(moment)
            if goes_on:
                self.go_on(chance)
        finally:
            unmount()


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def forget_devices():
    """btrfs takes no older state of a file system that it has seen on another device."""
    with open("/dev/btrfs-control", "rb") as control:
        fcntl.ioctl(control, 0x5000_9405, bytearray(4096))


def cuts_of(kind, seed, count, goes_on):
    """Makes a record, and so many cuts of it. After one of them a server goes on, if `goes_on` says so."""
    chance = random.Random(seed)
    record = Record(kind, chance, ("first", "second"), COMMANDS)
    if kind == "btrfs":
        forget_devices()
    with Loop("cut", SIZES[kind]) as device:
        for number, moment in enumerate(record.moments(chance, count)):
            try:
                record.cut(device, moment, chance, goes_on and number == count // 2)
            except Bad as bad:
                raise SystemExit(f"FAILED: {kind}, RPMA_SEED={SEED}, record {seed}, after entry {moment} of "
                                 f"{len(record.entries)}: {bad}") from None
    return len(record.entries)


def finds(lie):
    """A server whose fsync lies has to lose a content, or to have a false one, in a cut right behind its answer."""
    chance = random.Random(SEED)
    record = Record("ext4", chance, ("first",), 1, lie, "commit=3600")  # only an fsync makes a journal durable
    with Loop("cut", SIZES["ext4"]) as device:
        try:
            record.cut(device, record.marks[0], chance, False)
        except Bad as bad:
            print(f"with RPMA_LIE={lie} fsync does nothing: found: {bad}", flush=True)
            return
    raise SystemExit(f"FAILED: seed {SEED}: with RPMA_LIE={lie} fsync does nothing is not found: this test can tell nothing")


def main():
    call("modprobe", "-a", "loop", "dm-log-writes")
    kinds = []
    for kind in SIZES:
        if shutil.which(f"mkfs.{kind}") and subprocess.run(["modprobe", kind], check=False).returncode == 0:
            kinds.append(kind)
        else:
            print(f"left out: {kind}, because mkfs.{kind} or its module is not there (utils/install-dependencies.sh lab)")
    print(f"seed {SEED}, {CUTS} cuts", flush=True)
    os.mkdir("mnt")
    finds(("name", "file")[SEED % 2])
    most = 40  # cuts of one record
    for number in range(0, CUTS, most * len(kinds)):
        of_kind = min(most, -(-(CUTS - number) // len(kinds)))
        for index, kind in enumerate(kinds):
            goes_on = CUTS > most or index == SEED % len(kinds)
            entries = cuts_of(kind, SEED + number, of_kind, goes_on)
            print(f"{kind}: {of_kind} cuts of {entries} entries: nothing acknowledged was lost, and nothing was false", flush=True)


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    try:
        main()
    except Bad as bad:
        raise SystemExit(f"FAILED: seed {SEED}, without a cut: {bad}") from None
    finally:
        libc.umount2(b"mnt", 2)  # what a failure has left: MNT_DETACH
        os.chdir("/")
