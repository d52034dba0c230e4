#!/usr/bin/python3.11
# SPDX-License-Identifier: BSD-3-Clause
"""carry_python.py RPMA [MODULE...]: runs Python's own tests of sockets (libpython3.11-testsuite) over TCP, and under
`rpma run --sockets --device memory` as a user has it, with connections that go over to memory at once, and with those that
go to and fro. A test that passes over TCP passes there. Without MODULE it runs a few fast ones, with `all` all but those of multiprocessing, and with
`long` these; MODULE may name a class too, as test_socket.BasicTCPTest. Each module runs in a process of its own, and a test that takes longer than its
limit ends that process; the tests behind it run in another one."""

import faulthandler
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

FAST = ["test_epoll", "test_telnetlib", "test_asyncio.test_streams", "test_socket.BasicTCPTest",
        "test_socket.NonBlockingTCPTests", "test_socket.RecvmsgTCPTest"]
ALL = ["test_socket", "test_asyncio", "test_ssl", "test_select", "test_poll", "test_epoll", "test_selectors",
       "test_socketserver", "test_asyncore", "test_asynchat", "test_telnetlib", "test_ftplib", "test_imaplib", "test_poplib",
       "test_smtplib", "test_httplib", "test_httpservers", "test_xmlrpc"]
LONG = ["test_multiprocessing_fork", "test_multiprocessing_spawn", "test_multiprocessing_forkserver"]
# Its server takes each piece that it receives for a whole request, and in the third way pieces come that TCP might make.
TAKES_PIECES = ["test.test_httplib.BasicTest.test_large_content_length"]
LIMIT = 60  # seconds for one test


def tests_of(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from tests_of(one)
        else:
            yield one


class Log(unittest.TestResult):
    """Writes a line when a test begins, and one with its outcome."""

    def __init__(self, path):
        super().__init__()
        self.log = open(path, "a", buffering=1)
        self.passed = True

    def startTest(self, test):
        super().startTest(test)
        self.passed = True
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        print("begin", test.id(), file=self.log)

    def stopTest(self, test):
        super().stopTest(test)
        if self.passed:
            self.tell("ok", test)

    def tell(self, outcome, test):
        self.passed = False
        print(outcome, test.id(), file=self.log)

    def fail(self, test, error):
        print(f"==== {test.id()}\n{self._exc_info_to_string(error, test)}", file=sys.stderr, flush=True)
        self.tell("failed", test)

    addError = addFailure = fail

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.fail(test, error)

    def addSkip(self, test, reason):
        self.tell("skipped", test)

    def addExpectedFailure(self, test, error):
        pass


def run_here(name, path, done):
    """Runs a module's tests but those whose names are in the file `done`."""
    from test import support
    # Other modules would ask hosts of the Internet.
    support.use_resources = ["network"] if name.startswith("test_socketserver") else []
    support.verbose = 0
    done = set(open(done).read().split())
    suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{name}")
    unittest.TestSuite(one for one in tests_of(suite) if one.id() not in done).run(Log(path))
    print("end", name, file=open(path, "a"))


def outcomes(command, environment, name, folder):
    """Returns what became of each test of a module: its outcome by its name."""
    result = {}
    output = open(os.path.join(folder, "output"), "wb")
    log, done = (os.path.join(folder, which) for which in ("log", "done"))
    while True:
        with open(done, "w") as file:
            file.write("\n".join(result))
        open(log, "w").close()
        process = subprocess.Popen([*command, sys.executable, __file__, "--here", name, log, done], stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=output, cwd=folder, start_new_session=True,
                                   env={**os.environ, **environment})
        try:
            process.wait(1800)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        lines = [line.split(maxsplit=1) for line in open(log).read().splitlines()]
        for outcome, test in lines:
            if outcome != "end" and result.get(test) != "failed":
                result[test] = outcome
        if not lines or lines[-1][0] in ("end", "ok", "failed", "skipped"):
            if not lines:
                result[name] = "did not begin"
            elif lines[-1][0] != "end":
                result[name] = f"ended with {process.returncode}"
            return result
        result[lines[-1][1]] = f"did not end, or ended the process with {process.returncode}"


def main(rpma, names):
    if importlib.util.find_spec("test.test_socket") is None:
        print("Python's tests are not installed (libpython3.11-testsuite, group compat of utils/install-dependencies.sh)")
        return 77
    names = {"all": ALL, "long": LONG}.get(names[0], names) if names else FAST
    carried = [os.path.abspath(rpma), "run", "--sockets", "--device", "memory"]
    at_once = {"RPMA_CARRY_AFTER": "1"}
    ways = {"carried": (carried, {}), "carried at once": (carried, at_once),
            "carried to and fro": (carried, {**at_once, "RPMA_CARRY_SHAKE": "1"})}
    count = differences = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            plain = outcomes([], {}, name, folder)
        good = [test for test, outcome in plain.items() if outcome == "ok"]
        count += len(good)
        print(f"{name}: {len(good)} of {len(plain)} tests pass over TCP", flush=True)
        for way, (command, environment) in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                found = outcomes(command, environment, name, folder)
                excused = TAKES_PIECES if "RPMA_CARRY_SHAKE" in environment else []
                different = [test for test in good if found.get(test) != "ok" and test not in excused]
                if different:
                    sys.stdout.buffer.write(open(os.path.join(folder, "output"), "rb").read()[-20000:])
                for test in different:
                    print(f"{test}: {way}: {found.get(test, 'did not run')}", flush=True)
                differences += len(different)
    print(f"{count} tests pass over TCP; {differences} differences")
    return 1 if differences or not count else 0


if __name__ == "__main__":
    if sys.argv[1] == "--here":
        run_here(*sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
