#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""rdma_core.py [TEST...]: rdma-core's own tests (Debian's python3-pyverbs), unmodified, on the loopback interface's soft
device, which LD_PRELOAD brings. Each test has a process of its own. A test may skip itself only for a reason of SKIPS,
and fail only for one of DIFFERENCES; a row of either that nothing uses any more is an error. With names of tests it runs
only those, and shows what they print.

rdma_core.py --kernel DEVICE GID ADDRESS FILE: the same on a device of the kernel, whose GID of that index is the address.
The names of those that pass go to FILE, and nothing is expected of the others. rdma_core.py --beside FILE: none of those that
FILE names fails here, whatever DIFFERENCES says. Nothing is said of rows that nothing uses."""
import gzip
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import unittest

INSTALLED = pathlib.Path('/usr/share/doc/rdma-core/tests')
ROCE = os.environ.get('SOFTRDMA_ROCE') == '1'
PATIENCE = 60  # seconds for a test
SOFT = 'soft_lo'

# Parts of what the tests say when they skip themselves, and why that is so here.
SKIPS = {
    r'mlx5|Mlx5|MLX5|mlnx|Mellanox|DevX|DEVX|DV |VFIO': 'calls of one maker (mlx5dv)',
    r'efa|EFA|SRD': 'calls of one maker (efadv)',
    r'dmabuf|dma-buf|CUDA|cuda|GPU': 'memory of graphics cards',
    r'QP type 8|Raw Packet|RAW_PACKET|Raw QP|raw': 'raw packets of Ethernet: the device sends streams and datagrams of its own',
    r'huge pages': 'this machine has reserved no huge pages',
    r'All gid indices populated': 'each row of the table of GIDs has one',
    r'Extended CQ is not supported': 'tag matching',
    r'Extended CQ with Parent Domain': 'no allocator of a program is called for queues',
}

NOT_PLACED = 'looks at the target when a write of rdma_cm is done, which iWARP has: it may still be on its way'
NOT_IMPORTED = 'imports an object by a descriptor of the kernel, which this device has not'
NO_INIT = 'looks for the state INIT in an iWARP device: here new queue pairs can be connected by number, and begin with RESET'
# Tests that fail, and why.
DIFFERENCES = {
    'test_rdmacm_async_write': NOT_PLACED,
    'test_import_dm': NOT_IMPORTED,
    'test_imported_rc_ex_rdma_write': NOT_IMPORTED,
}
if not ROCE:
    DIFFERENCES |= {'test_query_rc_qp': NO_INIT, 'test_query_uc_qp': NO_INIT,
                    'test_query_ud_qp': 'takes a device of iWARP for one without UD'}
# These pass or fail, as the one thread is faster or the other.
SOMETIMES = {name for name, why in DIFFERENCES.items() if why is NOT_PLACED}
AT_LEAST = 139 if ROCE else 135  # that pass; fewer would be tests that skip themselves


def leave(reason):
    print(f'SKIPPED, nothing was tested: {reason}')
    sys.exit(77)


def flat(suite):
    for one in suite:
        yield from flat(one) if isinstance(one, unittest.TestSuite) else (one,)


def outcome_of(test):
    """Runs a test here. Returns a word, and what the test said."""
    result = unittest.TestResult()
    test.run(result)
    for word, said in (('skipped', result.skipped), ('failed', result.errors + result.failures)):
        if said:
            return word, said[0][1]
    return 'passed', ''


def outcome_in_a_process(test):
    """Runs a test in a process of its own. A test that hangs, or ends its process, has failed."""
    with tempfile.TemporaryFile() as told:
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE)
            word, said = outcome_of(test)
            told.write(f'{word}\n{said}'.encode(errors='replace'))
            told.flush()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        told.seek(0)
        word, _, said = told.read().decode(errors='replace').partition('\n')
    if status != 0 or not word:
        return 'failed', f'its process ended with status {status}'
    return word, said


def load(folder, device, gid, address):
    """Copies the installed tests, and returns them."""
    copy = pathlib.Path(folder) / 'tests'
    copy.mkdir()
    for file in INSTALLED.glob('*.py*'):
        with (gzip.open if file.suffix == '.gz' else open)(file, 'rb') as source, \
                open(copy / file.name.removesuffix('.gz'), 'wb') as target:
            shutil.copyfileobj(source, target)
    sys.path[:0] = [folder, str(copy)]
    sys.argv = ['tests', '--dev', device, '--gid', gid]
    from args_parser import parser
    parser.parse_args()
    import tests.base
    # sysfs would tell the interface of a card.
    tests.base.RDMATestCase._get_ip_mac = \
        lambda self, device, port, index: self.args.append([device, port, index, address, None])
    modules = sorted(file.stem for file in copy.glob('test_*.py'))
    return list(flat(unittest.defaultTestLoader.loadTestsFromNames([f'tests.{module}' for module in modules])))


def names_that_pass(tests):
    for test in tests:
        word, said = outcome_in_a_process(test)
        print(f'{test.id()}: {word} {said.strip()[-200:]}'.replace('\n', ' | ').rstrip(), flush=True)
        if word == 'passed':
            yield test.id()


def run_on_kernel(device, gid, address, file):
    with tempfile.TemporaryDirectory() as folder:
        passed = list(names_that_pass(load(folder, device, gid, address)))
    pathlib.Path(file).write_text('\n'.join(passed))
    print(f'{len(passed)} passed on {device}')
    sys.exit(0 if passed else 1)


def main():
    try:
        import pyverbs.device as devices
    except ImportError:
        leave('python3-pyverbs is not installed (group compat of utils/install-dependencies.sh)')
    if not INSTALLED.is_dir():
        leave(f'there is no {INSTALLED}: documentation is not installed here')
    names = sys.argv[1:]
    if names[:1] == ['--kernel']:
        run_on_kernel(*names[1:])
    if SOFT.encode() not in [device.name for device in devices.get_device_list()]:
        sys.exit(f'there is no {SOFT}: expected libsoftrdma-verbs.so in LD_PRELOAD')
    beside = set()
    rows_count = not names
    if names[:1] == ['--beside']:
        beside = set(pathlib.Path(names[1]).read_text().split())
        names = []
    counts = {'passed': 0, 'failed': 0, 'skipped': 0, 'different': 0}
    unused = set(SKIPS) | set(DIFFERENCES)
    with tempfile.TemporaryDirectory() as folder:
        for test in load(folder, SOFT, '1' if ROCE else '0', '127.0.0.1'):
            module, name = test.id().split('.')[1], test.id().rpartition('.')[2]
            if names and name not in names:
                continue
            sys.stdout.flush()
            word, said = outcome_in_a_process(test)
            why = said.strip().replace('\n', ' | ')[-600:] if names or word != 'failed' else said[-2000:]
            if word == 'skipped':
                reasons = [pattern for pattern in SKIPS if re.search(pattern, f'{module}: {said}')]
                why = f'{said.strip()}: {SKIPS[reasons[0]]}' if reasons else f'{said.strip()}: NO REASON'
                word = word if reasons else 'failed'
                unused -= set(reasons)
            elif name in DIFFERENCES and (word == 'failed' or name in SOMETIMES):
                unused.discard(name)
                if word == 'failed' and not names:
                    word, why = 'different', DIFFERENCES[name]
            if word in ('passed', 'skipped') or name in SOMETIMES:
                beside.discard(test.id())
            counts[word] += 1
            print(f'{module}.{name}: {word} {why}'.rstrip())
    print(', '.join(f'{count} {word}' for word, count in counts.items()), f'(at least {AT_LEAST} must pass)')
    if names:
        sys.exit(0 if counts['failed'] == 0 else 1)
    for row in sorted(unused) if rows_count else ():
        print(f'nothing skips or fails by "{row}" any more')
    for name in sorted(beside):
        print(f'{name} passes on the kernel\'s device, and fails here')
    sys.exit(0 if not (unused and rows_count) and not beside and counts['failed'] == 0 and counts['passed'] >= AT_LEAST else 1)


if __name__ == '__main__':
    main()
