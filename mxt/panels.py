"""What a stage wants people to see of a run: evidence `panels.json`, of few and neutral kinds.

    lines     curves over one x: x, series {name: [y, ...]}, x_label, y_label; zero: true begins y at 0
    bars      values by name: bars [{name, value, error, text, group, marked}], unit
    table     columns, rows; add_up: true sums rows of equal words over all actions that write this table
    facts     facts [[name, value], ...]
    verdict   one sentence (its title), good: true, false or null

All have a title; section (the heading under which a report shows it) and note (a sentence below it) may be
given. Reading is total: whatever a file holds becomes panels and problems, never an exception, and its
size is bounded. Whoever draws panels escapes their texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FILE = "panels.json"
MAX_BYTES = 16 << 20
MAX_PANELS = 100
MAX_POINTS = 1000
MAX_SERIES = 12
MAX_BARS = 100
MAX_ROWS = 200
MAX_COLUMNS = 16
MAX_FACTS = 100
MAX_TEXT = 600

Cell = str | int | float | None


@dataclass(frozen=True)
class Lines:
    """Curves over a common x. series: name -> y values as many as x; None is a gap.

    zero: whether the axis of y shows 0. points: how many there were before `thin`.
    """

    title: str
    section: str = ""
    note: str = ""
    x_label: str = ""
    y_label: str = ""
    x: tuple[float, ...] = ()
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    zero: bool = False
    points: int = 0


@dataclass(frozen=True)
class Bar:
    """error: half the length of the whisker, in the unit of value. text: instead of the value's figures."""

    name: str
    value: float
    error: float | None = None
    text: str = ""
    group: str = ""
    marked: bool = False


@dataclass(frozen=True)
class Bars:
    title: str
    section: str = ""
    note: str = ""
    unit: str = ""
    bars: tuple[Bar, ...] = ()
    left_out: int = 0


@dataclass(frozen=True)
class Table:
    """left_out: rows beyond MAX_ROWS."""

    title: str
    section: str = ""
    note: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    add_up: bool = False
    left_out: int = 0


@dataclass(frozen=True)
class Facts:
    title: str
    section: str = ""
    note: str = ""
    facts: tuple[tuple[str, Cell], ...] = ()


@dataclass(frozen=True)
class Verdict:
    """title: the sentence. good: whether it is the hoped-for one; None where that is not the question."""

    title: str
    section: str = ""
    note: str = ""
    good: bool | None = None


Panel = Lines | Bars | Table | Facts | Verdict


@dataclass(frozen=True)
class Read:
    """problems: what could not be shown as it was meant, for people."""

    panels: tuple[Panel, ...] = ()
    problems: tuple[str, ...] = ()


def read_panels(data: bytes) -> Read:
    """Panels and problems of the bytes of a panels.json; raises nothing."""
    if len(data) > MAX_BYTES:
        return Read(problems=(f"{FILE} is larger than the {MAX_BYTES >> 20} MiB that are read",))
    try:
        forms = json.loads(data)
    except (ValueError, RecursionError) as error:
        return Read(problems=(f"{FILE} is no JSON: {clean(str(error), 200)}",))
    if not isinstance(forms, list):
        return Read(problems=(f"{FILE} is no list of panels",))
    panels: list[Panel] = []
    problems: list[str] = []
    for number, form in enumerate(forms[:MAX_PANELS], 1):
        try:
            panels.append(_panel(form, problems))
        except _MalformedError as error:
            problems.append(f"panel {number} is left out: {error}")
    if len(forms) > MAX_PANELS:
        problems.append(f"{len(forms) - MAX_PANELS} panels beyond the first {MAX_PANELS} are left out")
    return Read(tuple(panels), tuple(dict.fromkeys(problems))[:MAX_PANELS])


def plain(value: object) -> object:
    """A value as JSON can say it: NaN and the like become None, tuples lists, the rest text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(v) for v in value]
    return str(value)


def thin(columns: Sequence[Sequence[float | None]], limit: int = MAX_POINTS) -> list[int]:
    """Which points to keep so that about `limit` remain: in each stretch the extremes of each column."""
    length = min(map(len, columns), default=0)
    if length <= limit:
        return list(range(length))
    stretches = max(1, limit // (2 * len(columns)))
    kept = {0, length - 1}
    for number in range(stretches):
        first, end = number * length // stretches, (number + 1) * length // stretches
        for column in columns:
            known = [(v, i) for i in range(first, end) if (v := column[i]) is not None]
            if known:
                kept |= {min(known)[1], max(known)[1]}
    return sorted(kept)


def thin_form(form: dict[str, Any]) -> dict[str, Any]:
    """The form of a lines panel with as many points as are drawn; any other form as it is."""
    x, series = form.get("x"), form.get("series")
    if form.get("kind") != "lines" or not isinstance(x, Sequence) or not isinstance(series, Mapping):
        return form
    columns = list(series.values())
    if not all(isinstance(c, Sequence) and len(c) == len(x) for c in columns) or len(x) <= MAX_POINTS:
        return form
    kept = thin([[_number(v) for v in c] for c in columns])
    thinned = {name: [c[i] for i in kept] for name, c in series.items()}
    return {**form, "x": [x[i] for i in kept], "series": thinned, "points": len(x)}


_LOST = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")
# marks that turn the direction of what follows, also of text that is not theirs
_LOST |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\N{REPLACEMENT CHARACTER}")


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """Text that can be written as UTF-8 and stays in its place; cut to `limit` characters."""
    cut = text[:limit].translate(_LOST).encode("utf-8", "replace").decode("utf-8")
    return f"{cut}\N{HORIZONTAL ELLIPSIS}" if len(text) > limit else cut


class _MalformedError(Exception):
    """A panel that cannot be shown; its text says why."""


def _panel(form: object, problems: list[str]) -> Panel:
    if not isinstance(form, dict):
        raise _MalformedError("it is no object")
    kind = form.get("kind")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise _MalformedError(f"unknown kind {_shown(kind)}, the kinds are {', '.join(_READERS)}")
    title = form.get("title")
    if not isinstance(title, str) or not title.strip():
        raise _MalformedError("it has no title")
    common = {"title": clean(title), "section": _text(form, "section", 80), "note": _text(form, "note")}
    return read(form, common, problems)


def _lines(form: dict[str, Any], common: dict[str, str], problems: list[str]) -> Panel:
    x_values = _list(form, "x")
    named = form.get("series")
    if not isinstance(named, dict) or not named:
        raise _MalformedError("'series' must be {name: [y, ...]} with at least one name")
    if len(named) > MAX_SERIES:
        problems.append(f"'{common['title']}' shows {MAX_SERIES} of its {len(named)} series")
    series: dict[str, list[float | None]] = {}
    for name, values in list(named.items())[:MAX_SERIES]:
        if not isinstance(values, list) or len(values) != len(x_values):
            raise _MalformedError(f"series {_shown(name)} has not as many values as x")
        series[clean(name, 80)] = [_number(v) for v in values]
    places = [i for i, v in enumerate(map(_number, x_values)) if v is not None]
    if not any(series[name][i] is not None for name in series for i in places):
        raise _MalformedError("it has no point with finite numbers")
    columns = [[values[i] for i in places] for values in series.values()]
    kept = thin(columns)
    points = form.get("points")
    return Lines(
        **common,
        x_label=_text(form, "x_label", 80),
        y_label=_text(form, "y_label", 80),
        x=tuple(float(x_values[places[i]]) for i in kept),
        series={n: tuple(c[i] for i in kept) for n, c in zip(series, columns, strict=True)},
        zero=form.get("zero") is True,
        points=max(len(x_values), points if type(points) is int and points < 1 << 53 else 0),
    )


def _bars(form: dict[str, Any], common: dict[str, str], _: list[str]) -> Panel:
    found = _list(form, "bars")
    bars = []
    for one in found[:MAX_BARS]:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise _MalformedError("each bar must be an object with a name")
        value, error = _number(one.get("value")), _number(one.get("error"))
        if value is None:
            raise _MalformedError(f"bar {_shown(one['name'])} has no finite value")
        bars.append(
            Bar(
                clean(one["name"], 120),
                value,
                None if error is None else abs(error),
                _text(one, "text", 80),
                _text(one, "group", 120),
                one.get("marked") is True,
            )
        )
    if not bars:
        raise _MalformedError("it has no bars")
    return Bars(
        **common, unit=_text(form, "unit", 40), bars=tuple(bars), left_out=max(0, len(found) - MAX_BARS)
    )


def _table(form: dict[str, Any], common: dict[str, str], _: list[str]) -> Panel:
    columns = tuple(_cell_text(c) for c in _list(form, "columns"))
    if not 0 < len(columns) <= MAX_COLUMNS:
        raise _MalformedError(f"it has {len(columns)} columns, 1 to {MAX_COLUMNS} are shown")
    found = _list(form, "rows")
    rows = []
    for row in found[:MAX_ROWS]:
        if not isinstance(row, list) or len(row) != len(columns):
            raise _MalformedError("each row must be a list with a cell for each column")
        rows.append(tuple(map(_cell, row)))
    return Table(
        **common,
        columns=columns,
        rows=tuple(rows),
        add_up=form.get("add_up") is True,
        left_out=max(0, len(found) - MAX_ROWS),
    )


def _facts(form: dict[str, Any], common: dict[str, str], problems: list[str]) -> Panel:
    found = _list(form, "facts")
    facts = []
    for pair in found[:MAX_FACTS]:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise _MalformedError("each fact must be [name, value]")
        facts.append((clean(pair[0], 120), _cell(pair[1])))
    if len(found) > MAX_FACTS:
        problems.append(f"'{common['title']}' shows {MAX_FACTS} of its {len(found)} facts")
    return Facts(**common, facts=tuple(facts))


def _verdict(form: dict[str, Any], common: dict[str, str], _: list[str]) -> Panel:
    good = form.get("good")
    return Verdict(**common, good=good if type(good) is bool else None)


_READERS: dict[str, Callable[[dict[str, Any], dict[str, str], list[str]], Panel]] = {
    "lines": _lines,
    "bars": _bars,
    "table": _table,
    "facts": _facts,
    "verdict": _verdict,
}


def _list(form: dict[str, Any], name: str) -> list[Any]:
    value = form.get(name)
    if not isinstance(value, list):
        raise _MalformedError(f"'{name}' must be a list")
    return value


def _text(form: dict[str, Any], name: str, limit: int = MAX_TEXT) -> str:
    value = form.get(name)
    return clean(value, limit) if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    # beyond these a difference or a part of two would be no number any more
    if abs(number) < 1e-290:
        return 0.0
    return number if abs(number) < 1e290 else None


def _cell(value: object) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else None
    if isinstance(value, float):
        return _number(value)
    return None if value is None else _cell_text(value)


def _cell_text(value: object) -> str:
    return clean(value) if isinstance(value, str) else _shown(value)


def _shown(value: object) -> str:
    """A value in a message: short, whatever it is."""
    if isinstance(value, (dict, list)):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    return repr(clean(str(value), 80))
