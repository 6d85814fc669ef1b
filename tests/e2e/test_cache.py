"""mxt cache: what the store holds, every kind of damage named, and a store made whole again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import GATE, Workspace, at_gate, b3, kill_tree, let_go, wait_for

BUILD = """
    genrule(name = "a", srcs = ["in"], outs = ["o"], cmd = "cat $< > $@; echo said")
    genrule(name = "b", srcs = [":a"], outs = ["p"], cmd = "cat $< > $@; echo b >> $@")
"""
A, B = b3(b"one\n"), b3(b"one\nb\n")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("cache")
    workspace = Workspace(folder / "work space", folder / "home")
    workspace.write("MXTBUILD", BUILD)
    workspace.write("in", "one\n")
    workspace.build(":b")
    return workspace


@pytest.fixture
def built(template: Workspace, tmp_path: Path) -> Workspace:
    """A workspace in which a and b are built, to do harm to."""
    shutil.copytree(template.root, tmp_path / "ws", symlinks=True)
    # copying made two files of each pair of links; the store makes links again
    for path in (tmp_path / "ws/cache/out").glob("*/*"):
        digest = b3(path.read_bytes())
        path.unlink()
        os.link(tmp_path / "ws/cache/cas" / digest[:2] / digest, path)
    copy = Workspace(tmp_path / "ws", template.home)
    assert copy.run("cache", "check").code == 0
    return copy


def blob(ws: Workspace, digest: str) -> Path:
    return ws.root / "cache/cas" / digest[:2] / digest


def harm(path: Path, change: Callable[[bytes], bytes], *, sealed: bool = False) -> None:
    """Other bytes in the same inode; sealed: with the times put back, as a bad disk does it."""
    facts = path.stat()
    path.chmod(0o644)
    data = change(path.read_bytes())
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
    path.chmod(0o444)
    if sealed:
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def times_away(text: str) -> str:
    return re.sub(r"[\d.]+ (B|KiB) hashed in [\d.]+ s", "N hashed in T", text)


def damages(ws: Workspace, *options: str) -> dict[str, tuple[str, list[str]]]:
    """Place -> (what, targets)."""
    result = ws.run("cache", "check", "--json", *options)
    form = json.loads(result.out)
    assert result.code == (0 if form["whole"] else 1)
    return {one["place"]: (one["what"], one["targets"]) for one in form["damages"]}


def test_whole(built: Workspace) -> None:
    result = built.run("cache", "check")
    assert result.code == 0
    assert times_away(result.out) == "whole: 4 blobs, 2 results, N hashed in T\n"
    assert times_away(built.run("cache", "repair").out).endswith("nothing to repair\n")


def test_info(built: Workspace) -> None:
    lines = built.run("cache", "info").out.splitlines()
    assert lines[0] == f"store  {built.root}/cache"
    assert re.fullmatch(
        r"  2 results, runs from \d{4}-\d\d-\d\d \d\d:\d\d to \d{4}-\d\d-\d\d \d\d:\d\d", lines[1]
    )
    table = {line.split()[0]: line.split()[1:] for line in lines[4:15]}
    assert table["blobs"][0] == "4"
    assert table["outputs"] == ["2", "0", "B", "and", "10", "B", "linked", "from", "blobs"]
    assert table["logs"] == ["2", "5", "B"]
    assert table["records"][0] == "4"
    assert lines[-5:] == [
        "mxt gc would free 0 B (0 results)",
        "",
        "largest targets, all their results together",
        "         6 B  //:b",
        "         4 B  //:a",
    ]
    assert max(map(len, lines[1:])) < 80
    form = json.loads(built.run("cache", "info", "--json").out)
    on_disk = {(f.stat().st_ino): f.stat().st_size for f in (built.root / "cache").rglob("*") if f.is_file()}
    # info itself opens the index, whose files beside it come and go
    assert abs(form["bytes"] - sum(on_disk.values())) < 200_000
    assert (form["results"], form["gc_bytes"], form["linked_bytes"]) == (2, 0, 10)
    assert sum(part["bytes"] for part in form["parts"].values()) == form["bytes"]


def test_flipped_bits_are_named_and_made_anew(built: Workspace) -> None:
    harm(blob(built, B), flip, sealed=True)
    assert damages(built, "--quick") == {}  # no trace but the bytes themselves
    other = b3(flip(b"one\nb\n"))[:12]
    out = os.path.relpath(os.path.realpath(built.root / "mxt-out/b/p"), built.root / "cache")
    text = (
        "2 damages in 4 blobs, 2 results, N hashed in T\n"
        "\n"
        f"  cas/{B[:2]}/{B}\n"
        f"    holds other bytes, of digest {other}; needed by //:b\n"
        "\n"
        f"  {out}\n"
        "    is a link to the damaged blob; of //:b\n"
        "\n"
        "not whole any more: //:b\n"
        "\n"
    )
    checked = built.run("cache", "check")
    assert (checked.code, times_away(checked.out)) == (
        1,
        f"{text}mxt cache repair sets aside what is damaged; the next build makes it anew\n",
    )
    repaired = built.run("cache", "repair")
    assert (repaired.code, times_away(repaired.out)) == (
        0,
        f"{text}set aside: 2 places\nthe next build runs again: //:b\n",
    )
    again = built.run("cache", "repair")  # nothing is left to do
    assert "note: 1 result lost in an earlier damage, made again when needed" in again.out
    assert again.out.endswith("nothing to repair\n")
    assert built.build(":b").executed == {"//:b"}
    assert built.read("mxt-out/b/p") == "one\nb\n"
    assert times_away(built.run("cache", "check").out) == "whole: 4 blobs, 2 results, N hashed in T\n"


def test_quick_sees_what_was_written_to_or_cut(built: Workspace) -> None:
    harm(blob(built, A), flip)
    harm(blob(built, B), lambda data: data[:3], sealed=True)
    found = damages(built, "--quick")
    assert {place: what for place, (what, _) in found.items() if place.startswith("cas")} == {
        f"cas/{A[:2]}/{A}": f"holds other bytes, of digest {b3(flip(b'one' + bytes([10])))[:12]}",
        f"cas/{B[:2]}/{B}": f"holds other bytes, of digest {b3(b'one')[:12]}",
    }
    assert {target for _, targets in found.values() for target in targets} == {"//:a", "//:b"}
    built.run("cache", "repair", "--quick")
    assert built.build(":b").executed == {"//:a", "//:b"}
    assert damages(built) == {}


def test_a_touched_blob_is_no_damage(built: Workspace) -> None:
    os.utime(blob(built, A))
    assert damages(built, "--quick") == {}


def test_deleted_blobs_are_found_again_in_the_outputs(built: Workspace) -> None:
    shutil.rmtree(built.root / "cache/cas")
    assert damages(built) == {
        f"cas/{A[:2]}/{A}": ("is missing", ["//:a"]),
        f"cas/{B[:2]}/{B}": ("is missing", ["//:b"]),
    }
    repaired = built.run("cache", "repair")
    assert repaired.out.endswith("linked again: 2 places\nthe next build runs nothing again\n")
    assert blob(built, B).stat().st_ino == (built.root / "mxt-out/b/p").stat().st_ino
    assert damages(built) == {}
    assert built.build(":b").executed == set()


def test_damaged_outputs_are_linked_again(built: Workspace) -> None:
    folder = Path(os.path.realpath(built.root / "mxt-out/b"))
    (folder / "p").unlink()
    (folder / "p").write_text("mine")
    (folder / "stranger").write_text("what is this")
    relative = os.path.relpath(folder, built.root / "cache")
    assert damages(built, "--quick") == {
        f"{relative}/p": ("has 4 bytes, not 6", ["//:b"]),
        f"{relative}/stranger": ("does not belong there", ["//:b"]),
    }
    assert built.run("cache", "repair").code == 0
    assert os.listdir(folder) == ["p"]
    assert built.read("mxt-out/b/p") == "one\nb\n"
    kept = [path.read_text() for path in (built.root / "cache/quarantine").iterdir()]
    assert sorted(kept) == ["mine", "what is this"]  # somebody's work may be in it
    assert damages(built) == {}


def test_damaged_records_databases_and_evidence(built: Workspace) -> None:
    cache = built.root / "cache"
    key = Path(os.path.realpath(built.root / "mxt-out/b")).name
    (record,) = (cache / "ac" / key[:2] / key).iterdir()
    harm(record, lambda data: data.replace(b'"size":6', b'"size":7'))
    (log,) = (cache / "evidence" / key).glob("*/log.txt")
    log.write_text("never said")
    for name in ("index.sqlite", "state/last.sqlite"):
        for suffix in ("-wal", "-shm"):
            (cache / f"{name}{suffix}").unlink(missing_ok=True)
        (cache / name).write_bytes(b"garbage" * 1000)
    (cache / "cas/zz").mkdir()
    (cache / "cas/zz/note").write_text("a note")
    assert damages(built) == {
        "cas/zz/note": ("is no blob by its name", []),
        f"ac/{key[:2]}/{key}/{record.name}": ("has a signature that does not hold", ["//:b"]),
        str(log.relative_to(cache)): ("is not as the run left it", ["//:b"]),
        "index.sqlite": ("is no database", []),
        "state/last.sqlite": ("is no database", []),
    }
    repaired = built.run("cache", "repair")
    assert repaired.out.endswith(
        "set aside: 3 places\nrebuilt: 2 places\nthe next build runs again: //:b\n"
    ), repaired.out
    assert damages(built) == {}
    # the history was told by the runs: what ran before is known again
    assert "its result is no longer kept: a gc or a repair took it away" in built.run("explain", ":b").out
    assert built.build(":b").executed == {"//:b"}


def test_missing_folders_and_a_store_that_is_not_there(built: Workspace, ws: Workspace) -> None:
    nothing = ws.run("cache", "check")
    assert nothing.code == 2
    assert nothing.err == (
        f"error: {ws.root}/cache: there is no store\n"
        "  hint: the first build makes it; --store names another\n"
    )
    for name in ("evidence", "runs", "locks", "leases", "state", "tmp"):
        shutil.rmtree(built.root / "cache" / name)
    assert built.run("cache", "check").code == 0
    assert built.run("cache", "info").code == 0
    assert built.run("cache", "repair").code == 0
    for name in ("ac", "cas", "out"):
        shutil.rmtree(built.root / "cache" / name)
    assert built.run("cache", "check").code == 0
    assert built.run("cache", "info").code == 0
    assert built.build(":b").executed == {"//:a", "//:b"}


def test_options_that_do_not_go_together(ws: Workspace) -> None:
    ws.run("gc")  # makes a store
    assert ws.run("cache", "info", "--quick").err == "error: --quick goes with check and repair\n"
    assert ws.run("cache", "repair", "--json").err == "error: --json goes with info and check\n"
    assert ws.run("cache", "chekc").code == 2


def test_a_read_only_store_is_checked_and_not_repaired(built: Workspace) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap")
    harm(blob(built, B), flip, sealed=True)
    cache = str(built.root / "cache")

    def read_only(*args: str) -> subprocess.CompletedProcess[str]:
        prefix = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", cache, cache]
        return subprocess.run(
            [*prefix, *built.command(*args)], cwd=built.root, env=built.env, capture_output=True, text=True
        )

    checked = read_only("cache", "check")
    assert checked.returncode == 1
    assert checked.stdout.startswith("2 damages in 4 blobs, 2 results, ")
    info = read_only("cache", "info")
    assert info.returncode == 0, info.stderr
    assert "what mxt gc would free is not known: cannot " in info.stdout
    repaired = read_only("cache", "repair")
    assert repaired.returncode == 1
    assert "it is on a read-only filesystem" in repaired.stderr
    assert "Traceback" not in repaired.stderr + info.stderr + checked.stderr


def test_beside_a_running_build(built: Workspace) -> None:
    """A check and a repair go on beside a build, and the build ends well."""
    built.write(
        "MXTBUILD",
        BUILD + f'    genrule(name = "c", srcs = [":b"], outs = ["q"], cmd = "{GATE}; cat $< > $@")\n',
    )
    process = built.start("build", ":c")
    wait_for(lambda: at_gate(built))
    harm(blob(built, A), flip, sealed=True)
    assert built.run("cache", "repair").out.endswith("the next build runs again: //:a\n")
    assert damages(built) == {}
    let_go(built)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert built.read("mxt-out/c/q") == "one\nb\n"
    assert built.build(":b").executed == {"//:a"}


def test_a_repair_killed_at_any_moment_is_finished_by_the_next(built: Workspace) -> None:
    for after in (0.05, 0.1, 0.15, 0.2):
        shutil.rmtree(built.root / "cache/cas")
        process = built.start("cache", "repair", "--quick")
        time.sleep(after)
        kill_tree(process)
        assert built.run("cache", "repair").code == 0
        assert damages(built) == {}
    assert built.build(":b").executed == set()


def test_a_form_that_is_damaged_is_put_back_by_the_next_build(built: Workspace) -> None:
    """No result needs it, so nothing runs again; what it explains can be explained again."""
    key = Path(os.path.realpath(built.root / "mxt-out/b")).name
    if len(key) != 64:
        key = Path(os.path.realpath(next((built.root / "mxt-out/b").iterdir()))).parent.name
    form = built.root / "cache/cas" / key[:2] / key
    before = form.read_bytes()
    form.chmod(0o644)
    form.write_bytes(b"x" + before[1:])
    assert "; only explaining //:b needs it\n" in built.run("cache", "check").out
    repaired = built.run("cache", "repair").out
    assert repaired.endswith("set aside: 1 place\nthe next build runs nothing again\n")
    assert built.build(":b").executed == set()
    assert form.read_bytes() == before
