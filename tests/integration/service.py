#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""service.py ROOT PREFIX [CMAKE BUILD]: runs the commands of the installed units as systemd would: rpma-serve@ for an instance
with a file of settings and keys, rpma-serve-x509@ with certificates, and rpma-serve-open@ with neither. The server tells
that it is ready when a client can push, takes other keys or certificates at a reload, and ends with 0 at SIGTERM.
systemd-analyze checks the units, where there is one. ROOT has the files of a package that is installed below PREFIX; with
CMAKE the test installs the build there, ROOT is /, and there is a program that makes certificates."""
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
import time

BOUND = 60  # seconds; it measures nothing
TRIES = 50


def die(text):
    sys.exit(f'FAILED: {text}')


def values_of(unit, name):
    return re.findall(rf'^{name}=(.*)$', unit, re.MULTILINE)


def value_of(unit, name):
    found = values_of(unit, name)
    if len(found) != 1:
        die(f'the unit has {len(found)} lines with {name}')
    return found[0]


def resolved(text):
    """The system's folders are those of the test."""
    for letter, value in {'i': 'store', 'E': os.path.abspath('etc'), 'S': os.path.abspath('state'), 't': os.path.abspath('run')}.items():
        text = text.replace(f'%{letter}', value)
    if '%' in text:
        die(f'the test does not know each specifier of {text}')
    return text


def words_of(line, settings):
    """Returns the words of a command: ${NAME} is a part of a word, $NAME stands for any number of words."""
    words = []
    for word in shlex.split(resolved(line.removeprefix('+'))):
        if re.fullmatch(r'\$\w+', word):
            words += shlex.split(settings.get(word[1:], ''))
        else:
            words.append(re.sub(r'\$\{(\w+)\}', lambda name: settings[name[1]], word))
    return words


def verify(root, prefix, name, unit):
    """systemd-analyze finds the command only at the place that the unit names, so below a root it gets another name."""
    if not shutil.which('systemd-analyze'):
        print('systemd-analyze is not installed: the units are only run')
        return
    os.makedirs('units', exist_ok=True)
    text = unit if root == '/' else unit.replace(f'{prefix}/bin/rpma', f'{root}{prefix}/bin/rpma')
    pathlib.Path(f'units/{name}@.service').write_text(text)
    done = subprocess.run(['systemd-analyze', 'verify', '--man=no', '--recursive-errors=no', f'{name}@store.service'],
                          env={**os.environ, 'SYSTEMD_UNIT_PATH': f'{os.getcwd()}/units:'}, text=True, timeout=BOUND,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0 or 'rpma-serve' in done.stdout:
        die(f'systemd-analyze verify: {done.returncode}: {done.stdout}')


def run_each(rpma, unit, name, settings):
    """Runs the commands as systemd would, up to the first that fails. Returns whether none did."""
    for line in values_of(unit, name):
        command, *words = words_of(line, settings)
        if subprocess.run([rpma if command.endswith('/rpma') else command, *words], check=False, timeout=BOUND).returncode != 0:
            return False
    return True


def start(rpma, unit, name, settings):
    """Starts the server as systemd would, with the service manager at the socket of this name."""
    pathlib.Path('state', resolved(value_of(unit, 'StateDirectory'))).mkdir(parents=True, exist_ok=True)
    for path in values_of(unit, 'AssertPathExists'):
        if not os.path.exists(resolved(path)):
            die(f'{path} does not exist')
    if not run_each(rpma, unit, 'ExecStartPre', settings):
        die('what runs before the start fails')
    words = words_of(value_of(unit, 'ExecStart'), settings)
    with open('log', 'w', encoding='utf-8') as log:
        return subprocess.Popen([rpma, *words[1:]], stdout=log, stderr=log, env={**os.environ, 'NOTIFY_SOCKET': name})


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


def run(rpma, unit, settings, tls, change, file):
    """The client has these options; `change` changes this file of root's so that it is not let in, and back."""
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
            pushed = subprocess.run([rpma, 'push', *tls, 'content', settings['LISTEN']], timeout=BOUND, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if pushed.returncode != 0:
                die(f'the push ended with {pushed.returncode}: {pushed.stdout}')
            pulled = subprocess.run([rpma, 'pull', *tls, settings['LISTEN'], 'pulled'], timeout=BOUND, check=False,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if pulled.returncode != (6 if tls else 0):
                die(f'a pull of {"an identity that may only push" if tls else "anybody"} ended with {pulled.returncode}')
            if tls:
                reload(rpma, unit, {**settings, 'MAINPID': str(server.pid)}, tls, change, file)
        finally:
            end(server)
    if not run_each(rpma, unit, 'ExecStopPost', settings):
        die('what runs after the end fails')
    if os.path.exists('run/rpma') and os.listdir('run/rpma'):
        die(f'the end leaves {os.listdir("run/rpma")}')


def reload(rpma, unit, settings, tls, change, file):
    """A client that root lets in no more counts until the reload, which tells the server too."""
    def status():
        return subprocess.run([rpma, 'status', *tls, settings['LISTEN']], timeout=BOUND, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode

    for expected in 'refused', 'let in':
        if status() != 0 and expected == 'refused':
            die('a client is refused before the reload')
        change(expected == 'let in')
        told = said().count('SIGHUP')
        if not run_each(rpma, unit, 'ExecReload', settings):
            die('a reload fails')
        for _ in range(BOUND * 100):
            if said().count('SIGHUP') > told:
                break
            time.sleep(0.01)
        else:
            die(f'the server does not see the reload: {said()}')
        if (status() == 0) != (expected == 'let in'):
            die(f'after a reload the client is not {expected}')
    good = file.read_text(encoding='utf-8')
    file.write_text('nonsense', encoding='utf-8')
    if run_each(rpma, unit, 'ExecReload', settings) or status() != 0:
        die('a reload of a file that cannot be used does not fail, or changes something')
    file.write_text(good, encoding='utf-8')


def run_without_manager(rpma, unit, settings):
    """A manager that is not there, and a name that is none, are told in the log."""
    for name, expected in (('/nowhere/manager', 'cannot tell the service manager'), ('manager', 'expected the path')):
        end(started(rpma, unit, name, settings, lambda expected=expected: expected in said()))


def refuse(rpma, unit, settings):
    """Wrong settings, which would be as wrong at the next start, end the server as the unit says."""
    wrong = int(value_of(unit, 'RestartPreventExitStatus'))
    for change in {'OPTIONS': '--keep 0'}, {'OPTIONS': '--max-bytes much'}, {'LISTEN': 'nowhere:x'}, {'OPTIONS': '--allow everything'}:
        server = start(rpma, unit, '@nobody', {**settings, **change})
        if server.wait(BOUND) != wrong:
            die(f'with {change} the server ended with {server.returncode}: {said()}')
    if not run_each(rpma, unit, 'ExecStopPost', settings):
        die('what runs after the end fails')


def main():
    root, prefix = os.path.abspath(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory(dir='.') as folder:
        os.chdir(folder)
        if len(sys.argv) == 5:
            prefix = os.path.abspath(prefix)
            for component in 'rpma', 'librpma0', 'libsoftrdma0':
                subprocess.run([sys.argv[3], '--install', sys.argv[4], '--prefix', prefix, '--component', component], check=True,
                               stdout=subprocess.DEVNULL, timeout=BOUND)
        units = {}
        for name in 'rpma-serve', 'rpma-serve-x509', 'rpma-serve-open':
            units[name] = pathlib.Path(f'{root}{prefix}/lib/systemd/system/{name}@.service').read_text(encoding='utf-8')
            command = value_of(units[name], 'ExecStart').split()[0]
            rpma = root + command
            if command != f'{prefix}/bin/rpma' or not os.access(rpma, os.X_OK):
                die(f'{name}@ starts {command} (expected the installed {prefix}/bin/rpma)')
            verify(root, prefix, name, units[name])
        settings = {'OPTIONS': '--allow push=a,pull=b'}
        for identity, keys in ('a', 'own'), ('b', 'another'):
            subprocess.run([rpma, 'keygen', identity, keys], check=True, timeout=BOUND)
        os.makedirs('etc/rpma/store.x509')
        keys = pathlib.Path('etc/rpma/store.keys')
        shutil.copy('own', keys)
        pathlib.Path('etc/rpma/store.conf').touch()
        pathlib.Path('content').write_bytes(os.urandom(100_000))
        run(rpma, units['rpma-serve'], settings, ['--psk', 'own'], lambda lets_in: shutil.copy('own' if lets_in else 'another', keys), keys)
        run_without_manager(rpma, units['rpma-serve'], settings)
        refuse(rpma, units['rpma-serve'], settings)
        run(rpma, units['rpma-serve-open'], {'OPTIONS': ''}, [], None, None)
        if len(sys.argv) == 5:
            subprocess.run([f'{sys.argv[4]}/tests/test_certificates', '.', 'x509', 'a=client'], check=True, timeout=BOUND)
            for file in *pathlib.Path('.').glob('*.pem'), 'x509.key':
                shutil.copy(file, 'etc/rpma/store.x509')
            own = pathlib.Path('x509').read_text(encoding='utf-8')
            listed = pathlib.Path('etc/rpma/store.x509/x509')

            def change(lets_in):
                listed.write_text(own + ('' if lets_in else 'client b\n'), encoding='utf-8')

            change(True)
            run(rpma, units['rpma-serve-x509'], settings, ['--x509', 'a'], change, listed)


if __name__ == '__main__':
    main()
