"""mxt explain and the reasons of a build: what changed, from what to what, field by field."""

from __future__ import annotations

import os
from pathlib import Path

from tests.e2e.conftest import Workspace, b3

HELLO, BYE, Y = b3(b"hello\n"), b3(b"bye\n"), b3(b"y\n")


def test_explain_from_first_build_to_up_to_date(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "a", srcs = ["in.txt"], outs = ["a.txt"], cmd = "cat $< > $@")
        genrule(name = "b", srcs = [":a"], outs = ["b.txt"], cmd = "cat $< > $@")
        """,
    )
    ws.write("in.txt", "hello\n")
    assert ws.run("explain", ":b").out == (
        "//:a would run\n"
        "  never built here\n"
        "//:b would run (after what it reads)\n"
        "  inputs.mxt-out/a/a.txt: made again by //:a, unless it makes the same bytes\n"
        "2 of 2 actions would run\n"
    )
    ws.build(":b")
    assert ws.run("explain", ":b").out == "up to date: none of 2 actions would run\n"

    ws.write("in.txt", "bye\n")
    assert ws.run("explain", ":b").out == (
        "//:a would run\n"
        f"  inputs.in.txt: file {HELLO[:12]} -> file {BYE[:12]}\n"
        "//:b would run (after what it reads)\n"
        "  inputs.mxt-out/a/a.txt: made again by //:a, unless it makes the same bytes\n"
        "2 of 2 actions would run\n"
    )
    result = ws.build(":b")
    assert result.reason("//:a") == {"inputs.in.txt": (f"file {HELLO}", f"file {BYE}")}
    assert result.reason("//:b") == {"inputs.mxt-out/a/a.txt": (f"file {HELLO}", f"file {BYE}")}
    lines = ws.run("explain", ":b").out.splitlines()
    assert lines[0].startswith("//:b last changed 20")
    assert lines[1:] == [
        f"  inputs.mxt-out/a/a.txt: file {HELLO[:12]} -> file {BYE[:12]}",
        "up to date: none of 2 actions would run",
    ]


def test_every_field_that_changed_is_named(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", srcs = ["x", "y"], outs = ["o"], cmd = "cat $(SRCS) > $@")')
    ws.write("x", "hello\n")
    ws.write("y", "y\n")
    ws.write("z", "bye\n")
    ws.build(":a")
    ws.write(
        "MXTBUILD",
        'genrule(name = "a", srcs = ["x", "z"], outs = ["o", "p"], executable = True, cmd = "tee $(OUTS) < x")',
    )
    (ws.root / "x").chmod(0o755)
    assert ws.run("explain", ":a").out == (
        "//:a would run\n"
        f"  inputs.x: file {HELLO[:12]} -> file {HELLO[:12]} (executable)\n"
        f"  inputs.y: file {Y[:12]} -> (absent)\n"
        f"  inputs.z: (absent) -> file {BYE[:12]}\n"
        '  outputs.p.kind: (absent) -> "file"\n'
        '  outputs.p.path: (absent) -> "p"\n'
        '  params.cmd: "cat x y > mxt-out/a/o" -> "tee mxt-out/a/o mxt-out/a/p < x"\n'
        "  params.executable: (absent) -> true\n"
        "1 of 1 action would run\n"
    )


def test_a_file_is_made_by_nobody(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'filegroup(name = "g", srcs = ["in"])')
    ws.write("in", "")
    told = ws.run("explain", "in")
    assert (told.code, told.out) == (2, "")
    assert told.err == (
        "error: '//:in' is a file or folder of the workspace: no action makes it\n"
        "  hint: what reads it: mxt query 'rdeps(//..., //:in, 1)'\n"
    )
    assert ws.run("explain", ":g").err == "error: '//:g' has no actions: there is nothing to explain\n"


def test_a_lost_result_is_no_change(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", outs = ["o"], cmd = "echo 1 > $@")')
    ws.build(":a")
    blob = os.path.realpath(ws.root / "mxt-out/a/o")
    digest = b3(Path(blob).read_bytes())
    (ws.root / "cache/cas" / digest[:2] / digest).unlink()
    Path(blob).unlink()
    assert ws.run("explain", ":a").out == (
        "//:a would run\n  its outputs are missing or damaged\n1 of 1 action would run\n"
    )
    assert ws.build(":a").executed == {"//:a"}


def test_explain_needs_nothing_to_be_built_and_builds_nothing(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", outs = ["o"], cmd = "exit 1")')
    assert ws.run("explain", "//...").code == 0
    assert list((ws.root / "mxt-out").iterdir()) == []
    assert not (ws.root / "cache/evidence").exists()


def test_a_moved_source_is_explained_by_its_names(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD", 'genrule(name = "a", srcs = glob(["*.txt"]), outs = ["o"], cmd = "cat $(SRCS) > $@")'
    )
    ws.write("one.txt", "hello\n")
    ws.build(":a")
    (ws.root / "one.txt").rename(ws.root / "two.txt")
    reason = ws.build(":a").reason("//:a")
    assert reason["inputs.one.txt"] == (f"file {HELLO}", "(absent)")
    assert reason["inputs.two.txt"] == ("(absent)", f"file {HELLO}")


def test_an_input_whose_name_looks_like_a_field(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD", 'genrule(name = "a", srcs = ["x", "x.path"], outs = ["o"], cmd = "cat $(SRCS) > $@")'
    )
    ws.write("x", "hello\n")
    ws.write("x.path", "hello\n")
    ws.build(":a")
    ws.write("x.path", "bye\n")
    assert ws.build(":a").reason("//:a") == {"inputs.x.path": (f"file {HELLO}", f"file {BYE}")}
