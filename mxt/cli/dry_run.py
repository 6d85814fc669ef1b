"""mxt build -n: every action with its key, and whether it would run."""

from __future__ import annotations

from mxt.cli.progress import short_change
from mxt.cli.session import Session
from mxt.cli.terminal import plural
from mxt.execution.forecast import Forecast, forecast
from mxt.graph.graph import ActionGraph


def show_plan(session: Session, graph: ActionGraph) -> int:
    """Print one line an action; 0."""
    plan = forecast(graph, session.runner(graph))
    width = max((len(str(f.action.id)) for f in plan), default=0)
    for item in plan:
        key = item.key[:12] if item.key else "-" * 12
        print(f"  {item.status:<6}  {key}  {item.action.id!s:<{min(width, 60)}}  {_why(item)}".rstrip())
    run = sum(f.status == "run" for f in plan)
    later = sum(f.status == "later" for f in plan)
    cached = len(plan) - run - later
    parts = [f"{run} to run", f"{later} after them", f"{cached} cached"]
    print(f"{plural(len(plan), 'action')}: {', '.join(parts)}")
    return 0


def _why(item: Forecast) -> str:
    if item.status == "cached":
        return ""
    reasons = [short_change(c._asdict()) for c in item.changes]
    if item.waits:
        makers = list(dict.fromkeys(str(m) for m in item.waits.values()))
        more = f" and {len(makers) - 1} more" if len(makers) > 1 else ""
        reasons.append(f"reads {makers[0]}{more}")
    return f"({reasons[0]}{f' and {len(reasons) - 1} more' if len(reasons) > 1 else ''})" if reasons else ""
