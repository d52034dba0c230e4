#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""service.py RPMA UNIT: runs the command of the unit rpma-serve@.service as systemd would, for an instance with a file of
settings and keys. The server tells that it is ready when a client can push, and ends with 0 at SIGTERM. systemd-analyze
checks the unit, where there is one."""
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

BOUND = 60  # seconds; it measures nothing
TRIES = 50


def die(text):
    sys.exit(f'FAILED: {text}')


def value_of(unit, name):
    found = re.findall(rf'^{name}=(.*)$', unit, re.MULTILINE)
    if len(found) != 1:
        die(f'the unit has {len(found)} lines with {name}')
    return found[0]


def words_of(line, specifiers, settings):
    """Returns the words of an ExecStart: ${NAME} is a part of a word, $NAME stands for any number of words."""
    words = []
    for word in line.split():
        for letter, text in specifiers.items():
            word = word.replace(f'%{letter}', text)
        if re.fullmatch(r'\$\w+', word):
            words += shlex.split(settings.get(word[1:], ''))
        else:
            words.append(re.sub(r'\$\{(\w+)\}', lambda name: settings[name[1]], word))
    return words


def verify(rpma, unit):
    if not shutil.which('systemd-analyze'):
        print('systemd-analyze is not installed: the unit is only run')
        return
    installed = pathlib.Path('rpma-serve@.service')
    installed.write_text(re.sub(r'^(ExecStart=)\S+', rf'\g<1>{rpma}', unit, flags=re.MULTILINE))
    done = subprocess.run(['systemd-analyze', 'verify', '--man=no', '--recursive-errors=no', 'rpma-serve@store.service'],
                          env={**os.environ, 'SYSTEMD_UNIT_PATH': f'{os.getcwd()}:'}, text=True, timeout=BOUND,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0 or 'rpma-serve' in done.stdout:
        die(f'systemd-analyze verify: {done.returncode}: {done.stdout}')


def serve(rpma, unit, manager, settings):
    """Returns a server that has told that it is ready; None when it ended, because its port is another's."""
    state = pathlib.Path('state')
    specifiers = {'i': 'store', 'S': str(state.absolute()), 'd': os.getcwd()}
    (state / value_of(unit, 'StateDirectory').replace('%i', 'store')).mkdir(parents=True, exist_ok=True)
    words = words_of(value_of(unit, 'ExecStart'), specifiers, settings)
    with open('log', 'w', encoding='utf-8') as log:
        server = subprocess.Popen([rpma, *words[1:]], stdout=log, stderr=log,
                                  env={**os.environ, 'NOTIFY_SOCKET': manager.getsockname()})
    manager.settimeout(0.1)
    for _ in range(BOUND * 10):
        try:
            if manager.recv(4096) != b'READY=1':
                die('the server tells something else')
            return server
        except TimeoutError:
            if server.poll() is not None:
                return None
    server.kill()
    die('the server does not tell that it is ready')
    return None


def run(rpma, unit):
    """Returns an address where nothing listens any more."""
    subprocess.run([rpma, 'keygen', 'a', 'keys'], check=True, timeout=BOUND)
    pathlib.Path('content').write_bytes(os.urandom(100_000))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f'{os.getcwd()}/manager')
        for _ in range(TRIES):
            address = f'127.0.0.1:{random.randrange(20000, 32000)}'
            settings = {'SIZE': '1M', 'LISTEN': address, 'OPTIONS': '--allow push=a,pull=b'}
            server = serve(rpma, unit, manager, settings)
            if server is not None:
                break
        else:
            die(f'the server did not start: {pathlib.Path("log").read_text(encoding="utf-8")}')
        try:
            pushed = subprocess.run([rpma, 'push', '--psk', 'keys', 'content', address], timeout=BOUND, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if pushed.returncode != 0:
                die(f'the push ended with {pushed.returncode}: {pushed.stdout}')
            pulled = subprocess.run([rpma, 'pull', '--psk', 'keys', address, 'pulled'], timeout=BOUND, check=False,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if pulled.returncode != 6:
                die(f'a pull of an identity that may only push ended with {pulled.returncode}')
        finally:
            server.send_signal(signal.SIGTERM)
            ended = server.wait(BOUND)
        if ended != 0:
            die(f'at SIGTERM the server ended with {ended}')
    return address


def refuse(rpma, address):
    """A manager that is not there, and a name that is none, end the server with a message."""
    for name, expected in (('/nowhere/manager', 'cannot tell the service manager'), ('manager', 'expected the path')):
        done = subprocess.run([rpma, 'serve', '--pool', 'pool', '--size', '1M', '--listen', address], timeout=BOUND,
                              env={**os.environ, 'NOTIFY_SOCKET': name}, text=True, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, check=False)
        if done.returncode != 1 or expected not in done.stderr:
            die(f'NOTIFY_SOCKET={name}: {done.returncode}, {done.stderr}')


def main():
    rpma, unit = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text(encoding='utf-8')
    with tempfile.TemporaryDirectory(dir='.') as folder:
        os.chdir(folder)
        verify(rpma, unit)
        refuse(rpma, run(rpma, unit))


if __name__ == '__main__':
    main()
