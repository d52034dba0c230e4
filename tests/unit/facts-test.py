#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""utils/facts.py counts what its head says: `facts-test.py SOURCE-FOLDER`."""

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
    """Runs the script over a tree of these files; returns its exit code and the largest that it prints."""
    with tempfile.TemporaryDirectory() as tree:
        for path, text in files.items():
            file = pathlib.Path(tree, 'src', path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding='utf-8')
        ended = subprocess.run([script, tree], capture_output=True, text=True, check=False)
    printed = ended.stdout.partition('\nlargest')[2].splitlines()[1:]
    return ended.returncode, {line[:40].rstrip(): int(line[40:]) for line in printed}


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

code, largest = run({'base/a.hpp': 'int a();\n', 'base/a.cpp': '#include "base/a.hpp"\n', 'stream/b.hpp': '#include "base/a.hpp"\n'})
expect('a small tree', (code, largest['files in a room'], largest['lines in all']), (0, 2, 3))
for what, number, files in (
    ('files in a room', 3, {f'base/{n}.c': '' for n in range(3)}),
    ('lines of a file', 9, {'base/long.hpp': '\n' * 9}),
    ('lines of a function', 7, {'base/f.c': 'int f() {\n' + '    g();\n' * 5 + '}\n'}),
    ('upward includes', 1, {'base/up.cpp': '#include "soft/memory/up.hpp"\n', 'soft/memory/up.hpp': ''}),
    ('members of a class', 4, {'base/c.hpp': 'class C {\nint m, m, m, m;\n};\n'}),
    ('functions of a class', 5, {'base/c.hpp': 'class C {\n' + 'int f(); ' * 5 + '\n};\n'}),
    ('pairs of files that include each other', 1, {
        'base/x.cpp': '#include "base/y.hpp"\n', 'base/y.cpp': '#include "base/x.hpp"\n', 'base/x.hpp': '', 'base/y.hpp': ''}),
    ('pairs of rooms that include each other', 1,
     {'soft/memory/x.hpp': '#include "persist/y.hpp"\n', 'persist/y.hpp': '#include "soft/memory/x.hpp"\n'}),
):
    code, largest = run(files)
    expect(what, (code, largest.get(what)), (0, number))
expect('text that is no C++', run({'base/a.hpp': 'class {\n'})[0], 1)
expect('a tree without source', run({})[0], 1)

print('\n'.join(bad) if bad else 'facts.py counts')
sys.exit(1 if bad else 0)
