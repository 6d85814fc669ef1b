"""Curves on two logarithmic axes, as one SVG that needs nothing else and follows a dark page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 460
LEFT, RIGHT, TOP, BOTTOM = 72, 40, 52, 112
# told apart without colour, too: each has its own mark
COLOURS = ("#2f6fde", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#0e7490")
STYLE = """<style>
text{font:13px system-ui,sans-serif;fill:#1f2328}
.grid{stroke:#d0d7de}
.axis{stroke:#57606a}
.ideal{stroke:#8c959f;stroke-dasharray:4 4}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.grid{stroke:#30363d}.axis{stroke:#8b949e}}
</style>"""
MARKS = ("circle", "square", "diamond", "triangle", "circle", "square")


def curves(title: str, x: str, y: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """A complete <svg>. Points must be above zero; every series has at least one."""
    points = [p for line in series.values() for p in line]
    x0, x1 = _decades([p[0] for p in points])
    y0, y1 = _decades([p[1] for p in points])
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def place(px: float, py: float) -> tuple[float, float]:
        across = (math.log10(px) - x0) / (x1 - x0)
        up = (math.log10(py) - y0) / (y1 - y0)
        return LEFT + across * (right - LEFT), bottom - up * (bottom - TOP)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"',
        f' aria-label="{escape(title)}">',
        STYLE,
        f'<text x="{LEFT}" y="22" style="font-weight:600">{escape(title)}</text>',
    ]
    for power in range(x0, x1 + 1):
        px, _ = place(10**power, 10**y0)
        out.append(f'<path class="grid" d="M{px:.1f} {TOP}V{bottom}"/>')
        out.append(f'<text x="{px:.1f}" y="{bottom + 18}" text-anchor="middle">{10**power:,}</text>')
    for power in range(y0, y1 + 1):
        _, py = place(10**x0, 10**power)
        out.append(f'<path class="grid" d="M{LEFT} {py:.1f}H{right}"/>')
        out.append(f'<text x="{LEFT - 6}" y="{py + 4:.1f}" text-anchor="end">{10**power:,}</text>')
    out.append(f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{bottom}H{right}"/>')
    out.append(
        f'<text x="{(LEFT + right) / 2:.0f}" y="{bottom + 38}" text-anchor="middle">{escape(x)}</text>'
    )
    out.append(f'<text x="{LEFT - 6}" y="{TOP - 10}" text-anchor="end">{escape(y)}</text>')
    # what linear looks like: through the largest point of all
    biggest = max(points)
    low = max(10.0**x0, biggest[0] * 10.0**y0 / biggest[1])
    (ax, ay), (bx, by) = place(low, biggest[1] * low / biggest[0]), place(*biggest)
    out.append(f'<path class="ideal" d="M{ax:.1f} {ay:.1f}L{bx:.1f} {by:.1f}"/>')
    for number, (name, line) in enumerate(series.items()):
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        spots = [place(*p) for p in line]
        way = "L".join(f"{px:.1f} {py:.1f}" for px, py in spots)
        out.append(f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [_mark(mark, px, py, colour) for px, py in spots]
        column, line_number = number % 2, number // 2
        lx, ly = LEFT + column * 320, bottom + 62 + line_number * 20
        out.append(_mark(mark, lx, ly - 4, colour))
        out.append(f'<text x="{lx + 12}" y="{ly}">{escape(name)}</text>')
    ly = bottom + 62 + (len(series) + 1) // 2 * 20
    out.append(
        f'<path class="ideal" d="M{LEFT - 8} {ly - 4}h16"/><text x="{LEFT + 12}" y="{ly}">linear</text>'
    )
    return "\n".join([*out, "</svg>", ""])


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _mark(kind: str, x: float, y: float, colour: str) -> str:
    if kind == "square":
        return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>'
    if kind == "diamond":
        return f'<path d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z" fill="{colour}"/>'
    if kind == "triangle":
        return f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z" fill="{colour}"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
