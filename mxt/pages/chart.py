"""Charts as plain inline SVG: curves and bars with axes, units and a text alternative; read without a script.

The drawing stretches with the page and its text does not: places along x are per cent, curves lie in a
nested viewport whose strokes keep their width. So labels are as large on a phone as on a wide screen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from mxt.pages.page import escape
from mxt.panels import Bar, Bars, Lines
from mxt.words import ellipsis

STYLE = """\
.chart { margin: .6rem 0 1.2rem; break-inside: avoid }
.chart figcaption { font-weight: 600 }
.chart .unit { font-weight: 400; color: var(--quiet); font-size: .85rem }
.chart svg { display: block; overflow: visible; max-width: none }
.chart svg.curves { width: calc(100% - 5rem); height: 13.5rem; margin: .7rem 1rem 2.6rem 4rem }
.chart svg.bars { width: 100%; margin-top: .4rem }
.chart text { fill: var(--quiet); font-size: 12.5px; font-variant-numeric: tabular-nums }
.chart text.name { fill: var(--ink) }
.chart text.group { fill: var(--ink); font-weight: 600 }
.chart .grid { stroke: var(--line); stroke-width: 1; shape-rendering: crispEdges }
.chart .axis { stroke: var(--quiet); stroke-width: 1; shape-rendering: crispEdges }
.chart .curve { fill: none; stroke-width: 1.75; stroke-linejoin: round; stroke-linecap: round }
.chart .dots { stroke-width: 5 }
.chart .whisker { stroke: var(--ink); stroke-width: 1.5 }
.chart .bar { fill: var(--waiting); fill-opacity: .55 }
.chart .bar.marked { fill: var(--series-1); fill-opacity: 1 }
.legend { list-style: none; margin: .3rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1.2rem;
  font-size: .85rem }
.legend svg { display: inline-block; vertical-align: middle; margin-right: .4rem }
@media print { .chart svg.curves { height: 11rem } .bar, .curve { print-color-adjust: exact } }
"""

_TICKS = 5
_ROW = 36  # pixels of a bar with its label
_GROUP = 26  # pixels of a group's heading
_DASHES = ("", "7 4", "2 4", "9 3 2 3", "4 2")  # so that curves can be told without colour
_DOTS = 40  # points at most that are marked each
_ROOM = 50  # characters that fit on a line of a phone


def number(value: float) -> str:
    """Four significant figures as people write them: 12,345; 0.0123; 1.2e-05."""
    if not math.isfinite(value):
        return "\N{INFINITY}"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}" if size < 1e15 else f"{value:.3e}"
    if size < 1e-4:
        return f"{value:.3g}"
    digits = max(0, 3 - math.floor(math.log10(size)))
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def ticks(low: float, high: float, count: int = _TICKS, *, outside: bool = False) -> list[float]:
    """Round numbers from low to high, about `count`; outside: the next ones beyond, too. low < high."""
    rough = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next((m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= rough), 10 * unit)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if outside:
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, min(last, first + 4 * count) + 1)]


def span(values: Sequence[float], *, zero: bool = False) -> tuple[float, float]:
    """What an axis shows: all values, and zero where asked or close by; never empty."""
    low, high = min(values), max(values)
    if zero or (low > 0 and low < 0.4 * high):
        low = min(low, 0.0)
    if zero or (high < 0 and high > 0.4 * low):
        high = max(high, 0.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        room = abs(high) * 0.1 or 1.0
        return low - room, high + room
    return low, high


def curves(panel: Lines) -> str:
    """A figure of curves over a common x."""
    known = [y for ys in panel.series.values() for y in ys if y is not None]
    x_low, x_high = span(panel.x)
    y_low, y_high = span(known, zero=panel.zero)
    y_ticks = ticks(y_low, y_high, outside=True)
    y_low, y_high = min(y_low, y_ticks[0]), max(y_high, y_ticks[-1])

    def across(x: float) -> float:
        return (x - x_low) / (x_high - x_low)

    def down(y: float) -> float:
        return (y_high - y) / (y_high - y_low)

    parts = []
    for y in y_ticks:
        place = f"{down(y) * 100:.2f}%"
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{place}" y2="{place}"/>')
        parts.append(f'<text x="-8" y="{place}" dy="4" text-anchor="end">{_tick(y, y_ticks)}</text>')
    parts.append('<line class="axis" x1="0" x2="100%" y1="100%" y2="100%"/>')
    x_ticks = ticks(x_low, x_high, 4)
    for x in x_ticks:
        place = f"{across(x) * 100:.2f}%"
        parts.append(f'<line class="grid" x1="{place}" x2="{place}" y1="0" y2="100%"/>')
        parts.append(f'<text x="{place}" y="100%" dy="18" text-anchor="middle">{_tick(x, x_ticks)}</text>')
    if panel.x_label:
        label = escape(ellipsis(panel.x_label, _ROOM, "…"))
        parts.append(f'<text x="50%" y="100%" dy="36" text-anchor="middle">{label}</text>')
    inner = []
    for place_in_list, ys in enumerate(panel.series.values()):
        for run in _runs(panel.x, ys):
            points = " ".join(f"{across(x) * 1000:.1f},{down(y) * 1000:.1f}" for x, y in run)
            inner.append(
                f'<polyline class="curve" points="{points}" vector-effect="non-scaling-stroke" '
                f"{_stroke(place_in_list)}/>"
            )
            if len(panel.x) <= _DOTS:
                dots = " ".join(f"M{across(x) * 1000:.1f},{down(y) * 1000:.1f}h0" for x, y in run)
                inner.append(
                    f'<path class="curve dots" d="{dots}" vector-effect="non-scaling-stroke" '
                    f"{_stroke(place_in_list, dashed=False)}/>"
                )
    stretched = 'viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%"'
    parts.append(f"<svg {stretched}>{''.join(inner)}</svg>")
    said = escape(describe_curves(panel))
    drawing = f'<svg class="curves" role="img" aria-label="{said}">{"".join(parts)}</svg>'
    return _figure(panel.title, panel.y_label, _legend(panel) + drawing)


def _runs(xs: Sequence[float], ys: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    """The stretches without a gap. A point that stands alone is doubled, as round caps make it a dot."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(xs, ys, strict=True):
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    return [run if len(run) > 1 else run * 2 for run in runs if run]


def _stroke(place: int, *, dashed: bool = True) -> str:
    dash = _DASHES[place // 5 % len(_DASHES)] if place >= 5 else _DASHES[place]
    dashes = f' stroke-dasharray="{dash}"' if dash and dashed else ""
    return f'style="stroke: var(--series-{place % 5 + 1})"{dashes}'


def _legend(panel: Lines) -> str:
    if len(panel.series) < 2:
        return ""
    items = "".join(
        f'<li><svg width="26" height="8" aria-hidden="true"><line class="curve" x1="1" x2="25" y1="4" y2="4" '
        f"{_stroke(place)}/></svg>{escape(name)}</li>"
        for place, name in enumerate(panel.series)
    )
    return f'<ul class="legend">{items}</ul>'


def describe_curves(panel: Lines) -> str:
    """What the chart shows, in words."""
    parts = []
    for name, ys in panel.series.items():
        known = [(y, x) for x, y in zip(panel.x, ys, strict=True) if y is not None]
        if not known:
            continue
        low, high = min(known), max(known)
        parts.append(
            f"{name} from {number(known[0][0])} to {number(known[-1][0])}, "
            f"lowest {number(low[0])} at {number(low[1])}, highest {number(high[0])} at {number(high[1])}"
        )
    by = f" by {panel.x_label}" if panel.x_label else ""
    return f"{panel.title}{by}: {'; '.join(parts)}"


def bars(panel: Bars) -> str:
    """A figure of horizontal bars: each with its name and value above it."""
    ends = [b.value + side * (b.error or 0.0) for b in panel.bars for side in (-1, 1)]
    low, high = span(ends, zero=True)

    def across(value: float) -> str:
        return f"{(value - low) / (high - low) * 100:.2f}%"

    parts = []
    at = 0
    group = ""
    for bar in panel.bars:
        if bar.group and bar.group != group:
            parts.append(
                f'<text class="group" x="0" y="{at + 17}">{escape(ellipsis(bar.group, _ROOM, "…"))}</text>'
            )
            at += _GROUP
        group = bar.group
        parts.append(_bar(bar, at, across))
        at += _ROW
    zero = across(0.0)
    if low < 0:
        parts.insert(0, f'<line class="axis" x1="{zero}" x2="{zero}" y1="0" y2="{at}"/>')
    said = escape(describe_bars(panel))
    drawing = (
        f'<svg class="bars" style="height: {at}px" role="img" aria-label="{said}">{"".join(parts)}</svg>'
    )
    if panel.left_out:
        drawing += f'<p class="quiet">{panel.left_out:,} more are left out.</p>'
    return _figure(panel.title, panel.unit, drawing)


def _bar(bar: Bar, top: int, across: Callable[[float], str]) -> str:
    start, end = sorted((0.0, bar.value))
    left, right = across(start), across(end)
    width = f"{float(right[:-1]) - float(left[:-1]):.2f}%"
    kind = "bar marked" if bar.marked else "bar"
    said = ellipsis(bar.text or value_with_error(bar), _ROOM // 2, "…")
    name = ellipsis(bar.name, _ROOM - 2 - len(said), "…")
    middle = top + 25
    parts = [
        f'<text class="name" x="0" y="{top + 14}">{escape(name)}</text>',
        f'<text x="100%" y="{top + 14}" text-anchor="end">{escape(said)}</text>',
        f'<rect class="{kind}" x="{left}" y="{top + 19}" width="{width}" height="12" rx="2"/>',
    ]
    if bar.error:
        first, last = across(bar.value - bar.error), across(bar.value + bar.error)
        parts.append(f'<line class="whisker" x1="{first}" x2="{last}" y1="{middle}" y2="{middle}"/>')
        parts += [
            f'<line class="whisker" x1="{x}" x2="{x}" y1="{middle - 4}" y2="{middle + 4}"/>'
            for x in (first, last)
        ]
    return "".join(parts)


def value_with_error(bar: Bar) -> str:
    """0.6583 ± 0.0307, or the value alone: no error is known where all were alike, which is not none."""
    error = f" \N{PLUS-MINUS SIGN} {number(bar.error)}" if bar.error else ""
    return number(bar.value) + error


def describe_bars(panel: Bars) -> str:
    """What the chart shows, in words; the table beside it has the rest."""
    shown = [
        f"{f'{b.group} ' if b.group else ''}{b.name} {b.text or value_with_error(b)}"
        f"{' (marked)' if b.marked else ''}"
        for b in panel.bars[:12]
    ]
    more = f"; and {len(panel.bars) - 12} more" if len(panel.bars) > 12 else ""
    unit = f" in {panel.unit}" if panel.unit else ""
    return f"{panel.title}{unit}: {'; '.join(shown)}{more}"


def _tick(value: float, among: Sequence[float]) -> str:
    """A tick with as many digits as tell it from its neighbours."""
    largest = max(map(abs, among))
    step = min((b - a for a, b in pairwise(among)), default=largest)
    if not value or abs(value) < 1e-6 * step:
        return "0"
    decimals = max(0, 1 - math.floor(math.log10(step)))
    if largest >= 1e6 or decimals > 5:
        digits = max(0, math.floor(math.log10(largest)) - math.floor(math.log10(step)) + 1)
        mantissa, _, exponent = f"{value:.{min(digits, 15)}e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _figure(title: str, unit: str, drawing: str) -> str:
    beside = f' <span class="unit">{escape(unit)}</span>' if unit else ""
    return f'<figure class="chart"><figcaption>{escape(title)}{beside}</figcaption>{drawing}</figure>'
