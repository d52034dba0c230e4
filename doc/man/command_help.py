# SPDX-License-Identifier: BSD-3-Clause
"""Reads the output of the rpma command's --help, and returns it as Markdown."""

import re
import subprocess

from markdown import plain


class Help:
    """This is the help text of one command."""

    def __init__(self, command, words):
        self.words = ['rpma', *words]
        self.text = subprocess.run([command, *words, '--help'], check=True, capture_output=True, encoding='utf-8').stdout

    def block(self, title):
        """Returns [(term, meaning)] of the entries that the help lists under a title."""
        found = re.search(rf'^{title}:\n((?:  .*\n?)+)', self.text, re.M)
        # What an entry means begins in column 30, so one space may be all that is before it.
        entry = r'^  (\S.*?)(?:  +|\n {10,}|(?<=\n.{29}) )(\S.*(?:\n {10,}\S.*)*)'
        pairs = re.findall(entry, found.group(0), re.M) if found else []
        if found and len(pairs) != len(re.findall(r'^  \S', found.group(1), re.M)):
            raise ValueError(f'{" ".join(self.words)} --help: expected {title} of entries that can be told apart')
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
        """Returns an option as a manual sets it, and its default. CLI11's term is: NAMES TYPE[:CHECK][=DEFAULT] [...] [REQUIRED] [Excludes: NAMES] [Needs: NAMES]"""
        names, value, default = re.fullmatch(r'(\S+)(?: ([A-Z]+)[^=]*(?:=(\S+))?)?', re.sub(r' REQUIRED| (?:Excludes|Needs):(?: \S+)+| \.\.\.', '', term)).groups()
        shown = f'**{plain(names.replace(",", ", "))}**'
        if value and names.startswith('-'):
            shown += f' *{ {"FLOAT": "NUMBER", "UINT": "NUMBER"}.get(value, value) }*'
        return shown, default

    def notes(self):
        """Returns the prose after the options."""
        return plain(' '.join(self.text.strip().split('\n\n')[-1].split()))
