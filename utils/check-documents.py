#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks what the documents say of the sources: `utils/check-documents.py [--write]`.

1. Each file that a document names in back-ticks exists, and so does each part of a name like `Class::function`.
2. The lists of files in doc/ROOMS.md are what the files say of themselves. Every header of src/, and every source that
   has no header of its name, begins after its licence with `room/name: what it is.`; its row has that sentence. --write
   writes the lists.

Decisions are left out, because they tell of a day.
"""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
FOLDERS = ('.ci', '.github', 'cmake', 'doc', 'examples', 'include', 'src', 'tests', 'utils')
KINDS = ('.hpp', '.h', '.cpp', '.c')
BEGIN = '<!-- The lists of files: utils/check-documents.py writes them. -->\n'


def read(path):
    with open(os.path.join(ROOT, path), encoding='utf-8', errors='replace') as file:
        return file.read()


def all_files():
    for name in os.listdir(ROOT):
        if os.path.isfile(os.path.join(ROOT, name)):
            yield name
    for top in FOLDERS:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def stale_names(files):
    """Returns a line for each name in a document that names nothing."""
    # A document may leave out the folders above a file.
    ends = {path.split('/', skipped)[-1] for path in files for skipped in range(path.count('/') + 1)}
    sources = [f for f in files if f.endswith(KINDS)]
    words = {word for path in sources for word in re.findall(r'[A-Za-z_]\w*', read(path))}
    lines = []
    for document in sorted(f for f in files if f.endswith('.md') and not f.startswith('doc/decisions/')):
        for number, line in enumerate(read(document).split('\n'), 1):
            for name in re.findall(r'`([^`]+)`', line):
                is_file = re.fullmatch(r'[\w./-]+\.(?:cpp|hpp|c|h|sh|py|bash|md)', name)
                is_function = re.fullmatch(r'\w+(?:::~?\w+)+(?:\(\))?', name)
                if (is_file and name not in ends) or (
                        is_function and not set(re.findall(r'\w+', name)) <= words):
                    lines.append(f'{document}:{number}: there is no {name}')
    return lines


def sentence_of(path):
    """Returns what the first comment of a file says of it, up to the first full stop; None when it says nothing."""
    words = []
    for line in read(path).split('\n')[1:]:
        if not line.startswith(('// ', '/* ', ' * ')):
            break
        words.append(line[3:].removesuffix(' */'))
    found = re.match(r'[\w/]+: (.*?[^.])(?:\.(?: |$)|$)', ' '.join(words))
    return found.group(1).strip() if found else None


def lists_of_files(files):
    """Returns the lists, and a line for each file that does not say what it is."""
    silent, text = [], ''
    folders = {}
    for path in sorted(f for f in files if f.startswith('src/') and f.endswith(KINDS)):
        stem = os.path.splitext(path)[0]
        folders.setdefault(os.path.dirname(path), {}).setdefault(stem, []).append(path)
    for folder, stems in folders.items():
        text += f'\n### {folder.removeprefix("src/")}\n\n| file | what it is |\n|---|---|\n'
        for stem, paths in stems.items():
            first = min(paths, key=lambda path: KINDS.index(os.path.splitext(path)[1]))
            sentence = sentence_of(first)
            if sentence is None:
                silent.append(f'{first}: it does not begin with "{stem.removeprefix("src/")}: what it is."')
            text += f'| `{os.path.basename(stem)}` | {sentence} |\n'
    return text, silent


def main():
    files = sorted(all_files())
    findings = stale_names(files)
    lists, silent = lists_of_files(files)
    findings += silent
    rooms = read('doc/ROOMS.md')
    wanted = rooms[:rooms.index(BEGIN) + len(BEGIN)] + lists
    if rooms != wanted:
        if '--write' in sys.argv[1:]:
            with open(os.path.join(ROOT, 'doc/ROOMS.md'), 'w', encoding='utf-8') as file:
                file.write(wanted)
        else:
            findings.append('doc/ROOMS.md: its lists of files are not what the files say; utils/check-documents.py '
                            '--write writes them')
    print('\n'.join(findings) or f'check-documents: the documents name only what there is among {len(files)} files')
    return bool(findings)


if __name__ == '__main__':
    sys.exit(main())
