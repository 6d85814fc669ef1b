"""Results as Markdown: every row for docs/performance.md, and what has a goal for the README."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks._measure import BenchmarkError, Result, Row

BEGIN = "<!-- figures: written by `benchmarks/run {what}` -->"
END = "<!-- end of figures -->"


def detail(result: Result) -> str:
    """Every row of one benchmark."""
    if result.benchmark == "blind":
        return _blind(result)
    lines = [
        "| what | n | tool | median | CPU | peak | goal | mxt's time over it |",
        "|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    for row in result.rows:
        peak = f"{row.peak_mib:.0f} MiB" if row.peak_mib else ""
        ratio = f"{row.ratio:.3g} x" if row.ratio is not None else ""
        tool = f"{row.tool} ({row.note})" if row.note else row.tool
        lines.append(
            f"| {row.case} | {f'{row.n:,}' if row.n else ''} | {tool} | {ms(row.wall_ms)} | {ms(row.cpu_ms)} "
            f"| {peak} | {ms(row.goal_ms)} | {ratio} |"
        )
    return "\n".join(lines)


def _blind(result: Result) -> str:
    tools = list(dict.fromkeys(row.tool for row in result.rows))
    lines = [f"| after a null build | {' | '.join(tools)} |", f"|---|{'---|' * len(tools)}"]
    for change in dict.fromkeys(row.case for row in result.rows):
        notes = {row.tool: row.note for row in result.rows if row.case == change}
        lines.append(f"| {change} | {' | '.join(notes.get(t, 'has none') for t in tools)} |")
    return "\n".join(lines)


def summary(results: Iterable[Result]) -> str:
    """What has a goal: goal, median, and the others measured in the same run."""
    lines = ["| what | goal | mxt | beside, in the same run |", "|---|--:|--:|---|"]
    for result in results:
        for row in result.rows:
            if row.goal_ms is None:
                continue
            name = (
                row.case
                + (f", {row.n:,}" if row.n > 1 and f"{row.n:,}" not in row.case else "")
                + (", sandboxed" if "sandboxed" in row.tool else "")
            )
            memory = f", {row.peak_mib:.0f} MiB" if result.benchmark == "null" and row.peak_mib else ""
            met = "" if row.wall_ms <= row.goal_ms else " (missed)"
            lines.append(
                f"| {name} | {ms(row.goal_ms)} | {ms(row.wall_ms)}{memory}{met} "
                f"| {_beside(row, result.rows)} |"
            )
    return "\n".join(lines)


def _beside(row: Row, all_rows: Sequence[Row]) -> str:
    parts = []
    for other in all_rows:
        if other.case == row.case and not other.tool.startswith("mxt") and other.n == row.n:
            ratio = row.wall_ms / other.wall_ms
            factor = f"{ratio:.1f} x its time" if ratio >= 1 else f"{1 / ratio:,.0f} x as long"
            parts.append(
                f"{other.tool} {ms(other.wall_ms)} ({factor}{'; ' + other.note if other.note else ''})"
            )
    return ", ".join(parts)


def ms(value: float | None) -> str:
    """Milliseconds for people: three digits, seconds from 10 s on."""
    if value is None:
        return ""
    if value >= 10_000:
        return f"{value / 1e3:,.1f} s"
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def write_between(path: Path, what: str, text: str) -> None:
    """Replace what stands between the marks in a file. Raises BenchmarkError where they are missing."""
    old = path.read_text(encoding="utf-8")
    begin = BEGIN.format(what=what)
    pattern = re.compile(re.escape(begin) + r"\n.*?" + re.escape(END), re.DOTALL)
    new, count = pattern.subn(lambda _: f"{begin}\n{text}\n{END}", old)
    if count != 1:
        raise BenchmarkError(f"{path.name} has no place for the figures: put '{begin}' and '{END}' there")
    path.write_text(new, encoding="utf-8")
