#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws a table as bars: bars.py TABLE.tsv PICTURE.svg UNIT.

A line of the table has a title and a number. One without a number is the title of the lines below it. The axis is linear.
A bar whose title begins with "TCP" is grey: it is what ours is compared with.
"""
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, ROW = 760, 280, 60, 14, 26
OURS, OTHERS = '#4e79a7', '#a5a5a5'


def draw(lines, unit):
    most = max(float(number) for _, number in lines if number)
    height = TOP + ROW * (len(lines) + 1)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
           '<!-- SPDX-License-Identifier: BSD-3-Clause -->',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>']
    for place, (title, number) in enumerate(lines):
        y = TOP + ROW * place
        if not number:
            out.append(f'<text x="12" y="{y + 17}" font-weight="bold">{escape(title)}</text>')
            continue
        width = max(float(number) / most * (WIDTH - LEFT - RIGHT), 1)
        out.append(f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{escape(title)}</text>')
        out.append(f'<rect x="{LEFT}" y="{y + 4}" width="{width:.1f}" height="{ROW - 8}" '
                   f'fill="{OTHERS if title.startswith("TCP") else OURS}"/>')
        out.append(f'<text x="{LEFT + width + 6:.1f}" y="{y + 17}">{escape(number)}</text>')
    out.append(f'<text x="{WIDTH - 12}" y="{height - 8}" text-anchor="end" fill="#555555">{escape(unit)}</text>')
    return '\n'.join(out + ['</svg>', ''])


def main():
    if len(sys.argv) != 4:
        sys.exit('usage: bars.py TABLE.tsv PICTURE.svg UNIT')
    with open(sys.argv[1], encoding='utf-8') as file:
        lines = [line.rstrip('\n').split('\t') for line in file]
    with open(sys.argv[2], 'w', encoding='utf-8') as file:
        file.write(draw(lines, sys.argv[3]))


main()
