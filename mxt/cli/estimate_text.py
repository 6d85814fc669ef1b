"""Estimates for people: figures with their ranges, tables that fit the terminal, and the sum."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Iterator, Sequence

from mxt.cli.cells import pad, width_of
from mxt.cli.estimate import CACHED, Group, Stage
from mxt.cli.terminal import paint
from mxt.estimates import Cell, Estimate, Figure, Grid, Range, Value

NAME, VALUE = 24, 22  # cells of a figure's first two columns


def show(groups: Sequence[Group], columns: int) -> list[str]:
    """All blocks in lines of at most `columns` cells; what is longer than a line stays whole."""
    lines: list[str] = []
    for group in groups:
        lines += ["", *_group(group, columns)] if lines else _group(group, columns)
    return lines or ["nothing here has actions"]


def _group(group: Group, columns: int) -> list[str]:
    lines = [paint(group.label, "bold", sys.stdout)]
    for stage in group.stages:
        if stage.estimate is not None:
            lines.append(f"  {_short(group, stage)}  {paint(f'({stage.state})', 'dim', sys.stdout)}")
            lines += _estimate(stage.estimate, columns)
    return [*lines, *_sum(group, columns)]


def _short(group: Group, stage: Stage) -> str:
    """.train for //recipes:x.train below //recipes:x; of others the label."""
    return stage.label.removeprefix(group.label) if stage.label.startswith(f"{group.label}.") else stage.label


def _sum(group: Group, columns: int) -> list[str]:
    parts = []
    if group.seconds is not None:
        parts.append(in_unit(group.seconds, "s"))
    if group.cost is not None:
        parts.append(f"{text_of(group.cost)} USD")
    if not group.running:
        parts = ["nothing has to run"]
    cached = [s for s in group.stages if s.state == CACHED]
    name = "together, where known" if group.untimed and not group.decided_by else "together"
    nothing = "nothing is known of its time"
    if group.decided_by:
        nothing = f"not known: {' '.join(_short(group, s) for s in group.decided_by)} would take most of it"
    lines = [f"  {pad(name, NAME)}  {', '.join(parts) or nothing}"]
    for name, those in (("not counted, cached", cached), ("not counted, not known", group.untimed)):
        if those:
            lines += _hanging(name, " ".join(_short(group, s) for s in those), columns)
    return lines


def _hanging(name: str, text: str, columns: int) -> list[str]:
    first = f"  {pad(name, NAME)}  "
    return textwrap.wrap(
        text,
        max(columns, 60),
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )


def _estimate(estimate: Estimate, columns: int) -> Iterator[str]:
    for figure in estimate.figures:
        yield from _figure(figure, columns)
    for grid in estimate.grids:
        yield from _grid(grid, columns)
    for text in estimate.notes:
        yield from _note(text, columns)
    for text in estimate.unknown:
        yield from _note(f"not known: {text}", columns)


def _note(text: str, columns: int) -> list[str]:
    return textwrap.wrap(
        text, max(columns, 60), initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False
    )


def _figure(figure: Figure, columns: int) -> list[str]:
    value = in_unit(figure.value, figure.unit)
    first = f"    {pad(figure.name, NAME - 2)}  {value}"
    if not figure.note:
        return [first]
    first = f"    {pad(figure.name, NAME - 2)}  {pad(value, VALUE)}  "
    note = textwrap.wrap(figure.note, max(20, columns - len(first)), break_on_hyphens=False)
    return [first + note[0], *(" " * len(first) + line for line in note[1:])]


def _grid(grid: Grid, columns: int) -> list[str]:
    """A table; where it does not fit, its columns stand in several below each other."""
    cells = [[name, *(_cell(c) for c in found)] for name, found in grid.rows]
    wide = [max(width_of(row[i]) for row in [list(grid.columns), *cells]) for i in range(len(grid.columns))]
    shown: list[list[int]] = []
    left = list(range(1, len(wide)))
    while left:
        room, chosen = columns - 4 - wide[0], list[int]()
        while left and (not chosen or room >= wide[left[0]] + 2):
            room -= wide[left[0]] + 2
            chosen.append(left.pop(0))
        shown.append(chosen)
    lines = [f"    {grid.title}"]
    for chosen in shown:
        for row in [list(grid.columns), *cells]:
            parts = [pad(row[0], wide[0]), *(pad(row[i], wide[i], right=True) for i in chosen)]
            lines.append(f"    {'  '.join(parts)}".rstrip())
    return [*lines, *(_note(grid.note, columns) if grid.note else [])]


def _cell(cell: Cell) -> str:
    return f"{in_unit(cell.value, cell.unit)} {cell.mark}".rstrip()


def in_unit(value: Value, unit: str) -> str:
    """A value with its unit in words that suit its size."""
    if isinstance(value, str):
        return value
    if unit == "%":
        return f"{text_of(value)} %"
    for size, name in _STEPS.get(unit, ()):
        if _high(value) >= size:
            return f"{text_of(_over(value, size))} {name}"
    return f"{text_of(value)} {unit}".rstrip()


_STEPS: dict[str, tuple[tuple[float, str], ...]] = {
    "": ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")),
    "bytes": ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")),
    "s": ((3600.0, "h"), (180.0, "min")),
    "FLOP": ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")),
}


def _high(value: Range | float) -> float:
    return value.high if isinstance(value, Range) else value


def _over(value: Range | float, by: float) -> Range | float:
    return value.over(by) if isinstance(value, Range) else value / by


def text_of(value: Range | float) -> str:
    """Three figures of a number, two of a range's ends."""
    if not isinstance(value, Range):
        return _number(value, 3)
    low, high = _number(value.low, 2), _number(value.high, 2)
    if value.low == value.high:
        return _number(value.high, 3)
    return low if low == high else f"{low}-{high}"


def _number(value: float, figures: int) -> str:
    """Rounded to so many figures; whole numbers stay as they are, with commas."""
    if value == 0:
        return "0"
    if float(value).is_integer() and abs(value) < (1e6 if figures > 2 else 100):
        return f"{int(value):,}"
    places = figures - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    return f"{rounded:,.{max(0, places)}f}" if abs(rounded) < 1 or places > 0 else f"{int(rounded):,}"
