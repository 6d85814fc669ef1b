"""What makes an action run again, and what does not: content does, times and places do not."""

from __future__ import annotations

import os

from tests.e2e.conftest import Workspace

CHAIN = """
    genrule(name = "left", srcs = ["left.txt"], outs = ["l.txt"], cmd = "cat $< > $@")
    genrule(name = "right", srcs = ["right.txt"], outs = ["r.txt"], cmd = "cat $< > $@")
    genrule(name = "both", srcs = [":left", ":right"], outs = ["b.txt"], cmd = "cat $(SRCS) > $@")
    genrule(name = "apart", outs = ["a.txt"], cmd = "echo apart > $@")
"""


def chain(ws: Workspace) -> Workspace:
    ws.write("MXTBUILD", CHAIN)
    ws.write("left.txt", "left\n")
    ws.write("right.txt", "right\n")
    return ws


def test_a_change_runs_its_dependants_only(ws: Workspace) -> None:
    chain(ws)
    assert ws.build("//...").executed == {"//:left", "//:right", "//:both", "//:apart"}
    assert ws.read("mxt-out/both/b.txt") == "left\nright\n"

    ws.write("left.txt", "LEFT\n")
    result = ws.build("//...")
    assert result.finished == {
        "//:left": "executed",
        "//:right": "cached",
        "//:both": "executed",
        "//:apart": "cached",
    }
    assert set(result.reason("//:left")) == {"inputs.left.txt"}
    assert set(result.reason("//:both")) == {"inputs.mxt-out/left/l.txt"}
    assert ws.read("mxt-out/both/b.txt") == "LEFT\nright\n"

    ws.write("left.txt", "left\n")
    assert ws.build("//...").executed == set()  # the first results are still there
    assert ws.read("mxt-out/both/b.txt") == "left\nright\n"


def test_touched_files_run_nothing(ws: Workspace) -> None:
    chain(ws)
    ws.build("//...")
    for name in ("left.txt", "right.txt", "MXTBUILD"):
        os.utime(ws.root / name, (1, 1))
    assert ws.build("//...").executed == set()


def test_an_edit_with_the_old_size_and_mtime_is_noticed(ws: Workspace) -> None:
    chain(ws)
    ws.build("//...")
    file = ws.root / "left.txt"
    before = file.stat()
    file.write_text("LEFT\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert ws.build("//...").executed == {"//:left", "//:both"}


def test_a_file_rewritten_with_the_same_bytes_runs_nothing(ws: Workspace) -> None:
    chain(ws)
    ws.build("//...")
    (ws.root / "left.txt").unlink()
    ws.write("left.txt", "left\n")
    assert ws.build("//...").executed == set()


def test_the_executable_bit_counts(ws: Workspace) -> None:
    chain(ws)
    ws.build(":left")
    (ws.root / "left.txt").chmod(0o755)
    result = ws.build(":left")
    old, new = result.reason("//:left")["inputs.left.txt"]
    assert new == f"{old} (executable)"
    assert result.executed == {"//:left"}


def test_a_file_added_under_a_glob(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD", 'genrule(name = "all", srcs = glob(["data/**"]), outs = ["o"], cmd = "cat $(SRCS) > $@")'
    )
    ws.write("data/a.txt", "a\n")
    ws.build("//:all")
    ws.write("data/deep/er/b.txt", "b\n")
    result = ws.build("//:all")
    assert result.executed == {"//:all"}
    assert result.reason("//:all")["inputs.data/deep/er/b.txt"][0] == "(absent)"
    assert ws.read("mxt-out/all/o") == "a\nb\n"
    (ws.root / "data/deep/er/b.txt").unlink()
    assert ws.build("//:all").executed == set()
    assert ws.read("mxt-out/all/o") == "a\n"


def test_a_deleted_output_comes_back_without_running(ws: Workspace) -> None:
    chain(ws)
    ws.build(":left")
    folder = (ws.root / "mxt-out/left").resolve()
    (folder / "l.txt").unlink()
    result = ws.build(":left")
    assert result.finished == {"//:left": "cached"}
    assert ws.read("mxt-out/left/l.txt") == "left\n"


def test_a_deleted_mxt_out_comes_back_without_running(ws: Workspace) -> None:
    chain(ws)
    ws.build("//...")
    for link in (ws.root / "mxt-out").iterdir():
        link.unlink()
    (ws.root / "mxt-out").rmdir()
    assert ws.build("//...").executed == set()
    assert sorted(p.name for p in (ws.root / "mxt-out").iterdir()) == ["apart", "both", "left", "right"]


def test_a_file_laid_into_an_output_is_taken_away(ws: Workspace) -> None:
    chain(ws)
    ws.build(":left")
    folder = (ws.root / "mxt-out/left").resolve()
    (folder / "stranger").write_text("not mine\n")
    ws.build(":left")
    assert sorted(p.name for p in folder.iterdir()) == ["l.txt"]


def test_the_users_environment_is_of_no_consequence(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "x", outs = ["o"], cmd = "env -u PWD | sort > $@")')
    ws.build(":x")
    before = ws.read("mxt-out/x/o")
    env = {"MY_SECRET": "s3cret", "LC_ALL": "C", "TZ": "Asia/Tokyo", "PATH": f"/nowhere:{os.environ['PATH']}"}
    assert ws.build(":x", env=env).executed == set()
    ws.write("MXTBUILD", 'genrule(name = "x", outs = ["o"], cmd = "env -u PWD | sort  > $@")')
    assert ws.build(":x", env=env).executed == {"//:x"}
    assert ws.read("mxt-out/x/o") == before
    assert "s3cret" not in before


def test_a_changed_command_runs(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "x", outs = ["o"], cmd = "echo one > $@")')
    ws.build(":x")
    ws.write("MXTBUILD", 'genrule(name = "x", outs = ["o"], cmd = "echo two > $@")')
    result = ws.build(":x")
    assert result.reason("//:x") == {
        "params.cmd": ('"echo one > mxt-out/x/o"', '"echo two > mxt-out/x/o"'),
    }
    assert ws.read("mxt-out/x/o") == "two\n"


def test_what_is_in_no_key_runs_nothing(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "x", outs = ["o"], cmd = "echo one > $@")')
    ws.build(":x", "-j1")
    ws.write(
        "MXTBUILD",
        """
        # a comment, other resources and tags
        genrule(name = "x", cpus = 2, memory_mb = 10, tags = ["slow"], outs = ["o"], cmd = "echo one > $@")
        """,
    )
    assert ws.build(":x", "-j2", "-k").executed == set()
