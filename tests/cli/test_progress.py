"""What a log hears of a long build, with a clock that the test turns; and how facts give way."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from mxt.cli import progress
from mxt.cli.facts import action_line, facts
from mxt.cli.progress import Progress
from tests.e2e.conftest import digits_away

REPORT = {"stage": "training", "step": 120, "of": 300, "loss": 1.23456, "tokens_per_s": 81234.0, "eta_s": 21}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setenv("NO_COLOR", "1")
    return clock


def start(shown: Progress, *names: str, **fields: Any) -> None:
    for name in names:
        shown("action_started", {"label": name, "action": "", "key": name, "reason": [], **fields})


def test_a_long_action_gives_signs_of_life_ever_more_rarely(clock: Clock, capsys: Any) -> None:
    shown = Progress(1)
    start(shown, "//:train")
    times = []
    for _ in range(36_000):  # an hour
        clock.now += 0.1
        shown("action_progress", {"label": "//:train", "action": "", "key": "k", **REPORT})
        shown.tick()
        said = capsys.readouterr().err
        if said:
            times.append(clock.now - 1000)
            assert digits_away(said) == (
                "  running //:train for T: training  120/300  loss 1.235  81.2k tokens/s  T left\n"
            )
    assert times[0] == pytest.approx(10, abs=0.2)
    gaps = [b - a for a, b in pairwise(times)]
    assert 9.9 < min(gaps) < max(gaps) < 301
    assert all(b - a > -0.2 for a, b in pairwise(gaps))
    assert 15 < len(times) < 40


def test_many_long_actions_are_counted_and_some_are_named(clock: Clock, capsys: Any) -> None:
    shown = Progress(300)
    start(shown, *(f"//:a{i}" for i in range(200)))
    clock.now += 10.5
    shown.tick()
    assert capsys.readouterr().err == (
        "".join(f"  running //:a{i} for 10.5 s\n" for i in range(4))
        + "  0 of 300 actions, 200 running, 10.5 s\n"
    )
    shown.tick()
    assert capsys.readouterr().err == ""


def test_the_same_action_twice_in_one_build_is_no_other_build(clock: Clock, capsys: Any) -> None:
    shown = Progress(2)
    start(shown, "//:a")
    shown("action_waiting", {"label": "//:b", "action": "", "key": "//:a"})
    assert capsys.readouterr().err == ""
    shown("action_waiting", {"label": "//:b", "action": "", "key": "another"})
    assert capsys.readouterr().err == "  waiting for another build that runs //:b\n"


def test_control_characters_stay_out(clock: Clock, capsys: Any) -> None:
    shown = Progress(1, verbose=True)
    start(shown, "//:a")
    shown("action_progress", {"label": "//:a", "action": "", "key": "k", "summary": "a\x1b[2J\nb"})
    shown("action_finished", {"label": "//:a", "action": "", "status": "executed", "wall_s": 1.0})
    assert capsys.readouterr().err == "  running //:a\n  ok //:a  1.0 s  a [2J b\n"


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (None, "training  120/300  loss 1.235  81.2k tokens/s  a note  21.0 s left"),
        (62, "training  120/300  loss 1.235  81.2k tokens/s  21.0 s left"),
        (50, "training  120/300  81.2k tokens/s  21.0 s left"),
        (40, "training  120/300  21.0 s left"),
        (25, "120/300  21.0 s left"),
        (10, "120/300"),
        (4, "1..."),
    ],
)
def test_facts_give_way_in_order(cells: int | None, shown: str) -> None:
    assert facts({**REPORT, "note": "a note"}, cells) == shown


def test_a_line_is_never_wider_than_asked() -> None:
    from mxt.cli.cells import width_of

    names = ["//:a", "//:" + "long_" * 30, "//:模型" * 12, "//p:e\u0301" * 20]
    reports: list[dict[str, Any]] = [{}, REPORT, {"note": "集" * 70}, {"x": 1.0, "y": 2, "z": "w" * 50}]
    for name in names:
        for report in reports:
            for columns in range(1, 140):
                line = action_line(name, report, 3.0, columns)
                assert width_of(line) <= columns, (name, report, columns, line)
