"""A plan for people: its decisions, what it was made for, what was tried; and how two plans differ."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mxt.cli.cells import pad, shorten, width_of
from mxt.cli.plan_found import FoundPlan
from mxt.cli.terminal import paint
from mxt.words import duration, plural

# what the candidates' rows say beside their figures
_CANDIDATE, _CHOSEN, _REASON = "candidate", "chosen", "reason"


def show(plan: FoundPlan, columns: int) -> list[str]:
    """The whole plan in lines of at most `columns` cells; a label or path that is longer stays whole."""
    lines = [f"{paint(plan.name, 'bold', sys.stdout)}  {origin(plan)}"]
    if plan.stale:
        lines.append(f"  {paint('stale', 'yellow', sys.stdout)}: a build would measure again: {plan.stale}")
    lines += ["", "decisions"]
    wide = max(map(len, plan.decisions))
    lines += [f"  {name:<{wide}}  {value(v)}" for name, v in sorted(plan.decisions.items())]
    lines += ["", "made for"]
    for name, section in sorted(plan.form.items()):
        if name not in ("decisions", "version"):
            lines += _section(name, section, columns)
    if plan.evidence is not None:
        lines += ["", "measured", *_candidates(plan.evidence["candidates"], columns)]
        facts = {
            k: v for k, v in plan.evidence.items() if k != "candidates" and not isinstance(v, (dict, list))
        }
        if facts:
            lines += [""]
            lines += [
                line for k, v in facts.items() for line in _filled(f"{_words(k)}: {figure(k, v)}", columns)
            ]
    elif plan.origin in ("measured", "cached"):
        lines += ["", "what was measured is not kept here: it stays with whoever ran the probe"]
    return lines


def origin(plan: FoundPlan) -> str:
    """Where a plan came from, in words."""
    when = ""
    if plan.run is not None:
        began = datetime.fromisoformat(plan.run.started).astimezone()
        when = f"{began:%Y-%m-%d %H:%M}, in {duration(float(plan.run.wall_s))}"
    match plan.origin:
        case "measured":
            return f"measured here {when}"
        case "cached":
            return f"cached, measured elsewhere {when}".rstrip()
        case "pinned":
            return f"pinned in {plan.place}" + (f", measured {when}" if when else "")
        case "file":
            return "a file"
        case _:
            return f"of a {plan.origin}"


def _section(name: str, section: Any, columns: int) -> list[str]:
    """A line for the section's own values, and one for each section inside it."""
    if not isinstance(section, Mapping):
        return _items(name, [value(section)], columns)
    inner = {k: v for k, v in section.items() if isinstance(v, Mapping) and v and set(v) != {"$float"}}
    own = [f"{k} {value(v)}" for k, v in sorted(section.items()) if k not in inner]
    lines = _items(name, own, columns) if own else []
    for key, found in sorted(inner.items()):
        lines += _section(f"{name}.{key}", found, columns)
    return lines


def _items(name: str, items: Sequence[str], columns: int) -> list[str]:
    """NAME: ITEM, ITEM, broken between items."""
    lines = [f"  {name}: {items[0]}"]
    for item in items[1:]:
        lines[-1] += ","
        if width_of(lines[-1]) + 1 + width_of(item) + 1 <= columns:
            lines[-1] += f" {item}"
        else:
            lines.append(f"    {item}")
    return lines


def _filled(text: str, columns: int) -> list[str]:
    return textwrap.wrap(
        text, columns, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    ) or ["  "]


def _candidates(rows: Sequence[Any], columns: int) -> list[str]:
    """A table of what was measured, the chosen one marked; then what was rejected, each with its reason."""
    rows = [row for row in rows if isinstance(row, Mapping)]
    known = (_CANDIDATE, _CHOSEN, _REASON)
    measured = [row for row in rows if any(k not in known for k in row) and not row.get(_REASON)]
    rejected = [row for row in rows if row not in measured]
    names = list(dict.fromkeys(k for row in measured for k in row if k not in known))
    lines = []
    if measured:
        table = [
            [("* " if row.get(_CHOSEN) else "  ") + str(row.get(_CANDIDATE, "?"))]
            + [figure(k, row[k]) if k in row else "-" for k in names]
            for row in measured
        ]
        lines = _table(_heads(["  " + _CANDIDATE, *map(_words, names)], table) + table, columns)
    reasons: dict[str, list[str]] = {}
    for row in rejected:
        reasons.setdefault(str(row.get(_REASON, "not measured")), []).append(str(row.get(_CANDIDATE, "?")))
    for reason, those in reasons.items():
        text = f"    {', '.join(those)}: {reason}"
        lines += textwrap.wrap(text, columns, subsequent_indent="      ", break_on_hyphens=False)
    return lines


def _heads(names: list[str], table: list[list[str]]) -> list[list[str]]:
    """Headings over as many lines as keep them about as narrow as what stands below."""
    wide = [max(8, *(width_of(row[i]) for row in table)) for i in range(len(names))]
    parts = [[names[0]], *(textwrap.wrap(n, w) for n, w in zip(names[1:], wide[1:], strict=True))]
    height = max(map(len, parts))
    return [[([""] * (height - len(p)) + p)[i] for p in parts] for i in range(height)]


def _table(rows: list[list[str]], columns: int) -> list[str]:
    """First column left, figures right. Where it does not fit, the figures nearest to the name give way."""
    left = 0
    while True:
        shown = [[row[0], *row[1 + left :]] for row in rows]
        wide = [max(width_of(row[i]) for row in shown) for i in range(len(shown[0]))]
        total = 2 + sum(wide) + 2 * (len(wide) - 1)
        if total <= columns or len(wide) <= 2:
            break
        left += 1
    lines = []
    for row in shown:
        if not any(row):
            continue  # a heading's line that only the figures left out needed
        cells = [
            pad(row[0], wide[0]),
            *(pad(c, w, right=True) for c, w in zip(row[1:], wide[1:], strict=True)),
        ]
        lines.append(shorten("  " + "  ".join(cells), columns).rstrip())
    if left:
        lines.append(f"    ({plural(left, 'figure')} more in a wider terminal, or with --json)")
    return lines


def figure(name: str, found: Any) -> str:
    """A figure by its unit: names that end in or hold _s are seconds."""
    if isinstance(found, float) and ("_s_" in name or name.endswith("_s")):
        if found == 0:
            return "0"
        return f"{found * 1e3:.3g} ms" if found < 1 else duration(found)
    return value(found)


def value(found: Any) -> str:
    """A value as people read it: no quotes around words, yes and no, lists with blanks."""
    if isinstance(found, bool):
        return "yes" if found else "no"
    if found is None:
        return "-"
    if isinstance(found, float):
        return f"{found:.4g}"
    if isinstance(found, str):
        return found
    if isinstance(found, Mapping) and set(found) == {"$float"}:
        return str(found["$float"])
    if isinstance(found, list) and not any(isinstance(v, (list, dict)) for v in found):
        return " ".join(map(value, found)) or "none"
    return json.dumps(found, sort_keys=True)


def _words(name: str) -> str:
    return name.replace("_s_", " ").removesuffix("_s").replace("_", " ")


def flatten(form: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Leaves by dotted name, sorted."""
    out: dict[str, Any] = {}
    for key in sorted(form):
        found = form[key]
        if isinstance(found, Mapping) and found and set(found) != {"$float"}:
            out |= flatten(found, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = found
    return out


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(dotted name, in a, in b) for each leaf in which two plans differ; ABSENT where one lacks it."""
    one, other = flatten(a, ""), flatten(b, "")
    found = [
        (name, one.get(name, ABSENT), other.get(name, ABSENT))
        for name in sorted({*one, *other})
        if one.get(name, ABSENT) != other.get(name, ABSENT)
    ]
    # what was decided comes before what it was decided for
    return sorted(found, key=lambda d: not d[0].startswith("decisions."))


ABSENT = "(absent)"
