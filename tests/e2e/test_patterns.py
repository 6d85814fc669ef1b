"""Target patterns on the command line, read as Bazel reads them."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Workspace


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("patterns")
    workspace = Workspace(folder / "ws", folder / "home")
    rule = 'genrule(name = "{0}", outs = ["{0}.txt"], cmd = "echo > $@", tags = {1})\n'
    workspace.write("MXTBUILD", rule.format("root", "[]"))
    workspace.write(
        "a/MXTBUILD", rule.format("a", "[]") + rule.format("x", '["manual"]') + rule.format("d/y", "[]")
    )
    workspace.write("a/b/MXTBUILD", rule.format("b", "[]"))
    workspace.write("a/plain/folder/f", "")
    workspace.write("other/MXTBUILD", 'workspace(name = "other")\n' + rule.format("theirs", "[]"))
    workspace.build("//a:all", "//a:x", "//:root", "//a/b")
    return workspace


CASES = [
    ("", ["//..."], "//:root //a:a //a:d/y //a/b:b"),
    ("", ["..."], "//:root //a:a //a:d/y //a/b:b"),
    ("a", ["..."], "//a:a //a:d/y //a/b:b"),
    ("a", ["//..."], "//:root //a:a //a:d/y //a/b:b"),
    ("", ["//a/..."], "//a:a //a:d/y //a/b:b"),
    ("", ["//a/...:all"], "//a:a //a:d/y //a/b:b"),
    ("", ["//a:all"], "//a:a //a:d/y"),
    ("", ["//a:*"], "//a:a //a:d/y"),
    ("a", [":all"], "//a:a //a:d/y"),
    ("a/plain/folder", [":all"], "//a:a //a:d/y"),
    ("", ["//a"], "//a:a"),
    ("", ["a"], "//a:a"),
    ("", ["a:d/y"], "//a:d/y"),
    ("", ["a/d/y"], "//a:d/y"),
    ("a", ["b"], "//a/b:b"),
    ("a", ["b:b"], "//a/b:b"),
    ("a", [":a"], "//a:a"),
    ("", ["//a:x"], "//a:x"),  # manual, but asked for by name
    ("", ["//a:x", "//a:all"], "//a:a //a:d/y //a:x"),
    ("", ["--", "//...", "-//a/..."], "//:root"),
    ("", ["--", "//a:all", "-//a:a"], "//a:d/y"),
    ("", ["--", "-//a:a", "//a:all"], "//a:a //a:d/y"),  # takes away from what stands before it only
    ("", ["//a:d/y.txt"], "//a:d/y"),  # an output's label
]


@pytest.mark.parametrize(("cwd", "patterns", "labels"), CASES)
def test_pattern(ws: Workspace, cwd: str, patterns: list[str], labels: str) -> None:
    result = ws.run("build", "-n", *patterns, cwd=cwd)
    assert result.code == 0, result.err
    assert {line.split()[2] for line in result.out.splitlines()[:-1]} == set(labels.split())


@pytest.mark.parametrize(
    ("patterns", "code", "message"),
    [
        (["//a:nope"], 1, "no target or file '//a:nope'"),
        (["//a:aa"], 1, "no target or file '//a:aa', did you mean 'a'?"),
        (["//aa:x"], 1, "no package '//aa', did you mean 'a'?"),
        (["//a/plain:x"], 1, "no package '//a/plain': the folder has no MXTBUILD"),
        (["//other:theirs"], 1, "workspace() belongs into the MXTBUILD of a workspace's root"),
        (["/a"], 2, "target pattern '/a' is an absolute path"),
        (["//a/../b"], 2, "goes up with '..'"),
        (["//a:b:c"], 2, "must not hold ':'"),
        (["//...:x"], 2, "target pattern '//...:x': '...' takes no target name"),
        (["@mxt//rules:train"], 2, "target pattern '@mxt//rules:train' names another repository"),
        ([""], 2, "target pattern '' is empty"),
        (["--", "//a:a", "-//a:a"], 1, "no targets are left to build"),
        (["//cache/..."], 1, "no targets match '//cache/...'"),
    ],
)
def test_wrong_pattern(ws: Workspace, patterns: list[str], code: int, message: str) -> None:
    result = ws.run("build", *patterns)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert result.err.startswith("error: ")


def test_from_outside_the_workspace(ws: Workspace) -> None:
    result = ws.run("build", "-n", "//a", cwd="..")
    assert result.code == 2
    assert "so this is not a workspace" in result.err
    assert "//a:a" in ws.run("build", "-n", "--workspace", "ws", "//a", cwd="..").out
    assert "//a:a" in ws.run("build", "-n", "//a", cwd="..", env={"MXT_WORKSPACE": "ws"}).out
