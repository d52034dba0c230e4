# SPDX-License-Identifier: BSD-3-Clause
"""What an installed header says: its sections, functions and other declarations, and the comments above them.

What it reads of a header:
    /* ==== TITLE ==== */            begins a section (---- does too); a comment of its own right after it speaks for all
                                     its functions
    /** TEXT */ declaration          is a page; TEXT's first sentence is its NAME, up to a colon or semicolon
    enum, struct, #define, typedef   are shown where a function has the type or names the macro, or has a parameter that
                                     the comment above the group puts in quotes ("flags")
and of TEXT, from the label to the next one or the end of the paragraph:
    Errors: NAME: when. NAME: when.  Threads: ...  Returns: ... (needed where that is not int)  See name(3), name(3).
"Errors:" may be left out before the first NAME, which is an RPMA_E_ code or an errno value. What the header's first comment
says under a label is for every function that does not say it; an error whose text begins with a parameter's name is for
those that have the parameter.
"""

import re

LABELS = re.compile(r'(?:(?<=\s)|^)(Errors|Threads|Returns): |(?<=[.)] )(See) (?=\w+\(\d\))|^(See) (?=\w+\(\d\))')
ERROR = re.compile(r'(?:(?<=[.;] )|^)([A-Z]+_E_[A-Z_]+|E[A-Z0-9]{3,})(?: also)?(?:: |\.)')


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
        self.file, text = '/'.join(path.parts[path.parts.index('include') + 1:]), path.read_text(encoding='utf-8')
        self.noun = path.stem  # a function of that name is not meant wherever the word is
        self.overview = ('' if path.name == self.file else 'lib') + path.stem  # rpma/NAME.h is libNAME's
        self.opening = Comment(re.search(r'\n/\*\n(.*?)\*/', text, re.S).group(1))
        self.sections, self.meaning = [Section('')], {}
        for match in re.finditer(r'/\*((?:(?!\*/).)*)\*/\s*#define (\w+)', text, re.S):
            self.meaning[match.group(2)] = ' '.join(Comment(match.group(1)).paragraphs)
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
    """The macros and types that a group defines."""
    nameless = r'|^    ([A-Z]+_\w+)' if re.search(r'^enum \{', group, re.M) else ''
    return [match[match.lastindex] for match in
            re.finditer(r'^#define (\w+)|^(?:enum|struct) (\w+) \{|^typedef .*?\(?\*?(\w+)\)?\(' + nameless, group, re.M)]
