#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The progress on a terminal is one line of the terminal's width, also when the width changes.
. "$(dirname "$0")/server.bash"

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
stop_server
