"""mxt query: exact answers in a small workspace, and over the real pipeline."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from mxt.cli.main import main
from tests.e2e.conftest import Workspace


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("query")
    workspace = Workspace(folder / "work space", folder / "home")
    workspace.write(
        "MXTBUILD",
        """
        platform(name = "cpu", arch = "x86_64")
        genrule(name = "top", srcs = ["//a:x", "in.txt", "//b:made.txt"], outs = ["top.txt"],
                cmd = "cat $(SRCS) > $@", platform = ":cpu", tags = ["big"])
        genrule(name = "odd", srcs = ["gone.txt"], outs = ["a b.txt"], cmd = "false", tags = ["manual"])
        """,
    )
    workspace.write(
        "a/MXTBUILD",
        """
        genrule(name = "x", srcs = ["//b:y", "s-1.txt", "data"], outs = ["x.txt"], cmd = "cat $(SRCS) > $@")
        filegroup(name = "g", srcs = [":x", "s-1.txt"])
        """,
    )
    workspace.write(
        "b/MXTBUILD", 'genrule(name = "y", outs = ["y.txt", "made.txt"], cmd = "touch $(OUTS)", cpus = 2)'
    )
    for name in ("in.txt", "a/s-1.txt", "a/data/1.txt"):
        workspace.write(name, "")
    return workspace


ANSWERS = [
    ("//...", "//:cpu //:odd //:top //a:g //a:x //b:y"),
    ("//a:all", "//a:g //a:x"),
    ("//a:*", "//a:data //a:g //a:s-1.txt //a:x //a:x.txt"),
    ("a:x", "//a:x"),
    ("deps(//a:x)", "//a:data //a:s-1.txt //a:x //b:y"),
    ("deps(//:top, 1)", "//:cpu //:in.txt //:top //a:x //b:made.txt"),
    ("deps(//:top, 0)", "//:top"),
    ("rdeps(//..., //b:y)", "//:top //a:g //a:x //b:made.txt //b:y"),
    ("rdeps(//..., //a:s-1.txt, 1)", "//a:g //a:s-1.txt //a:x"),
    ("rdeps(//a:g, //b:y)", "//a:g //a:x //b:y"),
    ("kind('source', deps(//...))", "//:in.txt //a:data //a:s-1.txt"),
    ("kind('^source folder$', deps(//...))", "//a:data"),
    ("kind('missing', deps(//...))", "//:gone.txt"),
    ("kind(generated, //b:*)", "//b:made.txt //b:y.txt"),
    ("kind('genrule rule', //...) - //a:x", "//:odd //:top //b:y"),
    ("filter('^//a', deps(//:top))", "//a:data //a:s-1.txt //a:x"),
    ("attr(tags, '\\bbig\\b', //...)", "//:top"),
    ("attr(cpus, 2, //...)", "//b:y"),
    ("attr(srcs, '//b:y', //...)", "//a:x"),
    ("attr(platform, cpu, //...)", "//:top"),
    ("labels(srcs, //a:g + //a:x)", "//a:data //a:s-1.txt //a:x //b:y"),
    ("labels(platform, //:top)", "//:cpu"),
    ("somepath(//:top, //b:y)", "//:top //a:x //b:y"),
    ("somepath(//b:y, //:top)", ""),
    ("allpaths(//:top, //b:y)", "//:top //a:x //b:made.txt //b:y"),
    ("set(//a:x '//:a b.txt') + //b:y", "//:a b.txt //a:x //b:y"),
    ("let v = deps(//a:g) in $v ^ kind(source, $v)", "//a:data //a:s-1.txt"),
    ("(//... intersect deps(//a:g)) union //:cpu except //b:y", "//:cpu //a:g //a:x"),
    ("some(//..., 2)", "//:cpu //:odd"),
    ("tests(//...)", ""),
]


@pytest.mark.parametrize(("text", "labels"), ANSWERS)
def test_answers(ws: Workspace, capsys: pytest.CaptureFixture[str], text: str, labels: str) -> None:
    """In this process, as there are many; relative patterns are then relative to the root."""
    assert main(["query", text, "--workspace", str(ws.root)]) == 0
    expected = labels.replace(" //", "\n//")
    assert capsys.readouterr() == (f"{expected}\n" if expected else "", "" if labels else "nothing matches\n")


def test_tools_are_edges_unless_left_out(ws: Workspace) -> None:
    assert "//:cpu\n" in ws.run("query", "deps(//:top)").out
    assert "//:cpu\n" not in ws.run("query", "deps(//:top)", "--no-tools").out
    assert ws.run("query", "rdeps(//..., //:cpu)").out == "//:cpu\n//:top\n"


def test_outputs(ws: Workspace) -> None:
    assert ws.run("query", "deps(//a:g, 1)", "--output", "label_kind").out == (
        "filegroup rule //a:g\nsource file //a:s-1.txt\ngenrule rule //a:x\n"
    )
    found = json.loads(ws.run("query", "//b:y + //:in.txt", "--output", "json").out)
    assert found == [
        {"label": "//:in.txt", "kind": "source file", "location": "", "deps": [], "attributes": {}},
        {
            "label": "//b:y",
            "kind": "genrule rule",
            "location": "b/MXTBUILD:1:1",
            "deps": [],
            "attributes": {
                "name": "y",
                "outs": ["y.txt", "made.txt"],
                "cmd": "touch $(OUTS)",
                "cpus": 2,
            },
        },
    ]
    assert json.loads(ws.run("query", "tests(//...)", "--output", "json").out) == []
    dot = ws.run("query", "//:top + //a:x + //b:y + '//:a b.txt'", "--output", "graph").out
    assert dot == (
        "digraph mxt {\n"
        "  node [shape=box];\n"
        '  "//:a b.txt";\n'
        '  "//:top";\n'
        '  "//:top" -> "//a:x";\n'
        '  "//a:x";\n'
        '  "//a:x" -> "//b:y";\n'
        '  "//b:y";\n'
        "}\n"
    )
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=dot, text=True, capture_output=True, check=True)


FUNCTIONS = "allpaths, attr, deps, filter, kind, labels, rdeps, some, somepath, tests"
DEEP = f"""\
error: query: unknown function 'deep', did you mean 'deps'?
    deep(//a:x)
    ^
  hint: functions: {FUNCTIONS}
"""
OPEN = """\
error: query: 'deps(' is never closed
    deps(//a:x
              ^
"""
REGEX = """\
error: query: the regular expression is malformed: unterminated character set at position 1
    kind('a[', //...)
           ^
"""
ABSOLUTE = """\
error: query: target pattern '/a' is an absolute path
    deps(/a)
         ^
  hint: write //package:name, relative to the workspace
"""
UNKNOWN = """\
error: no target or file '//a:x.tx', did you mean 'x.txt'?
  hint: targets of //a: g, x, x.txt
"""
ERRORS = [
    ("deep(//a:x)", 2, DEEP),
    ("deps(//a:x", 2, OPEN),
    ("kind('a[', //...)", 2, REGEX),
    ("deps(/a)", 2, ABSOLUTE),
    ("deps(//a:x.tx)", 1, UNKNOWN),
    ("//nope:all", 1, "error: no package '//nope'\n"),
]


@pytest.mark.parametrize(("text", "code", "message"), ERRORS)
def test_errors(ws: Workspace, text: str, code: int, message: str) -> None:
    result = ws.run("query", text)
    assert (result.code, result.out, result.err) == (code, "", message)


def test_patterns_are_relative_to_here(ws: Workspace) -> None:
    assert ws.run("query", ":all", cwd="a").out == "//a:g\n//a:x\n"
    assert ws.run("query", "...", cwd="a/data").out == ws.run("query", "//a/data/...", cwd="a").out


def test_nothing_is_run_hashed_or_made(make_ws: object) -> None:
    ws = make_ws("fresh")  # type: ignore[operator]
    ws.write("MXTBUILD", 'genrule(name = "a", srcs = ["in"], outs = ["o"], cmd = "exit 1")')
    ws.write("in", "")
    (ws.root / "in").chmod(0)
    assert ws.run("query", "deps(//:a)").out == "//:a\n//:in\n"
    assert sorted(p.name for p in ws.root.iterdir()) == ["MXTBUILD", "in"]


def test_a_cycle_can_be_looked_at(make_ws: object) -> None:
    ws = make_ws("cycle")  # type: ignore[operator]
    ws.write(
        "MXTBUILD",
        """
        filegroup(name = "a", srcs = [":b"])
        filegroup(name = "b", srcs = [":a"])
        """,
    )
    assert ws.run("build", ":a").code == 1
    assert ws.run("query", "somepath(:b, :a) + deps(:a)").out == "//:a\n//:b\n"
    assert '"//:b" -> "//:a";' in ws.run("query", "//...", "--output", "graph").out


def test_the_real_pipeline(micro_built: Workspace) -> None:
    ask = micro_built.run
    assert ask("query", "tests(//recipes:micro)").out == "//recipes:micro.gate\n"
    assert ask("query", "kind(bundle, rdeps(//..., //recipes:micro/rows-1.jsonl))").out == "//recipes:micro\n"
    assert ask("query", "//recipes:micro.yaml ^ deps(//recipes:micro, 1)").out == "//recipes:micro.yaml\n"
    path = ask("query", "somepath(//recipes:micro.gate, //recipes:micro/rows-0.jsonl)").out.split()
    assert (path[0], path[-1]) == ("//recipes:micro.gate", "//recipes:micro/rows-0.jsonl")
    assert "micro.train" in ask("query", "attr(config.train.lr, '^0.003$', kind(train, //...))").out
    # a stage is asked by the fields that its rule declares, not by the whole recipe
    assert ask("query", "attr(config.train.lr, ., //...)").out == "//recipes:micro.train\n"
    result = ask("query", "attr(config.train.lrr, ., //...)")
    assert result.err == (
        "warning: query: nothing here has an attribute 'config.train.lrr', did you mean 'config.train.lr'?\n"
        "nothing matches\n"
    )
    assert "//:toolchains/cpu-py311.lock.json\n" in ask("query", "deps(//recipes:micro.train)").out
