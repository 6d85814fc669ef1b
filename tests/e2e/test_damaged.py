"""A store that was damaged, is read-only or full: the next build repairs or says clearly what it needs."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mxt.store import hash_bytes
from tests.e2e.conftest import Result, Workspace

BUILD = """
    genrule(name = "a", srcs = ["in.txt"], outs = ["a.txt"], cmd = "cat $< > $@; echo a >> $@")
    genrule(
        name = "b",
        srcs = [":a"],
        outs = ["b/", "tool.sh"],
        cmd = \"\"\"
            mkdir -p $(RULEDIR)/b/deep
            cat $< > $(RULEDIR)/b/copy
            echo deep > $(RULEDIR)/b/deep/file
            echo '#!/bin/sh' > $(RULEDIR)/tool.sh
            chmod +x $(RULEDIR)/tool.sh
        \"\"\",
    )
    bundle(name = "all", deps = [":a", ":b"])
"""
ALL = {"//:a", "//:b"}


@pytest.fixture
def built(ws: Workspace) -> Workspace:
    ws.write("in.txt", "in\n")
    ws.write("MXTBUILD", BUILD)
    assert ws.build("//:all").executed == ALL
    return ws


def content(ws: Workspace) -> dict[str, tuple[str, int]]:
    """Every file below mxt-out: path -> (digest, mode). No digest where a file says when and by whom it was made.

    A receipt that is written again tells of another build, and its report of other runs or of none.
    """
    found = {}
    for folder, _, names in os.walk(ws.root / "mxt-out", followlinks=True):
        for name in names:
            path = Path(folder, name)
            when = name in ("receipt.dsse.json", "report.html")
            digest = "" if when else str(hash_bytes(path.read_bytes()))
            found[str(path.relative_to(ws.root))] = (digest, stat.S_IMODE(path.stat().st_mode))
    return found


def overwrite(path: Path, data: bytes) -> None:
    """Change a read-only file in place, as a careless editor or a bad disk would."""
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(mode)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes()) or bytearray(1)
    data[len(data) // 2] ^= 1
    overwrite(path, bytes(data))


def truncate(path: Path) -> None:
    overwrite(path, path.read_bytes()[:-1])


def empty(path: Path) -> None:
    overwrite(path, b"")


def delete(path: Path) -> None:
    path.unlink()


def into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE = [flip, truncate, empty, delete, into_folder]


def blob_of(ws: Workspace, path: str) -> Path:
    digest = hash_bytes((ws.root / path).read_bytes())
    (found,) = (p for p in (ws.root / "cache/cas" / digest[:2]).iterdir() if p.name[:64] == digest)
    return found


def tree_object(ws: Workspace) -> Path:
    """The tree object of :b's folder."""
    for record in (ws.root / "cache/ac").glob("*/*/*.json"):
        outputs = json.loads(record.read_bytes())["payload"]["outputs"]
        if "b" in outputs:
            digest = outputs["b"]["digest"]
            return ws.root / "cache/cas" / digest[:2] / digest
    raise AssertionError("no realisation of :b")


def records(ws: Workspace, part: str) -> list[Path]:
    return sorted((ws.root / "cache" / part).glob("*/*/*.json"))


def repaired(ws: Workspace, before: dict[str, tuple[str, int]], *, unseen: bool = False) -> Result:
    """Build again, plainly (with the shortcut of a null build) and with events; the result is as before.

    unseen: nothing that a null build looks at has changed, so that `mxt verify` must find it first.
    """
    plain = ws.run("build", "//:all")
    assert plain.code == 0, plain.err
    assert content(ws) == before
    verified = ws.run("verify", "//:all")
    if unseen:
        assert verified.code == 1, verified.out
        assert "the next build makes again what is damaged in the store: mxt build //:all" in verified.out
        plain = ws.run("build", "//:all")
        assert plain.code == 0, plain.err
        verified = ws.run("verify", "//:all")
    assert verified.code == 0, verified.out + verified.err
    again = ws.build("//:all")
    assert again.executed == set(), "the first build left something to repair"
    assert content(ws) == before
    return plain


def each_damage(*places: str) -> pytest.MarkDecorator:
    """Every damage to the first place, and one to each of the others."""
    pairs = [(places[0], damage) for damage in DAMAGE]
    pairs += [(place, DAMAGE[-1 - i]) for i, place in enumerate(places[1:])]
    return pytest.mark.parametrize(("what", "damage"), pairs)


@each_damage("a.txt", "b/copy", "tool.sh")
def test_a_damaged_blob_is_made_again(built: Workspace, what: str, damage: Callable[[Path], None]) -> None:
    before = content(built)
    target = "a" if what == "a.txt" else "b"
    damage(blob_of(built, f"mxt-out/{target}/{what}"))
    repaired(built, before)
    if damage is not delete and damage is not into_folder:  # it was the output's inode, too
        history = built.run("log", f"//:{target}", "--history", env={"COLUMNS": "200"}).out
        assert [line.rpartition("  ")[2] for line in history.splitlines()[2:]] == [
            "its outputs were missing or damaged",
            "never built here",
        ]


@pytest.mark.parametrize("damage", [flip, truncate, delete])
def test_a_damaged_tree_object_is_made_again(built: Workspace, damage: Callable[[Path], None]) -> None:
    before = content(built)
    damage(tree_object(built))
    repaired(built, before, unseen=True)


@each_damage("b/b/deep/file", "a/a.txt", "b/tool.sh")
def test_a_damaged_output_is_restored(built: Workspace, what: str, damage: Callable[[Path], None]) -> None:
    before = content(built)
    damage(built.root / "mxt-out" / what)
    repaired(built, before)


def test_a_stranger_in_an_output_folder_goes_away_but_is_not_lost(built: Workspace) -> None:
    before = content(built)
    (built.root / "mxt-out/b/b/mine.txt").write_text("my work")
    repaired(built, before)
    saved = [p for p in (built.root / "cache/quarantine").rglob("*") if p.is_file()]
    assert [p.read_text() for p in saved] == ["my work"]


def test_an_output_that_lost_its_executable_bit_gets_it_back(built: Workspace) -> None:
    before = content(built)
    (built.root / "mxt-out/b/tool.sh").chmod(0o444)
    repaired(built, before)


@each_damage("ac", "runs", "runs", "runs")
def test_damaged_records(built: Workspace, what: str, damage: Callable[[Path], None]) -> None:
    before = content(built)
    for record in records(built, what):
        damage(record)
    built.write("MXTBUILD", BUILD.replace('name = "all"', 'name = "all", tags = ["x"]'))
    repaired(built, before)


@pytest.mark.parametrize(
    "folder", ["out", "cas", "ac", "runs", "state", "locks", "leases", "tmp", "evidence", "mxt-out"]
)
def test_a_deleted_folder(built: Workspace, folder: str) -> None:
    before = content(built)
    shutil.rmtree(built.root / ("mxt-out" if folder == "mxt-out" else f"cache/{folder}"), ignore_errors=True)
    repaired(built, before, unseen=folder in ("ac", "runs", "evidence"))


@pytest.mark.parametrize("what", ["a/a.txt", "b/b/deep/file"])
def test_a_bit_that_flipped_on_the_disk_itself(built: Workspace, what: str) -> None:
    """No time stamp tells of it; only reading everything does."""
    before = content(built)
    path = built.root / "mxt-out" / what
    facts = path.stat()
    flip(path)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert built.build("//:all").executed == set(), "this test attacks what a build cannot see"
    verified = built.run("verify", "//:all")
    assert verified.code == 1
    assert "mxt build //:all" in verified.out
    assert built.run("build", "//:all").code == 0
    assert content(built) == before
    assert built.run("verify", "//:all").code == 0


def test_a_deleted_store(built: Workspace) -> None:
    before = content(built)
    shutil.rmtree(built.root / "cache")
    repaired(built, before)


def garbage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1000)


def older(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE files(path TEXT, digest TEXT)")
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()


def other_columns(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    for table in ("files", "slices", "keys"):
        connection.execute(f"CREATE TABLE {table}(other TEXT)")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()


def torn(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\xff" * (len(data) // 2))


def locked(path: Path) -> None:
    """Left in the middle of a transaction by a killed process."""
    code = (
        f"import os, sqlite3; c = sqlite3.connect({str(path)!r}, isolation_level=None);"
        "c.execute('BEGIN EXCLUSIVE'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)


@pytest.mark.parametrize("damage", [garbage, empty, delete, older, other_columns, torn, locked, into_folder])
def test_damaged_databases(built: Workspace, damage: Callable[[Path], None]) -> None:
    before = content(built)
    for name in ("index.sqlite", "state/last.sqlite"):
        damage(built.root / "cache" / name)
    built.write("MXTBUILD", BUILD.replace('name = "all"', 'name = "all", tags = ["x"]'))
    assert built.build("//:all").executed == set(), "nothing depends on it but time"
    assert content(built) == before
    built.write("in.txt", "other\n")
    assert built.build("//:all").executed == ALL
    assert built.run("explain", "//:all").code == 0


@pytest.mark.parametrize("damage", [garbage, empty, delete, truncate, flip, into_folder])
def test_damaged_state(built: Workspace, damage: Callable[[Path], None]) -> None:
    before = content(built)
    assert built.run("build", "//:all").code == 0  # leaves a snapshot
    for name in ("durations.sqlite", "snapshots", "attempts.log", "roots", "operators", "receipts"):
        found = [p for p in (built.root / "cache/state").rglob("*") if p.is_file() and name in p.parts]
        assert found, name
        for path in found:
            damage(path)
    repaired(built, before)
    assert built.run("gc").code == 0
    assert content(built) == before
    assert built.run("log", "//:a").code == 0


def test_files_that_a_killed_build_left(built: Workspace) -> None:
    before = content(built)
    store = built.root / "cache"
    (store / "leases").mkdir(exist_ok=True)
    (store / "leases" / "999999-abcd").write_text("1\n")
    (store / "tmp" / "999999-abcd-1").mkdir()
    (store / "tmp" / "999999-abcd-1" / "outputs").write_text("half")
    (store / "tmp" / "999999-abcd-2").write_text("half")
    built.write("in.txt", "other\n")
    assert built.build("//:all").executed == ALL
    built.write("in.txt", "in\n")
    repaired(built, before)
    assert built.run("gc").code == 0
    assert not list((store / "tmp").iterdir())
    assert not list((store / "leases").iterdir())
    assert {p.name for p in (store / "locks").iterdir()} <= {"store.lock", "keys.lock"}


def test_a_store_of_a_newer_mxt_is_left_alone(built: Workspace) -> None:
    (built.root / "cache/format").write_text("mxt store 99\n")
    (built.root / "in.txt").write_text("other\n")
    result = built.build("//:all", code=1)
    assert "the store has format 'mxt store 99'" in result.err
    assert "another store with --store" in result.err


# ---- a store that cannot be written -----------------------------------------------------------------


def mounted(*args: str) -> None:
    done = subprocess.run(["mount", *args], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")


@pytest.fixture
def read_only(built: Workspace) -> Iterator[Workspace]:
    """The built workspace with its store on a read-only mount."""
    store = str(built.root / "cache")
    mounted("--bind", store, store)
    try:
        mounted("-o", "remount,ro,bind", store)
        yield built
    finally:
        subprocess.run(["umount", "-l", store], check=True)


def test_a_read_only_store(read_only: Workspace) -> None:
    before = content(read_only)
    read_only.write("in.txt", "other\n")
    result = read_only.build("//:all", code=1)
    assert result.err.count("error:") == 1, result.err
    assert "it is on a read-only filesystem" in result.err
    assert "make it writable for this user, or use another store with --store" in result.err
    assert content(read_only) == before
    assert read_only.run("gc").code == 1
    assert read_only.run("explain", "//:all").code == 0
    elsewhere = str(read_only.home / "store")
    assert read_only.build("//:all", "--store", elsewhere).executed == ALL


def test_a_store_of_somebody_else(built: Workspace) -> None:
    """Permissions instead of a mount; they bind only who is not root, so mxt runs as nobody."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become somebody else")
    built.write("in.txt", "other\n")
    place = built.root
    while place != Path("/"):
        if not place.stat().st_mode & 0o005:
            place.chmod(place.stat().st_mode | 0o055)
        place = place.parent
    home = built.home / "nobody"
    home.mkdir()
    os.chown(home, 65534, 65534)
    for path in (built.home, home):
        path.chmod(0o755)
    command = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        *built.command("build", "//:all"),
    ]
    env = {**built.env, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    arguments = [*command, "--workspace", str(built.root)]
    done = subprocess.run(arguments, env=env, cwd=built.root, capture_output=True, text=True, check=False)
    if "Permission denied" in done.stderr and "python" in done.stderr:
        pytest.skip("the interpreter is not readable for others here")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "mxt itself failed" not in done.stderr
    assert "permission denied" in done.stderr
    assert "use another store with --store" in done.stderr


# ---- a full disk --------------------------------------------------------------------------------------


@pytest.fixture
def small(ws: Workspace) -> Iterator[Workspace]:
    """A workspace whose store has 3 MiB of room; mxt's own folders are there already."""
    store = ws.root / "cache"
    store.mkdir()
    mounted("-t", "tmpfs", "-o", "size=3m,mode=755", "tmpfs", str(store))
    try:
        ws.write("MXTBUILD", 'genrule(name = "first", outs = ["x"], cmd = "echo x > $@")\n')
        ws.build("//:first")
        yield ws
    finally:
        subprocess.run(["umount", "-l", str(store)], check=True)


def fill_up(ws: Workspace, leave: int = 0) -> Path:
    """Take all room in the store but `leave` bytes."""
    filler = ws.root / "cache" / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
        file.truncate(max(0, file.tell() - leave))
    return filler


def half_recorded(ws: Workspace) -> None:
    """Asserts that no realisation promises what is not there, and nothing temporary is left."""
    for record in records(ws, "ac"):
        for output in json.loads(record.read_bytes())["payload"]["outputs"].values():
            blob = ws.root / "cache/cas" / output["digest"][:2] / output["digest"]
            assert blob.exists() or Path(f"{blob}.x").exists()
    assert not list((ws.root / "cache/tmp").iterdir())


LARGE = """
    genrule(name = "large", outs = ["large.bin"], cmd = "head -c 2000000 /dev/urandom > $@; {after}")
    genrule(name = "next", srcs = [":large"], outs = ["size.txt"], cmd = "wc -c < $< > $@")
"""


def test_no_room_for_an_output(small: Workspace) -> None:
    small.write("MXTBUILD", LARGE.format(after="true"))
    filler = fill_up(small, leave=1_000_000)
    result = small.build("//:next", code=1)
    assert "hint: the disk is full: free some space" in result.err
    assert result.finished == {"//:large": "failed", "//:next": "skipped"}
    half_recorded(small)
    filler.unlink()
    assert small.build("//:next").executed == {"//:large", "//:next"}
    assert small.read("mxt-out/next/size.txt").strip() == "2000000"


def test_no_room_at_all(small: Workspace) -> None:
    """Not even for the lease, the action's form or its log."""
    small.write("MXTBUILD", LARGE.format(after="true"))
    filler = fill_up(small)
    result = small.build("//:next", code=1)
    assert "the disk is full" in result.err
    assert "mxt gc" in result.err
    half_recorded(small)
    filler.unlink()
    assert small.build("//:next").executed == {"//:large", "//:next"}


@pytest.mark.parametrize("leave", [8192, 20480, 32768, 49152])
def test_no_room_somewhere_on_the_way(small: Workspace, leave: int) -> None:
    """From one page to a few: each stops the build at another place, from laying out to the receipt."""
    small.write(
        "MXTBUILD",
        """
        genrule(name = "a", outs = ["a.txt", "d/"], cmd = "cd $(RULEDIR); echo a > a.txt; echo f > d/f")
        genrule(name = "b", srcs = [":a"], outs = ["b.txt"], cmd = "ls $(SRCS) > $@; echo b > $@")
        bundle(name = "all", deps = [":a", ":b"])
        """,
    )
    filler = fill_up(small, leave=leave)
    result = small.run("build", "//:all")
    assert result.code in (0, 1)
    if result.code:
        assert "the disk is full" in result.err, result.err
    half_recorded(small)
    filler.unlink()
    small.build("//:all")
    assert small.read("mxt-out/b/b.txt") == "b\n"
    assert small.run("verify", "//:all").code == 0
    assert not any("filler" in p.name for p in (small.root / "cache").iterdir())


TALKS = '''
"""Makes its output first, then writes evidence until the disk is full."""

from mxt.rule import Attributes, Run, Target


class Attrs(Attributes):
    pass


def actions(target: Target) -> None:
    target.action(run=talk, outputs={"x": "x.txt"})


def talk(run: Run) -> None:
    run.outputs["x"].write_text("x")
    with (run.evidence / "much").open("wb", buffering=0) as file:
        try:
            for _ in range(2000):
                file.write(bytes(4096))
        except OSError:
            pass
'''


def test_an_action_that_fills_the_disk_with_evidence(small: Workspace) -> None:
    """The log, the blob's name and the records that come after it find no room."""
    small.write("rules/talk.py", TALKS)
    small.write("MXTBUILD", 'talk(name = "talks")\n')
    small.run("trust")
    result = small.build("//:talks", code=1)
    assert "the disk is full" in result.err, result.err
    half_recorded(small)
    assert len(records(small, "ac")) == 1, "of the build that came before"
    for file in (small.root / "cache/evidence").rglob("much"):
        file.unlink()
    small.write("rules/talk.py", TALKS.replace("range(2000)", "range(2)"))
    small.run("trust")
    assert small.build("//:talks").executed == {"//:talks"}
