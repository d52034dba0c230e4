# SPDX-License-Identifier: BSD-3-Clause
"""Reads an installed header: its sections, functions and other declarations, and the comments above them.

It reads these parts of a header:
    /* ==== TITLE ==== */            begins a section (---- does too); a comment of its own right after it speaks for all
                                     its functions
    /** COMMENT */ declaration       is a page; COMMENT's first sentence is its NAME, up to a colon or semicolon
    enum, struct, #define, typedef   are shown where a function has the type or names the macro, or has a parameter that
                                     the comment above the group puts in quotes ("flags")
and of a COMMENT:
    paragraphs                       which blank lines part
    two spaces, NAME, its text       an entry of a list; lines that are indented further go on with it. A list whose names
                                     are parameters tells of these
    LABEL: at a line's beginning     what follows, up to a blank line or the next label, is about that: Blocks, Threads,
                                     Returns (needed where that is not int), and Errors with a list, one entry an error
    See name(3), RFC 5040.           at a line's beginning: what the page refers to
A label that the header's first comment or a section's has is for every function that does not have it itself; errors are
for all. But such an error that begins with a parameter's name is for the functions that have the parameter, and one that
begins with "A pointer" for those that take a pointer and return a code.
"""

import re

LABEL = re.compile(r'(Blocks|Threads|Returns|Errors):(?: (.*))?$|(See) (?=\w+\(\d\)|RFC \d)(.*)')
INNER_LABEL = re.compile(r'\S.*\b(?:Blocks|Threads|Returns|Errors): ')
ENTRY = re.compile(r'  (\S+)(?:  +(\S.*))?$')


class Comment:
    """This is the text of a comment. A part of it is a paragraph (str) or a list of [name, text]."""

    def __init__(self, raw):
        self.body, self.fields = [], {}
        self.into, self.begins = self.body, True
        for line in raw.splitlines():
            self.take(re.sub(r'^\s*\*? ?', '', line).rstrip())

    def take(self, line):
        label, entry = LABEL.match(line), ENTRY.match(line)
        if INNER_LABEL.match(line):
            raise SystemExit(f'a label begins its line, not: {line}')
        if label:
            self.into, self.begins = self.fields.setdefault(label[1] or label[3], []), True
            line = label[2] or label[4]
            if not line:  # a list follows
                return
        if not line:
            self.into, self.begins = self.body, True
        elif entry:
            if self.begins or not self.into or isinstance(self.into[-1], str):
                self.into.append([])
            self.into[-1].append([entry[1], entry[2] or ''])
            self.begins = False
        elif line.startswith('   ') and not self.begins and not isinstance(self.into[-1], str):
            self.into[-1][-1][1] += f' {line.strip()}'
        elif line.startswith(' '):
            raise SystemExit(f'neither "  NAME  text" nor more of one: {line}')
        elif self.begins or not isinstance(self.into[-1], str):
            self.into.append(line)
            self.begins = False
        else:
            self.into[-1] += f' {line}'

    def paragraphs(self):
        return [part for part in self.body if isinstance(part, str)]

    def text(self):
        """Returns the whole text."""
        parts = [part for parts in [self.body, *self.fields.values()] for part in parts]
        return ' '.join(part if isinstance(part, str) else ' '.join(f'{name} {text}' for name, text in part) for part in parts)

    def summary(self):
        """Returns the first sentence, as a NAME line has it."""
        sentence = re.split(r'\. |\.$|; |: ', re.sub(r' \([^)]*\)', '', self.body[0]))[0]
        return sentence[0].lower() + sentence[1:] if sentence[1:2].islower() or sentence[1:2] == ' ' else sentence

    def errors(self):
        """Returns [(name, when)], in order."""
        parts = self.fields.get('Errors', [])
        if any(isinstance(part, str) for part in parts):
            raise SystemExit(f'after "Errors:" comes a list, not "{parts[0]}"')
        return [(name, when) for part in parts for name, when in part]


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
    """This is one installed header: sections, functions, and groups (verbatim text of other declarations)."""

    def __init__(self, path):
        self.file, text = '/'.join(path.parts[path.parts.index('include') + 1:]), path.read_text(encoding='utf-8')
        self.noun = path.stem  # a function of that name is not meant wherever the word is
        self.overview = ('' if path.name == self.file else 'lib') + path.stem  # rpma/NAME.h is libNAME's
        self.opening = Comment(re.search(r'\n/\*\n(.*?)\*/', text, re.S).group(1))
        self.sections, self.meaning = [Section('')], {}
        for match in re.finditer(r'/\*((?:(?!\*/).)*)\*/\s*#define (\w+)', text, re.S):
            self.meaning[match.group(2)] = ' '.join(Comment(match.group(1)).paragraphs())
        for chunk in re.split(r'\n\s*\n', text[text.index('#include'):]):
            self.take(chunk.strip('\n'))
        self.functions = [function for section in self.sections for function in section.functions]
        copies = re.findall(r'^SOFTRDMA_LIKE\((\w+)\);|^extern [^;(]*\bsoftrdma_((?:ibv|rdma)_\w+)\(', text, re.M)
        self.copies = [one or other for one, other in copies]

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
    """Returns the macros and types that a group defines."""
    nameless = r'|^    ([A-Z]+_\w+)' if re.search(r'^enum \{', group, re.M) else ''
    return [match[match.lastindex] for match in
            re.finditer(r'^#define (\w+)|^(?:enum|struct) (\w+) \{|^typedef .*?\(?\*?(\w+)\)?\(' + nameless, group, re.M)]
