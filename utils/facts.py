#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints how large the parts of src/ are: `utils/facts.py [TREE]`.

The numbers are for a person, who reads them beside those of an earlier version. No number fails a build: under a limit,
code that does not fit becomes one more small class, which fits and adds a hop.

It reads the text, as clang-format leaves it, without a compiler; with #if it reads every branch. It counts:
  files        of a room of utils/check-includes.sh: .c, .h, .cpp, .hpp
  file         all its lines, the licence and comments with them
  function     lines from the first of its declaration to its closing brace, of those with a body
  upward       includes of a room by a room that stands above it in that table
  rooms        pairs of rooms that include each other
  files        pairs of files of one room (a source and its header are one) that include each other
  members      of a class or struct: the data of an object, without what is static
  functions    that a class or struct declares, each overload for itself, without those that are = delete
A class within another is a class of its own. A base class's members are counted there.
"""
import collections
import os
import re
import sys

SHOWN = 5  # of the largest classes, files and functions

QUOTED = re.compile(r'''R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+[']''', re.S)
TOKEN = re.compile(r"operator *(?:\(\)|\[\]|[^\w\s(]+)|[A-Za-z_]\w*|\d[\w.']*|::|->|\[\[|\]\]|\.\.\.|\S")
CLOSED_BY = {'(': ')', '{': '}', '[': ']', '[[': ']]'}
ANNOTATION = re.compile(r'[A-Z][A-Z_]+$')
NO_NAMES = ('alignas', 'decltype', 'explicit', 'noexcept', 'requires')
Token = collections.namedtuple('Token', 'text line')
Function = collections.namedtuple('Function', 'name file line lines')
Class = collections.namedtuple('Class', 'name file members functions')


class Unreadable(Exception):
    pass


def blank(text):
    """Returns the text of a match as blanks, so that every line keeps its number."""
    return re.sub(r'[^\n]', ' ', text.group())


def tokens_of(text):
    """Returns the tokens outside comments, strings and lines of the preprocessor."""
    text = QUOTED.sub(blank, text)
    text = re.sub(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', blank, text, flags=re.M)
    return [Token(m.group(), n) for n, line in enumerate(text.split('\n'), 1) for m in TOKEN.finditer(line)]


class Reader:
    """Reads the declarations of one file."""

    def __init__(self, file, text):
        self.file = file
        self.tokens = tokens_of(text)
        self.at = 0
        self.functions = []
        self.classes = []
        self.read_scope(None)

    def text(self):
        return self.tokens[self.at].text if self.at < len(self.tokens) else None

    def skip(self):
        """Skips the tokens that the bracket at the current token encloses."""
        begin = self.tokens[self.at]
        open_ones = []
        while True:
            if self.at == len(self.tokens):
                raise Unreadable(f'{self.file}:{begin.line}: no end of {begin.text}')
            text = self.text()
            self.at += 1
            if text in CLOSED_BY:
                open_ones.append(CLOSED_BY[text])
            elif text in CLOSED_BY.values():
                # ]] may be the end of two arrays' indices.
                if text == ']]' and open_ones[-2:] == [']', ']']:
                    open_ones.pop()
                elif text != open_ones[-1]:
                    raise Unreadable(f'{self.file}:{self.tokens[self.at - 1].line}: {text} closes nothing')
                open_ones.pop()
                if not open_ones:
                    return

    def read_scope(self, owner):
        """Reads declarations to the end of the scope. The owner is the class of the scope, as a Class of lists."""
        while self.text() not in (None, '}'):
            self.read_declaration(owner)

    def read_declaration(self, owner):
        begin = self.tokens[self.at]
        words = []  # of the declaration, without what brackets enclose
        declares = None  # the name of a function
        if begin.text in (';', ':'):
            self.at += 1
            return
        if begin.text in ('public', 'private', 'protected') and self.tokens[self.at + 1].text == ':':
            self.at += 2
            return
        if ANNOTATION.match(begin.text) and self.tokens[self.at + 1].text == '(':  # a macro that stands for declarations
            self.at += 1
            self.skip()
            if self.text() not in ('(', '{'):
                return
            # It names a function, whose parameters or body follow.
            declares = self.tokens[self.at - 2].text if self.text() == '(' else begin.text
        in_initialisers = False
        angles = 0
        while True:
            text = self.text()
            if text is None or text == '}':
                raise Unreadable(f'{self.file}:{begin.line}: a declaration without an end')
            if text == ';':
                self.at += 1
                break
            if text == '<' and (angles or (words and re.match(r'\w', words[-1]) and '=' not in words)):
                angles += 1
            elif text == '>' and angles:
                angles -= 1
            if text == '(' and not angles and declares is None and words and '=' not in words:
                name = self.name_before(words)
                is_pointer = words[-1] == '()' or self.tokens[self.at + 1].text == '*'
                if not is_pointer and not ANNOTATION.match(words[-1]) and name not in NO_NAMES:
                    declares = name
            if text == ':' and declares and not angles:
                in_initialisers = True
            if text == '{':
                kind = next((w for w in words if w in ('namespace', 'class', 'struct', 'union', 'enum', 'extern')), None)
                if kind == 'extern' and len(words) > 1:
                    kind = None
                if declares is None and kind in ('namespace', 'extern'):
                    self.at += 1
                    self.read_scope(None)
                    self.at += 1
                    return
                if declares is None and kind in ('class', 'struct', 'union') and '=' not in words and not angles:
                    self.read_class(words, kind)
                    words = ['object'] if words[0] != 'static' else ['static']
                    if self.text() == ';':
                        self.at += 1
                        return
                    continue
                is_initialiser = in_initialisers and (re.match(r'\w', words[-1]) or words[-1] in ('>', '...'))
                if declares and '=' not in words and not is_initialiser:
                    self.skip()
                    end = self.tokens[self.at - 1].line
                    self.functions.append(Function(declares, self.file, begin.line, end - begin.line + 1))
                    break
            if text in CLOSED_BY:
                self.skip()
                if text in ('(', '{'):
                    words.append(text + CLOSED_BY[text])
                continue
            if not angles or text == '<':
                words.append(text)
            self.at += 1
        if owner is not None:
            self.count(owner, words, declares)

    @staticmethod
    def name_before(words):
        if 'operator' in words:
            return ' '.join(words[words.index('operator'):])
        name = words[-1]
        return '~' + name if words[-2:-1] == ['~'] else name

    def read_class(self, words, kind):
        names = []
        for word in words[words.index(kind) + 1:]:
            if word == ':' or word == 'final':
                break
            names.append(word)
        names = [word for word in names if not ANNOTATION.match(word) and word not in ('()', '::')]
        found = Class(names[-1] if names else '(no name)', self.file, [], [])
        self.classes.append(found)
        self.at += 1
        self.read_scope(found)
        if self.text() != '}':
            raise Unreadable(f'{self.file}: no end of class {found.name}')
        self.at += 1

    @staticmethod
    def count(owner, words, declares):
        if words[0] in ('using', 'typedef', 'friend', 'enum', 'static_assert', 'namespace'):
            return
        if words[0] in ('class', 'struct', 'union') and declares is None and len(words) == 2:
            return  # a name that is defined elsewhere
        if declares is not None:
            if words[-2:] != ['=', 'delete']:
                owner.functions.append(declares)
        elif 'static' not in words:
            # One declaration may name several: bool a = false, b = false;
            owner.members.extend([1] * (1 + words.count(',')))


def rooms_by_height():
    """Returns the rooms of the table of check-includes.sh, from the lowest."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'check-includes.sh'), encoding='utf-8') as script:
        table = re.search(r"^table='\n(.*?)^'", script.read(), re.S | re.M).group(1)
    return [line.split(':')[0] for line in table.splitlines() if not line.startswith('examples:')]


def room_of(path, rooms):
    """Returns the room of a path below src/, which is the longest that the path begins with."""
    return max((room for room in rooms if path.startswith(room + '/')), key=len, default=None)


def includes_of(text):
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.M)


def mutual(arrows):
    return sorted(pair for pair in arrows if pair[0] < pair[1] and pair[::-1] in arrows)


def main(tree):
    rooms = rooms_by_height()
    files = {}
    for folder, _, names in os.walk(os.path.join(tree, 'src')):
        for name in names:
            if name.endswith(('.c', '.h', '.cpp', '.hpp')):
                path = os.path.join(folder, name)
                with open(path, encoding='utf-8') as source:
                    files[os.path.relpath(path, os.path.join(tree, 'src'))] = source.read()
    if not files:
        raise Unreadable(f'{tree} has no src/ with a source in it')

    of_room, functions, classes, lines = collections.Counter(), [], [], {}
    between_rooms, between_files, upward = set(), set(), []
    for path, text in sorted(files.items()):
        room = room_of(path, rooms)
        if room is None:
            raise Unreadable(f'src/{path}: its room is not in the table of utils/check-includes.sh')
        of_room[room] += 1
        lines[path] = text.count('\n')
        read = Reader(path, text)
        functions += read.functions
        classes += read.classes
        for name in includes_of(text):
            other = room_of(name, rooms) if name in files else None
            if other is None:
                continue
            if other != room:
                between_rooms.add((room, other))
                if rooms.index(other) > rooms.index(room):
                    upward.append(f'{path} includes {name}')
            elif os.path.splitext(name)[0] != os.path.splitext(path)[0]:
                between_files.add((os.path.splitext(path)[0], os.path.splitext(name)[0]))

    print(f"{'room':16}{'files':>6}{'lines':>7}  longest file, longest function")
    for room in rooms:
        mine = [path for path in lines if room_of(path, rooms) == room]
        if mine:
            file = max(mine, key=lines.get)
            longest = max((f for f in functions if f.file in mine), key=lambda f: f.lines, default=None)
            print(f'{room:16}{len(mine):6}{sum(map(lines.get, mine)):7}  {lines[file]} {file}'
                  + (f', {longest.lines} {longest.name} ({longest.file}:{longest.line})' if longest else ''))
    print(f"\n{'class':24}{'members':>8}{'functions':>10}")
    by_members = sorted(classes, key=lambda c: len(c.members))[-SHOWN:]
    by_functions = sorted(classes, key=lambda c: len(c.functions))[-SHOWN:]
    largest = by_members + [c for c in by_functions if c not in by_members]
    for one in sorted(largest, key=lambda c: -len(c.members)):
        print(f'{one.name:24}{len(one.members):8}{len(one.functions):10}  {one.file}')
    for what, pairs in (('rooms', mutual(between_rooms)), ('files', mutual(between_files))):
        for pair in pairs:
            print(f'these {what} include each other: {pair[0]}, {pair[1]}')
    for line in upward:
        print(f'upward: {line}')

    found = {
        'lines in all': sum(lines.values()),
        'files in a room': max(of_room.values()),
        'lines of a file': max(lines.values()),
        'lines of a function': max((f.lines for f in functions), default=0),
        'upward includes': len(upward),
        'pairs of rooms that include each other': len(mutual(between_rooms)),
        'pairs of files that include each other': len(mutual(between_files)),
        'members of a class': max((len(c.members) for c in classes), default=0),
        'functions of a class': max((len(c.functions) for c in classes), default=0),
    }
    print(f"\n{'largest':40}")
    for what, number in found.items():
        print(f'{what:40}{number:6}')


if __name__ == '__main__':
    this_tree = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else this_tree)
    except (OSError, Unreadable) as error:
        sys.exit(f'facts: {error}')
