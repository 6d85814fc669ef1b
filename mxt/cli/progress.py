"""How a running build looks: live lines in a terminal, plain lines in a pipe or a CI log."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from mxt.cli.terminal import colour_wanted, duration, paint

PLAIN_INTERVAL_S = 10.0


@dataclass
class Running:
    """An action that runs now, and the last thing it reported."""

    name: str
    mnemonic: str
    began: float
    report: dict[str, Any] = field(default_factory=dict)
    printed: float = 0.0


class Progress:
    """Listens to the events of a build and shows them on standard error."""

    def __init__(self, total: int, *, verbose: bool = False) -> None:
        self._total = total
        self._verbose = verbose
        self._done = 0
        self._cached = 0
        self._running: dict[str, Running] = {}
        self._began = time.monotonic()
        self._live: Any = None
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    # ---- events -------------------------------------------------------------------------------

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        name = fields.get("label", "")
        if fields.get("action"):
            name += f"[{fields['action']}]"
        if event == "action_started":
            now = time.monotonic()
            self._running[name] = Running(name, fields["mnemonic"], now, printed=now)
            verb = "resuming" if fields.get("resumed") else "running"
            if not self._is_live or self._verbose:
                self._say(f"  {verb} {name}{_because(fields['reason'])}")
            elif fields.get("resumed"):
                self._say(f"  resuming {name} from its last checkpoint")
        elif event == "action_progress":
            self._progress(name, fields)
        elif event == "action_waiting":
            self._say(f"  waiting for another build that runs {name}")
        elif event == "action_finished":
            self._finished(name, fields)
        elif event == "note":
            self._say(f"  {fields['text']}")
        elif event == "build_interrupted":
            self._say("  stopping; press Ctrl-C again to kill at once")
        elif event == "build_finished":
            self.close()

    def _progress(self, name: str, fields: dict[str, Any]) -> None:
        running = self._running.get(name)
        if running is None:
            return
        known = {k: v for k, v in fields.items() if k not in ("label", "action", "key")}
        for passing in ("note", "stage"):  # what it said it was doing is over once it says something else
            if passing not in known:
                running.report.pop(passing, None)
        running.report.update(known)
        now = time.monotonic()
        if not self._is_live and now - running.printed >= PLAIN_INTERVAL_S:
            running.printed = now
            self._say(f"  {name}: {_facts(running.report)}")

    def _finished(self, name: str, fields: dict[str, Any]) -> None:
        running = self._running.pop(name, None)
        status = fields["status"]
        self._done += 1
        self._cached += status == "cached"
        wall = duration(fields["wall_s"])
        if status == "executed":
            report = running.report if running else {}
            last = _facts({k: v for k, v in report.items() if k == "loss"})
            last = "  ".join(text for text in (last, str(report.get("summary", ""))) if text)
            self._say(f"{self._mark('ok', 'green')} {name}  {wall}{'  ' + last if last else ''}")
        elif status == "failed":
            self._say(f"{self._mark('failed', 'red')} {name}  {wall}")
        elif self._verbose:
            self._say(f"{self._mark(status, 'dim')} {name}")

    def _mark(self, word: str, style: str) -> str:
        return "  " + paint(word, style, sys.stderr)

    # ---- drawing --------------------------------------------------------------------------------

    def _say(self, line: str) -> None:
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text.from_ansi(line), soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def tick(self) -> None:
        """Redraw; called about ten times a second while anything runs."""
        if not self._is_live or not self._running:
            return
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, no_color=not colour_wanted(sys.stderr), highlight=False)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._picture(self._live.console.width), refresh=True)

    def _picture(self, width: int) -> Any:
        from rich.text import Text

        now = time.monotonic()
        lines = []
        for running in list(self._running.values())[:12]:
            head = f"  {running.name}"
            facts = _facts(running.report) or duration(now - running.began)
            bar = _bar(running.report, max(0, min(24, width - len(head) - len(facts) - 6)))
            line = f"{head}  {bar}{facts}"
            if len(line) > width:  # the facts matter more than a long label's beginning
                room = max(8, width - len(facts) - 6)
                line = f"  ...{head[-room + 3 :].lstrip()}  {facts}"
            lines.append(line[:width])
        if len(self._running) > 12:
            lines.append(f"  and {len(self._running) - 12} more")
        cached = f", {self._cached} cached" if self._cached else ""
        lines.append(
            f"  {self._done} of {self._total} actions{cached}, {duration(now - self._began)}"[:width]
        )
        return Text("\n".join(lines), no_wrap=True, overflow="crop")

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _because(reason: list[dict[str, str]]) -> str:
    if not reason:
        return ""
    first = reason[0]
    more = f" and {len(reason) - 1} more" if len(reason) > 1 else ""
    return f"  ({short_change(first)}{more})"


def short_change(change: dict[str, str]) -> str:
    """A change in a line: digests cut to 12 characters."""

    def cut(text: str) -> str:
        text = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1", text)
        return text if len(text) <= 60 else text[:57] + "..."

    if change["field"] == "":
        return change["new"]
    return f"{change['field']}: {cut(change['old'])} -> {cut(change['new'])}"


def _bar(report: dict[str, Any], width: int) -> str:
    step, of = report.get("step"), report.get("of")
    if not isinstance(step, (int, float)) or not isinstance(of, (int, float)) or of <= 0 or width < 6:
        return ""
    full = int(min(1.0, step / of) * width)
    return "━" * full + "─" * (width - full) + "  "


def _facts(report: dict[str, Any]) -> str:
    """step 120/300  loss 1.234  8.1k tok/s  0:21 left"""
    parts = []
    if "stage" in report:
        parts.append(str(report["stage"]))
    if "step" in report:
        parts.append(f"{report['step']}/{report['of']}" if "of" in report else f"step {report['step']}")
    for key, value in report.items():
        if key in ("stage", "step", "of", "eta_s", "note", "summary"):
            continue
        if key.endswith("_per_s") and isinstance(value, (int, float)):
            parts.append(f"{_count(value)} {key.removesuffix('_per_s')}/s")
        elif isinstance(value, float):
            parts.append(f"{key} {value:.4g}")
        else:
            parts.append(f"{key} {value}")
    if "note" in report:
        parts.append(str(report["note"]))
    if isinstance(report.get("eta_s"), (int, float)):
        parts.append(f"{duration(report['eta_s'])} left")
    return "  ".join(parts)


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.1f}M"
    if value >= 1e4:
        return f"{value / 1e3:.1f}k"
    return f"{value:.0f}"
