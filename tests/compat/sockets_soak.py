#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""sockets_soak.py RPMA PROGRAM SECONDS SEED: redis, nginx or postgresql under load over rsockets, while their clients,
connections and processes are killed at random. Nothing may hang, no client may see another byte than was sent, the server's
memory may not grow, and `rpma sockets` lists nothing of it at the end. The seed chooses what is killed, and when."""
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE = 40  # seconds; what takes longer hangs
CLIENTS = 6
MEMORY_MAY_GROW = 24 << 20  # beyond a quarter

wants_end = False


def end_soon(*_):
    global wants_end
    wants_end = True


class Wrong(Exception):
    """Bytes that nobody sent, or none in time."""


# ---- clients: they run under `rpma run --sockets`, and start again when one of their processes was killed ----

class RedisClient:
    def __init__(self, port, chance):
        self.chance = chance
        self.stream = socket.create_connection(('127.0.0.1', port), PATIENCE)
        self.answers = self.stream.makefile('rb')

    def answer(self):
        line = self.answers.readline()
        if not line.endswith(b'\r\n'):
            raise ConnectionError('ended')
        if line[:1] != b'$' or line == b'$-1\r\n':
            return line
        size = int(line[1:])
        value = self.answers.read(size + 2)
        if len(value) != size + 2:
            raise ConnectionError('ended')
        return value[:-2]

    def use(self):
        commands = []
        for _ in range(self.chance.randrange(1, 20)):
            key = b'key%d' % self.chance.randrange(200)
            words = [b'GET', key]
            if self.chance.random() < 0.5:
                body = self.chance.randbytes(self.chance.choice([10, 500, 60000]))
                words = [b'SET', key, hashlib.sha256(key + body).digest() + body]
            commands.append(words)
        self.stream.sendall(b''.join(b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%b\r\n' % (len(word), word) for word in words)
                                     for words in commands))
        for words in commands:
            answer = self.answer()
            if words[0] == b'SET':
                good = answer == b'+OK\r\n'
            else:
                good = answer == b'$-1\r\n' or hashlib.sha256(words[1] + answer[32:]).digest() == answer[:32]
            if not good:
                raise Wrong(f'{words[:2]}: {answer[:80]!r}')


class NginxClient:
    """A file's name is the checksum of what is in it."""

    def __init__(self, port, chance):
        self.chance = chance
        self.names = sorted(os.listdir('www'))
        self.server = http.client.HTTPConnection('127.0.0.1', port, timeout=PATIENCE)

    def use(self):
        name = self.chance.choice(self.names)
        self.server.request('GET', '/' + name)
        body = self.server.getresponse().read()
        if hashlib.sha256(body).hexdigest() != name:
            raise Wrong(f'{name} came as {len(body)} other bytes')


class PostgresqlClient:
    """Each use is a psql of its own, or a pgbench; they inherit what `rpma run` has set."""

    def __init__(self, _port, chance):
        self.chance = chance

    def run(self, *words, given=None):
        try:
            done = subprocess.run(words, input=given, capture_output=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired as late:
            raise Wrong(f'{words} hangs: {late.stderr}') from late
        if done.returncode != 0:
            raise ConnectionError(done.stderr.decode())
        return done.stdout

    def use(self):
        first, count = self.chance.randrange(1 << 30), self.chance.randrange(1, 5000)
        kind = self.chance.randrange(3)
        if kind == 0:
            self.run('pgbench', '-n', '-S', '-c', '4', '-t', '50')
            return
        rows = b''.join(b'%d\n' % i for i in range(first, first + count))
        if kind == 1:
            got = self.run('psql', '-XAtc', f'copy (select generate_series({first}, {first + count - 1})) to stdout')
        else:
            got = self.run('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-c', 'create temporary table t (i int)', '-c',
                           'copy t from stdin', '-c', 'select i from t order by i', given=rows)
        if got != rows:
            raise Wrong(f'{len(got)} bytes of rows instead of {len(rows)}')


def run_client(program, port, seed, uses):
    """Until it is told to end; or so many uses, none of which may fail."""
    signal.signal(signal.SIGTERM, end_soon)
    make = {'redis': RedisClient, 'nginx': NginxClient, 'postgresql': PostgresqlClient}[program]
    chance = random.Random(seed)
    done = 0
    while not wants_end and done != uses:
        try:
            client = make(int(port), chance)
            while not wants_end and done != uses:
                client.use()
                done += 1
        except TimeoutError as late:
            raise Wrong(f'hangs: {late}') from late
        except (OSError, EOFError, http.client.HTTPException) as failure:
            if uses > 0:
                raise
            time.sleep(0.01)  # its server may be starting
    print(done)


# ---- servers ----

class Server:
    def __init__(self, rpma, chance):
        self.rpma, self.chance = rpma, chance
        self.port = free_port()
        self.processes = []

    def carried(self, *words):
        return [self.rpma, 'run', '--sockets', '--device', 'memory', *words]

    def start(self, *words, port=None):
        with open('servers.out', 'ab') as out:
            process = subprocess.Popen(self.carried(*words), stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        until(lambda: is_listening(port or self.port) or process.poll() is not None, f'{words[0]} does not listen')
        return process

    def stop(self, process, number):
        process.send_signal(number)
        process.wait(PATIENCE)
        self.processes.remove(process)

    def watched(self):
        """The processes whose memory may not grow."""
        return [self.main.pid]

    def is_carried(self, connection):
        return connection['link'] == 'memory'


class Redis(Server):
    ends_with = signal.SIGTERM

    def begin(self):
        options = ['--save', '', '--dir', os.getcwd(), '--enable-debug-command', 'yes', '--repl-diskless-sync-delay', '0']
        self.main = self.start('redis-server', '--port', str(self.port), *options)
        self.replica_port = free_port()
        self.replica_words = ['redis-server', '--port', str(self.replica_port), '--replicaof', '127.0.0.1', str(self.port),
                              *options]
        self.replica = self.start(*self.replica_words, port=self.replica_port)

    def ask(self, port, *words):
        return subprocess.run(['redis-cli', '-p', str(port), *words], capture_output=True, text=True, timeout=PATIENCE).stdout

    def disturb(self):
        if self.chance.random() < 0.8:
            ids = re.findall(r'^id=(\d+) .* flags=N ', self.ask(self.port, 'client', 'list'), re.M)
            self.ask(self.port, 'client', 'kill', 'id', self.chance.choice(ids))
            return 'connection'
        self.stop(self.replica, signal.SIGKILL)
        self.replica = self.start(*self.replica_words, port=self.replica_port)
        return 'replica'

    def check(self):
        until(lambda: self.ask(self.port, 'debug', 'digest') == self.ask(self.replica_port, 'debug', 'digest'),
              'the replica has other values')
        self.stop(self.replica, signal.SIGTERM)


class Nginx(Server):
    ends_with = signal.SIGQUIT

    def begin(self):
        os.mkdir('www')
        for size in (10, 1000, 30000, 300000, 5000000):
            body = self.chance.randbytes(size)
            pathlib.Path('www', hashlib.sha256(body).hexdigest()).write_bytes(body)
        here = os.getcwd()
        pathlib.Path('nginx.conf').write_text(f'''
            {'user root;' if os.getuid() == 0 else ''}
            worker_processes 2;
            daemon off;
            pid {here}/nginx.pid;
            error_log {here}/nginx.log;
            events {{ worker_connections 128; }}
            http {{
                access_log off;
                sendfile on;
                client_body_temp_path {here}/t1; proxy_temp_path {here}/t2; fastcgi_temp_path {here}/t3;
                uwsgi_temp_path {here}/t4; scgi_temp_path {here}/t5;
                server {{ listen 127.0.0.1:{self.port}; root {here}/www; }}
            }}''')
        self.main = self.start('nginx', '-e', f'{here}/nginx.log', '-c', f'{here}/nginx.conf')

    def workers(self):
        return [int(pid) for pid in subprocess.run(['pgrep', '-P', str(self.main.pid)], capture_output=True).stdout.split()]

    def watched(self):
        return [self.main.pid, *self.workers()]

    def disturb(self):
        if self.chance.random() < 0.3:
            self.main.send_signal(signal.SIGHUP)
            return 'reload'
        workers = self.workers()
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(workers), signal.SIGKILL)
        return 'worker'

    def check(self):
        pass


class Postgresql(Server):
    ends_with = signal.SIGINT

    def begin(self):
        os.environ.update(PGHOST='127.0.0.1', PGPORT=str(self.port), PGUSER='postgres', PGDATABASE='postgres',
                          PGSSLMODE='disable', PGCONNECT_TIMEOUT=str(PATIENCE), HOME=os.getcwd())
        os.mkdir('data')
        self.as_user = []
        if os.getuid() == 0:
            shutil.chown('data', 'postgres')
            other_user = pathlib.Path(__file__).parent.parent / 'other_user.sh'
            self.as_user = subprocess.run([other_user, self.rpma, 'own', 'postgres'], check=True, text=True,
                                          stdout=subprocess.PIPE).stdout.split('\n')[:-1]
            self.rpma = os.path.abspath('own/bin/rpma')
        subprocess.run([*self.as_user, 'initdb', '-D', 'data', '-U', 'postgres', '-A', 'trust', '--no-sync'], check=True,
                       stdout=subprocess.DEVNULL)
        self.main = self.start('postgres', '-D', os.getcwd() + '/data', '-p', str(self.port), '-c', 'fsync=off', '-c',
                               'listen_addresses=127.0.0.1', '-c', 'unix_socket_directories=')
        until(lambda: self.ask('select 1') == '1\n', 'PostgreSQL does not answer')
        subprocess.run(['pgbench', '-i', '-q'], check=True, capture_output=True)

    def carried(self, *words):
        return [*self.as_user, *super().carried(*words)]

    def is_carried(self, connection):
        """Where root starts it, it is another user's, and its connections stay in TCP."""
        return super().is_carried(connection) or (self.as_user and connection['mode'] == 'carried')

    def ask(self, query):
        return subprocess.run(['psql', '-XAtc', query], capture_output=True, text=True, timeout=PATIENCE).stdout

    def disturb(self):
        backends = """from pg_stat_activity where backend_type = 'client backend' and pid != pg_backend_pid()
                      order by random() limit 1"""
        if self.chance.random() < 0.95:
            self.ask('select pg_terminate_backend(pid) ' + backends)
            return 'connection'
        for pid in self.ask('select pid ' + backends).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        return 'backend'

    def check(self):
        until(lambda: self.ask('select sum(abalance) from pgbench_accounts') == '0\n', 'PostgreSQL does not recover')


# ---- the run ----

def is_listening(port):
    return bool(subprocess.run(['ss', '-Hltn', f'sport = :{port}'], capture_output=True).stdout)


def free_port():
    """One below what the kernel gives out by itself."""
    port = random.SystemRandom().randrange(20000, 32000)
    while is_listening(port):
        port += 1
    return port


def until(is_so, failure):
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise Wrong(failure)
        time.sleep(0.02)


def memory_of(pids):
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            status = pathlib.Path(f'/proc/{pid}/status').read_text()
            total += sum(int(kib) for kib in re.findall(r'Rss(?:Anon|Shmem):\s+(\d+)', status)) << 10
    return total


def listed(rpma, port):
    sockets = json.loads(subprocess.run([rpma, 'sockets', '--json'], capture_output=True, check=True).stdout)['sockets']
    return [one for one in sockets if f':{port}' in (one['local'] or '')[-6:] + ' ' + (one['peer'] or '')[-6:]]


class Run:
    def __init__(self, rpma, program, seed):
        self.rpma, self.program = rpma, program
        self.chance = random.Random(seed)
        self.server = {'redis': Redis, 'nginx': Nginx, 'postgresql': Postgresql}[program](rpma, self.chance)
        self.clients = []
        self.counts = {}

    def client(self, uses=-1):
        with open('clients.out', 'ab') as out:
            return subprocess.Popen([self.rpma, 'run', '--sockets', '--device', 'memory', sys.executable, os.path.abspath(__file__),
                                     '--client', self.program, str(self.server.port), str(self.chance.randrange(1 << 30)),
                                     str(uses)], stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def disturb(self):
        """Kills something, or holds a client up so that it does not read."""
        what = self.chance.choice(['server', 'killed', 'stopped'])
        if what == 'server':
            what = self.server.disturb()
        else:
            place = self.chance.randrange(len(self.clients))
            client = self.clients[place]
            if what == 'killed':
                client.kill()
                client.wait()
                self.clients[place] = self.client()
            else:
                client.send_signal(signal.SIGSTOP)
                time.sleep(self.chance.uniform(0.01, 0.3))
                client.send_signal(signal.SIGCONT)
        self.counts[what] = self.counts.get(what, 0) + 1

    def check_clients(self):
        for client in self.clients:
            if client.poll() is not None:
                raise Wrong(f'a client ended with {client.returncode}')

    def load(self, seconds):
        """Returns the server's memory over time."""
        self.clients = [self.client() for _ in range(CLIENTS)]
        until(lambda: any(self.server.is_carried(one) for one in listed(self.rpma, self.server.port)), 'nothing is carried')
        memory = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.disturb()
            self.check_clients()
            memory.append(memory_of(self.server.watched()))
            time.sleep(self.chance.uniform(0, 0.3))
        return memory

    def end_clients(self):
        for client in self.clients:
            client.terminate()
        for client in self.clients:
            try:
                client.wait(2 * PATIENCE)
            except subprocess.TimeoutExpired as late:
                raise Wrong('a client hangs') from late
        # A program that has just been started does not handle the signal yet.
        if any(client.returncode not in (0, -signal.SIGTERM) for client in self.clients):
            raise Wrong(f'clients ended with {[client.returncode for client in self.clients]}')

    def __call__(self, seconds):
        self.server.begin()
        memory = self.load(seconds)
        self.end_clients()
        self.server.check()
        if self.client(uses=20).wait(2 * PATIENCE) != 0:
            raise Wrong('what is left does not serve')
        self.server.stop(self.server.main, self.server.ends_with)
        until(lambda: not listed(self.rpma, self.server.port), 'rpma sockets lists what has ended')
        return memory


def main(rpma, program, seconds, seed):
    rpma = os.path.abspath(rpma)
    folders = ['/usr/sbin', *map(str, pathlib.Path('/usr/lib/postgresql').glob('*/bin'))]
    os.environ['PATH'] = ':'.join([os.environ['PATH'], *folders])
    needed = {'redis': ['redis-server', 'redis-cli'], 'nginx': ['nginx'], 'postgresql': ['postgres', 'initdb', 'psql', 'pgbench']}
    for one in needed[program]:
        if shutil.which(one) is None:
            print(f'{one} is not installed (group compat of utils/install-dependencies.sh)')
            sys.exit(77)
    # A server that root starts may become another user, who does not reach every TMPDIR.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True, dir='/tmp' if os.getuid() == 0 else None) as folder:
        os.chdir(folder)
        os.chmod('.', 0o755)
        run = Run(rpma, program, seed)
        try:
            memory = run(float(seconds))
            first, last = max(memory[:len(memory) // 2]), max(memory[-(len(memory) // 4):])
            print(f'{program}, seed {seed}, {seconds} s: {run.counts}; memory {memory[0] >> 10} KiB at the start, '
                  f'{first >> 10} KiB at most in the first half, {last >> 10} KiB at most in the last quarter')
            if last > first * 1.25 + MEMORY_MAY_GROW:
                raise Wrong('memory grows')
        except Exception:
            for name in ('clients.out', 'servers.out', 'nginx.log'):
                with contextlib.suppress(OSError):
                    lines = pathlib.Path(name).read_text(errors='replace').splitlines()
                    told = [line for line in lines if 'in recovery mode' not in line]  # each connection meanwhile is told
                    print(f'---- {name}: {len(lines)} lines', *told[-100:], sep='\n', file=sys.stderr)
            raise
        finally:
            for process in [*run.clients, *run.server.processes]:
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    process.terminate()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(5)
                    process.kill()
                    process.wait()


if __name__ == '__main__':
    if sys.argv[1] == '--client':
        run_client(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main(*sys.argv[1:5])
