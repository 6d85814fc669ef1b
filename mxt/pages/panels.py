"""Draws panels, which stages left as evidence, as HTML; every text in them is a stranger's and is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mxt.pages import chart
from mxt.pages.page import escape
from mxt.panels import MAX_ROWS, Bars, Cell, Facts, Lines, Panel, Table, Verdict, thin

STYLE = """\
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr));
  gap: 0 2.5rem; align-items: start }
.panel { margin: 0 0 .8rem; min-width: 0 }
h2, h3, dt, figcaption, summary, .contents { overflow-wrap: anywhere }
.panel.wide { grid-column: 1 / -1 }
.panel h3 { margin-bottom: .3rem }
.panel .of { font-weight: 400; color: var(--quiet); font-size: .85rem }
.note { color: var(--quiet); overflow-wrap: anywhere; font-size: .9rem; margin: .3rem 0 .6rem }
td.text { min-width: 6rem; overflow-wrap: anywhere; unicode-bidi: isolate }
.scroll td.text { max-width: 30rem }
details { margin: .2rem 0 .8rem }
summary { cursor: pointer; color: var(--accent); font-size: .9rem; padding: .35rem 0; width: fit-content }
details .scroll { max-height: 24rem; overflow: auto }
.verdict { border-left: 5px solid var(--waiting); background: var(--sheet); border-radius: 0 8px 8px 0;
  padding: .7rem 1rem; margin: .8rem 0; font-size: 1.08rem; max-width: 60rem; overflow-wrap: anywhere }
.verdict.good { border-color: var(--hit) } .verdict.bad { border-color: var(--failed) }
.verdict .mark { font-weight: 700; margin-right: .45rem }
.verdict.good .mark { color: var(--hit) } .verdict.bad .mark { color: var(--failed) }
.verdict p { margin: .25rem 0 0; font-size: .92rem; color: var(--quiet); max-width: none }
.facts dl { margin: .3rem 0; grid-template-columns: minmax(0, max-content) minmax(0, 1fr); gap: .2rem 1rem }
.problem { border-left: 3px solid var(--stale); padding-left: .7rem; overflow-wrap: anywhere }
@media (max-width: 34rem) { th, td { padding-right: .7rem }
  .facts dl { grid-template-columns: minmax(0, 11fr) minmax(0, 9fr) } }
@media print { .panels { grid-template-columns: 1fr 1fr; gap: 0 1.5rem }
  th { white-space: normal; overflow-wrap: anywhere } td.text { min-width: 0 }
  h2, h3, figcaption { break-after: avoid } .panel.facts { break-inside: avoid }
  table { break-inside: auto } tr { break-inside: avoid } }
"""

_DATA_ROWS = 100  # of a chart's data table


def merge(found: Iterable[tuple[str, Panel]]) -> list[tuple[tuple[str, ...], Panel]]:
    """(stages, panel) in order; tables of the same section, title and columns become one.

    Those that add up have rows with the same words summed, the others stand below each other.
    """
    groups: dict[object, tuple[dict[str, None], list[Panel]]] = {}
    for number, (stage, panel) in enumerate(found):
        name: object = number
        if isinstance(panel, Table):
            # scores of two stages are two tables; parts of one stage, and what adds up, are one
            name = (panel.section, panel.title, panel.columns, panel.add_up or stage)
        stages, members = groups.setdefault(name, ({}, []))
        stages[stage] = None
        members.append(panel)
    return [(tuple(stages), _joined(members)) for stages, members in groups.values()]


def _joined(members: Sequence[Panel]) -> Panel:
    tables = [one for one in members if isinstance(one, Table)]
    if len(tables) < 2:
        return members[0]
    rows = [row for one in tables for row in one.rows]
    if tables[0].add_up:
        rows = [tuple(row) for row in _summed(rows)]
    lost = max(0, len(rows) - MAX_ROWS) + sum(one.left_out for one in tables)
    return replace(tables[0], rows=tuple(rows[:MAX_ROWS]), left_out=lost)


def _summed(rows: Sequence[tuple[Cell, ...]]) -> list[list[Cell]]:
    """One row for all with the same words, numbers added."""
    sums: dict[tuple[Cell, ...], list[Cell]] = {}
    for row in rows:
        words = tuple(cell if isinstance(cell, str) else None for cell in row)
        known = sums.get(words)
        if known is None:
            sums[words] = list(row)
            continue
        for place, cell in enumerate(row):
            before = known[place]
            if isinstance(cell, (int, float)):
                known[place] = cell + before if isinstance(before, (int, float)) else cell
    return list(sums.values())


def draw(panel: Panel, of: str = "") -> str:
    """HTML of a panel. of: the stage that it is told apart by, "" where that is clear."""
    if isinstance(panel, Verdict):
        return verdict(panel)
    beside = f' <span class="of">{escape(of)}</span>' if of else ""
    note = f'<p class="note">{escape(panel.note)}</p>' if panel.note else ""
    if isinstance(panel, Lines):
        named = replace(panel, title=f"{panel.title}, {of}") if of else panel
        thinned = ""
        if panel.points > len(panel.x):
            thinned = (
                f'<p class="note">{panel.points:,} points; {len(panel.x):,} are drawn, with the extremes.</p>'
            )
        return f'<div class="panel">{chart.curves(named)}{note}{thinned}{_curve_data(panel)}</div>\n'
    if isinstance(panel, Bars):
        named_bars = replace(panel, title=f"{panel.title}, {of}") if of else panel
        return f'<div class="panel">{chart.bars(named_bars)}{note}{_bar_data(panel)}</div>\n'
    heading = f"<h3>{escape(panel.title)}{beside}</h3>"
    if isinstance(panel, Facts):
        return f'<div class="panel facts">{heading}{facts(panel.facts)}{note}</div>\n'
    wordy = any(isinstance(cell, str) and len(cell) > 40 for row in panel.rows for cell in row)
    wide = " wide" if len(panel.columns) > (3 if wordy else 5) else ""
    more = f'<p class="note">{panel.left_out:,} more rows are left out.</p>' if panel.left_out else ""
    inner = table(panel.columns, panel.rows, label=panel.title)
    return f'<div class="panel{wide}">{heading}{inner}{more}{note}</div>\n'


def verdict(panel: Verdict) -> str:
    """The sentence with a mark, which says in words what its colour says."""
    kind, mark, word = {
        True: ("good", "\N{CHECK MARK}", "positive"),
        False: ("bad", "\N{MULTIPLICATION X}", "negative"),
        None: ("open", "", ""),
    }[panel.good]
    sign = f'<span class="mark" role="img" aria-label="{word}">{mark}</span>' if mark else ""
    note = f"<p>{escape(panel.note)}</p>" if panel.note else ""
    return f'<div class="verdict {kind}">{sign}{escape(panel.title)}{note}</div>\n'


def facts(pairs: Iterable[tuple[str, Cell]]) -> str:
    """A list of names and values."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{_cell(value)}</dd>" for name, value in pairs)
    return f"<dl>{items}</dl>"


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, label: str) -> str:
    """A table that scrolls sideways where it is too wide, by keyboard too."""
    numeric = [
        any(isinstance(r[i], (int, float)) for r in rows)
        and not any(r[i] for r in rows if isinstance(r[i], str))
        for i in range(len(columns))
    ]
    head = "".join(
        f'<th scope="col"{_NUMBER if number else ""}>{escape(name)}</th>'
        for name, number in zip(columns, numeric, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_NUMBER if number else _TEXT}>{_cell(cell)}</td>"
            for cell, number in zip(row, numeric, strict=True)
        )
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>"
    )


_NUMBER, _TEXT = ' class="number"', ' class="text"'


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    return escape(value if isinstance(value, str) else chart.number(value))


def _curve_data(panel: Lines) -> str:
    columns = list(panel.series.values())
    kept = thin(columns, _DATA_ROWS)
    rows = [[panel.x[i], *(c[i] for c in columns)] for i in kept]
    shown = "" if len(kept) == panel.points else f", {len(kept)} of {panel.points:,} points"
    return _data([panel.x_label or "x", *panel.series], rows, panel.title, shown)


def _bar_data(panel: Bars) -> str:
    grouped, errors = any(b.group for b in panel.bars), any(b.error is not None for b in panel.bars)
    columns = [*(["group"] if grouped else []), "name", panel.unit or "value", *(["error"] if errors else [])]
    rows: list[list[Cell]] = [
        [*([b.group] if grouped else []), b.name, b.value, *([b.error] if errors else [])] for b in panel.bars
    ]
    return _data(columns, rows, panel.title, "")


def _data(columns: Sequence[str], rows: Sequence[Sequence[Cell]], title: str, shown: str) -> str:
    label = f"Data of '{title}'"
    return f"<details><summary>Data as a table{shown}</summary>{table(columns, rows, label=label)}</details>"
