#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""rdma_core.py: rdma-core's own tests (Debian's python3-pyverbs), unmodified, on the loopback interface's soft device, which
LD_PRELOAD brings. Those of LACKING are left out, each for its reason; others skip themselves where they ask for what the
device says it does not have."""
import gzip
import pathlib
import shutil
import sys
import tempfile
import unittest

INSTALLED = pathlib.Path('/usr/share/doc/rdma-core/tests')
MODULES = ('test_addr', 'test_cq', 'test_cq_events', 'test_cqex', 'test_device', 'test_mr', 'test_odp', 'test_pd', 'test_qp', 'test_qpex',
           'test_rdmacm', 'test_relaxed_ordering')
NO_INIT = 'looks for the state INIT in an iWARP device: here new queue pairs can be connected by number, and begin with RESET'
NOT_PLACED = 'looks at the target when a write is done: on iWARP it may still be on its way'
LACKING = {
    'test_query_rc_qp': NO_INIT,
    'test_query_uc_qp': NO_INIT,
    'test_mr_rereg_access_bad_flow': NOT_PLACED,
    'test_odp_rc_rdma_write': NOT_PLACED,
    'test_qp_ex_rc_atomic_write': NOT_PLACED,
    'test_qp_ex_rc_rdma_write': NOT_PLACED,
    'test_qp_ex_uc_rdma_write': NOT_PLACED,
    'test_query_ud_qp': 'takes a device of iWARP for one without UD',
    'test_rdmacm_async_write': NOT_PLACED,
    'test_rdmacm_async_traffic': 'looks for the acknowledge timeout of InfiniBand',
}
AT_LEAST = 80  # that pass; fewer would be tests that skip themselves


def leave(reason):
    print(f'SKIPPED, nothing was tested: {reason}')
    sys.exit(77)


def is_lacking(name):
    return any(name == lacking or lacking.endswith('_') and name.startswith(lacking) for lacking in LACKING)


def flat(suite):
    for one in suite:
        yield from flat(one) if isinstance(one, unittest.TestSuite) else (one,)


def main():
    try:
        import pyverbs.device as devices
    except ImportError:
        leave('python3-pyverbs is not installed (group compat of utils/install-dependencies.sh)')
    if not INSTALLED.is_dir():
        leave(f'there is no {INSTALLED}: documentation is not installed here')
    if b'soft_lo' not in [device.name for device in devices.get_device_list()]:
        sys.exit('there is no soft_lo: expected libsoftrdma-verbs.so in LD_PRELOAD')
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / 'tests'
        copy.mkdir()
        for file in INSTALLED.glob('*.py*'):
            with (gzip.open if file.suffix == '.gz' else open)(file, 'rb') as source, \
                    open(copy / file.name.removesuffix('.gz'), 'wb') as target:
                shutil.copyfileobj(source, target)
        sys.path[:0] = [folder, str(copy)]
        sys.argv = ['tests', '--dev', 'soft_lo', '--gid', '0']
        from args_parser import parser
        parser.parse_args()
        import tests.base
        # sysfs would tell the interface of a kernel's device.
        tests.base.RDMATestCase._get_ip_mac = \
            lambda self, device, port, index: self.args.append([device, port, index, '127.0.0.1', None])
        found = unittest.defaultTestLoader.loadTestsFromNames([f'tests.{module}' for module in MODULES])
        chosen = [test for test in flat(found) if not is_lacking(test.id().rpartition('.')[2])]
        outcome = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(chosen))
    passed = outcome.testsRun - len(outcome.failures) - len(outcome.errors) - len(outcome.skipped)
    print(f'{passed} passed, expected at least {AT_LEAST}')
    sys.exit(0 if outcome.wasSuccessful() and passed >= AT_LEAST else 1)


if __name__ == '__main__':
    main()
