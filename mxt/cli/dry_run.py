"""mxt build -n: every action with its key, and whether it would run."""

from __future__ import annotations

from mxt.cli.progress import short_change
from mxt.cli.session import Session
from mxt.execution.forecast import Forecast, forecast
from mxt.graph.graph import ActionGraph
from mxt.words import plural

BLOCKED = "blocked"  # waits for what cannot run


def show_plan(session: Session, graph: ActionGraph) -> int:
    """Print one line an action; 0."""
    plan = forecast(graph, session.runner(graph))
    width = max((len(str(f.action.id)) for f in plan), default=0)
    for item in plan:
        key = f" {item.key[:12]}" if item.key else f"~{(item.likeness or '')[:12]}"
        state = _state(item)
        print(f"  {state:<8} {key}  {item.action.id!s:<{min(width, 60)}}  {_why(item)}".rstrip())
    refused = sum(f.refused for f in plan)
    blocked = sum(_state(f) == BLOCKED for f in plan)
    run = [f.key for f in plan if f.status == "run" and not f.refused]
    later = sum(_state(f) == "later" for f in plan)
    cached = len(plan) - len(run) - later - refused - blocked
    shared = len(run) - len(set(run))  # one run gives all of them their result
    same = f" ({shared} more with a key of theirs)" if shared else ""
    parts = [f"{len(set(run))} to run{same}", f"{later} after them", f"{cached} cached"]
    if refused:
        parts.append(f"{refused} that cannot run")
    if blocked:
        parts.append(f"{blocked} behind those")
    if any(item.key is None for item in plan):
        print("~: known when the inputs are made; shown is a digest of all they are made from")
    print(f"{plural(len(plan), 'action')}: {', '.join(parts)}")
    return 0


def _state(item: Forecast) -> str:
    """The word of the first column."""
    if item.refused and item.action.refusal:
        return item.action.refusal.word
    return BLOCKED if item.behind else item.status


def _why(item: Forecast) -> str:
    if item.status == "cached":
        return ""
    if item.refused and item.action.refusal:
        return f"({item.action.refusal.message})"
    if item.behind:
        return f"(needs {item.behind})"
    reasons = [short_change(c._asdict()) for c in item.changes]
    if item.waits:
        makers = list(dict.fromkeys(str(m) for m in item.waits.values()))
        more = f" and {len(makers) - 1} more" if len(makers) > 1 else ""
        reasons.append(f"reads {makers[0]}{more}")
    return f"({reasons[0]}{f' and {len(reasons) - 1} more' if len(reasons) > 1 else ''})" if reasons else ""
