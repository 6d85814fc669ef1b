"""Sources that change, vanish or are odd: nothing false is recorded, nothing hangs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import GATE, Result, Workspace, at_gate, kill_tree, let_go, wait_for

# :first takes a while and reads one source; :second reads another one after it
TWO = """
    genrule(
        name = "first",
        srcs = ["one.txt"],
        outs = ["first.txt"],
        cmd = "GATE; cat $< > $@",
    )
    genrule(name = "second", srcs = ["two.txt", ":first"], outs = ["s.txt"], cmd = "cat two.txt > $@")
""".replace("GATE", GATE)


def during(ws: Workspace, change: Callable[[], object], *args: str, code: int) -> Result:
    """Build :second and make a change while :first runs."""
    log = ws.home / "during"
    process = ws.start("build", "//:second", "--events", str(log), *args)
    wait_for(lambda: at_gate(ws))
    change()
    let_go(ws)
    try:
        out, err = process.communicate(timeout=15)
    finally:
        kill_tree(process)
    assert "Traceback" not in err, err
    assert "mxt itself failed" not in err, err
    assert process.returncode == code, out + err
    return Result(code, out, err, [json.loads(line) for line in log.read_text().splitlines()])


def through(ws: Workspace, *args: str) -> Result:
    """Build, opening every gate."""
    log = ws.home / "through"
    process = ws.start("build", *args, "--events", str(log))
    while process.poll() is None:
        let_go(ws)
        time.sleep(0.02)
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    return Result(0, out, err, [json.loads(line) for line in log.read_text().splitlines()])


@pytest.fixture
def two(ws: Workspace) -> Workspace:
    ws.write("MXTBUILD", TWO)
    ws.write("one.txt", "one\n")
    ws.write("two.txt", "two\n")
    time.sleep(0.05)  # old enough that its times vouch for it
    return ws


def nothing_recorded(ws: Workspace, result: Result, label: str) -> None:
    key = next(e["key"] for e in result.events if e["event"] == "action_finished" and e["label"] == label)
    assert not (ws.root / "cache/ac" / key[:2] / key).exists()
    assert not (ws.root / "cache/runs" / key[:2] / key).exists()


def test_edited_while_the_action_that_reads_it_runs(two: Workspace) -> None:
    result = during(two, lambda: two.write("one.txt", "other\n"), code=1)
    assert result.finished == {"//:first": "failed", "//:second": "skipped"}
    assert "its input 'one.txt' changed while it ran, so nothing was recorded" in result.err
    assert "build again" in result.err
    nothing_recorded(two, result, "//:first")
    through(two, "//:second")
    assert two.read("mxt-out/second/s.txt") == "two\n"
    assert through(two, "//:first").executed == set()
    assert two.read("mxt-out/first/first.txt") == "other\n"


def test_edited_and_put_back_while_it_runs(two: Workspace) -> None:
    """The action may have read what was there between."""

    def change() -> None:
        two.write("one.txt", "other\n")
        time.sleep(0.1)
        two.write("one.txt", "one\n")

    result = during(two, change, code=1)
    assert result.finished == {"//:first": "failed", "//:second": "skipped"}
    assert "its input 'one.txt' changed while it ran, so nothing was recorded" in result.err
    nothing_recorded(two, result, "//:first")
    # the bytes are what they were, and were never made into a result: it runs again
    assert through(two, "//:second").executed == {"//:first", "//:second"}
    assert two.read("mxt-out/second/s.txt") == "two\n"


def test_same_size_same_time_other_bytes(two: Workspace) -> None:
    """As an editor that restores time stamps does; ctime tells."""
    path = two.root / "one.txt"
    facts = path.stat()

    def change() -> None:
        path.write_text("ONE\n")
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))

    result = during(two, change, code=1)
    nothing_recorded(two, result, "//:first")


def test_replaced_by_rename_while_it_runs(two: Workspace) -> None:
    def change() -> None:
        two.write("new.txt", "new!\n")
        os.replace(two.root / "new.txt", two.root / "one.txt")

    result = during(two, change, code=1)
    assert "its input 'one.txt' changed while it ran" in result.err
    through(two, "//:second")
    through(two, "//:first")
    assert two.read("mxt-out/first/first.txt") == "new!\n"


def test_edited_before_the_action_that_reads_it_runs(two: Workspace) -> None:
    """Hashed at the start, changed while another action ran: what its action read is not what its key says."""
    result = during(two, lambda: two.write("two.txt", "other\n"), code=1)
    assert result.finished == {"//:first": "executed", "//:second": "failed"}
    assert "its input 'two.txt' changed during the build, so it was not run" in result.err
    nothing_recorded(two, result, "//:second")
    again = through(two, "//:second")
    assert again.executed == {"//:second"}
    assert two.read("mxt-out/second/s.txt") == "other\n"


def test_edited_after_the_action_that_read_it_ended(two: Workspace) -> None:
    """Its result is right, for the bytes that it read; the next build sees the new ones."""
    two.write("MXTBUILD", TWO.replace('"two.txt", ":first"', '"two.txt"'))
    log = two.home / "late"
    process = two.start("build", "//:all", "-j2", "--events", str(log))
    wait_for(lambda: log.exists() and '"executed"' in log.read_text())
    two.write("two.txt", "other\n")
    let_go(two)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, out + err
    assert two.read("mxt-out/second/s.txt") == "two\n"
    through(two, "//:all")
    assert two.read("mxt-out/second/s.txt") == "other\n"


@pytest.mark.parametrize("which", ["one.txt", "two.txt"])
@pytest.mark.parametrize("by", ["nothing", "folder", "fifo", "dangling", "unreadable"])
def test_gone_or_something_else_during_the_build(two: Workspace, which: str, by: str) -> None:
    path = two.root / which

    def change() -> None:
        path.unlink()
        if by == "folder":
            path.mkdir()
        elif by == "fifo":
            os.mkfifo(path)
        elif by == "dangling":
            path.symlink_to("nowhere")
        elif by == "unreadable":
            path.symlink_to(path.name)

    result = during(two, change, code=1)
    label = "//:first" if which == "one.txt" else "//:second"
    assert result.finished[label] == "failed"
    assert which in result.err
    assert str(two.root) not in result.err, "paths in messages are relative to the workspace"
    nothing_recorded(two, result, label)
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    two.write(which, "again\n")
    through(two, "//:second")


def test_edited_at_the_last_moment_before_the_build(two: Workspace) -> None:
    """A file so fresh that its time stamp cannot vouch for it is hashed again."""
    for i in range(5):
        two.write("two.txt", f"{i}\n")
        through(two, "//:second")
        assert two.read("mxt-out/second/s.txt") == f"{i}\n"


def test_a_file_that_grows_without_end_is_refused(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "x", srcs = ["log.txt"], outs = ["x"], cmd = "cat $< > $@")\n')
    path = ws.write("log.txt", b"x" * 3_000_000)
    script = f"while :; do echo more >> '{path}'; done"
    writer = subprocess.Popen(["bash", "-c", script])
    try:
        result = ws.build("//:x", code=1)
    finally:
        writer.kill()
        writer.wait()
    said = ("changed while it ran", "changed during the build", "keeps changing while it is read")
    assert any(text in result.err for text in said), result.err
    assert "log.txt" in result.err


def test_a_folder_as_source_that_gets_another_file_meanwhile(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(
            name = "second", srcs = ["data"], outs = ["s.txt"],
            cmd = "GATE; cat data/* > $@",
        )
        """.replace("GATE", GATE),
    )
    ws.write("data/a", "a\n")
    result = during(ws, lambda: ws.write("data/b", "b\n"), code=1)
    nothing_recorded(ws, result, "//:second")
    assert "data" in result.err
    through(ws, "//:second")
    assert ws.read("mxt-out/second/s.txt") == "a\nb\n"


def test_an_action_without_sandbox_cannot_change_its_source(two: Workspace) -> None:
    two.write(
        "MXTBUILD",
        'genrule(name = "x", srcs = ["one.txt"], outs = ["x"], cmd = "echo >> one.txt; cat $< > $@")',
    )
    two.run("build", "//:x", env={"MXT_SANDBOX": "none"})
    assert two.read("one.txt") == "one\n"


def test_an_action_in_the_sandbox_cannot_change_its_source(two: Workspace) -> None:
    two.write(
        "MXTBUILD",
        'genrule(name = "x", srcs = ["one.txt"], outs = ["x"], cmd = "echo >> one.txt; cat $< > $@")',
    )
    result = two.build("//:x", code=1)
    assert "Read-only file system" in result.err
    assert two.read("one.txt") == "one\n"


# ---- odd sources ------------------------------------------------------------------------------------------


CAT = 'genrule(name = "x", srcs = ["in"], outs = ["x.txt"], cmd = "cat $< > $@")\n'


def test_hard_linked_sources(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD", 'genrule(name = "x", srcs = ["a", "b"], outs = ["x.txt"], cmd = "cat $(SRCS) > $@")\n'
    )
    ws.write("a", "a\n")
    os.link(ws.root / "a", ws.root / "b")
    ws.build("//:x")
    assert ws.read("mxt-out/x/x.txt") == "a\na\n"
    assert stat.S_IMODE((ws.root / "a").stat().st_mode) & 0o200, "sources are left as they are"
    (ws.root / "b").unlink()
    ws.write("b", "b\n")
    assert ws.build("//:x").executed == {"//:x"}
    assert ws.read("mxt-out/x/x.txt") == "a\nb\n"


def test_a_hard_link_to_an_output_as_source(ws: Workspace) -> None:
    """Taken from mxt-out with `cp -l`: its inode is the store's own."""
    ws.write("MXTBUILD", 'genrule(name = "y", outs = ["y.txt"], cmd = "echo y > $@")\n' + CAT)
    ws.build("//:y")
    os.link((ws.root / "mxt-out/y/y.txt").resolve(), ws.root / "in")
    ws.build("//:x")
    assert ws.read("mxt-out/x/x.txt") == "y\n"
    assert ws.build("//:all").executed == set()


def test_symlinked_sources(ws: Workspace) -> None:
    ws.write("MXTBUILD", CAT)
    ws.write("real/one", "one\n")
    ws.write("real/two", "two\n")
    (ws.root / "in").symlink_to("real/one")
    ws.build("//:x")
    assert ws.read("mxt-out/x/x.txt") == "one\n"
    (ws.root / "in").unlink()
    (ws.root / "in").symlink_to("real/two")
    assert ws.run("build", "//:x").code == 0
    assert ws.read("mxt-out/x/x.txt") == "two\n"
    ws.write("real/two", "changed\n")
    assert ws.run("build", "//:x").code == 0
    assert ws.read("mxt-out/x/x.txt") == "changed\n"


def test_a_link_out_of_the_workspace_is_refused(ws: Workspace, tmp_path: Path) -> None:
    ws.write("MXTBUILD", CAT)
    (tmp_path / "secret").write_text("secret")
    (ws.root / "in").symlink_to(tmp_path / "secret")
    result = ws.build("//:x", code=1)
    assert "leads out of the workspace" in result.err


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize(("make", "kind"), [(make_fifo, "named pipe"), (make_socket, "socket")])
@pytest.mark.parametrize("inside", [False, True])
def test_special_files_as_sources_do_not_hang(
    ws: Workspace, make: Callable[[Path], None], kind: str, inside: bool
) -> None:
    ws.write("MXTBUILD", CAT)
    if inside:
        (ws.root / "in").mkdir()
        make(ws.root / "in" / "special")
    else:
        make(ws.root / "in")
    result = ws.build("//:x", code=1, timeout=20)
    assert kind in result.err
    assert "in" in result.err


def test_an_unreadable_source(ws: Workspace) -> None:
    """Permissions bind only who is not root."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become somebody else")
    ws.write("MXTBUILD", CAT)
    ws.write("in", "in\n").chmod(0)
    place = ws.root
    while place != Path("/"):
        place.chmod(stat.S_IMODE(place.stat().st_mode) | 0o055)
        place = place.parent
    for folder in (ws.root, ws.home):
        os.chown(folder, 65534, 65534)
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *ws.command("build", "//:x")]
    arguments = [*command, "--workspace", str(ws.root)]
    done = subprocess.run(
        arguments, env=ws.env, cwd=ws.root, capture_output=True, text=True, check=False, timeout=60
    )
    if "Permission denied" in done.stderr and "python" in done.stderr:
        pytest.skip("the interpreter is not readable for others here")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot read a source file: permission denied" in done.stderr
    assert "in" in done.stderr


ODD = [
    "with space",
    "tab\there",
    "new\nline",
    "quote'\"",
    "dollar$",
    "*star?",
    "-dash",
    "ünïcödé 日本",
    "e\u0301 combining",
    "x" * 255,
    "ß" * 127,
    "[b]",
    "a;b&c|d",
    "back\\slash",
    ".hidden",
    "~",
]


def test_odd_names_in_a_folder(ws: Workspace) -> None:
    """As sources, in an output folder, mended after a deletion, and verified."""
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "x", srcs = ["in"], outs = ["out/"], cmd = "cp -r in/. $@/")
        bundle(name = "whole", deps = [":x"])
        """,
    )
    for name in ODD:
        ws.write(f"in/{name}", f"{name}\n")
    ws.build("//:whole")
    made = ws.root / "mxt-out/x/out"
    for name in ODD:
        assert (made / name).read_text() == f"{name}\n"
        (made / name).unlink()
    assert ws.run("build", "//:whole").code == 0
    for name in ODD:
        assert (made / name).read_text() == f"{name}\n"
    assert ws.run("verify", "//:whole").code == 0
    assert ws.build("//:whole").executed == set()


def test_odd_names_by_glob(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        'genrule(name = "x", srcs = glob(["in/*"]), outs = ["n.txt"], cmd = "cat in/* > $@")\n',
    )
    names = ["with space", "quote'", "x" * 250 + ".txt", "ünïcödé", "a=b", "a,b", "a@b+c"]
    for name in names:
        ws.write(f"in/{name}", "content\n")
    ws.build("//:x")
    assert ws.read("mxt-out/x/n.txt") == "content\n" * len(names)
    assert ws.run("explain", "//:x").code == 0


def test_names_that_are_not_utf8(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "x", srcs = ["in"], outs = ["out/"], cmd = "cp -r in/. $@/")\n')
    (ws.root / "in").mkdir()
    with open(os.fsencode(ws.root / "in") + b"/caf\xe9", "wb") as file:
        file.write(b"x")
    result = ws.build("//:x", code=1)
    assert "is not UTF-8" in result.err
    assert r"caf\xe9" in result.err


def test_ten_thousand_sources(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        'genrule(name = "x", srcs = glob(["in/**"]), outs = ["n.txt"], cmd = "find in -type f | wc -l > $@")\n',
    )
    for folder in range(100):
        (ws.root / f"in/{folder}").mkdir(parents=True)
        for file in range(100):
            (ws.root / f"in/{folder}/{file}").write_text(f"{folder} {file}")
    ws.build("//:x")
    assert ws.read("mxt-out/x/n.txt").strip() == "10000"
    ws.write("in/50/50", "other")
    assert set(ws.build("//:x").reason("//:x")) == {"inputs.in/50/50"}
