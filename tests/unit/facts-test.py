#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""utils/facts.py counts what its head says, and ends with 1 above each of its limits: `facts-test.py SOURCE-FOLDER`."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
script = pathlib.Path(sys.argv[1], 'utils', 'facts.py')
spec = importlib.util.spec_from_file_location('facts', script)
facts = importlib.util.module_from_spec(spec)
spec.loader.exec_module(facts)
bad = []


def expect(what, found, wanted):
    if found != wanted:
        bad.append(f'{what}: {found!r}, not {wanted!r}')


def run(files):
    """Runs the script over a tree of these files; returns its exit code and the limits that it says are exceeded."""
    with tempfile.TemporaryDirectory() as tree:
        for path, text in files.items():
            file = pathlib.Path(tree, 'src', path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding='utf-8')
        ended = subprocess.run([script, tree], capture_output=True, text=True, check=False)
    above = [line[:40].rstrip() for line in ended.stdout.splitlines() if line.endswith('ABOVE ITS LIMIT')]
    return ended.returncode, above


SAMPLE = '''\
#pragma once
namespace base {
// class Comment { int x; };
template <typename T, int n = 3>
class CAPABILITY("mutex") Sample final : private Other<T> {
public:
    using Made = Result<Sample>;
    enum class Phase { First, Second };
    explicit Sample(int first) noexcept : first_{first}, rest_(2) {}
    Sample(const Sample &) = delete;
    Sample &operator=(Sample &&other) = default;
    explicit operator bool() const { return first_ != 0; }
    [[nodiscard]] static Made make(std::span<const int> parts = {}) ACQUIRE(mutex_);
    [[nodiscard]] std::function<void(int)> callback() const REQUIRES(mutex_) {
        return [](int) { puts("};"); };
    }
    template <typename U>
    bool operator()(const U &) const;

private:
    struct Inner {
        int member = ';';
        decltype(&close) function;
    };
    friend class Friend;
    static constexpr int constant = 1'000'000;
    mutable Mutex mutex_;
    int first_ GUARDED_BY(mutex_){0};
    std::function<void(int)> done_ GUARDED_BY(mutex_);
    std::array<std::array<int, 2>, 2> rest_ = {{{1, 2}, {3, 4}}};
    bool one_ = false, two_ = table[index[1]];
    int (*pointer_)(int first, int second) = nullptr;
    alignas(64) Inner inner_;
    struct {
        int x;
    } unnamed_;
};
}  // namespace base
INTERPOSED(2, dup2)(int fd, int number) noexcept {
    return fd;
}
NAMED(int, fcntl, int fd, int command, ...) {
    return fd;
}
'''
read = facts.Reader('sample.hpp', SAMPLE)
sample = next(found for found in read.classes if found.name == 'Sample')
expect('members', len(sample.members), 9)
expect('functions', sample.functions, ['Sample', 'operator=', 'operator bool', 'make', 'callback', 'operator()'])
expect('classes', sorted((found.name, len(found.members)) for found in read.classes),
       [('(no name)', 1), ('Inner', 2), ('Sample', 9)])
expect('bodies', [(found.name, found.line, found.lines) for found in read.functions],
       [('Sample', 9, 1), ('operator bool', 12, 1), ('callback', 14, 3), ('dup2', 39, 3),
        ('NAMED', 42, 3)])

one_more = {what: range(limit + 1) for what, limit in facts.LIMITS.items()}
room = {'base/a.hpp': 'int a();\n', 'base/a.cpp': '#include "base/a.hpp"\n', 'stream/b.hpp': '#include "base/a.hpp"\n'}
expect('a small tree', run(room), (0, []))
for limit, files in {
    'files in a room': {f'base/{n}.c': '' for n in one_more['files in a room']},
    'lines of a file': {'base/long.hpp': '\n' * len(one_more['lines of a file'])},
    'lines of a function': {'base/f.c': 'int f() {\n' + '    g();\n' * (len(one_more['lines of a function']) - 2) + '}\n'},
    'upward includes': {'base/up.cpp': '#include "soft/memory/up.hpp"\n', 'soft/memory/up.hpp': ''},
    'members of a class': {'base/c.hpp': 'class C {\n' + 'int m, ' * (len(one_more['members of a class']) - 1) + 'm;\n};\n'},
    'functions of a class': {'base/c.hpp': 'class C {\n' + 'int f(); ' * len(one_more['functions of a class']) + '\n};\n'},
    'pairs of files that include each other': {
        name: text for n in one_more['pairs of files that include each other']
        for name, text in ((f'base/x{n}.cpp', f'#include "base/y{n}.hpp"\n'), (f'base/y{n}.cpp', f'#include "base/x{n}.hpp"\n'),
                           (f'base/x{n}.hpp', ''), (f'base/y{n}.hpp', ''))},
}.items():
    expect(limit, run(files), (1, [limit]))
expect('rooms', run({'soft/memory/x.hpp': '#include "persist/y.hpp"\n', 'persist/y.hpp': '#include "soft/memory/x.hpp"\n'}),
       (1, ['upward includes', 'pairs of rooms that include each other']))
expect('text that is no C++', run({'base/a.hpp': 'class {\n'})[0], 1)
expect('a tree without source', run({})[0], 1)

print('\n'.join(bad) if bad else 'facts.py counts, and ends with 1 above each limit')
sys.exit(1 if bad else 0)
