# SPDX-License-Identifier: BSD-3-Clause
"""Prepares text for Markdown."""

import re


def plain(text):
    """Returns the text with all characters escaped that Markdown would read."""
    return re.sub(r'([*_<>\[\]`{}|\\~^$#@])', r'\\\1', text)


def capital(text):
    """Returns the text as the beginning of a sentence. A name in C keeps its case."""
    return text if re.match(r'[\w\\]*_', text) else text[:1].upper() + text[1:]
