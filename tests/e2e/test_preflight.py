"""What this machine cannot do is said before anything runs, and only where it matters."""

from __future__ import annotations

import os

from tests.e2e.conftest import Workspace

GPU = 'platform(name = "gpu", arch = "gfx942", compute_units = 304, gpus = 8)\n'
HERE = f'platform(name = "gpu", arch = "{os.uname().machine}")\n'
CHAIN = """
genrule(name = "first", srcs = ["in"], outs = ["first.txt"], cmd = "cat $< > $@")
genrule(name = "second", srcs = [":first"], platform = ":gpu", outs = ["second.txt"], cmd = "cat $< > $@")
genrule(name = "third", srcs = [":second"], platform = ":gpu", outs = ["third.txt"], cmd = "cat $< > $@")
"""


def test_the_end_of_a_chain_stops_its_beginning(ws: Workspace) -> None:
    ws.write("in", "1\n")
    ws.write("MXTBUILD", GPU + CHAIN)
    result = ws.build("//...", code=1)
    assert result.finished == {}
    assert (
        "error: //:second: this machine is not the declared platform\n"
        "    gpus: declared 8 with arch gfx942, compute_units 304, this machine has none\n"
        "    also: //:third\n"
        "  hint: build on such a machine"
    ) in result.err
    assert result.err.splitlines()[-1].startswith("failed: nothing was run in ")
    assert not (ws.root / "mxt-out" / "first").exists()
    # what needs no device is built by its name
    assert ws.build("//:first").executed == {"//:first"}


def test_with_keep_going_the_rest_is_built(ws: Workspace) -> None:
    ws.write("in", "1\n")
    ws.write("MXTBUILD", GPU + CHAIN)
    result = ws.build("-k", "//...", code=1)
    assert result.finished == {"//:first": "executed", "//:second": "failed", "//:third": "skipped"}
    assert (
        "warning: //:second, //:third: this machine is not the declared platform "
        "(gpus: declared 8 with arch gfx942, compute_units 304, this machine has none)\n"
    ) in result.err


def test_results_need_no_device_and_early_cutoff_may_save_one(ws: Workspace) -> None:
    ws.write("in", "1\n")
    # as if it had been built where the device is: the key is that of the declared platform
    first = 'genrule(name = "first", srcs = ["in"], outs = ["first.txt"], cmd = "head -1 $< > $@")\n'
    needs = 'genrule(name = "second", srcs = [":first"], gpus = {0}, outs = ["second.txt"], cmd = "cat $< > $@")\n'
    ws.write("MXTBUILD", first + needs.format(0))
    ws.build("//...")
    ws.write("MXTBUILD", first + needs.format(4))
    assert ws.build("//...").finished == {"//:first": "cached", "//:second": "cached"}
    # first runs again and comes out the same: second has a result after all
    ws.write("in", "1\n2\n")
    result = ws.build("//...")
    assert result.finished == {"//:first": "executed", "//:second": "cached"}
    assert "warning: //:second: may have to run: needs 4 GPUs, this machine has 0\n" in result.err, result.err
    # and where it comes out otherwise, it is stopped when its turn comes
    ws.write("in", "3\n")
    late = ws.build("//...", code=1)
    assert late.finished == {"//:first": "executed", "//:second": "failed"}
    # now its key is known to have no result
    soon = ws.build("//...", code=1)
    assert soon.finished == {}
    assert "error: //:second: needs 4 GPUs, this machine has 0\n  hint: build on a machine" in soon.err


def test_too_little_memory_is_said_and_no_dead_end(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "x", memory_mb = 99999999, outs = ["o"], cmd = "echo > $@")\n')
    result = ws.build("//:x")
    assert result.executed == {"//:x"}
    assert "warning: //:x: declares 99999999 MiB of memory, this machine has " in result.err
    assert "memory" not in ws.build("//:x").err  # it has a result


RULE = """
from mxt.rule import Attributes, Need, Run, Target
class Attrs(Attributes):
    pass
def actions(target: Target) -> None:
    need = Need(("DOOR_TOKEN", "DOOR_OPEN"), "the door is shut, and DOOR_TOKEN is not set", "export it")
    target.action(run=door, outputs={"o": "o.txt"}, network=True, passthrough=("DOOR_TOKEN",), needs=[need])
def door(run: Run) -> None:
    run.outputs["o"].write_text("through")
"""


def test_a_token_that_is_needed_is_asked_for_before_anything_runs(ws: Workspace) -> None:
    ws.write("rules/door.py", RULE)
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "long", outs = ["long.txt"], cmd = "echo > $@")
        door(name = "door")
        """,
    )
    assert ws.run("trust").code == 0
    refused = ws.build("//...", code=1)
    assert refused.finished == {}
    assert refused.err.startswith(
        "error: //:door: the door is shut, and DOOR_TOKEN is not set\n  hint: export it\nfailed: nothing was run"
    )
    # it is in no key, and what has a result needs none
    assert ws.build("//...", env={"DOOR_TOKEN": "secret"}).executed == {"//:long", "//:door"}
    assert set(ws.build("//...").finished.values()) == {"cached"}


PART = """
    from mxt.rule import Attributes, Label, Run, Target, not_yet
    class Attrs(Attributes):
        data: Label
        written: bool
    def actions(target: Target) -> None:
        refuse = None if target.attrs.written else not_yet("the other half", "wait")
        own = {"label": target.label}
        target.action(run=part, params=own, inputs={"i": target.attrs.data}, outputs={"o": "o"}, refuse=refuse)
    def part(run: Run) -> None:
        run.outputs["o"].write_bytes(run.inputs["i"].read_bytes())
"""
LONG_THEN_PARTS = """
    genrule(name = "long", srcs = ["in"], outs = ["long.txt"], cmd = "cp $< $@")
    part(name = "x", data = ":long", written = {0})
    part(name = "y", data = ":long", written = {0})
"""


def test_what_has_been_built_before_and_is_refused_now_is_said_before_anything_runs(ws: Workspace) -> None:
    ws.write("rules/part.py", PART)
    ws.write("in", "1\n")
    ws.write("MXTBUILD", LONG_THEN_PARTS.format(True))
    assert ws.run("trust").code == 0
    assert ws.build("//...").executed == {"//:long", "//:x", "//:y"}
    ws.write("in", "2\n")
    ws.write("MXTBUILD", LONG_THEN_PARTS.format(False))
    refused = ws.build("//...", code=1)
    assert refused.finished == {}
    *told, last = refused.err.splitlines()
    assert told == ["error: //:x: not implemented yet: the other half", "    also: //:y", "  hint: wait"]
    assert last.startswith("failed: nothing was run in ")
    # what can run is asked for with -k, and each of the others is named once
    kept = ws.build("-k", "//...", code=1)
    assert kept.finished == {"//:long": "executed", "//:x": "failed", "//:y": "failed"}
    assert kept.err.startswith("warning: //:x, //:y: not implemented yet: the other half\n"), kept.err
