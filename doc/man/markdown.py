# SPDX-License-Identifier: BSD-3-Clause
"""Text for Markdown."""

import re


def plain(text):
    """Text of which nothing is Markdown."""
    return re.sub(r'([*_<>\[\]`{}|\\~^$#@])', r'\\\1', text)


def capital(text):
    """A sentence's beginning; a name in C keeps its case."""
    return text if re.match(r'[\w\\]*_', text) else text[:1].upper() + text[1:]
