"""The report beside a receipt: one HTML page that says what was made, how well, from what and how."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mxt.pages import chart, panels
from mxt.pages.page import escape, page
from mxt.pages.report_facts import Step, gather
from mxt.panels import Bar, Bars, Cell, Panel, Verdict, clean
from mxt.receipt.receipt import RECEIPT_NAME, Receipt
from mxt.store.layout import Layout
from mxt.store.signing import keyid_of
from mxt.words import duration, moment, size

MAX_DRAWN = 300  # panels, and stages in the picture
MAX_ROWS = 500  # of the table of times
_BARS = 40
_PROBLEMS = 50

STYLE = """\
.eyebrow { color: var(--quiet); margin: 0 0 .2rem; font-size: .9rem; letter-spacing: .02em }
.contents { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; list-style: none; padding: 0;
  margin: 1rem 0 0 }
.contents a { display: inline-block; padding: .2rem 0 }
.picture { overflow-x: auto; max-width: 100%; margin: .6rem 0 }
.picture > svg { max-width: none; display: block }
.picture .mxt-picture .ground { fill: none }
span.state { display: inline-block; padding: 0 .5em; border-radius: 1em; border: 1px solid currentColor;
  font-size: .8rem; white-space: nowrap }
span.state.executed { color: var(--executed) } span.state.hit { color: var(--hit) }
tr:target { background: var(--sheet) }
html { scroll-behavior: smooth }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto } }
@media print { .picture > svg { max-width: 100%; height: auto } .contents { display: none }
  a { color: inherit; text-decoration: none }
  .scroll { overflow: visible } details .scroll { max-height: none } }
@media screen { .times td { white-space: nowrap } }
"""


def write_html(receipt: Receipt, layout: Layout, workspace: Path) -> str:
    """The report on a receipt as one self-contained HTML document.

    layout: of the store whose evidence is shown. workspace: whose toolchain locks name the versions.
    """
    steps = gather(receipt, layout)
    return render(receipt, steps, _versions(receipt, workspace))


def render(receipt: Receipt, steps: Sequence[Step], versions: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """versions: the path of a toolchain's lock -> (name, version) of what it holds."""
    statement = receipt.statement
    found = [(step.stage, panel) for step in steps for panel in step.panels]
    merged = panels.merge((s, p) for s, p in found if not isinstance(p, Verdict))
    drawn, lost = merged[:MAX_DRAWN], len(merged) - MAX_DRAWN
    sections: list[tuple[str, str]] = []
    picture = _picture(steps)
    if picture:
        sections.append(("How it was made", picture))
    sections += _panel_sections(drawn)
    sections.append(("Times and sizes", _times(steps)))
    notes = [f"{step.label}: {problem}" for step in steps for problem in step.problems]
    if lost > 0:
        notes.append(f"{lost} panels beyond the first {MAX_DRAWN} are not drawn")
    if notes:
        sections.append(("What could not be shown", _notes(notes)))
    settings = _settings(steps)
    if settings:
        sections.append(("Settings", settings))
    sections.append(("Versions", _version_tables(receipt, versions)))
    sections.append(("Check it yourself", _check(receipt)))

    name = statement.target.rpartition(":")[2]
    head = [f'<header><p class="eyebrow">mxt report on {escape(statement.target)}</p><h1>{escape(name)}</h1>']
    head += [panels.verdict(p) for _, p in found if isinstance(p, Verdict)]
    head.append(panels.facts(_facts(receipt, steps)))
    places = [(f"part-{n}", title, body) for n, (title, body) in enumerate(sections, 1)]
    links = "".join(f'<li><a href="#{place}">{escape(title)}</a></li>' for place, title, _ in places)
    head.append(f'<nav aria-label="Contents"><ul class="contents">{links}</ul></nav></header>')
    body = "".join(
        f'<section aria-labelledby="{place}"><h2 id="{place}">{escape(title)}</h2>\n{text}</section>\n'
        for place, title, text in places
    )
    style = chart.STYLE + panels.STYLE + STYLE
    return page(f"{name}: report", f"{''.join(head)}\n<main>\n{body}</main>", style=style)


def _facts(receipt: Receipt, steps: Sequence[Step]) -> list[tuple[str, Cell]]:
    statement = receipt.statement
    times = [s.wall_s for s in steps if s.wall_s is not None]
    ran = sum(step.executed for step in steps)
    machines = dict.fromkeys(_machine(step.run.machine) for step in steps if step.run is not None)
    how = f"{ran} ran in this build, {len(steps) - ran} were found finished"
    made: list[tuple[str, Cell]] = [("Built", moment(statement.finished))]
    if statement.recipe is not None:
        made.append(("Recipe", f"{statement.recipe[0]} ({statement.recipe[1][0][:12]})"))
    made += [
        ("Work", f"{duration(sum(times))} in {len(steps)} actions: {how}"),
        ("Results", f"{size(sum(step.size for step in steps))} in {len(statement.subjects):,} files"),
        ("Machine", "; ".join(m for m in machines if m)),
        ("Sandbox", ", ".join(dict.fromkeys(s.run.sandbox for s in steps if s.run is not None))),
        ("mxt", statement.versions.get("mxt", "")),
        ("Signed by", keyid_of(statement.public)),
        ("Receipt", receipt.digest),
    ]
    return [(name, clean(value) if isinstance(value, str) else value) for name, value in made if value != ""]


def _machine(facts: Mapping[str, object]) -> str:
    """What a run record says of its machine, in a line."""
    parts = []
    for name, value in facts.items():
        if name == "cores":
            parts.append(f"{value} cores")
        elif name == "memory_mb" and isinstance(value, int):
            parts.append(f"{size(value << 20)} memory")
        elif name in ("cpu", "gpu"):
            parts.insert(0, str(value))
        elif isinstance(value, (str, int)):
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def _stages(steps: Sequence[Step]) -> dict[str, list[Step]]:
    """The actions of each target, by its label."""
    stages: dict[str, list[Step]] = {}
    for step in steps:
        stages.setdefault(step.label, []).append(step)
    return stages


def _picture(steps: Sequence[Step]) -> str:
    """A node a stage: its actions together."""
    from mxt.pages.picture import PictureNode, svg

    stages = _stages(steps)
    if len(stages) > MAX_DRAWN:
        return (
            f'<p class="note">{len(stages):,} stages are too many for a picture here: '
            f"<code>mxt graph</code> draws them.</p>"
        )
    nodes, edges = [], {}
    for number, (label, parts) in enumerate(stages.items(), 1):
        times = [p.wall_s for p in parts if p.wall_s is not None]
        count = f", {len(parts)} actions" if len(parts) > 1 else ""
        nodes.append(
            PictureNode(
                name=label,
                title=parts[0].stage,
                kind=f"{parts[0].mnemonic}{count}",
                state="executed" if any(p.executed for p in parts) else "hit",
                wall_s=sum(times) if times else None,
                size=sum(p.size for p in parts),
                href=f"#stage-{number}",
            )
        )
        edges.update(dict.fromkeys((r, label) for p in parts for r in p.reads if r != label))
    try:
        drawing = svg(nodes, list(edges), label="The stages and what each reads")
    except ValueError as error:  # a forged receipt may hold a cycle
        return f'<p class="problem">The picture cannot be drawn: {escape(error)}</p>'
    note = (
        '<p class="note">Arrows go from what is read to its reader. '
        '<span class="state executed">executed</span> ran in the build that wrote this receipt, '
        '<span class="state hit">hit</span> was found finished.</p>'
    )
    opening = '<div class="picture" role="region" tabindex="0" aria-label="Picture of the stages">'
    return f"{opening}{drawing}</div>{note}"


def _panel_sections(merged: Sequence[tuple[tuple[str, ...], Panel]]) -> list[tuple[str, str]]:
    """Panels by section, in the order in which sections first appear; without one, by stage."""
    sections: dict[str, list[tuple[tuple[str, ...], Panel]]] = {}
    for stages, panel in merged:
        sections.setdefault(panel.section or stages[0], []).append((stages, panel))
    out = []
    for title, members in sections.items():
        several = len({stage for stages, _ in members for stage in stages}) > 1
        parts = []
        for stages, panel in members:
            # a table of all stages says in its rows which is which
            of = stages[0] if several and len(stages) == 1 else ""
            parts.append(panels.draw(panel, of))
        out.append((title, f'<div class="panels">{"".join(parts)}</div>\n'))
    return out


def _times(steps: Sequence[Step]) -> str:
    stages = _stages(steps)
    bars, rows = [], []
    for number, parts in enumerate(stages.values(), 1):
        known = [p.wall_s for p in parts if p.wall_s is not None]
        took = sum(known) if known else None
        ran = any(p.executed for p in parts)
        if took is not None:
            bars.append(Bar(parts[0].stage, took, text=duration(took), marked=ran))
        began = min((p.run.started for p in parts if p.run is not None), default="")
        state = "executed" if ran else "hit"
        resumed = " resumed" if any(p.run is not None and p.run.resumed for p in parts) else ""
        cells = (
            f'<td class="text">{escape(parts[0].stage)}</td>'
            f'<td class="number">{"" if took is None else duration(took)}</td>'
            f'<td class="number">{size(sum(p.size for p in parts))}</td>'
            f'<td class="number">{len(parts)}</td>'
            f'<td><span class="state {state}">{state}</span>{resumed}</td>'
            f"<td>{escape(moment(began))}</td><td>{escape(parts[0].mnemonic)}</td>"
        )
        rows.append(f'<tr id="stage-{number}">{cells}</tr>\n')
    slowest = sorted(bars, key=lambda bar: -bar.value)[:_BARS]
    figure = ""
    if slowest and slowest[0].value > 0:
        title = "Time by stage" if len(bars) <= _BARS else f"Time of the {_BARS} slowest stages"
        figure = chart.bars(Bars(title, unit="seconds of work", bars=tuple(slowest)))
    heads = ("stage", "time", "results", "actions", "in this build", "began", "what")
    head = "".join(
        f'<th scope="col"{_NUMBER if name in ("actions", "time", "results") else ""}>{name}</th>'
        for name in heads
    )
    more = len(rows) - MAX_ROWS
    rest = f'<p class="note">{more:,} more stages are left out.</p>' if more > 0 else ""
    return (
        f'{figure}<div class="scroll times" role="region" tabindex="0" aria-label="Times and sizes">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{''.join(rows[:MAX_ROWS])}</tbody></table></div>{rest}"
    )


_NUMBER = ' class="number"'


def _notes(notes: Sequence[str]) -> str:
    shown = "".join(f'<p class="problem">{escape(clean(note))}</p>' for note in notes[:_PROBLEMS])
    more = f"<p>and {len(notes) - _PROBLEMS} more</p>" if len(notes) > _PROBLEMS else ""
    return shown + more


def _settings(steps: Iterable[Step]) -> str:
    """The recipe's fields that some action was keyed by."""
    fields: dict[str, object] = {}
    for step in steps:
        fields.update(step.config)
    if not fields:
        return ""
    pairs: list[tuple[str, Cell]] = [
        (clean(name, 120), _value(fields[name])) for name in sorted(fields) if fields[name] is not None
    ]
    note = '<p class="note">Fields of the recipe that the results depend on; what is not set is left out.</p>'
    return f"<details><summary>{len(pairs)} settings</summary>{panels.facts(pairs[:1000])}</details>{note}"


def _value(value: object) -> str:
    if isinstance(value, str):
        return clean(value)
    return clean(json.dumps(value, ensure_ascii=False, default=str))


def _versions(receipt: Receipt, workspace: Path) -> dict[str, list[tuple[str, str]]]:
    """What the locks of the receipt hold, where the workspace still has just these."""
    from mxt.action.toolchain_lock import parse_lock
    from mxt.errors import MxtError
    from mxt.store.digest import hash_bytes

    found: dict[str, list[tuple[str, str]]] = {}
    for one in receipt.statement.dependencies:
        if one.kind != "lock":
            continue
        try:
            data = (workspace / one.path).read_bytes()
            if hash_bytes(data) == one.digests["blake3"]:
                lock = parse_lock(data, one.path)
                found[one.path] = [("interpreter", str(lock.interpreter))]
                found[one.path] += [(d.name, d.version) for d in lock.distributions]
        except (OSError, MxtError):
            continue
    return found


def _version_tables(receipt: Receipt, versions: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    parts = [panels.facts([("mxt", clean(receipt.statement.versions.get("mxt", "")))])]
    for one in receipt.statement.dependencies:
        if one.role != "toolchain":
            continue
        digest = next(iter(one.digests.values()), "")
        parts.append(f"<h3>Toolchain {escape(clean(one.name))}</h3><p class='note'>{escape(digest)}</p>")
        held = versions.get(one.path)
        if held:
            inner = panels.table(["distribution", "version"], held, label=f"Contents of {one.path}")
            parts.append(f"<details><summary>{len(held)} distributions</summary>{inner}</details>")
    for digest, properties in receipt.statement.platforms.items():
        shown = _value(properties)
        parts.append(f"<h3>Platform {escape(clean(digest[:12]))}</h3><p class='mono'>{escape(shown)}</p>")
    return "".join(parts)


def _check(receipt: Receipt) -> str:
    sources = sum(one.role == "source" for one in receipt.statement.dependencies)
    quoted = _shell(receipt.statement.target)
    return (
        f"<p>This page is for reading; what is signed is <code>{RECEIPT_NAME}</code> beside it. It names "
        f"every one of {sources:,} sources and {len(receipt.statement.subjects):,} results by BLAKE3 and "
        "SHA-256, and how each action was keyed. To recompute all of it:</p>"
        f"<pre>mxt verify {escape(quoted)}</pre>"
    )


def _shell(text: str) -> str:
    import shlex

    return shlex.quote(clean(re.sub(r"\s", " ", text)))
