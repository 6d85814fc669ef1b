"""mxt log shows the last run, failed or not; mxt gc deletes what nothing refers to."""

from __future__ import annotations

import re
from pathlib import Path

from tests.e2e.conftest import Workspace

SPLIT = """
    from mxt.rule import Attributes

    class Attrs(Attributes):
        pass

    def actions(target):
        for name in ("one", "two"):
            target.action(run=run, name=name, params={"name": name}, outputs={"o": name + ".txt"})

    def run(run):
        print("this is", run.params["name"])
        run.outputs["o"].write_text(run.params["name"])
        (run.evidence / "more.json").write_text("{}")
"""


QUIET = """
from mxt.rule import Attributes

VERSION = 1

class Attrs(Attributes):
    pass

def actions(target):
    target.action(run=quiet, outputs={"o": "o"})

def quiet(run):
    run.outputs["o"].write_text("o")
    (run.evidence / "more.json").write_text("{}")
"""


def test_log(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD", 'genrule(name = "a", srcs = ["in"], outs = ["o"], cmd = "cat $<; echo bad >&2; cp $< $@")'
    )
    ws.write("in", "first\n")
    nothing = ws.run("log", ":a")
    assert nothing.code == 1
    assert nothing.err == (
        "error: '//:a' has not run here\n  hint: build it first; a result of others has no log here\n"
    )
    ws.build(":a")
    log = ws.run("log", ":a")
    assert (log.code, log.out) == (0, "first\nbad\n")
    assert re.fullmatch(r"//:a: \S+Z-[0-9a-f]+, ran \d+\.\d+ s\n", log.err)
    ws.write("in", "second\n")
    ws.build(":a")
    assert ws.run("log", ":a").out == "second\nbad\n"
    ws.write("in", "first\n")
    ws.build(":a")  # cached: the last run is still the second


def test_an_empty_log_says_so_and_what_else_there_is(ws: Workspace) -> None:
    ws.write("rules/quiet.py", QUIET)
    ws.write("MXTBUILD", 'quiet(name = "a")')
    assert ws.run("trust").code == 0
    ws.build(":a")
    log = ws.run("log", ":a")
    assert (log.code, log.out) == (0, "")
    assert log.err.splitlines()[1:] == [
        "  the log is empty: the action wrote nothing; it also left more.json: --file NAME shows one"
    ]
    assert ws.run("log", ":a", "--file", "more.json").out == "{}"
    ws.write("in", "x")
    file = ws.run("log", "in")
    assert file.err == "error: 'in' is a file: no action makes it\n  hint: ask for a target\n"


def test_log_of_a_failure(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", outs = ["o"], cmd = "seq 1000; exit 1")')
    ws.build(":a", code=1)
    log = ws.run("log", ":a")
    assert log.out.split() == [str(i) for i in range(1, 1001)]
    assert log.err.endswith(", failed or was interrupted\n")
    ws.write("MXTBUILD", 'genrule(name = "a", outs = ["o"], cmd = "echo fine > $@; echo said")')
    ws.build(":a")
    assert ws.run("log", ":a").out == "said\n"
    ws.write("MXTBUILD", 'genrule(name = "a", outs = ["o"], cmd = "echo worse; exit 2")')
    ws.build(":a", code=1)
    assert ws.run("log", ":a").out == "worse\n"


def test_log_of_several_actions_and_other_evidence(ws: Workspace) -> None:
    ws.write("rules/split.py", SPLIT)
    ws.write("MXTBUILD", 'split(name = "s")\nfilegroup(name = "f", srcs = ["MXTBUILD"])\n')
    ws.run("trust")
    ws.build(":s")
    assert sorted(p.name for p in (ws.root / "mxt-out/s").iterdir()) == ["one", "two"]
    assert ws.read("mxt-out/s/two/two.txt") == "two"
    asked = ws.run("log", ":s")
    assert (asked.code, asked.err) == (
        1,
        "error: ':s' has 2 actions\n  hint: choose one with --action: one, two\n",
    )
    assert ws.run("log", ":s", "--action", "two").out == "this is two\n"
    assert "did you mean 'two'?" in ws.run("log", ":s", "--action", "tow").err
    listing = ws.run("log", ":s", "--action", "one", "--list").out
    assert [line.split() for line in listing.splitlines()] == [
        ["12", "B", "log.txt"],
        ["2", "B", "more.json"],
    ]
    assert ws.run("log", ":s", "--action", "one", "--file", "more.json").out == "{}"
    missing = ws.run("log", ":s", "--action", "one", "--file", "more.jso")
    assert missing.code == 1
    assert "this run left no 'more.jso', did you mean 'more.json'?" in missing.err
    assert ws.run("log", ":s", "--action", "one", "--file", "../../../../MXTBUILD").code == 1
    assert "has no actions of its own" in ws.run("log", ":f").err


def blobs(ws: Workspace) -> set[str]:
    return {p.name for p in Path(ws.root, "cache/cas").glob("*/*")}


def test_gc(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", srcs = ["in"], outs = ["o"], cmd = "cat $< > $@")')
    ws.write("in", "first\n")
    ws.build(":a")
    first = blobs(ws)
    assert ws.run("gc").out == (
        "deleted 0 blobs, 0 results, 0 output folders, 0 unfinished actions, 0 leftovers: 0 B\n"
    )
    ws.write("in", "second\n")
    ws.build(":a")
    before = blobs(ws)
    would = ws.run("gc", "-n").out
    assert re.match(r"would delete [1-9]\d* blobs?, 1 result, 1 output folder, ", would)
    assert blobs(ws) == before
    assert ws.run("gc").out == would.replace("would delete", "deleted")
    assert blobs(ws) < before
    assert first & blobs(ws) != first
    assert ws.read("mxt-out/a/o") == "second\n"
    assert ws.build(":a").executed == set()
    ws.write("in", "first\n")
    gone = "its result is no longer kept: a gc or a repair took it away"
    assert ws.build(":a").executed == {"//:a"}  # its result is gone
    ws.run("gc")
    (ws.root / "mxt-out/a").unlink()
    ws.run("gc")
    assert f"//:a would run\n  {gone}\n" in ws.run("explain", ":a").out
    ws.build(":a")
    history = ws.run("log", ":a", "--history", env={"COLUMNS": "160"}).out
    assert history.splitlines()[2].endswith("  its result was deleted by a gc or a repair")


def test_gc_needs_a_store(ws: Workspace) -> None:
    ws.write("MXTBUILD", "")
    nothing = ws.run("gc")
    assert (nothing.code, nothing.out) == (2, "")
    assert nothing.err == (
        f"error: {ws.root}/cache: there is no store\n"
        "  hint: the first build makes it; --store names another\n"
    )
    assert [p.name for p in ws.root.iterdir()] == ["MXTBUILD"]


def test_gc_after_mxt_out_is_gone(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", outs = ["o"], cmd = "echo a > $@")')
    ws.build(":a")
    (ws.root / "mxt-out/a").unlink()
    assert ws.run("gc").code == 0
    assert list((ws.root / "cache/out").glob("*")) == []
    assert ws.build(":a").executed == {"//:a"}


def test_gc_keeps_what_a_linked_result_was_made_from(ws: Workspace) -> None:
    """The null build after a gc still has nothing to do: the whole chain below a link is kept."""
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "a", outs = ["o"], cmd = "echo a > $@")
        genrule(name = "b", srcs = [":a"], outs = ["p"], cmd = "cat $< > $@")
        """,
    )
    ws.build(":b")
    assert not (ws.root / "mxt-out/a").exists()
    ws.run("gc")
    assert ws.read("mxt-out/b/p") == "a\n"
    assert ws.build(":b").executed == set()
