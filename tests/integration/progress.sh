#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The progress on a terminal is one line of the terminal's width, also when the width changes.
. "$(dirname "$0")/server.bash"

export TERM=xterm
head -c 64M /dev/zero >content
start_server store
push content
bounded python3 - "$rpma" "$address" <<'PYTHON' || die "the progress"
import fcntl, os, pty, re, select, struct, subprocess, sys, termios
rpma, address = sys.argv[1:]

def resize(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))

terminal, side = pty.openpty()
resize(terminal, 80)
# Its standard output is a pipe: it continues when this program reads.
pull = subprocess.Popen([rpma, 'pull', address, '-'], stdout=subprocess.PIPE, stderr=side)
os.close(side)
lines = {80: [], 40: [], 20: []}
for columns in lines:
    resize(terminal, columns)
    for _ in range(400):  # until one line of this width was seen whole
        ready, _, _ = select.select([terminal], [], [], 0.02)
        text = os.read(terminal, 4096).decode() if ready else ''
        assert '\n' not in text, text
        lines[columns] += [line for line in re.split(r'\r|\x1b\[K', text) if line]
        if len(lines[columns]) >= 3:  # the first may be of the width before
            break
        os.read(pull.stdout.fileno(), 65536)
while os.read(pull.stdout.fileno(), 1 << 20):
    pass
assert pull.wait() == 0
for columns, shown in lines.items():
    print(columns, shown)
    assert len(shown) >= 3 and all(len(line) < columns for line in shown[1:])
assert all(line.startswith('[') and ' of ' in line for line in lines[80])
assert not any(line.startswith('[') for line in lines[40][1:] + lines[20][1:])
PYTHON

# A terminal that cannot clear a line, and narrow ones.
bounded python3 - "$rpma" "$address" <<'PYTHON' || die "a terminal that is dumb, or narrow"
import fcntl, os, pty, struct, subprocess, sys, termios
rpma, address = sys.argv[1:]

def on_terminal(columns, *words, **variables):
    """Returns what the command writes to a terminal."""
    terminal, side = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    command = subprocess.Popen([rpma, *words], stdout=side, stderr=side, env={**os.environ, **variables})
    os.close(side)
    text = b''
    try:
        while part := os.read(terminal, 65536):
            text += part
    except OSError:  # the command has ended
        pass
    assert command.wait() == 0, text
    return text.decode()

assert '\x1b' not in on_terminal(80, 'push', 'content', address, TERM='dumb')
for command in 'push', 'serve', 'run':
    whole = subprocess.run([rpma, command, '--help'], capture_output=True, check=True, encoding='utf-8').stdout
    assert on_terminal(400, command, '--help').replace('\r', '') == whole
    for columns in 60, 80:
        shown = on_terminal(columns, command, '--help')
        assert shown.split() == whole.split(), shown
        assert all(len(line) < columns for line in shown.splitlines()), shown
PYTHON
stop_server
