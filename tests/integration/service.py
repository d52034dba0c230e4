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


def start(rpma, unit, name, settings):
    """Starts the server as systemd would, with the service manager at the socket of this name."""
    state = pathlib.Path('state')
    specifiers = {'i': 'store', 'S': str(state.absolute()), 'd': os.getcwd()}
    (state / value_of(unit, 'StateDirectory').replace('%i', 'store')).mkdir(parents=True, exist_ok=True)
    words = words_of(value_of(unit, 'ExecStart'), specifiers, settings)
    with open('log', 'w', encoding='utf-8') as log:
        return subprocess.Popen([rpma, *words[1:]], stdout=log, stderr=log,
                                env={**os.environ, 'NOTIFY_SOCKET': name, 'CREDENTIALS_DIRECTORY': os.getcwd()})


def said():
    return pathlib.Path('log').read_text(encoding='utf-8')


def is_ready(server, has_told):
    """Returns whether the server is ready. It is not when it ended, because its port is another's."""
    for _ in range(BOUND * 10):
        if has_told():
            return True
        try:
            server.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        if 'cannot listen on' not in said():
            die(f'the server ended with {server.returncode}: {said()}')
        return False
    server.kill()
    die('the server does not tell that it is ready')
    return False


def started(rpma, unit, name, settings, has_told):
    """Returns a server that is ready, and sets LISTEN to its address."""
    for _ in range(TRIES):
        settings['LISTEN'] = f'127.0.0.1:{random.randrange(20000, 32000)}'
        server = start(rpma, unit, name, settings)
        if is_ready(server, has_told):
            return server
    die(f'the server did not start: {said()}')
    return None


def end(server):
    server.send_signal(signal.SIGTERM)
    ended = server.wait(BOUND)
    if ended != 0:
        die(f'at SIGTERM the server ended with {ended}: {said()}')


def run(rpma, unit, settings):
    name = f'rpma-service-test-{os.getpid()}'
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind('\0' + name)
        manager.setblocking(False)

        def has_told():
            try:
                if manager.recv(4096) != b'READY=1':
                    die('the server tells something else')
                return True
            except BlockingIOError:
                return False

        server = started(rpma, unit, '@' + name, settings, has_told)
        try:
            # A client refuses keys that others may read. The server takes its credential.
            pushed = subprocess.run([rpma, 'push', '--psk', 'own', 'content', settings['LISTEN']], timeout=BOUND, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if pushed.returncode != 0:
                die(f'the push ended with {pushed.returncode}: {pushed.stdout}')
            pulled = subprocess.run([rpma, 'pull', '--psk', 'own', settings['LISTEN'], 'pulled'], timeout=BOUND, check=False,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if pulled.returncode != 6:
                die(f'a pull of an identity that may only push ended with {pulled.returncode}')
        finally:
            end(server)


def run_without_manager(rpma, unit, settings):
    """A manager that is not there, and a name that is none, are told in the log."""
    for name, expected in (('/nowhere/manager', 'cannot tell the service manager'), ('manager', 'expected the path')):
        end(started(rpma, unit, name, settings, lambda expected=expected: expected in said()))


def refuse(rpma, unit, settings):
    """Wrong settings, which would be as wrong at the next start, end the server as the unit says."""
    wrong = int(value_of(unit, 'RestartPreventExitStatus'))
    for change in {'SIZE': '2M'}, {'SIZE': 'much'}, {'LISTEN': 'nowhere:x'}, {'OPTIONS': '--allow everything'}:
        server = start(rpma, unit, '@nobody', {**settings, **change})
        if server.wait(BOUND) != wrong:
            die(f'with {change} the server ended with {server.returncode}: {said()}')


def main():
    rpma, unit = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text(encoding='utf-8')
    with tempfile.TemporaryDirectory(dir='.') as folder:
        os.chdir(folder)
        verify(rpma, unit)
        settings = {'SIZE': '1M', 'OPTIONS': '--allow push=a,pull=b'}
        subprocess.run([rpma, 'keygen', 'a', 'own'], check=True, timeout=BOUND)
        shutil.copy('own', 'keys')
        os.chmod('keys', 0o440 if os.geteuid() == 0 else 0o400)
        pathlib.Path('content').write_bytes(os.urandom(100_000))
        run(rpma, unit, settings)
        run_without_manager(rpma, unit, settings)
        refuse(rpma, unit, settings)


if __name__ == '__main__':
    main()
