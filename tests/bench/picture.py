#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws a table as a picture: picture.py TABLE.tsv PICTURE.svg.

The first line of the table has the titles of the columns, the first column has the values of the horizontal axis. Both
axes are logarithmic. A series whose title ends in "TCP" is dashed.
"""
import math
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 60, 190, 20, 40
COLOURS = ['#4e79a7', '#f28e2b', '#e15759', '#76b7b2', '#59a14f', '#b07aa1', '#9c755f', '#222222',
           '#edc948', '#ff9da7']


def size_text(value):
    for limit, unit in ((1 << 20, 'Mi'), (1 << 10, 'Ki')):
        if value >= limit and value % limit == 0:
            return f'{value // limit} {unit}'
    return str(value)


def read(name):
    with open(name, encoding='utf-8') as file:
        lines = [line.rstrip('\n').split('\t') for line in file]
    return lines[0][1:], [int(line[0]) for line in lines[1:]], [[float(cell) for cell in line[1:]] for line in lines[1:]]


def draw(titles, places, rows):
    values = [value for row in rows for value in row if value > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    first, last = math.log(places[0]), math.log(places[-1])

    def x_of(place):
        share = (math.log(place) - first) / (last - first) if last > first else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y_of(value):
        return TOP + (high - math.log10(value)) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           '<!-- SPDX-License-Identifier: BSD-3-Clause -->',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for power in range(low, high + 1):
        y = y_of(10 ** power)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10 ** power:g}</text>')
    for place in places:
        out.append(f'<text x="{x_of(place):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size_text(place)}</text>')
    for number, title in enumerate(titles):
        colour = COLOURS[number % len(COLOURS)]
        dashes = ' stroke-dasharray="6 4"' if title.endswith('TCP') else ''
        points = [(x_of(place), y_of(row[number])) for place, row in zip(places, rows) if row[number] > 0]
        line = ' '.join(f'{x:.1f},{y:.1f}' for x, y in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
        y = TOP + 10 + 20 * number
        out.append(f'<line x1="{WIDTH - RIGHT + 12}" y1="{y}" x2="{WIDTH - RIGHT + 40}" y2="{y}" stroke="{colour}" '
                   f'stroke-width="2"{dashes}/>')
        out.append(f'<text x="{WIDTH - RIGHT + 46}" y="{y + 4}">{escape(title)}</text>')
    return '\n'.join(out + ['</svg>', ''])


def main():
    if len(sys.argv) != 3:
        sys.exit('usage: picture.py TABLE.tsv PICTURE.svg')
    with open(sys.argv[2], 'w', encoding='utf-8') as file:
        file.write(draw(*read(sys.argv[1])))


main()
