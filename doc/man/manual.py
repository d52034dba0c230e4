#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the manual: a page for each documented function of the installed headers, and the pages whose prose is in this
folder, filled in from the headers and the command's --help. Pages are Markdown. pandoc sets them for man and as HTML, all
of them at once, because its start takes longer than its work. header.py tells which parts of a header it reads."""

import argparse
import gzip
import pathlib
import re
import subprocess
import sys

from command_help import Help
from header import Header, names_defined
from markdown import capital, plain

# src/cli/failure.hpp, for people.
EXITS = {
    '0': 'Done.',
    '1': 'Failed before anything was changed, or all was done and the summary could not be printed; a line on standard error says '
         'which. Without a reader of standard output (a broken pipe) there is no line.',
    '2': 'The command line was not understood; nothing was done.',
    '3': 'Not committed: the push failed before its commit. The old content stays.',
    '4': 'Unknown whether committed: the push failed while the server committed. The newest content is the old one or the new one; '
         'the line on standard error has the sequence and the checksum of the new, and **rpma-list**(1) tells which it is, once **rpma-status**(1) shows no '
         'commit that is under way.',
    '5': 'Busy: another push is under way. Nothing was changed.',
    '6': 'Refused: the server refuses the request, or a store is sick, and the line gives the reason. Nothing was changed.',
    '7': 'Unreachable: there is no such host, no server of a store at the address, or none that answers, or keys or '
         'certificates of the two sides do not fit.',
    '126': 'The program cannot be executed.',
    '127': 'There is no such program.',
}
NOT_ENGLISH = set('addr ptr len src dst cfg imm fd cq wc req ep srq mr conn pcfg desc pdata ret'.split())


class Manual:
    def __init__(self, headers, version_script):
        self.headers = headers
        nodes = re.findall(r'^([\w.]+) \{(.*?)^\}', version_script, re.M | re.S)
        self.nodes = {symbol: node for node, symbols in nodes for symbol in re.findall(r'^\s+(\w+);', symbols, re.M)}
        self.functions = {function.name: function for header in headers for function in header.functions}
        self.words = self.functions.keys() - {header.noun for header in headers}

    def markdown(self, text, parameters=()):
        """Returns the prose of a comment as Markdown, in which names are set as names."""
        italic = [name if '_' in name or name in NOT_ENGLISH else f'{name}(?= is )' for name in parameters] or ['(?!)']
        token = re.compile(r'\b(?P<call>[a-z]\w+)\((?P<volume>\d)\)'
                           r'|\b(?P<name>(?:rpma|softrdma)_\w+|[A-Z]+_[A-Z0-9_]+|E[A-Z0-9]{3,}|' + '|'.join(self.words) + r')\b'
                           r'|\*?\b(?P<parameter>' + '|'.join(italic) + r')\b|(?P<special>[*_<>\[\]`{}|\\~^$#@])')

        def replace(match):
            if match['call']:
                return f'**{match["call"]}**({match["volume"]})'
            if match['name']:
                name = match['name'].replace('_', r'\_')
                return f'**{name}**(3)' if match['name'] in self.words else f'**{name}**'
            if match['parameter']:
                return '*' + match[0].replace('*', r'\*').replace('_', r'\_') + '*'
            return '\\' + match['special']
        return token.sub(replace, text)

    def mentions(self, function):
        """Returns the functions and foreign pages that a function's comment names."""
        text = f'{function.comment.text()} {function.section.comment.text()}'
        return {name for name in re.findall(r'\b\w+\b', text) if name in self.words}, \
            set(re.findall(r'\b([a-z]\w+\(\d\)|RFC \d+)', text))

    def see_also(self, function):
        ours, others = self.mentions(function)
        ours |= {other.name for other in self.functions.values() if function.name in self.mentions(other)[0]}
        for a, b in (('_set_', '_get_'), ('_new', '_delete'), ('_reg', '_dereg'), ('_listen', '_shutdown'),
                     ('_get_descriptor', '_from_descriptor'), ('descriptor', 'descriptor_size')):
            ours |= {function.name.replace(a, b), function.name.replace(b, a)} & self.functions.keys()
        others.add(f'{function.header.overview}(7)')
        pages = sorted(f'{name}(3)' for name in ours - {function.name}) + sorted(others, key=str.lower)
        return ', '.join(self.markdown(page) for page in pages)

    def groups(self, function):
        """Returns the definitions that a page shows: the types of the declaration, macros by name or by parameter."""
        groups = [(section, group) for section in function.header.sections[1:] for group in section.groups]
        text = f'{function.declaration} {function.comment.text()}'
        shown = []
        while True:
            for section, group in groups:
                quoted = section is function.section and set(re.findall(r'"(\w+)"', group)) & set(function.parameters)
                named = [name for name in names_defined(group) if '_E_' not in name and re.search(rf'\b{name}\b', text)]
                if group not in shown and (named or quoted):
                    shown.append(group)
                    break
            else:
                return [group for _, group in groups if group in shown]
            text += ' '.join(re.findall(r'\b(?:enum|struct) \w+', shown[-1]))  # the types of the fields too

    def errors(self, function):
        def concerns(when):
            """Returns whether an error of a section or header applies to this function."""
            if when.startswith('A pointer'):
                return function.type == 'int' and '*' in function.declaration and 'Returns' not in function.comment.fields
            return when[0].isupper() or when.split()[0] in function.parameters
        listed = {}
        for name, when in [each for each in function.header.opening.errors() if concerns(each[1])] + \
                function.comment.errors() + [each for each in function.section.comment.errors() if concerns(each[1])]:
            text = when or function.header.meaning[name]
            listed[name] = f'{listed[name]} {text}' if name in listed else text
        return listed

    def entries(self, part, function):
        """Returns a list of a comment as Markdown."""
        return '\n\n'.join(f'{self.markdown(name, function.parameters)}\n:   {self.markdown(text, function.parameters)}'
                           for name, text in part)

    def since(self, function):
        """Returns nothing for a function that librpma 1.0 to 1.3 have."""
        node = self.nodes.get(function.name, 'LIBRPMA_1.0')
        return '' if node == 'LIBRPMA_1.0' else f'An addition to the interface of librpma 1.3: symbol version {plain(node)}.'

    def page(self, function):
        comment, section, opening = function.comment, function.section.comment, function.header.opening

        def prose(parts):
            return '\n\n'.join(self.markdown(part, function.parameters) if isinstance(part, str) else
                               self.entries(part, function) for part in parts)

        def said(label):
            """Returns the text under a label of the function, else of its section, else of its header."""
            parts = comment.fields.get(label) or section.fields.get(label) or opening.fields.get(label)
            return [capital(parts[0]), *parts[1:]] if parts and isinstance(parts[0], str) else parts
        about_parameters = [part for part in comment.body if not isinstance(part, str) and part[0][0] in function.parameters]
        for name in {name for part in about_parameters for name, _ in part} - set(function.parameters):
            raise SystemExit(f'{function.header.file}: {function.name} has no parameter {name}')
        errors = self.errors(function)
        returns = said('Returns')
        if not returns and function.type != 'int':
            raise SystemExit(f'{function.header.file}: {function.name} needs "Returns: "')
        if not returns:
            returns = ['0, or one of the negative codes below; an output is written only on success, unless said otherwise '
                       'above.' if errors else '0.']
        blocks = ' '.join(comment.fields.get('Blocks') or section.fields.get('Blocks') or [])
        synopsis = '\n\n'.join([f'#include <{function.header.file}>', *self.groups(function), function.declaration])
        parts = [
            ('NAME', plain(f'{function.name} - {comment.summary()}')),
            ('SYNOPSIS', f'```c\n{synopsis}\n```'),
            ('DESCRIPTION', prose([part for part in comment.body if part not in about_parameters] + section.body)),
            ('PARAMETERS', prose(about_parameters)),
            ('RETURN VALUE', prose(returns)),
            ('ERRORS', self.entries(errors.items(), function)),
            ('BLOCKING', prose([f'The call blocks {blocks}' if blocks else 'The call does not block.'])),
            ('THREADS', prose(said('Threads') or ['Any thread; the caller orders calls that use the same object.'])),
            ('VERSIONS', self.since(function)),
            ('SEE ALSO', self.see_also(function)),
        ]
        return ''.join(f'# {name}\n\n{text}\n\n' for name, text in parts if text)

    def functions_of(self, header):
        """Returns every section of a header, with its text and its functions."""
        said = []
        for section in header.sections:
            if section.functions:
                said.append(f'## {capital(section.title)}')
                said += [self.markdown(each) for each in section.comment.paragraphs()]
                said += [f'{self.markdown(function.name)}\n:   {self.markdown(function.comment.summary())}'
                         for function in section.functions]
        return '\n\n'.join(said)

    def filled(self, text, command):
        """Returns a page from prose, in which it replaces {{WORD}} and {{WORD ARGUMENT}} by their text."""
        headers = {header.file: header for header in self.headers}
        fields = {
            'opening': lambda file: '\n\n'.join(re.sub(r'^(\w+\.) ', r'**\1** ', self.markdown(each))
                                                for each in headers[file].opening.paragraphs()[1:]),
            'functions': lambda file: self.functions_of(headers[file]),
            'errors': lambda file: '\n\n'.join(f'{self.markdown(error)}\n:   {self.markdown(meaning)}' for error, meaning in
                                               headers[file].meaning.items() if '_E_' in error),
            'copies': lambda file: '\n\n'.join(self.markdown(f'softrdma_{copy}: {copy}(3)')
                                               for copy in headers[file].copies),
            'exits': lambda *which: '\n\n'.join(f'{code}\n:   {EXITS[code]}' for code in which or ('0', '1', '2')),
            'title': lambda *words: Help(command, words).title(),
            'usage': lambda *words: Help(command, words).usage(),
            'options': lambda *words: Help(command, words).options(),
            'notes': lambda *words: Help(command, words).notes(),
        }
        text = re.sub(r'^(<!--.*?-->\n+)+', '', text, flags=re.S)
        text = re.sub(r'\{\{(\w+)((?: [\w.]+)*)\}\}', lambda match: fields[match[1]](*match[2].split()), text)
        return text


MARK = 'the page '  # what stands between two pages while pandoc has them


def set_with_pandoc(pandoc, pages, form, links=()):
    """Returns {name: the page as roff or HTML, without its head}."""
    options = ['--from', 'markdown-smart-auto_identifiers', '--to', form, *links]
    marked = '\n\n'.join(f'```{{={form}}}\n{MARK}{name}\n```\n\n{text}' for name, text in pages.items())
    output = subprocess.run([pandoc, *options], check=True, input=marked, capture_output=True, encoding='utf-8').stdout
    pieces = re.split(rf'^{MARK}(\S+)\n', output, flags=re.M)
    return dict(zip(pieces[1::2], pieces[2::2]))


def roff(name, body, version):
    stem, volume = name.rsplit('.', 1)
    kind = {'1': 'Commands', '3': 'Library functions', '7': 'Overviews'}[volume]
    return f'.TH "{stem}" "{volume}" "" "rpma {version}" "{kind}"\n.nh\n.ad l\n{body}'


def html(name, body, _):
    return f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{name}</title>\n{body}</html>\n'


def write(path, content):
    """Writes the file, unless it has this text already: then nothing that depends on it is made again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def main():
    parser = argparse.ArgumentParser(description='Makes the manual.')
    parser.add_argument('--header', action='append', type=pathlib.Path, required=True)
    parser.add_argument('--version-script', type=pathlib.Path, required=True, help='whose nodes say what is an addition')
    parser.add_argument('--prose', type=pathlib.Path, required=True, help='folder of NAME.VOLUME.md and links.lua')
    parser.add_argument('--command', help='the rpma command')
    parser.add_argument('--version', default='')
    parser.add_argument('--pandoc', default='pandoc')
    parser.add_argument('--out', type=pathlib.Path, help='folder to write to; without it, the pages are listed')
    options = parser.parse_args()
    manual = Manual([Header(path) for path in options.header], options.version_script.read_text(encoding='utf-8'))
    prose = {path.stem: path for path in sorted(options.prose.glob('*.[0-9].md'))}
    if not options.out:
        print('\n'.join([*(f'{name}.3' for name in manual.functions), *prose]))
        return
    pages = {f'{name}.3': manual.page(function) for name, function in manual.functions.items()}
    pages |= {name: manual.filled(path.read_text(encoding='utf-8'), options.command) for name, path in prose.items()}
    links = ['--metadata', f'PAGES:{" ".join(pages)}', '--lua-filter', options.prose / 'links.lua',
             '--no-highlight']
    for name, text in pages.items():
        write(options.out / 'markdown' / f'{name}.md', text.encode())
    for name, body in set_with_pandoc(options.pandoc, pages, 'man').items():
        page = roff(name, body, options.version).encode()
        write(options.out / f'man{name[-1]}' / name, page)
        write(options.out / 'install' / f'man{name[-1]}' / f'{name}.gz', gzip.compress(page, mtime=0))
    for name, body in set_with_pandoc(options.pandoc, pages, 'html', links).items():
        write(options.out / 'html' / f'{name}.html', html(name, body, options.version).encode())


if __name__ == '__main__':
    sys.exit(main())
