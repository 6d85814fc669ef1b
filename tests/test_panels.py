"""Panels: what is shown, what is refused and with which words, and that nothing breaks reading."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from mxt import panels
from mxt.panels import Bar, Bars, Facts, Lines, Table, Verdict, clean, read_panels, thin
from mxt.rule import Run


def read(*forms: object) -> panels.Read:
    return read_panels(json.dumps(forms).encode())


def test_every_kind_as_it_is_written() -> None:
    found = read(
        {"kind": "lines", "title": "Loss", "section": "Training", "x": [1, 2], "series": {"a": [3, None]}},
        {"kind": "bars", "title": "Cost", "unit": "ms", "bars": [{"name": "x", "value": 2, "error": -0.5}]},
        {"kind": "table", "title": "Rows", "columns": ["a", "b"], "rows": [["x", 1]], "add_up": True},
        {"kind": "facts", "title": "Facts", "facts": [["steps", 3], ["done", True]], "note": "as run"},
        {"kind": "verdict", "title": "It passed", "good": True},
    )
    assert found == panels.Read(
        (
            Lines("Loss", section="Training", x=(1.0, 2.0), series={"a": (3.0, None)}, points=2),
            Bars("Cost", unit="ms", bars=(Bar("x", 2.0, 0.5),)),
            Table("Rows", columns=("a", "b"), rows=(("x", 1),), add_up=True),
            Facts("Facts", facts=(("steps", 3), ("done", "yes")), note="as run"),
            Verdict("It passed", good=True),
        )
    )


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        (7, "it is no object"),
        (
            {"kind": "pie", "title": "x"},
            "unknown kind 'pie', the kinds are lines, bars, table, facts, verdict",
        ),
        ({"kind": [], "title": "x"}, "unknown kind a list of 0, the kinds are"),
        ({"kind": "facts", "facts": []}, "it has no title"),
        ({"kind": "facts", "title": "x", "facts": [["a"]]}, "each fact must be [name, value]"),
        ({"kind": "lines", "title": "x", "x": [1], "series": {"a": [1, 2]}}, "series 'a' has not as many"),
        (
            {"kind": "lines", "title": "x", "x": [1], "series": {"a": [math.nan]}},
            "no point with finite numbers",
        ),
        (
            {"kind": "lines", "title": "x", "x": [math.inf], "series": {"a": [1]}},
            "no point with finite numbers",
        ),
        ({"kind": "lines", "title": "x", "x": [1], "series": []}, "'series' must be {name: [y, ...]}"),
        ({"kind": "bars", "title": "x", "bars": []}, "it has no bars"),
        (
            {"kind": "bars", "title": "x", "bars": [{"name": "a", "value": "1"}]},
            "bar 'a' has no finite value",
        ),
        ({"kind": "table", "title": "x", "columns": [], "rows": []}, "it has 0 columns, 1 to 16 are shown"),
        ({"kind": "table", "title": "x", "columns": ["a"], "rows": [[1, 2]]}, "a cell for each column"),
    ],
)
def test_a_panel_that_cannot_be_shown_is_named_and_the_others_are_shown(form: object, problem: str) -> None:
    found = read({"kind": "verdict", "title": "first"}, form, {"kind": "verdict", "title": "last"})
    assert [panel.title for panel in found.panels] == ["first", "last"]
    assert len(found.problems) == 1
    assert found.problems[0].startswith("panel 2 is left out: ")
    assert problem in found.problems[0]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "panels.json is no JSON"),
        (b"[" * 100_000, "panels.json is no JSON"),
        (b"{}", "panels.json is no list of panels"),
        (b"\xff\xfe", "panels.json is no JSON"),
        (b"[1" + b"0" * 5000 + b"]", "panels.json is no JSON"),
        (b" " * (panels.MAX_BYTES + 1), "panels.json is larger than the 16 MiB that are read"),
    ],
)
def test_a_file_that_is_none(data: bytes, problem: str) -> None:
    found = read_panels(data)
    assert not found.panels
    assert found.problems[0].startswith(problem)


def test_sizes_are_bounded_and_what_is_left_out_is_counted() -> None:
    long = "x" * 10_000
    found = read(
        *[{"kind": "verdict", "title": long}] * 150,
    )
    assert len(found.panels) == panels.MAX_PANELS
    assert len(found.panels[0].title) == panels.MAX_TEXT + 1
    assert found.problems == ("50 panels beyond the first 100 are left out",)
    (table,) = read(
        {"kind": "table", "title": "t", "columns": ["a"], "rows": [[i] for i in range(500)]}
    ).panels
    assert isinstance(table, Table)
    assert (len(table.rows), table.left_out) == (panels.MAX_ROWS, 300)
    bars = [{"name": str(i), "value": i} for i in range(130)]
    (drawn,) = read({"kind": "bars", "title": "b", "bars": bars}).panels
    assert isinstance(drawn, Bars)
    assert (len(drawn.bars), drawn.left_out) == (panels.MAX_BARS, 30)


def test_thinning_keeps_the_extremes_and_the_ends() -> None:
    dice = random.Random(5)
    noise = [dice.random() for _ in range(200_000)]
    noise[77_777], noise[123_456] = 99.0, -99.0
    kept = thin([noise])
    assert len(kept) <= panels.MAX_POINTS + 2
    assert {0, 77_777, 123_456, len(noise) - 1} <= set(kept)
    assert kept == sorted(set(kept))


def test_thinning_passes_over_gaps_and_leaves_short_curves_alone() -> None:
    assert thin([[None, 1.0, None]]) == [0, 1, 2]
    assert thin([[None] * 5000]) == [0, 4999]
    assert thin([]) == []


def test_text_is_made_harmless_for_utf8_and_for_its_neighbours() -> None:
    assert clean("a\x00b\x1b[31m\ud800\u202egnp.exe\u2066") == "a\ufffdb\ufffd[31m?\ufffdgnp.exe\ufffd"
    assert clean("line\n\ttab") == "line\n\ttab"
    assert clean("abc", 2) == "ab…"


def test_a_stage_adds_panels_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(evidence=tmp_path / "evidence")
    run.panel("facts", "One", facts=[("a", float("nan")), ("b", Path("c"))])
    run.panel("lines", "Two", x=range(5000), series={"y": [float(i) for i in range(5000)]}, y_label="s")
    data = (tmp_path / "evidence/panels.json").read_bytes()
    found = read_panels(data)
    assert found.problems == ()
    assert found.panels[0] == Facts("One", facts=(("a", None), ("b", "c")))
    two = found.panels[1]
    assert isinstance(two, Lines)
    assert two.points == 5000
    assert len(two.x) <= panels.MAX_POINTS + 2
    assert len(data) < 40_000  # it was thinned before it was written
    assert capsys.readouterr().err == ""


def test_the_panels_of_the_documentation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[1] / "docs/write-a-rule.md").read_text("utf-8")
    code = text.partition("## Panels")[2].partition("```python\n")[2].partition("```")[0]
    names = {"run": Run(evidence=tmp_path), "minutes": [0, 1], "inside": [20, 80], "wall": [20, None]}
    exec(code, names)  # what the page tells authors to write
    found = read_panels((tmp_path / "panels.json").read_bytes())
    assert [type(panel) for panel in found.panels] == [Verdict, Lines, Bars, Table, Facts]
    assert found.problems == ()
    assert capsys.readouterr().err == ""


def test_a_panel_that_cannot_be_shown_costs_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Run(evidence=tmp_path).panel("pie", "Cake", share=3)
    assert capsys.readouterr().err == (
        "warning: panel 'Cake': panel 1 is left out: unknown kind 'pie', "
        "the kinds are lines, bars, table, facts, verdict\n"
    )
