#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the manual: a page for each documented function of the installed headers, and the pages whose prose is in this
folder, with what the headers and the command's --help say filled in. Pages are Markdown, which pandoc sets for man and as
HTML, all of them at once, because starting it takes longer than what it does.

What it reads of a header:
    /* ==== TITLE ==== */            begins a section (---- does too); a comment of its own right after it speaks for all its functions
    /** TEXT */ declaration          is a page; TEXT's first sentence is its NAME, up to a colon or semicolon
    enum, struct, #define, typedef   are shown where a function has the type or names the macro, or has a parameter that
                                     the comment above the group puts in quotes ("flags")
and of TEXT, from the label to the next one or the end of the paragraph:
    Errors: NAME: when. NAME: when.  Threads: ...  Returns: ... (needed where that is not int)  See name(3), name(3).
"Errors:" may be left out before the first NAME.
"""

import argparse
import pathlib
import re
import subprocess
import sys

LABELS = re.compile(r'(?:(?<=\s)|^)(Errors|Threads|Returns): |(?<=[.)] )(See) (?=\w+\(\d\))|^(See) (?=\w+\(\d\))')
ERROR = re.compile(r'(?:(?<=[.;] )|^)([A-Z]+_E_[A-Z_]+)(?: also)?(?:: |\.)')
NOT_ENGLISH = set('addr ptr len src dst cfg imm fd cq wc req ep srq mr conn pcfg desc pdata ret'.split())


def plain(text):
    """Text of which nothing is Markdown."""
    return re.sub(r'([*_<>\[\]`{}|\\~^$#@])', r'\\\1', text)


def capital(text):
    return text[:1].upper() + text[1:]


class Comment:
    """The text of a comment, taken apart at its labels."""

    def __init__(self, raw):
        lines = (re.sub(r'^\s*\*? ?', '', line).rstrip() for line in raw.splitlines())
        self.paragraphs, self.fields = [], {}
        for paragraph in re.split(r'\n\s*\n', '\n'.join(lines).strip()):
            self.take(re.sub(r'\s+', ' ', paragraph).strip())

    def take(self, text):
        first = ERROR.search(text)
        if first and 'Errors: ' not in text:
            text = f'{text[:first.start(1)]}Errors: {text[first.start(1):]}'
        pieces = [piece for piece in LABELS.split(text) if piece is not None]
        if pieces[0].strip():
            self.paragraphs.append(pieces[0].strip())
        for label, said in zip(pieces[1::2], pieces[2::2]):
            self.fields[label] = f'{self.fields.get(label, "")} {said}'.strip()

    def summary(self):
        """The first sentence, as a NAME line has it."""
        sentence = re.split(r'\. |\.$|; |: ', re.sub(r' \([^)]*\)', '', self.paragraphs[0]))[0]
        return sentence[0].lower() + sentence[1:] if sentence[1:2].islower() or sentence[1:2] == ' ' else sentence

    def errors(self):
        """[(name, when)], in order."""
        pieces = ERROR.split(self.fields.get('Errors', ''))
        if pieces[0].strip():
            raise SystemExit(f'after "Errors:" comes "NAME: when", not "{pieces[0].strip()}"')
        return [(name, when.strip()) for name, when in zip(pieces[1::2], pieces[2::2])]


class Section:
    def __init__(self, title):
        self.title, self.comment, self.functions, self.groups = title, Comment(''), [], []


class Function:
    def __init__(self, name, declaration, comment, section, header):
        self.name, self.declaration, self.comment = name, declaration, comment
        self.section, self.header = section, header
        arguments = declaration[declaration.index('(') + 1:declaration.rindex(')')]
        self.parameters = [re.search(r'(\w+)(?:\[\w*\])?$', each.strip()).group(1)
                           for each in arguments.split(',') if each.strip() not in ('', 'void', '...')]
        self.type = re.sub(r'^extern ', '', declaration[:declaration.index(name)]).strip()


class Header:
    """One installed header: sections, functions, and groups (verbatim text of other declarations)."""

    def __init__(self, path):
        self.file, text = path.name, path.read_text(encoding='utf-8')
        self.stem = path.stem
        self.opening = Comment(re.search(r'\n/\*\n(.*?)\*/', text, re.S).group(1))
        self.sections, self.meaning = [Section('')], {}
        for match in re.finditer(r'/\*((?:(?!\*/).)*)\*/\s*#define (\w+)', text, re.S):
            self.meaning[match.group(2)] = ' '.join(Comment(match.group(1)).paragraphs)
        for chunk in re.split(r'\n\s*\n', text[text.index('#include'):]):
            self.take(chunk.strip('\n'))
        self.functions = [function for section in self.sections for function in section.functions]
        self.copies = re.findall(r'^SOFTRDMA_LIKE\((\w+)\);', text, re.M)

    def take(self, chunk):
        title = re.match(r'/\* [=-]{4,} ([^:]*?)(?:: .*?)? [=-]{4,} \*/', chunk)
        comment, code = re.match(r'(/\*.*?\*/)?(.*)', chunk, re.S).groups()
        function = re.match(r'(?!typedef)(?:extern )?[\w ]*?[ *](\w+)\([^{}]*\);$', code.strip())
        section = self.sections[-1]
        if title:
            self.sections.append(Section(title.group(1)))
        elif comment and comment.startswith('/**') and function:
            section.functions.append(
                Function(function.group(1), re.sub(r'^extern ', '', code.strip()), Comment(comment[3:-2]), section, self))
        elif comment and not code.strip() and not section.functions and not section.groups:
            section.comment = Comment(comment[2:-2])
        elif not function and names_defined(code):
            section.groups.append(re.sub(r'/\* NOLINT.*\n', '', chunk))


def names_defined(group):
    """The macros and types that a group defines."""
    return [match[match.lastindex] for match in
            re.finditer(r'^#define (\w+)|^(?:enum|struct) (\w+) \{|^typedef .*?\(?\*?(\w+)\)?\(', group, re.M)]


class Manual:
    def __init__(self, headers):
        self.headers = headers
        self.functions = {function.name: function for header in headers for function in header.functions}

    def markdown(self, text, parameters=()):
        """Prose of a comment as Markdown: what is a name is set as one."""
        italic = [name if '_' in name or name in NOT_ENGLISH else f'{name}(?= is )' for name in parameters] or ['(?!)']
        token = re.compile(r'\b(?P<call>[a-z]\w+)\((?P<volume>\d)\)|\b(?P<name>(?:rpma|softrdma)_\w+|[A-Z]+_[A-Z0-9_]+)\b'
                           r'|\*?\b(?P<parameter>' + '|'.join(italic) + r')\b|(?P<special>[*_<>\[\]`{}|\\~^$#@])')

        def replace(match):
            if match['call']:
                return f'**{match["call"]}**({match["volume"]})'
            if match['name']:
                name = match['name'].replace('_', r'\_')
                return f'**{name}**(3)' if match['name'] in self.functions else f'**{name}**'
            if match['parameter']:
                return '*' + match[0].replace('*', r'\*').replace('_', r'\_') + '*'
            return '\\' + match['special']
        return token.sub(replace, text)

    def mentions(self, function):
        """The functions and foreign pages that a function's comment names."""
        comment = function.comment
        text = ' '.join(comment.paragraphs + list(comment.fields.values()) + function.section.comment.paragraphs)
        return {name for name in re.findall(r'\b\w+\b', text) if name in self.functions}, \
            set(re.findall(r'\b([a-z]\w+\(\d\))', text))

    def see_also(self, function):
        ours, others = self.mentions(function)
        ours |= {other.name for other in self.functions.values() if function.name in self.mentions(other)[0]}
        for a, b in (('_set_', '_get_'), ('_new', '_delete'), ('_reg', '_dereg'), ('_listen', '_shutdown'),
                     ('_get_descriptor', '_from_descriptor'), ('descriptor', 'descriptor_size')):
            ours |= {function.name.replace(a, b), function.name.replace(b, a)} & self.functions.keys()
        pages = sorted(f'{name}(3)' for name in ours - {function.name}) + sorted(others)
        return ', '.join(self.markdown(page) for page in [*pages, f'{function.header.stem}(7)'])

    def groups(self, function):
        """The definitions that a page shows: the types of the declaration, macros by name or by parameter."""
        text = ' '.join(function.comment.paragraphs)
        for section in function.header.sections[1:]:
            for group in section.groups:
                quoted = set(re.findall(r'"(\w+)"', group)) & set(function.parameters)
                named = [name for name in names_defined(group) if '_E_' not in name and
                         re.search(rf'\b{name}\b', f'{function.declaration} {text}')]
                if named or (quoted and section is function.section):
                    yield group

    def errors(self, function):
        listed = {}
        for name, when in function.comment.errors() + function.section.comment.errors():
            text = when or function.header.meaning[name]
            if text.split()[0] not in function.parameters:
                text = capital(text)
            listed[name] = f'{listed[name]} {text}' if name in listed else text
        return listed

    def page(self, function):
        comment, section = function.comment, function.section.comment

        def prose(paragraphs):
            return '\n\n'.join(self.markdown(each, function.parameters) for each in paragraphs)
        errors = self.errors(function)
        returns = comment.fields.get('Returns')
        if not returns and function.type != 'int':
            raise SystemExit(f'{function.header.file}: {function.name} needs "Returns: "')
        if not returns:
            returns = '0, or one of the negative codes below; an output is written only on success, unless said otherwise ' \
                'above.' if errors else '0.'
        threads = comment.fields.get('Threads') or section.fields.get('Threads') or \
            'Any thread; the caller orders calls that use the same object.'
        if not re.search(r'\b([Bb]locks|May block)\b', ' '.join(comment.paragraphs + section.paragraphs)):
            threads += ' Does not block.'
        synopsis = '\n\n'.join([f'#include <{function.header.file}>', *self.groups(function), function.declaration])
        parts = [
            ('NAME', plain(f'{function.name} - {comment.summary()}')),
            ('SYNOPSIS', f'```c\n{synopsis}\n```'),
            ('DESCRIPTION', prose(comment.paragraphs + section.paragraphs)),
            ('RETURN VALUE', prose([capital(returns)])),
            ('ERRORS', '\n\n'.join(f'{self.markdown(name)}\n:   {self.markdown(when, function.parameters)}'
                                   for name, when in errors.items())),
            ('THREADS', prose([capital(threads)])),
            ('SEE ALSO', self.see_also(function)),
        ]
        return ''.join(f'# {name}\n\n{text}\n\n' for name, text in parts if text)

    def functions_of(self, header):
        """Every section of a header: what it says of itself, and its functions."""
        said = []
        for section in header.sections:
            if section.functions:
                said.append(f'## {capital(section.title)}')
                said += [self.markdown(each) for each in section.comment.paragraphs]
                said += [f'{self.markdown(function.name)}\n:   {self.markdown(function.comment.summary())}'
                         for function in section.functions]
        return '\n\n'.join(said)

    def filled(self, text, command):
        """A page from prose: {{WORD}} or {{WORD ARGUMENT}} is what is known about it."""
        headers = {header.file: header for header in self.headers}
        fields = {
            'opening': lambda file: '\n\n'.join(re.sub(r'^(\w+\.) ', r'**\1** ', self.markdown(each))
                                                for each in headers[file].opening.paragraphs[1:]),
            'functions': lambda file: self.functions_of(headers[file]),
            'errors': lambda file: '\n\n'.join(f'{self.markdown(error)}\n:   {self.markdown(meaning)}' for error, meaning in
                                               headers[file].meaning.items() if '_E_' in error),
            'copies': lambda file: '\n\n'.join(self.markdown(f'softrdma_{copy}: {copy}(3)')
                                               for copy in headers[file].copies),
            'exits': lambda: '0\n:   Done.\n\n1\n:   Failed; a line on standard error says what and why.\n\n'
                             '2\n:   The command line was not understood; nothing was done.',
            'title': lambda *words: Help(command, words).title(),
            'usage': lambda *words: Help(command, words).usage(),
            'options': lambda *words: Help(command, words).options(),
            'notes': lambda *words: Help(command, words).notes(),
        }
        text = re.sub(r'^(<!--.*?-->\n+)+', '', text, flags=re.S)
        text = re.sub(r'\{\{(\w+)((?: [\w.]+)*)\}\}', lambda match: fields[match[1]](*match[2].split()), text)
        return text


class Help:
    """What the command says of itself."""

    def __init__(self, command, words):
        self.words = ['rpma', *words]
        self.text = subprocess.run([command, *words, '--help'], check=True, capture_output=True, encoding='utf-8').stdout

    def block(self, title):
        """[(term, meaning)] of what the help lists under a title."""
        found = re.search(rf'^{title}:\n((?:  .*\n?)+)', self.text, re.M)
        pairs = re.findall(r'^  (\S.*?)(?:  +|\n {10,})(\S.*(?:\n {10,}\S.*)*)', found.group(1), re.M) if found else []
        return [(term, ' '.join(meaning.split())) for term, meaning in pairs]

    def title(self):
        text = plain(self.text.splitlines()[0]).rstrip('.')
        return text[0].lower() + text[1:]

    def usage(self):
        name = ' '.join(self.words)
        usage = re.search(r'^Usage: (.*)$', self.text, re.M).group(1)
        required = [self.term(term)[0] for term, _ in self.block('Options') if 'REQUIRED' in term]
        return plain(usage).replace(name, ' '.join([f'**{name}**', *required]))

    def options(self):
        said = []
        for title in ('Positionals', 'Options', 'Subcommands'):
            for term, meaning in self.block(title):
                shown, default = self.term(term)
                said.append(f'{shown}\n:   {plain(meaning)}{f" (default: {plain(default)})" if default else ""}.')
        return '\n\n'.join(said)

    @staticmethod
    def term(term):
        """An option as a manual sets it, and its default. CLI11's term: NAMES TYPE[:CHECK][=DEFAULT] [REQUIRED]"""
        names, value, default = re.fullmatch(r'(\S+)(?: ([A-Z]+)[^=]*(?:=(\S+))?)?', term.replace(' REQUIRED', '')).groups()
        shown = f'**{plain(names.replace(",", ", "))}**'
        if value and names.startswith('-'):
            shown += f' *{ {"TEXT": "VALUE"}.get(value, "NUMBER") }*'
        return shown, default

    def notes(self):
        """The prose after the options."""
        return plain(' '.join(self.text.strip().split('\n\n')[-1].split()))


MARK = 'the page '  # what stands between two pages while pandoc has them


def set_with_pandoc(pandoc, pages, form, links=()):
    """{name: the page as roff or HTML, without its head}"""
    options = ['--from', 'markdown-smart-auto_identifiers', '--to', form, *links]
    marked = '\n\n'.join(f'```{{={form}}}\n{MARK}{name}\n```\n\n{text}' for name, text in pages.items())
    output = subprocess.run([pandoc, *options], check=True, input=marked, capture_output=True, encoding='utf-8').stdout
    pieces = re.split(rf'^{MARK}(\S+)\n', output, flags=re.M)
    return dict(zip(pieces[1::2], pieces[2::2]))


def roff(name, body, version):
    stem, volume = name.rsplit('.', 1)
    kind = {'1': 'Commands', '3': 'Library functions', '7': 'Overviews'}[volume]
    return f'.TH "{stem}" "{volume}" "" "rpma {version}" "{kind}"\n.nh\n{body}'


def html(name, body, _):
    return f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{name}</title>\n{body}</html>\n'


def write(path, text):
    """Leaves a file that is right as it is, and what depends on it too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding='utf-8') != text:
        path.write_text(text, encoding='utf-8')


def main():
    parser = argparse.ArgumentParser(description='Makes the manual.')
    parser.add_argument('--header', action='append', type=pathlib.Path, required=True)
    parser.add_argument('--prose', type=pathlib.Path, required=True, help='folder of NAME.VOLUME.md and links.lua')
    parser.add_argument('--command', help='the rpma command')
    parser.add_argument('--version', default='')
    parser.add_argument('--pandoc', default='pandoc')
    parser.add_argument('--out', type=pathlib.Path, help='folder to write to; without it, the pages are listed')
    options = parser.parse_args()
    manual = Manual([Header(path) for path in options.header])
    prose = {path.stem: path for path in sorted(options.prose.glob('*.[0-9].md'))}
    if not options.out:
        print('\n'.join([*(f'{name}.3' for name in manual.functions), *prose]))
        return
    pages = {f'{name}.3': manual.page(function) for name, function in manual.functions.items()}
    pages |= {name: manual.filled(path.read_text(encoding='utf-8'), options.command) for name, path in prose.items()}
    links = ['--metadata', f'PAGES:{" ".join(pages)}', '--lua-filter', options.prose / 'links.lua',
             '--no-highlight']
    for name, text in pages.items():
        write(options.out / 'markdown' / f'{name}.md', text)
    for name, body in set_with_pandoc(options.pandoc, pages, 'man').items():
        write(options.out / f'man{name[-1]}' / name, roff(name, body, options.version))
    for name, body in set_with_pandoc(options.pandoc, pages, 'html', links).items():
        write(options.out / 'html' / f'{name}.html', html(name, body, options.version))


if __name__ == '__main__':
    sys.exit(main())
