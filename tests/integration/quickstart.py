#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""quickstart.py SOURCE: utils/quickstart.sh ends well in a tree that is built, while other programs have the ports that a
server of rpma takes first."""
import contextlib
import os
import socket
import subprocess
import sys


def main(source):
    with contextlib.ExitStack() as stack:
        for port in range(7204, 7209):
            holder = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # another program has it
                holder.bind(('0.0.0.0', port))  # a socket that does not listen has a port too
        done = subprocess.run([os.path.join(source, 'utils/quickstart.sh')], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=100, check=False)
    if done.returncode != 0 or '\nidentical\n' not in done.stdout or '== done' not in done.stdout:
        sys.exit(f'FAILED: quickstart.sh ended with {done.returncode}:\n{done.stdout}')


main(sys.argv[1])
