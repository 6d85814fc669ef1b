"""mxt build -n --estimate: what rules expect, added up; nothing runs, no key changes, what is unknown is said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.e2e.conftest import Workspace
from tests.e2e.pipeline import write_tiny

RULE = '''
"""bake(name, flour, minutes): a loaf."""

from mxt.rule import Attributes, Label, Run, Target

ESTIMATE = "_cost"


class Attrs(Attributes):
    flour: Label
    minutes: int = 30


def actions(target: Target) -> None:
    target.action(run=bake, inputs={"flour": target.attrs.flour}, outputs={"loaf": "loaf.txt"})


def bake(run: Run) -> None:
    run.outputs["loaf"].write_bytes(run.inputs["flour"].read_bytes() * 2)
'''

COST = """
from mxt.estimates import Asked, Cell, Estimate, Figure, Grid, Range


def estimate(asked: Asked) -> Estimate:
    below = asked.of(asked.attrs.flour)
    files = asked.files(asked.attrs.flour)
    size = files[0].stat().st_size if files else below.facts["size"]
    seconds = Range(asked.attrs.minutes * 60, asked.attrs.minutes * 120)
    ovens = [("small", [Cell(Range(1, 2.5), "", "fits"), Cell(3_000_000.0)]), ("large", [Cell("-"), Cell(0)])]
    return Estimate(
        [Figure("flour", size, "bytes", "weighed"), Figure("loaves", Range(12_345, 2_345_678))],
        [Grid("ovens", ["kind", "shelves", "crumbs"], ovens, "as their makers say")],
        ["the oven is hot already"],
        ["the baker's wage"],
        seconds,
        seconds.times(0.01),
        {"size": size * 2},
    )
"""


@pytest.fixture
def bakery(ws: Workspace) -> Workspace:
    ws.write("rules/bake.py", RULE)
    ws.write("rules/_cost.py", COST)
    ws.write("flour.txt", "f" * 2048)
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "wrap", srcs = [":second"], outs = ["w.txt"], cmd = "cat $< > $@")
        bake(name = "first", flour = "flour.txt")
        bake(name = "second", flour = ":first", minutes = 1)
        """,
    )
    assert ws.run("trust").code == 0
    return ws


def test_estimate(bakery: Workspace) -> None:
    found = bakery.run("build", "-n", "--estimate", ":wrap", env={"COLUMNS": "80"})
    assert (found.code, found.err) == (0, "")
    assert found.out == (
        "//:wrap\n"
        "  //:first  (to run)\n"
        "    flour                   2 KiB                   weighed\n"
        "    loaves                  0.012-2.3 million\n"
        "    ovens\n"
        "    kind      shelves     crumbs\n"
        "    small  1-2.5 fits  3 million\n"
        "    large           -          0\n"
        "    as their makers say\n"
        "    the oven is hot already\n"
        "    not known: the baker's wage\n"
        "  //:second  (to run)\n"
        "    flour                   4 KiB                   weighed\n"
        "    loaves                  0.012-2.3 million\n"
        "    ovens\n"
        "    kind      shelves     crumbs\n"
        "    small  1-2.5 fits  3 million\n"
        "    large           -          0\n"
        "    as their makers say\n"
        "    the oven is hot already\n"
        "    not known: the baker's wage\n"
        "  together, where known     0.52-1.0 h, 19-37 USD\n"
        "  not counted, not known    //:wrap\n"
    )
    assert not any((bakery.root / "mxt-out").iterdir())


def test_what_is_cached_costs_nothing(bakery: Workspace) -> None:
    bakery.build(":first")
    one = bakery.run("build", "-n", "--estimate", ":second").out
    assert "  //:first  (cached)\n" in one
    assert one.endswith(
        "  together                  60-120 s, 0.60-1.2 USD\n  not counted, cached       //:first\n"
    )
    bakery.build(":second")
    whole = bakery.run("build", "-n", "--estimate", ":second").out
    assert "  together                  nothing has to run\n" in whole
    # what a rule says of its cost is in no key
    bakery.write("rules/_cost.py", COST + "\nOTHER = 1\n")
    bakery.run("trust")
    assert set(bakery.build(":second").finished.values()) <= {"cached"}


def test_for_programs(bakery: Workspace) -> None:
    done = bakery.run("build", "-n", "--estimate", "--json", "//...")
    (group,) = json.loads(done.out)  # the two loaves are part of the wrapped one
    assert group["label"] == "//:wrap"
    assert group["seconds"] == [1860, 3720]
    assert group["cost"] == [18.6, 37.2]
    assert group["not_timed"] == ["//:wrap"]
    first = group["stages"][0]
    assert (first["label"], first["state"]) == ("//:first", "to run")
    assert first["estimate"]["figures"][0] == {
        "name": "flour",
        "value": 2048,
        "unit": "bytes",
        "note": "weighed",
    }
    assert first["estimate"]["grids"][0]["rows"][0] == {
        "name": "small",
        "cells": [
            {"value": [1, 2.5], "unit": "", "mark": "fits"},
            {"value": 3_000_000, "unit": "", "mark": ""},
        ],
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--estimate"], "error: --estimate runs nothing: give it with -n\n"),
        (["-n", "--json"], "error: --json belongs to --estimate\n  hint: a build's events: --events FILE\n"),
        (["-n", "--estimate", "--watch"], "error: --estimate and --watch: give one of them\n"),
    ],
)
def test_options_that_do_not_go_together(ws: Workspace, options: list[str], said: str) -> None:
    found = ws.run("build", *options, "//...")
    assert (found.code, found.out, found.err) == (2, "", said)


def test_a_module_that_cannot_be_used(bakery: Workspace) -> None:
    bakery.write("rules/_cost.py", "def other() -> None: ...\n")
    bakery.run("trust")
    found = bakery.run("build", "-n", "--estimate", ":first")
    assert found.code == 2
    assert "rule 'bake' names ESTIMATE = '_cost', which cannot be used" in found.err
    assert "  hint: name a module of the rule's folder that defines estimate(asked)\n" in found.err


def test_an_estimate_that_fails(bakery: Workspace) -> None:
    bakery.write("rules/_cost.py", "def estimate(asked):\n    return 1 / 0\n")
    bakery.run("trust")
    found = bakery.run("build", "-n", "--estimate", ":first")
    assert found.code == 1
    assert "rule 'bake' failed to estimate '//:first': ZeroDivisionError: division by zero" in found.err


def test_rules_without_estimates(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", outs = ["o"], cmd = "touch $@")')
    assert ws.run("build", "-n", "--estimate", "//...").out == (
        "//:a\n  together, where known     nothing is known of its time\n  not counted, not known    //:a\n"
    )


def test_every_recipe_on_any_machine(tmp_path: Path) -> None:
    ws = write_tiny(tmp_path / "work space", tmp_path / "home")
    labels = [f"//recipes:{path.stem}" for path in sorted((ws.root / "recipes").glob("*.yaml"))]
    for columns in (80, 120):
        found = ws.run("build", "-n", "--estimate", *labels, env={"COLUMNS": str(columns)})
        assert (found.code, found.err) == (0, "")
        lines = found.out.splitlines()
        assert max(map(len, lines)) <= columns
        assert found.out.count("\n  together") == len(re.findall(r"^//recipes:\w+$", found.out, re.MULTILINE))
    blocks = {b.split("\n", 1)[0]: b for b in found.out.split("\n\n")}
    assert "GPU memory was measured on NVIDIA's H200 and H100 only" in blocks["//recipes:qwen3_8b_sft_lora"]
    assert re.search(r"together, where known +\d+-\d+ h, \d+-\d+ USD", blocks["//recipes:qwen3_8b_sft_lora"])
    grpo = blocks["//recipes:qwen3_32b_grpo"]
    assert "not known: tokens, hours, cost: with grpo most time goes into answers" in grpo
    assert "\n  together                  not known: .train would take most of it\n" in grpo
    # one figure for what a small part costs would be taken for the whole
    (group,) = json.loads(ws.run("build", "-n", "--estimate", "--json", "//recipes:qwen3_32b_grpo").out)
    assert (group["seconds"], group["cost"]) == (None, None)
    states = {s["label"].rpartition(".")[2]: s["state"] for s in group["stages"]}
    assert {states[s] for s in ("fetch_model", "fetch_data")} == {"unpinned"}
    assert states["pack"] == "blocked"
    assert states["train"] == "absent"
    assert "nothing was ever measured on the mi300x, nor on 8 GPUs" in blocks["//recipes:qwen3_8b_cpt"]


def test_a_real_run_lies_in_its_estimate(micro: Workspace) -> None:
    done = micro.run("build", "-n", "--estimate", "--json", "//recipes:micro")
    (group,) = json.loads(done.out)
    assert group["seconds"] is None  # all of it is cached
    stages = {s["label"].removeprefix("//recipes:micro"): s["estimate"] for s in group["stages"]}
    expected = {f["name"]: f["value"] for f in stages[".train"]["figures"]}
    (summary,) = (micro.root / "cache/evidence").rglob("summary.json")
    measured = json.loads(summary.read_text())
    low, high = expected["tokens trained on"]
    assert low <= measured["tokens"] <= high
    low, high = expected["optimizer steps"]
    assert low <= measured["steps"] <= high
    assert expected["weights trained"] == 4 * (32 + 32 + 64 + 32)
    # how fast a shared machine is nobody can say; an hour's price is that of the hour
    low, high = stages[".train"]["seconds"]
    assert stages[".train"]["cost"] == pytest.approx([low * 1.5 / 3600, high * 1.5 / 3600])
