"""filegroup gives names to files; glob finds them and never leaves its package."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Workspace


def test_filegroups_of_files_and_targets(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        filegroup(name = "texts", srcs = glob(["**/*.txt"], exclude = ["**/no*"]))
        genrule(name = "made", outs = ["m"], cmd = "echo made > $@")
        filegroup(name = "everything", srcs = [":texts", ":made", "//q:data"])
        genrule(name = "list", srcs = [":everything"], outs = ["l"], cmd = "echo $(SRCS) > $@")
        """,
    )
    ws.write("q/MXTBUILD", 'filegroup(name = "data", srcs = ["q.txt"])')
    for name in ("b.txt", "a.txt", "d/c.txt", "d/no.txt", "d/x.md", "q/q.txt"):
        ws.write(name, "")
    assert ws.build("//...").executed == {"//:made", "//:list"}
    assert ws.read("mxt-out/list/l").splitlines() == [
        "a.txt b.txt d/c.txt mxt-out/made/m q/q.txt",
    ]


def test_building_a_filegroup_builds_what_it_names(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "made", outs = ["m"], cmd = "echo made > $@")
        filegroup(name = "group", srcs = [":made", "f"])
        """,
    )
    ws.write("f", "")
    result = ws.build(":group")
    assert result.executed == {"//:made"}
    assert result.out.splitlines()[0] == "  mxt-out/made"
    assert ws.read("mxt-out/made/m") == "made\n"


def test_a_filegroup_of_sources_has_nothing_to_run(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'filegroup(name = "g", srcs = ["MXTBUILD"])')
    assert "nothing to run" in ws.build(":g").out


def test_glob_sees_neither_other_packages_nor_the_store(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        'genrule(name = "x", srcs = glob(["**"]), outs = ["o"], cmd = "printf \'%s\\n\' $(SRCS) > $@")',
    )
    for name in ("a", "sub/b", "pkg/MXTBUILD", "pkg/c", ".git/config", ".venv/bin/x", "sub/.git/y"):
        ws.write(name, "")
    ws.build(":x")
    ws.build(":x")  # mxt-out and cache exist now
    assert ws.read("mxt-out/x/o").splitlines() == ["MXTBUILD", "a", "sub/b"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('glob(["*.txtt"])', "glob pattern '*.txtt' matches no file"),
        ('glob(["../*"])', "glob pattern '../*' has a '..' segment"),
        ('glob(["/etc/*"])', "glob pattern '/etc/*' is an absolute path"),
        ('glob(["a**"])', "glob pattern 'a**': '**' must be a whole segment"),
        ('glob("*.txt")', "include of glob() must be a list of patterns, not '*.txt'"),
        ('glob(["MXT*"], exclude = ["**"])', "glob() matches no file: every match is excluded"),
    ],
)
def test_bad_globs(ws: Workspace, call: str, message: str) -> None:
    ws.write("MXTBUILD", f'filegroup(name = "g", srcs = {call})\n')
    result = ws.run("build", ":g")
    assert result.code == 1
    column = 'filegroup(name = "g", srcs = '
    assert result.err.startswith(f"error: MXTBUILD:1:{len(column) + 1}: {message}\n"), result.err


def test_a_glob_may_be_empty_when_it_says_so(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'filegroup(name = "g", srcs = glob(["*.txt"], allow_empty = True))')
    assert ws.build(":g").code == 0
