#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""qemu.py RPMA [pinned]: Debian's QEMU, unmodified, migrates a guest over `rdma:` to a second QEMU, both on the soft device
under `rpma run`. The guest's memory must be the same at both ends, and the guest must go on where it was. With `pinned` all
of its memory is registered beforehand; without it QEMU registers it piece by piece, and tells of pages of zeros by a message."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

QEMU = 'qemu-system-x86_64'
MEMORY = 64 << 20
PATTERN_AT = 16 << 20
PATTERN_SIZE = 32 << 20  # what lies behind it are pages of zeros
COUNTED = 64 << 10
TRIES = 5
# This program replaces the firmware, so that pages are written while they are sent: xor ax,ax; mov ds,ax; xor bx,bx;
# then for ever incl (bx); add bx,4. It counts in each word of the first 64 KiB.
COUNTER = bytes.fromhex('31c0 8ed8 31db 66ff07 83c304 ebf8')
RESET = bytes.fromhex('ea000000f0')  # jmp f000:0, at the processor's first address
FIRMWARE = COUNTER.ljust(0xfff0, b'\0') + RESET.ljust(16, b'\0')


class Guest:
    """A QEMU that is told what to do on its standard input, and answers there. Whatever else it prints is in `said`."""

    def __init__(self, rpma, *options):
        self.said = ''
        self.process = subprocess.Popen(
            ['timeout', '50', rpma, 'run', QEMU, '-M', 'pc', '-accel', 'tcg', '-m', f'{MEMORY >> 20}', '-nodefaults',
             '-no-user-config', '-display', 'none', '-bios', 'firmware', '-qmp', 'stdio', *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.do('qmp_capabilities')

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.process.terminate()
        self.process.communicate()

    def message_with(self, *keys):
        for line in self.process.stdout:
            message = json.loads(line) if line.startswith('{') else {}
            if any(key in message for key in keys):
                return message
            if not message:
                self.said += line
        sys.exit(f'{QEMU} has ended or hangs:\n{self.said}')

    def do(self, command, **arguments):
        print(json.dumps({'execute': command, 'arguments': arguments}), file=self.process.stdin, flush=True)
        answer = self.message_with('return', 'error')
        if 'error' in answer:
            sys.exit(f'{command}: {answer["error"]["desc"]}')
        return answer['return']

    def await_migration(self):
        while True:
            status = self.message_with('event').get('data', {}).get('status')
            if status == 'completed':
                return
            if status == 'failed':
                sys.exit(f'the migration failed: {self.do("query-migrate")}')

    def memory(self, size=MEMORY):
        self.do('pmemsave', val=0, size=size, filename='memory')
        return pathlib.Path('memory').read_bytes()

    def has_counted_from(self, word):
        while self.memory(len(word)) == word:
            pass

    def end(self):
        self.do('quit')
        self.said += self.process.stdout.read()
        if self.process.wait() != 0 or 'kernel name soft_lo ' not in self.said:
            sys.exit(f'{QEMU} ended with {self.process.returncode}, or did not use soft_lo:\n{self.said}')


def free_port():
    with socket.socket() as one:
        one.bind(('127.0.0.1', 0))
        return one.getsockname()[1]


def migrate(source, target, pinned):
    for guest in source, target:
        guest.do('migrate-set-capabilities', capabilities=[{'capability': 'rdma-pin-all', 'state': pinned},
                                                           {'capability': 'events', 'state': True}])
    address = f'rdma:127.0.0.1:{free_port()}'
    target.do('migrate-incoming', uri=address)
    source.do('migrate', uri=address)
    source.await_migration()
    target.await_migration()


def check(rpma, pinned):
    """Returns whether QEMU sent all of the guest's memory. Everything else that is wrong ends the program."""
    pattern = os.urandom(PATTERN_SIZE)
    pathlib.Path('firmware').write_bytes(FIRMWARE)
    pathlib.Path('pattern').write_bytes(pattern)
    with Guest(rpma, '-device', f'loader,file=pattern,addr={PATTERN_AT},force-raw=on') as source, \
            Guest(rpma, '-S', '-incoming', 'defer') as target:
        source.has_counted_from(bytes(4))
        migrate(source, target, pinned)
        sent = source.do('query-migrate')['ram']
        print(f'{sent["normal"]} pages were written, {sent["duplicate"]} told of, in {sent["dirty-sync-count"]} rounds')
        assert sent['normal'] >= (MEMORY if pinned else PATTERN_SIZE) // 4096, sent
        assert (sent['duplicate'] == 0) == pinned, sent
        memory = target.memory()
        assert memory[PATTERN_AT:PATTERN_AT + PATTERN_SIZE] == pattern, 'the target has another pattern'
        left = source.memory()
        assert memory[COUNTED:] == left[COUNTED:], 'the memory of source and target differs'
        if memory != left:
            # On a busy machine QEMU 7.2's emulator forgets what the guest wrote between two looks at its dirty pages that
            # are close together. It then counts no page as sent after the last look, of four.
            assert sent['dirty-sync-count'] > 3, 'the target has not what the guest counted last'
            return False
        target.do('cont')
        target.has_counted_from(memory[:4])
        source.end()
        target.end()
    return True


def main():
    rpma = os.path.abspath(sys.argv[1])
    if not shutil.which(QEMU):
        print(f'{QEMU} is not installed (group compat of utils/install-dependencies.sh)')
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for _ in range(TRIES):
            if check(rpma, sys.argv[2:] == ['pinned']):
                return
            print('QEMU has not sent what the guest wrote last: once more')
        sys.exit(f'QEMU lost what the guest wrote last, {TRIES} times')


if __name__ == '__main__':
    main()
