"""What a stage reports, in a few words that fit: step 120/300  loss 1.234  8.1k tokens/s  0:21 min left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxt.cli.cells import shorten, width_of
from mxt.words import duration, ellipsis, short_digests

_GAP = "  "
# what gives way first where there is little room
_NOTE, _FIGURE, _RATE, _STAGE, _LEFT, _STEP = range(6)


def printable(text: str) -> str:
    """text without anything that could move the cursor or break the line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def facts(report: Mapping[str, Any], cells: int | None = None) -> str:
    """The report in a line; with `cells`, without what matters least until it fits."""
    parts = _parts(report)
    while True:
        text = _GAP.join(part for _, part in parts)
        if cells is None or width_of(text) <= cells or len(parts) < 2:
            return text if cells is None else shorten(text, max(0, cells))
        least = min(parts, key=lambda part: part[0])
        rest = sum(width_of(part) + len(_GAP) for part in (p for _, p in parts)) - width_of(least[1])
        if least[0] == _NOTE and cells - rest >= 10:  # a note says something still when cut
            parts[parts.index(least)] = (_FIGURE, shorten(least[1], cells - rest))
        else:
            # of equals the later one goes
            at = max(i for i, part in enumerate(parts) if part[0] == least[0])
            parts.pop(at)


def first_figure(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a stage puts first of its figures, rates and times left out: how it ended."""
    for key, found in report.items():
        if isinstance(found, float) and not key.endswith("_s") and key not in ("step", "of"):
            return {key: found}
    return {}


def _parts(report: Mapping[str, Any]) -> list[tuple[int, str]]:
    parts = []
    if "stage" in report:
        parts.append((_STAGE, printable(str(report["stage"]))))
    if "step" in report:
        step = _whole(report["step"])
        parts.append((_STEP, f"{step}/{_whole(report['of'])}" if "of" in report else f"step {step}"))
    for key, found in report.items():
        if key in ("stage", "step", "of", "eta_s", "note", "summary"):
            continue
        if key.endswith("_per_s") and isinstance(found, (int, float)):
            parts.append((_RATE, f"{_count(found)} {printable(key.removesuffix('_per_s'))}/s"))
        elif isinstance(found, float):
            parts.append((_FIGURE, f"{printable(key)} {found:.4g}"))
        else:
            parts.append((_FIGURE, printable(f"{key} {found}")))
    if "note" in report:
        parts.append((_NOTE, printable(str(report["note"]))))
    left = report.get("eta_s")
    if isinstance(left, (int, float)) and left >= 0:
        parts.append((_LEFT, f"{duration(left)} left"))
    return parts


def bar(report: Mapping[str, Any], width: int, bars: str = "━─") -> str:
    """How far a stage is, in that many cells; "" where that is unknown or there is no room."""
    step, of = report.get("step"), report.get("of")
    if not isinstance(step, (int, float)) or not isinstance(of, (int, float)) or of <= 0 or width < 6:
        return ""
    full = int(max(0.0, min(1.0, step / of)) * width)
    return bars[0] * full + bars[1] * (width - full)


def action_line(
    name: str, report: Mapping[str, Any], elapsed_s: float, columns: int, bars: str = "━─"
) -> str:
    """An action that runs, in at most `columns` cells: its figures before a long label's beginning."""
    if columns < 24:
        return shorten(f"  {name}", columns, keep_end=True)
    name = printable(name)
    least = min(width_of(name), max(8, columns // 3))
    text = facts(report, columns - least - 4) if report else duration(elapsed_s)
    room = columns - width_of(text) - 4
    head = f"  {shorten(name, room, keep_end=True)}{_GAP}"
    free = columns - width_of(head) - width_of(text) - len(_GAP)
    drawn = bar(report, min(24, free), bars)
    return f"{head}{drawn}{_GAP if drawn else ''}{text}"


def short_change(change: Mapping[str, str]) -> str:
    """A change in a line: digests cut to 12 characters."""

    def cut(text: str) -> str:
        return ellipsis(short_digests(text), 60)

    if change["field"] == "":
        return change["new"]
    return f"{change['field']}: {cut(change['old'])} -> {cut(change['new'])}"


def _whole(found: Any) -> Any:
    return int(found) if isinstance(found, float) and found.is_integer() else found


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.1f}M"
    if value >= 1e4:
        return f"{value / 1e3:.1f}k"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
