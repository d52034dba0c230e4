#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The manual is whole and names nothing that does not exist: `manual.py SOURCE-FOLDER MANUAL-FOLDER RPMA-COMMAND`.

Looks at what was made (build/man), with no code of what makes it. Exit code 77, a skip, when only man(1) is missing."""

import pathlib
import re
import shutil
import subprocess
import sys

source, manual, command = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
pages = {path.name: path for path in manual.glob('man?/*')}
texts = {name: (manual / 'markdown' / f'{name}.md').read_text(encoding='utf-8').replace('\\', '') for name in pages}
bad = []


def code_of(path):
    """A header without its comments; a declaration that is a copy of another is under its own name."""
    text = re.sub(r'/\*.*?\*/', ' ', path.read_text(encoding='utf-8'), flags=re.S)
    return text + ' '.join(f'softrdma_{name}' for name in re.findall(r'^SOFTRDMA_LIKE\((\w+)\)', text, re.M))


def known_names():
    names = set()
    for header in ('librpma.h', 'softrdma.h', 'rpma/rsocket.h'):
        names |= set(re.findall(r'\w+', code_of(source / 'include' / header)))
    for path in (source / 'src').rglob('*.[ch]pp'):
        text = path.read_text(encoding='utf-8')
        names |= set(re.findall(r'"((?:RPMA|SOFTRDMA)_[A-Z]+)"', text))  # environment
        if path.name == 'metrics.cpp':
            names |= set(re.findall(r'"(rpma_[a-z_]+)"', text))
    return names


def check_names(where, text, known):
    for name in sorted(set(re.findall(r'\b(?:RPMA|SOFTRDMA)_[A-Z0-9_]+|\b(?:rpma|softrdma)_[a-z0-9_]+', text))):
        if name not in known and not (name.endswith('_') and any(other.startswith(name) for other in known)):
            bad.append(f'{where} names {name}, which no header has')


def check_form(path):
    """In the comment of a function, and of a section, each label begins its line, and each error has one of its own."""
    text = path.read_text(encoding='utf-8')
    for comment in re.findall(r'/\*.*?\*/', text, re.S):
        for line in re.findall(r'^.*\w.*\b(?:Blocks|Threads|Returns|Errors): .*', comment, re.M):
            bad.append(f'{path.name}: a label inside a line: {line.strip()}')
    for comment, function in re.findall(r'/\*\*((?:(?!\*/).)*)\*/\n[^;(]*?(\w+)\(', text, re.S):
        if f'{function}.3' not in pages:
            bad.append(f'{function} of {path.name} has no page')
            continue
        errors = re.search(r'^ \* Errors:\n(.*?)^ (?:\* ?\S|\* *$|$)', comment, re.M | re.S)
        listed = re.findall(r'^ \*   ([A-Z]\w+)', errors.group(1), re.M) if errors else []
        shown = re.findall(r'^\*\*(\w+)\*\*\n: ', texts[f'{function}.3'].partition('# ERRORS')[2], re.M)
        bad.extend(f'{function}: {name} is {listed.count(name)} times in {path.name}, {shown.count(name)} times in its page'
                   for name in listed if (listed.count(name), shown.count(name)) != (1, 1))


def check_page(name, text):
    headings = re.findall(r'^# (.+)$', text, re.M)
    if name.endswith('.3'):
        wanted = ['NAME', 'SYNOPSIS', 'DESCRIPTION', 'RETURN VALUE', 'BLOCKING', 'THREADS', 'SEE ALSO']
        synopsis = re.search(r'```c\n(.*?)\n```', text, re.S).group(1)
        declaration = ' '.join(synopsis.split('\n\n')[-1].split())
        header = re.search(r'#include <([\w./]+)>', synopsis).group(1)
        named = re.findall(r'^\**(\w+)\**\n: ', text.partition('# PARAMETERS\n')[2].partition('\n# ')[0], re.M)
        bad.extend(f'{name} tells of a parameter {each} that is not there' for each in named
                   if not re.search(rf'\b{each}\b', declaration))
        if declaration not in ' '.join(code_of(source / 'include' / header).split()):
            bad.append(f'{name}: {header} does not declare: {declaration}')
    else:
        wanted = ['NAME', 'SYNOPSIS', 'DESCRIPTION', 'SEE ALSO'] + (['OPTIONS', 'EXIT STATUS'] if name.endswith('.1') else [])
    bad.extend(f'{name} has no {heading}' for heading in wanted if heading not in headings)
    if '{{' in text:
        bad.append(f'{name} has a field that was not filled in')
    for page in re.findall(r'\*\*((?:rpma|softrdma|librpma)[\w-]*)\*\*(\(\d\))', text):
        if f'{page[0]}.{page[1][1]}' not in pages:
            bad.append(f'{name} refers to {page[0]}{page[1]}, which is not there')


def check_man(name, path):
    run = subprocess.run(['man', '--warnings', '-E', 'UTF-8', '-l', '-Tutf8', '-Z', path], check=False,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding='utf-8')
    if run.returncode or run.stderr:
        bad.append(f'{name}: man says: {run.stderr.strip()}')


known = known_names()
for script in ('src/librpma/librpma.map', 'src/rsocket/librsocket.map'):
    for symbol in re.findall(r'^\s+(r\w+);', (source / script).read_text(encoding='utf-8'), re.M):
        if f'{symbol}.3' not in pages:
            bad.append(f'{symbol} is exported and has no page')
subcommands = re.findall(r'^  (\w+)  +\S', subprocess.run([command, '--help'], check=True, capture_output=True,
                                                          encoding='utf-8').stdout.split('Subcommands:')[1], re.M)
documented = {name[len('rpma-'):-2] for name in pages if name.startswith('rpma-')}
for subcommand in documented.symmetric_difference(subcommands):
    bad.append(f'rpma {subcommand}: {"the page has no command" if subcommand in documented else "the command has no page"}')
for header in ('librpma.h', 'softrdma.h', 'rpma/rsocket.h'):
    check_form(source / 'include' / header)
for name, text in texts.items():
    check_names(name, text, known)
    check_page(name, text)
for line in (source / 'doc/MIGRATION.md').read_text(encoding='utf-8').splitlines():
    if line.startswith('| `'):  # old, now, what changes: only what is old may be unknown
        check_names('doc/MIGRATION.md', line.split('|')[2], known)
if shutil.which('man'):
    for name, path in sorted(pages.items()):
        check_man(name, path)

print('\n'.join(bad) or f'{len(pages)} pages, {len(subcommands)} commands: all there')
if not bad and not shutil.which('man'):
    print('skipped: no man(1), so how the pages are set was not looked at')
    sys.exit(77)
sys.exit(bool(bad) or len(pages) < 80)
