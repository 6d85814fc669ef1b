"""mxt explain across two builds and two receipts: what changed by itself, and what only followed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable

from tests.e2e.conftest import Workspace, b3

BUILD = """
    genrule(name = "x.data", srcs = ["in"], outs = ["o"], cmd = "cat $< > $@")
    genrule(name = "x.tool", srcs = ["tool"], outs = ["t"], cmd = "cat $< > $@")
    genrule(name = "x.train", srcs = [":x.data", ":x.tool"], outs = ["p"], cmd = "cat $(SRCS) > $@")
    genrule(name = "x.eval", srcs = [":x.train"], outs = ["q"], cmd = "cat $(SRCS) > $@  # LONG, rate = 1e-4")
    bundle(name = "x", deps = [":x.data", ":x.tool", ":x.train", ":x.eval"], receipt = True)
""".replace(
    "LONG", "a comment that is far longer than any terminal that a person would ever like to use " * 2
)
ONE, TWO = b3(b"one\n")[:12], b3(b"two\n")[:12]
RECEIPT = "mxt-out/x/receipt.dsse.json"


def first(ws: Workspace) -> None:
    ws.write("MXTBUILD", BUILD)
    ws.write("in", "one\n")
    ws.write("tool", "tool\n")
    ws.build(":x")


def body(text: str) -> str:
    """What stands below the two that are compared."""
    return text.partition("\n\n")[2]


def test_two_builds(ws: Workspace) -> None:
    first(ws)
    ws.write("in", "two\n")
    ws.build(":x")
    result = ws.run("explain", "--between", "last~1", "last")
    builds = json.loads(ws.run("log", "--builds", "--json").out)["builds"]
    new, old = (one["build"] for one in builds)
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.match(
        rf"older  {old[:8]}  {time}  ok: 4 executed  :x\n"
        rf"newer  {new[:8]}  {time}  ok: 3 executed, 1 cached  :x\n\n",
        result.out,
    )
    assert body(result.out) == (
        "//:x.data changed\n"
        f"  inputs.in: file {ONE} -> file {TWO}\n"
        "2 actions differ only because of what they read:\n"
        "  //:x.train reads //:x.data\n"
        "  //:x.eval reads //:x.train\n"
        "3 of 4 actions differ: 1 by itself, 2 only through what they read\n"
    )
    # by identity, of one target, and the other way round
    back = ws.run("explain", ":x.data", "--between", new[:10], old[:10])
    assert body(back.out) == (
        f"//:x.data changed\n  inputs.in: file {TWO} -> file {ONE}\n1 of 1 action differs: 1 by itself\n"
    )
    same = ws.run("explain", "--between", "last", "last")
    assert body(same.out) == "the keys of all 4 actions are the same in both builds\n"
    form = json.loads(ws.run("explain", "--between", "last~1", "last", "--json").out)
    assert [(d["name"], d["verdict"]) for d in form["differences"]] == [
        ("//:x.data", "changed"),
        ("//:x.train", "follows"),
        ("//:x.eval", "follows"),
    ]
    assert form["differences"][1]["changes"][0]["follows"] == "//:x.data"
    assert (form["equal"], form["compared"]) == (False, 4)


def test_the_first_cause_stands_out_and_long_values_are_shown_where_they_part(ws: Workspace) -> None:
    first(ws)
    ws.write("MXTBUILD", BUILD.replace("1e-4", "2e-4"))
    ws.write("tool", "two\n")
    ws.build(":x")
    env = {"COLUMNS": "80", "NO_COLOR": "", "FORCE_COLOR": "1"}
    out = body(ws.run("explain", "--between", "last~1", "last", env=env).out)
    tool = b3(b"tool\n")[:12]
    assert out == (
        "\x1b[1m//:x.tool changed\x1b[0m\n"
        f"  inputs.tool: file {tool} -> file {TWO}\n"
        "//:x.eval changed\n"
        "  params.cmd:\n"
        '    - ...use , rate = 1e-4"\n'
        '    + ...use , rate = 2e-4"\n'
        "  inputs.mxt-out/x.train/p: follows from //:x.train\n"
        "1 action differs only because of what it reads:\n"
        "\x1b[2m  //:x.train reads //:x.tool\x1b[0m\n"
        "3 of 4 actions differ: 2 by themselves, 1 only through what it reads\n"
    )


def test_actions_that_only_one_build_reached_or_that_failed(ws: Workspace) -> None:
    first(ws)
    ws.write(
        "MXTBUILD",
        BUILD.replace("cat $< > $@", "exit 1", 1)
        + '    genrule(name = "y", outs = ["y"], cmd = "touch $@")\n',
    )
    ws.build("-k", ":x", ":y", code=1)
    out = body(ws.run("explain", "--between", "last~1", "last").out)
    assert '//:x.data changed\n  params.cmd: "cat in > mxt-out/x.data/o" -> "exit 1"\n' in out
    assert "//:x.train cannot be compared\n  its key was never known in the newer one: skipped\n" in out
    assert "//:y only in the newer build\n" in out
    assert out.endswith(
        "1 of 4 actions differs: 1 by itself; 2 cannot be compared; 1 only in the newer build\n"
    )
    ws.build(":y")  # finds all as it was, and is recorded all the same
    ws.write("MXTBUILD", 'genrule(name = "z", outs = ["z"], cmd = "touch $@")')
    ws.build(":z")
    none = ws.run("explain", "--between", "last~1", "last")
    assert body(none.out) == "the two builds have no action in common\n"


def test_after_a_gc_forms_may_be_gone(ws: Workspace) -> None:
    first(ws)
    ws.write("in", "two\n")
    ws.build(":x")
    ws.run("gc")
    out = body(ws.run("explain", "--between", "last~1", "last").out)
    assert "//:x.data cannot be compared\n  the form of its older key is no longer kept\n" in out
    assert out.endswith("none of 4 actions is known to differ; 3 cannot be compared\n")


def test_two_receipts_of_two_workspaces(make_ws: Callable[[str], Workspace]) -> None:
    here, there = make_ws("here"), make_ws("there")
    first(here)
    first(there)
    theirs = shutil.copy(there.root / RECEIPT, here.root / "theirs.json")
    equal = here.run("explain", RECEIPT, str(theirs))
    assert equal.code == 0
    assert body(equal.out) == "equal: all 4 actions with the same keys gave the same bytes\n"
    assert equal.out.startswith(f"first   //:x  {RECEIPT}\n        20")
    same = here.run("explain", RECEIPT, "mxt-out/x")
    assert body(same.out) == "equal: this is the same receipt\n"

    there.write("in", "two\n")
    there.build(":x")
    apart = here.run("explain", RECEIPT, str(there.root / "mxt-out/x"))
    assert body(apart.out) == (
        "they part at data\n"
        "data changed\n"
        f"  inputs.in: file {ONE} -> file {TWO}\n"
        "2 actions differ only because of what they read:\n"
        "  train reads data\n"
        "  eval reads train\n"
        "3 of 4 actions differ: 1 by itself, 2 only through what they read\n"
    )
    form = json.loads(here.run("explain", RECEIPT, str(there.root / RECEIPT), "--json").out)
    assert form["old"]["operator"] != form["new"]["operator"]
    assert [d["verdict"] for d in form["differences"]] == ["changed", "follows", "follows"]


def test_the_same_key_and_other_bytes(make_ws: Callable[[str], Workspace]) -> None:
    receipts = []
    for name in ("here", "there"):
        ws = make_ws(name)
        ws.write(
            "MXTBUILD",
            """
            genrule(name = "x.roll", outs = ["r"], cmd = "head -c 9 /dev/urandom > $@")
            genrule(name = "x.copy", srcs = [":x.roll"], outs = ["c"], cmd = "cat $< > $@")
            bundle(name = "x", deps = [":x.roll", ":x.copy"], receipt = True)
            """,
        )
        ws.build(":x", *(["--no-sandbox"] if name == "there" else []))
        receipts.append(ws.root / RECEIPT)
    old, new = (b3((r.parents[1] / "x.roll/r").read_bytes())[:12] for r in receipts)
    out = body(ws.run("explain", *map(str, receipts)).out)
    assert out.startswith(
        f"they part at roll\nroll made other bytes under the same key\n  outputs.r: file {old} -> file {new}\n"
    )
    assert out.endswith("2 of 2 actions differ: 1 by itself, 1 only through what it reads\n")


def test_what_cannot_be_explained(ws: Workspace) -> None:
    assert ws.run("explain").err == (
        "error: nothing to explain\n  hint: name a target, or two builds with --between\n"
    )
    assert "no build is recorded in this store" in ws.run("explain", "--between", "last~1", "last").err
    first(ws)
    lone = ws.run("explain", RECEIPT)
    assert lone.code == 2
    assert lone.err == (
        "error: two receipts are compared, with nothing beside them\n"
        "  hint: mxt explain OLD/receipt.dsse.json NEW/receipt.dsse.json\n"
    )
    assert ws.run("explain", RECEIPT, "nothing.json").code == 2
    assert (
        "compares builds, not receipts"
        in ws.run("explain", RECEIPT, RECEIPT, "--between", "last", "last").err
    )
    assert "'mxt log --builds' lists them" in ws.run("explain", "--between", "last~7", "last").err
    text = (ws.root / RECEIPT).read_text()
    at = text.index('"sig":"') + 10
    ws.write("forged.json", text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :])
    assert "forged.json: the signature does not hold" in ws.run("explain", RECEIPT, "forged.json").err


def test_as_json(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", srcs = ["in"], outs = ["o"], cmd = "cat $< > $@")')
    ws.write("in", "one\n")
    form = json.loads(ws.run("explain", ":a", "--json").out)
    assert form["actions"][0]["status"] == "run"
    assert form["actions"][0]["changes"] == [{"field": "", "old": "", "new": "never built here"}]
    ws.build(":a")
    assert json.loads(ws.run("explain", ":a", "--json").out)["actions"][0]["status"] == "cached"
