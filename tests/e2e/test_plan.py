"""mxt plan: what was decided and from which figures, two plans compared, one pinned. No machine learning here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mxt.receipt.receipt import subject_digests
from tests.e2e.conftest import Workspace, b3
from tests.e2e.pipeline import copied

MACRO = """
    def recipe(name, size, speed = 1):
        plan = name + ".plan.json"
        made = []
        if not glob([plan], allow_empty = True):
            measure(name = name + ".probe", size = size, speed = speed, platform = "//:here")
            made.append(":" + name + ".probe")
            plan = ":" + name + ".probe"
        use(name = name + ".use", plan = plan)
        bundle(name = name, deps = made + [":" + name + ".use"], receipt = True)
"""
PROBE = """
    import json
    from mxt.rule import Attributes

    class Attrs(Attributes):
        size: int
        speed: int

    def actions(target):
        target.action(
            run=measure, outputs={"plan": "plan.json"},
            params={"size": target.attrs.size, "speed": target.attrs.speed},
        )

    def measure(run):
        size = run.params["size"]
        way = "fast" if size < 10 else "roomy"
        rows = [
            {"candidate": "fast/1", "chosen": way == "fast", "step_s": 0.00125, "step_s_p95": 0.0015, "samples": 12},
            {"candidate": "roomy/2", "chosen": way == "roomy", "step_s": 1.5, "step_s_p95": 1.75, "samples": 8},
            {"candidate": "odd/3", "chosen": False, "reason": "3 does not divide the size"},
            {"candidate": "odd/5", "chosen": False, "reason": "3 does not divide the size"},
        ]
        (run.evidence / "timings.json").write_text(json.dumps({"candidates": rows, "budget_s": 5.0, "tie": "2 %"}))
        form = {
            "version": 1,
            "decisions": {"way": way, "pieces": 2},
            "shape": {"size": size, "inner": {"deep": True}},
            "platform": dict(run.platform),
        }
        run.outputs["plan"].write_text(json.dumps(form, sort_keys=True, separators=(",", ":")))
"""
USE = """
    from mxt.rule import Attributes, Label

    class Attrs(Attributes):
        plan: Label

    def actions(target):
        plan = target.source(target.attrs.plan)._replace(path="plan.json")
        target.action(run=use, inputs={"plan": plan}, outputs={"o": "o.txt"})

    def use(run):
        run.outputs["o"].write_text(run.inputs["plan"].read_text())
"""
A = "//p:a"


def write(ws: Workspace) -> Workspace:
    ws.write("MXTBUILD", 'platform(name = "here", arch = "x86_64", threads = 1)\n')
    ws.write("p/recipe.mxt", MACRO)
    ws.write("p/MXTBUILD", 'load("recipe.mxt", "recipe")\nrecipe("a", 4)\nrecipe("b", 40)\n')
    ws.write("rules/measure.py", PROBE)
    ws.write("rules/use.py", USE)
    return trusted(ws)


def trusted(ws: Workspace) -> Workspace:
    assert ws.run("trust").code == 0
    return ws


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Nothing built; nobody may change it."""
    folder = tmp_path_factory.mktemp("written")
    return write(Workspace(folder / "work space", folder / "home"))


@pytest.fixture(scope="module")
def built(written: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """All built; nobody may change it: `made` is a copy to work on."""
    ws = trusted(copied(written, tmp_path_factory.mktemp("built") / "work space"))
    ws.build("//p:all")
    return ws


@pytest.fixture
def made(built: Workspace, tmp_path: Path) -> Workspace:
    return trusted(copied(built, tmp_path / "work space"))


def when_away(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d, in [\d.]+ s", "WHEN", text)


def fails(ws: Workspace, *args: str, code: int = 1) -> str:
    result = ws.run("plan", *args)
    assert result.code == code, (result.out, result.err)
    assert result.out == ""
    return result.err


SHOWN = """\
//p:a.probe  measured here WHEN

decisions
  pieces  2
  way     fast

made for
  platform: arch x86_64, threads 1
  shape: size 4
  shape.inner: deep yes

measured
    candidate     step  step p95  samples
  * fast/1     1.25 ms    1.5 ms       12
    roomy/2      1.5 s     1.8 s        8
    odd/3, odd/5: 3 does not divide the size

  budget: 5.0 s
  tie: 2 %
"""


def test_show(built: Workspace) -> None:
    for label in (A, f"{A}.probe"):
        assert when_away(built.run("plan", "show", label).out) == SHOWN
    narrow = when_away(built.run("plan", "show", A, env={"COLUMNS": "36"}).out).splitlines()
    assert "    (1 figure more in a wider terminal, or with --json)" in narrow
    assert "  * fast/1       1.5 ms       12" in narrow
    assert "    odd/3, odd/5: 3 does not divide" in narrow
    told = json.loads(built.run("plan", "show", A, "--json").out)
    assert told["origin"] == "measured"
    assert told["plan"]["decisions"] == {"pieces": 2, "way": "fast"}
    assert told["digest"] == b3((built.output("p/a.probe") / "plan.json").read_bytes())
    assert told["evidence"]["candidates"][0]["candidate"] == "fast/1"


def test_a_stale_plan_says_why_and_is_not_pinned(made: Workspace) -> None:
    made.write("p/MXTBUILD", made.read("p/MXTBUILD").replace('"a", 4', '"a", 5'))
    lines = made.run("plan", "show", A).out.splitlines()
    assert lines[1] == "  stale: a build would measure again: params.size: 4 -> 5"
    assert fails(made, "pin", A) == (
        "error: the plan that '//p:a.probe' made last is stale: params.size: 4 -> 5\n"
        "  hint: mxt build //p:a.probe\n"
    )
    assert not (made.root / "p/a.plan.json").exists()


def test_diff(made: Workspace) -> None:
    result = made.run("plan", "diff", A, "//p:b")
    assert result.code == 1
    assert when_away(result.out) == (
        "a: //p:a.probe  measured here WHEN\n"
        "b: //p:b.probe  measured here WHEN\n"
        "  decisions.way  fast -> roomy\n"
        "  shape.size     4 -> 40\n"
        "1 of 2 decisions differ\n"
    )
    told = json.loads(made.run("plan", "diff", A, "//p:b", "--json").out)
    assert told["differences"] == [
        {"field": "decisions.way", "a": "fast", "b": "roomy"},
        {"field": "shape.size", "a": 4, "b": 40},
    ]
    # the same decisions for another size
    made.write("p/MXTBUILD", made.read("p/MXTBUILD").replace('"a", 4', '"a", 5'))
    made.build(A)
    result = made.run("plan", "diff", "last~1", A)
    assert result.code == 0
    assert result.out.splitlines()[2:] == [
        "  shape.size  4 -> 5",
        "the same decisions, made for something else",
    ]
    receipt = "mxt-out/p/a/receipt.dsse.json"
    for one, other in (
        (receipt, A),
        (A, "last"),
        ("last@//p:a", receipt),
        (receipt, "mxt-out/p/a.probe/plan.json"),
    ):
        if "a.probe" in other:
            made.build("//p:a.probe")
        result = made.run("plan", "diff", one, other)
        assert (result.code, result.out.splitlines()[-1]) == (0, "the same plan, byte for byte"), result.err


def test_a_build_with_several_plans_must_be_told_which(built: Workspace) -> None:
    assert re.fullmatch(
        r"error: build [0-9a-f]{16} used 2 plans: //p:a\.probe, //p:b\.probe\n  hint: choose one: last@LABEL\n",
        fails(built, "show", "last", code=2),
    )
    assert built.run("plan", "show", "last@//p:b").out.splitlines()[3:5] == ["  pieces  2", "  way     roomy"]


def test_pinned_it_replaces_the_probe_and_nothing_runs(made: Workspace) -> None:
    bytes_made = (made.output("p/a.probe") / "plan.json").read_bytes()
    result = made.run("plan", "pin", A)
    assert (result.code, result.out) == (0, "pinned p/a.plan.json: pieces 2, way fast\n")
    assert (made.root / "p/a.plan.json").read_bytes() == bytes_made
    built = made.build(A)
    assert built.finished == {"//p:a.use": "cached"}
    for label in (A, f"{A}.probe"):
        assert when_away(made.run("plan", "show", label).out) == SHOWN.replace(
            "//p:a.probe  measured here WHEN", "//p:a  pinned in p/a.plan.json, measured WHEN"
        )
    assert made.run("plan", "diff", "last", "mxt-out/p/a/receipt.dsse.json").code == 0
    assert fails(made, "pin", A) == (
        "error: p/a.plan.json: a plan is pinned already\n  hint: let go of it first: mxt plan pin //p:a --unpin\n"
    )
    assert made.run("plan", "pin", A, "--from", "p/a.plan.json").out == "pinned already: p/a.plan.json\n"
    result = made.run("plan", "pin", A, "--unpin")
    assert (result.code, result.out) == (0, "unpinned p/a.plan.json: the probe decides again\n")
    assert made.build(A).finished == {"//p:a.probe": "cached", "//p:a.use": "cached"}


def test_two_places_one_pinned_plan_one_receipt(made: Workspace, make_ws: Callable[[str], Workspace]) -> None:
    """Another folder, operator and store, and a probe that would choose otherwise there."""
    there = write(make_ws("elsewhere"))
    there.write("p/MXTBUILD", there.read("p/MXTBUILD").replace('"a", 4', '"a", 4, speed = 9'))
    assert made.run("plan", "pin", A).code == 0
    there.write("p/a.plan.json", made.read("p/a.plan.json"))
    made.build(A)
    assert there.build(A).finished == {"//p:a.use": "executed"}
    receipts = [w.output("p/a") / "receipt.dsse.json" for w in (made, there)]
    assert subject_digests(receipts[0]) == subject_digests(receipts[1])
    keys = [[e["key"] for e in w.build(A).events if e["event"] == "action_finished"] for w in (made, there)]
    assert keys[0] == keys[1]
    for ws in (made, there):
        assert ws.run("verify", A).code == 0
    # and the receipt of one tells the other which plan it was
    told = there.run("plan", "diff", str(receipts[0]), A)
    assert told.out.splitlines()[-1] == "the same plan, byte for byte", told.err


def test_a_plan_from_elsewhere_must_fit(made: Workspace, tmp_path: Path) -> None:
    plan = json.loads((made.output("p/a.probe") / "plan.json").read_bytes())
    file = tmp_path / "theirs.json"

    def pin(**changes: object) -> str:
        file.write_text(json.dumps({**plan, **changes}))
        return fails(made, "pin", A, "--from", str(file))

    assert pin(platform={"arch": "x86_64", "threads": 8}) == (
        f"error: {file}: this plan was made for something else: platform.threads: plan 8, here 1\n"
        "  hint: measure here: mxt build //p:a.probe\n"
    )
    assert "shape.size: plan 40, here 4" in pin(shape={"size": 40, "inner": {"deep": True}})
    assert "version: plan 2, here 1" in pin(version=2)
    assert "it decides way; needed: pieces, way" in pin(decisions={"way": "fast"})
    assert 'not a plan: it has no "decisions"' in pin(decisions={})
    file.write_text("{")
    assert "not a plan: " in fails(made, "pin", A, "--from", str(file))
    assert not (made.root / "p/a.plan.json").exists()

    file.write_text(json.dumps({**plan, "decisions": {"way": "roomy", "pieces": 1}}))
    assert (
        made.run("plan", "pin", A, "--from", str(file)).out == "pinned p/a.plan.json: pieces 1, way roomy\n"
    )
    assert made.build(A).finished == {"//p:a.use": "executed"}


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("pin", A), 1, "error: '//p:a.probe' has made no plan yet\n  hint: build it first: mxt build //p:a.probe\n"),
        (("show", A), 1, "error: '//p:a.probe' has made no plan yet\n  hint: build it first: mxt build //p:a.probe\n"),
        (("show", "//:here"), 1, "error: '//:here' has no plan\n  hint: a recipe that is probed has one\n"),
        (("pin", A, "--unpin"), 1, "error: '//p:a' has no pinned plan\n  hint: its plan is made by //p:a.probe\n"),
        (("show", "x.json"), 2, "error: x.json: there is no such file\n  hint: give a plan, a receipt or a label\n"),
        (("show", "last"), 2, "error: no build is recorded in this store\n"),
        (("pin", "last"), 2, "error: 'last' is a build, and a plan is pinned for a recipe\n  hint: name the recipe: mxt plan pin LABEL --from last\n"),
        (("pin", "x.json"), 2, "error: 'x.json' is a file, and a plan is pinned for a recipe\n  hint: name the recipe: mxt plan pin LABEL --from x.json\n"),
        (("pin", "last", "--unpin"), 2, "error: 'last' is a build, and a plan is pinned for a recipe\n  hint: name the recipe: mxt plan pin LABEL --unpin\n"),
        (("diff", A), 2, "error: mxt plan diff takes two plans, not 1\n"),
        (("show", A, "--unpin"), 2, "error: --from and --unpin belong to 'mxt plan pin'\n"),
        (("pin", A, "--json"), 2, "error: --json belongs to 'mxt plan show' and 'mxt plan diff'\n"),
        (("pin", "//p:all"), 2, "error: '//p:all' is "),
        (("show", "//p:nothing"), 1, "error: no target or file '//p:nothing'"),
    ],
)  # fmt: skip
def test_what_cannot_be_said(written: Workspace, args: tuple[str, ...], code: int, said: str) -> None:
    assert fails(written, *args, code=code).startswith(said)


def test_a_macro_that_takes_no_plan_leaves_none(made: Workspace) -> None:
    """What nothing would read is not left lying in the workspace."""
    made.write(
        "p/MXTBUILD",
        'measure(name = "x.probe", size = 4, speed = 1, platform = "//:here")\n'
        'bundle(name = "x", deps = [":x.probe"])\n',
    )
    made.build("//p:x")
    assert fails(made, "pin", "//p:x") == (
        "error: //p:x: nothing would read 'p/x.plan.json'\n"
        "  hint: the macro that declares this target takes no pinned plan; finetune() does\n"
    )
    assert not (made.root / "p/x.plan.json").exists()


def test_a_cached_plan_of_somebody_else(made: Workspace, tmp_path: Path) -> None:
    made.env["HOME"] = str(tmp_path)
    made.env["XDG_CONFIG_HOME"] = str(tmp_path)
    assert made.run("trust").code == 0
    first = made.run("plan", "show", A).out.splitlines()[0]
    assert when_away(first) == "//p:a.probe  cached, measured elsewhere WHEN"
